//! Running one more program in a container.
//!
//! libcontainer's own way leaves seccomp and most of the process description out, and is slower: here one setns joins
//! all namespaces at once, and the program's process is born in its cgroup.

use super::console;
use super::container::read_json;
use super::error::CreateError;
use super::launch::{Launch, NotRunnable};
use super::report::{Report, Status, StatusReader};
use super::streams;
use crate::model::supervise::{ChildReport, ExecOrder, child_fd};
use crate::runtime::request::{CreateRequest, REQUEST_FILE};
use crate::sys::privileges;
use crate::sys::program::{self, Side};
use oci_spec::runtime::{PosixRlimit, PosixRlimitType, Process};
use rustix::fs::{CWD, Mode, OFlags, ResolveFlags};
use rustix::process::{DumpableBehavior, Pid, PidfdFlags, Resource, Rlimit};
use rustix::thread::ThreadNameSpaceType;
use std::io::{self, Read};
use std::os::fd::{AsFd, OwnedFd};
use std::path::Path;

/// Runs the program that the order on [`child_fd::ORDER`] names, and says so.
pub(super) fn exec(report: &Report) -> Result<(), CreateError> {
    let order = read_order()?;
    let mut request: CreateRequest = read_json(&Path::new(&order.bundle).join(REQUEST_FILE))?;
    let process = request.spec.process_mut().as_mut().ok_or(CreateError::Missing("process"))?;
    process.set_args(Some(order.spec.command.clone()));
    if order.spec.tty {
        give_term(process);
    }
    let process = &*process;
    let launch = Launch::new(process, request.filter.as_ref())?;
    let console = if order.spec.tty { Some(console::supervisor()?) } else { None };
    let status = StatusReader::new().map_err(CreateError::system("make a pipe"))?;

    let entered = enter(&order, process)?;
    let terminal = match &console {
        Some(supervisor) => Some(open_terminal(supervisor, order.spec.size, process.user().uid())?),
        None => {
            streams::give_to(process.user().uid(), process.user().gid())?;
            None
        }
    };
    match clone(&entered.cgroup)? {
        Side::New => become_program(&launch, process, &entered, terminal.as_ref(), status.status()),
        Side::Caller { pid, .. } => report.send(&ChildReport::Created { pid }),
    }
    match status.wait() {
        Some(failure) => Err(CreateError::Program(failure)),
        None => {
            report.send(&ChildReport::Started);
            Ok(())
        }
    }
}

#[expect(unsafe_code, reason = "a descriptor given by number")]
fn read_order() -> Result<ExecOrder, CreateError> {
    // SAFETY: called once; the supervisor left the number open, so nothing else can have got it.
    let order = unsafe { program::take_descriptor(child_fd::ORDER) }.map_err(CreateError::system("find the order"))?;
    let mut text = Vec::new();
    std::fs::File::from(order).read_to_end(&mut text).map_err(CreateError::system("read the order"))?;
    serde_json::from_slice(&text).map_err(|source| CreateError::Json { path: "order".into(), source })
}

/// Programs on a terminal expect to be told its kind.
fn give_term(process: &mut Process) {
    let env = process.env_mut().get_or_insert_default();
    if !env.iter().any(|variable| variable.starts_with("TERM=")) {
        env.push("TERM=xterm".to_owned());
    }
}

/// What is left to do for the new process.
struct Entered {
    /// The container's first process.
    first: OwnedFd,
    /// The cgroup to be born in.
    cgroup: OwnedFd,
}

/// Enters the container's namespaces, the pid namespace with the next clone. Not yet the cgroup namespace: from inside
/// it the kernel lets nobody be born in a group of the container by a parent that is in none.
fn enter(order: &ExecOrder, process: &Process) -> Result<Entered, CreateError> {
    let pid = i32::try_from(order.pid).ok().and_then(Pid::from_raw).ok_or(CreateError::Missing("first process"))?;
    let first = rustix::process::pidfd_open(pid, PidfdFlags::empty())
        .map_err(|error| CreateError::system("find the container's first process")(error.into()))?;
    same_container(order)?;
    let path = Path::new("/sys/fs/cgroup").join(order.cgroup.trim_start_matches('/'));
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let cgroup = rustix::fs::open(&path, flags, Mode::empty())
        .map_err(|error| CreateError::file("open cgroup", &path)(error.into()))?;
    if let Some(score) = process.oom_score_adj() {
        let path = "/proc/self/oom_score_adj";
        std::fs::write(path, score.to_string()).map_err(CreateError::file("write", path))?;
    }
    // From here on programs of the container may see this process: they must not look into it.
    rustix::process::set_dumpable_behavior(DumpableBehavior::NotDumpable)
        .map_err(|error| CreateError::system("hide the process")(error.into()))?;
    let namespaces = ThreadNameSpaceType::MOUNT
        | ThreadNameSpaceType::HOST_NAME_AND_NIS_DOMAIN_NAME
        | ThreadNameSpaceType::INTER_PROCESS_COMMUNICATION
        | ThreadNameSpaceType::PROCESS_ID
        | ThreadNameSpaceType::NETWORK;
    rustix::thread::move_into_thread_name_spaces(first.as_fd(), namespaces)
        .map_err(|error| CreateError::system("enter the container's namespaces")(error.into()))?;
    Ok(Entered { first, cgroup })
}

/// Whether the process is still one of the container: its number may have been given to another since.
fn same_container(order: &ExecOrder) -> Result<(), CreateError> {
    let path = format!("/proc/{}/cgroup", order.pid);
    let groups = std::fs::read_to_string(&path).map_err(CreateError::file("read", &path))?;
    let group = groups.lines().find_map(|line| line.strip_prefix("0::/")).unwrap_or_default();
    let container = Path::new(order.cgroup.trim_start_matches('/')).parent();
    if container.is_some_and(|container| Path::new(group).starts_with(container)) {
        return Ok(());
    }
    Err(CreateError::Missing("first process that is still alive"))
}

/// Opens a terminal in the container and hands its master to the supervisor.
fn open_terminal(supervisor: &OwnedFd, size: Option<(u16, u16)>, uid: u32) -> Result<OwnedFd, CreateError> {
    let open = || -> io::Result<(OwnedFd, OwnedFd)> {
        let flags = OFlags::RDWR | OFlags::NOCTTY | OFlags::CLOEXEC;
        // A link could lead to the host's terminals, through what is still open here.
        let master = rustix::fs::openat2(CWD, "/dev/pts/ptmx", flags, Mode::empty(), ResolveFlags::NO_SYMLINKS)?;
        // What the container has put there instead must not get this process's descriptors.
        let magic = rustix::fs::fstatfs(&master)?.f_type;
        if u64::try_from(magic).ok() != Some(DEVPTS_MAGIC) {
            return Err(io::Error::from_raw_os_error(libc::ENOTTY));
        }
        rustix::pty::unlockpt(&master)?;
        let other = streams::other_side(&master)?;
        streams::give_terminal(&other, uid)?;
        if let Some((columns, rows)) = size {
            let size = rustix::termios::Winsize { ws_col: columns, ws_row: rows, ws_xpixel: 0, ws_ypixel: 0 };
            rustix::termios::tcsetwinsize(&master, size)?;
        }
        Ok((master, other))
    };
    let (master, other) = open().map_err(CreateError::system("open a terminal"))?;
    console::send(supervisor, &master)?;
    Ok(other)
}

/// `DEVPTS_SUPER_MAGIC` (linux/magic.h).
const DEVPTS_MAGIC: u64 = 0x1cd1;

#[expect(unsafe_code, reason = "clone")]
fn clone(cgroup: &OwnedFd) -> Result<Side, CreateError> {
    // SAFETY: exec children have one thread.
    unsafe { program::clone_sibling(cgroup) }.map_err(CreateError::system("start a process in the container's cgroup"))
}

/// The new process's life: it becomes the program, or says why not and ends.
fn become_program(
    launch: &Launch,
    process: &Process,
    entered: &Entered,
    terminal: Option<&OwnedFd>,
    status: Status,
) -> ! {
    let failure = match prepare(launch, process, entered, terminal, status) {
        Ok(program) => launch.become_program(&program),
        Err(failure) => failure,
    };
    status.say(&failure.report());
    program::exit_now(127)
}

fn prepare(
    launch: &Launch,
    process: &Process,
    entered: &Entered,
    terminal: Option<&OwnedFd>,
    status: Status,
) -> Result<std::ffi::CString, NotRunnable> {
    let step = |operation| move |source| NotRunnable::Confinement { operation, source };
    let namespace = ThreadNameSpaceType::CONTROL_GROUP;
    rustix::thread::move_into_thread_name_spaces(entered.first.as_fd(), namespace)
        .map_err(io::Error::from)
        .map_err(step("enter the container's cgroup namespace"))?;
    rustix::process::setsid().map_err(io::Error::from).map_err(step("start a session"))?;
    if let Some(terminal) = terminal {
        take_terminal(terminal).map_err(step("take the terminal"))?;
    }
    // The working directory is the container's to choose: through a descriptor of this process, the cgroup's for one,
    // a link there would lead out of the container.
    status.close_all_others().map_err(step("close descriptors"))?;
    for limit in process.rlimits().iter().flatten() {
        set_limit(limit).map_err(step("set a resource limit"))?;
    }
    rustix::process::umask(Mode::from_raw_mode(process.user().umask().unwrap_or(0o022)));
    enter_folder(process.cwd()).map_err(step("enter the working directory"))?;
    let user = process.user();
    let groups = user.additional_gids().as_deref().unwrap_or_default();
    privileges::become_user(user.uid(), user.gid(), groups).map_err(step("become the container's user"))?;
    launch.limit_effective()?;
    launch.find()
}

/// Enters a folder of the container, and makes sure that it is one.
fn enter_folder(folder: &Path) -> io::Result<()> {
    rustix::process::chdir(folder)?;
    // Of a folder that cannot be reached from the root the kernel says "(unreachable)" first (getcwd(2)).
    let entered = rustix::process::getcwd(Vec::new())?;
    if entered.as_bytes().starts_with(b"/") {
        return Ok(());
    }
    Err(io::Error::other("it lies outside of the container"))
}

fn take_terminal(terminal: &OwnedFd) -> io::Result<()> {
    program::set_controlling_terminal(terminal)?;
    rustix::stdio::dup2_stdin(terminal)?;
    rustix::stdio::dup2_stdout(terminal)?;
    rustix::stdio::dup2_stderr(terminal)?;
    Ok(())
}

fn set_limit(limit: &PosixRlimit) -> io::Result<()> {
    let resource = match limit.typ() {
        PosixRlimitType::RlimitCpu => Resource::Cpu,
        PosixRlimitType::RlimitFsize => Resource::Fsize,
        PosixRlimitType::RlimitData => Resource::Data,
        PosixRlimitType::RlimitStack => Resource::Stack,
        PosixRlimitType::RlimitCore => Resource::Core,
        PosixRlimitType::RlimitRss => Resource::Rss,
        PosixRlimitType::RlimitNproc => Resource::Nproc,
        PosixRlimitType::RlimitNofile => Resource::Nofile,
        PosixRlimitType::RlimitMemlock => Resource::Memlock,
        PosixRlimitType::RlimitAs => Resource::As,
        PosixRlimitType::RlimitLocks => Resource::Locks,
        PosixRlimitType::RlimitSigpending => Resource::Sigpending,
        PosixRlimitType::RlimitMsgqueue => Resource::Msgqueue,
        PosixRlimitType::RlimitNice => Resource::Nice,
        PosixRlimitType::RlimitRtprio => Resource::Rtprio,
        PosixRlimitType::RlimitRttime => Resource::Rttime,
    };
    let finite = |value: u64| (value != u64::MAX).then_some(value);
    Ok(rustix::process::setrlimit(resource, Rlimit { current: finite(limit.soft()), maximum: finite(limit.hard()) })?)
}
