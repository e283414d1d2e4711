//! What armlet's own endpoints say (`/armlet/v1/...`): the values that the server writes and the command line reads.
//!
//! New fields have defaults and unknown ones are ignored, so that a command line and an agent of neighbouring versions
//! understand each other.

use super::log::LogLevel;
use super::{ContainerId, ImageId, supervise};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// The annotation, with the value `true`, of a pod that is being stopped.
pub const TERMINATING: &str = "armlet.dev/terminating";

/// `GET /armlet/v1/version`.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Version {
    /// armlet's version.
    pub version: String,
    /// The Kubernetes version whose API it speaks.
    pub kubernetes: String,
    /// The processor architecture as images name it: `arm64`, `amd64`.
    pub architecture: String,
    /// The node's name.
    pub node_name: String,
}

/// One image of `GET /armlet/v1/images`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Image {
    /// The image's id.
    pub id: ImageId,
    /// The names that it can be used by.
    #[serde(default)]
    pub names: Vec<String>,
    /// Bytes on disk, layers shared with other images included.
    #[serde(default)]
    pub bytes: u64,
    /// The processor architecture it is made for.
    #[serde(default)]
    pub architecture: String,
}

/// Body of `POST /armlet/v1/images/import`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct ImportRequest {
    /// Absolute path on the node of an archive or an OCI layout folder.
    pub path: String,
}

/// One line of the answer to an import. The last one is `Done` or `Failed`; without either the import was cut off.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", rename_all_fields = "camelCase", tag = "type")]
pub enum ImportProgress {
    /// Something is being done.
    Step {
        /// For people.
        text: String,
    },
    /// All images of the archive are in the store.
    Done {
        /// They.
        images: Vec<Image>,
    },
    /// Nothing was imported.
    Failed {
        /// For people: operation, object, cause.
        message: String,
    },
}

/// One event of `GET /armlet/v1/events`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Event {
    /// When, in RFC 3339.
    pub time: String,
    /// `Normal` or `Warning`.
    #[serde(rename = "type")]
    pub kind: String,
    /// The upstream reason word.
    pub reason: String,
    /// `namespace/pod` or the node's name.
    pub object: String,
    /// What of the object: `spec.containers{name}`; absent: the object as a whole.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub field_path: Option<String>,
    /// For people.
    pub message: String,
}

/// `GET /armlet/v1/inspect`: the node.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct NodeReport {
    /// The node's name.
    pub node_name: String,
    /// Where the manifests of static pods are read from.
    pub static_pod_path: String,
    /// How many pods it has.
    pub pods: usize,
    /// Its own addresses.
    pub addresses: Vec<String>,
    /// What it has, by resource (`cpu`, `memory`, `pods`, `hugepages-2Mi`), as Kubernetes writes amounts.
    pub capacity: BTreeMap<String, String>,
    /// What of it pods may have.
    pub allocatable: BTreeMap<String, String>,
    /// What is not as it should be.
    pub conditions: Vec<NodeCondition>,
    /// Manifests that cannot be run.
    pub refused: Vec<Refused>,
    /// Pods that were stopped by hand, as `namespace/pod`.
    pub stopped: Vec<String>,
}

/// Something about the node that is not as it should be.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct NodeCondition {
    /// A word.
    #[serde(rename = "type")]
    pub kind: String,
    /// A sentence.
    pub message: String,
}

/// A manifest that cannot be run.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Refused {
    /// The file.
    pub path: String,
    /// One line for each problem.
    pub problems: Vec<String>,
}

/// `GET /armlet/v1/inspect/{namespace}/{pod}`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct PodReport {
    /// The v1.Pod as `/pods` shows it.
    pub pod: serde_json::Value,
    /// The container attempts that are kept, oldest first.
    pub attempts: Vec<Attempt>,
}

/// One attempt of one container.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Attempt {
    /// The container's name.
    pub container: String,
    /// The attempt's id.
    pub id: ContainerId,
    /// Restart count.
    pub attempt: u32,
    /// Its log file.
    pub log_path: String,
    /// Its cgroup below the cgroup mount.
    pub cgroup: String,
    /// Process id while it runs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pid: Option<u32>,
}

/// `GET /armlet/v1/log-level`, and the answer to a change.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct LogLevels {
    /// What the agent logs about itself.
    pub agent: LogLevel,
    /// What the supervisor logs about itself; absent: it does not say.
    #[serde(default)]
    pub supervisor: Option<LogLevel>,
    /// Why the supervisor was not told.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub problem: Option<String>,
}

/// Body of `PUT /armlet/v1/log-level`. It holds until the processes end.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct LogLevelRequest {
    /// `error`, `warn`, `info`, `debug`, `trace`, or the kubelet's number as text, 0 to 10.
    pub level: String,
}

/// `GET /armlet/v1/stats`: armlet's own processes, and what has been written to disks.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Stats {
    /// Process id of the agent.
    pub agent_pid: u32,
    /// What the supervisor says about itself.
    pub supervisor: supervise::Stats,
    /// What they use.
    pub processes: Vec<ProcessUsage>,
    /// Since the node's first start.
    pub written: Written,
}

/// One of armlet's own processes.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ProcessUsage {
    /// `agent`, `supervisor` or `logger`.
    pub role: String,
    /// Its number.
    pub pid: u32,
    /// Its memory in bytes (PSS); absent: it cannot be read.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pss_bytes: Option<u64>,
}

/// Bytes written to disks over the node's lifetime, by part. What lies in memory is not counted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Written {
    /// Facts, and the little else that the agent writes.
    pub store: u64,
    /// Layers of images.
    pub images: u64,
    /// Log files of containers.
    pub logs: u64,
    /// What containers write: volumes and their own layers.
    pub volumes: u64,
}

impl Written {
    /// The parts with their names.
    #[must_use]
    pub const fn parts(&self) -> [(&'static str, u64); 4] {
        [("store", self.store), ("images", self.images), ("logs", self.logs), ("volumes", self.volumes)]
    }
}

/// `GET /armlet/v1/usage`: what pods use at this moment.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Usage {
    /// When, in milliseconds since the boot: two answers tell how much processor time was used between them.
    pub at_ms: u64,
    /// Pods with running containers, ordered by namespace and name.
    pub pods: Vec<PodUsage>,
}

/// One pod.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct PodUsage {
    /// Its namespace.
    pub namespace: String,
    /// Its full name.
    pub name: String,
    /// Its running containers, in order of their names.
    pub containers: Vec<ContainerUsage>,
}

/// One container.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ContainerUsage {
    /// Its name.
    pub name: String,
    /// Its attempt's id: with another one the figures begin anew.
    pub id: String,
    /// What its group uses.
    #[serde(flatten)]
    pub usage: GroupUsage,
}

/// What a control group uses. Absent: the kernel does not tell.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct GroupUsage {
    /// Microseconds of processor time since it began.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cpu_usec: Option<u64>,
    /// Memory without file pages that nobody has used for a while (the working set), in bytes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub memory_bytes: Option<u64>,
    /// The most that it may have; absent: no limit.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub memory_limit: Option<u64>,
    /// Processes and threads.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pids: Option<u64>,
}

/// What is to be done with a pod, from outside its manifest: `POST /armlet/v1/pods/{namespace}/{pod}/{verb}`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum PodVerb {
    /// It ends and stays away until it is started again or its manifest changes.
    Stop,
    /// It ends, if it runs, and starts anew.
    Restart,
}

/// The answer to the removal of images.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Removed {
    /// Names that were taken away.
    pub names: Vec<String>,
    /// Images that are gone.
    pub images: Vec<ImageId>,
    /// Bytes that are free again, as far as that is known.
    pub bytes: u64,
}
