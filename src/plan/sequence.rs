//! Which containers should start, in order, and which should stop (`computePodActions`, `computeInitContainerActions`).

use super::probes;
use super::restart;
use super::view::{Life, View};
use crate::model::action::ProbeKind;
use crate::model::pod::{Container, RestartPolicy};
use crate::model::status::Terminated;
use crate::model::{ContainerId, Millis};

/// A running attempt that must stop.
pub(super) struct Condemned<'a> {
    pub(super) container: &'a Container,
    pub(super) id: &'a ContainerId,
    pub(super) grace: Millis,
    pub(super) message: String,
}

/// What should become of the pod's containers.
#[derive(Default)]
pub(super) struct Sequence<'a> {
    /// To start, one after the other. Those that wait for something do not hold the later ones back.
    pub(super) start: Vec<&'a Container>,
    /// To stop on their own.
    pub(super) stop: Vec<Condemned<'a>>,
    /// The pod has done what it was there for, or cannot: what still runs is to stop, and nothing starts.
    pub(super) finish: bool,
}

/// Decides for a pod whose sandbox is there.
pub(super) fn in_sandbox<'a>(view: &View<'a>) -> Sequence<'a> {
    let mut sequence = Sequence::default();
    let initialized = init_containers(view, &mut sequence);
    if sequence.finish || !initialized {
        return sequence;
    }
    let mut kept = 0;
    for container in &view.pod.spec.containers {
        match view.life(&container.name) {
            Life::Absent => sequence.start.push(container),
            Life::Ended(ended) if starts_again(view, container, ended) => sequence.start.push(container),
            Life::Ended(_) => {}
            Life::Creating(_) => kept += 1,
            Life::Running { id, .. } => match condemn(view, container, id) {
                Some(condemned) => {
                    kept += usize::from(starts_again_after_stop(view, container));
                    sequence.stop.push(condemned);
                }
                None => kept += 1,
            },
        }
    }
    let main_to_start = sequence.start.iter().any(|c| !is_init(view, c));
    if kept == 0 && !main_to_start {
        sequence.finish = true;
        sequence.start.clear();
    }
    sequence
}

fn is_init(view: &View<'_>, container: &Container) -> bool {
    view.pod.spec.init_containers.iter().any(|c| c.name == container.name)
}

/// What a pod without a sandbox would start first. Empty: it has nothing left to do.
pub(super) fn without_sandbox<'a>(view: &View<'a>) -> Vec<&'a Container> {
    let spec = &view.pod.spec;
    let dead_init = spec.init_containers.iter().any(|c| {
        let failed = |ended: &Terminated| !restart::succeeded(ended) && !init_starts_again(view, c, ended);
        !c.is_sidecar() && matches!(view.life(&c.name), Life::Ended(ended) if failed(ended))
    });
    if dead_init {
        return Vec::new();
    }
    let main = spec.containers.iter().filter(|c| match view.life(&c.name) {
        Life::Absent => true,
        Life::Ended(ended) => starts_again(view, c, ended),
        Life::Creating(_) | Life::Running { .. } => restart::policy(view.pod, c) != RestartPolicy::Never,
    });
    let main: Vec<_> = main.collect();
    match (main.is_empty(), spec.init_containers.first()) {
        (false, Some(first)) => vec![first],
        (_, _) => main,
    }
}

/// Adds the init containers' part. True once ordinary containers may run.
fn init_containers<'a>(view: &View<'a>, sequence: &mut Sequence<'a>) -> bool {
    let inits = &view.pod.spec.init_containers;
    if inits.is_empty() {
        return true;
    }
    let main_ran = view.pod.spec.containers.iter().any(|c| view.record_here(&c.name).is_some());
    // The newest init container that this sandbox has seen: those before it have done their part.
    let frontier = inits.iter().rposition(|c| view.record_here(&c.name).is_some());
    let passed = if main_ran { inits.len() } else { frontier.unwrap_or(0) };
    for sidecar in inits.iter().take(passed).filter(|c| c.is_sidecar()) {
        keep_sidecar(view, sequence, sidecar);
    }
    if main_ran {
        return true;
    }
    let Some((at, current)) = frontier.and_then(|at| Some((at, inits.get(at)?))) else {
        sequence.start.extend(inits.first());
        return false;
    };
    let done = if current.is_sidecar() {
        keep_sidecar(view, sequence, current);
        matches!(view.life(&current.name), Life::Running { id, .. } if probes::started(view, current, id))
    } else {
        init_done(view, sequence, current)
    };
    match inits.get(at + 1) {
        Some(next) if done => sequence.start.push(next),
        Some(_) => {}
        None => return done,
    }
    false
}

fn keep_sidecar<'a>(view: &View<'a>, sequence: &mut Sequence<'a>, sidecar: &'a Container) {
    match view.life(&sidecar.name) {
        Life::Absent | Life::Ended(_) => sequence.start.push(sidecar),
        Life::Creating(_) => {}
        Life::Running { id, .. } => sequence.stop.extend(condemn(view, sidecar, id)),
    }
}

fn init_done<'a>(view: &View<'a>, sequence: &mut Sequence<'a>, init: &'a Container) -> bool {
    match view.life(&init.name) {
        Life::Ended(ended) if restart::succeeded(ended) => return true,
        Life::Ended(ended) if init_starts_again(view, init, ended) => sequence.start.push(init),
        Life::Ended(_) => {
            sequence.finish = true;
            sequence.start.clear();
        }
        Life::Absent | Life::Creating(_) | Life::Running { .. } => {}
    }
    false
}

/// Whether an ended ordinary container starts again: because of its policy, because it was stopped for that, or because
/// only the node's shutdown ended it.
pub(super) fn starts_again(view: &View<'_>, container: &Container, ended: &Terminated) -> bool {
    restart::again(view.pod, container, ended) || stopped_to_restart(view, container) || interrupted(view, container)
}

/// The same for an init container that is not a sidecar.
pub(super) fn init_starts_again(view: &View<'_>, init: &Container, ended: &Terminated) -> bool {
    restart::init_again(view.pod, init, ended) || interrupted(view, init)
}

fn interrupted(view: &View<'_>, container: &Container) -> bool {
    view.record(&container.name).is_some_and(|record| record.interrupted)
}

/// Whether what is recorded of a container tells how far the pod is: it ran in the sandbox that is there, or there will
/// be no other. After a reboot a pod begins anew, with its init containers.
pub(super) fn counts(view: &View<'_>, name: &str) -> bool {
    let Some(record) = view.record(name) else { return false };
    match &view.seen.sandbox {
        Some(here) => record.sandbox == here.attempt,
        None => view.seen.facts.volatile.stop.is_some() || without_sandbox(view).is_empty(),
    }
}

fn stopped_to_restart(view: &View<'_>, container: &Container) -> bool {
    let stop = view.fact(&container.name).and_then(|f| f.stop.as_ref());
    let record = view.record(&container.name);
    stop.zip(record).is_some_and(|(stop, record)| stop.id == record.id && stop.restart)
}

/// Whether a running container that is stopped by us for its own sake will start again.
pub(super) fn starts_again_after_stop(view: &View<'_>, container: &Container) -> bool {
    definition_changed(view, container) || restart::policy(view.pod, container) != RestartPolicy::Never
}

/// Only name and image count (`HashContainer`).
fn definition_changed(view: &View<'_>, container: &Container) -> bool {
    view.record(&container.name).is_some_and(|r| r.image != container.image)
}

/// Why a running attempt must stop, if it must.
fn condemn<'a>(view: &View<'a>, container: &'a Container, id: &'a ContainerId) -> Option<Condemned<'a>> {
    let kind = if is_init(view, container) { "Init container" } else { "Container" };
    let name = &container.name;
    if view.fact(name).and_then(|f| f.stop.as_ref()).is_some_and(|s| s.id == *id) {
        // Its stop is under way and has a deadline of its own.
        return Some(Condemned { container, id, grace: Millis(u64::MAX), message: String::new() });
    }
    let (grace, mut message) = if definition_changed(view, container) {
        (view.grace(), format!("{kind} {name} definition changed"))
    } else {
        let (which, probe) = probes::condemned(view, container, id)?;
        let which = match which {
            ProbeKind::Startup => "startup",
            ProbeKind::Liveness | ProbeKind::Readiness => "liveness",
        };
        let grace = probe.termination_grace_secs.map_or_else(|| view.grace(), Millis::from_secs);
        (grace, format!("{kind} {name} failed {which} probe"))
    };
    if starts_again_after_stop(view, container) {
        message.push_str(", will be restarted");
    }
    Some(Condemned { container, id, grace, message })
}
