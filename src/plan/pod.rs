//! What to do next for one pod (`SyncPod`, `SyncTerminatingPod`, `SyncTerminatedPod`).

use super::conditions::{no_network, sandbox_ready};
use super::node::{Admission, Grants};
use super::sequence::{self, Condemned, Sequence};
use super::start;
use super::status;
use super::termination::{self, Teardown};
use super::view::{Draft, Life, View, is_live};
use super::{images, probes, resources};
use crate::model::action::{Action, SandboxPlan};
use crate::model::event::PodEvent;
use crate::model::observed::{Observed, PodStop, StopCause, VolumeFact};
use crate::model::pod::Pod;
use crate::model::status::{Phase, PodStatus};
use crate::model::time::Now;
use crate::model::{BootTime, Millis};

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

/// The grace of a container that nobody knows the pod of.
const ORPHAN_GRACE: Millis = Millis::from_secs(1);

/// Decides what to do next for one pod. Total and deterministic: any input yields a plan, the same one each time.
#[must_use]
pub fn pod(observed: &Observed, grants: &Grants, now: Now) -> Plan {
    let mut draft = Draft::default();
    let Some(pod) = observed.pod.as_deref() else {
        orphan(observed, &mut draft, now);
        return draft.plan;
    };
    let view = View { seen: observed, pod, now };
    let facts = &observed.facts;
    match (&facts.volatile.stop, &facts.durable.finished, &grants.admission) {
        (Some(stop), _, _) => stopping(&view, &mut draft, stop),
        (None, Some(_), _) => finished(&view, &mut draft),
        (None, None, Admission::Rejected { reason, message }) => reject(&view, &mut draft, reason, message),
        (None, None, Admission::Waiting { .. }) => draft.plan.status = status::status(&view, &draft),
        (None, None, Admission::Admitted) => run(&view, &mut draft, grants),
    }
    let ended = matches!(draft.plan.status.phase, Phase::Succeeded | Phase::Failed);
    if ended && facts.durable.finished.is_none() && facts.volatile.stop.as_ref().is_none_or(|stop| stop.cause.is_end())
    {
        // Once that is committed, what the pod still holds can go.
        draft.plan.wake_at = Some(now.boot);
    }
    draft.plan
}

/// Containers, or remains on disk, of a pod that nobody knows.
fn orphan(seen: &Observed, draft: &mut Draft, now: Now) {
    if seen.facts.volatile.torn_down.all {
        draft.plan.gone = true;
        return;
    }
    let since = seen.facts.volatile.stop.as_ref().map_or(now.boot, |s| s.since);
    for container in seen.containers.iter().filter(|c| is_live(c)) {
        let (name, id) = (&container.entry.name, &container.entry.id);
        let message = format!("Stopping container {name}");
        termination::stop(seen, draft, None, now, (name, id), since + ORPHAN_GRACE, message);
    }
    draft.plan.status.terminating = true;
    if !seen.containers.iter().any(is_live) {
        Teardown { seen, pod: None, now, everything: true }.step(draft);
    }
}

fn stopping(view: &View<'_>, draft: &mut Draft, stop: &PodStop) {
    let seen = view.seen;
    if seen.facts.volatile.torn_down.all {
        draft.plan.gone = true;
    }
    termination::cancel_work(seen, draft);
    if view.any_live() {
        termination::stop_in_order(view, draft, stop.deadline);
        termination::probe_while_stopping(view, draft);
        termination::remove_ended(seen, draft, view.now);
    } else if !draft.plan.gone {
        let everything = stop.cause == StopCause::Removed;
        Teardown { seen, pod: Some(view.pod), now: view.now, everything }.step(draft);
    }
    draft.plan.status = match &seen.facts.durable.finished {
        Some(status) => PodStatus { terminating: true, ..(**status).clone() },
        None => status::status(view, draft),
    };
    if let StopCause::Evicted { reason, message } = &stop.cause
        && seen.facts.durable.finished.is_none()
        && !view.any_live()
    {
        let status = &mut draft.plan.status;
        status.phase = Phase::Failed;
        status.reason = Some(reason.clone());
        status.message = Some(message.clone());
    }
}

/// A pod that has ended for good: nothing of it holds anything but its folders and logs.
fn finished(view: &View<'_>, draft: &mut Draft) {
    let seen = view.seen;
    termination::cancel_work(seen, draft);
    if view.any_live() {
        termination::stop_in_order(view, draft, finish_deadline(view));
    } else if !seen.uncommitted {
        // Had the agent forgotten the end, the pod would go on with what is left of it.
        Teardown { seen, pod: Some(view.pod), now: view.now, everything: false }.step(draft);
    }
    draft.plan.status = seen.facts.durable.finished.as_deref().cloned().unwrap_or_default();
}

fn reject(view: &View<'_>, draft: &mut Draft, reason: &str, message: &str) {
    draft.event(true, reason, None, message.into());
    draft.plan.status = status::rejected(view, reason, message);
}

fn run(view: &View<'_>, draft: &mut Draft, grants: &Grants) {
    termination::remove_ended(view.seen, draft, view.now);
    if view.seen.sandbox.is_some() {
        run_in_sandbox(view, draft, grants);
    } else {
        make_sandbox(view, draft);
    }
    draft.plan.status = status::status(view, draft);
}

fn make_sandbox(view: &View<'_>, draft: &mut Draft) {
    let seen = view.seen;
    if view.any_live() {
        // The namespaces are gone: what ran in them cannot stay.
        termination::stop_in_order(view, draft, view.now.boot + view.grace());
        return;
    }
    let first = sequence::without_sandbox(view);
    if first.is_empty() {
        return;
    }
    images::prefetch(view, draft, view.containers());
    if !volumes(view, draft) {
        return;
    }
    if let Some(why) = no_network(view) {
        let told = view.shown().into_iter().flat_map(|s| &s.conditions).any(|c| c.message.as_ref() == Some(&why));
        if !told {
            draft.event(true, "NetworkNotReady", None, why);
        }
        return;
    }
    if waits_after_failure(view, draft) {
        return;
    }
    let newest = seen.facts.durable.sandbox.max(seen.facts.volatile.sandbox);
    let attempt = newest.map_or(0, |newest| newest.saturating_add(1));
    let created = draft.act(seen, Action::CreateSandbox(sandbox_plan(view, attempt)));
    if created && attempt > 0 && seen.facts.volatile.sandbox_failure.is_none() {
        let message = "Pod sandbox changed, it will be killed and re-created.";
        draft.event(false, "SandboxChanged", None, message.into());
    }
}

fn waits_after_failure(view: &View<'_>, draft: &mut Draft) -> bool {
    let failure = view.seen.facts.volatile.sandbox_failure.as_ref();
    failure.is_some_and(|f| draft.wake(f.at(), view.now))
}

fn sandbox_plan(view: &View<'_>, attempt: u32) -> SandboxPlan {
    let pod = view.pod;
    SandboxPlan {
        attempt,
        host_network: pod.spec.host_network,
        hostname: (!pod.spec.host_network).then(|| hostname(pod)),
        cgroup: resources::pod_cgroup(pod),
        limits: resources::pod_limits(pod, &view.seen.node),
    }
}

/// `spec.hostname`, else the pod's name, cut to the 63 characters of a label (`GeneratePodHostNameAndDomain`).
#[must_use]
pub fn hostname(pod: &Pod) -> String {
    let full = pod.spec.hostname.as_ref().unwrap_or(&pod.name);
    let cut: String = full.chars().take(63).collect();
    cut.trim_end_matches(['-', '.']).to_owned()
}

/// Prepares what is not ready. True once every volume is.
fn volumes(view: &View<'_>, draft: &mut Draft) -> bool {
    let mut all = true;
    for volume in &view.pod.spec.volumes {
        match view.seen.facts.volatile.volumes.get(&volume.name) {
            Some(VolumeFact::Ready) => continue,
            Some(VolumeFact::Failed(retry)) if draft.wake(retry.at(), view.now) => {}
            Some(VolumeFact::Failed(_)) | None => {
                draft.act(view.seen, Action::PrepareVolume { volume: volume.name.clone() });
            }
        }
        all = false;
    }
    all
}

fn run_in_sandbox(view: &View<'_>, draft: &mut Draft, grants: &Grants) {
    let sequence = sequence::in_sandbox(view);
    if !sequence.finish {
        images::prefetch(view, draft, waiting_for_images(view));
    }
    if !attach(view, draft, grants) {
        return;
    }
    for container in view.containers() {
        if let Life::Running { id, since } = view.life(&container.name) {
            probes::run(view, draft, container, id, since);
        }
    }
    let Sequence { start, stop, finish } = sequence;
    for Condemned { container, id, grace, message } in stop {
        let deadline = view.now.boot + grace;
        termination::stop(view.seen, draft, Some(view.pod), view.now, (&container.name, id), deadline, message);
    }
    let main_live = view.containers().any(|c| !c.is_sidecar() && view.life(&c.name).live().is_some());
    if finish && !main_live {
        termination::stop_in_order(view, draft, finish_deadline(view));
        return;
    }
    termination::stop_strangers(view, draft, view.now.boot + view.grace());
    // A volume that a restarted agent knows nothing of is prepared again before it is mounted again.
    if start.is_empty() || volumes(view, draft) {
        start::next(view, draft, &start);
    }
}

/// Containers that have not run in this sandbox: those whose image may be missing.
fn waiting_for_images<'a>(view: &View<'a>) -> impl Iterator<Item = &'a crate::model::pod::Container> {
    let fresh: Vec<_> = view.containers().filter(|c| view.record_here(&c.name).is_none()).collect();
    fresh.into_iter()
}

/// Sees to the sandbox's network. True once it is there.
fn attach(view: &View<'_>, draft: &mut Draft, grants: &Grants) -> bool {
    if sandbox_ready(view) {
        return true;
    }
    let Some(sandbox) = &view.seen.sandbox else { return false };
    if let Some(old) = &view.seen.facts.volatile.network {
        let attempt = old.attempt;
        termination::retried(view.seen, draft, view.now, Action::DetachNetwork { attempt });
    } else if no_network(view).is_none() && !waits_after_failure(view, draft) {
        let address = grants.address;
        draft.act(view.seen, Action::AttachNetwork { attempt: sandbox.attempt, address });
    }
    false
}

/// When the sidecars of a pod that has done its work are killed: the pod's grace after its last other container's end.
fn finish_deadline(view: &View<'_>) -> BootTime {
    let ends = view.containers().filter(|c| !c.is_sidecar()).filter_map(|c| view.fact(&c.name)?.finished_at);
    ends.max().unwrap_or(view.now.boot) + view.grace()
}
