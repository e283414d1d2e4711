//! Removal of folder trees that others have written: never out through a link, never across a mount, whatever the
//! depth.

use rustix::fs::{AtFlags, Dir, Mode, OFlags, ResolveFlags, openat, openat2, renameat, unlinkat};
use rustix::io::Errno;
use std::ffi::{CStr, CString, OsStr};
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

/// How deep the removal descends. A folder that lies deeper is first moved up, so that neither descriptors nor stack
/// grow with what a hostile writer made.
const DEPTH: usize = 32;

/// What could not be removed.
#[derive(Debug, thiserror::Error)]
#[error("remove {}{}", path.display(), if *others > 0 { format!(" (and {others} more)") } else { String::new() })]
pub struct RemoveError {
    /// The first thing that is still there.
    pub path: PathBuf,
    /// How many more there are.
    pub others: u64,
    /// Why the first one is: `CrossesDevices` or `ResourceBusy` when something is mounted there.
    #[source]
    pub source: io::Error,
}

/// Removes a file or a folder with all that it holds. What is not there is no error. Goes on after an error. What is
/// mounted below stays untouched, with the folders above it. The path's own parent folders must be trusted.
///
/// # Errors
/// [`RemoveError`] names the first thing that stayed.
pub fn remove_tree(path: &Path) -> Result<(), RemoveError> {
    let failed = |source: io::Error| RemoveError { path: path.to_owned(), others: 0, source };
    let (Some(parent), Some(name)) = (path.parent(), path.file_name()) else {
        return Err(failed(io::ErrorKind::InvalidInput.into()));
    };
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let parent = match openat(rustix::fs::CWD, parent, flags, Mode::empty()) {
        Ok(parent) => parent,
        Err(Errno::NOENT) => return Ok(()),
        Err(e) => return Err(failed(e.into())),
    };
    let name = CString::new(name.as_bytes()).map_err(|e| failed(e.into()))?;
    let mut removal = Removal { top: None, moved: 0, failure: None };
    removal.remove(parent.as_fd(), &name, path, 0);
    removal.failure.map_or(Ok(()), Err)
}

struct Removal {
    /// The tree's own folder: what lies too deep moves there.
    top: Option<OwnedFd>,
    moved: u64,
    failure: Option<RemoveError>,
}

impl Removal {
    fn failed(&mut self, path: PathBuf, source: Errno) {
        match &mut self.failure {
            Some(first) => first.others = first.others.saturating_add(1),
            None => self.failure = Some(RemoveError { path, others: 0, source: source.into() }),
        }
    }

    /// Removes one entry. Whether it is gone.
    fn remove(&mut self, parent: BorrowedFd<'_>, name: &CStr, path: &Path, depth: usize) -> bool {
        match unlinkat(parent, name, AtFlags::empty()) {
            Ok(()) | Err(Errno::NOENT) => return true,
            // A folder; some file systems say EPERM.
            Err(Errno::ISDIR | Errno::PERM) => {}
            Err(e) => {
                self.failed(path.to_owned(), e);
                return false;
            }
        }
        if depth == DEPTH {
            return self.move_up(parent, name, path);
        }
        let within = ResolveFlags::BENEATH | ResolveFlags::NO_XDEV | ResolveFlags::NO_SYMLINKS;
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let folder = match openat2(parent, name, flags, Mode::empty(), within) {
            Ok(folder) => folder,
            Err(Errno::NOENT) => return true,
            Err(e) => {
                self.failed(path.to_owned(), e);
                return false;
            }
        };
        let emptied = self.empty(&folder, path, depth);
        if depth == 0 {
            self.top = None;
        }
        match unlinkat(parent, name, AtFlags::REMOVEDIR) {
            Ok(()) | Err(Errno::NOENT) => true,
            // What stayed inside was reported already.
            Err(Errno::NOTEMPTY) if !emptied => false,
            Err(e) => {
                self.failed(path.to_owned(), e);
                false
            }
        }
    }

    /// Removes what a folder holds. Whether it is empty.
    fn empty(&mut self, folder: &OwnedFd, path: &Path, depth: usize) -> bool {
        if depth == 0 {
            match folder.try_clone() {
                Ok(top) => self.top = Some(top),
                Err(e) => self.failed(path.to_owned(), Errno::from_io_error(&e).unwrap_or(Errno::MFILE)),
            }
        }
        loop {
            let moved_before = self.moved;
            let clean = match self.pass(folder, path, depth) {
                Ok(clean) => clean,
                Err(e) => {
                    self.failed(path.to_owned(), e);
                    return false;
                }
            };
            // What was moved up from below lies here now.
            if depth > 0 || self.moved == moved_before {
                return clean;
            }
        }
    }

    /// Removes each entry as it is read: a folder of a million names does not become a million names in memory. The
    /// kernel goes on giving all entries that were there when an entry already given is removed.
    fn pass(&mut self, folder: &OwnedFd, path: &Path, depth: usize) -> rustix::io::Result<bool> {
        let mut clean = true;
        for entry in Dir::read_from(folder)? {
            let entry = entry?;
            let name = entry.file_name();
            if name != c"." && name != c".." {
                let below = path.join(OsStr::from_bytes(name.to_bytes()));
                clean &= self.remove(folder.as_fd(), name, &below, depth + 1);
            }
        }
        Ok(clean)
    }

    /// Moves a folder that lies too deep into the top folder, to be removed from there.
    fn move_up(&mut self, parent: BorrowedFd<'_>, name: &CStr, path: &Path) -> bool {
        let Some(top) = &self.top else {
            self.failed(path.to_owned(), Errno::LOOP);
            return false;
        };
        loop {
            self.moved += 1;
            let Ok(target) = CString::new(format!(".armlet-remove-{}", self.moved)) else { return false };
            match renameat(parent, name, top, &target) {
                Ok(()) => return true,
                // The writer has such a name too.
                Err(Errno::NOTEMPTY | Errno::EXIST | Errno::NOTDIR) => {}
                Err(e) => {
                    self.failed(path.to_owned(), e);
                    return false;
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sys::mounts::{Tmpfs, mount_tmpfs, unmount_all};
    use crate::sys::testing::is_root;
    use rustix::fs::mkdirat;
    use rustix::mount::{MountFlags, mount_bind};
    use std::fs;
    use std::os::unix::fs::symlink;

    fn dir() -> (tempfile::TempDir, PathBuf) {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().canonicalize().unwrap();
        (dir, path)
    }

    #[test]
    fn links_are_removed_and_not_followed() {
        let (_dir, path) = dir();
        let (tree, kept) = (path.join("tree"), path.join("kept"));
        fs::create_dir_all(tree.join("a/b")).unwrap();
        fs::create_dir(&kept).unwrap();
        fs::write(kept.join("f"), b"x").unwrap();
        symlink(&kept, tree.join("a/out")).unwrap();
        symlink("../..", tree.join("a/b/up")).unwrap();
        fs::write(tree.join("a/b/f"), b"x").unwrap();
        remove_tree(&tree).unwrap();
        assert!(!tree.exists() && kept.join("f").exists());
        remove_tree(&tree).unwrap();
        remove_tree(&tree.join("no/parent")).unwrap();

        symlink(&kept, &tree).unwrap();
        remove_tree(&tree).unwrap();
        assert!(tree.symlink_metadata().is_err() && kept.join("f").exists());
        assert!(remove_tree(Path::new("/")).is_err());
        assert!(remove_tree(Path::new("..")).is_err());
    }

    #[test]
    fn depth_is_no_way_out() {
        // In memory: a busy disk takes its time over so many folders.
        let dir = tempfile::tempdir_in("/dev/shm").unwrap();
        let tree = dir.path().join("tree");
        fs::create_dir(&tree).unwrap();
        // A name as the removal itself gives, and more levels than a path or the descriptors of a process allow.
        fs::create_dir_all(tree.join(".armlet-remove-1/x")).unwrap();
        fs::write(tree.join(".armlet-remove-2"), b"").unwrap();
        let flags = OFlags::PATH | OFlags::DIRECTORY;
        let mut at = openat(rustix::fs::CWD, &tree, flags, Mode::empty()).unwrap();
        for level in 0..2200 {
            mkdirat(&at, "d", Mode::RWXU).unwrap();
            if level % 10 == 0 {
                mkdirat(&at, "e", Mode::RWXU).unwrap();
            }
            at = openat(&at, "d", flags, Mode::empty()).unwrap();
        }
        drop(at);
        remove_tree(&tree).unwrap();
        assert!(!tree.exists());
    }

    #[test]
    fn linux_what_is_mounted_stays() {
        if !is_root() {
            return;
        }
        let (_dir, path) = dir();
        let (tree, host) = (path.join("tree"), path.join("host"));
        fs::create_dir_all(tree.join("vol/bind")).unwrap();
        fs::create_dir_all(tree.join("vol/tmp")).unwrap();
        fs::create_dir(tree.join("other")).unwrap();
        fs::create_dir(&host).unwrap();
        fs::write(host.join("precious"), b"x").unwrap();
        let tmpfs = Tmpfs { size: None, mode: 0o777, gid: 0, noswap: false, flags: MountFlags::empty() };
        mount_tmpfs(&tree.join("vol/tmp"), &tmpfs).unwrap();
        fs::write(tree.join("vol/tmp/f"), b"x").unwrap();
        // A bind mount of the same file system: only the mount tells it apart.
        mount_bind(&host, tree.join("vol/bind")).unwrap();
        let error = remove_tree(&tree).unwrap_err();
        assert_eq!(error.source.kind(), io::ErrorKind::CrossesDevices, "{error}");
        assert!(host.join("precious").exists() && tree.join("vol/tmp/f").exists() && !tree.join("other").exists());
        assert_eq!(error.others, 1, "{error}");
        let itself = remove_tree(&tree.join("vol/bind")).unwrap_err();
        assert_eq!(itself.path, tree.join("vol/bind"));
        unmount_all(&tree.join("vol/bind")).unwrap();
        unmount_all(&tree.join("vol/tmp")).unwrap();
        remove_tree(&tree).unwrap();
        assert!(host.join("precious").exists() && !tree.exists());
    }
}
