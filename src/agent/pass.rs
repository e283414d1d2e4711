//! One pass over what may have changed: the node plan, then each pod.

use super::input::{Ended, Input};
use super::looping::Looping;
use super::mirror::Mirror;
use super::slot::{Flight, Slot};
use super::verbs;
use crate::executor;
use crate::model::action::{Action, ActionKey, Outcome};
use crate::model::api::PodVerb;
use crate::model::observed::{Observed, StopCause};
use crate::model::pod::Pod;
use crate::model::supervise::ContainerState;
use crate::model::time::Now;
use crate::model::view::{Attempt, PodView};
use crate::model::{ContainerId, ImageId, PodUid};
use crate::observe;
use crate::plan::fold::Changes;
use crate::plan::{self, Admission, Grants, NodeObserved, Plan, PodSummary};
use crate::sys::clock;
use crate::sys::random;
use std::collections::{BTreeMap, BTreeSet};
use std::net::Ipv4Addr;
use std::sync::Arc;

/// Key of the node's facts in the store.
pub(super) const LAST_ADDRESS: &str = "last-address";

/// Which address was granted last, as the store keeps it when a pod goes: while pods are there, the newest of them tells
/// it, and a start need not write it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct LastAddress {
    pub(super) address: Ipv4Addr,
    /// How many pods had arrived by then.
    pub(super) arrivals: u64,
}

impl LastAddress {
    fn text(self) -> Vec<u8> {
        format!("{} {}", self.address, self.arrivals).into_bytes()
    }

    /// Reads what was kept. None for anything else.
    pub(super) fn parse(text: &[u8]) -> Option<Self> {
        let (address, arrivals) = std::str::from_utf8(text).ok()?.split_once(' ')?;
        Some(Self { address: address.parse().ok()?, arrivals: arrivals.parse().ok()? })
    }
}

impl Looping {
    /// Makes reality and decisions meet again. Returns when nothing more can be decided now.
    pub(super) fn settle(&mut self) {
        if !self.table_seen || !(self.desired.ready() || self.shutdown.is_some()) {
            self.keep_all_volatile();
            self.show_node();
            return;
        }
        if !std::mem::replace(&mut self.remains_seen, true) && self.facts_complete {
            self.look_for_remains();
        }
        let now = clock::now();
        let due = self.slots.iter().filter(|(_, slot)| slot.wake_at.is_some_and(|at| at <= now.boot));
        self.dirty.extend(due.map(|(uid, _)| uid.clone()));
        loop {
            if std::mem::take(&mut self.node_dirty) {
                self.follow_desired(now);
                self.grant();
            }
            let Some(uid) = self.dirty.pop_first() else { break };
            self.look(&uid, now);
        }
        // What has changed of pods that cannot be looked at yet.
        self.keep_all_volatile();
        self.power_off_when_quiet();
        self.publisher.settled();
        self.show_node();
    }

    fn show_node(&mut self) {
        self.publisher.addresses(&self.node.host_ips);
        self.conditions.insert("FactsNotStored", self.journal.refused());
        let shown = self.conditions.iter().filter_map(|(word, text)| Some(((*word).to_owned(), text.clone()?)));
        self.publisher.conditions(shown.chain(self.lacks.iter().cloned()).collect());
        self.publisher.flush();
    }

    /// Takes up what pods have left that nobody knows any more: folders get a slot and so a teardown, links go at once.
    fn look_for_remains(&mut self) {
        for uid in observe::pods_on_disk(&self.rooms.config) {
            self.slots.entry(uid.clone()).or_default();
            self.dirty.insert(uid);
        }
        self.node_dirty = true;
        let wanted = self.desired.pods().into_iter().map(|pod| pod.uid.clone());
        let known: Vec<PodUid> = self.slots.keys().cloned().chain(wanted).collect();
        executor::remove_unknown_links(known);
    }

    /// Takes new pods up and asks those that nobody wants any more to stop.
    fn follow_desired(&mut self, now: Now) {
        let mut wanted = if self.shutdown.is_some() { Vec::new() } else { self.desired.pods() };
        if self.desired.is_complete() && self.shutdown.is_none() {
            let uids = wanted.iter().map(|pod| &pod.uid).collect();
            if self.verbs.keep_only(&uids) {
                self.journal.meta(verbs::FACT, self.verbs.to_keep());
            }
        }
        let held = wanted.extract_if(.., |pod| self.verbs.hold(&pod.uid));
        let names = held.filter(|pod| self.verbs.stopped().contains(&pod.uid));
        self.publisher.stopped(names.map(|pod| format!("{}/{}", pod.namespace, pod.name)).collect());
        for pod in &wanted {
            let arrivals = &mut self.arrivals;
            let slot = self.slots.entry(pod.uid.clone()).or_default();
            if slot.arrival == 0 {
                *arrivals += 1;
                slot.arrival = *arrivals;
            }
            if slot.facts.durable.start_time.is_none() {
                slot.facts.durable = plan::fold::take_up(random::u64(), now.wall).durable;
                self.dirty.insert(pod.uid.clone());
            }
            if slot.pod.as_ref() != Some(pod) {
                slot.pod = Some(Arc::clone(pod));
                self.dirty.insert(pod.uid.clone());
            }
            slot.desired = true;
        }
        let cause = if self.shutdown.is_some() { StopCause::Shutdown } else { StopCause::Removed };
        let wanted: BTreeSet<&PodUid> = wanted.iter().map(|pod| &pod.uid).collect();
        let to_stop: Vec<PodUid> = self.slots.keys().filter(|uid| !wanted.contains(uid)).cloned().collect();
        for uid in to_stop {
            let cause = cause.clone();
            self.fold(&uid, |slot, now| {
                slot.desired = false;
                plan::fold::stop(&mut slot.facts, slot.pod.as_deref(), cause, None, now)
            });
            self.dirty.insert(uid);
        }
    }

    /// Runs the node plan and looks again at the pods whose grants changed.
    fn grant(&mut self) {
        let mut pods: Vec<(u64, PodSummary)> = self.slots.values().filter_map(summary).collect();
        pods.sort_by_key(|(arrival, _)| *arrival);
        let pods = pods.into_iter().map(|(_, summary)| summary).collect();
        let observed = NodeObserved { capacity: self.capacity.clone(), pods, last_address: self.last_address };
        let plan = plan::node(&observed);
        if plan.last_address != self.last_address {
            self.last_address = plan.last_address;
        }
        let weights = (plan.burstable_cpu_weight, plan.besteffort_cpu_weight);
        if self.weights != Some(weights) {
            self.weights = Some(weights);
            executor::set_qos_weights(&self.rooms, weights.0, weights.1);
        }
        for (uid, grants) in plan.grants {
            if self.grants.get(&uid) != Some(&grants) {
                let address = grants.address;
                self.fold(&uid, |slot, _| plan::fold::granted(&mut slot.facts, address));
                self.grants.insert(uid.clone(), grants);
                self.dirty.insert(uid);
            }
        }
    }

    /// Changes a pod's facts and keeps what must be kept.
    pub(super) fn fold(&mut self, uid: &PodUid, change: impl FnOnce(&mut Slot, Now) -> Changes) {
        let now = clock::now();
        let Some(slot) = self.slots.get_mut(uid) else { return };
        let changes = change(slot, now);
        self.keep(uid, changes, now);
    }

    fn keep(&mut self, uid: &PodUid, changes: Changes, now: Now) {
        let Some(slot) = self.slots.get_mut(uid) else { return };
        if changes.durable
            && let Some(bytes) = slot.saved()
        {
            let number = self.journal.pod(uid, bytes);
            slot.written = number;
            if changes.commit_first {
                slot.hold_until = number;
            }
        } else if changes.later
            && let Some(bytes) = slot.saved()
        {
            self.journal.pod_later(uid, bytes);
        }
        if changes.volatile {
            self.owed.insert(uid.clone());
        }
        if let Some(pod) = slot.pod.clone() {
            for event in changes.events {
                self.publisher.event(&pod, event, now.wall);
            }
        }
    }

    /// Keeps the pod's facts of this boot, if they changed: once for all changes of a pass, before its actions start.
    fn keep_volatile(&mut self, uid: &PodUid) {
        if self.owed.remove(uid)
            && let Some(slot) = self.slots.get(uid)
        {
            executor::keep_volatile(&self.rooms, uid, &slot.facts.volatile);
        }
    }

    pub(super) fn keep_all_volatile(&mut self) {
        while let Some(uid) = self.owed.first().cloned() {
            self.keep_volatile(&uid);
        }
    }

    /// Looks at one pod: observe, plan, start and cancel, publish, arm.
    fn look(&mut self, uid: &PodUid, now: Now) {
        let Some(slot) = self.slots.get_mut(uid) else { return };
        let waiting = Grants { admission: Admission::Waiting { message: String::new() }, address: None };
        let grants = self.grants.get(uid).cloned().unwrap_or(waiting);
        let images = slot.pod.as_deref().map(|pod| executor::images_of(&self.rooms, pod)).unwrap_or_default();
        let mut observed = Observed {
            uid: uid.clone(),
            pod: slot.pod.clone(),
            sandbox: self.mirror.sandbox_of(uid).cloned(),
            containers: slot.words.seen(&self.mirror.containers_of(uid)),
            images,
            in_flight: slot.in_flight(),
            facts: std::mem::take(&mut slot.facts),
            uncommitted: slot.written > self.committed,
            node: self.node.clone(),
        };
        let from_table = plan::fold::table(&mut observed, now);
        let was_finished = observed.facts.durable.finished.is_some();
        let plan = plan::pod(&observed, &grants, now);
        let mut facts = observed.facts;
        let from_status = plan::fold::status(&mut facts, &plan.status);
        let finished = facts.durable.finished.is_some() != was_finished;
        slot.facts = facts;
        slot.wake_at = plan.wake_at;
        self.node_dirty |= finished;
        self.keep(uid, from_table, now);
        self.keep(uid, from_status, now);
        self.keep_volatile(uid);
        self.carry_out(uid, plan, now);
    }

    fn carry_out(&mut self, uid: &PodUid, plan: Plan, now: Now) {
        let Some(slot) = self.slots.get_mut(uid) else { return };
        if let Some(pod) = slot.pod.clone() {
            for event in plan.events {
                self.publisher.event(&pod, event, now.wall);
            }
        }
        if plan.gone {
            self.forget(uid);
            return;
        }
        for action in plan.actions {
            match action {
                Action::Cancel { key } => self.cancel(uid, &key),
                action => self.start(uid, action, now),
            }
        }
        let Some(slot) = self.slots.get_mut(uid) else { return };
        if slot.hold_until > self.committed {
            return;
        }
        slot.hold_until = 0;
        if let Some(pod) = slot.pod.clone() {
            let attempts = attempts(slot, &pod, &self.node.pod_logs_dir, &self.mirror);
            self.publisher.pod(uid, PodView { pod, status: plan.status, attempts });
        }
    }

    fn forget(&mut self, uid: &PodUid) {
        self.slots.remove(uid);
        self.grants.remove(uid);
        if let Some(address) = self.last_address {
            self.journal.meta(LAST_ADDRESS, LastAddress { address, arrivals: self.arrivals }.text());
        }
        // What is known of this boot stays until the disk knows no more of the pod: an agent that begins in between would
        // take it for one that is to run.
        let number = self.journal.forget(uid);
        self.forgotten.push((number, uid.clone()));
        self.publisher.gone(uid);
        self.verbs.gone(uid);
        self.node_dirty = true;
    }

    /// Stops a pod, or starts it anew.
    pub(super) fn take_verb(&mut self, namespace: &str, name: &str, verb: PodVerb, answer: verbs::Answer) {
        let here = self.slots.values().filter_map(|slot| slot.pod.clone());
        let mut named =
            self.desired.pods().into_iter().chain(here).filter(|pod| pod.namespace == namespace && pod.name == name);
        let Some(pod) = named.next() else {
            // Whoever went away does not want to know.
            let _ = answer.send(Err(verbs::unknown(namespace, name)));
            return;
        };
        if self.verbs.act(&pod.uid, verb, self.slots.contains_key(&pod.uid), answer) {
            self.journal.meta(verbs::FACT, self.verbs.to_keep());
        }
        self.node_dirty = true;
    }

    /// The images that pods of this node are made of, by what runs and by what their manifests name.
    pub(super) fn needed_images(&self) -> BTreeMap<ImageId, String> {
        let mut needed = BTreeMap::new();
        let wanted = self.desired.pods();
        for pod in self.slots.values().filter_map(|slot| slot.pod.as_ref()).chain(&wanted) {
            let containers = pod.spec.init_containers.iter().chain(&pod.spec.containers);
            for image in containers.filter_map(|container| self.rooms.images.resolve(&container.image)) {
                needed.entry(image.id).or_insert_with(|| format!("{}/{}", pod.namespace, pod.name));
            }
        }
        // What runs may be of an image whose name another one has by now.
        let images = self.rooms.images.list();
        for slot in self.slots.values() {
            let Some(pod) = &slot.pod else { continue };
            for record in slot.facts.durable.containers.values().filter(|record| record.ended.is_none()) {
                let is_of = |image: &&crate::images::Image| {
                    record.image_id == format!("sha256:{}", image.id)
                        || image.digests.iter().any(|digest| record.image_id.ends_with(digest.as_str()))
                };
                for image in images.iter().filter(is_of) {
                    needed.entry(image.id.clone()).or_insert_with(|| format!("{}/{}", pod.namespace, pod.name));
                }
            }
        }
        needed
    }

    /// Drops what was known in this boot of pods that the disk has forgotten. One that is wanted anew has facts of its own.
    pub(super) fn drop_forgotten(&mut self) {
        let committed = self.committed;
        for (_, uid) in self.forgotten.extract_if(.., |(number, _)| *number <= committed) {
            if !self.slots.contains_key(&uid) {
                executor::drop_volatile(&self.rooms, &uid);
            }
        }
    }

    fn start(&mut self, uid: &PodUid, action: Action, now: Now) {
        let Some(slot) = self.slots.get_mut(uid) else { return };
        let key = action.key();
        tracing::debug!(pod = %uid, action = ?key, "start");
        let job = executor::Job {
            uid: uid.clone(),
            pod: slot.pod.clone(),
            sandbox: self.mirror.sandbox_of(uid).cloned(),
            container: target(&action).and_then(|id| self.mirror.get(id)).cloned(),
            action: action.clone(),
        };
        let (rooms, tell) = (Arc::clone(&self.rooms), self.inputs.clone());
        let (uid, ended_key) = (uid.clone(), key.clone());
        let task = tokio::spawn(async move {
            let outcome = executor::perform(&rooms, job).await;
            // When the loop has ended the next agent does it again: every action is safe to repeat.
            let _ = tell.send(Input::Ended(Ended { uid, key: ended_key, outcome }));
        });
        slot.flights.insert(key, Flight { action, since: now.boot, cancelled: false, abort: task.abort_handle() });
    }

    /// Only what leaves nothing half done when it stops anywhere is stopped; the rest ends by its own deadline.
    fn cancel(&mut self, uid: &PodUid, key: &ActionKey) {
        let Some(flight) = self.slots.get_mut(uid).and_then(|slot| slot.flights.get_mut(key)) else { return };
        if std::mem::replace(&mut flight.cancelled, true) {
            return;
        }
        if matches!(key, ActionKey::Probe { .. } | ActionKey::EnsureImage { .. }) {
            flight.abort.abort();
            let ended = Ended { uid: uid.clone(), key: key.clone(), outcome: Outcome::Cancelled };
            // The loop is running: this is it.
            let _ = self.inputs.send(Input::Ended(ended));
        }
    }

    /// On the way down: once no container is left and how each ended is on the disk, process 1 may end the node. It does
    /// so by itself when that takes too long.
    fn power_off_when_quiet(&mut self) {
        let Some(reboot) = self.shutdown else { return };
        let done = |slot: &Slot| slot.flights.is_empty() && !slot.words.are_awaited();
        let stored = self.journal.newest() <= self.committed;
        if !self.powering_off && stored && self.mirror.quiet() && self.slots.values().all(done) {
            self.powering_off = true;
            let rooms = Arc::clone(&self.rooms);
            tokio::spawn(async move { executor::power_off(&rooms, reboot).await });
        }
    }
}

/// The attempt that an action is about.
fn target(action: &Action) -> Option<&ContainerId> {
    match action {
        Action::Signal { id, .. }
        | Action::Kill { id, .. }
        | Action::Probe { id, .. }
        | Action::RemoveContainer { id, .. } => Some(id),
        _ => None,
    }
}

fn summary(slot: &Slot) -> Option<(u64, PodSummary)> {
    let durable = &slot.facts.durable;
    let summary = PodSummary {
        pod: slot.pod.clone()?,
        stopping: slot.facts.volatile.stop.is_some(),
        finished: durable.finished.is_some(),
        admitted: durable.sandbox.is_some(),
        address: durable.address,
    };
    Some((slot.arrival, summary))
}

/// The attempts that people can ask about: of each container the newest and the one before, whose log is kept.
fn attempts(slot: &Slot, pod: &Pod, logs: &str, mirror: &Mirror) -> Vec<Attempt> {
    let mut attempts = Vec::new();
    for (name, record) in &slot.facts.durable.containers {
        let path = |attempt| plan::log_path(logs, pod, name, attempt);
        let before = record.before.as_ref().and_then(|before| before.container_id.clone());
        if let (Some(id), Some(attempt)) = (before, record.attempt.checked_sub(1)) {
            let (container, log_path) = (name.clone(), path(attempt));
            attempts.push(Attempt { container, id, attempt, log_path, cgroup: String::new(), pid: None });
        }
        let entry = mirror.get(&record.id);
        let pid = entry.and_then(|entry| match &entry.state {
            ContainerState::Running { pid, .. } => Some(*pid),
            ContainerState::Creating | ContainerState::Exited(_) | ContainerState::StartFailed { .. } => None,
        });
        attempts.push(Attempt {
            container: name.clone(),
            id: record.id.clone(),
            attempt: record.attempt,
            log_path: path(record.attempt),
            cgroup: entry.map(|entry| entry.cgroup.clone()).unwrap_or_default(),
            pid,
        });
    }
    attempts
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_address_is_read_as_it_was_written() {
        let last = LastAddress { address: Ipv4Addr::new(10, 85, 0, 9), arrivals: 12 };
        assert_eq!(LastAddress::parse(&last.text()), Some(last));
        for bad in ["", "10.85.0.9", "10.85.0.9 x", "x 12", "\u{fffd} 1"] {
            assert_eq!(LastAddress::parse(bad.as_bytes()), None, "{bad}");
        }
    }
}
