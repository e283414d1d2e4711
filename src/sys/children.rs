//! Starting and reaping children. Starting is fork-like (`clone3`), straight into a cgroup.
#![expect(unsafe_code, reason = "clone3, execveat and waitid with a pid in the answer have no safe wrapper here")]

use super::signals;
use rustix::fd::{AsFd as _, AsRawFd as _, BorrowedFd, FromRawFd as _, OwnedFd, RawFd};
use serde::{Deserialize, Serialize};
use std::ffi::{CStr, CString, c_char};
use std::io;

/// How a child ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Ended {
    /// It left with this code.
    Code(i32),
    /// This signal ended it.
    Signal(i32),
}

/// Looks which child has ended, without reaping it.
///
/// # Errors
/// Of waitid, but not "no children", which is `None`.
pub fn peek_ended() -> io::Result<Option<(u32, Ended)>> {
    wait(libc::P_ALL, 0, libc::WNOWAIT)
}

/// Reaps one ended child; `None` when it has not ended or is no child of ours.
///
/// # Errors
/// Of waitid.
pub fn reap(pid: u32) -> io::Result<Option<Ended>> {
    Ok(wait(libc::P_PID, pid, 0)?.map(|(_, how)| how))
}

/// Whether `pid` is a child of this process, ended or not.
#[must_use]
pub fn is_ours(pid: u32) -> bool {
    let mut info = blank();
    // SAFETY: `info` is a valid siginfo to write to; WNOWAIT leaves the child as it is.
    let rc = unsafe { libc::waitid(libc::P_PID, pid, &raw mut info, libc::WEXITED | libc::WNOHANG | libc::WNOWAIT) };
    pid > 0 && rc == 0
}

/// Whether this process has any child, ended or not.
#[must_use]
pub fn are_left() -> bool {
    let mut info = blank();
    let options = libc::WEXITED | libc::WNOHANG | libc::WNOWAIT;
    // SAFETY: `info` is a valid siginfo to write to; WNOWAIT leaves the children as they are.
    unsafe { libc::waitid(libc::P_ALL, 0, &raw mut info, options) == 0 }
}

fn wait(kind: libc::idtype_t, pid: u32, more: i32) -> io::Result<Option<(u32, Ended)>> {
    let mut info = blank();
    // SAFETY: `info` is a valid siginfo to write to.
    let rc = unsafe { libc::waitid(kind, pid, &raw mut info, libc::WEXITED | libc::WNOHANG | more) };
    if rc != 0 {
        let e = io::Error::last_os_error();
        return if e.raw_os_error() == Some(libc::ECHILD) { Ok(None) } else { Err(e) };
    }
    // SAFETY: after waitid these fields of the union are the ones in use; all zero when nothing was found.
    let (pid, status) = unsafe { (info.si_pid(), info.si_status()) };
    let Some(pid) = u32::try_from(pid).ok().filter(|p| *p > 0) else { return Ok(None) };
    let how = if info.si_code == libc::CLD_EXITED { Ended::Code(status) } else { Ended::Signal(status) };
    Ok(Some((pid, how)))
}

fn blank() -> libc::siginfo_t {
    // SAFETY: siginfo_t is plain data for which all zeroes is a value.
    unsafe { std::mem::zeroed() }
}

/// A program to start.
#[derive(Debug)]
pub struct Program<'a> {
    /// The executable, opened (`O_PATH` is enough).
    pub exe: BorrowedFd<'a>,
    /// A file to be executed instead, if it is there and can be. It is opened by the child, which may wait for a disk.
    pub rather: Option<&'a CStr>,
    /// Arguments, the program's name first.
    pub args: Vec<CString>,
    /// Environment.
    pub env: Vec<CString>,
    /// Which descriptor becomes which number in the child; all others are closed there.
    pub fds: Vec<(BorrowedFd<'a>, RawFd)>,
    /// The cgroup folder to be born in; absent: the parent's.
    pub cgroup: Option<BorrowedFd<'a>>,
    /// The child's `oom_score_adj`.
    pub oom_score_adj: i16,
    /// Soft and hard limit on open files.
    pub open_files: (u64, u64),
    /// End the child when this process ends.
    pub die_with_parent: bool,
}

/// The exit code of a child whose program could not be executed.
pub const EXEC_FAILED: i32 = 125;

/// Starts the program as a child in a session of its own, all signals at their defaults. Gives its process id.
/// That it could not be executed shows as an exit with [`EXEC_FAILED`].
///
/// # Errors
/// Of clone3 (for instance EBUSY or EAGAIN from the cgroup).
pub fn spawn(program: &Program<'_>) -> io::Result<u32> {
    // Everything the child needs is laid out before: between clone and exec it must not allocate, since another
    // thread (in tests) may hold the allocator's lock at that moment.
    let args = pointers(&program.args);
    let env = pointers(&program.env);
    let score = CString::new(program.oom_score_adj.to_string())?;
    let parent = rustix::process::getpid();
    let pid = clone(program.cgroup)?;
    if pid != 0 {
        return Ok(pid);
    }
    signals::reset_all();
    if let Some(candidates) = prepare(program, &score, parent) {
        for exe in candidates.into_iter().flatten() {
            // SAFETY: both arrays end in null and point to strings that outlive the call.
            unsafe {
                libc::syscall(libc::SYS_execveat, exe, c"".as_ptr(), args.as_ptr(), env.as_ptr(), libc::AT_EMPTY_PATH);
            }
        }
    }
    // SAFETY: ends the child at once, without running the parent's exit handlers.
    unsafe { libc::_exit(EXEC_FAILED) }
}

/// What the child does before it executes the program; gives the descriptors of what is to be executed, the first that
/// can be. `None`: give up.
fn prepare(program: &Program<'_>, score: &CStr, parent: rustix::process::Pid) -> Option<[Option<RawFd>; 2]> {
    if program.die_with_parent {
        rustix::process::set_parent_process_death_signal(Some(rustix::process::Signal::KILL)).ok()?;
        if rustix::process::getppid() != Some(parent) {
            return None;
        }
    }
    let _ = rustix::process::setsid();
    write_file(c"/proc/self/oom_score_adj", score.to_bytes());
    let exe = aside(program.exe)?;
    let rather = program.rather.and_then(|path| {
        let flags = rustix::fs::OFlags::RDONLY | rustix::fs::OFlags::NONBLOCK | rustix::fs::OFlags::CLOEXEC;
        aside(rustix::fs::open(path, flags, rustix::fs::Mode::empty()).ok()?.as_fd())
    });
    place(&program.fds)?;
    let (soft, hard) = program.open_files;
    let limit = libc::rlimit64 { rlim_cur: soft, rlim_max: hard };
    // SAFETY: `limit` is valid for the call. Other limits than wished are no reason not to start.
    unsafe { libc::setrlimit64(libc::RLIMIT_NOFILE, &raw const limit) };
    Some([rather, Some(exe)])
}

/// A duplicate with a number that no promised descriptor has.
fn aside(fd: BorrowedFd<'_>) -> Option<RawFd> {
    const ASIDE: RawFd = 64;
    // SAFETY: F_DUPFD_CLOEXEC takes plain numbers.
    let duplicate = unsafe { libc::fcntl(fd.as_raw_fd(), libc::F_DUPFD_CLOEXEC, ASIDE) };
    (duplicate >= 0).then_some(duplicate)
}

/// Gives the descriptors their numbers. First all go out of the way, so that none is overwritten before it is used.
fn place(fds: &[(BorrowedFd<'_>, RawFd)]) -> Option<()> {
    let mut held = [-1; 16];
    let mut top = 0;
    for ((fd, _), slot) in fds.iter().zip(held.iter_mut()) {
        *slot = aside(*fd)?;
    }
    for ((_, number), slot) in fds.iter().zip(held) {
        top = top.max(*number);
        // SAFETY: dup2 takes plain numbers; the target is not close-on-exec.
        if unsafe { libc::dup2(slot, *number) } < 0 {
            return None;
        }
    }
    // SAFETY: takes plain numbers; marks only. Everything of ours is close-on-exec anyhow, this is the second lock.
    unsafe { libc::syscall(libc::SYS_close_range, libc::c_long::from(top + 1), libc::c_long::from(u32::MAX), 4) };
    (fds.len() <= held.len()).then_some(())
}

fn write_file(path: &CStr, bytes: &[u8]) {
    if let Ok(file) =
        rustix::fs::open(path, rustix::fs::OFlags::WRONLY | rustix::fs::OFlags::CLOEXEC, rustix::fs::Mode::empty())
    {
        let _ = rustix::io::write(&file, bytes);
    }
}

fn pointers(strings: &[CString]) -> Vec<*const c_char> {
    strings.iter().map(|s| s.as_ptr()).chain([std::ptr::null()]).collect()
}

/// Takes over a descriptor that the parent left at an agreed number. To be called once per number, before anything
/// else is opened.
///
/// # Errors
/// `EBADF` when nothing is there.
pub fn inherited(number: RawFd) -> io::Result<OwnedFd> {
    // SAFETY: takes plain numbers; marks the descriptor close-on-exec or fails.
    if unsafe { libc::fcntl(number, libc::F_SETFD, libc::FD_CLOEXEC) } < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: the descriptor is open, and by this function's contract nobody else in this process owns it.
    Ok(unsafe { OwnedFd::from_raw_fd(number) })
}

/// Runs `work` in a forked child and ends the child with the code it returns. Only for single-threaded processes.
///
/// # Errors
/// Of clone3.
pub fn fork(work: impl FnOnce() -> u8) -> io::Result<u32> {
    let pid = clone(None)?;
    if pid != 0 {
        return Ok(pid);
    }
    signals::reset_all();
    let code = work();
    // SAFETY: ends the child at once, without running the parent's exit handlers.
    unsafe { libc::_exit(i32::from(code)) }
}

/// `clone3` without sharing: 0 in the child.
fn clone(cgroup: Option<BorrowedFd<'_>>) -> io::Result<u32> {
    const INTO_CGROUP: u64 = 0x2_0000_0000;
    // SAFETY: clone_args is plain data for which all zeroes is a value.
    let mut args: libc::clone_args = unsafe { std::mem::zeroed() };
    args.exit_signal = u64::from(libc::SIGCHLD.unsigned_abs());
    if let Some(group) = cgroup {
        args.flags = INTO_CGROUP;
        args.cgroup = u64::from(group.as_raw_fd().unsigned_abs());
    }
    // SAFETY: no memory is shared and no stack is given, so this is a fork: the child goes on with a copy of
    // everything. The C library keeps no state that a raw fork of one thread would break (no cached pid).
    let pid = unsafe { libc::syscall(libc::SYS_clone3, &raw const args, size_of::<libc::clone_args>()) };
    u32::try_from(pid).map_err(|_| io::Error::last_os_error())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sh(script: &str) -> (std::fs::File, Vec<CString>) {
        let exe = std::fs::File::open("/bin/sh").unwrap();
        (exe, ["sh", "-c", script].iter().map(|a| CString::new(*a).unwrap()).collect())
    }

    fn wait_for(pid: u32) -> Ended {
        let mut info = blank();
        // SAFETY: `info` is a valid siginfo to write to.
        unsafe { libc::waitid(libc::P_PID, pid, &raw mut info, libc::WEXITED | libc::WNOWAIT) };
        reap(pid).unwrap().unwrap()
    }

    #[test]
    fn a_child_finds_its_descriptors_where_they_were_promised() {
        let (exe, args) = sh("echo out; echo err >&2; echo three >&3; cat /proc/self/oom_score_adj; ulimit -n; exit 7");
        let (read, write) = rustix::pipe::pipe_with(rustix::pipe::PipeFlags::CLOEXEC).unwrap();
        let null = std::fs::File::open("/dev/null").unwrap();
        let pid = spawn(&Program {
            exe: exe.as_fd(),
            rather: None,
            args,
            env: vec![c"PATH=/bin:/usr/bin".to_owned()],
            fds: vec![(null.as_fd(), 0), (write.as_fd(), 1), (write.as_fd(), 2), (write.as_fd(), 3)],
            cgroup: None,
            oom_score_adj: 17,
            open_files: (100, 200),
            die_with_parent: true,
        })
        .unwrap();
        assert!(is_ours(pid));
        drop(write);
        assert_eq!(wait_for(pid), Ended::Code(7));
        assert!(!is_ours(pid));
        assert_eq!(reap(pid).unwrap(), None);
        let mut text = String::new();
        io::Read::read_to_string(&mut std::fs::File::from(read), &mut text).unwrap();
        assert_eq!(text, "out\nerr\nthree\n17\n100\n");
    }

    #[test]
    fn a_file_that_is_no_program_shows_as_an_exit() {
        let exe = std::fs::File::open("/etc/passwd").unwrap();
        let args = vec![c"x".to_owned()];
        let program = Program {
            exe: exe.as_fd(),
            rather: None,
            args,
            env: Vec::new(),
            fds: Vec::new(),
            cgroup: None,
            oom_score_adj: 0,
            open_files: (100, 200),
            die_with_parent: false,
        };
        assert_eq!(wait_for(spawn(&program).unwrap()), Ended::Code(EXEC_FAILED));
    }

    #[test]
    fn a_real_file_is_executed_rather_than_the_descriptor_if_it_can_be() {
        let folder = tempfile::tempdir().unwrap();
        let path = |name: &str| CString::new(folder.path().join(name).into_os_string().into_encoded_bytes()).unwrap();
        std::fs::write(folder.path().join("broken"), "\x7fELF").unwrap();
        let mode = std::os::unix::fs::PermissionsExt::from_mode(0o755);
        std::fs::set_permissions(folder.path().join("broken"), mode).unwrap();
        for (rather, code) in [(c"/bin/false".to_owned(), 1), (path("missing"), 7), (path("broken"), 7)] {
            let (exe, args) = sh("exit 7");
            let program = Program {
                exe: exe.as_fd(),
                rather: Some(&rather),
                args,
                env: Vec::new(),
                fds: Vec::new(),
                cgroup: None,
                oom_score_adj: 0,
                open_files: (100, 200),
                die_with_parent: false,
            };
            assert_eq!(wait_for(spawn(&program).unwrap()), Ended::Code(code), "{rather:?}");
        }
    }

    #[test]
    fn death_by_signal_is_told_apart_from_an_exit() {
        let pid = fork(|| {
            let _ = signals::send(std::process::id(), libc::SIGKILL);
            1
        })
        .unwrap();
        assert_eq!(wait_for(pid), Ended::Signal(libc::SIGKILL));
        assert_eq!(wait_for(fork(|| 9).unwrap()), Ended::Code(9));
    }
}
