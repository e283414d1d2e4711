//! Stopping: one container, a pod's containers in order, and what is left of the pod afterwards
//! (`kuberuntime_container.go` killContainer, `kuberuntime_termination_order.go`).

use super::view::{Draft, Life, View, field_path, is_live};
use crate::model::action::{Action, ActionKey};
use crate::model::observed::{ContainerStop, Observed};
use crate::model::pod::{Container, Pod};
use crate::model::supervise::ContainerState;
use crate::model::time::Now;
use crate::model::{BootTime, ContainerId, Millis};

/// What a stop signal has at the least before the kill follows.
pub(super) const MIN_GRACE: Millis = Millis::from_secs(2);

/// How long a kill may go unanswered before it is repeated.
const KILL_AGAIN: Millis = Millis::from_secs(10);

/// The stop of an attempt that is under way.
fn stop_of<'a>(seen: &'a Observed, name: &str, id: &ContainerId) -> Option<&'a ContainerStop> {
    seen.facts.volatile.containers.get(name)?.stop.as_ref().filter(|s| s.id == *id)
}

/// When an attempt that was signalled may be killed: its own deadline or the pod's, whichever is earlier, but never
/// sooner after the signal than the least grace.
pub(super) fn kill_at(stop: &ContainerStop, deadline: BootTime) -> BootTime {
    stop.deadline.min(deadline).max(stop.signalled_at + MIN_GRACE)
}

/// Signals an attempt, then kills it once its time is over. `message` goes into the event.
pub(super) fn stop(
    seen: &Observed,
    draft: &mut Draft,
    pod: Option<&Pod>,
    now: Now,
    (name, id): (&str, &ContainerId),
    deadline: BootTime,
    message: String,
) {
    let Some(entry) = seen.containers.iter().find(|c| c.entry.id == *id) else { return };
    if matches!(entry.entry.state, ContainerState::Creating) {
        // There is no program yet that could hear a signal.
        if !draft.wake(deadline, now) {
            draft.act(seen, Action::Kill { id: id.clone(), container: name.into() });
        }
        return;
    }
    let Some(stop) = stop_of(seen, name, id) else {
        if draft.act(seen, signal(seen, pod, (name, id), deadline, now)) {
            draft.event(false, "Killing", pod.map(|p| field_path(p, name)), message);
        }
        return;
    };
    let at = stop.killed_at.map_or_else(|| kill_at(stop, deadline), |killed| killed + KILL_AGAIN);
    if !draft.wake(at, now) {
        draft.act(seen, Action::Kill { id: id.clone(), container: name.into() });
        return;
    }
    // A signal that could not be sent is sent in what is left of the time, which does not begin anew.
    if stop.killed_at.is_none() && stop.signal_again.is_some_and(|again| !draft.wake(again, now)) {
        draft.act(seen, signal(seen, pod, (name, id), at, now));
    }
}

/// The stop signal: the image's own, else SIGTERM.
fn signal(
    seen: &Observed,
    pod: Option<&Pod>,
    (name, id): (&str, &ContainerId),
    deadline: BootTime,
    now: Now,
) -> Action {
    let image = pod.and_then(|p| find(p, name)).and_then(|c| seen.images.get(&c.image));
    let signal = image.and_then(|i| i.stop_signal.clone()).unwrap_or_else(|| "SIGTERM".into());
    let grace = deadline.since(now.boot).max(MIN_GRACE);
    Action::Signal { id: id.clone(), container: name.into(), signal, grace }
}

fn find<'a>(pod: &'a Pod, name: &str) -> Option<&'a Container> {
    pod.spec.init_containers.iter().chain(&pod.spec.containers).find(|c| c.name == name)
}

/// Stops every container of the pod: sidecars after all others, in reverse order, each once the later ones are gone.
/// When the time is over all are stopped at once.
pub(super) fn stop_in_order(view: &View<'_>, draft: &mut Draft, deadline: BootTime) {
    let spec = &view.pod.spec;
    let mut later_live = false;
    let stop_one = |draft: &mut Draft, name: &str, id: &ContainerId| {
        let message = format!("Stopping container {name}");
        stop(view.seen, draft, Some(view.pod), view.now, (name, id), deadline, message);
    };
    for container in spec.containers.iter().chain(spec.init_containers.iter().filter(|c| !c.is_sidecar())) {
        later_live |= start_in_flight(view, container);
        if let Some(id) = view.life(&container.name).live() {
            later_live = true;
            stop_one(draft, &container.name, id);
        }
    }
    let over = view.now.boot >= deadline;
    for sidecar in spec.init_containers.iter().rev().filter(|c| c.is_sidecar()) {
        if let Some(id) = view.life(&sidecar.name).live() {
            if !later_live || over || stop_of(view.seen, &sidecar.name, id).is_some() {
                stop_one(draft, &sidecar.name, id);
            } else {
                draft.wake(deadline, view.now);
            }
            later_live = true;
        }
        later_live |= start_in_flight(view, sidecar);
    }
    stop_strangers(view, draft, deadline);
}

fn start_in_flight(view: &View<'_>, container: &Container) -> bool {
    view.in_flight(&ActionKey::StartContainer { container: container.name.clone() }).is_some()
}

/// Stops live attempts that the pod knows nothing of: not the newest of their container, or of no container at all.
pub(super) fn stop_strangers(view: &View<'_>, draft: &mut Draft, deadline: BootTime) {
    for seen in view.seen.containers.iter().filter(|c| is_live(c)) {
        let (name, id) = (&seen.entry.name, &seen.entry.id);
        let known = find(view.pod, name).is_some() && view.life(name).live() == Some(id);
        if !known {
            let message = format!("Stopping container {name}");
            stop(view.seen, draft, Some(view.pod), view.now, (name, id), deadline, message);
        }
    }
}

/// Gives up what is under way and would only be in the way of a stop.
pub(super) fn cancel_work(seen: &Observed, draft: &mut Draft) {
    for flight in &seen.in_flight {
        match flight.key {
            ActionKey::PrepareVolume { .. }
            | ActionKey::CreateSandbox
            | ActionKey::AttachNetwork
            | ActionKey::EnsureImage { .. }
            | ActionKey::StartContainer { .. } => draft.cancel(flight),
            ActionKey::Signal { .. }
            | ActionKey::Kill { .. }
            | ActionKey::Probe { .. }
            | ActionKey::RemoveContainer { .. }
            | ActionKey::DetachNetwork
            | ActionKey::DestroySandbox
            | ActionKey::RemoveVolume { .. }
            | ActionKey::RemovePod => {}
        }
    }
}

/// Forgets ended attempts whose end has been taken over and committed. The logs of the newest and of the one before
/// stay.
pub(super) fn remove_ended(seen: &Observed, draft: &mut Draft, now: Now) {
    if seen.uncommitted {
        return;
    }
    for container in seen.containers.iter().filter(|c| !is_live(c)) {
        let entry = &container.entry;
        let record = seen.facts.durable.containers.get(&entry.name);
        let newest = record.map_or(entry.attempt, |r| r.attempt);
        let taken = seen.pod.is_none() || record.is_none_or(|r| r.id != entry.id || r.ended.is_some());
        if taken {
            let action = Action::RemoveContainer {
                id: entry.id.clone(),
                container: entry.name.clone(),
                drop_logs_below: newest.saturating_sub(1),
            };
            retried(seen, draft, now, action);
        }
    }
}

/// Adds an action of the teardown, unless it failed a short while ago.
pub(super) fn retried(seen: &Observed, draft: &mut Draft, now: Now, action: Action) {
    let key = action.key();
    let failure = seen.facts.volatile.torn_down.failures.iter().find(|(k, _)| *k == key);
    if failure.is_none_or(|(_, retry)| !draft.wake(retry.at(), now)) {
        draft.act(seen, action);
    }
}

/// What of a pod is to be taken away besides its containers.
pub(super) struct Teardown<'a> {
    pub(super) seen: &'a Observed,
    pub(super) pod: Option<&'a Pod>,
    pub(super) now: Now,
    /// Its folders and logs too.
    pub(super) everything: bool,
}

impl Teardown<'_> {
    /// Takes the network, then the sandbox, then the volumes away, and at last the rest. A failure of one does not hold
    /// the others back, only the last step. Needs that no container lives.
    pub(super) fn step(&self, draft: &mut Draft) {
        let seen = self.seen;
        remove_ended(seen, draft, self.now);
        let done = &seen.facts.volatile.torn_down;
        let attempt =
            seen.sandbox.as_ref().map(|s| s.attempt).or(seen.facts.durable.sandbox.max(seen.facts.volatile.sandbox));
        let busy = self.busy_making();
        let host = self.pod.is_some_and(|p| p.spec.host_network);
        let (mut network, mut sandbox, mut volumes) = (done.network || host, done.sandbox, true);
        match attempt {
            Some(attempt) if !busy => {
                if !network {
                    retried(seen, draft, self.now, Action::DetachNetwork { attempt });
                }
                let failed = done.failures.iter().any(|(key, _)| *key == ActionKey::DetachNetwork);
                if !sandbox && seen.containers.is_empty() && (network || failed) {
                    retried(seen, draft, self.now, Action::DestroySandbox { attempt });
                }
            }
            Some(_) => {}
            None => (network, sandbox) = (!busy, !busy),
        }
        for volume in self.pod.into_iter().flat_map(|p| &p.spec.volumes) {
            let gone = done.volumes.contains(&volume.name);
            volumes &= gone;
            let ended = seen.containers.is_empty() && !busy;
            if !gone && ended {
                retried(seen, draft, self.now, Action::RemoveVolume { volume: volume.name.clone() });
            }
        }
        let rest = network && sandbox && volumes && seen.containers.is_empty() && !busy;
        if rest && self.everything {
            retried(seen, draft, self.now, Action::RemovePod);
        }
    }

    /// Whether something that is still being made would be left behind.
    fn busy_making(&self) -> bool {
        self.seen.in_flight.iter().any(|f| {
            matches!(
                f.key,
                ActionKey::PrepareVolume { .. }
                    | ActionKey::CreateSandbox
                    | ActionKey::AttachNetwork
                    | ActionKey::StartContainer { .. }
            )
        })
    }
}

/// Keeps readiness going while containers stop.
pub(super) fn probe_while_stopping(view: &View<'_>, draft: &mut Draft) {
    for container in view.containers() {
        if let Life::Running { id, since } = view.life(&container.name) {
            super::probes::run(view, draft, container, id, since);
        }
    }
}
