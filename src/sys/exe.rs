//! The running binary as a descriptor that its descendants cannot write through.
//!
//! A container's first process is this binary for a moment, and `/proc/<pid>/exe` leads back to it (CVE-2019-5736 is
//! what comes of that). So children are executed from a read-only mount of the binary that is attached nowhere, which
//! shares the page cache with the running one; where the kernel cannot do that, from a sealed copy in memory.

use super::mounts::set_attributes;
use rustix::fd::{AsFd as _, OwnedFd};
use rustix::fs::{MemfdFlags, Mode, OFlags, SealFlags};
use rustix::mount::{MountAttrFlags, OpenTreeFlags};
use std::io;

/// A descriptor of this binary, to execute by `execveat`; close-on-exec.
///
/// # Errors
/// Of the last way that was tried: reading the binary, or making and sealing the copy.
pub fn protected() -> io::Result<OwnedFd> {
    read_only_mount().or_else(|_| sealed_copy())
}

/// The binary on a detached read-only mount.
///
/// # Errors
/// Of readlink, open_tree, mount_setattr and open.
pub fn read_only_mount() -> io::Result<OwnedFd> {
    let path = std::fs::read_link("/proc/self/exe")?;
    let flags = OpenTreeFlags::OPEN_TREE_CLONE | OpenTreeFlags::OPEN_TREE_CLOEXEC;
    let tree = rustix::mount::open_tree(rustix::fs::CWD, &path, flags)?;
    set_attributes(tree.as_fd(), MountAttrFlags::MOUNT_ATTR_RDONLY | MountAttrFlags::MOUNT_ATTR_NOSUID)?;
    // Two files are one and the same only if the path still names what runs here.
    let (here, there) = (rustix::fs::stat("/proc/self/exe")?, rustix::fs::fstat(&tree)?);
    if (here.st_dev, here.st_ino) != (there.st_dev, there.st_ino) {
        return Err(io::ErrorKind::NotFound.into());
    }
    Ok(tree)
}

/// A copy in memory that nobody can change.
///
/// # Errors
/// Of opening the binary, memfd_create, sendfile and sealing.
pub fn sealed_copy() -> io::Result<OwnedFd> {
    let own = rustix::fs::open("/proc/self/exe", OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty())?;
    let size = rustix::fs::fstat(&own)?.st_size;
    let copy = rustix::fs::memfd_create("armlet", MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING)?;
    let mut left = usize::try_from(size).map_err(|_| io::ErrorKind::InvalidData)?;
    while left > 0 {
        match rustix::fs::sendfile(&copy, &own, None, left)? {
            0 => return Err(io::ErrorKind::UnexpectedEof.into()),
            n => left = left.saturating_sub(n),
        }
    }
    seal(copy)
}

/// Becomes the program at `path`, with the same environment and standard streams. Comes back only with an error.
pub fn replace(path: &std::path::Path, args: &[&str]) -> io::Error {
    use std::os::unix::process::CommandExt as _;
    std::process::Command::new(path).args(args).exec()
}

/// Bytes in a sealed memory file, its position at the start.
///
/// # Errors
/// Of memfd_create, write and sealing.
pub fn sealed_bytes(name: &str, bytes: &[u8]) -> io::Result<OwnedFd> {
    let file = rustix::fs::memfd_create(name, MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING)?;
    let mut left = bytes;
    while !left.is_empty() {
        let n = rustix::io::write(&file, left)?;
        left = left.get(n..).unwrap_or_default();
    }
    rustix::fs::seek(&file, rustix::fs::SeekFrom::Start(0))?;
    seal(file)
}

fn seal(file: OwnedFd) -> io::Result<OwnedFd> {
    rustix::fs::fcntl_add_seals(&file, SealFlags::WRITE | SealFlags::GROW | SealFlags::SHRINK | SealFlags::SEAL)?;
    Ok(file)
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::fd::AsRawFd as _;

    fn write_through(exe: &OwnedFd) -> io::Result<std::fs::File> {
        std::fs::OpenOptions::new().write(true).open(format!("/proc/self/fd/{}", exe.as_raw_fd()))
    }

    #[test]
    fn the_copy_cannot_be_written() {
        let exe = sealed_copy().unwrap();
        let opened = write_through(&exe).unwrap();
        assert!(rustix::io::write(&opened, b"x").is_err());
        assert!(opened.set_len(0).is_err());
    }

    #[test]
    fn bytes_are_read_back_from_the_start() {
        let file = std::fs::File::from(sealed_bytes("t", b"abc").unwrap());
        assert_eq!(io::read_to_string(file).unwrap(), "abc");
    }
}
