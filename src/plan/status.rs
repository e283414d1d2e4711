//! What a pod is, as v1.PodStatus tells it (`pkg/kubelet/kubelet_pods.go`).

use super::conditions;
use super::probes;
use super::resources::qos;
use super::restart;
use super::sequence;
use super::view::{Draft, Life, View};
use crate::model::pod::{Container, Pod};
use crate::model::status::{ContainerStatus, Phase, PodStatus, State, Terminated};
use crate::model::supervise::ContainerState;
use std::net::IpAddr;

/// Bytes that all termination messages of a pod may have together (`MaxPodTerminationMessageLogLength`).
const MESSAGE_BYTES: usize = 12 << 10;

/// The pod's addresses: the node's on the node's network.
pub(super) fn pod_ips<'a>(view: &View<'a>) -> &'a [IpAddr] {
    let seen = view.seen;
    if view.pod.spec.host_network {
        return if seen.sandbox.is_some() { &seen.node.host_ips } else { &[] };
    }
    match (&seen.sandbox, &seen.facts.volatile.network) {
        (Some(sandbox), Some(network)) if network.attempt == sandbox.attempt => &network.ips,
        (Some(_) | None, Some(_) | None) => &[],
    }
}

/// The whole status. Why containers wait comes from the draft.
pub(super) fn status(view: &View<'_>, draft: &Draft) -> PodStatus {
    let seen = view.seen;
    let spec = &view.pod.spec;
    let share = MESSAGE_BYTES / (spec.init_containers.len() + spec.containers.len()).max(1);
    let all = |of: &[Container]| of.iter().map(|c| clipped(container(view, draft, c), share)).collect::<Vec<_>>();
    let (init, main) = (all(&spec.init_containers), all(&spec.containers));
    let mut phase = phase(view, &init, &main);
    let shown = view.shown();
    if matches!(phase, Phase::Succeeded | Phase::Failed) && view.any_live() {
        // An end is told only when nothing runs any more.
        phase = shown.map_or(Phase::Pending, |s| s.phase);
    }
    let stopping = seen.facts.volatile.stop.is_some();
    let mut ips = pod_ips(view).to_vec();
    if ips.is_empty() && (stopping || matches!(phase, Phase::Succeeded | Phase::Failed)) {
        ips = shown.map(|s| s.pod_ips.clone()).unwrap_or_default();
    }
    let conditions = conditions::all(view, phase, &init, &main);
    let mut main = main;
    main.sort_by(|a, b| a.name.cmp(&b.name));
    PodStatus {
        phase,
        reason: None,
        message: None,
        conditions,
        pod_ips: ips,
        host_ips: seen.node.host_ips.clone(),
        start_time: seen.facts.durable.start_time,
        qos_class: qos(spec),
        init_containers: init,
        containers: main,
        terminating: stopping,
    }
}

/// The status of a pod that may not run.
pub(super) fn rejected(view: &View<'_>, reason: &str, message: &str) -> PodStatus {
    PodStatus {
        phase: Phase::Failed,
        reason: Some(reason.into()),
        message: Some(format!("Pod was rejected: {message}")),
        start_time: view.seen.facts.durable.start_time,
        host_ips: view.seen.node.host_ips.clone(),
        qos_class: qos(&view.pod.spec),
        terminating: view.seen.facts.volatile.stop.is_some(),
        ..PodStatus::default()
    }
}

fn container(view: &View<'_>, draft: &Draft, container: &Container) -> ContainerStatus {
    let name = &container.name;
    let record = view.record(name);
    let life = view.life(name);
    // What an init container did in a sandbox that is gone is to be done again.
    let again = view.pod.spec.init_containers.iter().any(|c| c.name == *name) && !sequence::counts(view, name);
    let default_reason = if view.pod.spec.init_containers.is_empty() { "ContainerCreating" } else { "PodInitializing" };
    let waiting = |why: Option<&(String, Option<String>)>| match why {
        Some((reason, message)) => State::Waiting { reason: reason.clone(), message: message.clone() },
        None => State::Waiting { reason: default_reason.into(), message: None },
    };
    let why = draft.waiting.get(name);
    let before = record.and_then(|r| r.before.clone());
    let (state, last_state) = match life {
        Life::Absent => (waiting(why), None),
        Life::Creating(_) => (waiting(None), before),
        Life::Running { id, .. } => (State::Running { started_at: started_at(view, id) }, before),
        Life::Ended(ended) if why.is_some() || again => (waiting(why), Some(ended.clone())),
        Life::Ended(ended) => (State::Terminated(ended.clone()), before),
    };
    let (started, ready) = match life {
        Life::Running { .. } if is_plain_init(view.pod, name) => (false, false),
        Life::Running { id, .. } => (probes::started(view, container, id), probes::ready(view, container, id)),
        Life::Ended(ended) => (false, is_plain_init(view.pod, name) && restart::succeeded(ended) && !again),
        Life::Absent | Life::Creating(_) => (false, false),
    };
    ContainerStatus {
        name: name.clone(),
        state,
        last_state,
        ready,
        started,
        restart_count: record.map_or(0, |r| r.attempt),
        image: container.image.clone(),
        image_id: record.map(|r| r.image_id.clone()).unwrap_or_default(),
        container_id: record.map(|r| r.id.clone()),
    }
}

/// The status with messages of at most `share` bytes: each container has an equal part (`normalizeStatus`).
fn clipped(mut status: ContainerStatus, share: usize) -> ContainerStatus {
    let last = status.last_state.as_mut();
    let ended = match &mut status.state {
        State::Terminated(ended) => Some(ended),
        State::Waiting { .. } | State::Running { .. } => None,
    };
    for message in ended.into_iter().chain(last).filter_map(|ended| ended.message.as_mut()) {
        message.truncate(message.floor_char_boundary(share));
    }
    status
}

fn started_at(view: &View<'_>, id: &crate::model::ContainerId) -> crate::model::WallTime {
    let seen = view.seen.containers.iter().find(|c| c.entry.id == *id);
    match seen.map(|s| &s.entry.state) {
        Some(ContainerState::Running { started_wall, .. }) => *started_wall,
        Some(ContainerState::Creating | ContainerState::Exited(_) | ContainerState::StartFailed { .. }) | None => {
            view.now.wall
        }
    }
}

fn is_plain_init(pod: &Pod, name: &str) -> bool {
    pod.spec.init_containers.iter().any(|c| c.name == name && !c.is_sidecar())
}

/// How an attempt last ended, as far as the shown state tells.
fn last_end(status: &ContainerStatus) -> Option<&Terminated> {
    match &status.state {
        State::Terminated(ended) => Some(ended),
        State::Waiting { .. } => status.last_state.as_ref(),
        State::Running { .. } => None,
    }
}

/// The phase (`getPhase`). A container that waits for its next attempt counts as stopped, an init container that did
/// its work in an earlier sandbox as not yet begun; sidecars count only while they run.
fn phase(view: &View<'_>, init: &[ContainerStatus], main: &[ContainerStatus]) -> Phase {
    let spec = &view.pod.spec;
    let (mut pending_init, mut pending_sidecar, mut running) = (false, false, false);
    for (container, status) in spec.init_containers.iter().zip(init) {
        let end = last_end(status).filter(|_| sequence::counts(view, &container.name));
        if container.is_sidecar() {
            running |= matches!(status.state, State::Running { .. });
            pending_sidecar |= end.is_none() && !status.started;
            continue;
        }
        match end {
            Some(end) if !restart::succeeded(end) => {
                if !sequence::init_starts_again(view, container, end) {
                    return Phase::Failed;
                }
            }
            Some(_) => {}
            None => pending_init = true,
        }
    }
    let (mut waiting, mut stopped, mut for_good, mut succeeded) = (0, 0, 0, 0);
    for (container, status) in spec.containers.iter().zip(main) {
        match (&status.state, last_end(status)) {
            (State::Running { .. }, _) => running = true,
            (State::Waiting { .. } | State::Terminated(_), Some(end)) => {
                stopped += 1;
                for_good += usize::from(!sequence::starts_again(view, container, end));
                succeeded += usize::from(end.exit_code == 0);
            }
            (State::Waiting { .. } | State::Terminated(_), None) => waiting += 1,
        }
    }
    let initialized = spec.containers.iter().any(|c| sequence::counts(view, &c.name));
    if pending_init || (pending_sidecar && !initialized) || waiting > 0 {
        Phase::Pending
    } else if running || stopped != for_good {
        Phase::Running
    } else if stopped == succeeded && stopped > 0 {
        Phase::Succeeded
    } else if stopped > 0 {
        Phase::Failed
    } else {
        Phase::Pending
    }
}
