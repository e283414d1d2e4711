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

/// The same in a process that [`children::spawn`](super::children::spawn) has started: there every signal had its
/// default effect, until the start-up code of Rust chose to ignore one.
pub fn reset_own() {
    let none = set_of(&[]);
    // SAFETY: plain system calls with valid arguments.
    unsafe {
        libc::signal(libc::SIGPIPE, libc::SIG_DFL);
        libc::sigprocmask(libc::SIG_SETMASK, &raw const none, std::ptr::null_mut());
    }
}

/// The signal that `STOPSIGNAL` names; SIGTERM where it names none that there is, as the runtimes below upstream's kubelet
/// do.
#[must_use]
pub fn stop_signal(text: &str) -> i32 {
    number(text).unwrap_or(libc::SIGTERM)
}

/// The number of a signal by its name (`SIGTERM`, `TERM`, `SIGRTMIN+3`) or number.
fn number(text: &str) -> Option<i32> {
    if let Ok(number) = text.parse::<i32>() {
        return (1..=64).contains(&number).then_some(number);
    }
    let upper = text.to_ascii_uppercase();
    let name = upper.strip_prefix("SIG").unwrap_or(&upper);
    // musl and glibc keep the first real-time signals for themselves; images count as glibc does.
    for (base, at) in [("RTMIN", 34), ("RTMAX", 64)] {
        let Some(rest) = name.strip_prefix(base) else { continue };
        let offset: i32 = if rest.is_empty() { 0 } else { rest.parse().ok()? };
        let number = offset.checked_add(at)?;
        return (34..=64).contains(&number).then_some(number);
    }
    NAMES.iter().find(|(known, _)| *known == name).map(|(_, number)| *number)
}

/// The names that all Linux architectures have.
const NAMES: [(&str, i32); 31] = [
    ("HUP", libc::SIGHUP),
    ("INT", libc::SIGINT),
    ("QUIT", libc::SIGQUIT),
    ("ILL", libc::SIGILL),
    ("TRAP", libc::SIGTRAP),
    ("ABRT", libc::SIGABRT),
    ("BUS", libc::SIGBUS),
    ("FPE", libc::SIGFPE),
    ("KILL", libc::SIGKILL),
    ("USR1", libc::SIGUSR1),
    ("SEGV", libc::SIGSEGV),
    ("USR2", libc::SIGUSR2),
    ("PIPE", libc::SIGPIPE),
    ("ALRM", libc::SIGALRM),
    ("TERM", libc::SIGTERM),
    ("STKFLT", libc::SIGSTKFLT),
    ("CHLD", libc::SIGCHLD),
    ("CONT", libc::SIGCONT),
    ("STOP", libc::SIGSTOP),
    ("TSTP", libc::SIGTSTP),
    ("TTIN", libc::SIGTTIN),
    ("TTOU", libc::SIGTTOU),
    ("URG", libc::SIGURG),
    ("XCPU", libc::SIGXCPU),
    ("XFSZ", libc::SIGXFSZ),
    ("VTALRM", libc::SIGVTALRM),
    ("PROF", libc::SIGPROF),
    ("WINCH", libc::SIGWINCH),
    ("IO", libc::SIGIO),
    ("PWR", libc::SIGPWR),
    ("SYS", libc::SIGSYS),
];

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

#[cfg(test)]
mod names {
    use super::{number, stop_signal};

    #[test]
    fn stop_signals_are_read_by_name_and_number() {
        let table = [
            ("SIGTERM", Some(15)),
            ("term", Some(15)),
            ("3", Some(3)),
            ("SIGRTMIN+3", Some(37)),
            ("RTMAX-1", Some(63)),
            ("RTMIN-1", None),
            ("RTMIN+x", None),
            ("0", None),
            ("65", None),
            ("-9", None),
            ("SIGFOO", None),
            ("SIG", None),
            ("", None),
        ];
        for (text, expected) in table {
            assert_eq!(number(text), expected, "{text:?}");
            assert_eq!(stop_signal(text), expected.unwrap_or(15), "{text:?}");
        }
    }
}
