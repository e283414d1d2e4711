//! The node's device nodes, for privileged containers.

use super::DeviceNode;
use crate::runtime::devices::Kind;
use rustix::fs::{FileType, major, minor};
use std::path::Path;

/// What every container has of its own, so that the node's must not replace it.
const OWN: [&str; 5] = ["pts", "shm", "mqueue", "fd", "console"];

/// The device nodes below the node's `/dev`, except what each container has of its own. What vanishes while it is
/// looked at is left out.
#[must_use]
pub fn host_devices() -> Vec<DeviceNode> {
    let mut nodes = Vec::new();
    collect(Path::new("/dev"), &mut nodes);
    nodes.sort_by(|one, other| one.path.cmp(&other.path));
    nodes
}

fn collect(folder: &Path, nodes: &mut Vec<DeviceNode>) {
    let Ok(entries) = std::fs::read_dir(folder) else { return };
    for entry in entries.flatten() {
        let path = entry.path();
        if folder == Path::new("/dev") && OWN.iter().any(|own| entry.file_name() == *own) {
            continue;
        }
        let Ok(stat) = rustix::fs::lstat(&path) else { continue };
        let kind = match FileType::from_raw_mode(stat.st_mode) {
            FileType::Directory => {
                collect(&path, nodes);
                continue;
            }
            FileType::BlockDevice => Kind::Block,
            FileType::CharacterDevice => Kind::Char,
            _ => continue,
        };
        nodes.push(DeviceNode {
            path,
            kind,
            major: major(stat.st_rdev),
            minor: minor(stat.st_rdev),
            mode: stat.st_mode & 0o7777,
            uid: stat.st_uid,
            gid: stat.st_gid,
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_null_device_is_there_and_terminals_are_not() {
        let nodes = host_devices();
        let null = nodes.iter().find(|node| node.path == Path::new("/dev/null")).unwrap();
        assert_eq!((null.kind, null.major, null.minor), (Kind::Char, 1, 3));
        assert!(nodes.iter().all(|node| !node.path.starts_with("/dev/pts")));
    }
}
