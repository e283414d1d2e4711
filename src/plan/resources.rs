//! Requests and limits turned into the numbers of cgroup v2 and of the OOM killer.
//!
//! The formulas are those of `pkg/kubelet/cm/helpers_linux.go`, `pkg/kubelet/qos/policy.go` and
//! `component-helpers/resource/helpers.go`; the containers' `cpu.weight` is that of `opencontainers/cgroups`.

use crate::model::Quantity;
use crate::model::action::{ContainerLimits, CpuMax, GroupLimits, NodeLimits, PodLimits};
use crate::model::observed::{NodeAmounts, NodeFacts};
use crate::model::pod::{Container, Pod, PodSpec, Resources, Source};
use crate::model::status::QosClass;
use std::collections::BTreeMap;

const MIN_SHARES: u64 = 2;
const MAX_SHARES: u64 = 262_144;
const MIN_QUOTA_MICROS: u64 = 1000;
const GUARANTEED_OOM_SCORE_ADJ: i32 = -997;
const BEST_EFFORT_OOM_SCORE_ADJ: i32 = 1000;
const CRITICAL_PRIORITY: i32 = 2_000_000_000;

/// Sums or maxima of resources over a pod.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(super) struct Amounts {
    pub(super) cpu_milli: u64,
    pub(super) memory: u64,
    pub(super) ephemeral_storage: u64,
    pub(super) hugepages: BTreeMap<String, u64>,
}

impl Amounts {
    fn of(resources: &Resources) -> Self {
        Self {
            cpu_milli: resources.cpu.map_or(0, Quantity::milli),
            memory: resources.memory.map_or(0, Quantity::units),
            ephemeral_storage: resources.ephemeral_storage.map_or(0, Quantity::units),
            hugepages: resources.hugepages.iter().map(|(size, q)| (size.clone(), q.units())).collect(),
        }
    }

    /// Both together, item by item.
    #[must_use]
    pub(super) fn plus(&self, other: &Self) -> Self {
        self.merge(other, u64::saturating_add)
    }

    fn max(&self, other: &Self) -> Self {
        self.merge(other, u64::max)
    }

    fn merge(&self, other: &Self, f: fn(u64, u64) -> u64) -> Self {
        let mut hugepages = self.hugepages.clone();
        for (size, amount) in &other.hugepages {
            let mine = hugepages.entry(size.clone()).or_default();
            *mine = f(*mine, *amount);
        }
        Self {
            cpu_milli: f(self.cpu_milli, other.cpu_milli),
            memory: f(self.memory, other.memory),
            ephemeral_storage: f(self.ephemeral_storage, other.ephemeral_storage),
            hugepages,
        }
    }
}

/// What the pod needs at its fullest: its containers and sidecars together, or one init container with the sidecars
/// before it.
fn aggregate(spec: &PodSpec, of: fn(&Container) -> Amounts) -> Amounts {
    let mut running = spec.containers.iter().fold(Amounts::default(), |sum, c| sum.plus(&of(c)));
    let mut sidecars = Amounts::default();
    let mut peak = Amounts::default();
    for container in &spec.init_containers {
        let own = of(container);
        let with_earlier = own.plus(&sidecars);
        if container.is_sidecar() {
            running = running.plus(&own);
            sidecars = with_earlier.clone();
        }
        peak = peak.max(&with_earlier);
    }
    running.max(&peak)
}

/// The pod's requests, overhead included: what admission counts.
#[must_use]
pub(super) fn pod_requests(spec: &PodSpec) -> Amounts {
    aggregate(spec, |c| Amounts::of(&c.resources.requests)).plus(&Amounts::of(&spec.overhead))
}

/// The pod's limits. Overhead is added to those that are not zero.
fn pod_limit_amounts(spec: &PodSpec) -> Amounts {
    let mut limits = aggregate(spec, |c| Amounts::of(&c.resources.limits));
    let overhead = Amounts::of(&spec.overhead);
    if limits.cpu_milli > 0 {
        limits.cpu_milli = limits.cpu_milli.saturating_add(overhead.cpu_milli);
    }
    if limits.memory > 0 {
        limits.memory = limits.memory.saturating_add(overhead.memory);
    }
    limits
}

fn all(spec: &PodSpec) -> impl Iterator<Item = &Container> {
    spec.init_containers.iter().chain(&spec.containers)
}

fn non_zero(quantity: Option<Quantity>) -> Option<Quantity> {
    quantity.filter(|q| !q.is_zero())
}

/// The pod's quality-of-service class: only cpu and memory count, init containers too
/// (`pkg/apis/core/v1/helper/qos/qos.go`).
#[must_use]
pub fn qos(spec: &PodSpec) -> QosClass {
    let mut any = false;
    let mut guaranteed = true;
    for container in all(spec) {
        let (requests, limits) = (&container.resources.requests, &container.resources.limits);
        for (request, limit) in [(requests.cpu, limits.cpu), (requests.memory, limits.memory)] {
            let (request, limit) = (non_zero(request), non_zero(limit));
            any |= request.is_some() || limit.is_some();
            guaranteed &= limit.is_some() && request.unwrap_or_default() == limit.unwrap_or_default();
        }
    }
    match (any, guaranteed) {
        (false, _) => QosClass::BestEffort,
        (true, true) => QosClass::Guaranteed,
        (true, false) => QosClass::Burstable,
    }
}

/// Thousandths of a core as the `cpu.shares` of cgroup v1, which the weights are computed from.
fn shares(milli: u64) -> u64 {
    (milli.saturating_mul(1024) / 1000).clamp(MIN_SHARES, MAX_SHARES)
}

/// `cpu.weight` of the node's and the pods' own groups: linear in the shares.
#[must_use]
pub(super) fn group_weight(cpu_milli: u64) -> u64 {
    1 + (shares(cpu_milli) - MIN_SHARES) * 9999 / (MAX_SHARES - MIN_SHARES)
}

/// `cpu.weight` of a container's group: 1024 shares, one core, are the kernel's default weight of 100.
fn container_weight(cpu_milli: u64) -> u64 {
    let shares = shares(cpu_milli);
    if shares <= MIN_SHARES {
        return 1;
    }
    if shares >= MAX_SHARES {
        return 10_000;
    }
    #[expect(clippy::cast_precision_loss, reason = "at most 2^18")]
    let log = (shares as f64).log2();
    let exponent = (log * log + 125.0 * log) / 612.0 - 7.0 / 34.0;
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "between 1 and 10000")]
    let weight = 10f64.powf(exponent).ceil() as u64;
    weight.clamp(1, 10_000)
}

/// `cpu.max` of a limit; none without one.
fn cpu_max(milli: u64, node: &NodeFacts) -> Option<CpuMax> {
    if milli == 0 || !node.cpu_quota {
        return None;
    }
    let quota = milli.saturating_mul(node.cpu_period) / 1000;
    Some(CpuMax { quota: quota.max(MIN_QUOTA_MICROS), period: node.cpu_period })
}

/// More is set aside than there is.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{reserved} of {resource} are reserved and the node has {capacity}")]
pub struct OverReserved {
    /// `cpu` (in thousandths), `memory` or `pid`.
    pub resource: &'static str,
    /// What is set aside for the system and for armlet together.
    pub reserved: u64,
    /// What there is.
    pub capacity: u64,
}

/// What the group of all pods is set to: what the node has without what is reserved, if that is `enforced`. Eviction
/// thresholds do not count: they are there to be reached (`pkg/kubelet/cm/node_container_manager_linux.go`).
///
/// # Errors
/// [`OverReserved`], enforced or not.
pub fn node_limits(node: NodeAmounts, reserved: NodeAmounts, enforced: bool) -> Result<NodeLimits, OverReserved> {
    let left = |resource, capacity: u64, reserved: u64| match capacity.checked_sub(reserved) {
        Some(left) => Ok(if enforced { left } else { capacity }),
        None => Err(OverReserved { resource, reserved, capacity }),
    };
    Ok(NodeLimits {
        cpu_weight: group_weight(left("cpu", node.cpu_milli, reserved.cpu_milli)?),
        memory_max: left("memory", node.memory, reserved.memory)?,
        pids_max: left("pid", node.pids, reserved.pids)?,
    })
}

/// What the group of those is held to whom these amounts are set aside for: what is not reserved is not limited, and
/// `compressible` stands for processor time alone. None: nothing is reserved
/// (`pkg/kubelet/cm/node_container_manager_linux.go: enforceExistingCgroup`).
#[must_use]
pub fn reserved_limits(reserved: NodeAmounts, compressible: bool) -> Option<GroupLimits> {
    let some = |amount: u64| (amount > 0).then_some(amount);
    let hard = |amount: u64| some(amount).filter(|_| !compressible);
    let limits = GroupLimits {
        cpu_weight: some(reserved.cpu_milli).map(group_weight),
        memory_max: hard(reserved.memory),
        pids_max: hard(reserved.pids),
    };
    (limits != GroupLimits::default()).then_some(limits)
}

/// The pod's cgroup below the cgroup mount, without a leading slash.
#[must_use]
pub fn pod_cgroup(pod: &Pod) -> String {
    let class = match qos(&pod.spec) {
        QosClass::Guaranteed => "",
        QosClass::Burstable => "burstable/",
        QosClass::BestEffort => "besteffort/",
    };
    format!("kubepods/{class}pod{}", pod.uid)
}

/// What the pod's own group is set to. A cpu or memory limit is set only when every container declares one.
#[must_use]
pub fn pod_limits(pod: &Pod, node: &NodeFacts) -> PodLimits {
    let spec = &pod.spec;
    let qos = qos(spec);
    let pids_max = node.pod_pids_limit;
    if qos == QosClass::BestEffort {
        return PodLimits { qos, cpu_weight: group_weight(0), pids_max, ..PodLimits::default() };
    }
    let requests = pod_requests(spec);
    let limits = pod_limit_amounts(spec);
    let every = |of: fn(&Resources) -> Option<Quantity>| all(spec).all(|c| non_zero(of(&c.resources.limits)).is_some());
    PodLimits {
        qos,
        cpu_weight: group_weight(requests.cpu_milli),
        cpu_max: if every(|r| r.cpu) { cpu_max(limits.cpu_milli, node) } else { None },
        memory_max: every(|r| r.memory).then_some(limits.memory),
        pids_max,
        hugetlb: requests.hugepages,
    }
}

/// What a container's group and first process are set to.
#[must_use]
pub fn container_limits(pod: &Pod, container: &Container, node: &NodeFacts) -> ContainerLimits {
    let (requests, limits) = (&container.resources.requests, &container.resources.limits);
    let cpu = non_zero(requests.cpu).or(non_zero(limits.cpu)).map_or(0, Quantity::milli);
    let mut hugetlb: BTreeMap<String, u64> = node.hugepage_sizes.iter().map(|size| (size.clone(), 0)).collect();
    hugetlb.extend(limits.hugepages.iter().map(|(size, q)| (size.clone(), q.units())));
    ContainerLimits {
        cpu_weight: container_weight(cpu),
        cpu_max: cpu_max(limits.cpu.map_or(0, Quantity::milli), node),
        memory_max: non_zero(limits.memory).map(Quantity::units),
        swap_max: Some(swap_max(pod, container, node)),
        oom_group: !node.single_process_oom_kill,
        oom_score_adj: oom_score_adj(pod, container, node.memory_capacity),
        hugetlb,
    }
}

/// Every static pod is critical, whatever its priority.
fn is_critical(pod: &Pod) -> bool {
    matches!(pod.source, Source::File { .. }) || pod.spec.priority >= CRITICAL_PRIORITY
}

fn swap_max(pod: &Pod, container: &Container, node: &NodeFacts) -> u64 {
    let request = non_zero(container.resources.requests.memory);
    let limit = non_zero(container.resources.limits.memory);
    let may = node.limited_swap && qos(&pod.spec) == QosClass::Burstable && !is_critical(pod) && request != limit;
    match request {
        Some(request) if may && node.memory_capacity > 0 => {
            let share = u128::from(request.units()) * u128::from(node.swap_capacity) / u128::from(node.memory_capacity);
            u64::try_from(share).unwrap_or(u64::MAX)
        }
        Some(_) | None => 0,
    }
}

fn oom_score_adj(pod: &Pod, container: &Container, memory_capacity: u64) -> i32 {
    let node_critical = is_critical(pod) && pod.spec.priority_class_name.as_deref() == Some("system-node-critical");
    let class = qos(&pod.spec);
    if node_critical || class == QosClass::Guaranteed {
        return GUARANTEED_OOM_SCORE_ADJ;
    }
    if class == QosClass::BestEffort {
        return BEST_EFFORT_OOM_SCORE_ADJ;
    }
    let request = |c: &Container| c.resources.requests.memory.map_or(0, Quantity::units);
    let score = |bytes: u64| {
        let part = (u128::from(bytes) * 1000).checked_div(u128::from(memory_capacity)).unwrap_or(0);
        1000 - i32::try_from(part.min(1000)).unwrap_or(1000)
    };
    let mut adj = score(request(container));
    if container.is_sidecar() {
        let smallest = pod.spec.containers.iter().map(request).min().unwrap_or(0);
        adj = adj.min(score(smallest));
    }
    adj.clamp(BEST_EFFORT_OOM_SCORE_ADJ + GUARANTEED_OOM_SCORE_ADJ, BEST_EFFORT_OOM_SCORE_ADJ - 1)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plan::testing::{container, pod, quantities};

    #[test]
    fn weights_are_those_that_upstream_writes() {
        for (milli, linear, quadratic) in [
            (0, 1, 1),
            (10, 1, 4),
            (100, 4, 17),
            (250, 10, 35),
            (500, 20, 59),
            (1000, 39, 100),
            (2000, 79, 174),
            (4000, 157, 303),
            (u64::MAX, 10_000, 10_000),
        ] {
            assert_eq!((group_weight(milli), container_weight(milli)), (linear, quadratic), "{milli}m");
        }
    }

    #[test]
    fn the_class_counts_init_containers_and_needs_both_limits() {
        let check = |app: [&str; 4], init: [&str; 4]| {
            let mut pod = pod("p", &["app"]);
            quantities(&mut pod.spec.containers[0], app);
            let mut first = container("init");
            quantities(&mut first, init);
            pod.spec.init_containers.push(first);
            qos(&pod.spec)
        };
        let none = ["", "", "", ""];
        assert_eq!(check(none, none), QosClass::BestEffort);
        assert_eq!(check(["0", "", "0", ""], none), QosClass::BestEffort);
        assert_eq!(check(["1", "1Gi", "1", "1Gi"], ["1", "1Gi", "1", "1Gi"]), QosClass::Guaranteed);
        assert_eq!(check(["1", "1Gi", "1", "1Gi"], none), QosClass::Burstable);
        assert_eq!(check(["1", "1Gi", "2", "1Gi"], ["1", "1Gi", "1", "1Gi"]), QosClass::Burstable);
        assert_eq!(check(["1", "", "1", ""], ["1", "", "1", ""]), QosClass::Burstable);
    }

    #[test]
    fn a_pod_needs_its_sidecars_beside_its_largest_stage() {
        let mut pod = pod("p", &["a", "b"]);
        quantities(&mut pod.spec.containers[0], ["100m", "", "", ""]);
        quantities(&mut pod.spec.containers[1], ["200m", "", "", ""]);
        for (name, cpu, sidecar) in [("s1", "50m", true), ("big", "1", false), ("s2", "20m", true)] {
            let mut init = container(name);
            quantities(&mut init, [cpu, "", "", ""]);
            init.restart_policy = sidecar.then_some(crate::model::pod::RestartPolicy::Always);
            pod.spec.init_containers.push(init);
        }
        assert_eq!(pod_requests(&pod.spec).cpu_milli, 1050);
        quantities(&mut pod.spec.init_containers[1], ["10m", "", "", ""]);
        pod.spec.overhead.cpu = Some(Quantity::from_milli(5));
        assert_eq!(pod_requests(&pod.spec).cpu_milli, 375);
    }

    #[test]
    fn the_pods_own_limit_needs_every_containers() {
        let node = NodeFacts { pod_pids_limit: Some(99), ..NodeFacts::default() };
        let mut pod = pod("p", &["a", "b"]);
        quantities(&mut pod.spec.containers[0], ["100m", "64Mi", "200m", "64Mi"]);
        let limits = pod_limits(&pod, &node);
        assert_eq!((limits.cpu_max, limits.memory_max, limits.pids_max), (None, None, Some(99)));
        quantities(&mut pod.spec.containers[1], ["100m", "64Mi", "1m", "64Mi"]);
        let limits = pod_limits(&pod, &node);
        assert_eq!(limits.cpu_max, Some(CpuMax { quota: 20_100, period: 100_000 }));
        assert_eq!(limits.memory_max, Some(128 << 20));
        assert_eq!(limits.cpu_weight, 8);
        assert_eq!(pod_cgroup(&pod), "kubepods/burstable/podp");
    }

    #[test]
    fn all_pods_together_get_what_is_not_reserved() {
        let node = NodeAmounts { cpu_milli: 4000, memory: 1 << 30, pids: 32_768 };
        let reserved = NodeAmounts { cpu_milli: 500, memory: 256 << 20, pids: 768 };
        let limits = |cpu_weight, memory_max, pids_max| Ok(NodeLimits { cpu_weight, memory_max, pids_max });
        assert_eq!(node_limits(node, reserved, true), limits(137, 768 << 20, 32_000));
        assert_eq!(node_limits(node, reserved, false), limits(157, 1 << 30, 32_768));
        assert_eq!(node_limits(node, NodeAmounts::default(), true), limits(157, 1 << 30, 32_768));
        for (resource, over) in [
            ("cpu", NodeAmounts { cpu_milli: 4001, ..reserved }),
            ("memory", NodeAmounts { memory: u64::MAX, ..reserved }),
            ("pid", NodeAmounts { pids: 40_000, ..reserved }),
        ] {
            assert_eq!(node_limits(node, over, false).map_err(|e| e.resource), Err(resource));
        }
    }

    #[test]
    fn who_something_is_reserved_for_is_held_to_it() {
        let limits = |cpu_weight, memory_max, pids_max| Some(GroupLimits { cpu_weight, memory_max, pids_max });
        let all = NodeAmounts { cpu_milli: 250, memory: 128 << 20, pids: 512 };
        for (reserved, compressible, wanted) in [
            (all, false, limits(Some(10), Some(128 << 20), Some(512))),
            (all, true, limits(Some(10), None, None)),
            (NodeAmounts { memory: 1, ..NodeAmounts::default() }, false, limits(None, Some(1), None)),
            (NodeAmounts { memory: 1, ..NodeAmounts::default() }, true, None),
            (NodeAmounts::default(), false, None),
        ] {
            assert_eq!(reserved_limits(reserved, compressible), wanted, "{reserved:?} {compressible}");
        }
    }

    #[test]
    fn a_container_gets_at_least_a_millisecond_of_quota() {
        let node = NodeFacts { hugepage_sizes: vec!["2Mi".into()], ..NodeFacts::default() };
        let mut pod = pod("p", &["a"]);
        quantities(&mut pod.spec.containers[0], ["", "", "1m", ""]);
        let limits = container_limits(&pod, &pod.spec.containers[0], &node);
        assert_eq!(limits.cpu_max, Some(CpuMax { quota: 1000, period: 100_000 }));
        assert_eq!((limits.cpu_weight, limits.memory_max, limits.swap_max, limits.oom_group), (1, None, Some(0), true));
        assert_eq!(limits.hugetlb, [("2Mi".to_owned(), 0)].into());
    }

    #[test]
    fn oom_scores_follow_the_class_and_the_request() {
        let score = |app: [&str; 4], side: Option<&str>, class: Option<&str>| {
            let mut pod = pod("p", &["app"]);
            quantities(&mut pod.spec.containers[0], app);
            pod.spec.priority_class_name = class.map(str::to_owned);
            let mut probe = pod.spec.containers[0].clone();
            if let Some(memory) = side {
                probe = container("side");
                quantities(&mut probe, ["", memory, "", ""]);
                probe.restart_policy = Some(crate::model::pod::RestartPolicy::Always);
                pod.spec.init_containers.push(probe.clone());
            }
            oom_score_adj(&pod, &probe, 1 << 30)
        };
        assert_eq!(score(["", "", "", ""], None, None), 1000);
        assert_eq!(score(["1", "1Gi", "1", "1Gi"], None, None), -997);
        assert_eq!(score(["", "", "", ""], None, Some("system-node-critical")), -997);
        assert_eq!(score(["", "512Mi", "", ""], None, None), 500);
        assert_eq!(score(["1m", "", "", ""], None, None), 999);
        assert_eq!(score(["", "2Gi", "", ""], None, None), 3);
        assert_eq!(score(["", "512Mi", "", ""], Some("1Mi"), None), 500);
        assert_eq!(score(["", "1Mi", "", ""], Some("512Mi"), None), 500);
    }

    #[test]
    fn only_burstable_pods_that_are_not_critical_may_swap() {
        let node =
            NodeFacts { memory_capacity: 4 << 30, swap_capacity: 2 << 30, limited_swap: true, ..NodeFacts::default() };
        let mut pod = pod("p", &["app"]);
        quantities(&mut pod.spec.containers[0], ["", "1Gi", "", ""]);
        assert_eq!(swap_max(&pod, &pod.spec.containers[0], &node), 0, "static pods are critical");
    }
}
