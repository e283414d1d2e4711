//! What pods compete for: who may run, and with which address.

use super::resources::{Amounts, group_weight, pod_requests, qos};
use crate::model::PodUid;
use crate::model::observed::Capacity;
use crate::model::pod::{Pod, Protocol};
use crate::model::status::QosClass;
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};
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

/// Decides who may run and with which address. Pods keep what they were given; newcomers are looked at in order of
/// arrival, and one that is refused takes nothing from those after it. What a pod that is being stopped still holds is
/// waited for: only what is there to stay refuses a newcomer.
#[must_use]
pub fn node(observed: &NodeObserved) -> NodePlan {
    let mut admissions = Admissions::default();
    for summary in observed.pods.iter().filter(|p| p.admitted && !p.finished) {
        admissions.now.count(&summary.pod);
        if !summary.stopping {
            admissions.later.count(&summary.pod);
        }
    }
    let mut addresses = Addresses::new(observed);
    let mut grants = BTreeMap::new();
    let mut burstable_milli = 0_u64;
    for (index, summary) in observed.pods.iter().enumerate() {
        let pod = &summary.pod;
        let newcomer = !(summary.admitted || summary.finished || summary.stopping);
        let mut decided = if newcomer {
            admissions.decide(&observed.capacity, pod, waits_for(observed, index))
        } else {
            Admission::Admitted
        };
        let mut address = summary.address;
        let needs = address.is_none() && !pod.spec.host_network && !summary.finished && !summary.stopping;
        if needs && decided == Admission::Admitted && observed.capacity.pod_cidr.is_some() {
            address = addresses.next();
            if address.is_none() {
                decided = Admission::Waiting { message: "no free address in the node's pod range".into() };
            }
        }
        if decided == Admission::Admitted {
            if newcomer {
                admissions.now.count(pod);
                admissions.later.count(pod);
            }
            if (newcomer || summary.admitted && !summary.finished) && qos(&pod.spec) == QosClass::Burstable {
                burstable_milli = burstable_milli.saturating_add(pod_requests(&pod.spec).cpu_milli);
            }
        }
        grants.insert(pod.uid.clone(), Grants { admission: decided, address });
    }
    NodePlan {
        grants,
        last_address: addresses.last,
        burstable_cpu_weight: group_weight(burstable_milli),
        besteffort_cpu_weight: group_weight(0),
    }
}

/// The pod of the same full name that must be gone first: one that was admitted, or one that came earlier.
fn waits_for(observed: &NodeObserved, index: usize) -> Option<&PodSummary> {
    let mine = &observed.pods.get(index)?.pod;
    let same = |other: &PodSummary| other.pod.name == mine.name && other.pod.namespace == mine.namespace;
    observed.pods.iter().enumerate().find_map(|(at, other)| {
        let before = at < index || other.admitted;
        (at != index && before && same(other)).then_some(other)
    })
}

/// What is taken of the node.
#[derive(Default)]
struct Admissions {
    /// As it is, by pods that are being stopped too.
    now: Taken,
    /// Once those are gone.
    later: Taken,
}

impl Admissions {
    /// Decides about a newcomer. One that only has to wait for a pod to be stopped keeps its place before those that
    /// come after it.
    fn decide(&mut self, capacity: &Capacity, pod: &Pod, before: Option<&PodSummary>) -> Admission {
        let later = self.later.refusal(capacity, pod);
        let (message, in_turn) = match (before, self.now.refusal(capacity, pod), &later) {
            (Some(before), _, _) => {
                let uid = &before.pod.uid;
                let message = format!("waiting for the pod with the same name and the uid {uid} to be gone");
                (message, before.stopping && later.is_none())
            }
            (None, None, _) => return Admission::Admitted,
            (None, Some(now), None) => (format!("waiting for pods that are being stopped: {}", now.message), true),
            (None, Some(_), Some(Refusal { reason, message })) => {
                return Admission::Rejected { reason: reason.clone(), message: message.clone() };
            }
        };
        if in_turn {
            self.now.count(pod);
            self.later.count(pod);
        }
        Admission::Waiting { message }
    }
}

/// Why a pod does not fit.
struct Refusal {
    reason: String,
    message: String,
}

/// What pods take together.
#[derive(Default)]
struct Taken {
    pods: u32,
    amounts: Amounts,
    ports: BTreeSet<(Protocol, u16)>,
}

impl Taken {
    fn count(&mut self, pod: &Pod) {
        self.pods = self.pods.saturating_add(1);
        self.amounts = self.amounts.plus(&pod_requests(&pod.spec));
        self.ports.extend(host_ports(pod));
    }

    /// The first thing that does not fit, in the order of the scheduler's own check.
    fn refusal(&self, capacity: &Capacity, pod: &Pod) -> Option<Refusal> {
        let wanted = pod_requests(&pod.spec);
        let used = &self.amounts;
        let mut checks = vec![
            ("pods".to_owned(), 1, u64::from(self.pods), u64::from(capacity.pods)),
            ("cpu".to_owned(), wanted.cpu_milli, used.cpu_milli, capacity.cpu_milli),
            ("memory".to_owned(), wanted.memory, used.memory, capacity.memory),
        ];
        if let Some(disk) = capacity.ephemeral_storage {
            checks.push(("ephemeral-storage".to_owned(), wanted.ephemeral_storage, used.ephemeral_storage, disk));
        }
        for (size, amount) in &wanted.hugepages {
            let of = |all: &BTreeMap<String, u64>| all.get(size).copied().unwrap_or(0);
            checks.push((format!("hugepages-{size}"), *amount, of(&used.hugepages), of(&capacity.hugepages)));
        }
        for (resource, requested, used, capacity) in checks {
            if requested > 0 && used.saturating_add(requested) > capacity {
                let message = format!(
                    "Node didn't have enough resource: {resource}, requested: {requested}, used: {used}, capacity: {capacity}"
                );
                return Some(Refusal { reason: format!("OutOf{resource}"), message });
            }
        }
        if host_ports(pod).any(|port| self.ports.contains(&port)) {
            let message =
                "Predicate NodePorts failed: node(s) didn't have free ports for the requested pod ports".into();
            return Some(Refusal { reason: "NodePorts".into(), message });
        }
        None
    }
}

fn host_ports(pod: &Pod) -> impl Iterator<Item = (Protocol, u16)> {
    let containers = pod.spec.init_containers.iter().filter(|c| c.is_sidecar()).chain(&pod.spec.containers);
    containers.flat_map(|c| &c.ports).filter_map(|p| Some((p.protocol, p.host_port?)))
}

/// Hands out addresses of the node's range. Never one that a pod holds; what was released last is reused last.
struct Addresses {
    taken: BTreeSet<Ipv4Addr>,
    /// First and last address that a pod may have.
    range: Option<(u32, u32)>,
    last: Option<Ipv4Addr>,
}

impl Addresses {
    fn new(observed: &NodeObserved) -> Self {
        let range = observed.capacity.pod_cidr.and_then(|(network, prefix)| {
            let host_bits = 32_u32.checked_sub(u32::from(prefix))?;
            let mask = u32::MAX.checked_shl(host_bits).unwrap_or(0);
            let base = u32::from(network) & mask;
            // The network itself, the node's end of the bridge and the broadcast address are not for pods.
            let (first, last) = (base.checked_add(2)?, (base | !mask).checked_sub(1)?);
            (first <= last).then_some((first, last))
        });
        let taken = observed.pods.iter().filter_map(|p| p.address).collect();
        Self { taken, range, last: observed.last_address }
    }

    fn next(&mut self) -> Option<Ipv4Addr> {
        let (first, last) = self.range?;
        let start = self.last.map_or(first, |l| u32::from(l).saturating_add(1));
        let start = if (first..=last).contains(&start) { start } else { first };
        let free = (start..=last).chain(first..start).map(Ipv4Addr::from).find(|a| !self.taken.contains(a))?;
        self.taken.insert(free);
        self.last = Some(free);
        Some(free)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::pod::ContainerPort;
    use crate::plan::testing::{pod, quantities};

    fn summary(pod: Pod) -> PodSummary {
        PodSummary { pod: Arc::new(pod), stopping: false, finished: false, admitted: false, address: None }
    }

    fn capacity() -> Capacity {
        Capacity { cpu_milli: 2000, memory: 1 << 30, pods: 3, ..Capacity::default() }
    }

    fn decide(pods: Vec<PodSummary>) -> Vec<Admission> {
        let plan = node(&NodeObserved { capacity: capacity(), pods: pods.clone(), last_address: None });
        pods.iter().map(|p| plan.grants[&p.pod.uid].admission.clone()).collect()
    }

    fn sized(name: &str, cpu: &str, memory: &str) -> PodSummary {
        let mut pod = pod(name, &["a"]);
        quantities(&mut pod.spec.containers[0], [cpu, memory, "", ""]);
        summary(pod)
    }

    fn rejected(reason: &str, message: &str) -> Admission {
        Admission::Rejected { reason: reason.into(), message: message.into() }
    }

    #[test]
    fn what_does_not_fit_is_refused_and_takes_nothing() {
        let got = decide(vec![
            sized("a", "1500m", ""),
            sized("b", "600m", ""),
            sized("c", "500m", "2Gi"),
            sized("d", "500m", ""),
        ]);
        let cpu = "Node didn't have enough resource: cpu, requested: 600, used: 1500, capacity: 2000";
        let memory = "Node didn't have enough resource: memory, requested: 2147483648, used: 0, capacity: 1073741824";
        assert_eq!(
            got,
            [Admission::Admitted, rejected("OutOfcpu", cpu), rejected("OutOfmemory", memory), Admission::Admitted]
        );
    }

    #[test]
    fn a_pod_that_was_admitted_stays_and_counts_first() {
        let mut old = sized("old", "1900m", "");
        old.admitted = true;
        let mut done = sized("done", "1900m", "");
        done.finished = true;
        let got = decide(vec![done, sized("new", "200m", ""), old]);
        let text = "Node didn't have enough resource: cpu, requested: 200, used: 1900, capacity: 2000";
        assert_eq!(got, [Admission::Admitted, rejected("OutOfcpu", text), Admission::Admitted]);
        let many = decide(["a", "b", "c", "d"].map(|n| sized(n, "", "")).to_vec());
        let text = "Node didn't have enough resource: pods, requested: 1, used: 3, capacity: 3";
        assert_eq!(many[3], rejected("OutOfpods", text));
    }

    #[test]
    fn one_full_name_runs_once() {
        let twin = |uid: &str| {
            let mut pod = pod("web", &["a"]);
            pod.uid = PodUid::new(uid).unwrap();
            summary(pod)
        };
        let mut stopping = twin("old");
        (stopping.admitted, stopping.stopping) = (true, true);
        let got = decide(vec![twin("new"), stopping, twin("newer")]);
        let waiting = |uid: &str| Admission::Waiting {
            message: format!("waiting for the pod with the same name and the uid {uid} to be gone"),
        };
        assert_eq!(got, [waiting("old"), Admission::Admitted, waiting("new")]);
    }

    fn on(name: &str, port: u16, protocol: Protocol) -> PodSummary {
        let mut pod = pod(name, &["a"]);
        let port = ContainerPort { name: None, container_port: port, host_port: Some(port), protocol };
        pod.spec.containers[0].ports.push(port);
        summary(pod)
    }

    fn stopping(pod: PodSummary) -> PodSummary {
        PodSummary { admitted: true, stopping: true, ..pod }
    }

    #[test]
    fn what_a_stopping_pod_still_holds_is_waited_for() {
        let waiting =
            |text: &str| Admission::Waiting { message: format!("waiting for pods that are being stopped: {text}") };
        let cpu = |wanted, used| {
            format!("Node didn't have enough resource: cpu, requested: {wanted}, used: {used}, capacity: 2000")
        };
        let got = decide(vec![sized("new", "1500m", ""), stopping(sized("old", "1500m", ""))]);
        assert_eq!(got[0], waiting(&cpu(1500, 1500)));
        // Its name was changed in the manifest: the pod behind the port is another one.
        let ports = "Predicate NodePorts failed: node(s) didn't have free ports for the requested pod ports";
        let (new, old) = (on("new", 80, Protocol::Tcp), on("old", 80, Protocol::Tcp));
        assert_eq!(decide(vec![stopping(old), new])[1], waiting(ports));
        // What would not fit beside the pods that stay is refused at once, and by those.
        let mut stays = sized("stays", "1000m", "");
        stays.admitted = true;
        let got = decide(vec![stays, stopping(sized("old", "500m", "")), sized("new", "1500m", "")]);
        assert_eq!(got[2], rejected("OutOfcpu", &cpu(1500, 1000)));
    }

    #[test]
    fn who_waits_for_a_stopping_pod_keeps_the_place() {
        let old = || stopping(sized("old", "1500m", ""));
        let got =
            decide(vec![old(), sized("first", "1500m", ""), sized("second", "500m", ""), sized("third", "1", "")]);
        assert!(matches!(&got[1], Admission::Waiting { .. }), "{got:?}");
        assert!(matches!(&got[2], Admission::Waiting { .. }), "there is room, but the first one's: {got:?}");
        assert!(matches!(&got[3], Admission::Rejected { .. }), "{got:?}");
        // So does the next one of the same name, unless it will be refused anyway.
        for (cpu, second) in [("1500m", false), ("3", true)] {
            let mut next = sized("next", cpu, "");
            Arc::make_mut(&mut next.pod).name = "old".into();
            let got = decide(vec![old(), next, sized("second", "500m", "")]);
            assert!(matches!(&got[1], Admission::Waiting { .. }), "{got:?}");
            assert_eq!(got[2] == Admission::Admitted, second, "{got:?}");
        }
        // One that was never admitted and is on its way out takes nothing.
        let mut leaving = sized("leaving", "1500m", "");
        leaving.stopping = true;
        assert_eq!(decide(vec![leaving, sized("new", "1500m", "")])[1], Admission::Admitted);
    }

    #[test]
    fn a_port_of_the_node_is_given_once() {
        let got = decide(vec![on("a", 80, Protocol::Tcp), on("b", 80, Protocol::Tcp), on("c", 80, Protocol::Udp)]);
        let text = "Predicate NodePorts failed: node(s) didn't have free ports for the requested pod ports";
        assert_eq!(got, [Admission::Admitted, rejected("NodePorts", text), Admission::Admitted]);
    }

    #[test]
    fn a_released_address_is_reused_last() {
        let cidr = Some((Ipv4Addr::new(10, 88, 0, 0), 29));
        let mut observed =
            NodeObserved { capacity: Capacity { pod_cidr: cidr, pods: 9, ..capacity() }, ..Default::default() };
        let mut held = |names: &[(&str, Option<u8>)]| {
            observed.pods = names
                .iter()
                .map(|(name, last)| {
                    let mut summary = summary(pod(name, &["a"]));
                    summary.address = last.map(|l| Ipv4Addr::new(10, 88, 0, l));
                    summary.admitted = last.is_some();
                    summary
                })
                .collect();
            let plan = node(&observed);
            observed.last_address = plan.last_address;
            names
                .iter()
                .map(|(n, _)| plan.grants[&PodUid::new(*n).unwrap()].address.map(|a| a.octets()[3]))
                .collect::<Vec<_>>()
        };
        assert_eq!(held(&[("a", None), ("b", None)]), [Some(2), Some(3)]);
        assert_eq!(held(&[("b", Some(3)), ("c", None)]), [Some(3), Some(4)], "2 is free but was used most recently");
        assert_eq!(held(&[("b", Some(3)), ("c", Some(4)), ("d", None), ("e", None)])[2..], [Some(5), Some(6)]);
        let full = held(&[("b", Some(3)), ("c", Some(4)), ("d", Some(5)), ("e", Some(6)), ("f", None), ("g", None)]);
        assert_eq!(full[4..], [Some(2), None]);
    }
}
