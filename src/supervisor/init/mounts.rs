//! The file systems of the kernel, and leaving the initramfs.

use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;
use rustix::mount::{MountFlags, UnmountFlags};
use std::fs;
use std::io;
use std::os::unix::fs::{DirBuilderExt as _, MetadataExt as _};
use std::path::Path;

/// Where modules and their order lie on the initramfs.
const MODULES: &str = "/lib/armlet/modules";
/// Where the binary lies after the initramfs is left.
pub(crate) const BINARY: &str = "/sbin/armlet";

/// A file system to mount: type, folder, flags, options.
struct Fs(&'static str, &'static str, MountFlags, &'static str);

const NO_SUID: MountFlags = MountFlags::NOSUID.union(MountFlags::NODEV);
const NO_EXEC: MountFlags = NO_SUID.union(MountFlags::NOEXEC);

/// Needed to find devices and modules.
const EARLY: &[Fs] = &[
    Fs("proc", "/proc", NO_EXEC, ""),
    Fs("sysfs", "/sys", NO_EXEC, ""),
    Fs("devtmpfs", "/dev", MountFlags::NOSUID, "mode=755"),
];

/// The rest.
const LATE: &[Fs] = &[
    Fs("devpts", "/dev/pts", MountFlags::NOSUID.union(MountFlags::NOEXEC), "gid=5,mode=620,ptmxmode=666"),
    Fs("tmpfs", "/dev/shm", NO_SUID, "mode=1777"),
    Fs("mqueue", "/dev/mqueue", NO_EXEC, ""),
    Fs("tmpfs", "/run", NO_SUID, "mode=755"),
    Fs("tmpfs", "/tmp", NO_SUID, "mode=1777"),
    Fs("cgroup2", "/sys/fs/cgroup", NO_EXEC, "nsdelegate,memory_recursiveprot"),
    Fs("bpf", "/sys/fs/bpf", NO_EXEC, "mode=700"),
];

/// Mounts what finding devices needs. What fails is said; the node comes as far as it can.
pub(crate) fn early() {
    EARLY.iter().for_each(mount);
}

/// Mounts the rest, and turns every cgroup controller on for the groups below.
pub(crate) fn late() {
    LATE.iter().for_each(mount);
    for (name, target) in [("fd", "fd"), ("stdin", "fd/0"), ("stdout", "fd/1"), ("stderr", "fd/2")] {
        said(
            "link",
            Path::new(name),
            std::os::unix::fs::symlink(format!("/proc/self/{target}"), format!("/dev/{name}")),
        );
    }
    let controllers = fs::read_to_string("/sys/fs/cgroup/cgroup.controllers").unwrap_or_default();
    for controller in controllers.split_whitespace() {
        let on = fs::write("/sys/fs/cgroup/cgroup.subtree_control", format!("+{controller}"));
        said("turn on controller", Path::new(controller), on);
    }
}

fn mount(Fs(kind, target, flags, options): &Fs) {
    let path = Path::new(target);
    said("make", path, folder(path));
    // /dev is there already when the kernel mounted it.
    if is_mount(path) {
        return;
    }
    let options = std::ffi::CString::new(*options).unwrap_or_default();
    let done = rustix::mount::mount(*kind, path, *kind, *flags, Some(options.as_c_str()));
    said("mount", path, done.map_err(io::Error::from));
}

/// Whether a file system is mounted at this folder.
pub(super) fn is_mount(path: &Path) -> bool {
    match (fs::metadata(path), path.parent().map(fs::metadata)) {
        (Ok(own), Some(Ok(parent))) => own.dev() != parent.dev(),
        _ => false,
    }
}

fn folder(path: &Path) -> io::Result<()> {
    fs::DirBuilder::new().recursive(true).mode(0o755).create(path)
}

/// Says what failed and goes on: process 1 has nobody to give an error to.
pub(crate) fn said(operation: &str, object: &Path, result: io::Result<()>) {
    match result {
        Err(e) if e.kind() != io::ErrorKind::AlreadyExists => {
            tracing::error!(operation, object = %object.display(), error = %e, "failed");
        }
        _ => {}
    }
}

/// Loads the modules of the initramfs in the order of the file `order`. Ones that are there already are no failure.
///
/// Where the kernel lets it, their signatures are left out: nobody has checked this program either, which comes from the
/// same initramfs, and checking them takes 25 million instructions each, together the most of a boot. A kernel that
/// insists, as one that was booted securely does, gets them.
pub(crate) fn load_modules() {
    let folder = Path::new(MODULES);
    let order = match fs::read_to_string(folder.join("order")) {
        Ok(order) => order,
        Err(e) if e.kind() == io::ErrorKind::NotFound => return,
        Err(e) => return said("read", folder, Err(e)),
    };
    for name in order.lines().filter(|n| !n.is_empty() && !n.contains('/')) {
        let path = folder.join(name);
        said("load module", &path, load_module(&path));
    }
}

fn load_module(path: &Path) -> io::Result<()> {
    let mut bytes = fs::read(path)?;
    if let Some(length) = length_without_signature(&bytes) {
        bytes.truncate(length);
        match rustix::system::init_module(&bytes, c"") {
            Err(Errno::KEYREJECTED | Errno::NOKEY | Errno::PERM) => {}
            loaded => return Ok(loaded?),
        }
    }
    let file = rustix::fs::open(path, OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty())?;
    Ok(rustix::system::finit_module(&file, c"", 0)?)
}

/// Where a module's signature begins: it is followed by 12 bytes, of which the last four are its length, most
/// significant first, and by a mark (`include/linux/module_signature.h`). None: it has none.
fn length_without_signature(module: &[u8]) -> Option<usize> {
    const ABOUT: usize = 12;
    let signed = module.strip_suffix(b"~Module signature appended~\n")?;
    let (_, length) = signed.split_last_chunk::<4>()?;
    let length = usize::try_from(u32::from_be_bytes(*length)).ok()?;
    signed.len().checked_sub(ABOUT)?.checked_sub(length)
}

/// Whether the root is the initramfs, which `pivot_root` refuses to leave.
pub(crate) fn on_initramfs() -> bool {
    const RAMFS: i64 = 0x8584_58f6;
    const TMPFS: i64 = 0x0102_1994;
    let kind = rustix::fs::statfs("/").map(|s| s.f_type).unwrap_or(0);
    (kind == RAMFS || kind == TMPFS) && Path::new(MODULES).exists()
}

/// Makes a tmpfs the root: takes the binary and `/etc` along, moves the kernel's file systems over, and frees the
/// memory of the rest. Ends by executing the binary there, with `mark` as its argument.
///
/// # Errors
/// Of the first step that failed; the root may have changed by then.
pub(crate) fn leave_initramfs(mark: &str) -> io::Result<std::convert::Infallible> {
    let new = Path::new("/new");
    folder(new)?;
    rustix::mount::mount("root", new, "tmpfs", MountFlags::empty(), Some(c"mode=755"))?;
    for name in ["sbin", "etc", "var/lib/armlet", "var/log", "proc", "sys", "dev", "run", "tmp", "root"] {
        folder(&new.join(name))?;
    }
    fs::copy("/proc/self/exe", new.join(BINARY.trim_start_matches('/')))?;
    copy_tree(Path::new("/etc"), &new.join("etc"), 8)?;
    for name in ["proc", "sys", "dev"] {
        rustix::mount::mount_move(Path::new("/").join(name), new.join(name))?;
    }
    let root = fs::metadata("/")?.dev();
    remove_tree(Path::new("/"), root);
    rustix::process::chdir(new)?;
    rustix::mount::mount_move(".", "/")?;
    rustix::process::chroot(".")?;
    rustix::process::chdir("/")?;
    Err(crate::sys::exe::replace(Path::new(BINARY), &[mark]))
}

fn copy_tree(from: &Path, to: &Path, depth: usize) -> io::Result<()> {
    let entries = match fs::read_dir(from) {
        Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(()),
        other => other?,
    };
    for entry in entries {
        let entry = entry?;
        let (kind, target) = (entry.file_type()?, to.join(entry.file_name()));
        if kind.is_symlink() {
            std::os::unix::fs::symlink(fs::read_link(entry.path())?, target)?;
        } else if kind.is_file() {
            fs::copy(entry.path(), target)?;
        } else if kind.is_dir() && depth > 0 {
            folder(&target)?;
            copy_tree(&entry.path(), &target, depth.saturating_sub(1))?;
        }
    }
    Ok(())
}

/// Removes what lies on the device `dev` only: other file systems that hang in it are somebody else's.
fn remove_tree(path: &Path, dev: u64) {
    for entry in fs::read_dir(path).into_iter().flatten().flatten() {
        let Ok(meta) = entry.path().symlink_metadata() else { continue };
        if meta.dev() != dev {
            continue;
        }
        if meta.is_dir() {
            remove_tree(&entry.path(), dev);
            // Fails where a mount hangs in it.
            let _ = fs::remove_dir(entry.path());
        } else {
            let _ = fs::remove_file(entry.path());
        }
    }
}

/// Writes everything to the disks and lets them go.
pub(crate) fn let_go_of_disks(data: &Path) {
    rustix::fs::sync();
    let gone = rustix::mount::unmount(data, UnmountFlags::empty());
    if gone.is_err() {
        // Somebody still holds it: the journal has all that was synced.
        let _ = rustix::mount::mount_remount(data, MountFlags::RDONLY, c"");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_signature_is_found_by_its_end() {
        let signed = |length: u32| {
            let about = [&[0, 0, 2, 0, 0, 0, 0, 0], &length.to_be_bytes()[..]].concat();
            [b"module".as_slice(), b"signature", &about, b"~Module signature appended~\n"].concat()
        };
        assert_eq!(length_without_signature(&signed(9)), Some(6));
        for (module, what) in [(&b"module"[..], "unsigned"), (b"~Module signature appended~\n", "nothing else")] {
            assert_eq!(length_without_signature(module), None, "{what}");
        }
        assert_eq!(length_without_signature(&signed(u32::MAX)), None);
        assert_eq!(length_without_signature(&signed(16)), None);
    }
}
