//! What a reboot, a lost supervisor or a lost commit leaves.

use super::testing::{container, pod, sidecar};
use super::*;
use crate::model::pod::RestartPolicy;

#[test]
fn pods_that_are_to_run_come_back_and_count_on() {
    let mut pod = pod("p", &["app"]);
    pod.spec.init_containers = vec![container("setup")];
    let mut scene = Scene::new(pod);
    scene.go();
    scene.exit("setup", 0);
    scene.go();
    let first = scene.seen.containers[0].entry.id.clone();
    scene.reboot();
    assert_eq!(scene.go(), ["sandbox 1", "attach 1", "start setup#1"], "init containers run again");
    assert_eq!(scene.tell("app"), "ContainerStatusUnknown 137 0");
    scene.exit("setup", 0);
    assert_eq!(scene.go(), ["remove setup", "start app#1"]);
    assert_eq!(scene.conditions()[1], "Initialized=true");
    assert_eq!(scene.tell("app"), "Running 1 started ready");
    let last = scene.container("app").last_state.clone().unwrap();
    assert_eq!((last.exit_code, last.reason.as_str()), (137, "ContainerStatusUnknown"));
    assert_ne!(scene.seen.containers[0].entry.id, first);
}

#[test]
fn what_must_run_once_does_not_run_again() {
    for (policy, code, phase) in [
        (RestartPolicy::Never, None, Phase::Failed),
        (RestartPolicy::Never, Some(0), Phase::Succeeded),
        (RestartPolicy::OnFailure, Some(0), Phase::Succeeded),
    ] {
        let mut pod = pod("p", &["app"]);
        pod.spec.restart_policy = policy;
        pod.spec.init_containers = vec![container("setup")];
        let mut scene = Scene::new(pod);
        scene.go();
        scene.exit("setup", 0);
        scene.go();
        if let Some(code) = code {
            scene.exit("app", code);
            scene.go();
        }
        scene.reboot();
        let done = scene.go();
        assert!(!done.iter().any(|d| d.starts_with("start") || d.starts_with("sandbox")), "{done:?}");
        assert_eq!(scene.phase(), phase);
    }
}

#[test]
fn a_finished_exit_that_was_folded_survives_even_when_the_end_was_not() {
    let mut pod = pod("p", &["once", "loop"]);
    pod.spec.restart_policy = RestartPolicy::OnFailure;
    let mut scene = Scene::new(pod);
    scene.go();
    scene.exit("once", 0);
    scene.go();
    scene.reboot();
    assert_eq!(scene.go(), ["sandbox 1", "attach 1", "start loop#1"]);
    assert_eq!(scene.tell("once"), "Completed 0 0");
}

#[test]
fn a_new_supervisor_finds_unknown_ends_and_all_starts_again() {
    let mut scene = Scene::new(pod("p", &["app"]));
    scene.go();
    scene.exit("app", 137);
    if let ContainerState::Exited(exit) = &mut scene.seen.containers[0].entry.state {
        exit.known = false;
    }
    scene.seen.sandbox = None;
    scene.pass(10);
    assert_eq!(scene.go(), ["remove app", "sandbox 1", "detach 0", "attach 1", "start app#1"]);
    assert!(scene.reasons().contains(&"SandboxChanged".to_owned()));
    let last = scene.container("app").last_state.clone().unwrap();
    assert_eq!((last.reason.as_str(), last.exit_code), ("ContainerStatusUnknown", 137));
}

#[test]
fn nothing_is_forgotten_before_it_is_committed() {
    let mut pod = pod("p", &["app"]);
    pod.spec.restart_policy = RestartPolicy::Never;
    let mut scene = Scene::new(pod);
    scene.go();
    scene.exit("app", 0);
    let changes = fold::table(&mut scene.seen, scene.now);
    assert!(changes.durable && changes.commit_first, "an end for good");
    assert!(scene.seen.uncommitted, "what was just learned is not on the disk");
    scene.uncommitted = true;
    assert!(!scene.go().iter().any(|d| d.starts_with("remove")));
    scene.uncommitted = false;
    assert!(scene.go().contains(&"remove app".to_owned()));
}

#[test]
fn an_end_is_committed_before_anything_is_taken_away() {
    let mut pod = pod("p", &["app"]);
    pod.spec.restart_policy = RestartPolicy::Never;
    let mut scene = Scene::new(pod);
    scene.go();
    scene.uncommitted = true;
    scene.exit("app", 0);
    assert!(scene.look().is_empty());
    assert!(scene.look().is_empty());
    scene.uncommitted = false;
    assert_eq!(scene.go(), ["remove app", "detach 0", "destroy 0"]);
}

#[test]
fn an_attempt_belongs_to_the_sandbox_that_it_ran_in() {
    let mut pod = pod("p", &["app"]);
    pod.spec.init_containers = vec![container("setup")];
    let mut scene = Scene::new(pod);
    scene.go();
    // Only the supervisor still knows of the first attempt, and the sandbox is another one by now.
    scene.exit("setup", 0);
    scene.seen.facts.durable.containers.clear();
    scene.pass(1000);
    let mut sandbox = scene.seen.sandbox.clone().unwrap();
    (sandbox.attempt, sandbox.created_at) = (1, scene.now.boot);
    scene.seen.sandbox = Some(sandbox);
    assert_eq!(scene.go(), ["remove setup", "detach 0", "attach 1", "start setup#1"]);
}

#[test]
fn a_lost_record_is_taken_over_again_without_counting_twice() {
    let mut scene = Scene::new(pod("p", &["app"]));
    scene.go();
    let before = scene.seen.facts.durable.clone();
    scene.exit("app", 1);
    scene.go();
    let delay = scene.seen.facts.volatile.containers["app"].back_off.clone();
    scene.seen.facts.durable = before;
    scene.pass(5);
    assert!(scene.go().is_empty());
    assert_eq!(scene.seen.facts.volatile.containers["app"].back_off, delay);
    assert_eq!(scene.tell("app"), "Running 1 started ready");
}

/// What init containers did before the reboot is to be done again: until then the pod is as far as a new one.
#[test]
fn after_a_reboot_no_init_container_has_done_its_work() {
    let mut pod = pod("p", &["app"]);
    pod.spec.init_containers = vec![container("setup"), sidecar("side"), container("migrate")];
    let mut scene = Scene::new(pod);
    scene.go();
    for init in ["setup", "migrate"] {
        scene.exit(init, 0);
        scene.go();
    }
    assert_eq!((scene.phase(), scene.tell("app").as_str()), (Phase::Running, "Running 0 started ready"));
    scene.reboot();
    let not_yet = |scene: &Scene, names: &str| {
        assert_eq!(scene.phase(), Phase::Pending);
        assert_eq!(scene.conditions()[1], "Initialized=false ContainersNotInitialized");
        let message = scene.plan.status.conditions[1].message.clone().unwrap();
        assert_eq!(message, format!("containers with incomplete status: [{names}]"));
    };
    scene.look();
    not_yet(&scene, "setup side migrate");
    assert_eq!(scene.tell("setup"), "Waiting PodInitializing 0");
    let last = scene.container("setup").last_state.clone().unwrap();
    assert_eq!((last.exit_code, last.reason.as_str()), (0, "Completed"));
    scene.hang.insert("attach 1".into());
    scene.go();
    not_yet(&scene, "setup side migrate");
    scene.finish("attach 1");
    scene.go();
    not_yet(&scene, "setup side migrate");
    assert_eq!(scene.tell("setup"), "Running 1");
    scene.exit("setup", 0);
    scene.go();
    not_yet(&scene, "migrate");
    scene.exit("migrate", 0);
    scene.go();
    assert_eq!((scene.phase(), scene.tell("migrate").as_str()), (Phase::Running, "Completed 0 1 ready"));
}

fn shut_down(scene: &mut Scene) {
    let pod = scene.seen.pod.clone();
    let _ = fold::stop(&mut scene.seen.facts, pod.as_deref(), StopCause::Shutdown, None, scene.now);
}

/// A supervisor that is only started anew takes its word back with its successor's first.
#[test]
fn a_shutdown_that_is_taken_back_lets_pods_go_on() {
    let mut pod = pod("p", &["server"]);
    pod.spec.restart_policy = RestartPolicy::Never;
    let mut scene = Scene::new(pod);
    scene.go();
    scene.pass(100);
    shut_down(&mut scene);
    scene.go();
    scene.pass(100);
    scene.exit("server", 0);
    scene.go();
    assert!(!fold::go_on(&mut scene.seen.facts).durable);
    assert!(scene.go().contains(&"start server#1".to_owned()));
    assert_eq!(scene.tell("server"), "Running 1 started ready");
    // What is being removed goes on going.
    scene.stop(None);
    fold::go_on(&mut scene.seen.facts);
    assert_eq!(scene.go()[0], "SIGTERM server 30000ms");
}

/// However the program answers the stop signal: it did not end, it was ended.
#[test]
fn what_a_shutdown_stops_comes_back() {
    for policy in [RestartPolicy::Never, RestartPolicy::OnFailure, RestartPolicy::Always] {
        for code in [0, 143] {
            let mut pod = pod("p", &["once", "server"]);
            pod.spec.restart_policy = policy;
            let mut scene = Scene::new(pod);
            scene.go();
            scene.exit("once", 0);
            scene.go();
            scene.pass(100);
            shut_down(&mut scene);
            let signal =
                if policy == RestartPolicy::Always { "SIGTERM once 30000ms" } else { "SIGTERM server 30000ms" };
            assert_eq!(scene.go()[0], signal);
            scene.pass(100);
            scene.exit("once", code);
            scene.exit("server", code);
            scene.go();
            assert_eq!(scene.phase(), Phase::Running, "{policy:?} {code}");
            assert!(scene.plan.status.terminating && scene.seen.facts.durable.finished.is_none());
            assert!(scene.seen.facts.durable.address.is_none() || !scene.plan.gone);
            scene.reboot();
            let mut done = scene.go();
            done.retain(|d| d.starts_with("start"));
            let (again, once) = match policy {
                RestartPolicy::Always => (vec!["start once#2", "start server#1"], "Running 2 started ready"),
                RestartPolicy::OnFailure | RestartPolicy::Never => (vec!["start server#1"], "Completed 0 0"),
            };
            assert_eq!(done, again, "{policy:?} {code}");
            assert_eq!((scene.phase(), scene.tell("once").as_str()), (Phase::Running, once), "{policy:?} {code}");
        }
    }
}

#[test]
fn what_had_ended_before_a_shutdown_stays_ended() {
    for (policy, code, phase) in [
        (RestartPolicy::Never, 3, Phase::Failed),
        (RestartPolicy::Never, 0, Phase::Succeeded),
        (RestartPolicy::OnFailure, 0, Phase::Succeeded),
    ] {
        let mut pod = pod("p", &["once"]);
        pod.spec.restart_policy = policy;
        pod.spec.init_containers = vec![sidecar("side")];
        let mut scene = Scene::new(pod);
        scene.go();
        scene.exit("once", code);
        // The shutdown comes before the agent has seen the end.
        scene.pass(1);
        shut_down(&mut scene);
        scene.go();
        scene.exit("side", 0);
        scene.go();
        assert!(scene.seen.facts.durable.finished.is_none(), "the next boot finds out");
        scene.reboot();
        assert!(!scene.go().iter().any(|d| d.starts_with("start") || d.starts_with("sandbox")));
        assert_eq!(scene.phase(), phase);
        assert!(scene.seen.facts.durable.finished.is_some());
    }
}

#[test]
fn an_init_container_that_a_shutdown_stops_has_not_failed() {
    let mut pod = pod("p", &["app"]);
    pod.spec.restart_policy = RestartPolicy::Never;
    pod.spec.init_containers = vec![container("setup")];
    let mut scene = Scene::new(pod);
    scene.go();
    shut_down(&mut scene);
    scene.go();
    scene.exit("setup", 143);
    scene.go();
    assert_eq!(scene.phase(), Phase::Pending);
    scene.reboot();
    assert_eq!(scene.go(), ["sandbox 1", "attach 1", "start setup#1"]);
}
