//! What to do next for one pod.

use super::node::Grants;
use crate::model::BootTime;
use crate::model::action::Action;
use crate::model::event::PodEvent;
use crate::model::observed::Observed;
use crate::model::status::PodStatus;
use crate::model::time::Now;

/// What to do next for one pod.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Plan {
    /// To start at once, in any order. Empty while reality does not change before `wake_at`.
    pub actions: Vec<Action>,
    /// To publish once, now.
    pub events: Vec<PodEvent>,
    /// What the pod is. To be handed to [`super::fold::status`] before it is told to anyone.
    pub status: PodStatus,
    /// When to look again even though nothing happened.
    pub wake_at: Option<BootTime>,
    /// Nothing of the pod is left: forget its facts.
    pub gone: bool,
}

/// Decides what to do next for one pod. Total and deterministic: any input yields a plan, the same one each time.
#[must_use]
pub fn pod(observed: &Observed, grants: &Grants, now: Now) -> Plan {
    let _ = (observed, grants, now);
    Plan::default()
}
