//! The supervisor's table taken over into the facts.

use super::Changes;
use crate::model::BootTime;
use crate::model::observed::{ContainerFact, ContainerSeen, Observed, Record, StopCause, TornDown};
use crate::model::pod::{Container, Pod};
use crate::model::status::Terminated;
use crate::model::supervise::{ContainerEntry, ContainerState, Exit};
use crate::model::time::Now;
use crate::plan::restart;

/// Takes over what the supervisor's table says about the pod ([`Observed::containers`], complete), lost attempts
/// included. Safe to repeat; to be called on each observation, before [`crate::plan::pod`].
pub fn table(observed: &mut Observed, now: Now) -> Changes {
    let mut changes = Changes::default();
    let here = observed.sandbox.as_ref().map(|s| s.attempt);
    let facts = &mut observed.facts;
    if here > facts.durable.sandbox {
        facts.durable.sandbox = here;
        changes.later = true;
    }
    if here > facts.volatile.sandbox {
        facts.volatile.sandbox = here;
        facts.volatile.torn_down = TornDown::default();
        changes.volatile = true;
    }
    let Some(pod) = observed.pod.clone() else { return changes };
    for container in pod.spec.init_containers.iter().chain(&pod.spec.containers) {
        take_over(observed, &pod, container, now, &mut changes);
    }
    observed.uncommitted |= changes.durable;
    changes
}

fn take_over(observed: &mut Observed, pod: &Pod, container: &Container, now: Now, changes: &mut Changes) {
    let name = &container.name;
    let shutdown = observed.facts.volatile.stop.as_ref().filter(|stop| stop.cause == StopCause::Shutdown);
    let shutdown = shutdown.map(|stop| stop.since);
    let newest = observed.containers.iter().filter(|c| c.entry.name == *name).max_by_key(|c| c.entry.attempt).cloned();
    if let Some(seen) = &newest {
        begin(observed, container, &seen.entry, now, changes);
    }
    let Some(record) = observed.facts.durable.containers.get_mut(name) else { return };
    let own = newest.filter(|seen| seen.entry.id == record.id);
    if let Some(ContainerState::Running { started_wall, .. }) = own.as_ref().map(|seen| &seen.entry.state)
        && record.started_at != Some(*started_wall)
    {
        record.started_at = Some(*started_wall);
        changes.durable = true;
    }
    if record.ended.is_some() {
        return;
    }
    let ended = match &own {
        Some(seen) => ended(seen),
        None => Some((lost(record, now), now.boot)),
    };
    let Some((ended, at)) = ended else { return };
    changes.durable = true;
    changes.volatile = true;
    let stop = observed.facts.volatile.containers.get(name).and_then(|fact| fact.stop.as_ref());
    let to_restart = stop.is_some_and(|stop| stop.id == record.id && stop.restart);
    record.interrupted = to_restart || shutdown.is_some_and(|since| at >= since);
    changes.commit_first |= !record.interrupted && for_good(pod, container, &ended);
    record.ended = Some(ended);
    fact(observed, name).finished_at = Some(at);
}

fn fact<'a>(observed: &'a mut Observed, name: &str) -> &'a mut ContainerFact {
    observed.facts.volatile.containers.entry(name.to_owned()).or_default()
}

/// A newer attempt than the recorded one takes its place.
fn begin(observed: &mut Observed, container: &Container, entry: &ContainerEntry, now: Now, changes: &mut Changes) {
    let name = &container.name;
    let durable = &observed.facts.durable;
    let old = durable.containers.get(name);
    if old.is_some_and(|old| old.id == entry.id || old.attempt > entry.attempt) {
        return;
    }
    let before = old.map(|old| old.ended.clone().unwrap_or_else(|| lost(old, now)));
    let record = Record {
        attempt: entry.attempt,
        id: entry.id.clone(),
        sandbox: sandbox_of(observed, entry),
        started_at: None,
        image: container.image.clone(),
        image_id: observed.images.get(&container.image).map(|i| i.digest.clone()).unwrap_or_default(),
        ended: None,
        interrupted: false,
        before,
    };
    observed.facts.durable.containers.insert(name.clone(), Box::new(record));
    let longest = observed.node.max_restart_delay;
    let fact = fact(observed, name);
    // What is remembered of this very attempt stays: an agent that was killed may have lost only the record.
    let counted = fact.back_off.as_ref().is_some_and(|b| b.attempt == entry.attempt);
    if entry.attempt > 0 && !counted {
        fact.back_off = Some(restart::next(fact, &restart::key(container), entry.attempt, now.boot, longest));
    }
    fact.stop = fact.stop.take().filter(|stop| stop.id == entry.id);
    fact.probes.retain(|_, tally| tally.id == entry.id);
    (fact.finished_at, fact.start_failure) = (None, None);
    // A restart that was told is never counted back.
    (changes.durable, changes.commit_first, changes.volatile) = (true, true, true);
}

/// The sandbox that an attempt ran in: the one that is there, unless the attempt is older.
fn sandbox_of(observed: &Observed, entry: &ContainerEntry) -> u32 {
    let Some(here) = &observed.sandbox else { return observed.facts.durable.sandbox.unwrap_or(0) };
    let since = match &entry.state {
        ContainerState::Creating => here.created_at,
        ContainerState::Running { started_at, .. } => *started_at,
        ContainerState::Exited(exit) => exit.started_at,
        ContainerState::StartFailed { at, .. } => *at,
    };
    if since < here.created_at { here.attempt.saturating_sub(1) } else { here.attempt }
}

/// Whether an end is one that must never be forgotten: nothing starts the container again.
fn for_good(pod: &Pod, container: &Container, ended: &Terminated) -> bool {
    let init = pod.spec.init_containers.iter().any(|c| c.name == container.name);
    if init && !container.is_sidecar() {
        !restart::init_again(pod, container, ended)
    } else {
        !restart::again(pod, container, ended)
    }
}

/// How an attempt ended and when, if it has.
fn ended(seen: &ContainerSeen) -> Option<(Terminated, BootTime)> {
    let entry = &seen.entry;
    match &entry.state {
        ContainerState::Creating | ContainerState::Running { .. } => None,
        ContainerState::Exited(exit) => Some((exited(entry, exit, seen.message.clone()), exit.finished_at)),
        ContainerState::StartFailed { code, reason, message, at, at_wall } => {
            let ended = Terminated {
                exit_code: *code,
                signal: None,
                reason: reason.clone(),
                message: Some(message.clone()),
                started_at: *at_wall,
                finished_at: *at_wall,
                container_id: Some(entry.id.clone()),
            };
            Some((ended, *at))
        }
    }
}

fn exited(entry: &ContainerEntry, exit: &Exit, message: Option<String>) -> Terminated {
    let reason = match exit {
        Exit { known: false, .. } => "ContainerStatusUnknown",
        Exit { oom_killed: true, .. } => "OOMKilled",
        Exit { code: 0, .. } => "Completed",
        Exit { .. } => "Error",
    };
    let unknown = (!exit.known).then(|| LOST.to_owned());
    Terminated {
        exit_code: exit.code,
        signal: exit.signal,
        reason: reason.into(),
        message: message.filter(|m| !m.is_empty()).or(unknown),
        started_at: exit.started_wall,
        finished_at: exit.finished_wall,
        container_id: Some(entry.id.clone()),
    }
}

/// Upstream's words for a container that nobody can find.
const LOST: &str = "The container could not be located when the pod was deleted.  The container used to be Running";

/// The end of an attempt that is gone without a trace.
fn lost(record: &Record, now: Now) -> Terminated {
    Terminated {
        exit_code: 137,
        signal: None,
        reason: "ContainerStatusUnknown".into(),
        message: Some(LOST.into()),
        started_at: record.started_at.unwrap_or(now.wall),
        finished_at: now.wall,
        container_id: Some(record.id.clone()),
    }
}
