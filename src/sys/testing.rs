//! For tests of what only root may do.
#![expect(unsafe_code, reason = "unshare(2) is unsafe: it can take away what other threads share")]

use std::path::Path;

/// Whether this test may do what only root may: change owners, make devices, mounts and namespaces. Elsewhere it is passed
/// over, with a word. `tests/qemu/rooms.rs` runs the same tests as root in the guest and says so with
/// `ARMLET_TEST_ROOT`: there a test that would have to pass over its subject fails instead.
pub(crate) fn is_root() -> bool {
    let root = rustix::process::geteuid().is_root();
    let required = std::env::var_os("ARMLET_TEST_ROOT").is_some();
    assert!(root || !required, "this test needs root");
    if !root {
        println!("passed over: needs root");
    }
    root
}

/// Runs a test on a file system of this many bytes, a tmpfs that only its own thread (and those it starts) sees.
pub(crate) fn on_small_disk(bytes: u64, test: impl FnOnce(&Path) + Send + 'static) {
    use rustix::mount::{MountFlags, MountPropagationFlags, mount, mount_change};
    use rustix::thread::UnshareFlags;
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().to_owned();
    let thread = std::thread::spawn(move || {
        // SAFETY: this thread was just made; what it stops sharing (current folder, mounts) nobody else relies on.
        unsafe { rustix::thread::unshare_unsafe(UnshareFlags::FS | UnshareFlags::NEWNS) }.unwrap();
        mount_change("/", MountPropagationFlags::REC | MountPropagationFlags::PRIVATE).unwrap();
        let options = std::ffi::CString::new(format!("size={bytes},mode=0700")).unwrap();
        mount("tmpfs", &path, "tmpfs", MountFlags::empty(), Some(options.as_c_str())).unwrap();
        test(&path);
    });
    if let Err(panic) = thread.join() {
        std::panic::resume_unwind(panic);
    }
}
