//! Mounts put inside a root that somebody else filled. Where they go is found as [`confined`] finds it: whatever links
//! the root holds, nothing is mounted outside of it.

use super::confined::{self, NewFolder};
use super::mounts::{make_private, set_attributes};
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
/// missing. `read_only` is about the topmost mount: what is mounted below `source` stays as it is. What is mounted there
/// later, on either side, does not show on the other (`mountPropagation: None`).
///
/// # Errors
/// What the kernel says: ENOENT when there is no source, ENOTDIR when one side is a folder and the other is not.
pub fn bind(root: impl AsFd, source: &Path, destination: &Path, read_only: bool) -> io::Result<()> {
    let flags = OpenTreeFlags::OPEN_TREE_CLONE | OpenTreeFlags::OPEN_TREE_CLOEXEC | OpenTreeFlags::AT_RECURSIVE;
    let tree = rustix::mount::open_tree(CWD, source, flags)?;
    make_private(tree.as_fd())?;
    if read_only {
        set_attributes(tree.as_fd(), MountAttrFlags::MOUNT_ATTR_RDONLY)?;
    }
    let place = place(root, destination, is_folder(&tree)?)?;
    put(tree, place)
}

/// A filesystem to mount.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NewMount {
    /// The kernel's name for it.
    pub kind: String,
    /// What stands for its device in the tables of mounts.
    pub source: String,
    /// Of the mount.
    pub attributes: MountAttrFlags,
    /// Of the filesystem: `name=value` or a name alone.
    pub options: Vec<String>,
}

/// Mounts a filesystem at `destination` of the root, as the caller's namespaces have it.
///
/// # Errors
/// What the kernel says: ENODEV for a filesystem that it does not have, EINVAL for an option; ELOOP when sysfs would
/// be mounted over a link, as then what is to be hidden of it would lie elsewhere.
pub fn mount(root: impl AsFd, destination: &Path, new: &NewMount) -> io::Result<()> {
    let fs = rustix::mount::fsopen(new.kind.as_str(), FsOpenFlags::FSOPEN_CLOEXEC)?;
    rustix::mount::fsconfig_set_string(fs.as_fd(), "source", new.source.as_str())?;
    for option in &new.options {
        match option.split_once('=') {
            Some((name, value)) => rustix::mount::fsconfig_set_string(fs.as_fd(), name, value)?,
            None => rustix::mount::fsconfig_set_flag(fs.as_fd(), option.as_str())?,
        }
    }
    rustix::mount::fsconfig_create(fs.as_fd())?;
    let tree = rustix::mount::fsmount(fs.as_fd(), FsMountFlags::FSMOUNT_CLOEXEC, new.attributes)?;
    let found = place(root.as_fd(), destination, true)?;
    let place = if new.kind == "sysfs" { confined::open_straight(root, destination, OFlags::PATH)? } else { found };
    put(tree, place)
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sys::mounts::is_mount_point;
    use crate::sys::testing::{is_root, on_small_disk};
    use std::fs;
    use std::os::unix::fs::{PermissionsExt, symlink};

    fn tmpfs(attributes: MountAttrFlags) -> NewMount {
        let (kind, source, options) = ("tmpfs".to_owned(), "tmpfs".to_owned(), vec!["mode=711".to_owned()]);
        NewMount { kind, source, attributes, options }
    }

    #[test]
    fn linux_what_is_mounted_stays_inside_and_is_shown_as_asked() {
        if !is_root() {
            return;
        }
        on_small_disk(4 << 20, |disk| {
            let (root, volume) = (disk.join("root"), disk.join("volume"));
            fs::create_dir_all(root.join("real")).unwrap();
            fs::create_dir_all(volume.join("below")).unwrap();
            fs::write(volume.join("file"), "text").unwrap();
            symlink("../../../../volume", root.join("out")).unwrap();
            symlink("/real", root.join("link")).unwrap();
            let inside = confined::open_root(&root).unwrap();
            mount(confined::open_root(&volume).unwrap(), Path::new("/below"), &tmpfs(MountAttrFlags::empty())).unwrap();
            fs::write(volume.join("below/file"), "deep").unwrap();

            bind(&inside, &volume, Path::new("/link/a"), true).unwrap();
            assert_eq!(fs::read_to_string(root.join("real/a/below/file")).unwrap(), "deep");
            let refused = fs::write(root.join("real/a/new"), "").unwrap_err();
            assert_eq!(refused.kind(), io::ErrorKind::ReadOnlyFilesystem);
            fs::write(root.join("real/a/below/new"), "").unwrap();

            bind(&inside, &volume.join("file"), Path::new("/etc/file"), false).unwrap();
            assert_eq!(fs::read_to_string(root.join("etc/file")).unwrap(), "text");
            fs::write(root.join("etc/file"), "changed").unwrap();

            // A link that would lead out of the root ends in it.
            bind(&inside, &volume, Path::new("/out"), false).unwrap_err();
            assert!(!is_mount_point(&volume).unwrap());
            assert!(bind(&inside, &volume.join("file"), Path::new("/real"), false).is_err());
            assert!(bind(&inside, &disk.join("nothere"), Path::new("/b"), false).is_err());
        });
    }

    /// Most systems share all mounts: what is a copy of one would follow it.
    #[test]
    fn linux_what_is_mounted_later_stays_where_it_is() {
        use rustix::mount::{MountPropagationFlags, mount_change};
        if !is_root() {
            return;
        }
        on_small_disk(4 << 20, |disk| {
            let (root, volume) = (disk.join("root"), disk.join("volume"));
            fs::create_dir_all(&root).unwrap();
            fs::create_dir_all(volume.join("later")).unwrap();
            mount_change(disk, MountPropagationFlags::SHARED | MountPropagationFlags::REC).unwrap();
            let volume_root = confined::open_root(&volume).unwrap();
            bind(confined::open_root(&root).unwrap(), &volume, Path::new("/copy"), false).unwrap();
            mount(volume_root, Path::new("/later"), &tmpfs(MountAttrFlags::empty())).unwrap();
            assert!(is_mount_point(&volume.join("later")).unwrap());
            assert!(!is_mount_point(&root.join("copy/later")).unwrap());
        });
    }

    #[test]
    fn linux_a_filesystem_has_its_attributes_and_sysfs_no_link_in_its_way() {
        if !is_root() {
            return;
        }
        on_small_disk(4 << 20, |root| {
            let inside = confined::open_root(root).unwrap();
            mount(&inside, Path::new("/dev"), &tmpfs(MountAttrFlags::MOUNT_ATTR_RDONLY)).unwrap();
            assert_eq!(fs::metadata(root.join("dev")).unwrap().permissions().mode() & 0o7777, 0o711);
            assert!(fs::create_dir(root.join("dev/x")).is_err());

            fs::create_dir(root.join("elsewhere")).unwrap();
            symlink("elsewhere", root.join("sys")).unwrap();
            let sysfs = NewMount { kind: "sysfs".to_owned(), options: Vec::new(), ..tmpfs(MountAttrFlags::empty()) };
            let error = mount(&inside, Path::new("/sys"), &sysfs).unwrap_err();
            assert_eq!(error.raw_os_error(), Some(Errno::LOOP.raw_os_error()));
            let unknown = NewMount { kind: "nothing".to_owned(), ..sysfs };
            assert!(mount(&inside, Path::new("/x"), &unknown).is_err());
        });
    }
}
