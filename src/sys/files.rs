//! Small files: read with a bound, read when nobody writes, written in place.
#![expect(unsafe_code, reason = "file leases have no safe wrapper")]

use rustix::fs::{Mode, OFlags, fchmod, ftruncate};
use std::fs::{File, Metadata, TryLockError};
use std::io::{self, Read, Write};
use std::os::fd::AsRawFd;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::Path;

/// Takes the lock of a file, which is made when it is missing, for as long as what is returned lives. None: another
/// process has it.
///
/// # Errors
/// That of opening the file or of flock(2).
pub fn lock(path: &Path) -> io::Result<Option<File>> {
    let file = File::options().create(true).truncate(false).write(true).mode(0o600).open(path)?;
    match file.try_lock() {
        Ok(()) => Ok(Some(file)),
        Err(TryLockError::WouldBlock) => Ok(None),
        Err(TryLockError::Error(source)) => Err(source),
    }
}

/// Reads a regular file of at most `max` bytes. Follows links; never waits on a FIFO or a device.
///
/// # Errors
/// That of opening or reading; `InvalidInput` for what is no regular file, `FileTooLarge` for a bigger one.
pub fn read_small(path: &Path, max: u64) -> io::Result<Vec<u8>> {
    let (file, _) = open_regular(path)?;
    read_bounded(&file, max)
}

/// A file's content and what describes it, both of the same moment.
#[derive(Debug)]
pub struct Settled {
    /// The content.
    pub bytes: Vec<u8>,
    /// Taken from the open file.
    pub metadata: Metadata,
}

/// Reads a regular file of at most `max` bytes, unless somebody has it open for writing: then there is nothing. A writer
/// that comes while it is read waits for the moment that takes. Follows links. Where the file system knows no leases the
/// file is read anyway.
///
/// # Errors
/// As [`read_small`].
pub fn read_settled(path: &Path, max: u64) -> io::Result<Option<Settled>> {
    let (file, metadata) = open_regular(path)?;
    match Lease::take(&file) {
        Err(e) if e.kind() == io::ErrorKind::WouldBlock => Ok(None),
        // Kept, or not to be had, until the end of the read.
        _lease => Ok(Some(Settled { bytes: read_bounded(&file, max)?, metadata })),
    }
}

/// `asm-generic/fcntl.h`; the libc crate does not name it for every target.
const F_SETSIG: libc::c_int = 10;

/// A read lease (fcntl(2), F_SETLEASE): to be had only while nobody has the file open for writing.
struct Lease<'a>(&'a File);

impl<'a> Lease<'a> {
    fn take(file: &'a File) -> io::Result<Self> {
        // A writer that waits for the lease is announced by SIGIO, which ends a process. SIGURG does nothing.
        fcntl(file, F_SETSIG, libc::SIGURG)?;
        fcntl(file, libc::F_SETLEASE, libc::F_RDLCK)?;
        Ok(Self(file))
    }
}

impl Drop for Lease<'_> {
    fn drop(&mut self) {
        // Closing the file, which comes next, gives the lease back as well.
        let _ = fcntl(self.0, libc::F_SETLEASE, libc::F_UNLCK);
    }
}

fn fcntl(file: &File, command: libc::c_int, argument: libc::c_int) -> io::Result<()> {
    // SAFETY: the descriptor is open while `file` lives, and both commands take an int, no pointer.
    if unsafe { libc::fcntl(file.as_raw_fd(), command, argument) } == -1 {
        return Err(io::Error::last_os_error());
    }
    Ok(())
}

fn open_regular(path: &Path) -> io::Result<(File, Metadata)> {
    let flags = OFlags::RDONLY | OFlags::CLOEXEC | OFlags::NONBLOCK | OFlags::NOCTTY;
    let file = File::from(rustix::fs::open(path, flags, Mode::empty())?);
    let metadata = file.metadata()?;
    if metadata.is_file() {
        return Ok((file, metadata));
    }
    Err(io::Error::new(io::ErrorKind::InvalidInput, "not a regular file"))
}

fn read_bounded(file: &File, max: u64) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    // One byte more than allowed tells a file that grows while it is read from one that fits.
    file.take(max.saturating_add(1)).read_to_end(&mut bytes)?;
    if bytes.len() as u64 > max {
        return Err(io::ErrorKind::FileTooLarge.into());
    }
    Ok(bytes)
}

/// Makes a file or overwrites it, keeping its inode, so that who has it mounted sees the change. Writes nothing when
/// the content is right. Not atomic: for files that are written anew after a crash. Refuses to follow a link.
///
/// # Errors
/// That of opening or writing.
pub fn write_in_place(path: &Path, content: &[u8], mode: u32) -> io::Result<()> {
    let flags = OFlags::RDWR | OFlags::CREATE | OFlags::NOFOLLOW | OFlags::CLOEXEC | OFlags::NONBLOCK | OFlags::NOCTTY;
    let mode = Mode::from_raw_mode(mode);
    let mut file = File::from(rustix::fs::open(path, flags, mode)?);
    let metadata = file.metadata()?;
    if !metadata.is_file() {
        return Err(io::Error::new(io::ErrorKind::InvalidInput, "not a regular file"));
    }
    // The umask may have taken bits at creation. Only then: setting the mode anew would dirty the inode.
    if Mode::from_raw_mode(metadata.mode()) != mode {
        fchmod(&file, mode)?;
    }
    if metadata.len() == content.len() as u64 {
        let mut present = Vec::with_capacity(content.len());
        (&file).take(metadata.len()).read_to_end(&mut present)?;
        if present == content {
            return Ok(());
        }
        io::Seek::rewind(&mut file)?;
    }
    file.write_all(content)?;
    ftruncate(&file, content.len() as u64)?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;
    use std::os::unix::fs::symlink;

    #[test]
    fn a_lock_has_one_holder() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("lock");
        let held = lock(&path).unwrap();
        assert!(held.is_some() && lock(&path).unwrap().is_none());
        drop(held);
        assert!(lock(&path).unwrap().is_some());
        assert!(lock(&dir.path().join("no/lock")).is_err());
    }

    #[test]
    fn only_small_regular_files_are_read() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("f");
        fs::write(&path, b"12345").unwrap();
        assert_eq!(read_small(&path, 5).unwrap(), b"12345");
        assert_eq!(read_small(&path, 4).unwrap_err().kind(), io::ErrorKind::FileTooLarge);
        assert_eq!(read_small(dir.path(), 4).unwrap_err().kind(), io::ErrorKind::InvalidInput);
        assert_eq!(read_small(Path::new("/dev/zero"), 4).unwrap_err().kind(), io::ErrorKind::InvalidInput);
        let fifo = dir.path().join("fifo");
        rustix::fs::mkfifoat(rustix::fs::CWD, &fifo, Mode::RUSR).unwrap();
        assert_eq!(read_small(&fifo, 4).unwrap_err().kind(), io::ErrorKind::InvalidInput);
    }

    #[test]
    fn a_file_is_settled_when_its_writer_has_closed_it() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("f");
        let mut writer = File::create(&path).unwrap();
        writer.write_all(b"half").unwrap();
        assert!(read_settled(&path, 100).unwrap().is_none());
        writer.write_all(b" whole").unwrap();
        drop(writer);
        let settled = read_settled(&path, 100).unwrap().unwrap();
        assert_eq!((settled.bytes.as_slice(), settled.metadata.len()), (&b"half whole"[..], 10));
        assert_eq!(read_settled(&path, 9).unwrap_err().kind(), io::ErrorKind::FileTooLarge);
        // The lease is given back: a writer is not held up.
        fs::write(&path, b"next").unwrap();
        assert_eq!(read_settled(Path::new("/proc/self/status"), 1 << 20).unwrap().unwrap().metadata.len(), 0);
    }

    #[test]
    fn a_link_is_not_written_through() {
        let dir = tempfile::tempdir().unwrap();
        let (target, link) = (dir.path().join("target"), dir.path().join("link"));
        fs::write(&target, b"keep").unwrap();
        symlink(&target, &link).unwrap();
        assert!(write_in_place(&link, b"evil", 0o644).is_err());
        assert_eq!(fs::read(&target).unwrap(), b"keep");
        assert!(write_in_place(dir.path(), b"x", 0o644).is_err());
        assert!(write_in_place(Path::new("/dev/null"), b"x", 0o644).is_err());
    }
}
