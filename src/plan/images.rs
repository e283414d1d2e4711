//! Whether a container's image is there, and what to do when it is not (`pkg/kubelet/images/image_manager.go`).

use super::restart;
use super::view::{Draft, View, field_path};
use crate::model::action::{Action, ActionKey};
use crate::model::observed::{Image, ImageFact, Retry};
use crate::model::pod::{Container, PullPolicy};
use crate::model::{BootTime, Millis};

/// How a container's image stands.
pub(super) enum Readiness<'a> {
    /// It can be started from this image. `Some` text: what to tell about an image that nobody had to fetch.
    Ready(&'a Image, Option<String>),
    /// It is being fetched: later containers wait for it.
    Fetching,
    /// It cannot be had now: later containers go ahead.
    Failing,
}

/// The failure that stands, if the image was not had since.
fn failing(fact: &ImageFact) -> Option<&Retry> {
    fact.failure.as_ref().filter(|f| fact.ensured_at.is_none_or(|at| at < f.failed_at))
}

/// Sees to the image of the container whose turn it is.
pub(super) fn ensure<'a>(view: &View<'a>, draft: &mut Draft, container: &Container) -> Readiness<'a> {
    let reference = &container.image;
    let present = view.seen.images.get(reference);
    let fact = view.seen.facts.volatile.images.get(reference);
    let ended_at = view.fact(&container.name).and_then(|f| f.finished_at).unwrap_or(BootTime(0));
    let ensured = fact.and_then(|f| f.ensured_at).is_some_and(|at| at >= ended_at);
    match (present, container.pull_policy) {
        (Some(image), PullPolicy::IfNotPresent | PullPolicy::Never) => {
            let text = format!("Container image {reference:?} already present on machine");
            return Readiness::Ready(image, (!ensured).then_some(text));
        }
        (Some(image), PullPolicy::Always) if ensured => return Readiness::Ready(image, None),
        (None, PullPolicy::Never) => {
            explain_never(view, draft, container);
            return Readiness::Failing;
        }
        (Some(_) | None, PullPolicy::Always) | (None, PullPolicy::IfNotPresent) => {}
    }
    if view.in_flight(&ActionKey::EnsureImage { reference: reference.clone() }).is_some() {
        return Readiness::Fetching;
    }
    if present.is_none() && draft.wake(vanished_until(fact), view.now) {
        let text = format!("image {reference:?} was there and is no longer");
        draft.wait(&container.name, "ImageInspectError", Some(text));
        return Readiness::Failing;
    }
    if let Some(failure) = fact.and_then(failing)
        && draft.wake(failure.at(), view.now)
    {
        explain(view, draft, container, failure);
        return Readiness::Failing;
    }
    let action = Action::EnsureImage { reference: reference.clone(), policy: container.pull_policy, silent: false };
    if draft.act(view.seen, action) {
        let path = Some(field_path(view.pod, &container.name));
        draft.event(false, "Pulling", path, format!("Pulling image {reference:?}"));
    }
    Readiness::Fetching
}

/// An image that was had and is not there all the same is not fetched again at once.
fn vanished_until(fact: Option<&ImageFact>) -> BootTime {
    fact.and_then(|f| f.ensured_at).map_or(BootTime(0), |at| at + restart::ERROR_DELAY)
}

/// Why a container waits whose image is not there and may not be fetched.
fn explain_never(view: &View<'_>, draft: &mut Draft, container: &Container) {
    let text = format!("Container image {:?} is not present with pull policy of Never", container.image);
    if !view.was_waiting(&container.name, "ErrImageNeverPull") {
        let path = Some(field_path(view.pod, &container.name));
        draft.event(true, "ErrImageNeverPull", path.clone(), text.clone());
        draft.event(true, "Failed", path, "Error: ErrImageNeverPull".into());
    }
    draft.wait(&container.name, "ErrImageNeverPull", Some(text));
}

/// What was told of the container's image stays true while another container has its turn.
pub(super) fn remind(view: &View<'_>, draft: &mut Draft, container: &Container) {
    let told = |reasons: &[&str]| reasons.iter().any(|reason| view.was_waiting(&container.name, reason));
    if told(&["ErrImageNeverPull"]) && !view.seen.images.contains_key(&container.image) {
        explain_never(view, draft, container);
    }
    let fact = view.seen.facts.volatile.images.get(&container.image);
    if let Some(failure) = fact.and_then(failing).filter(|_| told(&["ErrImagePull", "ImagePullBackOff"])) {
        explain(view, draft, container, failure);
    }
}

/// Why a container waits whose image could not be had: first the error itself, then the back-off.
fn explain(view: &View<'_>, draft: &mut Draft, container: &Container, failure: &Retry) {
    let reference = &container.image;
    let told = failure.failed_at + Millis(failure.delay.0 / 2);
    if draft.wake(told, view.now) {
        draft.wait(&container.name, &failure.reason, Some(failure.message.clone()));
        return;
    }
    let text = format!("Back-off pulling image {reference:?}");
    if !view.was_waiting(&container.name, "ImagePullBackOff") {
        let path = Some(field_path(view.pod, &container.name));
        draft.event(false, "BackOff", path.clone(), text.clone());
        draft.event(true, "Failed", path, "Error: ImagePullBackOff".into());
    }
    let message = format!("{text}: {}: {}", failure.reason, failure.message);
    draft.wait(&container.name, "ImagePullBackOff", Some(message));
}

/// Fetches what other containers will need while the first ones start.
pub(super) fn prefetch<'a>(view: &View<'_>, draft: &mut Draft, containers: impl Iterator<Item = &'a Container>) {
    for container in containers {
        let reference = &container.image;
        let fact = view.seen.facts.volatile.images.get(reference);
        let absent = !view.seen.images.contains_key(reference);
        let failed = fact.and_then(failing).is_some();
        let wanted = absent && !failed && container.pull_policy != PullPolicy::Never;
        if wanted && !draft.wake(vanished_until(fact), view.now) {
            let policy = container.pull_policy;
            draft.act(view.seen, Action::EnsureImage { reference: reference.clone(), policy, silent: true });
        }
    }
}

/// The pull back-off after one more failure.
pub(super) fn next_retry(fact: &ImageFact, reason: String, message: String, now: BootTime) -> Retry {
    let delay = match &fact.failure {
        Some(last) if now.since(last.failed_at).0 <= restart::MAX_PULL_DELAY.0 * 2 => {
            Millis(last.delay.0.saturating_mul(2)).min(restart::MAX_PULL_DELAY)
        }
        Some(_) | None => restart::FIRST_DELAY,
    };
    Retry { reason, message, delay, failed_at: now }
}
