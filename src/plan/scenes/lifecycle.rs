//! From the first start to the last exit.

use super::testing::{container, pod, sidecar};
use super::*;
use crate::model::pod::{RestartPolicy, Volume, VolumeKind};

#[test]
fn a_pod_comes_up_in_order() {
    let mut pod = pod("p", &["web", "db"]);
    pod.spec.volumes =
        vec![Volume { name: "data".into(), kind: VolumeKind::EmptyDir { memory: false, size_limit: None } }];
    let mut proxy = sidecar("proxy");
    proxy.startup = Some(probe(1, 3));
    pod.spec.init_containers = vec![container("setup"), proxy, container("migrate")];
    let mut scene = Scene::new(pod);
    failing_probe(&mut scene, ProbeKind::Startup, "proxy");

    assert_eq!(scene.go(), ["prepare data", "sandbox 0", "attach 0", "start setup#0"]);
    assert_eq!(scene.phase(), Phase::Pending);
    assert_eq!(scene.tell("web"), "Waiting PodInitializing 0");
    assert_eq!(
        scene.conditions(),
        [
            "PodReadyToStartContainers=true",
            "Initialized=false ContainersNotInitialized",
            "Ready=false ContainersNotReady",
            "ContainersReady=false ContainersNotReady",
            "PodScheduled=true"
        ]
    );
    let message = scene.plan.status.conditions[1].message.clone().unwrap();
    assert_eq!(message, "containers with incomplete status: [setup proxy migrate]");

    scene.exit("setup", 0);
    assert_eq!(scene.go(), ["remove setup", "start proxy#0", "Startup proxy"]);
    assert_eq!(scene.tell("setup"), "Completed 0 0 ready");
    assert_eq!(scene.tell("proxy"), "Running 0");
    answer(&mut scene, ProbeKind::Startup, "proxy", true);
    assert_eq!(scene.go(), ["start migrate#0"], "gated by the startup probe");
    scene.exit("migrate", 0);
    assert_eq!(scene.go(), ["remove migrate", "start web#0", "start db#0"]);
    assert_eq!(scene.phase(), Phase::Running);
    assert_eq!(scene.tell("proxy"), "Running 0 started ready");
    assert_eq!(scene.conditions()[1..4], ["Initialized=true", "Ready=true", "ContainersReady=true"]);
    assert_eq!(scene.plan.status.pod_ips, ["10.88.0.2".parse::<std::net::IpAddr>().unwrap()]);
    let one = ["Pulled", "Created", "Started"];
    assert_eq!(scene.reasons(), [one; 5].concat());
}

#[test]
fn the_next_start_waits_for_the_one_before_to_return() {
    let mut scene = Scene::new(pod("p", &["a", "b"]));
    scene.hang.insert("start a#0".into());
    assert_eq!(scene.go(), ["sandbox 0", "attach 0", "start a#0"]);
    scene.finish("start a#0");
    assert_eq!(scene.go(), ["start b#0"]);
}

#[test]
fn a_crash_loop_backs_off_and_says_so() {
    let mut scene = Scene::new(pod("p", &["app", "other"]));
    scene.go();
    scene.reasons();
    scene.exit("app", 1);
    assert_eq!(scene.go(), ["remove app", "start app#1"], "the first restart is immediate");
    scene.pass(500);
    scene.exit("app", 0);
    assert_eq!(scene.go(), ["remove app"]);
    assert_eq!(scene.tell("app"), "Waiting CrashLoopBackOff 1");
    assert_eq!(scene.message("app"), "back-off 10s restarting failed container=app pod=p_default(p)");
    let last = scene.container("app").last_state.clone().unwrap();
    assert_eq!((last.reason.as_str(), last.exit_code), ("Completed", 0), "also after a success");
    assert_eq!(scene.phase(), Phase::Running);
    assert_eq!(scene.conditions()[2], "Ready=false ContainersNotReady");
    assert_eq!(scene.plan.wake_at, Some(scene.now.boot + Millis(10_000)));
    scene.pass(9_999);
    assert!(scene.go().is_empty());
    assert_eq!(scene.reasons(), ["Pulled", "Created", "Started", "BackOff"]);
    scene.pass(1);
    assert_eq!(scene.go(), ["start app#2"]);
    scene.exit("app", 7);
    scene.go();
    assert_eq!(scene.message("app"), "back-off 20s restarting failed container=app pod=p_default(p)");
}

#[test]
fn an_end_is_told_when_all_are_done() {
    for (policy, codes, phase, last) in [
        (RestartPolicy::Never, [0, 0], Phase::Succeeded, "PodCompleted"),
        (RestartPolicy::Never, [0, 3], Phase::Failed, "PodFailed"),
        (RestartPolicy::OnFailure, [0, 0], Phase::Succeeded, "PodCompleted"),
    ] {
        let mut pod = pod("p", &["a", "b"]);
        pod.spec.restart_policy = policy;
        pod.spec.init_containers = vec![sidecar("side")];
        let mut scene = Scene::new(pod);
        scene.go();
        scene.exit("a", codes[0]);
        assert_eq!(scene.go(), ["remove a"]);
        assert_eq!(scene.phase(), Phase::Running);
        scene.exit("b", codes[1]);
        assert_eq!(scene.go(), ["remove b", "SIGTERM side 30000ms"]);
        assert_eq!(scene.phase(), Phase::Running, "withheld while the sidecar runs");
        scene.exit("side", 9);
        assert_eq!(scene.go(), ["remove side", "detach 0", "destroy 0"]);
        assert_eq!(scene.phase(), phase, "a sidecar's exit code does not count");
        assert_eq!(scene.conditions()[3], format!("ContainersReady=false {last}"));
        assert_eq!(scene.conditions()[0], "PodReadyToStartContainers=false");
        assert!(scene.seen.facts.durable.finished.is_some());
        assert!(!scene.plan.status.pod_ips.is_empty(), "addresses are kept after the end");
    }
}

/// Five containers share 12 KiB (`normalizeStatus`); a character that does not fit goes whole.
#[test]
fn termination_messages_share_what_a_pod_may_say() {
    let mut pod = pod("p", &["a", "b", "c", "d"]);
    pod.spec.restart_policy = RestartPolicy::Always;
    pod.spec.init_containers = vec![sidecar("side")];
    let mut scene = Scene::new(pod);
    scene.go();
    let text = format!("x{}", "€".repeat(1300));
    for seen in &mut scene.seen.containers {
        seen.message = Some(text.clone());
    }
    for name in ["a", "side"] {
        scene.exit(name, 1);
    }
    scene.go();
    scene.pass(1000);
    scene.go();
    for name in ["a", "side"] {
        let last = scene.container(name).last_state.clone().unwrap();
        assert_eq!(last.message.as_deref(), text.get(..2455), "{name}");
    }
}

#[test]
fn a_failed_init_container_fails_a_pod_that_never_restarts() {
    let mut pod = pod("p", &["app"]);
    pod.spec.restart_policy = RestartPolicy::Never;
    pod.spec.init_containers = vec![sidecar("side"), container("setup")];
    let mut scene = Scene::new(pod);
    scene.go();
    scene.exit("setup", 2);
    assert_eq!(scene.go(), ["remove setup", "SIGTERM side 30000ms"]);
    scene.exit("side", 0);
    scene.go();
    assert_eq!((scene.phase(), scene.tell("app").as_str()), (Phase::Failed, "Waiting PodInitializing 0"));
}

#[test]
fn a_failed_init_container_is_tried_again_otherwise() {
    let mut pod = pod("p", &["app"]);
    pod.spec.init_containers = vec![container("setup")];
    let mut scene = Scene::new(pod);
    scene.go();
    scene.exit("setup", 2);
    assert_eq!(scene.go(), ["remove setup", "start setup#1"]);
    scene.exit("setup", 2);
    scene.go();
    assert_eq!((scene.phase(), scene.tell("setup").as_str()), (Phase::Pending, "Waiting CrashLoopBackOff 1"));
}

#[test]
fn a_sidecar_restarts_in_place_even_in_a_pod_that_never_restarts() {
    let mut pod = pod("p", &["app"]);
    pod.spec.restart_policy = RestartPolicy::Never;
    pod.spec.init_containers = vec![sidecar("side"), container("setup")];
    let mut scene = Scene::new(pod);
    scene.go();
    scene.exit("setup", 0);
    scene.go();
    scene.exit("side", 1);
    assert_eq!(scene.go(), ["remove side", "start side#1"]);
    assert_eq!((scene.tell("app").as_str(), scene.phase()), ("Running 0 started ready", Phase::Running));
}

#[test]
fn liveness_restarts_with_the_probes_own_grace() {
    let mut pod = pod("p", &["app"]);
    let mut liveness = probe(5, 2);
    liveness.termination_grace_secs = Some(7);
    liveness.initial_delay_secs = 3;
    pod.spec.containers[0].liveness = Some(liveness);
    let mut scene = Scene::new(pod);
    failing_probe(&mut scene, ProbeKind::Liveness, "app");
    scene.go();
    scene.reasons();
    assert_eq!(scene.plan.wake_at, Some(scene.now.boot + Millis(3000)));
    scene.pass(3000);
    assert_eq!(scene.go(), ["Liveness app"]);
    answer(&mut scene, ProbeKind::Liveness, "app", false);
    scene.go();
    assert_eq!(scene.plan.wake_at, Some(scene.now.boot + Millis(5000)));
    scene.pass(5000);
    scene.go();
    answer(&mut scene, ProbeKind::Liveness, "app", false);
    assert_eq!(scene.go(), ["SIGTERM app 7000ms"]);
    let killing = scene.events.iter().find(|e| e.reason == "Killing").unwrap();
    assert_eq!(killing.message, "Container app failed liveness probe, will be restarted");
    assert_eq!(scene.reasons(), ["Unhealthy", "Unhealthy", "Killing"]);
    assert_eq!(scene.tell("app"), "Running 0 started ready");
    scene.pass(6999);
    assert!(scene.go().is_empty());
    scene.pass(1);
    assert_eq!(scene.go(), ["kill app", "remove app", "start app#1"]);
}

#[test]
fn readiness_follows_its_probe() {
    let mut pod = pod("p", &["app"]);
    pod.spec.containers[0].readiness = Some(probe(10, 1));
    let mut scene = Scene::new(pod);
    failing_probe(&mut scene, ProbeKind::Readiness, "app");
    scene.go();
    assert_eq!(
        (scene.tell("app").as_str(), scene.conditions()[2].as_str()),
        ("Running 0 started", "Ready=false ContainersNotReady")
    );
    answer(&mut scene, ProbeKind::Readiness, "app", true);
    scene.go();
    assert_eq!((scene.tell("app").as_str(), scene.conditions()[2].as_str()), ("Running 0 started ready", "Ready=true"));
    scene.pass(10_000);
    scene.go();
    answer(&mut scene, ProbeKind::Readiness, "app", false);
    scene.go();
    assert_eq!(scene.tell("app"), "Running 0 started");
}

#[test]
fn a_rejected_pod_says_why_and_never_runs() {
    let mut scene = Scene::new(pod("p", &["app"]));
    let message = "Node didn't have enough resource: cpu, requested: 2, used: 0, capacity: 1".to_owned();
    scene.grants.admission = Admission::Rejected { reason: "OutOfcpu".into(), message: message.clone() };
    assert!(scene.go().is_empty());
    let status = scene.plan.status.clone();
    assert_eq!((status.phase, status.reason.as_deref()), (Phase::Failed, Some("OutOfcpu")));
    assert_eq!(status.message, Some(format!("Pod was rejected: {message}")));
    assert_eq!(scene.reasons(), ["OutOfcpu"]);
    scene.grants.admission = Admission::Admitted;
    assert!(scene.go().is_empty());
    assert_eq!(scene.plan.status, status);
}

#[test]
fn a_sandbox_that_cannot_be_made_is_tried_again() {
    let mut scene = Scene::new(pod("p", &["app"]));
    scene.fail.insert("sandbox 0".into(), "System");
    assert_eq!(scene.go(), ["sandbox 0"]);
    assert_eq!(scene.reasons(), ["FailedCreatePodSandBox"]);
    assert_eq!(scene.tell("app"), "Waiting ContainerCreating 0");
    scene.fail.clear();
    scene.pass(10_000);
    assert_eq!(scene.go(), ["sandbox 0", "attach 0", "start app#0"]);
}

#[test]
fn a_pod_waits_for_the_nodes_network_unless_it_uses_the_nodes_own() {
    let mut scene = Scene::new(pod("p", &["app"]));
    scene.seen.node.network_not_ready = Some("no plugin".into());
    assert!(scene.go().is_empty());
    assert!(scene.go().is_empty());
    assert_eq!(scene.reasons(), ["NetworkNotReady"], "told once");
    let mut host = pod("p", &["app"]);
    host.spec.host_network = true;
    let mut scene = Scene::new(host);
    scene.seen.node.network_not_ready = Some("no plugin".into());
    scene.seen.node.host_ips = vec!["192.0.2.9".parse().unwrap()];
    assert_eq!(scene.go(), ["sandbox 0", "start app#0"]);
    assert_eq!(scene.plan.status.pod_ips, scene.seen.node.host_ips);
}

/// A stop for the container's own sake is no end of the pod, even when the program answers it with success.
#[test]
fn a_restart_because_of_a_probe_is_no_end() {
    let mut pod = pod("p", &["app"]);
    pod.spec.restart_policy = RestartPolicy::OnFailure;
    pod.spec.containers[0].liveness = Some(probe(5, 1));
    let mut scene = Scene::new(pod);
    failing_probe(&mut scene, ProbeKind::Liveness, "app");
    scene.go();
    answer(&mut scene, ProbeKind::Liveness, "app", false);
    assert_eq!(scene.go(), ["SIGTERM app 30000ms"]);
    scene.exit("app", 0);
    assert_eq!(scene.go()[..2], ["remove app", "start app#1"]);
    assert_eq!(scene.phase(), Phase::Running);
    assert!(scene.seen.facts.durable.finished.is_none());
    // Not even when the node goes down before the back-off is over.
    scene.go();
    answer(&mut scene, ProbeKind::Liveness, "app", false);
    scene.go();
    scene.exit("app", 0);
    scene.go();
    assert_eq!(scene.tell("app"), "Waiting CrashLoopBackOff 1");
    scene.reboot();
    assert_eq!(scene.go()[..3], ["sandbox 1", "attach 1", "start app#2"]);
}

#[test]
fn a_back_off_that_is_over_is_told_until_the_container_is_there() {
    let mut scene = Scene::new(pod("p", &["app", "other"]));
    scene.go();
    for name in ["app", "other"] {
        scene.exit(name, 1);
        scene.go();
        scene.exit(name, 1);
        scene.go();
        assert_eq!(scene.tell(name), "Waiting CrashLoopBackOff 1");
    }
    scene.reasons();
    scene.pass(10_000);
    scene.hang.insert("start app#2".into());
    assert_eq!(scene.go(), ["start app#2"]);
    for name in ["app", "other"] {
        assert_eq!(scene.tell(name), "Waiting CrashLoopBackOff 1", "{name}");
        assert!(scene.message(name).starts_with("back-off 10s restarting failed container="), "{name}");
    }
    scene.finish("start app#2");
    assert_eq!(scene.go(), ["start other#2"]);
    assert_eq!(scene.tell("app"), "Running 2 started ready");
    assert!(!scene.reasons().contains(&"BackOff".to_owned()), "it was told before");
    scene.exit("app", 1);
    scene.go();
    assert!(scene.reasons().contains(&"BackOff".to_owned()), "this one is another");
}

/// Up to three tries for one moment of the schedule (`maxProbeRetries`); one that warns counts as a success.
#[test]
fn a_probe_that_goes_wrong_itself_is_tried_again_at_once() {
    let mut pod = pod("p", &["app"]);
    pod.spec.containers[0].readiness = Some(probe(10, 1));
    let mut scene = Scene::new(pod);
    scene.fail.insert("Readiness app".into(), "ProbeErrored");
    let probes = |done: Vec<String>| done.iter().filter(|d| *d == "Readiness app").count();
    assert_eq!(probes(scene.go()), 3);
    let told: Vec<_> = scene.events.drain(..).filter(|e| e.reason == "Unhealthy").map(|e| e.message).collect();
    assert_eq!(told, ["Readiness probe errored and resulted in unknown state: it broke"]);
    assert_eq!(scene.tell("app"), "Running 0 started");
    assert_eq!(scene.plan.wake_at, Some(scene.now.boot + Millis(10_000)));
    scene.fail.clear();
    scene.hang.insert("Readiness app".into());
    scene.pass(10_000);
    assert_eq!(probes(scene.go()), 1);
    let action = scene.hanging.remove(0);
    scene.seen.in_flight.clear();
    let outcome = Outcome::Probed { success: true, warning: true, message: "Probe terminated redirects".into() };
    answered(&mut scene, &action, &outcome);
    scene.go();
    assert_eq!(scene.tell("app"), "Running 0 started ready");
    let warning = scene.events.iter().find(|e| e.reason == "ProbeWarning").unwrap();
    assert!(warning.warning);
    assert_eq!(warning.message, "Readiness probe warning: Probe terminated redirects");
}
