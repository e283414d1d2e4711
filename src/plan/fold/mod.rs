//! Turns what came back from the world into facts. The agent stores the result and looks at the pod again.
//!
//! Volatile facts are stored before an action that was planned from them starts; durable ones go to the disk beside it,
//! and [`Observed::uncommitted`](crate::model::observed::Observed::uncommitted) says so until they are there.

mod outcome;
mod table;

pub use outcome::outcome;
pub use table::table;

use super::termination::MIN_GRACE;
use crate::model::event::PodEvent;
use crate::model::observed::{Durable, Facts, PodStop, StopCause};
use crate::model::pod::Pod;
use crate::model::status::{Phase, PodStatus};
use crate::model::time::Now;
use crate::model::{Millis, WallTime};
use std::net::Ipv4Addr;

/// Which facts changed, and what must happen first.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Changes {
    /// [`Facts::durable`] changed: commit it.
    pub durable: bool,
    /// [`Facts::durable`] changed in a way that another change will follow soon: commit it with that one.
    pub later: bool,
    /// Commit it before the status is told to anyone.
    pub commit_first: bool,
    /// [`Facts::volatile`] changed in a way that an agent's restart should not lose.
    pub volatile: bool,
    /// To publish once.
    pub events: Vec<PodEvent>,
}

impl Changes {
    /// Both together.
    #[must_use]
    pub fn and(mut self, other: Self) -> Self {
        self.durable |= other.durable;
        self.later |= other.later;
        self.commit_first |= other.commit_first;
        self.volatile |= other.volatile;
        self.events.extend(other.events);
        self
    }

    fn event(&mut self, warning: bool, reason: &str, field_path: Option<String>, message: String) {
        self.events.push(PodEvent { warning, reason: reason.into(), field_path, message });
    }
}

/// Takes a pod up. `nonce` is random: it draws the line between this incarnation and any before.
#[must_use]
pub fn take_up(nonce: u64, now: WallTime) -> Facts {
    let durable = Durable { nonce, start_time: Some(now), ..Durable::default() };
    Facts { durable, ..Facts::default() }
}

/// Records the address that the node plan granted. A pod that is ending gives up what it has only with its network.
pub fn granted(facts: &mut Facts, address: Option<Ipv4Addr>) -> Changes {
    let durable = address.is_some() && facts.durable.address != address;
    if durable {
        facts.durable.address = address;
    }
    Changes { durable, commit_first: durable, ..Changes::default() }
}

/// Asks a pod to stop, or to stop sooner: the deadline only ever comes nearer. `grace` replaces the spec's. A pod that
/// is no longer desired stays so; the node's own stop gives way to that.
pub fn stop(facts: &mut Facts, pod: Option<&Pod>, cause: StopCause, grace: Option<Millis>, now: Now) -> Changes {
    let spec = pod.map_or(MIN_GRACE, |p| Millis::from_secs(p.spec.termination_grace_secs));
    let deadline = now.boot + grace.unwrap_or(spec).max(Millis::from_secs(1));
    let next = match &facts.volatile.stop {
        None => PodStop { cause, since: now.boot, deadline },
        Some(stop) => {
            let cause = if cause == StopCause::Removed { cause } else { stop.cause.clone() };
            PodStop { cause, since: stop.since, deadline: stop.deadline.min(deadline) }
        }
    };
    let volatile = facts.volatile.stop.as_ref() != Some(&next);
    facts.volatile.stop = Some(next);
    Changes { volatile, ..Changes::default() }
}

/// Takes back what a shutdown asked of a pod: the node stays up.
pub fn go_on(facts: &mut Facts) -> Changes {
    let volatile = facts.volatile.stop.take_if(|stop| stop.cause == StopCause::Shutdown).is_some();
    Changes { volatile, ..Changes::default() }
}

/// Records the status that is about to be shown. An end for good is remembered, and committed before it is told.
pub fn status(facts: &mut Facts, status: &PodStatus) -> Changes {
    let mut changes = Changes::default();
    if facts.volatile.status.as_deref() != Some(status) {
        facts.volatile.status = Some(Box::new(status.clone()));
        changes.volatile = true;
    }
    let ended = matches!(status.phase, Phase::Succeeded | Phase::Failed);
    let end = facts.volatile.stop.as_ref().is_none_or(|stop| stop.cause.is_end());
    if ended && end && facts.durable.finished.is_none() {
        facts.durable.finished = Some(Box::new(PodStatus { terminating: false, ..status.clone() }));
        (changes.durable, changes.commit_first) = (true, true);
    }
    changes
}
