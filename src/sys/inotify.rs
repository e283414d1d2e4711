//! inotify: to be told of changes in several folders and files over one descriptor.

use rustix::fs::inotify::{self, CreateFlags, ReadFlags, WatchFlags};
use rustix::io::Errno;
use std::ffi::OsString;
use std::io;
use std::mem::MaybeUninit;
use std::os::fd::{AsRawFd, OwnedFd, RawFd};
use std::os::unix::ffi::OsStringExt;
use std::path::Path;

/// An inotify descriptor; readable when something changed.
#[derive(Debug)]
pub struct Watcher {
    fd: OwnedFd,
}

/// One watched folder or file. Two paths that lead to the same inode share one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct WatchId(i32);

/// Which folder or file changed. More than one change can be told once.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Change {
    /// Where; absent when the kernel dropped changes, so that anything may have changed.
    pub watch: Option<WatchId>,
    /// The name inside a watched folder; absent when the watched thing itself changed.
    pub name: Option<OsString>,
    /// The watched thing itself was removed or moved, or its file system went: nothing more is told of it.
    pub gone: bool,
}

impl Watcher {
    /// Opens a descriptor that watches nothing yet.
    ///
    /// # Errors
    /// EMFILE when the user's inotify descriptors are used up.
    pub fn new() -> io::Result<Self> {
        Ok(Self { fd: inotify::init(CreateFlags::CLOEXEC | CreateFlags::NONBLOCK)? })
    }

    /// Watches a folder: names that come and go, and files that were written and closed. A link is followed.
    /// Watching it again changes nothing, and watching the same inode as a file adds to what is told.
    ///
    /// # Errors
    /// ENOENT, ENOTDIR; ENOSPC when the user's watches are used up.
    pub fn folder(&self, path: &Path) -> io::Result<WatchId> {
        let flags = NAMES | WatchFlags::CLOSE_WRITE | OWN | WatchFlags::ONLYDIR | WatchFlags::MASK_ADD;
        Ok(WatchId(inotify::add_watch(&self.fd, path, flags)?))
    }

    /// Watches a folder whose files are written without being closed: each write is told.
    ///
    /// # Errors
    /// As [`folder`](Self::folder).
    pub fn growing(&self, path: &Path) -> io::Result<WatchId> {
        Ok(WatchId(inotify::add_watch(&self.fd, path, NAMES | WatchFlags::MODIFY | OWN | WatchFlags::ONLYDIR)?))
    }

    /// Watches what a path leads to: that it was written and closed, replaced or removed.
    ///
    /// # Errors
    /// ENOENT; ENOSPC when the user's watches are used up.
    pub fn file(&self, path: &Path) -> io::Result<WatchId> {
        // ATTRIB: a removed file whose inode lives on elsewhere only loses a name.
        let flags = WatchFlags::CLOSE_WRITE | WatchFlags::ATTRIB | OWN | WatchFlags::MASK_ADD;
        Ok(WatchId(inotify::add_watch(&self.fd, path, flags)?))
    }

    /// Stops watching. One that the kernel ended by itself is no error.
    pub fn forget(&self, watch: WatchId) {
        // EINVAL: the inode is gone and its watch with it.
        let _ = inotify::remove_watch(&self.fd, watch.0);
    }

    /// Takes all changes that are waiting. Never blocks.
    ///
    /// # Errors
    /// `WouldBlock` when there are none; that of read(2).
    pub fn take(&self) -> io::Result<Vec<Change>> {
        let mut buffer = [MaybeUninit::uninit(); 4096];
        let mut reader = inotify::Reader::new(&self.fd, &mut buffer);
        let mut changes = Vec::new();
        loop {
            let event = match reader.next() {
                Ok(event) => event,
                Err(Errno::AGAIN) if !changes.is_empty() => return Ok(changes),
                Err(Errno::INTR) => continue,
                Err(e) => return Err(e.into()),
            };
            let overflow = event.events().contains(ReadFlags::QUEUE_OVERFLOW);
            let gone = event.events().intersects(ReadFlags::DELETE_SELF | ReadFlags::MOVE_SELF | ReadFlags::IGNORED);
            let name = event.file_name().map(|name| OsString::from_vec(name.to_bytes().to_vec()));
            let change = Change { watch: (!overflow).then(|| WatchId(event.wd())), name, gone };
            if changes.last() != Some(&change) {
                changes.push(change);
            }
        }
    }
}

/// Names that come and go.
const NAMES: WatchFlags =
    WatchFlags::CREATE.union(WatchFlags::DELETE).union(WatchFlags::MOVED_FROM).union(WatchFlags::MOVED_TO);
/// What is told of the watched thing itself. Unmounting is told unasked.
const OWN: WatchFlags = WatchFlags::DELETE_SELF.union(WatchFlags::MOVE_SELF);

impl AsRawFd for Watcher {
    fn as_raw_fd(&self) -> RawFd {
        self.fd.as_raw_fd()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    #[test]
    fn changes_are_told_with_their_place() {
        let dir = tempfile::tempdir().unwrap();
        let elsewhere = tempfile::tempdir().unwrap();
        let target = elsewhere.path().join("t");
        fs::write(&target, b"1").unwrap();
        let watcher = Watcher::new().unwrap();
        let folder = watcher.folder(dir.path()).unwrap();
        let file = watcher.file(&target).unwrap();
        assert_eq!(watcher.folder(dir.path()).unwrap(), folder);
        assert_eq!(watcher.take().unwrap_err().kind(), io::ErrorKind::WouldBlock);

        fs::write(dir.path().join("a"), b"1").unwrap();
        fs::write(&target, b"2").unwrap();
        let changes = watcher.take().unwrap();
        assert!(changes.contains(&Change { watch: Some(folder), name: Some("a".into()), gone: false }), "{changes:?}");
        assert!(changes.contains(&Change { watch: Some(file), name: None, gone: false }), "{changes:?}");

        watcher.forget(folder);
        watcher.forget(folder);
        let _ended = watcher.take().unwrap();
        fs::write(dir.path().join("b"), b"1").unwrap();
        assert!(watcher.take().is_err());
        assert!(watcher.folder(&target).is_err());
        assert_eq!(watcher.file(&dir.path().join("no")).unwrap_err().kind(), io::ErrorKind::NotFound);
    }

    #[test]
    fn writes_to_an_open_file_and_the_end_of_the_folder_are_told() {
        use std::io::Write as _;
        let dir = tempfile::tempdir().unwrap();
        let watcher = Watcher::new().unwrap();
        let folder = watcher.growing(dir.path()).unwrap();
        let mut file = fs::File::create(dir.path().join("a")).unwrap();
        let _created = watcher.take().unwrap();
        file.write_all(b"1").unwrap();
        assert_eq!(watcher.take().unwrap(), [Change { watch: Some(folder), name: Some("a".into()), gone: false }]);
        assert!(watcher.take().is_err());
        drop(file);
        fs::rename(dir.path().join("a"), dir.path().join("b")).unwrap();
        fs::remove_dir_all(dir.path()).unwrap();
        let changes = watcher.take().unwrap();
        assert!(changes.iter().any(|change| change.name.as_deref() == Some("b".as_ref())), "{changes:?}");
        assert!(changes.iter().any(|change| change.gone), "{changes:?}");
        assert_eq!(watcher.growing(Path::new("/nonexistent")).unwrap_err().kind(), io::ErrorKind::NotFound);
    }
}
