//! A fake node: a view made by hand, and an agent that answers commands as a test tells it to.

use crate::model::api::{Image, ImportProgress, LogLevels, Stats};
use crate::model::log::LogLevel;
use crate::model::pod::{
    Container, DnsConfig, DnsPolicy, Pod, PodSpec, PullPolicy, ResourceRequirements, Resources, RestartPolicy,
    Security, Source, TerminationMessagePolicy,
};
use crate::model::status::{ContainerStatus, PodStatus, State, Terminated};
use crate::model::supervise::{self, RefusalCode};
use crate::model::time::Now;
use crate::model::view::{Attempt, NodeView, PodView};
use crate::model::{ContainerId, ImageId, PodUid, WallTime};
use crate::server::{Command, Context, Refusal, bind, serve};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use tokio::net::UnixStream;
use tokio::sync::{mpsc, watch};

/// A server with a fake node behind it.
pub(super) struct FakeNode {
    pub(super) folder: tempfile::TempDir,
    pub(super) view: watch::Sender<Arc<NodeView>>,
    pub(super) commands: mpsc::Receiver<Command>,
}

/// Waits, but not for ever.
pub(super) async fn in_time<T>(what: impl Future<Output = T>) -> T {
    tokio::time::timeout(std::time::Duration::from_secs(15), what).await.expect("in time")
}

/// A curl that asks nobody on the way and whose own settings do not count.
pub(super) fn curl(socket: &Path) -> tokio::process::Command {
    let mut curl = tokio::process::Command::new("curl");
    curl.args(["-q", "--noproxy", "*", "--unix-socket"]).arg(socket).kill_on_drop(true);
    curl
}

/// What the server's clock says.
pub(super) const NOW: &str = "2026-01-01T01:00:00Z";

fn clock() -> Now {
    Now { wall: WallTime::parse_rfc3339(NOW).unwrap(), ..Now::default() }
}

impl FakeNode {
    /// Starts a server in the running runtime.
    pub(super) fn start(view: NodeView) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let (view, receiver) = watch::channel(Arc::new(view));
        let (sender, commands) = mpsc::channel(4);
        let listener = bind(&folder.path().join("armlet.sock")).unwrap();
        tokio::spawn(serve(listener, Context { view: receiver, commands: sender, clock }));
        Self { folder, view, commands }
    }

    pub(super) fn socket(&self) -> PathBuf {
        self.folder.path().join("armlet.sock")
    }

    pub(super) async fn connect(&self) -> UnixStream {
        UnixStream::connect(self.socket()).await.unwrap()
    }

    /// Asks with curl: status, content type, body.
    pub(super) async fn curl(&self, path: &str) -> (u16, String, String) {
        self.curl_with(&[], path).await
    }

    pub(super) async fn curl_with(&self, args: &[&str], path: &str) -> (u16, String, String) {
        let out = curl(&self.socket())
            .args(["-sS", "--path-as-is", "--max-time", "20", "-w", "\n%{http_code} %{content_type}"])
            .args(args)
            .arg(format!("http://node{path}"))
            .output()
            .await
            .expect("curl runs: cross/tools.sh installs it");
        assert!(out.status.success(), "{}", String::from_utf8_lossy(&out.stderr));
        let text = String::from_utf8(out.stdout).unwrap();
        let (body, last) = text.rsplit_once('\n').unwrap();
        let (code, kind) = last.split_once(' ').unwrap();
        (code.parse().unwrap(), kind.to_owned(), body.to_owned())
    }

    /// Answers one command for images or figures.
    pub(super) async fn answer_one(&mut self) {
        match in_time(self.commands.recv()).await.unwrap() {
            Command::Images { reply } => reply.send(Ok(vec![image()])).unwrap(),
            Command::Import { path, progress } => {
                let text = format!("unpacking {}", path.display());
                progress.send(ImportProgress::Step { text }).await.unwrap();
                progress.send(ImportProgress::Done { images: vec![image()] }).await.unwrap();
            }
            Command::Stats { reply } => {
                let supervisor = supervise::Stats { pid: 7, ..supervise::Stats::default() };
                reply.send(Ok(Stats { agent_pid: 9, supervisor, ..Stats::default() })).unwrap();
            }
            Command::Exec { reply, .. } => {
                let refusal = Refusal { code: RefusalCode::NotFound, message: "no such container".to_owned() };
                assert!(reply.send(Err(refusal)).is_ok());
            }
            Command::LogLevel { set, reply } => {
                let agent = set.unwrap_or(LogLevel::Info);
                reply.send(LogLevels { agent, supervisor: None, problem: None }).unwrap();
            }
            other => panic!("{other:?}"),
        }
    }
}

pub(super) fn image() -> Image {
    Image { id: ImageId::new("0a").unwrap(), names: vec!["a:1".into()], bytes: 5, architecture: "arm64".into() }
}

pub(super) fn id(text: &str) -> ContainerId {
    ContainerId::new(text).unwrap()
}

/// A pod `shop/web-edge1` with the containers `setup` (init), `main` and `helper`, nothing of it started.
pub(super) fn pod() -> PodView {
    let pod = Pod {
        uid: PodUid::new("600634036acad158").unwrap(),
        name: "web-edge1".into(),
        namespace: "shop".into(),
        labels: Default::default(),
        annotations: Default::default(),
        source: Source::File { path: "/etc/armlet/manifests/web.yaml".into(), document: 0 },
        manifest: (&serde_json::json!({
            "metadata": {"name": "web-edge1", "namespace": "shop", "uid": "600634036acad158"},
            "spec": {"nodeName": "edge1", "containers": [{"name": "main"}, {"name": "helper"}],
                "initContainers": [{"name": "setup"}]},
        }))
            .into(),
        spec: PodSpec {
            init_containers: vec![container("setup")],
            containers: vec![container("main"), container("helper")],
            volumes: Vec::new(),
            restart_policy: RestartPolicy::Always,
            termination_grace_secs: 30,
            host_network: false,
            hostname: None,
            subdomain: None,
            dns_policy: DnsPolicy::Default,
            dns: DnsConfig::default(),
            host_aliases: Vec::new(),
            fs_group: None,
            sysctls: Default::default(),
            priority_class_name: None,
            priority: 0,
            overhead: Resources::default(),
        },
    };
    PodView { pod: Arc::new(pod), status: PodStatus::default(), attempts: Vec::new() }
}

fn container(name: &str) -> Container {
    Container {
        name: name.into(),
        image: "busybox:1".into(),
        pull_policy: PullPolicy::IfNotPresent,
        command: Vec::new(),
        args: Vec::new(),
        working_dir: None,
        env: Vec::new(),
        ports: Vec::new(),
        resources: ResourceRequirements::default(),
        mounts: Vec::new(),
        liveness: None,
        readiness: None,
        startup: None,
        termination_message_path: "/dev/termination-log".into(),
        termination_message_policy: TerminationMessagePolicy::File,
        restart_policy: None,
        security: Security::default(),
        stdin: false,
        stdin_once: false,
        tty: false,
    }
}

pub(super) fn status(name: &str, state: State) -> ContainerStatus {
    ContainerStatus {
        name: name.into(),
        state,
        last_state: None,
        ready: false,
        started: false,
        restart_count: 0,
        image: "busybox:1".into(),
        image_id: String::new(),
        container_id: None,
    }
}

pub(super) fn running(name: &str, container: &str) -> ContainerStatus {
    ContainerStatus { container_id: Some(id(container)), ..status(name, State::Running { started_at: WallTime(0) }) }
}

pub(super) fn terminated(container: Option<&str>) -> Terminated {
    Terminated {
        exit_code: 3,
        signal: None,
        reason: "Error".into(),
        message: None,
        started_at: WallTime(0),
        finished_at: WallTime(0),
        container_id: container.map(id),
    }
}

pub(super) fn attempt(container: &str, of: &str, log: &Path) -> Attempt {
    Attempt {
        container: container.into(),
        id: id(of),
        attempt: 0,
        log_path: log.to_str().unwrap().into(),
        cgroup: "kubepods/pod0".into(),
        pid: Some(1),
    }
}

pub(super) fn view(pods: Vec<PodView>) -> NodeView {
    NodeView {
        node_name: "edge1".into(),
        settled: true,
        pods: pods.into_iter().map(Arc::new).collect(),
        ..NodeView::default()
    }
}
