//! What happened: the nudges of the agent's loop, and the Kubernetes events that people read.

use super::PodUid;
use serde::{Deserialize, Serialize};

/// A nudge of the loop. It carries no truth: it only says what to look at again.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Event {
    /// Something about one pod may have changed.
    Pod(PodUid),
    /// The set of desired pods, or what they compete for, may have changed.
    Node,
}

/// One Kubernetes event about a pod, without the time and the pod's name, which its publisher knows.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct PodEvent {
    /// `Warning` instead of `Normal`.
    pub warning: bool,
    /// The upstream reason word (`pkg/kubelet/events/event.go`).
    pub reason: String,
    /// `spec.containers{name}` or `spec.initContainers{name}`; absent: the pod itself.
    pub field_path: Option<String>,
    /// For people.
    pub message: String,
}
