//! Signals as readable events, and signals sent.
#![expect(unsafe_code, reason = "signalfd and sigprocmask have no safe wrapper here")]

use rustix::fd::{AsRawFd as _, FromRawFd as _, OwnedFd};
use std::io;
use std::mem::MaybeUninit;

/// Blocks `signals` for this process and its later threads, and gives a descriptor from which they are read.
///
/// # Errors
/// Of sigprocmask and signalfd.
pub fn take_over(signals: &[i32]) -> io::Result<OwnedFd> {
    let set = set_of(signals);
    // SAFETY: `set` is an initialised signal set that lives for the call.
    if unsafe { libc::sigprocmask(libc::SIG_BLOCK, &raw const set, std::ptr::null_mut()) } != 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: as above; -1 asks for a new descriptor.
    let fd = unsafe { libc::signalfd(-1, &raw const set, libc::SFD_CLOEXEC | libc::SFD_NONBLOCK) };
    if fd < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: the kernel has just given this descriptor to us alone.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

/// The next pending signal's number, or `None`.
#[must_use]
pub fn next(fd: &OwnedFd) -> Option<i32> {
    let mut info = MaybeUninit::<libc::signalfd_siginfo>::uninit();
    let size = size_of::<libc::signalfd_siginfo>();
    // SAFETY: the buffer is valid for `size` bytes.
    let n = unsafe { libc::read(fd.as_raw_fd(), info.as_mut_ptr().cast(), size) };
    if usize::try_from(n) != Ok(size) {
        return None;
    }
    // SAFETY: the kernel has filled the whole record.
    let number = unsafe { info.assume_init() }.ssi_signo;
    i32::try_from(number).ok()
}

/// Unblocks every signal and gives each its default effect: what a program expects to be started with.
pub fn reset_all() {
    let none = set_of(&[]);
    // SAFETY: plain system calls with valid arguments; failures (for SIGKILL, SIGSTOP) change nothing.
    unsafe {
        for number in 1..=64 {
            libc::signal(number, libc::SIG_DFL);
        }
        libc::sigprocmask(libc::SIG_SETMASK, &raw const none, std::ptr::null_mut());
    }
}

/// Makes this process ignore a signal.
pub fn ignore(number: i32) {
    // SAFETY: installs no handler, only the "ignore" disposition.
    unsafe { libc::signal(number, libc::SIG_IGN) };
}

/// Sends `signal` to the process `pid`.
///
/// # Errors
/// Of kill; `InvalidInput` for a pid that would mean a group or everybody.
pub fn send(pid: u32, signal: i32) -> io::Result<()> {
    let pid = libc::pid_t::try_from(pid).ok().filter(|p| *p > 1).ok_or(io::ErrorKind::InvalidInput)?;
    // SAFETY: kill takes plain numbers.
    if unsafe { libc::kill(pid, signal) } == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

/// Sends `signal` to every process but this one. Only process 1 at the end of all things has a use for that.
///
/// # Errors
/// Of kill; there being nobody is none.
pub fn send_to_all(signal: i32) -> io::Result<()> {
    // SAFETY: kill takes plain numbers.
    if unsafe { libc::kill(-1, signal) } == 0 {
        return Ok(());
    }
    let e = io::Error::last_os_error();
    if e.raw_os_error() == Some(libc::ESRCH) { Ok(()) } else { Err(e) }
}

fn set_of(signals: &[i32]) -> libc::sigset_t {
    let mut set = MaybeUninit::<libc::sigset_t>::uninit();
    // SAFETY: sigemptyset initialises the set; sigaddset refuses bad numbers without effect.
    unsafe {
        libc::sigemptyset(set.as_mut_ptr());
        for number in signals {
            libc::sigaddset(set.as_mut_ptr(), *number);
        }
        set.assume_init()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pid_never_means_a_group() {
        assert!(send(0, 0).is_err());
        assert!(send(1, 0).is_err());
        assert!(send(u32::MAX, 0).is_err());
        send(std::process::id(), 0).unwrap();
    }
}
