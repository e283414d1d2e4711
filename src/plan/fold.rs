//! Turns what came back from the world into facts. The agent stores the result and looks at the pod again.

use crate::model::action::{Action, Outcome};
use crate::model::event::PodEvent;
use crate::model::observed::{Facts, Observed, StopCause};
use crate::model::pod::Pod;
use crate::model::status::PodStatus;
use crate::model::time::Now;
use crate::model::{Millis, WallTime};
use std::net::Ipv4Addr;

/// Which facts changed, and what must happen first.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Changes {
    /// [`Facts::durable`] changed: commit it with the next commit.
    pub durable: bool,
    /// Commit it before the status is told to anyone.
    pub commit_first: bool,
    /// [`Facts::volatile`] changed in a way that an agent's restart should not lose.
    pub volatile: bool,
    /// To publish once.
    pub events: Vec<PodEvent>,
}

/// Takes a pod up: draws the line between this incarnation and any before.
#[must_use]
pub fn take_up(nonce: u64, now: WallTime) -> Facts {
    let _ = (nonce, now);
    Facts::default()
}

/// Records the address that the node plan granted.
pub fn granted(facts: &mut Facts, address: Option<Ipv4Addr>) -> Changes {
    let _ = (facts, address);
    Changes::default()
}

/// Asks a pod to stop, or to stop sooner: the deadline only ever comes nearer. `grace` replaces the spec's.
pub fn stop(facts: &mut Facts, pod: Option<&Pod>, cause: StopCause, grace: Option<Millis>, now: Now) -> Changes {
    let _ = (facts, pod, cause, grace, now);
    Changes::default()
}

/// Takes over what the supervisor's table says about the pod ([`Observed::containers`], complete), lost attempts
/// included. Safe to repeat; to be called on each observation, before [`super::pod`].
pub fn table(observed: &mut Observed, now: Now) -> Changes {
    let _ = (observed, now);
    Changes::default()
}

/// Takes over what came of an action. The action is no longer under way.
pub fn outcome(facts: &mut Facts, pod: Option<&Pod>, action: &Action, outcome: &Outcome, now: Now) -> Changes {
    let _ = (facts, pod, action, outcome, now);
    Changes::default()
}

/// Records the status that is about to be shown.
pub fn status(facts: &mut Facts, status: &PodStatus) -> Changes {
    let _ = (facts, status);
    Changes::default()
}
