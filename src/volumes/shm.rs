//! A pod's shared memory: one `/dev/shm` for all its containers, as they share the IPC namespace.

use super::dirs::make_dirs;
use super::{PodDirs, Result, VolumeError, unmount};
use crate::sys::mounts::{Tmpfs, is_mount_point, mount_tmpfs};
use crate::sys::tree::remove_tree;
use rustix::mount::MountFlags;
use std::path::PathBuf;

/// What container runtimes give.
const SIZE: u64 = 64 * 1024 * 1024;
const MODE: u32 = 0o1777;

/// Mounts the pod's shared memory and tells where. Safe to repeat.
///
/// # Errors
/// [`VolumeError::Io`].
pub fn prepare_shm(dirs: &PodDirs) -> Result<PathBuf> {
    let path = dirs.shm();
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
    Ok(path)
}

/// Unmounts the pod's shared memory. Safe to repeat.
///
/// # Errors
/// [`VolumeError::Io`].
pub fn remove_shm(dirs: &PodDirs) -> Result<()> {
    unmount(&dirs.shm())?;
    Ok(remove_tree(&dirs.shm())?)
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
        let path = prepare_shm(&dirs).unwrap();
        assert_eq!(fs::metadata(&path).unwrap().mode() & 0o7777, 0o1777);
        let device = fs::metadata(&path).unwrap().dev();
        assert_eq!(fs::metadata(prepare_shm(&dirs).unwrap()).unwrap().dev(), device);
        remove_shm(&dirs).unwrap();
        remove_shm(&dirs).unwrap();
        assert!(!path.exists());
    }
}
