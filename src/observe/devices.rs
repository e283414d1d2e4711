//! The node's devices, for privileged containers.

use crate::runtime::devices::Kind;
use crate::runtime::spec::DeviceNode;
use std::os::unix::fs::{FileTypeExt as _, MetadataExt as _};
use std::path::Path;

/// Folders of `/dev` that a container gets as mounts of its own, or that hold no devices.
const OWN: [&str; 4] = ["pts", "shm", "mqueue", "fd"];

/// All device nodes below `/dev`. What cannot be read, or vanishes meanwhile, is left out.
#[must_use]
pub fn host_devices() -> Vec<DeviceNode> {
    let mut found = Vec::new();
    below(Path::new("/dev"), &mut found);
    found
}

fn below(folder: &Path, found: &mut Vec<DeviceNode>) {
    let Ok(entries) = std::fs::read_dir(folder) else { return };
    for entry in entries.flatten() {
        let (path, name) = (entry.path(), entry.file_name());
        let Ok(metadata) = entry.metadata() else { continue };
        let kind = metadata.file_type();
        if kind.is_dir() && !OWN.iter().any(|own| name == *own) {
            below(&path, found);
        } else if kind.is_char_device() || kind.is_block_device() {
            let device = metadata.rdev();
            found.push(DeviceNode {
                path,
                kind: if kind.is_block_device() { Kind::Block } else { Kind::Char },
                major: rustix::fs::major(device),
                minor: rustix::fs::minor(device),
                mode: metadata.mode() & 0o777,
                uid: metadata.uid(),
                gid: metadata.gid(),
            });
        }
    }
}
