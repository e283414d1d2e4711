//! When probes are tried, what their tries add up to, and what follows from it (`pkg/kubelet/prober`).
//!
//! The schedule has no jitter: a probe is due at the container's start plus its initial delay, and then at each whole
//! period from there.

use super::view::{Draft, View};
use crate::model::action::{Action, ProbeKind};
use crate::model::observed::{ContainerFact, Tally};
use crate::model::pod::{Container, Probe};
use crate::model::{BootTime, ContainerId, Millis};

/// Tries for one moment of the schedule when they go wrong themselves (`maxProbeRetries`).
const MAX_TRIES: u32 = 3;

/// All kinds, in the order in which they matter.
const KINDS: [ProbeKind; 3] = [ProbeKind::Startup, ProbeKind::Readiness, ProbeKind::Liveness];

pub(super) fn of(container: &Container, kind: ProbeKind) -> Option<&Probe> {
    match kind {
        ProbeKind::Startup => container.startup.as_ref(),
        ProbeKind::Readiness => container.readiness.as_ref(),
        ProbeKind::Liveness => container.liveness.as_ref(),
    }
}

fn tally<'a>(fact: Option<&'a ContainerFact>, kind: ProbeKind, id: &ContainerId) -> Option<&'a Tally> {
    fact?.probes.get(&kind).filter(|t| t.id == *id)
}

/// What a probe stands at: its verdict, else what counts before there is one.
fn verdict(view: &View<'_>, container: &Container, kind: ProbeKind, id: &ContainerId) -> Option<bool> {
    let initial = match kind {
        ProbeKind::Startup => None,
        ProbeKind::Readiness => Some(false),
        ProbeKind::Liveness => Some(true),
    };
    tally(view.fact(&container.name), kind, id).and_then(|t| t.verdict).or(initial)
}

/// Whether a running attempt has started: it has no startup probe, or that has succeeded.
pub(super) fn started(view: &View<'_>, container: &Container, id: &ContainerId) -> bool {
    container.startup.is_none() || verdict(view, container, ProbeKind::Startup, id) == Some(true)
}

/// Whether a running attempt is ready.
pub(super) fn ready(view: &View<'_>, container: &Container, id: &ContainerId) -> bool {
    let probed = container.readiness.is_none() || verdict(view, container, ProbeKind::Readiness, id) == Some(true);
    probed && started(view, container, id)
}

/// The probe that condemns a running attempt, if one does.
pub(super) fn condemned<'a>(
    view: &View<'_>,
    container: &'a Container,
    id: &ContainerId,
) -> Option<(ProbeKind, &'a Probe)> {
    [ProbeKind::Liveness, ProbeKind::Startup].into_iter().find_map(|kind| {
        let probe = of(container, kind)?;
        (verdict(view, container, kind, id) == Some(false)).then_some((kind, probe))
    })
}

/// Tries the probes of a running attempt that are due. While the pod stops, only readiness goes on.
pub(super) fn run(view: &View<'_>, draft: &mut Draft, container: &Container, id: &ContainerId, since: BootTime) {
    let stopping = view.seen.facts.volatile.stop.is_some();
    let has_started = started(view, container, id);
    for kind in KINDS {
        let Some(probe) = of(container, kind) else { continue };
        let wanted = match kind {
            ProbeKind::Startup => !has_started && !stopping,
            ProbeKind::Readiness => has_started,
            ProbeKind::Liveness => has_started && !stopping,
        };
        let held = kind != ProbeKind::Readiness && verdict(view, container, kind, id) == Some(false);
        if !wanted || held {
            continue;
        }
        let due = due(view, container, probe, kind, id, since);
        if draft.wake(due, view.now) {
            continue;
        }
        let action = Action::Probe {
            id: id.clone(),
            container: container.name.clone(),
            kind,
            probe: probe.clone(),
            due: on_schedule(due, view.now.boot, probe),
            address: super::status::pod_ips(view).first().copied(),
        };
        draft.act(view.seen, action);
    }
}

fn period(probe: &Probe) -> Millis {
    Millis::from_secs(u64::from(probe.period_secs.max(1)))
}

fn due(
    view: &View<'_>,
    container: &Container,
    probe: &Probe,
    kind: ProbeKind,
    id: &ContainerId,
    since: BootTime,
) -> BootTime {
    match tally(view.fact(&container.name), kind, id) {
        Some(tally) if tally.errors > 0 => tally.due,
        Some(tally) => tally.due + period(probe),
        None => since + Millis::from_secs(u64::from(probe.initial_delay_secs)),
    }
}

/// The latest moment of the schedule that is not in the future: what was missed is not made up for.
fn on_schedule(due: BootTime, now: BootTime, probe: &Probe) -> BootTime {
    let late = now.since(due).0;
    now - Millis(late % period(probe).0)
}

/// The tally of this attempt's probe, begun anew if there is none.
fn tallied<'a>(fact: &'a mut ContainerFact, kind: ProbeKind, id: &ContainerId, due: BootTime) -> &'a mut Tally {
    let fresh = Tally { id: id.clone(), due, success: false, streak: 0, verdict: None, errors: 0 };
    let tally = fact.probes.entry(kind).or_insert_with(|| fresh.clone());
    if tally.id != *id {
        *tally = fresh;
    }
    tally.due = due;
    tally
}

/// Notes a try that went wrong itself: it counts for nothing and is made again at once, up to [`MAX_TRIES`] times. True
/// when that was the last.
pub(super) fn errored(fact: &mut ContainerFact, kind: ProbeKind, id: &ContainerId, due: BootTime) -> bool {
    let tally = tallied(fact, kind, id, due);
    tally.errors = (tally.errors + 1) % MAX_TRIES;
    tally.errors == 0
}

/// Counts one try. True when the verdict changed.
pub(super) fn count(
    fact: &mut ContainerFact,
    kind: ProbeKind,
    id: &ContainerId,
    probe: &Probe,
    due: BootTime,
    success: bool,
) -> bool {
    let tally = tallied(fact, kind, id, due);
    tally.errors = 0;
    tally.streak = if tally.success == success { tally.streak.saturating_add(1) } else { 1 };
    tally.success = success;
    let threshold = if success { probe.success_threshold } else { probe.failure_threshold };
    let reached = tally.streak >= threshold && tally.verdict != Some(success);
    if reached {
        tally.verdict = Some(success);
    }
    reached
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::pod::ProbeHandler;

    pub(crate) fn probe(success_threshold: u32, failure_threshold: u32) -> Probe {
        Probe {
            handler: ProbeHandler::Exec { command: vec!["true".into()] },
            initial_delay_secs: 0,
            period_secs: 10,
            timeout_secs: 1,
            success_threshold,
            failure_threshold,
            termination_grace_secs: None,
        }
    }

    #[test]
    fn a_verdict_needs_as_many_equal_results_in_a_row_as_its_threshold() {
        let mut fact = ContainerFact::default();
        let id = ContainerId::from_bits(1);
        let probe = probe(2, 3);
        let verdicts: Vec<_> = "++---+-++"
            .chars()
            .map(|c| {
                count(&mut fact, ProbeKind::Readiness, &id, &probe, BootTime(0), c == '+');
                fact.probes[&ProbeKind::Readiness].verdict
            })
            .collect();
        let (yes, no) = (Some(true), Some(false));
        assert_eq!(verdicts, [None, yes, yes, yes, no, no, no, no, yes]);
        // A try that went wrong itself does not count, and another attempt counts from nothing.
        let mut wrong = || errored(&mut fact, ProbeKind::Readiness, &id, BootTime(9));
        assert_eq!([wrong(), wrong(), wrong(), wrong()], [false, false, true, false]);
        assert_eq!((fact.probes[&ProbeKind::Readiness].verdict, fact.probes[&ProbeKind::Readiness].streak), (yes, 2));
        count(&mut fact, ProbeKind::Readiness, &ContainerId::from_bits(2), &probe, BootTime(9), true);
        assert_eq!(fact.probes[&ProbeKind::Readiness].verdict, None);
    }

    #[test]
    fn a_late_try_stays_on_the_schedule() {
        let probe = probe(1, 1);
        for (due, now, then) in [(5_000, 5_000, 5_000), (5_000, 5_003, 5_000), (5_000, 36_000, 35_000)] {
            assert_eq!(on_schedule(BootTime(due), BootTime(now), &probe), BootTime(then));
        }
    }
}
