//! One pod's observation, read the way the decisions need it, and the draft that they write to.

use super::pod::Plan;
use crate::model::action::{Action, ActionKey};
use crate::model::event::PodEvent;
use crate::model::observed::{ContainerFact, ContainerSeen, InFlight, Observed, Record};
use crate::model::pod::{Container, Pod};
use crate::model::status::{PodStatus, State, Terminated};
use crate::model::supervise::ContainerState;
use crate::model::time::Now;
use crate::model::{BootTime, ContainerId, Millis};
use std::collections::BTreeMap;

/// What is known, and when.
pub(super) struct View<'a> {
    pub(super) seen: &'a Observed,
    pub(super) pod: &'a Pod,
    pub(super) now: Now,
}

/// Where a container's newest attempt stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Life<'a> {
    /// It was never started.
    Absent,
    /// It is being started.
    Creating(&'a ContainerId),
    /// Its program runs.
    Running { id: &'a ContainerId, since: BootTime },
    /// It has ended.
    Ended(&'a Terminated),
}

impl<'a> Life<'a> {
    /// The attempt that exists, if one does.
    pub(super) fn live(self) -> Option<&'a ContainerId> {
        match self {
            Self::Creating(id) | Self::Running { id, .. } => Some(id),
            Self::Absent | Self::Ended(_) => None,
        }
    }
}

/// Whether an attempt still holds something of the pod.
pub(super) fn is_live(seen: &ContainerSeen) -> bool {
    matches!(seen.entry.state, ContainerState::Creating | ContainerState::Running { .. })
}

impl<'a> View<'a> {
    /// The container's newest attempt in the supervisor's table.
    fn newest(&self, name: &str) -> Option<&'a ContainerSeen> {
        self.seen.containers.iter().filter(|c| c.entry.name == name).max_by_key(|c| (is_live(c), c.entry.attempt))
    }

    pub(super) fn record(&self, name: &str) -> Option<&'a Record> {
        self.seen.facts.durable.containers.get(name).map(Box::as_ref)
    }

    pub(super) fn fact(&self, name: &str) -> Option<&'a ContainerFact> {
        self.seen.facts.volatile.containers.get(name).map(Box::as_ref)
    }

    pub(super) fn life(&self, name: &str) -> Life<'a> {
        if let Some(seen) = self.newest(name) {
            match &seen.entry.state {
                ContainerState::Creating => return Life::Creating(&seen.entry.id),
                ContainerState::Running { started_at, .. } => {
                    return Life::Running { id: &seen.entry.id, since: *started_at };
                }
                ContainerState::Exited(_) | ContainerState::StartFailed { .. } => {}
            }
        }
        match self.record(name) {
            None => Life::Absent,
            Some(Record { ended: Some(ended), .. }) => Life::Ended(ended),
            // Its end is not yet taken over: whatever it is, it is not to be started now.
            Some(record) => Life::Creating(&record.id),
        }
    }

    /// The container's newest attempt, if that belongs to the sandbox that is there.
    pub(super) fn record_here(&self, name: &str) -> Option<&'a Record> {
        let here = self.seen.sandbox.as_ref()?.attempt;
        self.record(name).filter(|r| r.sandbox == here)
    }

    /// The number of the next attempt.
    pub(super) fn next_attempt(&self, name: &str) -> u32 {
        let recorded = self.record(name).map(|r| r.attempt);
        let seen = self.seen.containers.iter().filter(|c| c.entry.name == name).map(|c| c.entry.attempt).max();
        recorded.max(seen).map_or(0, |newest| newest.saturating_add(1))
    }

    /// Whether any attempt of any container exists or is about to.
    pub(super) fn any_live(&self) -> bool {
        self.starting() || self.seen.containers.iter().any(is_live)
    }

    /// Whether a start is under way: the next one waits for its return.
    pub(super) fn starting(&self) -> bool {
        let asked = |f: &InFlight| matches!(f.key, ActionKey::StartContainer { .. });
        self.seen.in_flight.iter().any(asked)
            || self.seen.containers.iter().any(|c| matches!(c.entry.state, ContainerState::Creating))
    }

    pub(super) fn in_flight(&self, key: &ActionKey) -> Option<&'a InFlight> {
        self.seen.in_flight.iter().find(|f| f.key == *key)
    }

    /// All containers, init containers first.
    pub(super) fn containers(&self) -> impl Iterator<Item = &'a Container> + use<'a> {
        self.pod.spec.init_containers.iter().chain(&self.pod.spec.containers)
    }

    pub(super) fn grace(&self) -> Millis {
        Millis::from_secs(self.pod.spec.termination_grace_secs)
    }

    /// The status that was last shown.
    pub(super) fn shown(&self) -> Option<&'a PodStatus> {
        let facts = &self.seen.facts;
        facts.volatile.status.as_deref().or(facts.durable.finished.as_deref())
    }

    /// Why the container waits by the last status shown: a reason and a message.
    pub(super) fn shown_waiting(&self, name: &str) -> Option<(&'a str, Option<&'a str>)> {
        let status = self.shown()?;
        let mut all = status.init_containers.iter().chain(&status.containers);
        match &all.find(|c| c.name == name)?.state {
            State::Waiting { reason, message } => Some((reason, message.as_deref())),
            State::Running { .. } | State::Terminated(_) => None,
        }
    }

    /// Whether the last status shown had the container waiting for this reason.
    pub(super) fn was_waiting(&self, name: &str, reason: &str) -> bool {
        self.shown_waiting(name).is_some_and(|(shown, _)| shown == reason)
    }

    /// `name_namespace(uid)`, as upstream's messages have it.
    pub(super) fn title(&self) -> String {
        format!("{}_{}({})", self.pod.name, self.pod.namespace, self.pod.uid)
    }
}

/// Where a container stands in the pod, as events name it.
pub(super) fn field_path(pod: &Pod, container: &str) -> String {
    let init = pod.spec.init_containers.iter().any(|c| c.name == container);
    format!("spec.{}{{{container}}}", if init { "initContainers" } else { "containers" })
}

/// What a plan is written to.
#[derive(Default)]
pub(super) struct Draft {
    pub(super) plan: Plan,
    /// Why containers wait: a reason and a message.
    pub(super) waiting: BTreeMap<String, (String, Option<String>)>,
}

impl Draft {
    /// Adds an action, unless it is under way already. True when it was added.
    pub(super) fn act(&mut self, seen: &Observed, action: Action) -> bool {
        let key = action.key();
        if seen.in_flight.iter().any(|f| f.key == key) || self.plan.actions.iter().any(|a| a.key() == key) {
            return false;
        }
        self.plan.actions.push(action);
        true
    }

    /// Tells an action that is under way to give up, once.
    pub(super) fn cancel(&mut self, flight: &InFlight) {
        if !flight.cancelled {
            self.plan.actions.push(Action::Cancel { key: flight.key.clone() });
        }
    }

    /// Asks to be woken at `at`, or sooner. True when that moment is still to come.
    pub(super) fn wake(&mut self, at: BootTime, now: Now) -> bool {
        if at <= now.boot {
            return false;
        }
        self.plan.wake_at = Some(self.plan.wake_at.map_or(at, |w| w.min(at)));
        true
    }

    pub(super) fn event(&mut self, warning: bool, reason: &str, field_path: Option<String>, message: String) {
        self.plan.events.push(PodEvent { warning, reason: reason.into(), field_path, message });
    }

    pub(super) fn wait(&mut self, container: &str, reason: &str, message: Option<String>) {
        self.waiting.insert(container.into(), (reason.into(), message));
    }
}
