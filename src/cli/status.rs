//! A pod in one word, as `kubectl get pods` shows it (`kubernetes/pkg/printers/internalversion/printers.go: printPod`).

use super::age;
use super::pods::{Container, ContainerStatus, Pod, State};
use super::table::Tone;
use crate::model::WallTime;

/// What the table says about a pod.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Summary {
    /// Containers that are ready and how many there are: `1/2`.
    pub(super) ready: String,
    /// The word.
    pub(super) word: String,
    /// How often containers were started again, and when the last time: `3 (5m ago)`.
    pub(super) restarts: String,
    /// How it looks.
    pub(super) tone: Tone,
}

/// Sums a pod up.
pub(super) fn summary(pod: &Pod, now: WallTime) -> Summary {
    let sidecars: Vec<&Container> = pod.spec.init_containers.iter().filter(|c| c.is_sidecar()).collect();
    let counted = |s: &&ContainerStatus| sidecars.iter().any(|c| c.name == s.name);
    let main = || pod.status.container_statuses.iter();
    let side = || pod.status.init_container_statuses.iter().filter(counted);
    let ready = main().filter(|s| s.ready && s.state.running.is_some()).count()
        + side().filter(|s| s.ready && s.state.running.is_some()).count();
    let total = pod.spec.containers.len() + sidecars.len();
    let init = init_word(pod);
    let restarting: Vec<&ContainerStatus> = if init.is_some() {
        pod.status.init_container_statuses.iter().collect()
    } else {
        main().chain(side()).collect()
    };
    let word = if pod.is_terminating() { "Terminating".to_owned() } else { init.unwrap_or_else(|| main_word(pod)) };
    let tone = tone(&word, ready == total);
    Summary { ready: format!("{ready}/{total}"), word, restarts: restarts(&restarting, now), tone }
}

fn restarts(statuses: &[&ContainerStatus], now: WallTime) -> String {
    let count: u32 = statuses.iter().map(|s| s.restart_count).fold(0, u32::saturating_add);
    let last = statuses.iter().filter_map(|s| s.last_state.terminated.as_ref()?.finished_at.as_deref());
    let last = last.filter_map(|text| WallTime::parse_rfc3339(text).map(|at| (at, text))).max();
    match last {
        Some((_, text)) if count > 0 => format!("{count} ({} ago)", age::since(Some(text), now)),
        _ => count.to_string(),
    }
}

/// The word while init containers are at work or have failed; none once they are through.
fn init_word(pod: &Pod) -> Option<String> {
    let total = pod.spec.init_containers.len();
    for (at, spec) in pod.spec.init_containers.iter().enumerate() {
        let state = pod.status.init_container_statuses.iter().find(|s| s.name == spec.name);
        let empty = State::default();
        let current = state.map_or(&empty, |s| &s.state);
        match current {
            State { terminated: Some(ended), .. } if ended.exit_code == 0 => {}
            _ if spec.is_sidecar() && state.is_some_and(|s| s.started == Some(true)) => {}
            State { terminated: Some(_), .. } => return Some(format!("Init:{}", ended_word(current))),
            State { waiting: Some(waiting), .. }
                if waiting.reason.as_deref().is_some_and(|r| !r.is_empty() && r != "PodInitializing") =>
            {
                return Some(format!("Init:{}", waiting.reason.clone().unwrap_or_default()));
            }
            _ if pod.status.container_statuses.iter().any(|s| s.state.running.is_some()) => return None,
            _ => return Some(format!("Init:{at}/{total}")),
        }
    }
    None
}

/// The word once the containers proper are at work: that of the first container with something to say.
fn main_word(pod: &Pod) -> String {
    let phase = pod.status.reason.clone().filter(|r| !r.is_empty()).unwrap_or_else(|| pod.status.phase.clone());
    let statuses = &pod.status.container_statuses;
    let running = statuses.iter().any(|s| s.ready && s.state.running.is_some());
    let said = statuses.iter().find_map(|s| match &s.state {
        State { waiting: Some(waiting), .. } => waiting.reason.clone().filter(|r| !r.is_empty()),
        State { terminated: Some(_), .. } => Some(ended_word(&s.state)),
        _ => None,
    });
    match said {
        Some(word) if word == "Completed" && running => {
            let ready = pod.status.conditions.iter().any(|c| c.kind == "Ready" && c.status == "True");
            if ready { "Running" } else { "NotReady" }.to_owned()
        }
        Some(word) => word,
        None => phase,
    }
}

/// How a container ended: its reason, else its signal or exit code.
fn ended_word(state: &State) -> String {
    let Some(ended) = &state.terminated else { return String::new() };
    match (&ended.reason, ended.signal) {
        (Some(reason), _) if !reason.is_empty() => reason.clone(),
        (_, Some(signal)) if signal != 0 => format!("Signal:{signal}"),
        _ => format!("ExitCode:{}", ended.exit_code),
    }
}

/// The state of one container in one word.
pub(super) fn container(status: Option<&ContainerStatus>) -> (String, Tone) {
    let Some(status) = status else { return ("Waiting".to_owned(), Tone::Warn) };
    let word = match &status.state {
        State { running: Some(_), .. } => "Running".to_owned(),
        State { terminated: Some(_), .. } => ended_word(&status.state),
        State { waiting: Some(waiting), .. } => waiting.reason.clone().unwrap_or_else(|| "Waiting".to_owned()),
        _ => "Waiting".to_owned(),
    };
    let tone = tone(&word, status.ready);
    (word, tone)
}

fn tone(word: &str, ready: bool) -> Tone {
    match word.strip_prefix("Init:").unwrap_or(word) {
        "Running" if ready => Tone::Good,
        "Succeeded" | "Completed" => Tone::Plain,
        "Running" | "Pending" | "NotReady" | "Terminating" | "Waiting" | "ContainerCreating" | "PodInitializing" => {
            Tone::Warn
        }
        counted if counted.contains('/') => Tone::Warn,
        _ => Tone::Bad,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    fn show(spec: Value, status: Value, deleted: bool) -> (String, String, String, Tone) {
        let mut pod: Pod = serde_json::from_value(json!({"spec": spec, "status": status})).unwrap();
        pod.metadata.deletion_timestamp = deleted.then(String::new);
        let now = WallTime::parse_rfc3339("2026-01-01T00:10:00Z").unwrap();
        let Summary { ready, word, restarts, tone } = summary(&pod, now);
        (ready, word, restarts, tone)
    }

    #[test]
    fn ordinary_containers_give_the_word() {
        let running = json!({"name": "a", "ready": true, "restartCount": 0, "state": {"running": {}}});
        let crashing = json!({"name": "b", "ready": false, "restartCount": 7,
            "state": {"waiting": {"reason": "CrashLoopBackOff"}},
            "lastState": {"terminated": {"exitCode": 3, "finishedAt": "2026-01-01T00:05:00Z"}}});
        let done = json!({"name": "b", "state": {"terminated": {"exitCode": 0, "reason": "Completed"}}});
        let killed = json!({"name": "b", "state": {"terminated": {"exitCode": 137, "signal": 9}}});
        let ready = json!([{"type": "Ready", "status": "True"}]);
        let spec = json!({"containers": [{"name": "a"}, {"name": "b"}]});
        for (status, deleted, want) in [
            (json!({"phase": "Pending"}), false, ("0/2", "Pending", "0", Tone::Warn)),
            (json!({"phase": "Failed", "reason": "Evicted"}), false, ("0/2", "Evicted", "0", Tone::Bad)),
            (
                json!({"phase": "Running", "containerStatuses": [running, crashing]}),
                false,
                ("1/2", "CrashLoopBackOff", "7 (5m ago)", Tone::Bad),
            ),
            (
                json!({"phase": "Running", "containerStatuses": [running, running]}),
                false,
                ("2/2", "Running", "0", Tone::Good),
            ),
            (
                json!({"phase": "Running", "containerStatuses": [running, running]}),
                true,
                ("2/2", "Terminating", "0", Tone::Warn),
            ),
            (
                json!({"phase": "Running", "containerStatuses": [running, done]}),
                false,
                ("1/2", "NotReady", "0", Tone::Warn),
            ),
            (
                json!({"phase": "Running", "conditions": ready, "containerStatuses": [running, done]}),
                false,
                ("1/2", "Running", "0", Tone::Warn),
            ),
            (
                json!({"phase": "Running", "containerStatuses": [running, killed]}),
                false,
                ("1/2", "Signal:9", "0", Tone::Bad),
            ),
            (json!({"phase": "Succeeded", "containerStatuses": [done]}), false, ("0/2", "Completed", "0", Tone::Plain)),
        ] {
            let want = (want.0.to_owned(), want.1.to_owned(), want.2.to_owned(), want.3);
            assert_eq!(show(spec.clone(), status.clone(), deleted), want, "{status}");
        }
    }

    #[test]
    fn init_containers_come_first() {
        let spec = json!({"containers": [{"name": "a"}],
            "initContainers": [{"name": "i"}, {"name": "s", "restartPolicy": "Always"}]});
        let done = json!({"name": "i", "state": {"terminated": {"exitCode": 0, "reason": "Completed"}}});
        let failed =
            json!({"name": "i", "restartCount": 2, "state": {"terminated": {"exitCode": 1, "reason": "Error"}}});
        let waiting = json!({"name": "i", "state": {"waiting": {"reason": "ErrImagePull"}}});
        let side = json!({"name": "s", "ready": true, "started": true, "state": {"running": {}}});
        let main = json!([{"name": "a", "ready": true, "state": {"running": {}}}]);
        for (status, want) in [
            (json!({"phase": "Pending"}), ("0/2", "Init:0/2", Tone::Warn)),
            (json!({"phase": "Pending", "initContainerStatuses": [waiting]}), ("0/2", "Init:ErrImagePull", Tone::Bad)),
            (json!({"phase": "Pending", "initContainerStatuses": [failed]}), ("0/2", "Init:Error", Tone::Bad)),
            (json!({"phase": "Pending", "initContainerStatuses": [done]}), ("0/2", "Init:1/2", Tone::Warn)),
            (json!({"phase": "Pending", "initContainerStatuses": [done, side]}), ("1/2", "Pending", Tone::Warn)),
            (
                json!({"phase": "Running", "initContainerStatuses": [done, side], "containerStatuses": main}),
                ("2/2", "Running", Tone::Good),
            ),
        ] {
            let (ready, word, _, tone) = show(spec.clone(), status.clone(), false);
            assert_eq!((ready.as_str(), word.as_str(), tone), want, "{status}");
        }
    }
}
