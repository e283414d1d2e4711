//! The node that the tests of manifests, images, logs and the command line share: armlet as process 1, one boot.

use crate::guests::directory;
use armlet_vm::{Boot, Disk, Guest, Initramfs, Kind, Output, binary, images, root};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::{OnceLock, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};
use std::time::Duration;

/// Long enough for two cores that also do something else.
pub(crate) const PATIENCE: Duration = Duration::from_secs(120);
/// The port of the guest that the host reaches; pods on the host's network may take it, one at a time.
pub(crate) const PORT: u16 = 8080;
/// The image that most pods run; the node finds it in its preload folder.
pub(crate) const IMAGE: &str = "localhost/busybox:trixie";
/// How many processes a pod may have on this node.
pub(crate) const PIDS: u32 = 120;
/// Small logs, so that rotation and the budget are met soon, something set aside, and what the other nodes leave at its
/// default.
const CONFIG: &str = "\
apiVersion: kubelet.config.k8s.io/v1beta1
kind: KubeletConfiguration
containerLogMaxSize: 128Ki
containerLogMaxFiles: 3
systemReserved: {cpu: 100m, memory: 16Mi}
kubeReserved: {pid: 100}
oomScoreAdj: -997
podPidsLimit: 120
seccompDefault: true
---
apiVersion: armlet.dev/v1alpha1
kind: NodeConfiguration
logBudget: 2Mi
";

/// The agent may be ended by whoever holds this alone; who talks to it shares it.
static AGENT: RwLock<()> = RwLock::new(());

/// The guest, with its agent left alone while the guard lives.
pub(crate) fn node() -> (&'static Node, RwLockReadGuard<'static, ()>) {
    let node = shared();
    (node, AGENT.read().unwrap_or_else(PoisonError::into_inner))
}

/// The guest, for a test that ends its agent.
pub(crate) fn node_alone() -> (&'static Node, RwLockWriteGuard<'static, ()>) {
    let node = shared();
    (node, AGENT.write().unwrap_or_else(PoisonError::into_inner))
}

fn shared() -> &'static Node {
    static NODE: OnceLock<Node> = OnceLock::new();
    NODE.get_or_init(Node::boot)
}

/// A guest that is a node.
pub(crate) struct Node {
    guest: Guest,
}

impl std::ops::Deref for Node {
    type Target = Guest;
    fn deref(&self) -> &Guest {
        &self.guest
    }
}

impl Node {
    fn boot() -> Self {
        let directory = directory("features");
        let binary = binary().unwrap();
        let initramfs = Initramfs::build(Kind::Debug, Some(&binary)).unwrap();
        let from = directory.join("data");
        let preload = from.join("preload");
        std::fs::create_dir_all(&preload).unwrap();
        std::fs::copy(image("busybox"), preload.join("busybox.tar")).unwrap();
        crate::images::preloaded(&preload);
        let payload = directory.join("payload");
        crate::images::archives(&payload);
        std::fs::copy(image("curl"), payload.join("curl.tar")).unwrap();
        std::fs::copy(&binary, payload.join("armlet")).unwrap();
        let payload = Disk::make(&directory.join("payload.img"), 96, "armlet-payload", Some(&payload)).unwrap();
        let data = Disk::make(&directory.join("data.img"), 512, "armlet-data", Some(&from)).unwrap();
        let guest = Boot::new(&initramfs, &directory)
            .data(&data)
            .payload(&payload)
            .forward(PORT)
            .append("armlet.ip=dhcp")
            .start()
            .unwrap();
        let node = Self { guest };
        node.wait_until("armlet version", PATIENCE);
        node.write_file("/etc/armlet/config.yaml", CONFIG.as_bytes());
        node.restart_agent();
        node.wait_until(&format!("armlet images -o json | grep -q {IMAGE}"), PATIENCE);
        node
    }

    /// Kills the agent and waits until another answers.
    pub(crate) fn restart_agent(&self) {
        self.ok(&format!(
            "{AGENT_PID} && kill -9 $agent && until [ -n \"$(cat /sys/fs/cgroup/armlet/agent/cgroup.procs)\" ] && \
             ! grep -qx $agent /sys/fs/cgroup/armlet/agent/cgroup.procs && armlet version >/dev/null 2>&1; \
             do usleep 100000; done"
        ));
    }

    /// Gives the node a manifest.
    pub(crate) fn manifest(&self, file: &str, text: &str) {
        self.write_file(&format!("/etc/armlet/manifests/{file}"), text.as_bytes());
    }

    /// Waits until a pod is shown with this word (`Running`, `Completed`, ...).
    #[track_caller]
    pub(crate) fn wait_for(&self, pod: &str, word: &str) {
        let line = format!("armlet ps | grep -E '^default +{pod}(-[a-z]+)? .* {word} '");
        self.wait_until(&line, PATIENCE);
    }

    /// Gives the node one pod and waits until it runs.
    #[track_caller]
    pub(crate) fn run_pod(&self, name: &str, spec: &str) {
        self.manifest(&format!("{name}.yaml"), &pod(name, spec));
        self.wait_for(name, "Running");
    }

    /// Takes a manifest away and waits until its pod is gone.
    #[track_caller]
    pub(crate) fn remove_pod(&self, name: &str) {
        self.ok(&format!("rm -f /etc/armlet/manifests/{name}.yaml"));
        self.wait_until(&format!("! armlet inspect {name}"), PATIENCE);
    }

    /// One value of the pod as the API shows it, by its JSON pointer.
    #[track_caller]
    pub(crate) fn field(&self, pod: &str, pointer: &str) -> serde_json::Value {
        let text = self.ok(&format!("armlet inspect {pod} -o json"));
        let value: serde_json::Value = serde_json::from_str(&text).unwrap();
        let field = value["pod"].pointer(pointer).unwrap_or_else(|| panic!("no {pointer} in {text}"));
        field.clone()
    }

    /// Runs a script whatever its status.
    #[track_caller]
    pub(crate) fn try_run(&self, script: &str) -> Output {
        self.run(script, PATIENCE).unwrap()
    }
}

/// Shell: sets `agent` to the agent's pid.
pub(crate) const AGENT_PID: &str = "agent=$(head -n1 /sys/fs/cgroup/armlet/agent/cgroup.procs)";

/// A manifest of a pod with the fields of its spec, in YAML's flow style or indented by two.
pub(crate) fn pod(name: &str, spec: &str) -> String {
    format!(
        "apiVersion: v1\nkind: Pod\nmetadata: {{name: {name}}}\nspec:\n  terminationGracePeriodSeconds: 2\n{spec}\n"
    )
}

/// One container that runs a shell script, as an entry of `containers`.
pub(crate) fn container(name: &str, script: &str) -> String {
    let script = serde_json::to_string(script).unwrap();
    format!("  - {{name: {name}, image: {IMAGE}, imagePullPolicy: IfNotPresent, command: [sh, -c, {script}]}}\n")
}

/// An image of `images/recipes` as an OCI archive.
pub(crate) fn image(name: &str) -> PathBuf {
    let pack = root().join("images/pack.sh");
    let status = Command::new(&pack).arg(name).stdout(Stdio::null()).status().unwrap();
    assert!(status.success(), "{} {name} failed", pack.display());
    images().join(format!("{name}.tar"))
}

/// Runs a program of the host, installing its Debian package where it is missing.
pub(crate) fn host(package: &str, script: &str, directory: &Path) -> String {
    let script = format!(". '{}'; install_packages {package} >&2; {script}", root().join("cross/lib.sh").display());
    // The library finds its place by $BASH_SOURCE, so it has to be bash.
    let output =
        Command::new("bash").args(["-c", &script]).current_dir(directory).stderr(Stdio::inherit()).output().unwrap();
    assert!(output.status.success(), "{script}");
    String::from_utf8_lossy(&output.stdout).into_owned()
}
