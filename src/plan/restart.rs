//! Whether a container starts again after its end, and when.

use crate::model::observed::{BackOff, ContainerFact};
use crate::model::pod::{Container, Pod, RestartPolicy};
use crate::model::status::Terminated;
use crate::model::{BootTime, Millis};

/// The first delay of the crash-loop and of the pull back-off.
pub(super) const FIRST_DELAY: Millis = Millis::from_secs(10);

/// The longest delay of the pull back-off.
pub(super) const MAX_PULL_DELAY: Millis = Millis::from_secs(300);

/// What upstream's sync waits after an error that has no back-off of its own.
pub(super) const ERROR_DELAY: Millis = Millis::from_secs(10);

/// The policy that counts for a container: its own, else the pod's.
pub(super) fn policy(pod: &Pod, container: &Container) -> RestartPolicy {
    container.restart_policy.unwrap_or(pod.spec.restart_policy)
}

/// Whether an init container did what it was there for. A process of it that ran out of memory is a failure, whatever
/// the exit code (`isInitContainerFailed`).
pub(super) fn succeeded(ended: &Terminated) -> bool {
    ended.exit_code == 0 && ended.reason != "OOMKilled"
}

/// Whether an ordinary container or a sidecar starts again.
pub(super) fn again(pod: &Pod, container: &Container, ended: &Terminated) -> bool {
    match policy(pod, container) {
        RestartPolicy::Always => true,
        RestartPolicy::OnFailure => ended.exit_code != 0,
        RestartPolicy::Never => false,
    }
}

/// Whether an init container that is not a sidecar starts again.
pub(super) fn init_again(pod: &Pod, container: &Container, ended: &Terminated) -> bool {
    !succeeded(ended) && policy(pod, container) != RestartPolicy::Never
}

/// What the back-off counts for: the image and the resources (`GetBackoffKey`). 64-bit FNV-1a, in hexadecimal.
pub(super) fn key(container: &Container) -> String {
    let resources = serde_json::to_vec(&container.resources).unwrap_or_default();
    let bytes = container.image.bytes().chain([0]).chain(resources);
    let hash = bytes.fold(0xcbf2_9ce4_8422_2325_u64, |h, b| (h ^ u64::from(b)).wrapping_mul(0x0100_0000_01b3));
    format!("{hash:016x}")
}

/// The back-off after the start of `attempt`, which is not the first. It starts anew once an attempt has run for twice
/// the longest delay.
pub(super) fn next(fact: &ContainerFact, key: &str, attempt: u32, now: BootTime, longest: Millis) -> BackOff {
    let first = FIRST_DELAY.min(longest);
    let delay = match &fact.back_off {
        Some(b) if b.key == key && !expired(b, fact.finished_at, longest) => {
            Millis(b.delay.0.saturating_mul(2)).min(longest)
        }
        Some(_) | None => first,
    };
    BackOff { key: key.into(), delay, updated_at: now, attempt }
}

/// When the next attempt may start, if there is something to wait for at all.
pub(super) fn not_before(fact: &ContainerFact, key: &str, longest: Millis) -> Option<(BootTime, Millis)> {
    let finished = fact.finished_at?;
    let back_off = fact.back_off.as_ref().filter(|b| b.key == key && !expired(b, fact.finished_at, longest))?;
    Some((finished + back_off.delay, back_off.delay))
}

fn expired(back_off: &BackOff, finished: Option<BootTime>, longest: Millis) -> bool {
    finished.is_some_and(|f| f.since(back_off.updated_at).0 > longest.0.saturating_mul(2))
}

/// A length of time as Go prints it: `10s`, `1m20s`, `5m0s`.
pub(super) fn go_duration(length: Millis) -> String {
    let (secs, millis) = (length.as_secs(), length.0 % 1000);
    if secs == 0 {
        return if millis == 0 { "0s".into() } else { format!("{millis}ms") };
    }
    let fraction = if millis == 0 { String::new() } else { format!(".{millis:03}").trim_end_matches('0').into() };
    match (secs / 3600, secs / 60 % 60, secs % 60) {
        (0, 0, s) => format!("{s}{fraction}s"),
        (0, m, s) => format!("{m}m{s}{fraction}s"),
        (h, m, s) => format!("{h}h{m}m{s}{fraction}s"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plan::testing::{container, pod};

    fn ended(exit_code: i32, reason: &str) -> Terminated {
        let at = crate::model::WallTime(0);
        let reason = reason.into();
        Terminated {
            exit_code,
            signal: None,
            reason,
            message: None,
            started_at: at,
            finished_at: at,
            container_id: None,
        }
    }

    #[test]
    fn the_first_restart_is_immediate_then_the_delay_doubles() {
        let longest = Millis::from_secs(300);
        let mut fact = ContainerFact::default();
        let mut now = BootTime(1_000_000);
        let mut delays = Vec::new();
        for attempt in 1..=8 {
            fact.finished_at = Some(now);
            let wait = not_before(&fact, "k", longest).map_or(Millis(0), |(at, _)| at.since(now));
            delays.push(wait.as_secs());
            now = now + wait;
            fact.back_off = Some(next(&fact, "k", attempt, now, longest));
            now = now + Millis(100);
        }
        assert_eq!(delays, [0, 10, 20, 40, 80, 160, 300, 300]);
        // An attempt that ran for more than ten minutes starts the count anew, and so does another image.
        fact.finished_at = Some(now + Millis::from_secs(601));
        assert_eq!(not_before(&fact, "k", longest), None);
        assert_eq!(next(&fact, "k", 9, now, longest).delay, Millis::from_secs(10));
        fact.finished_at = Some(now);
        assert_eq!(not_before(&fact, "other", longest), None);
        assert_eq!(next(&fact, "other", 9, now, longest).delay, Millis::from_secs(10));
    }

    #[test]
    fn a_short_longest_delay_cuts_the_first() {
        let longest = Millis::from_secs(3);
        let fact = ContainerFact { finished_at: Some(BootTime(5)), ..ContainerFact::default() };
        assert_eq!(next(&fact, "k", 1, BootTime(5), longest).delay, longest);
    }

    #[test]
    fn policies() {
        use RestartPolicy::{Always, Never, OnFailure};
        for (of_pod, own, code, reason, main, init) in [
            (Always, None, 0, "Completed", true, false),
            (Always, None, 1, "Error", true, true),
            (OnFailure, None, 0, "Completed", false, false),
            (OnFailure, None, 0, "OOMKilled", false, true),
            (OnFailure, None, 9, "Error", true, true),
            (Never, None, 9, "Error", false, false),
            (Never, Some(OnFailure), 9, "Error", true, true),
            (Always, Some(Never), 9, "Error", false, false),
        ] {
            let mut pod = pod("p", &["a"]);
            pod.spec.restart_policy = of_pod;
            let container = Container { restart_policy: own, ..container("a") };
            let ended = ended(code, reason);
            let got = (again(&pod, &container, &ended), init_again(&pod, &container, &ended));
            assert_eq!(got, (main, init), "{of_pod:?} {own:?} {code} {reason}");
        }
    }

    #[test]
    fn the_key_follows_image_and_resources() {
        let a = container("a");
        let mut b = a.clone();
        b.image = "a:2".into();
        let mut c = a.clone();
        c.resources.limits.cpu = Some(crate::model::Quantity::from_units(1));
        assert_eq!(key(&a), key(&a.clone()));
        assert!(key(&a) != key(&b) && key(&a) != key(&c));
    }

    #[test]
    fn durations_read_as_upstream_prints_them() {
        for (millis, text) in [
            (0, "0s"),
            (5, "5ms"),
            (1500, "1.5s"),
            (10_000, "10s"),
            (80_000, "1m20s"),
            (300_000, "5m0s"),
            (3_600_000, "1h0m0s"),
        ] {
            assert_eq!(go_duration(Millis(millis)), text);
        }
    }
}
