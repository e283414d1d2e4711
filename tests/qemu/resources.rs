//! Requests and limits as the kernel has them, and what is left on the node when pods have gone: nothing.

use crate::pod_node::{
    PATIENCE, Pod, alone, among_others, container, container_group, ended, ended_before, group, node,
};
use serde_json::Value;

/// The values of these files of a cgroup.
fn values<const N: usize>(group: &str, files: [&str; N]) -> [String; N] {
    files.map(|file| node().ok(&format!("cat {group}/{file}")).trim_end().to_owned())
}

fn oom_score(pod: &Value, name: &str) -> i64 {
    let group = container_group(pod, name);
    node().ok(&format!("cat /proc/$(head -n 1 {group}/cgroup.procs)/oom_score_adj")).trim().parse().unwrap()
}

const POD_FILES: [&str; 5] = ["cpu.weight", "cpu.max", "memory.max", "pids.max", "cpu.idle"];
const CONTAINER_FILES: [&str; 6] =
    ["cpu.weight", "cpu.max", "memory.max", "memory.swap.max", "memory.oom.group", "pids.max"];

/// "requests and limits to cpu.weight, cpu.max, memory.max, swap, pids, oom_score_adj, memory.oom.group"; "the QoS tree
/// kubepods/{burstable,besteffort}/pod<uid>". Shares are 1024 a core; a group's weight is linear in them,
/// 1 + (shares - 2) * 9999 / 262142, a container's is the quadratic fit that makes one core the kernel's 100.
#[test]
fn limits_are_those_of_the_formulas() {
    let _pods = among_others();
    let guaranteed = Pod::new(
        "guaranteed",
        r#"
terminationGracePeriodSeconds: 1
containers:
- name: main
  image: localhost/busybox:trixie
  command: [sleep, "100000"]
  resources: {limits: {cpu: 250m, memory: 32Mi}}
"#,
    );
    let burstable = Pod::new(
        "burstable",
        r#"
terminationGracePeriodSeconds: 1
initContainers:
- name: side
  image: localhost/busybox:trixie
  restartPolicy: Always
  command: [sleep, "100000"]
  resources: {requests: {cpu: 100m, memory: 16Mi}}
containers:
- name: limited
  image: localhost/busybox:trixie
  command: [sleep, "100000"]
  resources: {requests: {cpu: 100m, memory: 100Mi}, limits: {cpu: 500m, memory: 200Mi}}
- name: free
  image: localhost/busybox:trixie
  command: [sleep, "100000"]
  resources: {requests: {cpu: 10m}}
"#,
    );
    let best_effort = Pod::new(
        "best-effort",
        "terminationGracePeriodSeconds: 1\ncontainers:\n- {name: main, image: \"localhost/busybox:trixie\", command: [sleep, \"100000\"]}\n",
    );

    let pod = guaranteed.until_ready();
    assert_eq!(pod["status"]["qosClass"], "Guaranteed");
    assert_eq!(values(&group(&pod), POD_FILES), ["10", "25000 100000", "33554432", "max", "0"]);
    assert_eq!(
        values(&container_group(&pod, "main"), CONTAINER_FILES),
        ["35", "25000 100000", "33554432", "0", "1", "max"]
    );
    assert_eq!(oom_score(&pod, "main"), -997);

    let pod = burstable.until_ready();
    assert_eq!(pod["status"]["qosClass"], "Burstable");
    // 210m are 215 shares; not every container has limits, so the pod has none.
    assert_eq!(values(&group(&pod), POD_FILES), ["9", "max 100000", "max", "max", "0"]);
    assert_eq!(
        values(&container_group(&pod, "limited"), CONTAINER_FILES),
        ["17", "50000 100000", "209715200", "0", "1", "max"]
    );
    assert_eq!(values(&container_group(&pod, "free"), CONTAINER_FILES), ["4", "max 100000", "max", "0", "1", "max"]);
    let capacity: i64 = node().ok("awk '/MemTotal/ { print $2 * 1024 }' /proc/meminfo").trim().parse().unwrap();
    let formula = |request: i64| (1000 - 1000 * request / capacity).clamp(3, 999);
    assert_eq!(oom_score(&pod, "limited"), formula(100 << 20));
    assert_eq!(oom_score(&pod, "free"), 999);
    // A sidecar goes no sooner than the first of the containers that it serves.
    assert_eq!(oom_score(&pod, "side"), formula(16 << 20).min(formula(0)));
    // An exec'd program is held to its container's limits, in a group below it, and goes with it.
    let exec = burstable.exec("limited", "cat /proc/self/oom_score_adj /proc/self/cgroup");
    assert!(exec.starts_with(&format!("{}\n0::/exec-", formula(100 << 20))), "{exec}");

    let pod = best_effort.until_ready();
    assert_eq!(pod["status"]["qosClass"], "BestEffort");
    assert_eq!(values(&group(&pod), POD_FILES), ["1", "max 100000", "max", "max", "0"]);
    assert_eq!(values(&container_group(&pod, "main"), CONTAINER_FILES), ["1", "max 100000", "max", "0", "1", "max"]);
    assert_eq!(oom_score(&pod, "main"), 1000);
    assert_eq!(values("/sys/fs/cgroup/kubepods/besteffort", ["cpu.weight"]), ["1"]);
}

/// `kubepods` is held to what the node has without what is reserved (`node_container_manager_linux.go`), and the agent is
/// as hard to end as it was asked to be.
#[test]
fn all_pods_together_get_what_is_not_reserved() {
    let (node, _agent) = crate::node::node();
    let number = |script: &str| node.ok(script).trim().parse::<u64>().unwrap();
    let memory = number("awk '/MemTotal/ { print $2 * 1024 }' /proc/meminfo");
    let pids = number("cat /proc/sys/kernel/pid_max").min(number("cat /proc/sys/kernel/threads-max"));
    let shares = (number("nproc") * 1000 - 100) * 1024 / 1000;
    let kubepods = |file: &str| number(&format!("cat /sys/fs/cgroup/kubepods/{file}"));
    assert_eq!(kubepods("memory.max"), memory - (16 << 20));
    assert_eq!(kubepods("pids.max"), pids - 100);
    assert_eq!(kubepods("cpu.weight"), 1 + (shares - 2) * 9999 / 262_142);
    let agent = node.ok("cat /proc/$(head -n 1 /sys/fs/cgroup/armlet/agent/cgroup.procs)/oom_score_adj");
    assert_eq!(agent.trim(), "-997");
}

/// "OOMKilled reported": all processes of the container go, and it says so.
#[test]
fn a_program_that_eats_memory_is_reported_as_such() {
    let _pods = among_others();
    let eat = "x=0123456789abcdef; while :; do x=$x$x; done";
    let pod = Pod::new(
        "hungry",
        &format!(
            r#"
restartPolicy: Never
containers:
- {{name: first, image: "localhost/busybox:trixie", command: [sh, -c, "{eat}"], resources: {{limits: {{memory: 16Mi}}}}}}
- {{name: child, image: "localhost/busybox:trixie", command: [sh, -c, "({eat}); echo survived; sleep 100000"], resources: {{limits: {{memory: 16Mi}}}}}}
"#
        ),
    );
    let dead = pod.until_phase("Failed");
    for name in ["first", "child"] {
        assert_eq!(ended(&dead, name), ("OOMKilled", 137), "{name}");
    }
    assert!(!pod.log("child").contains("survived"));
    let again = Pod::new(
        "hungry-again",
        &format!(
            "terminationGracePeriodSeconds: 1\ncontainers:\n- {{name: main, image: \"localhost/busybox:trixie\", command: [sh, -c, \"{eat}\"], resources: {{limits: {{memory: 16Mi}}}}}}\n"
        ),
    );
    let dead = again.until("restarted", |pod| container(pod, "main")["restartCount"].as_i64() >= Some(1));
    assert_eq!(ended_before(&dead, "main"), ("OOMKilled", 137));
}

/// "No polling": with a quiet pod the agent sleeps. The count is of all its threads. Three times are enough for whatever
/// the network may have to tell meanwhile.
#[test]
fn the_agent_sleeps_while_nothing_happens() {
    let _node = alone();
    let spec = r#"
terminationGracePeriodSeconds: 1
containers:
- {name: main, image: "localhost/busybox:trixie", command: [sleep, "100000"]}
"#;
    let pod = Pod::new("quiet", spec);
    pod.until_ready();
    let script = "agent=$(head -n1 /sys/fs/cgroup/armlet/agent/cgroup.procs); \
        wakes() { cat /proc/$agent/task/*/status | awk '/^voluntary/ { sum += $2 } END { print sum }'; }; \
        sleep 10; for n in 1 2 3; do before=$(wakes); sleep 10; after=$(wakes); echo $before $after; \
        [ $before = $after ] && exit 0; done; for task in /proc/$agent/task/*; do cat $task/comm $task/status; done; exit 1";
    let output = node().run(script, PATIENCE).unwrap();
    assert!(output.success(), "the agent woke up: {}", output.stdout);
    pod.remove();
}

/// Everything a pod takes of a node, as one text that is empty of pods.
const TRACES: &str = r#"
find /sys/fs/cgroup/kubepods /sys/fs/cgroup/armlet -mindepth 1 -type d | grep -E '/pod[0-9a-f]|/create-|/exec-' || true
grep -E 'overlay|/pods/|/bundles/' /proc/1/mounts || true
ls /sys/class/net | grep -vE '^(lo|eth0|armlet0)$' | sed 's/^/link /' || true
ls /run/netns 2>/dev/null || true
readlink /proc/[0-9]*/ns/net | sort -u | grep -vx "$(readlink /proc/1/ns/net)" || true
ls /var/lib/armlet/pods /run/armlet/pods /run/armlet/bundles /run/armlet/exits /run/armlet/containers | grep -E '^[0-9a-f]{8}' || true
ls /var/log/containers | grep . || true
grep -lx sleep /proc/[0-9]*/comm 2>/dev/null || true
"#;

/// "every cgroup gone after", and all else that a pod had: mounts, links, namespaces, processes, files.
#[test]
fn nothing_is_left_of_pods_that_have_gone() {
    let _node = alone();
    let spec = r#"
terminationGracePeriodSeconds: 1
volumes: [{name: memory, emptyDir: {medium: Memory}}, {name: disk, emptyDir: {}}]
initContainers:
- {name: side, image: "localhost/busybox:trixie", restartPolicy: Always, command: [sleep, "100000"]}
containers:
- name: main
  image: localhost/busybox:trixie
  command: [sh, -c, "sleep 100000 & setsid sleep 100000 & exec sleep 100000"]
  volumeMounts: [{name: memory, mountPath: /m}, {name: disk, mountPath: /d}]
  readinessProbe: {exec: {command: ["true"]}, periodSeconds: 1, timeoutSeconds: 20}
- {name: missing, image: "localhost/busybox:trixie", command: [no-such-program]}
- {name: crashes, image: "localhost/busybox:trixie", command: ["false"]}
"#;
    let pods: Vec<_> = ["gone-one", "gone-two", "gone-three"].map(|name| Pod::new(name, spec)).into();
    for pod in &pods {
        pod.until("at work", |pod| {
            container(pod, "main")["ready"] == true && container(pod, "crashes")["restartCount"].as_i64() >= Some(1)
        });
        // A session that is still there when its container goes.
        node().ok(&format!(
            "armlet exec {} -c main -- sleep 100000 >/dev/null 2>&1 &",
            pod.now()["metadata"]["name"].as_str().unwrap()
        ));
        assert_eq!(pod.exec("main", "echo done"), "done\n");
    }
    assert!(node().ok(TRACES).lines().count() > 20, "the looking itself is blind:\n{}", node().ok(TRACES));
    for pod in &pods {
        pod.take_away();
    }
    for pod in pods {
        pod.remove();
    }
    node().wait_until(&format!("left=$({TRACES}); echo \"$left\"; test -z \"$left\""), PATIENCE);
}
