//! What is known about one pod: all that a decision may depend on, and nothing else.
//!
//! Every part can be printed as JSON on a board and pasted into a test. Durations run on the boot clock.

use super::action::{ActionKey, ProbeKind};
use super::pod::Pod;
use super::status::{PodStatus, Terminated};
use super::supervise::{ContainerEntry, SandboxEntry};
use super::{BootTime, ContainerId, ImageId, Millis, PodUid, WallTime};
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv4Addr};
use std::sync::Arc;

/// One pod as it is.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Observed {
    /// Which pod.
    pub uid: PodUid,
    /// What it is to be, also while it is being stopped. Absent: nobody knows it; it is found remains, to be removed.
    #[serde(default, with = "shared_pod", skip_serializing_if = "Option::is_none")]
    pub pod: Option<Arc<Pod>>,
    /// What is remembered.
    pub facts: Facts,
    /// [`Facts::durable`] is ahead of what the disk holds: nothing may be forgotten yet that it was made from.
    #[serde(default)]
    pub uncommitted: bool,
    /// The supervisor's sandbox.
    #[serde(default)]
    pub sandbox: Option<SandboxEntry>,
    /// The supervisor's container attempts of this pod, in any order.
    #[serde(default)]
    pub containers: Vec<ContainerSeen>,
    /// Images that are there, by the reference that the spec writes.
    #[serde(default)]
    pub images: BTreeMap<String, Image>,
    /// Actions under way.
    #[serde(default)]
    pub in_flight: Vec<InFlight>,
    /// The node around it.
    pub node: NodeFacts,
}

/// One container attempt, as the supervisor has it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ContainerSeen {
    /// The supervisor's entry.
    pub entry: ContainerEntry,
    /// The termination message of an ended attempt, by the container's policy, already cut to its limits.
    #[serde(default)]
    pub message: Option<String>,
}

/// An image that is there.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Image {
    /// Its id.
    pub id: ImageId,
    /// What `imageID` shows: `<name>@sha256:<digest>` or `sha256:<id>`.
    pub digest: String,
    /// `STOPSIGNAL`, when the image names one.
    #[serde(default)]
    pub stop_signal: Option<String>,
}

/// An action under way.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct InFlight {
    /// Which one.
    #[serde(flatten)]
    pub key: ActionKey,
    /// Since when.
    pub since: BootTime,
    /// It has been told to give up.
    #[serde(default)]
    pub cancelled: bool,
}

/// What every pod of the node shares.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct NodeFacts {
    /// The kernel's boot id.
    pub boot_id: String,
    /// The node's addresses, the primary one first.
    pub host_ips: Vec<IpAddr>,
    /// Why pods cannot have a network now; absent: they can.
    pub network_not_ready: Option<String>,
    /// Folder of the pods' logs, without a slash at the end.
    pub pod_logs_dir: String,
    /// The node's memory in bytes.
    pub memory_capacity: u64,
    /// The node's swap in bytes.
    pub swap_capacity: u64,
    /// `memorySwap.swapBehavior: LimitedSwap`; else no container swaps.
    pub limited_swap: bool,
    /// Whether cpu limits are enforced (`cpuCFSQuota`).
    pub cpu_quota: bool,
    /// `cpuCFSQuotaPeriod` in microseconds.
    pub cpu_period: u64,
    /// Page sizes of huge pages that the kernel has, as resource names write them (`2Mi`).
    pub hugepage_sizes: Vec<String>,
    /// `podPidsLimit`.
    pub pod_pids_limit: Option<u64>,
    /// `crashLoopBackOff.maxContainerRestartPeriod`.
    pub max_restart_delay: Millis,
    /// `singleProcessOOMKill`: one process's OOM does not end its container.
    pub single_process_oom_kill: bool,
}

impl Default for NodeFacts {
    fn default() -> Self {
        Self {
            boot_id: String::new(),
            host_ips: Vec::new(),
            network_not_ready: None,
            pod_logs_dir: "/var/log/pods".into(),
            memory_capacity: 0,
            swap_capacity: 0,
            limited_swap: false,
            cpu_quota: true,
            cpu_period: 100_000,
            hugepage_sizes: Vec::new(),
            pod_pids_limit: None,
            max_restart_delay: Millis::from_secs(300),
            single_process_oom_kill: false,
        }
    }
}

/// What is remembered about a pod. Changed only by `plan::fold`.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Facts {
    /// What a reboot keeps.
    pub durable: Durable,
    /// What a reboot makes void.
    #[serde(default)]
    pub volatile: Volatile,
}

/// What is remembered about a pod across boots.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Durable {
    /// Random, drawn when the pod was first taken up: makes the container ids of a pod that was removed and came back
    /// differ from those before.
    pub nonce: u64,
    /// When this node first took the pod up.
    pub start_time: Option<WallTime>,
    /// The newest sandbox ever made.
    pub sandbox: Option<u32>,
    /// The address that the pod holds.
    pub address: Option<Ipv4Addr>,
    /// Per container: its newest attempt.
    pub containers: BTreeMap<String, Box<Record>>,
    /// The last status of a pod that has ended for good or was refused. It never runs again.
    pub finished: Option<Box<PodStatus>>,
}

/// A container's newest attempt.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Record {
    /// Restart count.
    pub attempt: u32,
    /// Its id.
    pub id: ContainerId,
    /// Which of the pod's sandboxes it ran in.
    pub sandbox: u32,
    /// When its program was started; absent: it has not been seen to run.
    #[serde(default)]
    pub started_at: Option<WallTime>,
    /// The image as the spec named it.
    pub image: String,
    /// The image in digest form.
    pub image_id: String,
    /// How it ended; absent: it has not been seen to end.
    #[serde(default)]
    pub ended: Option<Terminated>,
    /// It was stopped to be started again, or by the node's shutdown: however it ended, it has not done its work.
    #[serde(default)]
    pub interrupted: bool,
    /// How the attempt before it ended.
    #[serde(default)]
    pub before: Option<Terminated>,
}

/// What is remembered about a pod within one boot.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Volatile {
    /// The pod is to stop.
    pub stop: Option<PodStop>,
    /// The last status that was shown.
    pub status: Option<Box<PodStatus>>,
    /// The newest sandbox of this boot: an agent that is killed may lose [`Durable::sandbox`].
    pub sandbox: Option<u32>,
    /// The network that was attached.
    pub network: Option<Attached>,
    /// Why the sandbox or its network could not be made.
    pub sandbox_failure: Option<Retry>,
    /// Volumes by name.
    pub volumes: BTreeMap<String, VolumeFact>,
    /// Images by reference.
    pub images: BTreeMap<String, ImageFact>,
    /// Containers by name.
    pub containers: BTreeMap<String, Box<ContainerFact>>,
    /// What of the pod's teardown is done.
    pub torn_down: TornDown,
}

/// Why a pod is to stop.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", rename_all_fields = "camelCase", tag = "type")]
pub enum StopCause {
    /// It is no longer desired: stop it and remove all of it.
    Removed,
    /// The node goes down: stop it; it comes back with the next boot.
    Shutdown,
    /// The node needs what it holds: stop it, and it has failed.
    Evicted {
        /// An upstream reason word: `Evicted`, `Preempting`.
        reason: String,
        /// For people.
        message: String,
    },
}

impl StopCause {
    /// Whether a pod that is stopped for this has ended for good, and that is to be remembered. One that is removed has
    /// no tomorrow, and one that the node's shutdown stops comes back.
    #[must_use]
    pub const fn is_end(&self) -> bool {
        match self {
            Self::Removed | Self::Shutdown => false,
            Self::Evicted { .. } => true,
        }
    }
}

/// A pod's stop under way.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct PodStop {
    /// Why.
    pub cause: StopCause,
    /// Since when.
    pub since: BootTime,
    /// When its containers are killed. Only ever made earlier.
    pub deadline: BootTime,
}

/// A network attachment.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Attached {
    /// Which of the pod's sandboxes.
    pub attempt: u32,
    /// The pod's addresses, the primary one first.
    pub ips: Vec<IpAddr>,
}

/// Something that failed and is to be tried again.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Retry {
    /// The upstream reason word.
    pub reason: String,
    /// For people.
    pub message: String,
    /// How long after the failure the next try comes.
    pub delay: Millis,
    /// When it failed.
    pub failed_at: BootTime,
}

impl Retry {
    /// When the next try comes.
    #[must_use]
    pub fn at(&self) -> BootTime {
        self.failed_at + self.delay
    }
}

/// How a volume stands.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum VolumeFact {
    /// It can be mounted.
    Ready,
    /// It could not be prepared.
    Failed(Retry),
}

/// How an image stands for this pod.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ImageFact {
    /// When it was last seen to, for pull policy `Always`.
    pub ensured_at: Option<BootTime>,
    /// Why it could not be had, and the pull back-off. Kept after a success so that the back-off goes on.
    pub failure: Option<Retry>,
}

/// What is remembered about a container within one boot.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ContainerFact {
    /// When the newest attempt ended.
    pub finished_at: Option<BootTime>,
    /// The crash-loop back-off.
    pub back_off: Option<BackOff>,
    /// The stop of the newest attempt.
    pub stop: Option<ContainerStop>,
    /// Why the newest start failed before there was an attempt.
    pub start_failure: Option<Retry>,
    /// The probes of the newest attempt.
    pub probes: BTreeMap<ProbeKind, Tally>,
}

/// A container's crash-loop back-off.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct BackOff {
    /// Image and resources that it counts for: another value starts anew.
    pub key: String,
    /// The delay that stands between the newest attempt's end and the next start.
    pub delay: Millis,
    /// When it was last counted: the start of `attempt`.
    pub updated_at: BootTime,
    /// The attempt whose start was last counted.
    pub attempt: u32,
}

/// A container's stop under way.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ContainerStop {
    /// Which attempt.
    pub id: ContainerId,
    /// When the stop signal was sent, or could not be for the first time.
    pub signalled_at: BootTime,
    /// The signal could not be sent: when that is tried again.
    #[serde(default)]
    pub signal_again: Option<BootTime>,
    /// When it is killed, unless the pod's own deadline is earlier.
    pub deadline: BootTime,
    /// Start it again afterwards, however it ends.
    #[serde(default)]
    pub restart: bool,
    /// When it was last killed: it may take the kernel a while, or another try.
    #[serde(default)]
    pub killed_at: Option<BootTime>,
}

/// One probe's count.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Tally {
    /// Which attempt it counts for.
    pub id: ContainerId,
    /// The moment of the schedule that the last try was for.
    pub due: BootTime,
    /// What the last tries gave.
    pub success: bool,
    /// How many in a row.
    pub streak: u32,
    /// What counts: set once a threshold was reached.
    pub verdict: Option<bool>,
    /// How often the try for `due` went wrong itself; 0 once it is over.
    #[serde(default)]
    pub errors: u32,
}

/// What of a pod's teardown is done.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct TornDown {
    /// Its network is detached.
    pub network: bool,
    /// Its namespaces and its cgroup are gone.
    pub sandbox: bool,
    /// Its volumes that are gone.
    pub volumes: Vec<String>,
    /// All of it is gone.
    pub all: bool,
    /// Per action of the teardown that failed: when it is tried again.
    pub failures: Vec<(ActionKey, Retry)>,
}

mod shared_pod {
    use super::{Arc, Deserialize, Deserializer, Pod, Serialize, Serializer};

    pub(super) fn serialize<S: Serializer>(pod: &Option<Arc<Pod>>, to: S) -> Result<S::Ok, S::Error> {
        pod.as_deref().serialize(to)
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<Option<Arc<Pod>>, D::Error> {
        Ok(Option::<Pod>::deserialize(from)?.map(Arc::new))
    }
}

/// What the node has, or a part of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct NodeAmounts {
    /// Cores in thousandths.
    pub cpu_milli: u64,
    /// Memory in bytes.
    pub memory: u64,
    /// Process ids.
    pub pids: u64,
}

/// What the node has to give.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Capacity {
    /// Allocatable cores in thousandths.
    pub cpu_milli: u64,
    /// Allocatable memory in bytes.
    pub memory: u64,
    /// Allocatable disk in bytes; absent: not counted.
    pub ephemeral_storage: Option<u64>,
    /// Allocatable huge pages in bytes by page size (`2Mi`).
    pub hugepages: BTreeMap<String, u64>,
    /// `maxPods`.
    pub pods: u32,
    /// The built-in network's pod range: network address and prefix length.
    pub pod_cidr: Option<(Ipv4Addr, u8)>,
}
