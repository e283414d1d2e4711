//! What pods compete for: who may run, and with which address.

use crate::model::PodUid;
use crate::model::pod::Pod;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::net::Ipv4Addr;
use std::sync::Arc;

/// What the node gives to one pod.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Grants {
    /// Whether it may run.
    pub admission: Admission,
    /// Its address with the built-in network; none on the node's network or before there is one.
    pub address: Option<Ipv4Addr>,
}

/// Whether a pod may run.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", rename_all_fields = "camelCase", tag = "type")]
pub enum Admission {
    /// It may.
    Admitted,
    /// Not yet: another pod must be gone first.
    Waiting {
        /// For people.
        message: String,
    },
    /// It may not, for good.
    Rejected {
        /// An upstream reason word: `OutOfcpu`, `OutOfmemory`, `OutOfpods`, `NodePorts`.
        reason: String,
        /// For people, without `Pod was rejected: `.
        message: String,
    },
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

/// What the node plan needs to know about one pod.
#[derive(Debug, Clone, PartialEq)]
pub struct PodSummary {
    /// What it is to be.
    pub pod: Arc<Pod>,
    /// It is being stopped.
    pub stopping: bool,
    /// It has ended for good or was refused.
    pub finished: bool,
    /// It was admitted before (it has a start time, or something of it exists).
    pub admitted: bool,
    /// The address that it holds.
    pub address: Option<Ipv4Addr>,
}

/// The node as it is, for what pods compete for.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct NodeObserved {
    /// What there is.
    pub capacity: Capacity,
    /// All pods in order of arrival, those being stopped included.
    pub pods: Vec<PodSummary>,
    /// The address that was handed out last: the search goes on from there, so that a released one is reused last.
    pub last_address: Option<Ipv4Addr>,
}

/// What the node gives.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct NodePlan {
    /// Per pod.
    pub grants: BTreeMap<PodUid, Grants>,
    /// To be remembered (durably) as [`NodeObserved::last_address`], together with the pods' addresses.
    pub last_address: Option<Ipv4Addr>,
    /// `cpu.weight` of `kubepods/burstable`.
    pub burstable_cpu_weight: u64,
    /// `cpu.weight` of `kubepods/besteffort`.
    pub besteffort_cpu_weight: u64,
}

/// Decides who may run and with which address. Pods keep what they were given.
#[must_use]
pub fn node(observed: &NodeObserved) -> NodePlan {
    let _ = observed;
    NodePlan::default()
}
