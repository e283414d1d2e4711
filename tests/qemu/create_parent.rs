//! A test helper, not for nodes: starts create and exec children as the supervisor would, and prints what they report
//! and what their programs say. `tests/qemu/create.rs` runs it in a guest.
//!
//! `create_parent ARMLET CASE`, where CASE is a JSON file of a [`Case`].

use armlet::model::action::{ContainerLimits, CpuMax};
use armlet::model::pod::{Container, Pod, Security};
use armlet::model::supervise::{ChildReport, ExecOrder, ExecSpec, SandboxEntry, child_fd, role};
use armlet::model::{BootTime, ContainerId, WallTime};
use armlet::runtime::cgroup::Cgroups;
use armlet::runtime::request::{OverlayRoot, REQUEST_FILE, SPEC_FILE};
use armlet::runtime::spec::{self, ImageDefaults, Inputs};
use armlet::sys::children::{self, Ended, Program};
use armlet::sys::{exe, layers};
use serde::Deserialize;
use std::error::Error;
use std::ffi::CString;
use std::fs::File;
use std::io::{Read, Write};
use std::os::fd::{AsFd, OwnedFd};
use std::path::{Path, PathBuf};

/// One container to start, and perhaps one program to run in it.
#[derive(Deserialize)]
struct Case {
    id: ContainerId,
    pod: Pod,
    /// Its command is what runs.
    container: Container,
    /// Replaces the container's.
    security: Security,
    lower: Vec<PathBuf>,
    cpu_max: Option<(u64, u64)>,
    memory_max: Option<u64>,
    /// Run this beside, and end the container after it.
    exec: Option<Vec<String>>,
}

type Outcome<T> = Result<T, Box<dyn Error>>;

fn main() -> Outcome<()> {
    let mut args = std::env::args().skip(1);
    let (armlet, case) = (args.next().ok_or("no binary")?, args.next().ok_or("no case")?);
    let mut case: Case = serde_json::from_slice(&std::fs::read(case)?)?;
    case.container.security = case.security.clone();
    let cgroup = format!("kubepods/podtest/{}", case.id);
    let bundle = prepare(&case, &cgroup)?;
    let exe = OwnedFd::from(File::open(armlet)?);
    let tty = case.container.tty && case.exec.is_none();
    let container = Child::start(&exe, &[role::CREATE, &bundle.display().to_string()], None, tty)?;
    let first = container.reports("create")?;
    if let (Some(pid), Some(command)) = (first, &case.exec) {
        let group = format!("{cgroup}/exec-0");
        std::fs::create_dir(Path::new("/sys/fs/cgroup").join(&group))?;
        let spec = ExecSpec {
            id: case.id.clone(),
            command: command.clone(),
            tty: case.container.tty,
            stdin: false,
            size: Some((91, 23)),
            timeout_ms: None,
        };
        let order = ExecOrder { spec, pid, bundle: bundle.display().to_string(), cgroup: group };
        let order = exe::sealed_bytes("order", &serde_json::to_vec(&order)?)?;
        let program = Child::start(&exe, &[role::EXEC], Some(&order), case.container.tty)?;
        let pid = program.reports("exec")?;
        program.output()?;
        ended("exec", pid)?;
        Cgroups::open()?.remove(&cgroup)?;
    }
    container.output()?;
    ended("create", first)?;
    Ok(Cgroups::open()?.remove(&cgroup)?)
}

/// Writes the bundle and makes the cgroups.
fn prepare(case: &Case, cgroup: &str) -> Outcome<PathBuf> {
    let cgroups = Cgroups::open()?;
    cgroups
        .create_pod("kubepods/podtest", &armlet::model::action::PodLimits { cpu_weight: 10, ..Default::default() })?;
    cgroups.create_container(cgroup)?;
    let layer = Path::new("/var/lib/armlet/layers").join(case.id.as_str());
    let root = OverlayRoot { lower: case.lower.clone(), upper: layer.join("upper"), work: layer.join("work") };
    let account = |path: &str| -> Outcome<Vec<u8>> {
        Ok(layers::read_file(&case.lower, Path::new(path), 1 << 20)?.unwrap_or_default())
    };
    let sandbox = SandboxEntry {
        pod: case.pod.uid.clone(),
        attempt: 0,
        host_network: true,
        netns: None,
        ipcns: None,
        utsns: None,
        created_at: BootTime(0),
        created_wall: WallTime::default(),
    };
    let limits = ContainerLimits {
        cpu_weight: 35,
        cpu_max: case.cpu_max.map(|(quota, period)| CpuMax { quota, period }),
        memory_max: case.memory_max,
        swap_max: Some(0),
        oom_group: true,
        oom_score_adj: 900,
        ..ContainerLimits::default()
    };
    let (oci, request) = spec::build(&Inputs {
        pod: &case.pod,
        container: &case.container,
        id: &case.id,
        image: ImageDefaults::default(),
        passwd: &account("/etc/passwd")?,
        group: &account("/etc/group")?,
        root: &root,
        sandbox: &sandbox,
        hostname: "test",
        cgroup,
        limits: &limits,
        volumes: &[],
        managed: &[],
        host_devices: &[],
        masked: &[],
        seccomp_default: true,
    })?;
    let bundle = Path::new("/run/armlet/bundles").join(case.id.as_str());
    std::fs::create_dir_all(&bundle)?;
    std::fs::write(bundle.join(SPEC_FILE), serde_json::to_vec(&oci)?)?;
    std::fs::write(bundle.join(REQUEST_FILE), serde_json::to_vec(&request)?)?;
    Ok(bundle)
}

/// A create or exec child and the other ends of its descriptors.
struct Child {
    pid: u32,
    reports: File,
    output: File,
    console: Option<OwnedFd>,
}

impl Child {
    fn start(exe: &OwnedFd, args: &[&str], order: Option<&OwnedFd>, tty: bool) -> Outcome<Self> {
        let pipe = || rustix::pipe::pipe_with(rustix::pipe::PipeFlags::CLOEXEC);
        let ((reports, to_reports), (output, to_output)) = (pipe()?, pipe()?);
        let (console, to_console) = armlet::sys::seqpacket::stream_pair()?;
        let null = File::open("/dev/null")?;
        let out = if tty { null.as_fd() } else { to_output.as_fd() };
        let mut fds = vec![(null.as_fd(), 0), (out, 1), (out, 2), (to_reports.as_fd(), child_fd::REPORT)];
        if tty {
            fds.push((to_console.as_fd(), child_fd::CONSOLE));
        }
        if let Some(order) = order {
            fds.push((order.as_fd(), child_fd::ORDER));
        }
        let args = ["armlet"].iter().chain(args).map(|arg| CString::new(*arg)).collect::<Result<_, _>>()?;
        let pid = children::spawn(&Program {
            rather: None,
            exe: exe.as_fd(),
            args,
            env: Vec::new(),
            fds,
            cgroup: None,
            oom_score_adj: 0,
            open_files: (1024, 524_288),
            die_with_parent: false,
        })?;
        Ok(Self { pid, reports: reports.into(), output: output.into(), console: tty.then_some(console) })
    }

    /// Reads all reports and prints them; gives the process id of the program, if it runs.
    fn reports(&self, who: &str) -> Outcome<Option<u32>> {
        let mut text = String::new();
        (&self.reports).read_to_string(&mut text)?;
        let (mut first, mut failed) = (None, false);
        for line in text.lines() {
            match serde_json::from_str(line)? {
                ChildReport::Created { pid } => first = Some(pid),
                ChildReport::Started => say(&format!("{who}: started\n"))?,
                ChildReport::Failed { code, reason, message } => {
                    say(&format!("{who}: {code} {reason}: {message}\n"))?;
                    failed = true;
                }
            }
        }
        wait(self.pid)?;
        if let (true, Some(pid)) = (failed, first) {
            // Until it is reaped, the first process of its pid namespace cannot end.
            wait(pid)?;
            return Ok(None);
        }
        Ok(first)
    }

    /// Prints what the program says until it ends.
    fn output(&self) -> Outcome<()> {
        let mut source = match &self.console {
            Some(console) => {
                let received = armlet::sys::seqpacket::receive(console.as_fd(), &mut [0; 8])?;
                File::from(received.and_then(|message| message.fds.into_iter().next()).ok_or("no terminal")?)
            }
            None => self.output.try_clone()?,
        };
        let mut buffer = [0; 4096];
        // A terminal ends with an error when its last user has gone.
        while let Ok(length @ 1..) = source.read(&mut buffer) {
            std::io::stdout().write_all(buffer.get(..length).unwrap_or_default())?;
        }
        Ok(())
    }
}

fn ended(who: &str, pid: Option<u32>) -> Outcome<()> {
    match pid.map(wait) {
        Some(how) => say(&format!("{who}: {:?}\n", how?)),
        None => Ok(()),
    }
}

/// Waits for one child, and reaps all others that end meanwhile.
fn wait(pid: u32) -> Outcome<Ended> {
    loop {
        if let Some(how) = children::reap(pid)? {
            return Ok(how);
        }
        let process = rustix::process::Pid::from_raw(pid.cast_signed()).ok_or("pid")?;
        let process = rustix::process::pidfd_open(process, rustix::process::PidfdFlags::empty())?;
        rustix::event::poll(&mut [rustix::event::PollFd::new(&process, rustix::event::PollFlags::IN)], None)?;
    }
}

fn say(text: &str) -> Outcome<()> {
    Ok(std::io::stdout().write_all(text.as_bytes())?)
}
