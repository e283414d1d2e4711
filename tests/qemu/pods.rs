//! Whole pods on a real node: order, restarts, probes, termination, and the status that upstream's kubelet would give.

use crate::pod_node::{
    PATIENCE, Pod, among_others, condition, container, ended, ended_before, node, restarts, waiting,
};

/// A line of a journal that containers write into a folder they share, and where it stands.
#[track_caller]
fn line(journal: &str, wanted: &str) -> usize {
    journal.lines().position(|line| line == wanted).unwrap_or_else(|| panic!("no {wanted:?} in:\n{journal}"))
}

/// The lines stand in this order.
#[track_caller]
fn in_order(journal: &str, wanted: &[&str]) {
    let places: Vec<_> = wanted.iter().map(|wanted| line(journal, wanted)).collect();
    assert!(places.is_sorted(), "{wanted:?} in:\n{journal}");
}

/// The agent of this node began before the node had an address.
#[test]
fn a_pod_on_the_nodes_network_is_probed_at_the_nodes_address() {
    let _pods = among_others();
    let pod = Pod::new(
        "nodes-network",
        r#"
hostNetwork: true
terminationGracePeriodSeconds: 1
containers:
- name: main
  image: localhost/busybox:trixie
  command: [httpd, -f, -p, "7171"]
  readinessProbe: {tcpSocket: {port: 7171}, periodSeconds: 1, timeoutSeconds: 20}
"#,
    );
    let status = pod.until_ready()["status"].clone();
    assert_eq!((&status["hostIP"], &status["podIP"]), (&"10.0.2.15".into(), &"10.0.2.15".into()));
    pod.remove();
}

/// "init containers in order, sidecars (next step gated by "started"; restart in place; stop in reverse after the main
/// containers), ordinary containers in spec order".
#[test]
fn a_pod_starts_in_order_and_stops_in_reverse() {
    let _pods = among_others();
    let journal = || node().ok("cat /tmp/order/journal");
    // Process 1 of a container has no default for TERM: a shell with a trap is what ends by itself.
    let pod = Pod::new(
        "order",
        r#"
terminationGracePeriodSeconds: 30
volumes:
- {name: shared, hostPath: {path: /tmp/order, type: DirectoryOrCreate}}
initContainers:
- name: first
  image: localhost/busybox:trixie
  command: [sh, -c, "echo first >>/j/journal"]
  volumeMounts: &shared [{name: shared, mountPath: /j}]
- name: early
  image: localhost/busybox:trixie
  restartPolicy: Always
  command: [sh, -c, "trap 'echo early stops >>/j/journal; exit 0' TERM; echo early >>/j/journal; while :; do sleep 1 & wait $!; done"]
  startupProbe: {exec: {command: [sh, -c, "test -e /j/go && echo early is up >>/j/journal"]}, periodSeconds: 1, timeoutSeconds: 20, failureThreshold: 100}
  volumeMounts: *shared
- name: second
  image: localhost/busybox:trixie
  command: [sh, -c, "echo second >>/j/journal"]
  volumeMounts: *shared
- name: late
  image: localhost/busybox:trixie
  restartPolicy: Always
  command: [sh, -c, "trap 'echo late stops >>/j/journal; exit 3' TERM; echo late >>/j/journal; while :; do sleep 1 & wait $!; done"]
  volumeMounts: *shared
containers:
- name: zeta
  image: localhost/busybox:trixie
  command: [sh, -c, "trap 'sleep 2; echo zeta stops >>/j/journal; exit 0' TERM; echo zeta >>/j/journal; while :; do sleep 1 & wait $!; done"]
  volumeMounts: *shared
- name: alpha
  image: localhost/busybox:trixie
  command: [sh, -c, "trap 'echo alpha stops >>/j/journal; exit 0' TERM; echo alpha >>/j/journal; while :; do sleep 1 & wait $!; done"]
  volumeMounts: *shared
"#,
    );

    let gated = pod.until("at its first sidecar", |pod| container(pod, "early")["state"]["running"].is_object());
    assert_eq!(container(&gated, "early")["started"], false);
    assert_eq!(gated["status"]["phase"], "Pending");
    assert_eq!(ended(&gated, "first"), ("Completed", 0));
    assert_eq!(waiting(&gated, "zeta"), ("PodInitializing", ""));
    assert_eq!(condition(&gated, "Initialized")["reason"], "ContainersNotInitialized");
    assert_eq!(condition(&gated, "Initialized")["message"], "containers with incomplete status: [early second late]");
    assert_eq!(journal(), "first\nearly\n");

    node().ok("touch /tmp/order/go");
    let ready = pod.until_ready();
    in_order(&journal(), &["first", "early", "early is up", "second", "late", "zeta", "alpha"]);
    assert_eq!(condition(&ready, "Initialized")["status"], "True");
    assert_eq!(container(&ready, "second")["ready"], true);
    // Shown by name, whatever the order in which they start.
    assert_eq!(ready["status"]["containerStatuses"][0]["name"], "alpha");

    let killed = container(&ready, "late")["containerID"].clone();
    pod.kill("late", "kill 1");
    let again =
        pod.until("restarted in place", |pod| restarts(pod, "late") == 1 && container(pod, "late")["ready"] == true);
    assert_eq!(ended_before(&again, "late"), ("Error", 3));
    assert_ne!(container(&again, "late")["containerID"], killed);
    for name in ["early", "zeta", "alpha"] {
        assert_eq!(container(&again, name)["containerID"], container(&ready, name)["containerID"], "{name}");
    }

    node().ok("echo removal >>/tmp/order/journal");
    pod.remove();
    let stopped = journal();
    let stopped = stopped.split_once("removal\n").unwrap().1;
    in_order(stopped, &["zeta stops", "late stops", "early stops"]);
    in_order(stopped, &["alpha stops", "late stops"]);
    assert_eq!(stopped.lines().count(), 4, "{stopped}");
}

/// "A container that cannot start gives the upstream reason": a failed init container ends a pod of `Never`.
#[test]
fn a_failed_init_container_ends_a_pod_that_never_restarts() {
    let _pods = among_others();
    let pod = Pod::new(
        "init-never",
        r#"
restartPolicy: Never
initContainers:
- {name: fails, image: "localhost/busybox:trixie", command: [sh, -c, "exit 3"]}
- {name: after, image: "localhost/busybox:trixie", command: ["true"]}
containers:
- {name: main, image: "localhost/busybox:trixie", command: [sleep, "1000"]}
"#,
    );
    let failed = pod.until_phase("Failed");
    assert_eq!(ended(&failed, "fails"), ("Error", 3));
    for name in ["after", "main"] {
        assert_eq!(waiting(&failed, name), ("PodInitializing", ""), "{name}");
        assert_eq!(restarts(&failed, name), 0);
    }
    assert_eq!(condition(&failed, "Initialized")["status"], "False");
    assert_eq!(condition(&failed, "Ready")["reason"], "PodFailed");
}

/// "restart policies of pod and container, crash-loop back-off": the first restart at once, the next after ten seconds,
/// while the pod stays pending.
#[test]
fn a_failed_init_container_is_tried_again() {
    let _pods = among_others();
    let pod = Pod::new(
        "init-always",
        r#"
volumes: [{name: work, emptyDir: {}}]
initContainers:
- name: fails
  image: localhost/busybox:trixie
  command: [sh, -c, "echo x >>/w/tries; test $(wc -l </w/tries) = 3"]
  volumeMounts: [{name: work, mountPath: /w}]
containers:
- {name: main, image: "localhost/busybox:trixie", command: [sleep, "1000"]}
terminationGracePeriodSeconds: 1
"#,
    );
    let backed_off = pod.until("backing off", |pod| waiting(pod, "fails").0 == "CrashLoopBackOff");
    let uid = backed_off["metadata"]["uid"].as_str().unwrap();
    assert_eq!(
        waiting(&backed_off, "fails").1,
        format!("back-off 10s restarting failed container=fails pod=init-always-armlet_default({uid})")
    );
    assert_eq!(backed_off["status"]["phase"], "Pending");
    assert_eq!((restarts(&backed_off, "fails"), ended_before(&backed_off, "fails")), (1, ("Error", 1)));
    let ready = pod.until_ready();
    assert_eq!((restarts(&ready, "fails"), ended(&ready, "fails")), (2, ("Completed", 0)));
    let text = format!("BackOff Back-off restarting failed container fails in pod init-always-armlet_default({uid})");
    assert!(pod.events().contains(&text), "{:#?}", pod.events());
}

/// "restart policies of pod and container", "pod phase, conditions and container statuses with the upstream reasons".
#[test]
fn restart_policies_and_phases() {
    let _pods = among_others();
    let exits = |first: &str, second: &str| {
        format!(
            r#"
volumes: [{{name: work, emptyDir: {{}}}}]
containers:
- {{name: one, image: "localhost/busybox:trixie", command: [sh, -c, "{first}"], volumeMounts: [{{name: work, mountPath: /w}}]}}
- {{name: two, image: "localhost/busybox:trixie", command: [sh, -c, "{second}"], volumeMounts: [{{name: work, mountPath: /w}}]}}
"#
        )
    };
    let never = Pod::new("never", &format!("restartPolicy: Never{}", exits("exit 0", "exit 7")));
    let succeeds = Pod::new("succeeds", &format!("restartPolicy: Never{}", exits("exit 0", "sleep 1")));
    let on_failure = Pod::new(
        "on-failure",
        &format!("restartPolicy: OnFailure{}", exits("exit 0", "test -e /w/again || { touch /w/again; exit 9; }")),
    );
    let always = Pod::new("always", &format!("restartPolicy: Always{}", exits("exit 5", "sleep 1000")));

    let pod = never.until_phase("Failed");
    assert_eq!((ended(&pod, "one"), ended(&pod, "two")), (("Completed", 0), ("Error", 7)));
    assert_eq!((restarts(&pod, "one"), restarts(&pod, "two")), (0, 0));
    for name in ["Ready", "ContainersReady"] {
        assert_eq!(condition(&pod, name)["reason"], "PodFailed");
    }

    let pod = succeeds.until_phase("Succeeded");
    assert_eq!((ended(&pod, "one"), ended(&pod, "two")), (("Completed", 0), ("Completed", 0)));
    for name in ["Ready", "ContainersReady", "Initialized"] {
        assert_eq!(condition(&pod, name)["reason"], "PodCompleted", "{name}");
    }
    assert_eq!(condition(&pod, "Initialized")["status"], "True");
    assert_eq!(condition(&pod, "Ready")["status"], "False");
    assert_eq!(condition(&pod, "PodScheduled")["status"], "True");
    assert!(pod["status"]["podIP"].is_string(), "kept after the end: {:#}", pod["status"]);

    let pod = on_failure.until_phase("Succeeded");
    assert_eq!((restarts(&pod, "one"), restarts(&pod, "two")), (0, 1));
    assert_eq!((ended(&pod, "two"), ended_before(&pod, "two")), (("Completed", 0), ("Error", 9)));

    let pod = always.until("backing off", |pod| waiting(pod, "one").0 == "CrashLoopBackOff");
    assert_eq!(pod["status"]["phase"], "Running");
    assert!(restarts(&pod, "one") >= 1);
    assert_eq!(ended_before(&pod, "one"), ("Error", 5));
    assert_eq!(condition(&pod, "Ready")["reason"], "ContainersNotReady");
    assert_eq!(condition(&pod, "Ready")["message"], "containers with unready status: [one]");
    always.take_away();
}

/// "graceful termination": TERM first, KILL when the grace period is over.
#[test]
fn a_pod_that_is_removed_has_its_grace_period() {
    let _pods = among_others();
    let pod = Pod::new(
        "grace",
        r#"
terminationGracePeriodSeconds: 4
volumes:
- {name: shared, hostPath: {path: /tmp/grace, type: DirectoryOrCreate}}
containers:
- name: stubborn
  image: localhost/busybox:trixie
  command: [sh, -c, "trap 'echo term >>/j/journal' TERM; while :; do usleep 100000; cut -d' ' -f1 /proc/uptime >>/j/journal; done"]
  volumeMounts: [{name: shared, mountPath: /j}]
"#,
    );
    pod.until_ready();
    node().wait_until("test -s /tmp/grace/journal", std::time::Duration::from_secs(30));
    pod.remove();
    let journal = node().ok("cat /tmp/grace/journal");
    let after: Vec<f64> = journal.split_once("term\n").unwrap().1.lines().map(|line| line.parse().unwrap()).collect();
    let lived = after.last().unwrap() - after.first().unwrap();
    // Beats stand a tenth of a second apart, more on a busy machine. That it was killed at all is why the pod is gone.
    assert!((3.0..10.0).contains(&lived), "{lived} s after TERM");
}

/// "exec/http/tcp probes of the three kinds": startup gates, readiness flips, liveness restarts.
#[test]
fn probes_gate_flip_and_restart() {
    let _pods = among_others();
    let pod = Pod::new(
        "probes",
        r#"
terminationGracePeriodSeconds: 1
containers:
- name: web
  image: localhost/busybox:trixie
  command: [sh, -c, "mkdir -p /www; httpd -p 8080 -h /www; exec sleep 100000"]
  ports: [{name: http, containerPort: 8080}]
  startupProbe: {httpGet: {port: http, path: /started}, periodSeconds: 1, timeoutSeconds: 20, failureThreshold: 1000}
  readinessProbe: {httpGet: {port: 8080, path: /ready}, periodSeconds: 1, timeoutSeconds: 20, failureThreshold: 2}
  livenessProbe: {tcpSocket: {port: http}, periodSeconds: 1, timeoutSeconds: 20, failureThreshold: 2}
- name: exec
  image: localhost/busybox:trixie
  command: [sleep, "100000"]
  readinessProbe: {exec: {command: [sh, -c, "echo not $((1 + 1)); test -e /tmp/ready"]}, periodSeconds: 1, timeoutSeconds: 20}
  livenessProbe: {exec: {command: [sh, -c, "test ! -e /tmp/sick"]}, periodSeconds: 1, timeoutSeconds: 20, failureThreshold: 1}
"#,
    );
    let started = pod.until("probed", |pod| container(pod, "exec")["state"]["running"].is_object());
    assert_eq!(
        (&container(&started, "web")["started"], &container(&started, "web")["ready"]),
        (&false.into(), &false.into())
    );
    assert_eq!(
        (&container(&started, "exec")["started"], &container(&started, "exec")["ready"]),
        (&true.into(), &false.into())
    );
    assert_eq!(started["status"]["phase"], "Running");
    assert_eq!(condition(&started, "Ready")["message"], "containers with unready status: [web exec]");

    // Until then each probe has failed at least once.
    for text in ["Startup probe failed: HTTP probe failed with statuscode: 404", "Readiness probe failed: not 2"] {
        node().wait_until(&format!("armlet events | grep probes-armlet | grep -qF '{text}'"), PATIENCE);
    }
    pod.exec("web", "touch /www/started");
    pod.until("started", |pod| container(pod, "web")["started"] == true && container(pod, "web")["ready"] == false);
    pod.exec("web", "touch /www/ready");
    pod.exec("exec", "touch /tmp/ready");
    let ready = pod.until_ready();
    assert_eq!((restarts(&ready, "web"), restarts(&ready, "exec")), (0, 0));
    pod.exec("web", "rm /www/ready");
    let unready = pod.until("unready", |pod| condition(pod, "Ready")["status"] == "False");
    assert_eq!(condition(&unready, "ContainersReady")["message"], "containers with unready status: [web]");

    pod.kill("web", "kill $(pidof httpd)");
    pod.kill("exec", "touch /tmp/sick");
    let restarted = pod.until("restarted", |pod| restarts(pod, "web") == 1 && restarts(pod, "exec") == 1);
    // The first process does not listen to TERM.
    assert_eq!(ended_before(&restarted, "web"), ("Error", 137));
    let events = pod.events();
    for text in [
        "Unhealthy Startup probe failed: HTTP probe failed with statuscode: 404",
        "Unhealthy Readiness probe failed: HTTP probe failed with statuscode: 404",
        "Unhealthy Readiness probe failed: not 2\n",
        "Unhealthy Liveness probe failed: ",
        "Killing Container web failed liveness probe, will be restarted",
        "Killing Container exec failed liveness probe, will be restarted",
    ] {
        assert!(events.iter().any(|event| event == text), "{text:?} in {events:#?}");
    }
    assert!(
        events.iter().any(|event| event.starts_with("Unhealthy Liveness probe failed: dial tcp ")
            && event.ends_with(":8080: connect: connection refused")),
        "{events:#?}"
    );
}

/// "graceful termination" and probes together: a liveness failure under `Never` ends the container with the code of the
/// signal, a startup failure restarts it.
#[test]
fn what_a_probe_kills_ends_with_the_code_of_the_signal() {
    let _pods = among_others();
    let never = Pod::new(
        "probe-never",
        r#"
restartPolicy: Never
containers:
- name: deaf
  image: localhost/busybox:trixie
  command: [sleep, "100000"]
  livenessProbe: {exec: {command: ["false"]}, periodSeconds: 1, timeoutSeconds: 20, failureThreshold: 1, terminationGracePeriodSeconds: 1}
- name: hears
  image: localhost/busybox:trixie
  command: [sh, -c, "trap 'exit 143' TERM; while :; do sleep 1 & wait $!; done"]
  livenessProbe: {exec: {command: ["sleep", "10"]}, periodSeconds: 1, failureThreshold: 1}
"#,
    );
    let startup = Pod::new(
        "probe-startup",
        r#"
terminationGracePeriodSeconds: 1
containers:
- name: main
  image: localhost/busybox:trixie
  command: [sleep, "100000"]
  startupProbe: {tcpSocket: {port: 1}, periodSeconds: 1, failureThreshold: 1}
"#,
    );
    let pod = never.until_phase("Failed");
    assert_eq!((ended(&pod, "deaf"), ended(&pod, "hears")), (("Error", 137), ("Error", 143)));
    assert_eq!((restarts(&pod, "deaf"), restarts(&pod, "hears")), (0, 0));
    let events = never.events();
    for text in [
        "Killing Container deaf failed liveness probe",
        "Unhealthy Liveness probe failed: command timed out: \"sleep 10\" timed out after 1s",
    ] {
        assert!(events.iter().any(|event| event == text), "{text:?} in {events:#?}");
    }

    startup.until("restarted", |pod| restarts(pod, "main") >= 1);
    let events = startup.events();
    let text = "Killing Container main failed startup probe, will be restarted";
    assert!(events.iter().any(|event| event == text), "{events:#?}");
}

/// "A container that cannot start gives the upstream reason and message, never a hung pod": and those beside it start.
#[test]
fn what_cannot_start_says_why() {
    let _pods = among_others();
    let pod = Pod::new(
        "broken",
        r#"
terminationGracePeriodSeconds: 1
containers:
- {name: missing, image: "localhost/busybox:trixie", command: [no-such-program]}
- {name: no-path, image: "localhost/busybox:trixie", command: [/no/such/program]}
- {name: not-executable, image: "localhost/busybox:trixie", command: [/etc/passwd]}
- {name: never, image: "localhost/absent:1", imagePullPolicy: Never, command: ["true"]}
- {name: pull, image: "localhost/absent:2", command: ["true"]}
- {name: root, image: "localhost/busybox:trixie", command: ["true"], securityContext: {runAsNonRoot: true}}
- {name: named, image: "localhost/redis:trixie", securityContext: {runAsNonRoot: true}}
- {name: good, image: "localhost/busybox:trixie", command: [sleep, "100000"]}
"#,
    );
    let mut seen = std::collections::BTreeSet::new();
    let names = ["missing", "no-path", "not-executable", "never", "pull", "root", "named"];
    let pod_seen = pod.until("broken in every way", |pod| {
        for name in names {
            seen.insert(format!("{name} {}", waiting(pod, name).0));
        }
        let wanted = [
            "missing RunContainerError",
            "missing CrashLoopBackOff",
            "no-path RunContainerError",
            "not-executable RunContainerError",
            "never ErrImageNeverPull",
            "pull ErrImagePull",
            "pull ImagePullBackOff",
            "root CreateContainerConfigError",
            "named CreateContainerConfigError",
        ];
        container(pod, "good")["ready"] == true && wanted.iter().all(|text| seen.contains(*text))
    });
    assert_eq!(pod_seen["status"]["phase"], "Pending");
    for (name, code, message) in [
        ("missing", 127, r#"exec: "no-such-program": executable file not found in $PATH"#),
        ("no-path", 127, r#"exec: "/no/such/program": stat /no/such/program: no such file or directory"#),
        ("not-executable", 126, r#"exec: "/etc/passwd": permission denied"#),
    ] {
        assert_eq!(ended_before(&pod_seen, name), ("ContainerCannotRun", code), "{name}");
        let text = container(&pod_seen, name)["lastState"]["terminated"]["message"].as_str().unwrap();
        assert!(text.contains(message), "{text}");
    }
    assert_eq!(
        waiting(&pod_seen, "never").1,
        "Container image \"localhost/absent:1\" is not present with pull policy of Never"
    );
    assert!(waiting(&pod_seen, "root").1.starts_with("container has runAsNonRoot and image will run as root"));
    assert!(
        waiting(&pod_seen, "named").1.starts_with("container has runAsNonRoot and image has non-numeric user (redis)"),
        "{}",
        waiting(&pod_seen, "named").1
    );
    let events = pod.events();
    for text in [
        "Failed Error: ErrImagePull",
        "Failed Error: ErrImageNeverPull",
        "BackOff Back-off pulling image \"localhost/absent:2\"",
    ] {
        assert!(events.iter().any(|event| event == text), "{text:?} in {events:#?}");
    }
}

/// The same for volumes: the pod waits, says why, and goes on by itself when the reason is gone.
#[test]
fn a_volume_that_cannot_be_had_holds_the_pod() {
    let _pods = among_others();
    let pod = Pod::new(
        "volumes-wait",
        r#"
terminationGracePeriodSeconds: 1
volumes:
- {name: there, hostPath: {path: /tmp/comes-later, type: Directory}}
containers:
- {name: main, image: "localhost/busybox:trixie", command: [sleep, "100000"], volumeMounts: [{name: there, mountPath: /there}]}
"#,
    );
    let text = "FailedMount MountVolume.SetUp failed for volume \"there\" : hostPath type check failed: /tmp/comes-later is not a directory";
    pod.until("told of its volume", |_| pod.events().iter().any(|event| event == text));
    let held = pod.now();
    assert_eq!((held["status"]["phase"].as_str(), waiting(&held, "main").0), (Some("Pending"), "ContainerCreating"));
    node().ok("mkdir /tmp/comes-later");
    pod.until_ready();
}
