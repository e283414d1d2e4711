//! Becoming another program: descriptors, clone and execve.

#![expect(unsafe_code, reason = "clone3(2), execve(2) and descriptors given by number need raw calls")]

use std::ffi::{CStr, CString};
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd, RawFd};

/// Which side of [`clone_sibling`] the caller is on.
#[derive(Debug)]
pub enum Side {
    /// The caller.
    Caller {
        /// The new process's id in the caller's pid namespace.
        pid: u32,
        /// A descriptor of it, readable when it has ended.
        process: OwnedFd,
    },
    /// The new process.
    New,
}

#[repr(C, align(8))]
#[derive(Default)]
struct CloneArgs {
    flags: u64,
    pidfd: u64,
    child_tid: u64,
    parent_tid: u64,
    exit_signal: u64,
    stack: u64,
    stack_size: u64,
    tls: u64,
    set_tid: u64,
    set_tid_size: u64,
    cgroup: u64,
}

/// Clones the calling process as a child of the caller's *parent*, born in a cgroup. To be born there is much cheaper
/// than to be moved there: the kernel need not stop every fork and exit on the machine.
///
/// # Errors
/// What the kernel says, among them EBUSY when the cgroup has controllers enabled for child groups, ENODEV when it was
/// removed, EAGAIN at a pids limit.
///
/// # Safety
/// The calling process must have one thread, as after fork(2) only that one exists in the new process.
pub unsafe fn clone_sibling(cgroup: impl AsFd) -> io::Result<Side> {
    const CLONE_INTO_CGROUP: u64 = 0x2_0000_0000;
    const CLONE_PIDFD: u64 = 0x1000;
    let cgroup = u64::try_from(cgroup.as_fd().as_raw_fd()).map_err(|_| io::Error::from_raw_os_error(libc::EBADF))?;
    let parent_flag = u64::try_from(libc::CLONE_PARENT).unwrap_or_default();
    let mut process: RawFd = -1;
    // With CLONE_PARENT the exit signal must be 0: it is the caller's own that is used.
    let mut args = CloneArgs {
        flags: parent_flag | CLONE_INTO_CGROUP | CLONE_PIDFD,
        pidfd: &raw mut process as u64,
        cgroup,
        ..CloneArgs::default()
    };
    // SAFETY: `args` is a struct clone_args of the size given. No stack is given, so the new process runs on a copy of
    // this one as after fork; the caller promises that there is no other thread.
    let pid = unsafe { libc::syscall(libc::SYS_clone3, &raw mut args, size_of::<CloneArgs>()) };
    match pid {
        0 => Ok(Side::New),
        pid if pid > 0 => {
            // SAFETY: the kernel has just made this descriptor (close-on-exec) and nobody else knows it.
            let process = unsafe { OwnedFd::from_raw_fd(process) };
            let pid = u32::try_from(pid).map_err(|_| io::Error::from_raw_os_error(libc::ERANGE))?;
            Ok(Side::Caller { pid, process })
        }
        _ => Err(io::Error::last_os_error()),
    }
}

/// Becomes the program at `path`. Returns only when that failed.
pub fn execve(path: &CStr, args: &[CString], env: &[CString]) -> io::Error {
    let pointers = |list: &[CString]| -> Vec<*const libc::c_char> {
        list.iter().map(|text| text.as_ptr()).chain([std::ptr::null()]).collect()
    };
    let (args, env) = (pointers(args), pointers(env));
    // SAFETY: both lists end with a null pointer, and their strings and the path outlive the call.
    unsafe { libc::execve(path.as_ptr(), args.as_ptr(), env.as_ptr()) };
    io::Error::last_os_error()
}

/// Becomes the program behind a descriptor, with this process' environment; the `kept` descriptors stay open in it, under
/// their numbers, and all others of ours are closed. Returns only when that failed, with everything as before.
pub fn execute(exe: impl AsFd, args: &[CString], kept: &[RawFd]) -> io::Error {
    let args: Vec<*const libc::c_char> = args.iter().map(|arg| arg.as_ptr()).chain([std::ptr::null()]).collect();
    let mark = |flag: libc::c_int| {
        for number in kept {
            // SAFETY: marks only; a number that is not open is refused without effect.
            unsafe { libc::fcntl(*number, libc::F_SETFD, flag) };
        }
    };
    mark(0);
    // SAFETY: `args` ends with a null pointer and its strings outlive the call; the environment is the process' own, which
    // nobody changes meanwhile: callers have one thread.
    unsafe {
        libc::syscall(
            libc::SYS_execveat,
            exe.as_fd().as_raw_fd(),
            c"".as_ptr(),
            args.as_ptr(),
            environ,
            libc::AT_EMPTY_PATH,
        );
    }
    let error = io::Error::last_os_error();
    mark(libc::FD_CLOEXEC);
    error
}

unsafe extern "C" {
    /// The environment (POSIX, `environ`).
    static environ: *const *const libc::c_char;
}

/// Whether this number is an open descriptor.
#[must_use]
pub fn is_open(number: RawFd) -> bool {
    // SAFETY: only asks.
    unsafe { libc::fcntl(number, libc::F_GETFD) >= 0 }
}

/// Closes every descriptor but the standard streams and `kept`. What a container controls may be looked at after that
/// only: a path of its own can lead through `/proc/self/fd` to whatever is open, close-on-exec or not.
///
/// # Errors
/// ENOSYS before Linux 5.9.
///
/// # Safety
/// Whoever owns one of the descriptors must neither use nor close it again: the process becomes another program or ends.
pub unsafe fn close_all_but(kept: RawFd) -> io::Result<()> {
    let kept = libc::c_uint::try_from(kept).map_err(|_| io::Error::from_raw_os_error(libc::EBADF))?;
    let close = |first: libc::c_uint, last: libc::c_uint| {
        if first > last {
            return Ok(());
        }
        // SAFETY: takes plain numbers; the caller answers for the owners.
        let result = unsafe { libc::syscall(libc::SYS_close_range, first, last, 0) };
        if result < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
    };
    close(3, kept.saturating_sub(1))?;
    close(kept.saturating_add(1).max(3), libc::c_uint::MAX)
}

/// Takes over a descriptor that the parent passed by number, and marks it close-on-exec.
///
/// # Errors
/// EBADF when the parent passed none.
///
/// # Safety
/// Nothing else in this process may own that number.
pub unsafe fn take_descriptor(number: RawFd) -> io::Result<OwnedFd> {
    // SAFETY: borrowed only for the check that it is open; the caller promises that nobody closes it meanwhile.
    let borrowed = unsafe { BorrowedFd::borrow_raw(number) };
    rustix::io::fcntl_setfd(borrowed, rustix::io::FdFlags::CLOEXEC)?;
    // SAFETY: it is open, and the caller promises that nobody else owns it.
    Ok(unsafe { OwnedFd::from_raw_fd(number) })
}

/// Makes the terminal on `fd` the controlling one of the calling session leader.
///
/// # Errors
/// EPERM when it already belongs to another session.
pub fn set_controlling_terminal(fd: impl AsFd) -> io::Result<()> {
    Ok(rustix::process::ioctl_tiocsctty(fd)?)
}

/// Ends the process at once, without running anything that was registered for its end.
pub fn exit_now(code: u8) -> ! {
    // SAFETY: _exit only ends the process.
    unsafe { libc::_exit(libc::c_int::from(code)) }
}

/// Forgets a variable of the environment.
///
/// # Safety
/// The calling process must have one thread: the environment is not locked.
pub unsafe fn forget_variable(name: &str) {
    // SAFETY: the caller promises that there is no other thread.
    unsafe { std::env::remove_var(name) };
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sys::children::{self, Ended};
    use rustix::io::fcntl_getfd;

    fn open(number: RawFd) -> bool {
        // SAFETY: only asked whether it is open.
        fcntl_getfd(unsafe { BorrowedFd::borrow_raw(number) }).is_ok()
    }

    #[test]
    fn only_what_is_kept_stays_open() {
        let null = std::fs::File::open("/dev/null").unwrap();
        for kept in [3, 40, 2] {
            // Nothing is allocated in the child: another thread's lock may be held there.
            let child = children::fork(|| {
                // SAFETY: the child owns its copies of these numbers and ends below.
                let prepared = unsafe {
                    let copies = [3, 4, 40, 41, 900].map(|number| libc::dup2(null.as_raw_fd(), number) == number);
                    copies.iter().all(|made| *made) && close_all_but(kept).is_ok()
                };
                let left = (3..1000).filter(|number| open(*number)).count();
                u8::from(!(prepared && left == usize::from(kept >= 3) && open(kept) && open(0)))
            })
            .unwrap();
            let ended = std::iter::repeat_with(|| children::reap(child).unwrap()).find_map(|ended| ended);
            assert_eq!(ended, Some(Ended::Code(0)), "{kept}");
        }
    }
}
