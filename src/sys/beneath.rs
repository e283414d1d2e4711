//! File calls that cannot leave a folder, whatever names they are given.
//!
//! Parents are resolved by openat2 with RESOLVE_BENEATH: a symbolic link on the way is followed only while it stays
//! inside, an absolute one or one that climbs out is refused by the kernel. The last component is never followed.

use rustix::fd::OwnedFd;
use rustix::fs::{
    AtFlags, CWD, FileType, Gid, Mode, OFlags, ResolveFlags, Stat, Timespec, Timestamps, Uid, XattrFlags,
};
use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io;
use std::os::fd::{AsFd, AsRawFd};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};

const FOLDER: OFlags = OFlags::RDONLY.union(OFlags::DIRECTORY).union(OFlags::CLOEXEC);
/// How often a lookup is tried again when a rename got in between.
const TRIES: usize = 8;

/// A folder that nothing below leaves.
#[derive(Debug)]
pub struct Beneath {
    root: OwnedFd,
}

/// An open folder below the root, and one name in it.
#[derive(Debug, Clone, Copy)]
pub struct Place<'a> {
    /// The folder.
    pub dir: &'a OwnedFd,
    /// One component: no slash, not `.` or `..`.
    pub name: &'a OsStr,
}

/// Owner, permissions and time of one object.
#[derive(Debug, Clone, Copy)]
pub struct Attributes {
    /// Numeric owner.
    pub uid: u32,
    /// Numeric group.
    pub gid: u32,
    /// Permission bits with set-user-id, set-group-id and sticky.
    pub mode: u32,
    /// Seconds since 1970 and nanoseconds.
    pub mtime: (i64, u32),
}

impl Attributes {
    fn owner(&self) -> (Option<Uid>, Option<Gid>) {
        (Some(Uid::from_raw(self.uid)), Some(Gid::from_raw(self.gid)))
    }

    const fn bits(&self) -> Mode {
        Mode::from_bits_truncate(self.mode & 0o7777)
    }
}

fn timestamps((tv_sec, nanos): (i64, u32)) -> Timestamps {
    let time = Timespec { tv_sec, tv_nsec: nanos.min(999_999_999).into() };
    Timestamps { last_access: time, last_modification: time }
}

impl Beneath {
    /// Opens the folder itself.
    ///
    /// # Errors
    /// It is not there, not a folder, or a symbolic link.
    pub fn open(path: &Path) -> io::Result<Self> {
        Ok(Self { root: rustix::fs::openat(CWD, path, FOLDER | OFlags::NOFOLLOW, Mode::empty())? })
    }

    /// A folder below the root; the root itself for no components.
    ///
    /// # Errors
    /// `EXDEV` when a symbolic link leads out, else the kernel's answer.
    pub fn folder(&self, components: &[&OsStr]) -> io::Result<OwnedFd> {
        let mut path = components.join(OsStr::new("/"));
        if path.is_empty() {
            path.push(".");
        }
        let resolve = ResolveFlags::BENEATH | ResolveFlags::NO_MAGICLINKS | ResolveFlags::NO_XDEV;
        for _ in 0..TRIES {
            match rustix::fs::openat2(&self.root, &path, FOLDER, Mode::empty(), resolve) {
                Err(rustix::io::Errno::AGAIN) => {}
                other => return Ok(other?),
            }
        }
        Err(rustix::io::Errno::AGAIN.into())
    }

    /// Like [`Self::folder`], and makes what is missing with mode 0755. Tells how many folders it made.
    ///
    /// # Errors
    /// See [`Self::folder`].
    pub fn make_folder(&self, components: &[&OsStr]) -> io::Result<(OwnedFd, u64)> {
        match (self.folder(components), components.split_last()) {
            (Err(error), Some((name, parents))) if error.kind() == io::ErrorKind::NotFound => {
                let (parent, above) = self.make_folder(parents)?;
                rustix::fs::mkdirat(&parent, *name, Mode::from_bits_truncate(0o755))?;
                let made = self.folder(components)?;
                // Whatever this process's umask took away.
                rustix::fs::fchmod(&made, Mode::from_bits_truncate(0o755))?;
                Ok((made, above + 1))
            }
            (opened, _) => Ok((opened?, 0)),
        }
    }
}

impl Place<'_> {
    /// What is there, not following a link; `None` for nothing.
    ///
    /// # Errors
    /// The kernel's answer.
    pub fn look(&self) -> io::Result<Option<Stat>> {
        match rustix::fs::statat(self.dir, self.name, AtFlags::SYMLINK_NOFOLLOW) {
            Ok(stat) => Ok(Some(stat)),
            Err(rustix::io::Errno::NOENT) => Ok(None),
            Err(error) => Err(error.into()),
        }
    }

    /// Removes whatever is there, a folder with all it holds.
    ///
    /// # Errors
    /// The kernel's answer.
    pub fn remove(&self, is_folder: bool) -> io::Result<()> {
        if is_folder {
            // Does not follow links, neither here nor below.
            let path = PathBuf::from(format!("/proc/self/fd/{}", self.dir.as_raw_fd()));
            return std::fs::remove_dir_all(path.join(self.name));
        }
        Ok(rustix::fs::unlinkat(self.dir, self.name, AtFlags::empty())?)
    }

    /// Makes a new file and opens it for writing.
    ///
    /// # Errors
    /// The kernel's answer; something is there already.
    pub fn create_file(&self) -> io::Result<File> {
        let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        Ok(File::from(rustix::fs::openat(self.dir, self.name, flags, Mode::from_bits_truncate(0o600))?))
    }

    /// Makes a folder.
    ///
    /// # Errors
    /// The kernel's answer.
    pub fn create_folder(&self) -> io::Result<()> {
        Ok(rustix::fs::mkdirat(self.dir, self.name, Mode::from_bits_truncate(0o700))?)
    }

    /// Opens the folder that is there, not following a link.
    ///
    /// # Errors
    /// The kernel's answer.
    pub fn open_folder(&self) -> io::Result<OwnedFd> {
        Ok(rustix::fs::openat(self.dir, self.name, FOLDER | OFlags::NOFOLLOW, Mode::empty())?)
    }

    /// Makes a symbolic link.
    ///
    /// # Errors
    /// The kernel's answer.
    pub fn create_link(&self, target: &OsStr) -> io::Result<()> {
        Ok(rustix::fs::symlinkat(target, self.dir, self.name)?)
    }

    /// Makes another name for an object, which is not followed if it is a link.
    ///
    /// # Errors
    /// The kernel's answer.
    pub fn create_hard_link(&self, to: &Place<'_>) -> io::Result<()> {
        Ok(rustix::fs::linkat(to.dir, to.name, self.dir, self.name, AtFlags::empty())?)
    }

    /// Makes a device node or a fifo.
    ///
    /// # Errors
    /// The kernel's answer.
    pub fn create_node(&self, kind: FileType, (major, minor): (u32, u32)) -> io::Result<()> {
        let device = rustix::fs::makedev(major, minor);
        Ok(rustix::fs::mknodat(self.dir, self.name, kind, Mode::from_bits_truncate(0o600), device)?)
    }

    /// Sets owner, permissions and time of what is no file or folder. A link's permissions do not exist.
    ///
    /// # Errors
    /// The kernel's answer.
    pub fn set_attributes(&self, attributes: &Attributes, is_link: bool) -> io::Result<()> {
        let (uid, gid) = attributes.owner();
        rustix::fs::chownat(self.dir, self.name, uid, gid, AtFlags::SYMLINK_NOFOLLOW)?;
        if !is_link {
            rustix::fs::chmodat(self.dir, self.name, attributes.bits(), AtFlags::empty())?;
        }
        let times = timestamps(attributes.mtime);
        Ok(rustix::fs::utimensat(self.dir, self.name, &times, AtFlags::SYMLINK_NOFOLLOW)?)
    }
}

/// Sets owner, then permissions (a change of owner drops set-user-id), of an open file or folder.
///
/// # Errors
/// The kernel's answer.
pub fn set_owner_and_mode(fd: impl AsFd, attributes: &Attributes) -> io::Result<()> {
    let (uid, gid) = attributes.owner();
    rustix::fs::fchown(&fd, uid, gid)?;
    Ok(rustix::fs::fchmod(&fd, attributes.bits())?)
}

/// Sets the modification and access time.
///
/// # Errors
/// The kernel's answer.
pub fn set_time(fd: impl AsFd, mtime: (i64, u32)) -> io::Result<()> {
    Ok(rustix::fs::futimens(fd, &timestamps(mtime))?)
}

/// Sets an extended attribute.
///
/// # Errors
/// The kernel's answer; `Unsupported` when the file system has none.
pub fn set_xattr(fd: impl AsFd, name: &OsStr, value: &[u8]) -> io::Result<()> {
    Ok(rustix::fs::fsetxattr(fd, name, value, XattrFlags::empty())?)
}

/// Bytes and inodes that are free for root on the file system of an open folder.
///
/// # Errors
/// The kernel's answer.
pub fn free_space(path: &Path) -> io::Result<(u64, u64)> {
    let stat = rustix::fs::statvfs(path)?;
    // File systems without an inode table report none in all.
    let inodes = if stat.f_files == 0 { u64::MAX } else { stat.f_ffree };
    Ok((stat.f_bavail.saturating_mul(stat.f_frsize), inodes))
}

/// Bytes as a name.
#[must_use]
pub fn name(bytes: &[u8]) -> &OsStr {
    OsStr::from_bytes(bytes)
}

/// Bytes as an owned name.
#[must_use]
pub fn owned_name(bytes: Vec<u8>) -> OsString {
    OsString::from_vec(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::symlink;

    fn parts(path: &str) -> Vec<&OsStr> {
        path.split('/').map(OsStr::new).collect()
    }

    #[test]
    fn a_folder_beneath_is_made_and_links_that_stay_inside_are_followed() {
        let dir = tempfile::tempdir().unwrap();
        let root = Beneath::open(dir.path()).unwrap();
        assert_eq!(root.make_folder(&parts("usr/lib/x")).unwrap().1, 3);
        symlink("usr/lib", dir.path().join("lib")).unwrap();
        assert_eq!(root.make_folder(&parts("lib/y/z")).unwrap().1, 2);
        assert_eq!(root.make_folder(&parts("lib/y/z")).unwrap().1, 0);
        assert!(dir.path().join("usr/lib/y/z").is_dir());
        root.folder(&[]).unwrap();
    }

    #[test]
    fn links_that_leave_are_refused_by_the_kernel() {
        let outside = tempfile::tempdir().unwrap();
        std::fs::create_dir(outside.path().join("in")).unwrap();
        let dir = outside.path().join("root");
        std::fs::create_dir(&dir).unwrap();
        symlink(outside.path(), dir.join("absolute")).unwrap();
        symlink("../in", dir.join("climbing")).unwrap();
        let root = Beneath::open(&dir).unwrap();
        for path in ["absolute/in", "climbing", "..", "climbing/new", "absolute/new"] {
            let error = root.make_folder(&parts(path)).unwrap_err();
            assert_eq!(error.raw_os_error(), Some(rustix::io::Errno::XDEV.raw_os_error()), "{path}: {error}");
        }
        assert_eq!(std::fs::read_dir(outside.path()).unwrap().count(), 2);
    }

    #[test]
    fn the_root_itself_may_not_be_a_link() {
        let dir = tempfile::tempdir().unwrap();
        symlink("/etc", dir.path().join("x")).unwrap();
        assert!(Beneath::open(&dir.path().join("x")).is_err());
    }

    #[test]
    fn removing_does_not_follow_links() {
        let dir = tempfile::tempdir().unwrap();
        std::fs::create_dir_all(dir.path().join("kept/deep")).unwrap();
        std::fs::create_dir(dir.path().join("gone")).unwrap();
        symlink("../kept", dir.path().join("gone/link")).unwrap();
        let root = Beneath::open(dir.path()).unwrap().folder(&[]).unwrap();
        Place { dir: &root, name: OsStr::new("gone") }.remove(true).unwrap();
        assert!(dir.path().join("kept/deep").is_dir() && !dir.path().join("gone").exists());
    }
}
