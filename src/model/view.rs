//! The agent's published picture of the node: what the server shows. Made by the agent, read by everyone.

use super::pod::Pod;
use super::status::PodStatus;
use super::{ContainerId, WallTime};
use std::collections::{BTreeMap, VecDeque};
use std::net::IpAddr;
use std::sync::Arc;

/// Everything that can be asked about the node without asking the system.
#[derive(Debug, Clone, Default)]
pub struct NodeView {
    /// The node's name.
    pub node_name: String,
    /// Where the manifests of static pods are read from.
    pub static_pod_path: String,
    /// All is taken over that was there before the agent: before that a pod may be missing here.
    pub settled: bool,
    /// All pods, terminating ones included, ordered by namespace and name.
    pub pods: Vec<Arc<PodView>>,
    /// Manifests that were refused and why.
    pub refused: Vec<RefusedManifest>,
    /// Pods that were stopped by hand, as `namespace/pod`.
    pub stopped: Vec<String>,
    /// The last events, oldest first, at most a few hundred.
    pub events: Arc<VecDeque<EventRecord>>,
    /// Node conditions that are not as they should be: a word and a sentence.
    pub conditions: Vec<(String, String)>,
    /// The node's own addresses.
    pub addresses: Vec<IpAddr>,
    /// What it has, and what of it pods may have.
    pub resources: NodeResources,
}

/// Amounts by resource, written as Kubernetes writes them (`v1.NodeStatus`).
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct NodeResources {
    /// All of it.
    pub capacity: BTreeMap<String, String>,
    /// Without what is set aside for the system, for armlet and for eviction.
    pub allocatable: BTreeMap<String, String>,
}

/// One pod: desired and actual.
#[derive(Debug, Clone, PartialEq)]
pub struct PodView {
    /// What it is to be.
    pub pod: Arc<Pod>,
    /// What it is.
    pub status: PodStatus,
    /// Per container (init containers too): the attempts whose logs and records are kept, oldest first.
    pub attempts: Vec<Attempt>,
}

/// One attempt of one container.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Attempt {
    /// The container's name.
    pub container: String,
    /// The attempt's id.
    pub id: ContainerId,
    /// Restart count.
    pub attempt: u32,
    /// Its log file (rotated ones lie beside it).
    pub log_path: String,
    /// Its cgroup below the cgroup mount.
    pub cgroup: String,
    /// Process id while it runs.
    pub pid: Option<u32>,
}

/// A manifest document that cannot be run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RefusedManifest {
    /// The file.
    pub path: String,
    /// One line for each problem: `file:line: field: text`.
    pub problems: Vec<String>,
}

/// One Kubernetes event about a pod or the node.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EventRecord {
    /// When.
    pub at: WallTime,
    /// `Normal` is false, `Warning` is true.
    pub warning: bool,
    /// The upstream reason word.
    pub reason: String,
    /// `namespace/pod` or the node's name.
    pub object: String,
    /// What of the object: `spec.containers{name}`; absent: the object as a whole.
    pub field_path: Option<String>,
    /// For people.
    pub message: String,
}
