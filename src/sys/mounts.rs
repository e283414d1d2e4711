//! Mounts of the calling thread's mount namespace: tmpfs, what is mounted where, and unmounting.

use rustix::fs::{AtFlags, CWD, StatxAttributes, StatxFlags, statx};
use rustix::io::Errno;
use rustix::mount::{MountAttrFlags, MountFlags, UnmountFlags, mount, unmount};
use std::ffi::{CString, OsString};
use std::io;
use std::os::fd::{AsRawFd as _, BorrowedFd};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};

/// Mounts can lie on top of each other; nobody stacks more.
const STACKED: u32 = 64;

/// A tmpfs to mount.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Tmpfs {
    /// Most bytes that it may hold; absent: half of the memory, the kernel's default.
    pub size: Option<u64>,
    /// Its root folder's mode.
    pub mode: u32,
    /// Its root folder's group.
    pub gid: u32,
    /// Keep its pages out of swap, where the kernel can (6.4 and newer).
    pub noswap: bool,
    /// nosuid, nodev, noexec and the like.
    pub flags: MountFlags,
}

/// Mounts a tmpfs.
///
/// # Errors
/// That of mount(2).
pub fn mount_tmpfs(target: &Path, tmpfs: &Tmpfs) -> io::Result<()> {
    let mut options = format!("mode={:o},gid={}", tmpfs.mode, tmpfs.gid);
    if let Some(size) = tmpfs.size {
        options += &format!(",size={size}");
    }
    let attempt = |options: String| -> io::Result<()> {
        let options = CString::new(options)?;
        Ok(mount("tmpfs", target, "tmpfs", tmpfs.flags, options.as_c_str())?)
    };
    if tmpfs.noswap {
        match attempt(format!("{options},noswap")) {
            // An older kernel does not know the option.
            Err(e) if e.kind() == io::ErrorKind::InvalidInput => {}
            done => return done,
        }
    }
    attempt(options)
}

/// Sets attributes of a mount that is held open, beside those that it has.
///
/// # Errors
/// That of mount_setattr(2); ENOSYS before Linux 5.12.
pub fn set_attributes(mount: BorrowedFd<'_>, attributes: MountAttrFlags) -> io::Result<()> {
    set(mount, 0, &Attr { set: attributes.bits().into(), ..Attr::default() })
}

/// Cuts a mount that is held open, and all below it, off from what is mounted elsewhere later.
///
/// # Errors
/// As [`set_attributes`].
pub fn make_private(mount: BorrowedFd<'_>) -> io::Result<()> {
    set(mount, libc::AT_RECURSIVE, &Attr { propagation: libc::MS_PRIVATE, ..Attr::default() })
}

/// `struct mount_attr` of mount_setattr(2), in its first version.
#[repr(C)]
#[derive(Default)]
struct Attr {
    set: u64,
    clear: u64,
    propagation: u64,
    userns_fd: u64,
}

#[expect(unsafe_code, reason = "mount_setattr has no safe wrapper here")]
fn set(mount: BorrowedFd<'_>, flags: libc::c_int, attr: &Attr) -> io::Result<()> {
    // SAFETY: `attr` has the layout of the first version of the structure and its size is passed.
    let rc = unsafe {
        libc::syscall(
            libc::SYS_mount_setattr,
            mount.as_raw_fd(),
            c"".as_ptr(),
            libc::AT_EMPTY_PATH | flags,
            std::ptr::from_ref(attr),
            size_of::<Attr>(),
        )
    };
    if rc == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

/// Whether something is mounted at the path itself. A last link is not followed.
///
/// # Errors
/// That of statx(2), `NotFound` among them.
pub fn is_mount_point(path: &Path) -> io::Result<bool> {
    let flags = AtFlags::SYMLINK_NOFOLLOW | AtFlags::NO_AUTOMOUNT;
    let found = statx(CWD, path, flags, StatxFlags::empty())?;
    Ok(found.stx_attributes.contains(StatxAttributes::MOUNT_ROOT))
}

/// Unmounts everything at the path, if anything is. A mount that is in use disappears from the tree at once and is
/// freed by the kernel with its last user. A path that is no mount point or does not exist is no error.
///
/// # Errors
/// That of umount2(2).
pub fn unmount_all(path: &Path) -> io::Result<()> {
    for _ in 0..STACKED {
        let result = match unmount(path, UnmountFlags::NOFOLLOW) {
            Err(Errno::BUSY) => unmount(path, UnmountFlags::NOFOLLOW | UnmountFlags::DETACH),
            other => other,
        };
        match result {
            Ok(()) => {}
            // EINVAL: not a mount point.
            Err(Errno::INVAL | Errno::NOENT) => return Ok(()),
            Err(e) => return Err(e.into()),
        }
    }
    Err(Errno::BUSY.into())
}

/// Makes a folder a mount point of its own, so that a namespace can let go of everything that is mounted below it with
/// one unmount. A folder with mounts below stays as it is: they would be hidden.
///
/// # Errors
/// That of mount(2) or of reading the table of mounts.
pub fn split_off(folder: &Path) -> io::Result<()> {
    if mounts_below(folder)?.is_empty() {
        rustix::mount::mount_bind(folder, folder)?;
    }
    Ok(())
}

/// Takes the mount at `folder` with all mounts below out of the calling thread's namespace.
///
/// # Errors
/// EINVAL when nothing is mounted right there.
pub fn let_go(folder: &Path) -> io::Result<()> {
    Ok(unmount(folder, UnmountFlags::NOFOLLOW | UnmountFlags::DETACH)?)
}

/// The mount points at and below a folder, the deepest first, so that they can be unmounted in this order. The folder's
/// path must be absolute and free of links.
///
/// # Errors
/// That of reading `/proc/thread-self/mountinfo`.
pub fn mounts_below(folder: &Path) -> io::Result<Vec<PathBuf>> {
    Ok(below(&std::fs::read("/proc/thread-self/mountinfo")?, folder))
}

fn below(mountinfo: &[u8], folder: &Path) -> Vec<PathBuf> {
    // Fields: id, parent, device, root, mount point (proc_pid_mountinfo(5)). Later lines lie on top of earlier ones.
    let points = mountinfo.split(|b| *b == b'\n').filter_map(|line| line.split(|b| *b == b' ').nth(4)).map(unescape);
    let mut found: Vec<PathBuf> = points.filter(|point| point.starts_with(folder)).collect();
    found.reverse();
    found.sort_by_key(|point| std::cmp::Reverse(point.components().count()));
    found
}

/// Space, tab, newline and backslash stand as `\` and three octal digits.
fn unescape(field: &[u8]) -> PathBuf {
    let mut bytes = Vec::with_capacity(field.len());
    let mut rest = field;
    while let Some((first, after)) = rest.split_first() {
        let code = (*first == b'\\').then(|| after.get(..3)).flatten().and_then(|digits| {
            let text = std::str::from_utf8(digits).ok()?;
            u8::from_str_radix(text, 8).ok()
        });
        bytes.push(code.unwrap_or(*first));
        rest = if code.is_some() { after.get(3..).unwrap_or_default() } else { after };
    }
    PathBuf::from(OsString::from_vec(bytes))
}

/// Whether the path can be found again in the mount table: absolute, without `.` and `..`.
#[must_use]
pub fn is_plain_absolute(path: &Path) -> bool {
    path.is_absolute() && !path.as_os_str().as_bytes().split(|b| *b == b'/').any(|part| part == b"." || part == b"..")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sys::testing::is_root;
    use std::fs;
    use std::os::unix::fs::MetadataExt;

    #[test]
    fn the_mount_table_is_read_deepest_first() {
        let table = b"22 1 0:1 / / rw - ext4 /dev/a rw\n\
            23 22 0:2 / /pods/a/shm rw - tmpfs t rw\n\
            24 22 0:2 / /pods/a/vol\\040ume/deep\\134x rw - tmpfs t rw\n\
            25 22 0:2 / /pods/ab rw - tmpfs t rw\n\
            26 22 0:2 / /pods/a rw - tmpfs t rw\n\nbroken\n";
        let found = below(table, Path::new("/pods/a"));
        assert_eq!(found, ["/pods/a/vol ume/deep\\x", "/pods/a/shm", "/pods/a"].map(PathBuf::from));
        assert_eq!(unescape(b"a\\0"), PathBuf::from("a\\0"));
        assert_eq!(unescape(b"a\\777b"), PathBuf::from("a\\777b"));
    }

    #[test]
    fn linux_a_tmpfs_comes_and_goes() {
        if !is_root() {
            return;
        }
        let dir = tempfile::tempdir().unwrap();
        let at = dir.path().canonicalize().unwrap().join("t");
        fs::create_dir(&at).unwrap();
        assert!(!is_mount_point(&at).unwrap());
        let tmpfs = Tmpfs { size: Some(1 << 20), mode: 0o2777, gid: 1234, noswap: true, flags: MountFlags::NODEV };
        mount_tmpfs(&at, &tmpfs).unwrap();
        mount_tmpfs(&at, &tmpfs).unwrap();
        assert!(is_mount_point(&at).unwrap());
        let metadata = fs::metadata(&at).unwrap();
        assert_eq!((metadata.mode() & 0o7777, metadata.gid()), (0o2777, 1234));
        let full = fs::write(at.join("big"), vec![0; 2 << 20]).unwrap_err();
        assert_eq!(full.kind(), io::ErrorKind::StorageFull);
        assert_eq!(mounts_below(&at).unwrap(), [at.clone(), at.clone()]);
        let in_use = fs::File::create(at.join("open")).unwrap();
        unmount_all(&at).unwrap();
        unmount_all(&at).unwrap();
        drop(in_use);
        assert!(!is_mount_point(&at).unwrap());
        unmount_all(&at.join("nothere")).unwrap();
    }

    #[test]
    fn linux_all_that_is_below_a_folder_goes_with_it() {
        if !is_root() {
            return;
        }
        crate::sys::testing::on_small_disk(1 << 20, |disk| {
            let folder = disk.canonicalize().unwrap().join("pods");
            fs::create_dir_all(folder.join("a")).unwrap();
            split_off(&folder).unwrap();
            let tmpfs = Tmpfs { size: None, mode: 0o700, gid: 0, noswap: false, flags: MountFlags::empty() };
            mount_tmpfs(&folder.join("a"), &tmpfs).unwrap();
            split_off(&folder).unwrap();
            assert_eq!(mounts_below(&folder).unwrap(), [folder.join("a"), folder.clone()]);
            let_go(&folder).unwrap();
            assert_eq!(mounts_below(&folder).unwrap(), Vec::<PathBuf>::new());
            assert!(let_go(&folder).is_err());
            // What is mounted below is not to be hidden.
            mount_tmpfs(&folder.join("a"), &tmpfs).unwrap();
            split_off(&folder).unwrap();
            assert_eq!(mounts_below(&folder).unwrap(), [folder.join("a")]);
        });
    }
}
