//! A pod's file system in memory, and on it its shared memory: one `/dev/shm` for all its containers, as they share the
//! IPC namespace.

use super::dirs::make_dirs;
use super::{PodDirs, Result, VolumeError, unmount};
use crate::sys::mounts::{Tmpfs, is_mount_point, mount_tmpfs};
use crate::sys::tree::remove_tree;
use rustix::fs::{Mode, chmod};
use rustix::mount::MountFlags;

/// What container runtimes give.
const SIZE: u64 = 64 * 1024 * 1024;
const MODE: u32 = 0o755;
const SHM_MODE: u32 = 0o1777;

/// Mounts the pod's file system in memory and makes the shared memory in it. Safe to repeat.
///
/// # Errors
/// [`VolumeError::Io`].
pub fn prepare_memory(dirs: &PodDirs) -> Result<()> {
    let path = dirs.memory();
    make_dirs(&path)?;
    let failed = |operation| {
        let path = path.clone();
        move |source| VolumeError::Io { operation, path, source }
    };
    if !is_mount_point(&path).map_err(failed("look at"))? {
        let flags = MountFlags::NOSUID | MountFlags::NODEV | MountFlags::NOEXEC;
        let tmpfs = Tmpfs { size: Some(SIZE), mode: MODE, gid: 0, noswap: false, flags };
        mount_tmpfs(&path, &tmpfs).map_err(failed("mount tmpfs at"))?;
    }
    let shm = dirs.shm();
    make_dirs(&shm)?;
    let chmod = chmod(&shm, Mode::from_raw_mode(SHM_MODE));
    chmod.map_err(|e| VolumeError::Io { operation: "set mode of", path: shm, source: e.into() })
}

/// Unmounts the pod's file system in memory. Safe to repeat.
///
/// # Errors
/// [`VolumeError::Io`].
pub fn remove_memory(dirs: &PodDirs) -> Result<()> {
    unmount(&dirs.memory())?;
    Ok(remove_tree(&dirs.memory())?)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::PodUid;
    use crate::sys::testing::is_root;
    use std::fs;
    use std::os::unix::fs::MetadataExt;

    #[test]
    fn linux_shared_memory_is_mounted_once() {
        if !is_root() {
            return;
        }
        let base = tempfile::tempdir().unwrap();
        let dirs = PodDirs::new(&base.path().join("data"), &base.path().join("run"), &PodUid::new("uid-1").unwrap());
        prepare_memory(&dirs).unwrap();
        let found = || fs::metadata(dirs.shm()).unwrap();
        assert_eq!(found().mode() & 0o7777, 0o1777);
        let device = found().dev();
        prepare_memory(&dirs).unwrap();
        assert_eq!(found().dev(), device);
        remove_memory(&dirs).unwrap();
        remove_memory(&dirs).unwrap();
        assert!(!dirs.memory().exists());
    }
}
