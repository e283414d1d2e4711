//! Fake create and exec children (unless the bundle is a real one): no root filesystem, no isolation; the "container" is a shell script of the bundle.
#![expect(unsafe_code, reason = "a sibling is made by clone with CLONE_PARENT, a terminal taken by ioctl")]

use armlet::model::supervise::{ChildReport, ExecOrder, child_fd};
use armlet::sys::{children, seqpacket};
use rustix::fd::{AsFd as _, OwnedFd};
use std::ffi::OsString;
use std::fs;
use std::io::Write as _;
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, Stdio};

fn report(pipe: &fs::File, report: &ChildReport) {
    let mut line = serde_json::to_vec(report).unwrap();
    line.push(b'\n');
    (&*pipe).write_all(&line).unwrap();
}

/// Forks a child of this process' parent. Gives its id, or 0 in it.
fn fork_sibling() -> u32 {
    // SAFETY: no memory is shared and no stack given: a fork of a process that has one thread.
    let pid =
        unsafe { libc::syscall(libc::SYS_clone, libc::c_long::from(libc::CLONE_PARENT | libc::SIGCHLD), 0, 0, 0, 0) };
    u32::try_from(pid).unwrap()
}

/// Gives the terminal away as the create child would, and makes its other end this process' streams.
fn open_terminal() {
    let console = children::inherited(child_fd::CONSOLE).unwrap();
    let flags = rustix::pty::OpenptFlags::RDWR | rustix::pty::OpenptFlags::NOCTTY;
    let master = rustix::pty::openpt(flags).unwrap();
    rustix::pty::unlockpt(&master).unwrap();
    let end = rustix::pty::ioctl_tiocgptpeer(&master, rustix::pty::OpenptFlags::RDWR).unwrap();
    assert!(seqpacket::send(console.as_fd(), b"x", &[master.as_fd()]).unwrap());
    rustix::stdio::dup2_stdin(&end).unwrap();
    rustix::stdio::dup2_stdout(&end).unwrap();
    rustix::stdio::dup2_stderr(&end).unwrap();
}

/// Where a test says what the offered program does instead of looking the document over, by the supervisor's id.
pub(crate) fn whim(supervisor: u32) -> PathBuf {
    std::env::temp_dir().join(format!("armlet-look-over-{supervisor}"))
}

/// The offered program's first role: the real one, unless the test has another wish.
pub(crate) fn look_over() -> ExitCode {
    let supervisor = rustix::process::getppid().unwrap().as_raw_pid().unsigned_abs();
    match fs::read_to_string(whim(supervisor)).as_deref() {
        Ok("hang") => loop {
            rustix::event::pause();
        },
        Ok("die") => ExitCode::from(9),
        Ok("babble") => {
            let mut pipe = fs::File::from(children::inherited(4).unwrap());
            let _ = pipe.write_all(&[b'x'; 100_000]);
            ExitCode::SUCCESS
        }
        Ok("nonsense") => {
            fs::File::from(children::inherited(4).unwrap()).write_all(b"{\"answer\":\"perhaps\"}\n").unwrap();
            ExitCode::SUCCESS
        }
        _ => armlet::supervisor::look_over(),
    }
}

/// `create <bundle>`: the bundle has a `mode`, a `cgroup` (its folder) and a `script`.
pub(crate) fn create(args: &[OsString]) -> ExitCode {
    let bundle = PathBuf::from(&args[0]);
    if bundle.join("config.json").exists() {
        return armlet::runtime::create::run_create(&bundle);
    }
    let read = |name: &str| fs::read_to_string(bundle.join(name)).unwrap_or_default();
    let pipe = fs::File::from(children::inherited(child_fd::REPORT).unwrap());
    let mode = read("mode");
    match mode.as_str() {
        "hang" => loop {
            rustix::event::pause();
        },
        "die" => return ExitCode::from(9),
        "liar" => report(&pipe, &ChildReport::Created { pid: 1 }),
        "babble" => (&pipe).write_all(&[b'x'; 100_000]).unwrap(),
        "fail" => {
            let message = "no such file".to_owned();
            report(&pipe, &ChildReport::Failed { code: 127, reason: "StartError".to_owned(), message });
            return ExitCode::FAILURE;
        }
        _ => {}
    }
    let (ready, joined) = rustix::pipe::pipe_with(rustix::pipe::PipeFlags::CLOEXEC).unwrap();
    let pid = fork_sibling();
    if pid == 0 {
        drop(ready);
        return first_process(Path::new(&read("cgroup")), mode == "tty", joined, &read("script"));
    }
    drop(joined);
    let _ = rustix::io::read(&ready, &mut [0; 1][..]);
    // The first process may be gone before anybody has heard of it.
    let wait = if mode == "early" { 200 } else { 0 };
    std::thread::sleep(std::time::Duration::from_millis(wait));
    report(&pipe, &ChildReport::Created { pid });
    report(&pipe, &ChildReport::Started);
    ExitCode::SUCCESS
}

fn first_process(cgroup: &Path, tty: bool, joined: OwnedFd, script: &str) -> ExitCode {
    fs::write(cgroup.join("cgroup.procs"), "0").unwrap();
    if tty {
        open_terminal();
    }
    drop(joined);
    let _ = rustix::process::setsid();
    let error = Command::new("/bin/sh").arg("-c").arg(script).env("PATH", "/bin:/usr/bin").exec();
    panic!("{error}");
}

/// `exec`: runs the order's command in the order's cgroup.
pub(crate) fn exec() -> ExitCode {
    let order: ExecOrder =
        serde_json::from_slice(&fs::read(format!("/proc/self/fd/{}", child_fd::ORDER)).unwrap()).unwrap();
    if Path::new(&order.bundle).join("config.json").exists() {
        return armlet::runtime::create::run_exec();
    }
    let pipe = fs::File::from(children::inherited(child_fd::REPORT).unwrap());
    let (ready, joined) = rustix::pipe::pipe_with(rustix::pipe::PipeFlags::CLOEXEC).unwrap();
    let (go, told) = rustix::pipe::pipe_with(rustix::pipe::PipeFlags::CLOEXEC).unwrap();
    let pid = fork_sibling();
    if pid == 0 {
        drop(told);
        let group = PathBuf::from(fs::read_to_string(format!("{}/cgroup-root", order.bundle)).unwrap());
        fs::write(group.join(&order.cgroup).join("cgroup.procs"), "0").unwrap();
        drop(joined);
        // What a test sees of the program comes after the supervisor could hear of it.
        let _ = rustix::io::read(&go, &mut [0; 1][..]);
        let _ = rustix::process::setsid();
        if order.spec.tty {
            open_terminal();
            // SAFETY: takes plain numbers; this session has no terminal yet.
            unsafe { libc::ioctl(0, libc::TIOCSCTTY, 0) };
        }
        let mut command = Command::new(&order.spec.command[0]);
        command.args(&order.spec.command[1..]).env("PATH", "/bin:/usr/bin").stdin(Stdio::inherit());
        panic!("{}", command.exec());
    }
    // As with the real child a session has begun only when all of it can be killed by its group.
    drop(joined);
    let _ = rustix::io::read(&ready, &mut [0; 1][..]);
    report(&pipe, &ChildReport::Created { pid });
    if order.spec.command[0] == "/nowhere" {
        report(&pipe, &ChildReport::Failed { code: 127, reason: String::new(), message: "not found".to_owned() });
        return ExitCode::FAILURE;
    }
    report(&pipe, &ChildReport::Started);
    drop(told);
    ExitCode::SUCCESS
}
