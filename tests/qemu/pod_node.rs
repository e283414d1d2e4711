//! The node that the tests of pods share: armlet as process 1, with the images of `images/` imported.

use crate::guests::directory;
use armlet_vm::{Arch, Boot, Disk, Guest, Initramfs, Kind, binary, images, root};
use serde_json::Value;
use std::process::{Command, Stdio};
use std::sync::{OnceLock, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};
use std::time::Duration;

/// How long a test waits for what must come: a guest is emulated, and may share its host.
pub(crate) const PATIENCE: Duration = Duration::from_secs(90);

/// The shared node. Tests that look at their own pods only run side by side on it.
pub(crate) fn node() -> &'static Guest {
    static NODE: OnceLock<Guest> = OnceLock::new();
    NODE.get_or_init(|| {
        let directory = directory("pods");
        let data = directory.join("data");
        std::fs::create_dir_all(data.join("preload")).unwrap();
        let mut names = vec!["busybox", "redis"];
        names.extend((Arch::current() == Arch::Aarch64).then_some("busybox-arm32"));
        let packed = Command::new(root().join("images/pack.sh")).args(&names).stdout(Stdio::null()).status().unwrap();
        assert!(packed.success());
        for name in names {
            let name = format!("{name}.tar");
            std::fs::copy(images().join(&name), data.join("preload").join(&name)).unwrap();
        }
        let disk = Disk::make(&directory.join("data.img"), 512, "armlet-data", Some(&data)).unwrap();
        let initramfs = Initramfs::build(Kind::Debug, Some(&binary().unwrap())).unwrap();
        let guest = Boot::new(&initramfs, &directory).data(&disk).append("armlet.ip=dhcp").start().unwrap();
        guest.wait_until("armlet images -o json | grep -q localhost/redis", PATIENCE);
        guest
    })
}

static PODS: RwLock<()> = RwLock::new(());

/// Held while a test has pods.
pub(crate) fn among_others() -> RwLockReadGuard<'static, ()> {
    PODS.read().unwrap_or_else(PoisonError::into_inner)
}

/// Held while a test needs the node for itself: all other pods are gone.
pub(crate) fn alone() -> RwLockWriteGuard<'static, ()> {
    PODS.write().unwrap_or_else(PoisonError::into_inner)
}

/// A static pod on the shared node; dropped, it is removed.
pub(crate) struct Pod {
    name: String,
    path: String,
    removed: bool,
}

impl Pod {
    /// Gives the node a pod: `spec` is the YAML of its `spec`.
    #[track_caller]
    pub(crate) fn new(name: &str, spec: &str) -> Self {
        let indented: String = spec.lines().map(|line| format!("  {line}\n")).collect();
        let manifest = format!("apiVersion: v1\nkind: Pod\nmetadata:\n  name: {name}\nspec:\n{indented}");
        let path = format!("/etc/armlet/manifests/{name}.yaml");
        node().write_file(&path, manifest.as_bytes());
        Self { name: name.to_owned(), path, removed: false }
    }

    /// The pod as the agent shows it now; null while the agent does not know it.
    pub(crate) fn now(&self) -> Value {
        let output = node().run("armlet ps -o json", PATIENCE).unwrap();
        let list: Value = serde_json::from_str(&output.stdout).unwrap_or_default();
        let prefix = format!("{}-", self.name);
        let named = |pod: &&Value| {
            pod.pointer("/metadata/name").and_then(Value::as_str).is_some_and(|name| name.starts_with(&prefix))
        };
        list["items"].as_array().and_then(|items| items.iter().find(named)).cloned().unwrap_or_default()
    }

    /// Waits until the pod is as a test wants it, and gives it as it was then.
    #[track_caller]
    pub(crate) fn until(&self, what: &str, mut wanted: impl FnMut(&Value) -> bool) -> Value {
        let pause = Duration::from_millis(250);
        for _ in 0..PATIENCE.as_millis() / pause.as_millis() {
            let pod = self.now();
            if wanted(&pod) {
                return pod;
            }
            std::thread::sleep(pause);
        }
        let pod = self.now();
        panic!("{} is not {what}: {:#}\nevents: {:#?}\n{}", self.name, pod["status"], self.events(), agent_log());
    }

    /// Waits for a phase.
    #[track_caller]
    pub(crate) fn until_phase(&self, phase: &str) -> Value {
        self.until(phase, |pod| pod["status"]["phase"] == phase)
    }

    /// Waits until the pod is ready.
    #[track_caller]
    pub(crate) fn until_ready(&self) -> Value {
        self.until("ready", |pod| condition(pod, "Ready")["status"] == "True")
    }

    /// What a container wrote.
    #[track_caller]
    pub(crate) fn log(&self, container: &str) -> String {
        node().ok(&format!("armlet logs {} -c {container}", self.name))
    }

    /// What a script prints in a container.
    #[track_caller]
    pub(crate) fn exec(&self, container: &str, script: &str) -> String {
        let script = script.replace('\'', r"'\''");
        node().ok(&format!("armlet exec {} -c {container} -- sh -c '{script}'", self.name))
    }

    /// Runs a script that leads to the container's end, and may end with it.
    #[track_caller]
    pub(crate) fn kill(&self, container: &str, script: &str) {
        node().run(&format!("armlet exec {} -c {container} -- sh -c '{script}'", self.name), PATIENCE).unwrap();
    }

    /// The pod's events, oldest first: `Reason message`.
    pub(crate) fn events(&self) -> Vec<String> {
        let prefix = format!("{}-", self.name);
        let output = node().run("armlet events -o json", PATIENCE).unwrap();
        let events = output.stdout.lines().filter_map(|line| serde_json::from_str::<Value>(line).ok());
        let text = |event: &Value, field: &str| event[field].as_str().unwrap_or_default().to_owned();
        events
            .filter(|event| text(event, "object").rsplit('/').next().is_some_and(|name| name.starts_with(&prefix)))
            .map(|event| format!("{} {}", text(&event, "reason"), text(&event, "message")))
            .collect()
    }

    /// Takes the manifest away; the pod goes in its own time.
    pub(crate) fn take_away(&self) {
        node().ok(&format!("rm -f {}", self.path));
    }

    /// Takes the manifest away and waits until the agent has forgotten the pod.
    #[track_caller]
    pub(crate) fn remove(mut self) {
        self.removed = true;
        self.take_away();
        self.until("gone", Value::is_null);
    }
}

impl Drop for Pod {
    fn drop(&mut self) {
        if self.removed {
            return;
        }
        self.take_away();
        if !std::thread::panicking() {
            self.until("gone", Value::is_null);
        }
    }
}

/// A condition of a pod; null without.
pub(crate) fn condition<'a>(pod: &'a Value, name: &str) -> &'a Value {
    let conditions = pod["status"]["conditions"].as_array();
    conditions.and_then(|all| all.iter().find(|condition| condition["type"] == name)).unwrap_or(&Value::Null)
}

/// The status of a container or init container; null without.
pub(crate) fn container<'a>(pod: &'a Value, name: &str) -> &'a Value {
    ["containerStatuses", "initContainerStatuses"]
        .iter()
        .filter_map(|list| pod["status"][list].as_array())
        .flatten()
        .find(|status| status["name"] == name)
        .unwrap_or(&Value::Null)
}

/// Where a container waits: reason and message.
pub(crate) fn waiting<'a>(pod: &'a Value, name: &str) -> (&'a str, &'a str) {
    reason(&container(pod, name)["state"]["waiting"])
}

/// How a container ended: reason and exit code.
pub(crate) fn ended<'a>(pod: &'a Value, name: &str) -> (&'a str, i64) {
    let state = &container(pod, name)["state"]["terminated"];
    (reason(state).0, state["exitCode"].as_i64().unwrap_or(-1))
}

/// How the attempt before ended: reason and exit code.
pub(crate) fn ended_before<'a>(pod: &'a Value, name: &str) -> (&'a str, i64) {
    let state = &container(pod, name)["lastState"]["terminated"];
    (reason(state).0, state["exitCode"].as_i64().unwrap_or(-1))
}

fn reason(state: &Value) -> (&str, &str) {
    (state["reason"].as_str().unwrap_or_default(), state["message"].as_str().unwrap_or_default())
}

/// How often a container was started anew.
pub(crate) fn restarts(pod: &Value, name: &str) -> i64 {
    container(pod, name)["restartCount"].as_i64().unwrap_or(-1)
}

/// The pod's cgroup.
pub(crate) fn group(pod: &Value) -> String {
    let class = match pod["status"]["qosClass"].as_str().unwrap() {
        "Guaranteed" => "",
        "Burstable" => "burstable/",
        _ => "besteffort/",
    };
    format!("/sys/fs/cgroup/kubepods/{class}pod{}", pod["metadata"]["uid"].as_str().unwrap())
}

/// The cgroup of a container.
pub(crate) fn container_group(pod: &Value, name: &str) -> String {
    let id = container(pod, name)["containerID"].as_str().unwrap();
    format!("{}/{}", group(pod), id.strip_prefix("armlet://").unwrap())
}

fn agent_log() -> String {
    let console = node().console();
    let lines: Vec<_> = console.lines().collect();
    lines[lines.len().saturating_sub(40)..].join("\n")
}
