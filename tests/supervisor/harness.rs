//! A supervisor in folders of its own, and an agent's end of its socket.

use armlet::model::supervise::{
    Ask, ContainerEntry, ContainerState, ExecExit, LogLimits, MAX_MESSAGE, Message, Notice, Reply, Request,
    SandboxEntry, SandboxSpec, StartSpec, Stats,
};
use armlet::model::{ContainerId, PodUid};
use armlet::sys::{clock, seqpacket};
use rustix::event::{PollFd, PollFlags, poll};
use rustix::fd::{AsFd as _, BorrowedFd, OwnedFd};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command};

/// How long anything may take before a test gives up.
const PATIENCE_MS: u64 = 20_000;

/// A supervisor with its folders.
pub(crate) struct Node {
    pub(crate) folder: tempfile::TempDir,
    pub(crate) cgroup: PathBuf,
    pub(crate) supervisor: Child,
    count: u32,
}

/// Milliseconds on the boot clock.
pub(crate) fn millis() -> u64 {
    clock::now().boot.0
}

/// Waits until `done` gives something.
pub(crate) fn until<T>(what: &str, mut done: impl FnMut() -> Option<T>) -> T {
    let end = millis() + PATIENCE_MS;
    loop {
        if let Some(value) = done() {
            return value;
        }
        assert!(millis() < end, "waited too long until {what}");
        std::thread::sleep(std::time::Duration::from_millis(5));
    }
}

impl Node {
    pub(crate) fn start(cgroup: &Path) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let mut node = Self { supervisor: spawn(folder.path(), cgroup), folder, cgroup: cgroup.to_owned(), count: 0 };
        node.wait_ready();
        node
    }

    fn wait_ready(&mut self) {
        let socket = self.socket();
        until("the supervisor listens", || seqpacket::connect(&socket).ok());
    }

    pub(crate) fn socket(&self) -> PathBuf {
        self.folder.path().join("run/supervisor.sock")
    }

    pub(crate) fn start_again(&mut self) {
        self.supervisor = spawn(self.folder.path(), &self.cgroup);
        let old = self.supervisor.id();
        let socket = self.socket();
        until("the next supervisor listens", || {
            let mut agent = Agent::connect(&socket);
            let stats = agent.try_stats()?;
            (stats.pid == old).then_some(())
        });
    }

    pub(crate) fn agent(&self) -> (Agent, Vec<SandboxEntry>, Vec<ContainerEntry>) {
        self.agent_with(LogLimits { max_size: 10 << 20, max_files: 5, node_budget: 100 << 20 })
    }

    pub(crate) fn agent_with(&self, logs: LogLimits) -> (Agent, Vec<SandboxEntry>, Vec<ContainerEntry>) {
        let mut agent = Agent::connect(&self.socket());
        let (mut pods, mut containers) = (Vec::new(), Vec::new());
        let seq = agent.send(Ask::Hello { version: 1, logs, build: String::new() });
        loop {
            match agent.reply(seq).0 {
                Reply::Welcome { pid, stopping, .. } => assert_eq!((pid, stopping), (self.supervisor.id(), false)),
                Reply::Pod(entry) => pods.push(entry),
                Reply::Container(entry) => containers.push(entry),
                Reply::Done => return (agent, pods, containers),
                other => panic!("{other:?}"),
            }
        }
    }

    /// A container that runs `script`, with its bundle, log folder and cgroup made.
    pub(crate) fn container(&mut self, pod: &str, mode: &str, script: &str) -> StartSpec {
        self.count += 1;
        let id = ContainerId::new(format!("{:032x}", self.count)).unwrap();
        let bundle = self.folder.path().join(format!("bundles/{id}"));
        let logs = self.folder.path().join(format!("logs/{pod}/c{}", self.count));
        fs::create_dir_all(&bundle).unwrap();
        fs::create_dir_all(&logs).unwrap();
        // Each node has pods of its own in the one tree.
        let cgroup = format!("kubepods/pod{}-{pod}/{id}", self.supervisor.id());
        let group = self.cgroup.join(&cgroup);
        fs::create_dir_all(&group).unwrap();
        for (name, text) in [
            ("mode", mode),
            ("script", script),
            ("cgroup", group.to_str().unwrap()),
            ("cgroup-root", self.cgroup.to_str().unwrap()),
        ] {
            fs::write(bundle.join(name), text).unwrap();
        }
        StartSpec {
            id,
            pod: uid(pod),
            name: format!("c{}", self.count),
            attempt: 0,
            bundle: bundle.to_str().unwrap().to_owned(),
            log_path: logs.join("0.log").to_str().unwrap().to_owned(),
            cgroup,
            tty: mode == "tty",
            stdin: false,
            timeout_ms: 10_000,
        }
    }

    pub(crate) fn group(&self, spec: &StartSpec) -> PathBuf {
        self.cgroup.join(&spec.cgroup)
    }

    /// Waits until a container's group is empty and removes it.
    #[track_caller]
    pub(crate) fn remove_group(&self, spec: &StartSpec) {
        let group = self.group(spec);
        let end = millis() + PATIENCE_MS;
        while let Err(e) = fs::remove_dir(&group) {
            // The create child may have cleaned up itself.
            if e.kind() == std::io::ErrorKind::NotFound {
                return;
            }
            let left = Command::new("sh")
                .args(["-c", "ls -d $0/*/; cat $0/cgroup.procs $0/cgroup.events"])
                .arg(&group)
                .output();
            assert!(millis() < end, "{} stays: {e}, {left:?}", group.display());
            std::thread::sleep(std::time::Duration::from_millis(20));
        }
    }

    /// Waits until the logger of a supervisor that has ended has gone too, and removes its group, which all nodes of the
    /// one tree share: kernels with a count of kills for each group (6.14 and later) kill what is born into one that was
    /// killed while it was not yet empty.
    pub(crate) fn logger_is_gone(&self) {
        let group = self.cgroup.join("armlet/logger");
        let end = millis() + 5000;
        while group.exists() && fs::remove_dir(&group).is_err() && millis() < end {
            std::thread::sleep(std::time::Duration::from_millis(5));
        }
    }

    /// Log lines without their time stamps.
    pub(crate) fn log(&self, spec: &StartSpec) -> Vec<String> {
        let text = fs::read(&spec.log_path).unwrap_or_default();
        let text = String::from_utf8_lossy(&text).into_owned();
        text.split_terminator('\n').map(|l| l.split_once(' ').unwrap().1.to_owned()).collect()
    }
}

impl Drop for Node {
    fn drop(&mut self) {
        let _ = self.supervisor.kill();
        let _ = self.supervisor.wait();
        for group in ["kubepods", "armlet/logger"] {
            let _ = fs::write(self.cgroup.join(group).join("cgroup.kill"), "1");
        }
        self.logger_is_gone();
    }
}

pub(crate) fn spawn(folder: &Path, cgroup: &Path) -> Child {
    Command::new("/proc/self/exe")
        .arg("supervisor")
        .arg("--run-dir")
        .arg(folder.join("run"))
        .arg("--cgroup-root")
        .arg(cgroup)
        .spawn()
        .unwrap()
}

pub(crate) fn uid(pod: &str) -> PodUid {
    PodUid::new(pod).unwrap()
}

/// An agent's end of a connection.
pub(crate) struct Agent {
    pub(crate) socket: OwnedFd,
    seq: u64,
    pub(crate) notices: Vec<Notice>,
}

impl Agent {
    /// A connection that has not said hello.
    pub(crate) fn connect(socket: &Path) -> Self {
        let socket = until("the supervisor takes the connection", || seqpacket::connect(socket).ok());
        Self { socket, seq: 0, notices: Vec::new() }
    }

    pub(crate) fn send(&mut self, ask: Ask) -> u64 {
        self.send_with(ask, &[])
    }

    pub(crate) fn send_with(&mut self, ask: Ask, fds: &[BorrowedFd<'_>]) -> u64 {
        self.seq += 1;
        let request = serde_json::to_vec(&Request { seq: self.seq, ask }).unwrap();
        until("the socket takes the request", || {
            seqpacket::send(self.socket.as_fd(), &request, fds).unwrap().then_some(())
        });
        self.seq
    }

    /// The next message; `None` when the supervisor has gone.
    pub(crate) fn next(&mut self, timeout_ms: u64) -> Option<(Message, Vec<OwnedFd>)> {
        let timeout = rustix::event::Timespec { tv_sec: i64::try_from(timeout_ms / 1000).unwrap(), tv_nsec: 0 };
        let ready = poll(&mut [PollFd::new(&self.socket, PollFlags::IN)], Some(&timeout)).unwrap();
        assert!(ready > 0, "no message in time");
        let mut buffer = vec![0; MAX_MESSAGE];
        let got = seqpacket::receive(self.socket.as_fd(), &mut buffer).ok()??;
        if got.len == 0 {
            return None;
        }
        Some((serde_json::from_slice(&buffer[..got.len]).unwrap(), got.fds))
    }

    pub(crate) fn reply(&mut self, wanted: u64) -> (Reply, Vec<OwnedFd>) {
        loop {
            match self.next(PATIENCE_MS).expect("the supervisor is there") {
                (Message::Reply { seq, reply }, fds) => {
                    assert_eq!(seq, wanted);
                    return (reply, fds);
                }
                (Message::Notice { notice }, _) => self.notices.push(notice),
            }
        }
    }

    /// The next answer, whichever it is.
    pub(crate) fn any_reply(&mut self) -> (u64, Reply, Vec<OwnedFd>) {
        loop {
            match self.next(PATIENCE_MS).expect("the supervisor is there") {
                (Message::Reply { seq, reply }, fds) => return (seq, reply, fds),
                (Message::Notice { notice }, _) => self.notices.push(notice),
            }
        }
    }

    pub(crate) fn ask(&mut self, ask: Ask) -> Reply {
        let seq = self.send(ask);
        self.reply(seq).0
    }

    /// The first notice, old or new, of which `pick` makes something.
    pub(crate) fn notice<T>(&mut self, pick: impl Fn(&Notice) -> Option<T>) -> T {
        loop {
            if let Some(at) = self.notices.iter().position(|n| pick(n).is_some()) {
                return pick(&self.notices.remove(at)).unwrap();
            }
            match self.next(PATIENCE_MS).expect("the supervisor is there").0 {
                Message::Notice { notice } => self.notices.push(notice),
                Message::Reply { .. } => panic!("an answer that nobody asked for"),
            }
        }
    }

    pub(crate) fn sandbox(&mut self, pod: &str) -> SandboxEntry {
        let spec = SandboxSpec {
            pod: uid(pod),
            attempt: 0,
            host_network: false,
            hostname: Some(pod.to_owned()),
            sysctls: vec![("net.ipv4.ip_unprivileged_port_start".to_owned(), "77".to_owned())],
        };
        match self.ask(Ask::CreateSandbox(spec)) {
            Reply::Pod(entry) => entry,
            other => panic!("{other:?}"),
        }
    }

    /// Starts a container and gives the state it has then.
    pub(crate) fn run(&mut self, spec: &StartSpec) -> ContainerState {
        match self.ask(Ask::Start(spec.clone())) {
            Reply::Container(entry) => entry.state,
            other => panic!("{other:?}"),
        }
    }

    /// Waits until a container is over.
    pub(crate) fn over(&mut self, spec: &StartSpec) -> ContainerState {
        self.notice(|n| match n {
            Notice::Container(e) if e.id == spec.id => match e.state {
                ContainerState::Exited(_) | ContainerState::StartFailed { .. } => Some(e.state.clone()),
                _ => None,
            },
            _ => None,
        })
    }

    pub(crate) fn exec_over(&mut self, session: u64) -> ExecExit {
        self.notice(|n| match n {
            Notice::ExecExited { session: s, exit } if *s == session => Some(exit.clone()),
            _ => None,
        })
    }

    pub(crate) fn stats(&mut self) -> Stats {
        match self.ask(Ask::Stats) {
            Reply::Stats(stats) => stats,
            other => panic!("{other:?}"),
        }
    }

    pub(crate) fn try_stats(&mut self) -> Option<Stats> {
        let request = serde_json::to_vec(&Request { seq: 1, ask: Ask::Stats }).ok()?;
        seqpacket::send(self.socket.as_fd(), &request, &[]).ok()?.then_some(())?;
        match self.next(1000)?.0 {
            Message::Reply { reply: Reply::Stats(stats), .. } => Some(stats),
            _ => None,
        }
    }
}

/// The exit code of a container that ended.
pub(crate) fn code(state: &ContainerState) -> i32 {
    match state {
        ContainerState::Exited(exit) => exit.code,
        other => panic!("{other:?}"),
    }
}
