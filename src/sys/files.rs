//! Small files: read with a bound, written in place.

use rustix::fs::{Mode, OFlags, fchmod, ftruncate};
use std::fs::File;
use std::io::{self, Read, Write};
use std::os::unix::fs::MetadataExt;
use std::path::Path;

/// Reads a regular file of at most `max` bytes. Follows links; never waits on a FIFO or a device.
///
/// # Errors
/// That of opening or reading; `InvalidInput` for what is no regular file, `FileTooLarge` for a bigger one.
pub fn read_small(path: &Path, max: u64) -> io::Result<Vec<u8>> {
    let flags = OFlags::RDONLY | OFlags::CLOEXEC | OFlags::NONBLOCK | OFlags::NOCTTY;
    let file = File::from(rustix::fs::open(path, flags, Mode::empty())?);
    if !file.metadata()?.is_file() {
        return Err(io::Error::new(io::ErrorKind::InvalidInput, "not a regular file"));
    }
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
