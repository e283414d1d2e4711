//! What a pod is: the status that people and the API see. The names and reasons are those of v1.PodStatus.

use super::{ContainerId, WallTime};
use serde::{Deserialize, Serialize};
use std::net::IpAddr;

/// The pod's place in its life (`status.phase`).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub enum Phase {
    /// Not all containers have started.
    #[default]
    Pending,
    /// At least one container runs or will run again.
    Running,
    /// All containers ended with exit code 0 and stay ended.
    Succeeded,
    /// All containers ended and at least one failed.
    Failed,
}

/// `status.qosClass`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub enum QosClass {
    /// Every container's cpu and memory limits equal its requests.
    Guaranteed,
    /// Something is requested or limited.
    Burstable,
    /// Nothing is.
    #[default]
    BestEffort,
}

/// `v1.PodStatus`, as far as one node knows it.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct PodStatus {
    /// The phase.
    pub phase: Phase,
    /// Why, when the pod as a whole was refused or ended: an upstream reason word.
    pub reason: Option<String>,
    /// The same for people.
    pub message: Option<String>,
    /// In upstream's order: PodReadyToStartContainers, Initialized, Ready, ContainersReady, PodScheduled.
    pub conditions: Vec<Condition>,
    /// The pod's addresses; empty until it has one.
    pub pod_ips: Vec<IpAddr>,
    /// The node's addresses.
    pub host_ips: Vec<IpAddr>,
    /// When this node first took the pod up.
    pub start_time: Option<WallTime>,
    /// The class.
    pub qos_class: QosClass,
    /// In spec order.
    pub init_containers: Vec<ContainerStatus>,
    /// Sorted by name.
    pub containers: Vec<ContainerStatus>,
    /// The pod is being stopped (its manifest is gone or the node shuts down).
    pub terminating: bool,
}

/// `v1.PodCondition`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Condition {
    /// `Ready`, `Initialized`, ...
    pub kind: String,
    /// True or False; nothing here is ever Unknown.
    pub status: bool,
    /// An upstream reason word.
    pub reason: Option<String>,
    /// For people.
    pub message: Option<String>,
    /// When `status` last changed.
    pub last_transition: WallTime,
}

/// `v1.ContainerStatus`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ContainerStatus {
    /// The container's name.
    pub name: String,
    /// What it is doing.
    pub state: State,
    /// How the attempt before ended.
    pub last_state: Option<Terminated>,
    /// Whether it counts for the pod's readiness.
    #[serde(default)]
    pub ready: bool,
    /// Whether its startup probe has succeeded (or it has none) while it runs.
    #[serde(default)]
    pub started: bool,
    /// How often it was started again.
    #[serde(default)]
    pub restart_count: u32,
    /// The image as the spec names it.
    #[serde(default)]
    pub image: String,
    /// The image in digest form, once known.
    #[serde(default)]
    pub image_id: String,
    /// The newest attempt.
    pub container_id: Option<ContainerId>,
}

/// `v1.ContainerState`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum State {
    /// Not running yet, or not again yet.
    Waiting {
        /// `ContainerCreating`, `PodInitializing`, `CrashLoopBackOff`, `ErrImagePull`, ...
        reason: String,
        /// For people.
        message: Option<String>,
    },
    /// Running.
    Running {
        /// Since when.
        started_at: WallTime,
    },
    /// Ended.
    Terminated(Terminated),
}

/// `v1.ContainerStateTerminated`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Terminated {
    /// Exit code; 128 + signal number for a death by signal.
    pub exit_code: i32,
    /// The signal that ended it.
    pub signal: Option<i32>,
    /// `Completed`, `Error`, `OOMKilled`, `StartError`, `ContainerCannotRun`, `ContainerStatusUnknown`.
    pub reason: String,
    /// The termination message.
    pub message: Option<String>,
    /// When it was started.
    pub started_at: WallTime,
    /// When it ended.
    pub finished_at: WallTime,
    /// Which attempt it was.
    pub container_id: Option<ContainerId>,
}
