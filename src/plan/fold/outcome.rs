//! What came of an action taken over into the facts.

use super::Changes;
use crate::model::action::{Action, ActionKey, Failure, Outcome, ProbeKind, StartPlan};
use crate::model::observed::{Attached, ContainerStop, Facts, Retry, StopCause, TornDown, VolumeFact};
use crate::model::pod::{Container, Pod, RestartPolicy};
use crate::model::supervise::ContainerState;
use crate::model::time::Now;
use crate::model::{ContainerId, Millis};
use crate::plan::images;
use crate::plan::probes;
use crate::plan::restart::{self, ERROR_DELAY, go_duration};
use crate::plan::view::field_path;

/// The first delay after a failed mount and its longest (`goroutinemap/exponentialbackoff`).
const MOUNT_DELAYS: (Millis, Millis) = (Millis(500), Millis::from_secs(122));

/// The first delay after a failed step of the teardown and its longest.
const TEARDOWN_DELAYS: (Millis, Millis) = (Millis(500), Millis::from_secs(60));

/// How long a stop signal that could not be sent waits for its next try.
const SIGNAL_AGAIN: Millis = Millis::from_secs(1);

/// Takes over what came of an action. The action is no longer under way.
pub fn outcome(facts: &mut Facts, pod: Option<&Pod>, action: &Action, outcome: &Outcome, now: Now) -> Changes {
    let mut changes = Changes::default();
    match action {
        Action::PrepareVolume { volume } => volume_prepared(facts, volume, outcome, now, &mut changes),
        Action::CreateSandbox(_) => sandbox_created(facts, outcome, now, &mut changes),
        Action::AttachNetwork { attempt, .. } => attached(facts, *attempt, outcome, now, &mut changes),
        Action::EnsureImage { reference, silent, .. } => {
            let path = pod.and_then(|p| by_image(p, reference).map(|c| field_path(p, &c.name)));
            image_ensured(facts, (reference, *silent, path), outcome, now, &mut changes);
        }
        Action::StartContainer(plan) => started(facts, pod, plan, outcome, now, &mut changes),
        Action::Signal { id, container, grace, .. } => {
            signalled(facts, pod, (id, container, *grace), outcome, now, &mut changes);
        }
        Action::Kill { id, container } => killed(facts, id, container, now, &mut changes),
        Action::Probe { .. } => probed(facts, pod, action, outcome, &mut changes),
        Action::RemoveContainer { .. } => {
            torn(facts, action, outcome, now, &mut changes, |_| {});
        }
        Action::DetachNetwork { .. } => {
            // While the pod goes on, another network follows.
            let ending = pod.is_none() || facts.durable.finished.is_some() || facts.volatile.stop.is_some();
            let done = torn(facts, action, outcome, now, &mut changes, |torn| torn.network = ending);
            if done {
                facts.volatile.network = None;
                let over = facts.durable.finished.is_some() || removed(facts);
                changes.durable |= over && facts.durable.address.take().is_some();
            }
        }
        Action::DestroySandbox { .. } => {
            torn(facts, action, outcome, now, &mut changes, |torn| torn.sandbox = true);
        }
        Action::RemoveVolume { volume } => {
            let done = torn(facts, action, outcome, now, &mut changes, |torn| torn.volumes.push(volume.clone()));
            if done {
                facts.volatile.volumes.remove(volume);
            }
        }
        Action::RemovePod => {
            torn(facts, action, outcome, now, &mut changes, |torn| torn.all = true);
        }
        Action::Cancel { .. } => {}
    }
    changes
}

fn removed(facts: &Facts) -> bool {
    facts.volatile.stop.as_ref().is_some_and(|s| s.cause == StopCause::Removed)
}

fn by_name<'a>(pod: &'a Pod, name: &str) -> Option<&'a Container> {
    pod.spec.init_containers.iter().chain(&pod.spec.containers).find(|c| c.name == name)
}

fn by_image<'a>(pod: &'a Pod, reference: &str) -> Option<&'a Container> {
    pod.spec.init_containers.iter().chain(&pod.spec.containers).find(|c| c.image == reference)
}

/// What is told about an outcome that does not belong to its action.
fn failure(outcome: &Outcome) -> Failure {
    match outcome {
        Outcome::Failed(failure) => failure.clone(),
        other => Failure { reason: "Unexpected".into(), message: format!("unexpected outcome: {other:?}") },
    }
}

fn doubled(last: Option<&Retry>, (first, longest): (Millis, Millis), failure: Failure, now: Now) -> Retry {
    let delay = last.map_or(first, |l| Millis(l.delay.0.saturating_mul(2)).min(longest));
    Retry { reason: failure.reason, message: failure.message, delay, failed_at: now.boot }
}

fn volume_prepared(facts: &mut Facts, volume: &str, outcome: &Outcome, now: Now, changes: &mut Changes) {
    let fact = match outcome {
        Outcome::Cancelled => return,
        Outcome::Done => VolumeFact::Ready,
        other => {
            let failure = failure(other);
            let text = format!("MountVolume.SetUp failed for volume {volume:?} : {}", failure.message);
            changes.event(true, "FailedMount", None, text);
            let last = match facts.volatile.volumes.get(volume) {
                Some(VolumeFact::Failed(retry)) => Some(retry),
                Some(VolumeFact::Ready) | None => None,
            };
            VolumeFact::Failed(doubled(last, MOUNT_DELAYS, failure, now))
        }
    };
    facts.volatile.torn_down.volumes.retain(|v| v != volume);
    facts.volatile.volumes.insert(volume.to_owned(), fact);
    changes.volatile = true;
}

fn sandbox_failed(facts: &mut Facts, outcome: &Outcome, now: Now, changes: &mut Changes) {
    let Failure { reason, message } = failure(outcome);
    if facts.volatile.stop.is_none() {
        let text = format!("Failed to create pod sandbox: {message}");
        changes.event(true, "FailedCreatePodSandBox", None, text);
    }
    facts.volatile.sandbox_failure = Some(Retry { reason, message, delay: ERROR_DELAY, failed_at: now.boot });
    changes.volatile = true;
}

fn sandbox_created(facts: &mut Facts, outcome: &Outcome, now: Now, changes: &mut Changes) {
    match outcome {
        Outcome::Cancelled => {}
        Outcome::Sandbox { sandbox, events } => {
            changes.events.extend(events.iter().cloned());
            facts.durable.sandbox = Some(sandbox.attempt);
            facts.volatile.sandbox = Some(sandbox.attempt);
            facts.volatile.sandbox_failure = None;
            facts.volatile.torn_down = TornDown::default();
            // Its containers' records follow. Without them there was nothing in it to remember.
            (changes.later, changes.volatile) = (true, true);
        }
        other => sandbox_failed(facts, other, now, changes),
    }
}

fn attached(facts: &mut Facts, attempt: u32, outcome: &Outcome, now: Now, changes: &mut Changes) {
    match outcome {
        Outcome::Cancelled => {}
        Outcome::Attached { ips } => {
            facts.volatile.network = Some(Attached { attempt, ips: ips.clone() });
            facts.volatile.sandbox_failure = None;
            facts.volatile.torn_down.network = false;
            changes.volatile = true;
        }
        other => sandbox_failed(facts, other, now, changes),
    }
}

fn image_ensured(
    facts: &mut Facts,
    (reference, silent, path): (&str, bool, Option<String>),
    outcome: &Outcome,
    now: Now,
    changes: &mut Changes,
) {
    let fact = facts.volatile.images.entry(reference.to_owned()).or_default();
    match outcome {
        Outcome::Cancelled => return,
        Outcome::Image { fetched, .. } => {
            // What was fetched silently is told as present when its turn comes.
            fact.ensured_at = Some(now.boot);
            if let Some(f) = fetched.as_ref().filter(|_| !silent) {
                let text = format!(
                    "Successfully pulled image {reference:?} in {} ({} including waiting). Image size: {} bytes.",
                    go_duration(f.took),
                    go_duration(f.took_with_waiting),
                    f.bytes
                );
                changes.event(false, "Pulled", path, text);
            } else if !silent {
                let text = format!("Container image {reference:?} already present on machine");
                changes.event(false, "Pulled", path, text);
            }
        }
        other => {
            let Failure { reason, message } = failure(other);
            changes.event(true, "Failed", path.clone(), format!("Failed to pull image {reference:?}: {message}"));
            changes.event(true, "Failed", path, format!("Error: {reason}"));
            fact.failure = Some(images::next_retry(fact, reason, message, now.boot));
        }
    }
    changes.volatile = true;
}

fn started(facts: &mut Facts, pod: Option<&Pod>, plan: &StartPlan, outcome: &Outcome, now: Now, changes: &mut Changes) {
    let path = pod.map(|p| field_path(p, &plan.container));
    match outcome {
        Outcome::Cancelled => {}
        Outcome::Container { entry } => {
            changes.event(false, "Created", path.clone(), "Container created".into());
            match &entry.state {
                ContainerState::StartFailed { message, .. } => {
                    changes.event(true, "Failed", path, format!("Error: {message}"));
                }
                ContainerState::Creating | ContainerState::Running { .. } | ContainerState::Exited(_) => {
                    changes.event(false, "Started", path, "Container started".into());
                }
            }
        }
        other => {
            let Failure { reason, message } = failure(other);
            changes.event(true, "Failed", path, format!("Error: {message}"));
            let fact = facts.volatile.containers.entry(plan.container.clone()).or_default();
            fact.start_failure = Some(Retry { reason, message, delay: ERROR_DELAY, failed_at: now.boot });
            changes.volatile = true;
        }
    }
}

/// A stop signal was sent, or could not be: the time that the container has left runs all the same.
fn signalled(
    facts: &mut Facts,
    pod: Option<&Pod>,
    (id, container, grace): (&ContainerId, &str, Millis),
    outcome: &Outcome,
    now: Now,
    changes: &mut Changes,
) {
    if *outcome == Outcome::Cancelled {
        return;
    }
    let signal_again = (*outcome != Outcome::Done).then(|| now.boot + SIGNAL_AGAIN);
    let restart = facts.volatile.stop.is_none() && pod.is_some_and(|p| restarts(facts, p, container));
    let fact = facts.volatile.containers.entry(container.to_owned()).or_default();
    match fact.stop.as_mut().filter(|stop| stop.id == *id) {
        Some(stop) => {
            stop.signal_again = signal_again;
            stop.deadline = stop.deadline.min(now.boot + grace);
            if signal_again.is_none() {
                stop.signalled_at = now.boot;
            }
        }
        None => {
            let (id, deadline) = (id.clone(), now.boot + grace);
            let (signalled_at, killed_at) = (now.boot, None);
            fact.stop = Some(ContainerStop { id, signalled_at, signal_again, deadline, restart, killed_at });
        }
    }
    changes.volatile = true;
}

/// Whether a container that is stopped for its own sake is to start again.
fn restarts(facts: &Facts, pod: &Pod, name: &str) -> bool {
    let Some(container) = by_name(pod, name) else { return false };
    let changed = facts.durable.containers.get(name).is_some_and(|r| r.image != container.image);
    changed || restart::policy(pod, container) != RestartPolicy::Never
}

fn killed(facts: &mut Facts, id: &ContainerId, container: &str, now: Now, changes: &mut Changes) {
    let fact = facts.volatile.containers.entry(container.to_owned()).or_default();
    match fact.stop.as_mut().filter(|s| s.id == *id) {
        Some(stop) => stop.killed_at = Some(now.boot),
        None => {
            let (id, at) = (id.clone(), now.boot);
            let (signal_again, restart) = (None, false);
            let killed_at = Some(at);
            fact.stop = Some(ContainerStop { id, signalled_at: at, signal_again, deadline: at, restart, killed_at });
        }
    }
    changes.volatile = true;
}

fn probed(facts: &mut Facts, pod: Option<&Pod>, action: &Action, outcome: &Outcome, changes: &mut Changes) {
    let Action::Probe { id, container, kind, probe, due, .. } = action else { return };
    let word = match kind {
        ProbeKind::Startup => "Startup",
        ProbeKind::Readiness => "Readiness",
        ProbeKind::Liveness => "Liveness",
    };
    let path = pod.map(|p| field_path(p, container));
    let success = match outcome {
        Outcome::Cancelled => return,
        Outcome::Probed { success, warning, message } => {
            if !success {
                changes.event(true, "Unhealthy", path, format!("{word} probe failed: {message}"));
            } else if *warning {
                changes.event(true, "ProbeWarning", path, format!("{word} probe warning: {message}"));
            }
            *success
        }
        other => {
            let fact = facts.volatile.containers.entry(container.clone()).or_default();
            if probes::errored(fact, *kind, id, *due) {
                let message = failure(other).message;
                let text = format!("{word} probe errored and resulted in unknown state: {message}");
                changes.event(true, "Unhealthy", path, text);
            }
            return;
        }
    };
    let fact = facts.volatile.containers.entry(container.clone()).or_default();
    changes.volatile |= probes::count(fact, *kind, id, probe, *due, success);
}

/// Takes over a step of the teardown. True when it is done.
fn torn(
    facts: &mut Facts,
    action: &Action,
    outcome: &Outcome,
    now: Now,
    changes: &mut Changes,
    done: impl FnOnce(&mut TornDown),
) -> bool {
    let key = action.key();
    let torn = &mut facts.volatile.torn_down;
    let at = torn.failures.iter().position(|(k, _)| *k == key);
    let last = at.map(|at| torn.failures.swap_remove(at).1);
    match outcome {
        Outcome::Cancelled => return false,
        Outcome::Done => done(torn),
        other => {
            let failure = failure(other);
            if !matches!(key, ActionKey::RemoveContainer { .. }) {
                changes.event(true, "FailedKillPod", None, format!("error killing pod: {}", failure.message));
            }
            torn.failures.push((key, doubled(last.as_ref(), TEARDOWN_DELAYS, failure, now)));
        }
    }
    changes.volatile = true;
    *outcome == Outcome::Done
}
