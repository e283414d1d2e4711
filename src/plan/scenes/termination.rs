//! Stopping, in order and in time.

use super::testing::{container, pod, sidecar};
use super::*;

fn running() -> Scene {
    let mut pod = pod("p", &["web", "db"]);
    pod.spec.init_containers = vec![sidecar("logs"), container("setup"), sidecar("proxy")];
    let mut scene = Scene::new(pod);
    scene.go();
    scene.exit("setup", 0);
    scene.go();
    scene.reasons();
    scene
}

#[test]
fn sidecars_stop_after_all_others_in_reverse() {
    let mut scene = running();
    scene.stop(None);
    assert_eq!(scene.go(), ["SIGTERM web 30000ms", "SIGTERM db 30000ms"]);
    assert!(scene.plan.status.terminating);
    scene.pass(1000);
    scene.exit("db", 0);
    assert_eq!(scene.go(), ["remove db"]);
    scene.exit("web", 143);
    assert_eq!(scene.go(), ["SIGTERM proxy 29000ms", "remove web"]);
    scene.pass(1000);
    scene.exit("proxy", 0);
    assert_eq!(scene.go(), ["SIGTERM logs 28000ms", "remove proxy"]);
    scene.exit("logs", 0);
    assert_eq!(scene.go(), ["remove logs", "detach 0", "destroy 0", "remove pod"]);
    assert!(scene.plan.gone);
    assert_eq!(scene.reasons(), ["Killing"; 4]);
}

#[test]
fn the_deadline_kills_and_sidecars_get_two_seconds_at_least() {
    let mut scene = running();
    scene.stop(None);
    scene.go();
    assert_eq!(scene.plan.wake_at, Some(scene.now.boot + Millis(30_000)));
    scene.pass(29_999);
    assert!(scene.go().is_empty());
    scene.pass(1);
    assert_eq!(scene.go()[..4], ["kill web", "kill db", "SIGTERM proxy 2000ms", "SIGTERM logs 2000ms"]);
    scene.pass(1999);
    assert!(scene.go().is_empty());
    scene.pass(1);
    assert_eq!(scene.go()[..2], ["kill proxy", "kill logs"]);
}

#[test]
fn grace_only_shrinks() {
    let mut scene = running();
    scene.stop(Some(20));
    scene.go();
    scene.stop(None);
    scene.go();
    assert_eq!(scene.plan.wake_at, Some(scene.now.boot + Millis(20_000)), "not longer again");
    scene.pass(3000);
    scene.stop(Some(0));
    assert!(scene.go().is_empty(), "a second is the least");
    scene.pass(1000);
    assert_eq!(scene.go()[..2], ["kill web", "kill db"]);
}

#[test]
fn a_kill_that_does_not_help_is_repeated() {
    let mut scene = Scene::new(pod("p", &["a"]));
    scene.go();
    scene.fail.insert("kill a".into(), "System");
    scene.stop(Some(5));
    scene.go();
    scene.pass(5000);
    assert_eq!(scene.go(), ["kill a"]);
    assert_eq!(scene.plan.wake_at, Some(scene.now.boot + Millis(10_000)));
    scene.pass(10_000);
    assert_eq!(scene.go(), ["kill a"]);
}

#[test]
fn the_images_own_stop_signal_is_used() {
    let mut scene = Scene::new(pod("p", &["a"]));
    scene.seen.images.get_mut("a:1").unwrap().stop_signal = Some("SIGQUIT".into());
    scene.go();
    scene.stop(None);
    assert_eq!(scene.go(), ["SIGQUIT a 30000ms"]);
}

#[test]
fn a_stop_does_not_wait_for_a_pull() {
    let mut scene = Scene::new(pod("p", &["a"]));
    scene.seen.images.clear();
    scene.hang.insert("prefetch a:1".into());
    assert_eq!(scene.go(), ["prefetch a:1", "sandbox 0", "attach 0"]);
    scene.stop(None);
    let done = scene.go();
    assert_eq!(done[1..], ["detach 0", "destroy 0", "remove pod"], "{done:?}");
    assert!(done[0].starts_with("cancel EnsureImage"), "{done:?}");
}

#[test]
fn teardown_goes_on_after_a_failure_and_comes_back_to_it() {
    let mut scene = Scene::new(pod("p", &["a"]));
    scene.go();
    scene.fail.insert("detach 0".into(), "System");
    scene.stop(None);
    scene.go();
    scene.exit("a", 0);
    assert_eq!(scene.go(), ["remove a", "detach 0", "destroy 0"]);
    assert!(!scene.plan.gone);
    scene.fail.clear();
    scene.pass(500);
    assert_eq!(scene.go(), ["detach 0", "remove pod"]);
    assert!(scene.plan.gone);
}

#[test]
fn what_nobody_knows_is_removed() {
    let mut scene = running();
    scene.seen.pod = None;
    let done = scene.go();
    assert_eq!(done.iter().filter(|d| d.starts_with("SIGTERM")).count(), 4, "{done:?}");
    scene.pass(2000);
    scene.go();
    let mut last = Vec::new();
    for _ in 0..3 {
        scene.pass(2000);
        last.extend(scene.go());
    }
    assert!(scene.plan.gone, "{last:?} {:#?}", scene.plan);
}

#[test]
fn an_evicted_pod_has_failed() {
    let mut scene = Scene::new(pod("p", &["a"]));
    scene.go();
    let cause =
        StopCause::Evicted { reason: "Evicted".into(), message: "The node was low on resource: memory. ".into() };
    let pod = scene.seen.pod.clone();
    let _ = fold::stop(&mut scene.seen.facts, pod.as_deref(), cause, Some(Millis(1000)), scene.now);
    assert_eq!(scene.go(), ["SIGTERM a 2000ms"]);
    scene.exit("a", 0);
    scene.go();
    assert_eq!((scene.phase(), scene.plan.status.reason.as_deref()), (Phase::Failed, Some("Evicted")));
    assert!(scene.seen.facts.durable.finished.is_some() && !scene.plan.gone);
}

/// The time that a container has left does not begin anew with each try.
#[test]
fn a_stop_signal_that_could_not_be_sent_is_tried_again_in_time() {
    let mut scene = Scene::new(pod("p", &["a"]));
    scene.go();
    scene.reasons();
    scene.fail.insert("SIGTERM a 5000ms".into(), "System");
    scene.stop(Some(5));
    assert_eq!(scene.go(), ["SIGTERM a 5000ms"]);
    assert_eq!(scene.plan.wake_at, Some(scene.now.boot + Millis(1000)));
    scene.fail.insert("SIGTERM a 4000ms".into(), "System");
    scene.pass(1000);
    assert_eq!(scene.go(), ["SIGTERM a 4000ms"]);
    scene.pass(1000);
    assert_eq!(scene.go(), ["SIGTERM a 3000ms"]);
    assert_eq!(scene.plan.wake_at, Some(scene.now.boot + Millis(3000)), "sent at last");
    scene.pass(2999);
    assert!(scene.go().is_empty());
    scene.pass(1);
    assert_eq!(scene.go()[0], "kill a");
    assert_eq!(scene.reasons(), ["Killing"], "told once");
}

#[test]
fn a_stop_signal_that_can_never_be_sent_does_not_put_the_kill_off() {
    let mut scene = Scene::new(pod("p", &["a"]));
    scene.go();
    for grace in [3000, 2000] {
        scene.fail.insert(format!("SIGTERM a {grace}ms"), "System");
    }
    scene.stop(Some(3));
    assert_eq!(scene.go(), ["SIGTERM a 3000ms"]);
    for _ in 0..2 {
        scene.pass(1000);
        assert_eq!(scene.go(), ["SIGTERM a 2000ms"], "never less than the least grace");
    }
    scene.pass(1000);
    assert_eq!(scene.go()[0], "kill a");
}
