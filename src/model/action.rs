//! What is to be done for one pod, and what came of it.
//!
//! An action leaves the executor as little choice as can be. Each is safe to repeat: doing it again when it was done
//! already gives the same outcome. The executor is handed the [`Pod`](super::pod::Pod) beside the action.

use super::event::PodEvent;
use super::pod::{Probe, PullPolicy};
use super::status::QosClass;
use super::supervise::{ContainerEntry, SandboxEntry};
use super::{BootTime, ContainerId, ImageId, Millis};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv4Addr};

/// One thing to do. All actions of one plan may start at once, in any order.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", rename_all_fields = "camelCase", tag = "do")]
pub enum Action {
    /// Makes one volume ready to be mounted. Outcome: `Done` or `Failed`.
    PrepareVolume {
        /// The volume's name.
        volume: String,
    },
    /// Makes the pod's folders, its cgroup and its namespaces. Outcome: `Sandbox` or `Failed`.
    CreateSandbox(SandboxPlan),
    /// Gives the sandbox its links and addresses. Never for a pod on the node's network.
    /// Outcome: `Attached` or `Failed`.
    AttachNetwork {
        /// Which of the pod's sandboxes.
        attempt: u32,
        /// The address to use with the built-in network; absent: the network chooses.
        address: Option<Ipv4Addr>,
    },
    /// Sees to it that an image is there, by the policy. Outcome: `Image` or `Failed` with an upstream reason word
    /// (`ErrImagePull`, `ErrImageNeverPull`, `InvalidImageName`, `ImageInspectError`, `RegistryUnavailable`).
    EnsureImage {
        /// The reference as the spec writes it.
        reference: String,
        /// `Always` asks the registry even when the image is there.
        policy: PullPolicy,
        /// Fetched ahead of its turn: no events when all goes well.
        silent: bool,
    },
    /// Starts one attempt of one container. Outcome: `Container` as soon as the supervisor has an entry that is not
    /// `Creating`; `Failed` when it could not even be asked (`CreateContainerConfigError`, `CreateContainerError`,
    /// `RunContainerError`).
    StartContainer(Box<StartPlan>),
    /// Sends the stop signal to the container's first process. Outcome: `Done` or `Failed`.
    Signal {
        /// Which attempt.
        id: ContainerId,
        /// The container's name.
        container: String,
        /// As the image or POSIX names it: `SIGTERM`, `SIGQUIT`, `37`.
        signal: String,
        /// What it has left before it is killed, at the time of planning.
        grace: Millis,
    },
    /// Kills everything in the container's cgroup. Outcome: `Done` or `Failed`.
    Kill {
        /// Which attempt.
        id: ContainerId,
        /// The container's name.
        container: String,
    },
    /// Tries a probe once. Outcome: `Probed`, or `Failed` when the try itself went wrong (it does not count, and is made
    /// again).
    Probe {
        /// Which attempt.
        id: ContainerId,
        /// The container's name.
        container: String,
        /// Which of its probes.
        kind: ProbeKind,
        /// What to try and how long.
        probe: Probe,
        /// The moment of the schedule that this try is for.
        due: BootTime,
        /// Where to connect when the handler names no host.
        address: Option<IpAddr>,
    },
    /// Forgets an ended attempt: the supervisor's entry, the bundle, the writable layer. Outcome: `Done` or `Failed`.
    RemoveContainer {
        /// Which attempt.
        id: ContainerId,
        /// The container's name.
        container: String,
        /// Log files of this container's attempts below this number go too.
        drop_logs_below: u32,
    },
    /// Takes links, addresses and host ports of a sandbox away. Outcome: `Done` or `Failed`.
    DetachNetwork {
        /// Which of the pod's sandboxes.
        attempt: u32,
    },
    /// Lets the namespaces go and removes the pod's cgroup. Outcome: `Done` or `Failed`.
    DestroySandbox {
        /// Which of the pod's sandboxes.
        attempt: u32,
    },
    /// Unmounts one volume and removes what it held. Outcome: `Done` or `Failed`.
    RemoveVolume {
        /// The volume's name.
        volume: String,
    },
    /// Removes all that is left of a pod: folders, logs, links to logs, cgroup, attempts. Outcome: `Done` or `Failed`.
    RemovePod,
    /// Gives up an action that is under way, if that is still possible. It has no outcome of its own; the action that
    /// it names ends with `Cancelled`, or as if nothing had happened.
    Cancel {
        /// Which one.
        key: ActionKey,
    },
}

impl Action {
    /// What it is about: at most one action of a pod with the same key is under way.
    #[must_use]
    pub fn key(&self) -> ActionKey {
        match self {
            Self::PrepareVolume { volume } => ActionKey::PrepareVolume { volume: volume.clone() },
            Self::CreateSandbox(_) => ActionKey::CreateSandbox,
            Self::AttachNetwork { .. } => ActionKey::AttachNetwork,
            Self::EnsureImage { reference, .. } => ActionKey::EnsureImage { reference: reference.clone() },
            Self::StartContainer(plan) => ActionKey::StartContainer { container: plan.container.clone() },
            Self::Signal { id, .. } => ActionKey::Signal { id: id.clone() },
            Self::Kill { id, .. } => ActionKey::Kill { id: id.clone() },
            Self::Probe { id, kind, .. } => ActionKey::Probe { id: id.clone(), kind: *kind },
            Self::RemoveContainer { id, .. } => ActionKey::RemoveContainer { id: id.clone() },
            Self::DetachNetwork { .. } => ActionKey::DetachNetwork,
            Self::DestroySandbox { .. } => ActionKey::DestroySandbox,
            Self::RemoveVolume { volume } => ActionKey::RemoveVolume { volume: volume.clone() },
            Self::RemovePod => ActionKey::RemovePod,
            Self::Cancel { key } => key.clone(),
        }
    }
}

/// Names an action that is under way. Stable across an agent's restart.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", rename_all_fields = "camelCase", tag = "do")]
#[expect(missing_docs, reason = "each arm and field is the action's of the same name")]
pub enum ActionKey {
    PrepareVolume { volume: String },
    CreateSandbox,
    AttachNetwork,
    EnsureImage { reference: String },
    StartContainer { container: String },
    Signal { id: ContainerId },
    Kill { id: ContainerId },
    Probe { id: ContainerId, kind: ProbeKind },
    RemoveContainer { id: ContainerId },
    DetachNetwork,
    DestroySandbox,
    RemoveVolume { volume: String },
    RemovePod,
}

/// The kinds of probes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum ProbeKind {
    /// Started or not. The other two wait for it.
    Startup,
    /// Ready or not.
    Readiness,
    /// Restart or not.
    Liveness,
}

/// A sandbox to make.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct SandboxPlan {
    /// Counts the pod's sandboxes from 0.
    pub attempt: u32,
    /// Use the node's network and UTS namespaces.
    pub host_network: bool,
    /// The kernel host name inside; none with `host_network`.
    pub hostname: Option<String>,
    /// The pod's cgroup, below the cgroup mount, without a leading slash.
    pub cgroup: String,
    /// What the pod's cgroup is set to.
    pub limits: PodLimits,
}

/// The cgroup of armlet's own roles, below the cgroup mount.
pub const OWN_GROUP: &str = "armlet";

/// The cgroup of armlet's units under systemd, likewise.
pub const OWN_SLICE: &str = "armlet.slice";

/// What a group is held to. What is absent is left as it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct GroupLimits {
    /// `cpu.weight`.
    pub cpu_weight: Option<u64>,
    /// `memory.max` in bytes.
    pub memory_max: Option<u64>,
    /// `pids.max`.
    pub pids_max: Option<u64>,
}

/// What the cgroup of all pods is set to.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct NodeLimits {
    /// `cpu.weight`.
    pub cpu_weight: u64,
    /// `memory.max` in bytes.
    pub memory_max: u64,
    /// `pids.max`.
    pub pids_max: u64,
}

/// What a pod's cgroup is set to. What is absent is left as the kernel has it.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct PodLimits {
    /// The pod's class: names the group above.
    pub qos: QosClass,
    /// `cpu.weight`.
    pub cpu_weight: u64,
    /// `cpu.max`.
    pub cpu_max: Option<CpuMax>,
    /// `memory.max` in bytes.
    pub memory_max: Option<u64>,
    /// `pids.max`.
    pub pids_max: Option<u64>,
    /// `hugetlb.<size>.max` in bytes by page size as the resource's name has it (`2Mi`).
    pub hugetlb: BTreeMap<String, u64>,
}

/// `cpu.max`: microseconds of processor time per period.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct CpuMax {
    /// Microseconds that may be used, at least 1000.
    pub quota: u64,
    /// Of this many microseconds.
    pub period: u64,
}

/// One container attempt to start.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct StartPlan {
    /// The container's name; looked up in the pod, init containers first.
    pub container: String,
    /// The attempt's id.
    pub id: ContainerId,
    /// Restart count.
    pub attempt: u32,
    /// The image.
    pub image: ImageId,
    /// The log file.
    pub log_path: String,
    /// The container's cgroup, below the cgroup mount, without a leading slash.
    pub cgroup: String,
    /// What its cgroup and its first process are set to.
    pub limits: ContainerLimits,
    /// The pod's addresses, for `/etc/hosts` and variables.
    pub pod_ips: Vec<IpAddr>,
    /// What the create child may take before it is killed.
    pub timeout: Millis,
}

/// What a container's cgroup and first process are set to. What is absent is left as the kernel has it.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ContainerLimits {
    /// `cpu.weight`.
    pub cpu_weight: u64,
    /// `cpu.max`.
    pub cpu_max: Option<CpuMax>,
    /// `memory.max` in bytes.
    pub memory_max: Option<u64>,
    /// `memory.swap.max` in bytes.
    pub swap_max: Option<u64>,
    /// `memory.oom.group`: one process's OOM ends them all.
    pub oom_group: bool,
    /// `/proc/<pid>/oom_score_adj`.
    pub oom_score_adj: i32,
    /// `hugetlb.<size>.max` in bytes by page size as the resource's name has it (`2Mi`).
    pub hugetlb: BTreeMap<String, u64>,
}

/// What came of an action.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", rename_all_fields = "camelCase", tag = "outcome")]
pub enum Outcome {
    /// Done, nothing to tell.
    Done,
    /// Given up because the plan said so.
    Cancelled,
    /// The sandbox is there.
    Sandbox {
        /// As the supervisor holds it.
        sandbox: SandboxEntry,
        /// What people should know of the pod on this node, once.
        events: Vec<PodEvent>,
    },
    /// The network is there.
    Attached {
        /// The pod's addresses, the primary one first.
        ips: Vec<IpAddr>,
    },
    /// The image is there.
    Image {
        /// Its id.
        id: ImageId,
        /// What was fetched; absent: it was there already.
        fetched: Option<Fetched>,
    },
    /// The supervisor's answer to a start.
    Container {
        /// As the supervisor holds it.
        entry: ContainerEntry,
    },
    /// A probe's answer.
    Probed {
        /// Whether it succeeded.
        success: bool,
        /// It succeeded in a way that somebody should look at.
        #[serde(default)]
        warning: bool,
        /// What it said, cut to 10 KiB: shown when it failed or warns.
        message: String,
    },
    /// It did not work.
    Failed(Failure),
}

/// What a pull moved.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Fetched {
    /// Time that the transfer took.
    pub took: Millis,
    /// The same with the wait in the queue.
    pub took_with_waiting: Millis,
    /// The image's size in bytes.
    pub bytes: u64,
}

/// Why something did not work.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Failure {
    /// The upstream reason word where there is one (`ErrImagePull`, `CreateContainerConfigError`), else a word of ours.
    pub reason: String,
    /// For people: the whole chain of causes in one line.
    pub message: String,
}
