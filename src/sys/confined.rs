//! Paths inside a root that somebody else filled: symbolic links and `..` never lead out of it.

use rustix::fs::{Mode, OFlags, ResolveFlags};
use rustix::io::Errno;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::path::{Component, Path};

const FOLDER: OFlags = OFlags::PATH.union(OFlags::DIRECTORY).union(OFlags::CLOEXEC);

/// Opens a root folder to look into.
///
/// # Errors
/// What open(2) says.
pub fn open_root(path: &Path) -> io::Result<OwnedFd> {
    Ok(rustix::fs::open(path, FOLDER, Mode::empty())?)
}

/// Opens `path` as a process would whose root is `root`.
///
/// # Errors
/// What openat2(2) says; ENOSYS before Linux 5.6.
pub fn open(root: impl AsFd, path: &Path, flags: OFlags) -> io::Result<OwnedFd> {
    resolve(root, path, flags, ResolveFlags::NO_MAGICLINKS)
}

/// The same where no part of the path is a link.
///
/// # Errors
/// As [`open`], and ELOOP at a link.
pub fn open_straight(root: impl AsFd, path: &Path, flags: OFlags) -> io::Result<OwnedFd> {
    resolve(root, path, flags, ResolveFlags::NO_SYMLINKS)
}

fn resolve(root: impl AsFd, path: &Path, flags: OFlags, links: ResolveFlags) -> io::Result<OwnedFd> {
    let resolve = ResolveFlags::IN_ROOT | links;
    loop {
        match rustix::fs::openat2(root.as_fd(), path, flags | OFlags::CLOEXEC, Mode::empty(), resolve) {
            // A rename anywhere on the system may make the kernel unsure: it asks for another try.
            Err(Errno::AGAIN) => {}
            other => return Ok(other?),
        }
    }
}

/// A folder that was missing.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct NewFolder {
    /// Permission bits.
    pub mode: u32,
    /// Owner.
    pub uid: u32,
    /// Group.
    pub gid: u32,
}

/// Makes the folder `path` inside `root` with every missing parent. What is there is left as it is.
///
/// # Errors
/// ENOTDIR when something else is in the way.
pub fn make_folders(root: impl AsFd, path: &Path, new: NewFolder) -> io::Result<()> {
    let mut so_far = std::path::PathBuf::from("/");
    let mut parent = open(root.as_fd(), &so_far, FOLDER)?;
    for part in path.components() {
        let Component::Normal(name) = part else { continue };
        so_far.push(name);
        parent = match open(root.as_fd(), &so_far, FOLDER) {
            Ok(folder) => folder,
            Err(error) if error.raw_os_error() == Some(libc::ENOENT) => {
                rustix::fs::mkdirat(&parent, name, Mode::from_raw_mode(new.mode))?;
                let folder = rustix::fs::openat(&parent, name, FOLDER | OFlags::NOFOLLOW, Mode::empty())?;
                let (uid, gid) = (rustix::fs::Uid::from_raw(new.uid), rustix::fs::Gid::from_raw(new.gid));
                let by_descriptor = rustix::fs::AtFlags::EMPTY_PATH;
                rustix::fs::chownat(&folder, "", Some(uid), Some(gid), by_descriptor)?;
                folder
            }
            Err(error) => return Err(error),
        };
    }
    Ok(())
}

/// Makes the empty file `path` inside `root`.
///
/// # Errors
/// EEXIST when anything is there, a link that leads nowhere among it.
pub fn make_file(root: impl AsFd, path: &Path, mode: u32) -> io::Result<()> {
    let resolve = ResolveFlags::IN_ROOT | ResolveFlags::NO_MAGICLINKS;
    let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    loop {
        match rustix::fs::openat2(root.as_fd(), path, flags, Mode::from_raw_mode(mode), resolve) {
            Err(Errno::AGAIN) => {}
            other => return Ok(other.map(drop)?),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::symlink;

    fn as_me() -> NewFolder {
        NewFolder { mode: 0o755, uid: rustix::process::getuid().as_raw(), gid: rustix::process::getgid().as_raw() }
    }

    #[test]
    fn folders_are_made_inside_the_root_only() {
        let dir = tempfile::tempdir().unwrap();
        let root = dir.path().join("root");
        std::fs::create_dir_all(root.join("real")).unwrap();
        symlink("../../../..", root.join("up")).unwrap();
        symlink("/real", root.join("link")).unwrap();
        let fd = open_root(&root).unwrap();
        make_folders(&fd, Path::new("/a/b"), as_me()).unwrap();
        make_folders(&fd, Path::new("/up/c"), as_me()).unwrap();
        make_folders(&fd, Path::new("/link/d"), as_me()).unwrap();
        make_folders(&fd, Path::new("/../../e"), as_me()).unwrap();
        for made in ["a/b", "c", "real/d", "e"] {
            assert!(root.join(made).is_dir(), "{made}");
        }
        std::fs::write(root.join("file"), "").unwrap();
        assert!(make_folders(&fd, Path::new("/file/x"), as_me()).is_err());
    }
}
