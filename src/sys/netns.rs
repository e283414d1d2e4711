//! Network namespaces: opened by path, made, and entered by a helper thread.
#![expect(unsafe_code, reason = "unshare(2) of one namespace of the calling thread, and an ioctl on a link")]

use rustix::fs::{Mode, OFlags};
use rustix::thread::{LinkNameSpaceType, UnshareFlags, move_into_link_name_space, unshare_unsafe};
use std::io;
use std::os::fd::{AsFd, AsRawFd as _, OwnedFd};
use std::path::Path;
use std::thread;

/// Opens a namespace by path, for instance `/proc/<pid>/ns/net` or `/proc/<pid>/fd/<n>`.
///
/// # Errors
/// The error of open(2).
pub fn open(path: &Path) -> io::Result<OwnedFd> {
    Ok(rustix::fs::open(path, OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty())?)
}

/// Makes a network namespace. It lives as long as the descriptor, a process or a link's peer in it.
///
/// # Errors
/// EPERM without CAP_SYS_ADMIN.
pub fn create() -> io::Result<OwnedFd> {
    helper(|| {
        // SAFETY: NEWNET alone changes no descriptor table; it moves only this short-lived thread.
        unsafe { unshare_unsafe(UnshareFlags::NEWNET) }?;
        open(Path::new("/proc/thread-self/ns/net"))
    })?
}

/// Runs `work` on a thread inside the namespace and waits for it. The calling thread stays where it is. Sockets that
/// `work` opens stay in the namespace.
///
/// # Errors
/// The error of setns(2), or that the thread could not be made or panicked.
pub fn run_in<T: Send>(netns: impl AsFd, work: impl FnOnce() -> T + Send) -> io::Result<T> {
    let netns = netns.as_fd();
    helper(move || {
        move_into_link_name_space(netns, Some(LinkNameSpaceType::Network))?;
        Ok(work())
    })?
}

/// Switches on `lo` in the calling thread's namespace.
///
/// # Errors
/// Of socket(2) and ioctl(2).
pub fn loopback_up() -> io::Result<()> {
    let socket = rustix::net::socket(rustix::net::AddressFamily::INET, rustix::net::SocketType::DGRAM, None)?;
    // SAFETY: ifreq is plain data for which all zeroes is a value.
    let mut request: libc::ifreq = unsafe { std::mem::zeroed() };
    for (to, from) in request.ifr_name.iter_mut().zip(b"lo") {
        *to = libc::c_char::from_ne_bytes([*from]);
    }
    let up = libc::c_short::try_from(libc::IFF_UP).map_err(io::Error::other)?;
    request.ifr_ifru.ifru_flags = up;
    // SAFETY: `request` names a link and its flags, as SIOCSIFFLAGS wants it, and outlives the call.
    match unsafe { libc::syscall(libc::SYS_ioctl, socket.as_raw_fd(), libc::SIOCSIFFLAGS, &raw const request) } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

fn helper<T: Send>(work: impl FnOnce() -> T + Send) -> io::Result<T> {
    thread::scope(|scope| {
        let thread = thread::Builder::new().name("netns".to_owned()).spawn_scoped(scope, work)?;
        thread.join().map_err(|_| io::Error::other("the thread in the namespace panicked"))
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sys::testing::is_root;
    use std::fs::read_link;

    #[test]
    fn linux_a_helper_enters_the_namespace_and_the_caller_stays() {
        if !is_root() {
            return;
        }
        let here = || read_link("/proc/thread-self/ns/net").unwrap();
        let before = here();
        let netns = create().unwrap();
        let inside = run_in(&netns, here).unwrap();
        assert_ne!(inside, before);
        assert_eq!(here(), before);
        let panicked = run_in(&netns, || -> () { panic!("on purpose") });
        assert!(panicked.is_err());
    }

    #[test]
    fn what_is_no_namespace_is_refused() {
        let file = open(Path::new("/dev/null")).unwrap();
        assert!(run_in(&file, || ()).is_err());
        assert!(open(Path::new("/nonexistent")).is_err());
    }
}
