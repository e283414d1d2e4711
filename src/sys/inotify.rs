//! inotify: to be told when files of a folder change, instead of asking again and again.

use rustix::fs::inotify::{self, CreateFlags, ReadFlags, WatchFlags};
use std::ffi::OsString;
use std::io;
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd, RawFd};
use std::os::unix::ffi::OsStringExt;
use std::path::Path;

/// Watches the files directly in one folder: writes, and names that come and go. The descriptor is readable when there
/// is something to [`take`](Self::take).
#[derive(Debug)]
pub struct FolderWatch {
    fd: OwnedFd,
}

/// What was seen since the last look.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Seen {
    /// Names of files that were written or that came or went; one may stand here more than once.
    pub names: Vec<OsString>,
    /// More happened than the kernel keeps: look at everything.
    pub overflow: bool,
    /// The folder itself was removed or moved: nothing more will be seen.
    pub gone: bool,
}

impl FolderWatch {
    /// Begins to watch. What happens after the return is seen.
    ///
    /// # Errors
    /// When the folder is missing or is none, or the user's watches are used up.
    pub fn new(folder: &Path) -> io::Result<Self> {
        let fd = inotify::init(CreateFlags::CLOEXEC | CreateFlags::NONBLOCK)?;
        let flags = WatchFlags::MODIFY
            | WatchFlags::CREATE
            | WatchFlags::DELETE
            | WatchFlags::MOVED_FROM
            | WatchFlags::MOVED_TO
            | WatchFlags::DELETE_SELF
            | WatchFlags::MOVE_SELF
            | WatchFlags::ONLYDIR;
        inotify::add_watch(&fd, folder, flags)?;
        Ok(Self { fd })
    }

    /// Takes everything that was seen, if only nothing. Never waits.
    ///
    /// # Errors
    /// When the descriptor cannot be read.
    pub fn take(&self) -> io::Result<Seen> {
        let mut buffer = [MaybeUninit::uninit(); 4096];
        let mut reader = inotify::Reader::new(&self.fd, &mut buffer);
        let mut seen = Seen::default();
        loop {
            let event = match reader.next() {
                Ok(event) => event,
                Err(rustix::io::Errno::AGAIN) => return Ok(seen),
                Err(rustix::io::Errno::INTR) => continue,
                Err(error) => return Err(error.into()),
            };
            let flags = event.events();
            seen.overflow |= flags.contains(ReadFlags::QUEUE_OVERFLOW);
            seen.gone |= flags.intersects(ReadFlags::DELETE_SELF | ReadFlags::MOVE_SELF | ReadFlags::IGNORED);
            seen.names.extend(event.file_name().map(|name| OsString::from_vec(name.to_bytes().to_vec())));
        }
    }

    /// Takes everything that was seen since the last look.
    ///
    /// # Errors
    /// `WouldBlock` when that is nothing; others when the descriptor cannot be read.
    pub fn next(&self) -> io::Result<Seen> {
        match self.take()? {
            nothing if nothing == Seen::default() => Err(io::ErrorKind::WouldBlock.into()),
            seen => Ok(seen),
        }
    }
}

impl AsFd for FolderWatch {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

impl AsRawFd for FolderWatch {
    fn as_raw_fd(&self) -> RawFd {
        self.fd.as_raw_fd()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn changes_are_seen_once() {
        let folder = tempfile::tempdir().unwrap();
        let watch = FolderWatch::new(folder.path()).unwrap();
        assert_eq!(watch.take().unwrap(), Seen::default());
        std::fs::write(folder.path().join("a"), "1").unwrap();
        std::fs::rename(folder.path().join("a"), folder.path().join("b")).unwrap();
        let seen = watch.take().unwrap();
        assert!(seen.names.contains(&"a".into()) && seen.names.contains(&"b".into()), "{seen:?}");
        assert_eq!(watch.take().unwrap(), Seen::default());
        std::fs::remove_dir_all(folder.path()).unwrap();
        assert!(watch.take().unwrap().gone);
    }

    #[test]
    fn a_missing_folder_is_an_error() {
        assert_eq!(FolderWatch::new(Path::new("/nonexistent")).unwrap_err().kind(), io::ErrorKind::NotFound);
        assert!(FolderWatch::new(Path::new("/proc/self/status")).is_err());
    }
}
