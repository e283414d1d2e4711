//! The node's devices: all of them for privileged containers, and what others must not see.

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

/// The folders in which processors count how often they were too hot (x86 has them): `thermal_throttle` of each
/// processor below `/sys/devices/system/cpu`, in no order. They tell one container of another's work.
#[must_use]
pub fn thermal_folders() -> Vec<String> {
    thermal_below(Path::new("/sys/devices/system/cpu"))
}

fn thermal_below(processors: &Path) -> Vec<String> {
    let Ok(entries) = std::fs::read_dir(processors) else { return Vec::new() };
    let names = entries.flatten().filter_map(|entry| entry.file_name().into_string().ok());
    let is_processor = |name: &String| {
        name.strip_prefix("cpu").is_some_and(|n| !n.is_empty() && n.bytes().all(|digit| digit.is_ascii_digit()))
    };
    let folders = names.filter(is_processor).map(|name| processors.join(name).join("thermal_throttle"));
    folders.filter(|folder| folder.is_dir()).filter_map(|folder| folder.into_os_string().into_string().ok()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_processors_that_count_have_such_a_folder() {
        let root = tempfile::tempdir().unwrap();
        for folder in ["cpu0/thermal_throttle", "cpu1/cache", "cpu12/thermal_throttle", "cpufreq/thermal_throttle"] {
            std::fs::create_dir_all(root.path().join(folder)).unwrap();
        }
        let mut found = thermal_below(root.path());
        found.sort();
        let wanted = ["cpu0", "cpu12"].map(|name| format!("{}/{name}/thermal_throttle", root.path().display()));
        assert_eq!(found, wanted);
        assert_eq!(thermal_below(&root.path().join("none")), Vec::<String>::new());
    }
}
