//! emptyDir: a folder that lives as long as its pod, on disk or in memory.
//!
//! The folder is made beside its place and moved there when it is complete. So whatever lies at the place is ready, no
//! marker file is written, and neither content nor modes of a volume in use are touched by a second call.

use super::dirs::make_dirs;
use super::{Result, VolumeError, unmount};
use crate::sys::mounts::{Tmpfs, is_mount_point, mount_tmpfs};
use crate::sys::tree::remove_tree;
use rustix::fs::{Gid, Mode, chmod, chown, mkdir, rename};
use rustix::io::Errno;
use rustix::mount::MountFlags;
use std::ffi::OsString;
use std::io;
use std::path::{Path, PathBuf};

/// The kubelet's name for the kind in paths.
pub(super) const PLUGIN: &str = "kubernetes.io~empty-dir";

const MODE: u32 = 0o777;
/// What an fsGroup adds to a folder: read and write, search, and the group handed down to what is made inside
/// (`pkg/volume/volume_linux.go`).
const GROUP_MODE: u32 = 0o2770;

/// The hard limit of an emptyDir in memory: the smallest of its own limit, the pod's and the node's, zeros aside.
#[must_use]
pub fn tmpfs_size(limit: Option<u64>, pod_memory_limit: Option<u64>, node_memory: Option<u64>) -> Option<u64> {
    [limit, pod_memory_limit, node_memory].into_iter().flatten().filter(|bytes| *bytes > 0).min()
}

fn mode(fs_group: Option<u32>) -> u32 {
    if fs_group.is_some() { MODE | GROUP_MODE } else { MODE }
}

pub(super) fn prepare_disk(path: &Path, fs_group: Option<u32>) -> Result<()> {
    if is_dir(path)? {
        return Ok(());
    }
    parent_of(path)?;
    let beside = beside(path);
    remove_tree(&beside)?;
    let failed = |operation, at: &Path| {
        let path = at.to_owned();
        move |e: Errno| VolumeError::Io { operation, path, source: e.into() }
    };
    mkdir(&beside, Mode::RWXU).map_err(failed("make folder", &beside))?;
    if let Some(gid) = fs_group {
        chown(&beside, None, Some(Gid::from_raw(gid))).map_err(failed("set group of", &beside))?;
    }
    // After mkdir, whose mode the umask cuts, and after chown, which takes the setgid bit away.
    chmod(&beside, Mode::from_raw_mode(mode(fs_group))).map_err(failed("set mode of", &beside))?;
    rename(&beside, path).map_err(failed("make folder", path))
}

pub(super) fn prepare_memory(path: &Path, size: Option<u64>, fs_group: Option<u32>) -> Result<()> {
    if !is_dir(path)? {
        parent_of(path)?;
        mkdir(path, Mode::RWXU).map_err(|e| VolumeError::Io {
            operation: "make folder",
            path: path.to_owned(),
            source: e.into(),
        })?;
    }
    let failed = |operation| move |source| VolumeError::Io { operation, path: path.to_owned(), source };
    if is_mount_point(path).map_err(failed("look at"))? {
        return Ok(());
    }
    let tmpfs =
        Tmpfs { size, mode: mode(fs_group), gid: fs_group.unwrap_or(0), noswap: true, flags: MountFlags::empty() };
    mount_tmpfs(path, &tmpfs).map_err(failed("mount tmpfs at"))
}

pub(super) fn remove(path: &Path) -> Result<()> {
    unmount(path)?;
    remove_tree(path)?;
    Ok(remove_tree(&beside(path))?)
}

/// No volume is named like this: a volume's name begins with a letter or a digit.
fn beside(path: &Path) -> PathBuf {
    let mut name = OsString::from(".new-");
    name.push(path.file_name().unwrap_or_default());
    path.with_file_name(name)
}

fn parent_of(path: &Path) -> Result<()> {
    path.parent().map_or(Ok(()), make_dirs)
}

fn is_dir(path: &Path) -> Result<bool> {
    match path.symlink_metadata() {
        Ok(found) if found.is_dir() => Ok(true),
        Ok(_) => Err(VolumeError::Io {
            operation: "use as folder",
            path: path.to_owned(),
            source: io::ErrorKind::NotADirectory.into(),
        }),
        Err(e) if e.kind() == io::ErrorKind::NotFound => Ok(false),
        Err(source) => Err(VolumeError::Io { operation: "look at", path: path.to_owned(), source }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sys::testing::is_root;
    use std::fs;
    use std::os::unix::fs::{MetadataExt, PermissionsExt};

    fn mode_and_group(path: &Path) -> (u32, u32) {
        let found = fs::metadata(path).unwrap();
        (found.mode() & 0o7777, found.gid())
    }

    #[test]
    fn the_smallest_limit_counts() {
        assert_eq!(tmpfs_size(None, None, None), None);
        assert_eq!(tmpfs_size(Some(0), Some(0), Some(9)), Some(9));
        assert_eq!(tmpfs_size(Some(5), Some(7), Some(9)), Some(5));
        assert_eq!(tmpfs_size(Some(5), Some(3), None), Some(3));
    }

    #[test]
    fn on_disk_anyone_may_write_and_a_second_call_changes_nothing() {
        let base = tempfile::tempdir().unwrap();
        let path = base.path().join("volumes").join(PLUGIN).join("v");
        prepare_disk(&path, None).unwrap();
        assert_eq!(mode_and_group(&path).0, 0o777);
        fs::write(path.join("f"), b"x").unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o700)).unwrap();
        prepare_disk(&path, None).unwrap();
        assert_eq!(mode_and_group(&path).0, 0o700);
        assert!(path.join("f").exists());
    }

    #[test]
    fn a_half_made_volume_is_made_anew_and_removal_repeats() {
        // Removal unmounts first.
        if !is_root() {
            return;
        }
        let base = tempfile::tempdir().unwrap();
        let path = base.path().join("v");
        fs::create_dir_all(beside(&path).join("left")).unwrap();
        prepare_disk(&path, None).unwrap();
        assert!(!beside(&path).exists() && fs::read_dir(&path).unwrap().next().is_none());
        fs::create_dir_all(beside(&path)).unwrap();
        remove(&path).unwrap();
        remove(&path).unwrap();
        assert!(!path.exists() && !beside(&path).exists());
    }

    #[test]
    fn a_link_is_no_volume() {
        // Removal unmounts first.
        if !is_root() {
            return;
        }
        let base = tempfile::tempdir().unwrap();
        let path = base.path().join("v");
        std::os::unix::fs::symlink("/etc", &path).unwrap();
        assert!(prepare_disk(&path, None).is_err());
        assert!(prepare_memory(&path, None, None).is_err());
        remove(&path).unwrap();
        assert!(Path::new("/etc/passwd").exists());
    }

    #[test]
    fn linux_the_group_owns_the_volume() {
        if !is_root() {
            return;
        }
        let base = tempfile::tempdir().unwrap();
        let disk = base.path().join("d");
        prepare_disk(&disk, Some(4321)).unwrap();
        assert_eq!(mode_and_group(&disk), (0o2777, 4321));
        fs::create_dir(disk.join("inner")).unwrap();
        assert_eq!(mode_and_group(&disk.join("inner")).1, 4321);

        let memory = base.path().join("m");
        prepare_memory(&memory, Some(1 << 20), Some(4321)).unwrap();
        assert_eq!(mode_and_group(&memory), (0o2777, 4321));
        fs::write(memory.join("f"), b"x").unwrap();
        prepare_memory(&memory, Some(1 << 20), Some(4321)).unwrap();
        assert!(memory.join("f").exists());
        let full = fs::write(memory.join("big"), vec![0; 2 << 20]).unwrap_err();
        assert_eq!(full.kind(), io::ErrorKind::StorageFull);
        remove(&memory).unwrap();
        remove(&memory).unwrap();
        assert!(!memory.exists());
    }
}
