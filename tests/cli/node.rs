//! A fake node for the command line to talk to: real server, real log files, real programs; no agent, no containers.

use armlet::model::api::{GroupUsage, Image, ImportProgress, LogLevels, ProcessUsage, Removed, Stats, Written};
use armlet::model::log::LogLevel;
use armlet::model::status::{ContainerStatus, Phase, PodStatus, State};
use armlet::model::supervise::{ExecExit, RefusalCode};
use armlet::model::time::Now;
use armlet::model::view::{Attempt, EventRecord, NodeView, PodView, RefusedManifest};
use armlet::model::{ContainerId, ImageId, WallTime};
use armlet::server::{Command, Context, ExecSession, LogPart, Refusal, bind, serve};
use armlet::wire::{self, NodeIdentity};
use rustix::fs::{Mode, OFlags};
use rustix::pty::OpenptFlags;
use std::os::fd::OwnedFd;
use std::path::PathBuf;
use std::process::{Child, Stdio};
use std::sync::{Arc, Mutex};
use tokio::sync::{mpsc, oneshot, watch};

const MANIFEST: &str = "
apiVersion: v1
kind: Pod
metadata: {name: web, namespace: shop, annotations: {broker/password: planted-annotation}}
spec:
  initContainers:
  - {name: setup, image: busybox:1}
  containers:
  - name: main
    image: busybox:1
    command: [serve, --password=planted-command, --token, planted-word, --level, '7']
    args: [sh, -c, 'API_KEY=planted-script exec serve amqp://user:planted-url@broker']
    env: [{name: PLAIN, value: planted-environment}]
";

/// A log line that quotes what the pod was started with.
const SECRET_COMMAND: &str = "exec [serve --token planted-word planted-environment]: not found";

/// A server in a thread of its own, and what was asked of the agent behind it.
pub(crate) struct FakeNode {
    pub(crate) folder: tempfile::TempDir,
    _view: watch::Sender<Arc<NodeView>>,
    /// Window sizes that were asked for, and sessions that were killed.
    pub(crate) seen: Arc<Mutex<Vec<String>>>,
    /// Dropped with the node: the server's thread ends.
    _stop: oneshot::Sender<()>,
}

impl FakeNode {
    pub(crate) fn start() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let log = folder.path().join("0.log");
        std::fs::write(&log, "2026-01-01T00:00:00Z stdout F one\n2026-01-01T00:00:01Z stderr F two\n").unwrap();
        let (view, receiver) = watch::channel(Arc::new(picture(&log.display().to_string())));
        let (sender, commands) = mpsc::channel(4);
        let seen = Arc::new(Mutex::new(Vec::new()));
        let (ready, is_ready) = std::sync::mpsc::channel();
        let (stop, stopped) = oneshot::channel::<()>();
        let socket = folder.path().join("armlet.sock");
        let notes = Arc::clone(&seen);
        std::thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
            runtime.block_on(async {
                let listener = bind(&socket).unwrap();
                ready.send(()).unwrap();
                tokio::select! {
                    () = serve(listener, Context { view: receiver, commands: sender, clock: Now::default }) => {}
                    () = answer(commands, notes) => {}
                    _ = stopped => {}
                }
            });
        });
        is_ready.recv().unwrap();
        Self { folder, _view: view, seen, _stop: stop }
    }

    pub(crate) fn socket(&self) -> PathBuf {
        self.folder.path().join("armlet.sock")
    }

    /// Whether the agent was asked for this.
    pub(crate) fn has_seen(&self, what: &str) -> bool {
        self.seen.lock().unwrap().iter().any(|seen| seen == what)
    }

    /// The command line, ready to be run.
    pub(crate) fn armlet(&self, args: &[&str]) -> std::process::Command {
        let mut command = std::process::Command::new(env!("CARGO_BIN_EXE_armlet"));
        command.args(args).env("ARMLET_SOCKET", self.socket()).env_remove("NO_COLOR").stdin(Stdio::null());
        command
    }

    /// Runs it: exit code, standard output, standard error.
    pub(crate) fn run(&self, args: &[&str]) -> (i32, String, String) {
        let out = self.armlet(args).output().unwrap();
        let text = |bytes: Vec<u8>| String::from_utf8(bytes).unwrap();
        (out.status.code().unwrap(), text(out.stdout), text(out.stderr))
    }
}

fn picture(log: &str) -> NodeView {
    let parsed = wire::parse(MANIFEST.as_bytes(), "/etc/armlet/manifests/web.yaml", &NodeIdentity::new("edge1"));
    let pod = parsed.pods.into_iter().next().unwrap_or_else(|| panic!("{:#?}", parsed.problems));
    let id = ContainerId::new("0a").unwrap();
    let main = ContainerStatus {
        name: "main".into(),
        state: State::Running { started_at: WallTime(0) },
        last_state: None,
        ready: true,
        started: true,
        restart_count: 0,
        image: "busybox:1".into(),
        image_id: String::new(),
        container_id: Some(id.clone()),
    };
    let done = armlet::model::status::Terminated {
        exit_code: 0,
        signal: None,
        reason: "Completed".into(),
        message: None,
        started_at: WallTime(0),
        finished_at: WallTime(0),
        container_id: None,
    };
    let setup = ContainerStatus {
        name: "setup".into(),
        state: State::Terminated(done),
        container_id: None,
        started: false,
        ..main.clone()
    };
    let status = PodStatus {
        phase: Phase::Running,
        start_time: Some(WallTime(0)),
        init_containers: vec![setup],
        containers: vec![main],
        ..PodStatus::default()
    };
    let attempt = Attempt {
        container: "main".into(),
        id,
        attempt: 0,
        log_path: log.to_owned(),
        cgroup: "kubepods/x".into(),
        pid: Some(4242),
    };
    let event = EventRecord {
        at: WallTime(0),
        warning: true,
        reason: "BackOff".into(),
        object: "shop/web-edge1".into(),
        field_path: Some("spec.containers{main}".into()),
        message: "Back-off restarting".into(),
    };
    NodeView {
        node_name: "edge1".into(),
        settled: true,
        pods: vec![Arc::new(PodView { pod: Arc::new(pod), status, attempts: vec![attempt] })],
        stopped: vec!["shop/old-edge1".into()],
        refused: vec![RefusedManifest {
            path: "/m/bad.yaml".into(),
            problems: vec!["/m/bad.yaml:1: spec.x: Invalid value: \"planted-problem\": must be y".into()],
        }],
        events: Arc::new([event].into()),
        ..NodeView::default()
    }
}

async fn answer(mut commands: mpsc::Receiver<Command>, seen: Arc<Mutex<Vec<String>>>) {
    let image =
        || Image { id: ImageId::new("0a").unwrap(), names: vec!["a:1".into()], bytes: 5, architecture: "arm64".into() };
    let note = |text: String| seen.lock().unwrap().push(text);
    while let Some(command) = commands.recv().await {
        match command {
            Command::Exec { spec, reply } => {
                if spec.command[0].starts_with("/nope") {
                    let (ended, exit) = oneshot::channel();
                    let message = format!("exec: {:?}: no such file or directory", spec.command[0]);
                    let _ = ended.send(ExecExit::Failed { code: 127, message });
                    let fds = ["/dev/null"; 3].map(|_| pipe_end()).into_iter().skip(usize::from(!spec.stdin)).collect();
                    assert!(reply.send(Ok(ExecSession { session: 1, fds, exit })).is_ok());
                    continue;
                }
                note(format!("size {:?}", spec.size));
                assert!(reply.send(Ok(program(&spec.command, spec.stdin, spec.tty))).is_ok());
            }
            Command::ResizeExec { width, height, .. } => note(format!("resize {width}x{height}")),
            Command::KillExec { .. } => note("kill".to_owned()),
            Command::Images { reply } => reply.send(Ok(vec![image()])).unwrap(),
            Command::Usage { groups, reply } => {
                let used =
                    GroupUsage { cpu_usec: Some(1), memory_bytes: Some(4096), memory_limit: None, pids: Some(1) };
                reply.send(Ok(vec![Some(used); groups.len()])).unwrap();
            }
            Command::RemoveImages { name, reply } if name.as_deref() == Some("needed") => {
                let message = "image \"needed\" is needed by pod shop/web".to_owned();
                reply.send(Err(Refusal { code: RefusalCode::Conflict, message })).unwrap();
            }
            Command::RemoveImages { name, reply } => {
                let removed = Removed { names: name.into_iter().collect(), images: Vec::new(), bytes: 5 };
                reply.send(Ok(removed)).unwrap();
            }
            Command::Pod { namespace, name, verb, reply } => {
                note(format!("{verb:?} {namespace}/{name}"));
                reply.send(Ok(())).unwrap();
            }
            Command::Stats { reply } => {
                let agent = ProcessUsage { role: "agent".into(), pid: 9, pss_bytes: Some(1024) };
                let written = Written { store: 4096, ..Written::default() };
                reply.send(Ok(Stats { processes: vec![agent], written, ..Stats::default() })).unwrap();
            }
            Command::Log { after, wait: false, reply } => {
                let time = "2026-01-01T00:00:0";
                let parts = vec![
                    format!("{time}2.000000000Z I agent: {SECRET_COMMAND}\n"),
                    format!("{time}1.000000000Z F supervisor: panicked\n"),
                ];
                reply.send(LogPart { parts, mark: after }).unwrap();
            }
            Command::Log { wait: true, reply, .. } => drop(reply),
            Command::LogLevel { set, reply } => {
                let supervisor = set.or(Some(LogLevel::Info));
                reply.send(LogLevels { agent: set.unwrap_or(LogLevel::Info), supervisor, problem: None }).unwrap();
            }
            Command::Import { path, progress } => {
                let fails = path.ends_with("bad.tar");
                let step = ImportProgress::Step { text: format!("reading {}", path.display()) };
                progress.send(step).await.unwrap();
                let message = "bad.tar: no manifest".to_owned();
                let last = if fails {
                    ImportProgress::Failed { message }
                } else {
                    ImportProgress::Done { images: vec![image()] }
                };
                progress.send(last).await.unwrap();
            }
        }
    }
}

fn pipe_end() -> OwnedFd {
    rustix::pipe::pipe().unwrap().0
}

/// Runs a program on this machine, on a terminal or on pipes.
fn program(command: &[String], stdin: bool, tty: bool) -> ExecSession {
    let mut program = std::process::Command::new(&command[0]);
    program.args(&command[1..]);
    let mut fds = Vec::new();
    let mut child = if tty {
        let master = rustix::pty::openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY | OpenptFlags::CLOEXEC).unwrap();
        rustix::pty::unlockpt(&master).unwrap();
        let name = rustix::pty::ptsname(&master, Vec::new()).unwrap();
        let slave = rustix::fs::open(&name, OFlags::RDWR | OFlags::NOCTTY | OFlags::CLOEXEC, Mode::empty()).unwrap();
        let end = || Stdio::from(slave.try_clone().unwrap());
        fds.push(master);
        program.stdin(end()).stdout(end()).stderr(end()).spawn().unwrap()
    } else {
        let input = if stdin { Stdio::piped() } else { Stdio::null() };
        program.stdin(input).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap()
    };
    drop(program);
    fds.extend(take_pipes(&mut child));
    let (ended, exit) = oneshot::channel();
    std::thread::spawn(move || {
        let code = child.wait().unwrap().code().unwrap_or(137);
        let _ = ended.send(ExecExit::Exited { code });
    });
    ExecSession { session: 1, fds, exit }
}

fn take_pipes(child: &mut Child) -> Vec<OwnedFd> {
    let stdin = child.stdin.take().map(OwnedFd::from);
    let stdout = child.stdout.take().map(OwnedFd::from);
    let stderr = child.stderr.take().map(OwnedFd::from);
    [stdin, stdout, stderr].into_iter().flatten().collect()
}
