//! The pod's conditions (`pkg/kubelet/status/generate.go`).

use super::sequence;
use super::view::View;
use crate::model::status::{Condition, ContainerStatus, Phase, State};

/// A condition before it is compared with what was shown.
struct Draft {
    kind: &'static str,
    status: bool,
    reason: Option<&'static str>,
    message: Option<String>,
}

/// All of them, in upstream's order. A transition time changes only with the status.
pub(super) fn all(view: &View<'_>, phase: Phase, init: &[ContainerStatus], main: &[ContainerStatus]) -> Vec<Condition> {
    let containers = containers_ready(view, phase, init, main);
    let ready = Draft {
        kind: "Ready",
        status: containers.status,
        reason: containers.reason,
        message: containers.message.clone(),
    };
    let scheduled = Draft { kind: "PodScheduled", status: true, reason: None, message: None };
    let drafts = [sandbox(view, phase), initialized(view, phase, init, main), ready, containers, scheduled];
    drafts.into_iter().map(|draft| dated(view, draft)).collect()
}

fn dated(view: &View<'_>, draft: Draft) -> Condition {
    let before = view.shown().and_then(|s| s.conditions.iter().find(|c| c.kind == draft.kind));
    let last_transition = before.filter(|c| c.status == draft.status).map_or(view.now.wall, |c| c.last_transition);
    Condition {
        kind: draft.kind.into(),
        status: draft.status,
        reason: draft.reason.map(str::to_owned),
        message: draft.message,
        last_transition,
    }
}

/// Whether the sandbox and its network are there.
pub(super) fn sandbox_ready(view: &View<'_>) -> bool {
    let Some(sandbox) = &view.seen.sandbox else { return false };
    let network = &view.seen.facts.volatile.network;
    view.pod.spec.host_network || network.as_ref().is_some_and(|n| n.attempt == sandbox.attempt)
}

fn sandbox(view: &View<'_>, phase: Phase) -> Draft {
    // A pod that is over has no sandbox, or is about to have none.
    let over = matches!(phase, Phase::Succeeded | Phase::Failed);
    let status = !over && sandbox_ready(view);
    let failure = view.seen.facts.volatile.sandbox_failure.as_ref();
    let message = if status { None } else { failure.map(|f| f.message.clone()).or_else(|| no_network(view)) };
    Draft { kind: "PodReadyToStartContainers", status, reason: None, message }
}

/// Why a pod that needs a network of its own cannot have one now.
pub(super) fn no_network(view: &View<'_>) -> Option<String> {
    let why = view.seen.node.network_not_ready.as_ref().filter(|_| !view.pod.spec.host_network)?;
    Some(format!("network is not ready: {why}"))
}

fn initialized(view: &View<'_>, phase: Phase, init: &[ContainerStatus], main: &[ContainerStatus]) -> Draft {
    let draft = |status, reason, message| Draft { kind: "Initialized", status, reason, message };
    if phase == Phase::Succeeded {
        return draft(true, Some("PodCompleted"), None);
    }
    let spec = &view.pod.spec;
    let begun = |c: &ContainerStatus| {
        let shown = matches!(c.state, State::Running { .. } | State::Terminated(_)) || c.last_state.is_some();
        shown && sequence::counts(view, &c.name)
    };
    let incomplete: Vec<&str> = spec
        .init_containers
        .iter()
        .zip(init)
        .filter(|(container, status)| if container.is_sidecar() { !status.started } else { !status.ready })
        .map(|(container, _)| container.name.as_str())
        .collect();
    if incomplete.is_empty() || main.iter().any(begun) {
        return draft(true, None, None);
    }
    let message = format!("containers with incomplete status: [{}]", incomplete.join(" "));
    draft(false, Some("ContainersNotInitialized"), Some(message))
}

fn containers_ready(view: &View<'_>, phase: Phase, init: &[ContainerStatus], main: &[ContainerStatus]) -> Draft {
    let draft = |status, reason, message| Draft { kind: "ContainersReady", status, reason, message };
    match phase {
        Phase::Succeeded => return draft(false, Some("PodCompleted"), None),
        Phase::Failed => return draft(false, Some("PodFailed"), None),
        Phase::Pending | Phase::Running => {}
    }
    let sidecars = view.pod.spec.init_containers.iter().zip(init).filter(|(c, _)| c.is_sidecar()).map(|(_, s)| s);
    let unready: Vec<&str> = sidecars.chain(main).filter(|s| !s.ready).map(|s| s.name.as_str()).collect();
    if unready.is_empty() {
        return draft(true, None, None);
    }
    let message = format!("containers with unready status: [{}]", unready.join(" "));
    draft(false, Some("ContainersNotReady"), Some(message))
}
