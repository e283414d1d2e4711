//! Mounts put inside a root that somebody else filled. Where they go is found as [`confined`] finds it: whatever links
//! the root holds, nothing is mounted outside of it.

use super::confined::{self, NewFolder};
use super::mounts::set_attributes;
use rustix::fs::{AtFlags, CWD, FileType, OFlags, StatxFlags};
use rustix::io::Errno;
use rustix::mount::{FsMountFlags, FsOpenFlags, MountAttrFlags, MoveMountFlags, OpenTreeFlags};
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::path::Path;

/// A place to mount at that is missing is made like this.
const FOLDER: NewFolder = NewFolder { mode: 0o755, uid: 0, gid: 0 };
const FILE_MODE: u32 = 0o644;

/// Shows `source`, with all that is mounted below it, at `destination` of the root. The place is made when it is
/// missing. `read_only` is about the topmost mount: what is mounted below `source` stays as it is.
///
/// # Errors
/// What the kernel says: ENOENT when there is no source, ENOTDIR when one side is a folder and the other is not.
pub fn bind(root: impl AsFd, source: &Path, destination: &Path, read_only: bool) -> io::Result<()> {
    let flags = OpenTreeFlags::OPEN_TREE_CLONE | OpenTreeFlags::OPEN_TREE_CLOEXEC | OpenTreeFlags::AT_RECURSIVE;
    let tree = rustix::mount::open_tree(CWD, source, flags)?;
    if read_only {
        set_attributes(tree.as_fd(), MountAttrFlags::MOUNT_ATTR_RDONLY)?;
    }
    let place = place(root, destination, is_folder(&tree)?)?;
    put(tree, place)
}

/// Mounts a filesystem of its own at `destination` of the root. Options are `name=value` or a name alone.
///
/// # Errors
/// What the kernel says: ENODEV for a filesystem that it does not have, EINVAL for an option.
pub fn mount(
    root: impl AsFd,
    destination: &Path,
    kind: &str,
    attributes: MountAttrFlags,
    options: &[String],
) -> io::Result<()> {
    let fs = rustix::mount::fsopen(kind, FsOpenFlags::FSOPEN_CLOEXEC)?;
    rustix::mount::fsconfig_set_string(fs.as_fd(), "source", kind)?;
    for option in options {
        match option.split_once('=') {
            Some((name, value)) => rustix::mount::fsconfig_set_string(fs.as_fd(), name, value)?,
            None => rustix::mount::fsconfig_set_flag(fs.as_fd(), option.as_str())?,
        }
    }
    rustix::mount::fsconfig_create(fs.as_fd())?;
    let tree = rustix::mount::fsmount(fs.as_fd(), FsMountFlags::FSMOUNT_CLOEXEC, attributes)?;
    put(tree, place(root, destination, true)?)
}

fn put(tree: OwnedFd, place: OwnedFd) -> io::Result<()> {
    let flags = MoveMountFlags::MOVE_MOUNT_F_EMPTY_PATH | MoveMountFlags::MOVE_MOUNT_T_EMPTY_PATH;
    Ok(rustix::mount::move_mount(tree.as_fd(), "", place.as_fd(), "", flags)?)
}

fn is_folder(object: impl AsFd) -> io::Result<bool> {
    let stat = rustix::fs::statx(object, "", AtFlags::EMPTY_PATH, StatxFlags::TYPE)?;
    Ok(FileType::from_raw_mode(stat.stx_mode.into()) == FileType::Directory)
}

/// The place itself, made when it is missing.
fn place(root: impl AsFd, destination: &Path, folder: bool) -> io::Result<OwnedFd> {
    let found = || confined::open(root.as_fd(), destination, OFlags::PATH);
    match found() {
        Err(error) if error.raw_os_error() == Some(Errno::NOENT.raw_os_error()) => {}
        other => return other,
    }
    if folder {
        confined::make_folders(root.as_fd(), destination, FOLDER)?;
    } else {
        confined::make_folders(root.as_fd(), destination.parent().unwrap_or(destination), FOLDER)?;
        confined::make_file(root.as_fd(), destination, FILE_MODE)?;
    }
    found()
}
