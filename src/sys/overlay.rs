//! Mounting: a private mount namespace and an overlay root.

use rustix::fs::{CWD, Mode, OFlags};
use rustix::mount::{
    FsMountFlags, FsOpenFlags, MountAttrFlags, MountFlags, MountPropagationFlags, MoveMountFlags, UnmountFlags,
};
use std::io;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::path::{Path, PathBuf};

/// The parts of an overlay.
#[derive(Debug, Clone, Copy)]
pub struct Overlay<'a> {
    /// Read-only layers, the topmost first; at least one.
    pub lower: &'a [PathBuf],
    /// Where changes go.
    pub upper: &'a Path,
    /// The overlay's own scratch folder, on the same filesystem as `upper`.
    pub work: &'a Path,
}

/// Moves the calling process into a mount namespace of its own. Mounts made outside still arrive in it; mounts made in
/// it stay there and vanish with its last process.
///
/// # Errors
/// EPERM without CAP_SYS_ADMIN.
#[expect(unsafe_code, reason = "unshare is unsafe in rustix because it could split the descriptor table")]
pub fn private_namespace() -> io::Result<()> {
    // SAFETY: NEWNS shares nothing less than before except the mount table.
    unsafe { rustix::thread::unshare_unsafe(rustix::thread::UnshareFlags::NEWNS) }?;
    rustix::mount::mount_change("/", MountPropagationFlags::REC | MountPropagationFlags::DOWNSTREAM)?;
    Ok(())
}

/// Mounts an overlay at `target`. It is `volatile`: the kernel never syncs it, as a container's writable layer is
/// thrown away with the container and never used again after a crash.
///
/// # Errors
/// What the kernel says; EINVAL for layers that cannot be stacked, ENODEV without overlay support.
pub fn mount(overlay: Overlay<'_>, target: &Path) -> io::Result<()> {
    match mount_by_descriptor(overlay, target) {
        // A kernel before 6.7 does not know how to add layers one by one.
        Err(error) if error.raw_os_error() == Some(libc::EINVAL) => mount_by_options(overlay, target),
        other => other,
    }
}

fn mount_by_descriptor(overlay: Overlay<'_>, target: &Path) -> io::Result<()> {
    let fs = rustix::mount::fsopen("overlay", FsOpenFlags::FSOPEN_CLOEXEC)?;
    for lower in overlay.lower {
        rustix::mount::fsconfig_set_string(fs.as_fd(), "lowerdir+", lower)?;
    }
    rustix::mount::fsconfig_set_string(fs.as_fd(), "upperdir", overlay.upper)?;
    rustix::mount::fsconfig_set_string(fs.as_fd(), "workdir", overlay.work)?;
    rustix::mount::fsconfig_set_flag(fs.as_fd(), "volatile")?;
    rustix::mount::fsconfig_create(fs.as_fd())?;
    let mount = rustix::mount::fsmount(fs.as_fd(), FsMountFlags::FSMOUNT_CLOEXEC, MountAttrFlags::empty())?;
    rustix::mount::move_mount(mount.as_fd(), "", CWD, target, MoveMountFlags::MOVE_MOUNT_F_EMPTY_PATH)?;
    Ok(())
}

/// mount(2) takes one page of options: layers are named by descriptor, so that hundreds fit whatever their paths.
fn mount_by_options(overlay: Overlay<'_>, target: &Path) -> io::Result<()> {
    let open = |path: &Path| -> io::Result<(OwnedFd, String)> {
        let fd = rustix::fs::open(path, OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty())?;
        let name = format!("/proc/self/fd/{}", fd.as_raw_fd());
        Ok((fd, name))
    };
    let lower = overlay.lower.iter().map(|path| open(path)).collect::<io::Result<Vec<_>>>()?;
    let (upper, work) = (open(overlay.upper)?, open(overlay.work)?);
    let names: Vec<&str> = lower.iter().map(|(_, name)| name.as_str()).collect();
    let options = format!("lowerdir={},upperdir={},workdir={},volatile", names.join(":"), upper.1, work.1);
    let options = std::ffi::CString::new(options).map_err(|_| io::Error::from_raw_os_error(libc::EINVAL))?;
    rustix::mount::mount("overlay", target, "overlay", MountFlags::empty(), Some(options.as_c_str()))?;
    Ok(())
}

/// Takes the topmost mount at `target` away, now or when its last user is gone.
///
/// # Errors
/// EINVAL when nothing is mounted there.
pub fn unmount(target: &Path) -> io::Result<()> {
    Ok(rustix::mount::unmount(target, UnmountFlags::DETACH)?)
}
