//! The running binary as a descriptor that its descendants cannot write through.
//!
//! A container's first process is this binary for a moment, and `/proc/<pid>/exe` leads back to it (CVE-2019-5736 is
//! what comes of that). So children are executed from a read-only mount of the binary that is attached nowhere, which
//! shares the page cache with the running one; where the kernel cannot do that, from a sealed copy in memory.

use super::mounts::set_attributes;
use rustix::fd::{AsFd as _, OwnedFd};
use rustix::fs::{FileType, MemfdFlags, Mode, OFlags, SealFlags, StatVfsMountFlags};
use rustix::mount::{MountAttrFlags, OpenTreeFlags};
use std::io;
use std::path::Path;

/// A descriptor of this binary, to execute by `execveat`; close-on-exec.
///
/// # Errors
/// Of the last way that was tried: reading the binary, or making and sealing the copy.
pub fn protected() -> io::Result<OwnedFd> {
    read_only_mount().or_else(|_| sealed_copy())
}

/// The same of the program in a file.
///
/// # Errors
/// Of opening and reading the file, or making and sealing the copy.
pub fn protected_file(path: &Path) -> io::Result<OwnedFd> {
    mount_of(path).or_else(|_| copy_of(path))
}

/// The binary on a detached read-only mount.
///
/// # Errors
/// Of readlink, open_tree, mount_setattr and open.
pub fn read_only_mount() -> io::Result<OwnedFd> {
    let tree = mount_of(&std::fs::read_link("/proc/self/exe")?)?;
    // Two files are one and the same only if the path still names what runs here.
    let (here, there) = (rustix::fs::stat("/proc/self/exe")?, rustix::fs::fstat(&tree)?);
    if (here.st_dev, here.st_ino) != (there.st_dev, there.st_ino) {
        return Err(io::ErrorKind::NotFound.into());
    }
    Ok(tree)
}

fn mount_of(path: &Path) -> io::Result<OwnedFd> {
    let flags = OpenTreeFlags::OPEN_TREE_CLONE | OpenTreeFlags::OPEN_TREE_CLOEXEC;
    let tree = rustix::mount::open_tree(rustix::fs::CWD, path, flags)?;
    set_attributes(tree.as_fd(), MountAttrFlags::MOUNT_ATTR_RDONLY | MountAttrFlags::MOUNT_ATTR_NOSUID)?;
    Ok(tree)
}

/// A copy in memory that nobody can change.
///
/// # Errors
/// Of opening the binary, memfd_create, sendfile and sealing.
pub fn sealed_copy() -> io::Result<OwnedFd> {
    copy_of(Path::new("/proc/self/exe"))
}

fn copy_of(path: &Path) -> io::Result<OwnedFd> {
    let own = rustix::fs::open(path, OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty())?;
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

/// Whether the program behind a descriptor cannot be written through it: sealed in memory, or a file on a mount that is
/// read-only. Waits for no disk.
#[must_use]
pub fn is_protected(fd: &OwnedFd) -> bool {
    let wanted = SealFlags::WRITE | SealFlags::GROW | SealFlags::SHRINK;
    let sealed = rustix::fs::fcntl_get_seals(fd).is_ok_and(|seals| seals.contains(wanted));
    let file = || {
        let kind = rustix::fs::fstat(fd).map(|stat| FileType::from_raw_mode(stat.st_mode));
        let mount = rustix::fs::fstatvfs(fd).map(|mount| mount.f_flag);
        kind == Ok(FileType::RegularFile) && mount.is_ok_and(|flags| flags.contains(StatVfsMountFlags::RDONLY))
    };
    sealed || file()
}

/// Becomes the program at `path`, with the same environment and standard streams. Comes back only with an error.
pub fn replace(path: &Path, args: &[&str]) -> io::Error {
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
    fn what_can_be_written_of_real_files_is_told_apart() {
        assert!(is_protected(&sealed_copy().unwrap()));
        let plain: OwnedFd = std::fs::File::open("/proc/self/exe").unwrap().into();
        assert!(!is_protected(&plain), "a file of the test's own");
        let open = rustix::fs::memfd_create("t", MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING).unwrap();
        assert!(!is_protected(&open));
        // A mount takes root.
        if let Ok(mounted) = read_only_mount() {
            assert!(is_protected(&mounted));
        }
    }

    #[test]
    fn bytes_are_read_back_from_the_start() {
        let file = std::fs::File::from(sealed_bytes("t", b"abc").unwrap());
        assert_eq!(io::read_to_string(file).unwrap(), "abc");
    }
}
