//! Starting the next container: one at a time, in order, each when its image and its back-off allow it.

use super::images::{self, Readiness};
use super::resources;
use super::restart::{self, go_duration};
use super::view::{Draft, Life, View, field_path};
use crate::model::action::{Action, StartPlan};
use crate::model::observed::Image;
use crate::model::pod::{Container, Pod};
use crate::model::status::Terminated;
use crate::model::{BootTime, ContainerId, Millis};
use ring::digest::{Context, SHA256};

/// What a create child may take before it is killed.
const CREATE_TIMEOUT: Millis = Millis::from_secs(120);

/// Starts the first of these containers that can be started, unless a start is under way. One that waits for its
/// back-off lets the later ones pass; one whose image is being fetched does not.
pub(super) fn next(view: &View<'_>, draft: &mut Draft, containers: &[&Container]) {
    let mut blocked = view.starting();
    for container in containers {
        if view.life(&container.name).live().is_some() || held_back(view, draft, container) {
            continue;
        }
        if blocked {
            remind(view, draft, container);
            continue;
        }
        match images::ensure(view, draft, container) {
            Readiness::Failing => {}
            Readiness::Fetching => blocked = true,
            Readiness::Ready(image, news) => {
                blocked = true;
                start(view, draft, container, image, news);
                remind(view, draft, container);
            }
        }
    }
}

/// What was told of the container stays true until its turn, or the start that is under way, has led to something.
fn remind(view: &View<'_>, draft: &mut Draft, container: &Container) {
    let failure = view.fact(&container.name).and_then(|fact| fact.start_failure.as_ref());
    match failure.filter(|failure| view.was_waiting(&container.name, &failure.reason)) {
        Some(failure) => draft.wait(&container.name, &failure.reason, Some(failure.message.clone())),
        None => images::remind(view, draft, container),
    }
    // A back-off that is over is still why the container is not there, until it is.
    if let (Life::Ended(_), Some((reason, message))) = (view.life(&container.name), view.shown_waiting(&container.name))
        && !draft.waiting.contains_key(&container.name)
        && matches!(reason, "CrashLoopBackOff" | "RunContainerError")
    {
        draft.wait(&container.name, reason, message.map(str::to_owned));
    }
}

/// Whether the container waits for a moment to come, after a crash or a failed start.
fn held_back(view: &View<'_>, draft: &mut Draft, container: &Container) -> bool {
    let Some(fact) = view.fact(&container.name) else { return false };
    if let Some(failure) = &fact.start_failure
        && draft.wake(failure.at(), view.now)
    {
        draft.wait(&container.name, &failure.reason, Some(failure.message.clone()));
        return true;
    }
    let Life::Ended(ended) = view.life(&container.name) else { return false };
    let longest = view.seen.node.max_restart_delay;
    let Some((at, delay)) = restart::not_before(fact, &restart::key(container), longest) else { return false };
    if !draft.wake(at, view.now) {
        return false;
    }
    if !tell_start_error(view, draft, container, ended, at - Millis(delay.0 / 2)) {
        crash_loop(view, draft, container, delay);
    }
    true
}

/// A start that failed is told for a while before its back-off is. True while it is.
fn tell_start_error(
    view: &View<'_>,
    draft: &mut Draft,
    container: &Container,
    ended: &Terminated,
    until: BootTime,
) -> bool {
    let failed = matches!(ended.reason.as_str(), "StartError" | "ContainerCannotRun");
    if !failed || !draft.wake(until, view.now) {
        return false;
    }
    draft.wait(&container.name, "RunContainerError", ended.message.clone());
    true
}

fn crash_loop(view: &View<'_>, draft: &mut Draft, container: &Container, delay: Millis) {
    let (name, title) = (&container.name, view.title());
    let message = format!("back-off {} restarting failed container={name} pod={title}", go_duration(delay));
    if view.shown_waiting(name) != Some(("CrashLoopBackOff", Some(&message))) {
        let text = format!("Back-off restarting failed container {name} in pod {title}");
        draft.event(true, "BackOff", Some(field_path(view.pod, name)), text);
    }
    draft.wait(name, "CrashLoopBackOff", Some(message));
}

fn start(view: &View<'_>, draft: &mut Draft, container: &Container, image: &Image, news: Option<String>) {
    let (seen, pod) = (view.seen, view.pod);
    let attempt = view.next_attempt(&container.name);
    let id = container_id(view, &container.name, attempt);
    let plan = StartPlan {
        container: container.name.clone(),
        attempt,
        image: image.id.clone(),
        log_path: log_path(&seen.node.pod_logs_dir, pod, &container.name, attempt),
        cgroup: format!("{}/{id}", resources::pod_cgroup(pod)),
        limits: resources::container_limits(pod, container, &seen.node),
        pod_ips: super::status::pod_ips(view).to_vec(),
        timeout: CREATE_TIMEOUT,
        id,
    };
    if draft.act(seen, Action::StartContainer(Box::new(plan)))
        && let Some(text) = news
    {
        draft.event(false, "Pulled", Some(field_path(pod, &container.name)), text);
    }
}

/// `<pod logs>/<namespace>_<name>_<uid>/<container>/<attempt>.log`.
#[must_use]
pub fn log_path(pod_logs_dir: &str, pod: &Pod, container: &str, attempt: u32) -> String {
    format!("{}/{container}/{attempt}.log", pod_log_dir(pod_logs_dir, pod))
}

/// The folder of all of a pod's logs.
#[must_use]
pub fn pod_log_dir(pod_logs_dir: &str, pod: &Pod) -> String {
    format!("{pod_logs_dir}/{}_{}_{}", pod.namespace, pod.name, pod.uid)
}

/// An id that is never used twice on a node and yet the same each time this attempt is planned: a start is safe to
/// repeat. The boot id and the pod's nonce keep it apart from attempts that were forgotten.
fn container_id(view: &View<'_>, name: &str, attempt: u32) -> ContainerId {
    let mut hash = Context::new(&SHA256);
    hash.update(&view.seen.facts.durable.nonce.to_be_bytes());
    hash.update(&attempt.to_be_bytes());
    for part in [view.seen.node.boot_id.as_str(), view.seen.uid.as_str(), name] {
        hash.update(&part.len().to_be_bytes());
        hash.update(part.as_bytes());
    }
    let digest = hash.finish();
    ContainerId::from_bits(digest.as_ref().iter().take(16).fold(0, |bits, byte| bits << 8 | u128::from(*byte)))
}
