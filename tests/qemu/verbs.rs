//! What people do with a node beside its manifests: stop and restart pods, remove images, see what is used and written.

use crate::node::{Node, PATIENCE, container, node, node_alone, pod};
use serde_json::Value;

fn json(node: &Node, command: &str) -> Value {
    let text = node.ok(&format!("armlet {command} -o json"));
    serde_json::from_str(&text).unwrap_or_else(|error| panic!("{command}: {error}\n{text}"))
}

/// A stopped pod has heard TERM, stays away from the next agent too, and comes back as another run of the same pod.
#[test]
fn a_stopped_pod_stays_away_until_it_is_started_again() {
    let (node, _agent) = node_alone();
    let script = "trap 'echo term; exit 0' TERM; echo begun; while :; do sleep 1 & wait; done";
    node.run_pod("held", &format!("  containers:\n{}", container("main", script)));
    let uid = node.field("held", "/metadata/uid");
    node.wait_until("armlet logs held | grep begun", PATIENCE);
    node.ok("(armlet logs -f held >/tmp/held.log &) && armlet stop held");
    assert!(node.try_run("armlet inspect held").status == 1, "it is gone when stop is done");
    node.wait_until("grep term /tmp/held.log", PATIENCE);
    node.restart_agent();
    // The agent has taken all manifests up when another pod runs.
    node.run_pod("other", &format!("  containers:\n{}", container("main", "exec sleep 1000000")));
    let ps = node.try_run("armlet ps");
    assert!(!ps.stdout.contains(" held"), "{ps:?}");
    assert!(ps.stderr.contains("Stopped: default/held"), "{ps:?}");
    let again = node.try_run("armlet stop held");
    assert_eq!(again.status, 0, "{again:?}");

    node.ok("armlet restart held");
    node.wait_for("held", "Running");
    assert_eq!(node.field("held", "/metadata/uid"), uid);
    assert_eq!(node.field("held", "/status/containerStatuses/0/restartCount"), 0);
    let first = node.field("held", "/status/containerStatuses/0/containerID");
    node.ok("armlet restart held");
    node.wait_for("held", "Running");
    assert_ne!(node.field("held", "/status/containerStatuses/0/containerID"), first);

    // Another manifest is another pod.
    node.ok("armlet stop held");
    node.manifest("held.yaml", &pod("held", &format!("  containers:\n{}", container("main", "exec sleep 2000000"))));
    node.wait_for("held", "Running");
    assert_ne!(node.field("held", "/metadata/uid"), uid);
    let unknown = node.try_run("armlet stop nobody");
    assert!(unknown.status == 1 && unknown.stderr.contains("there is no pod"), "{unknown:?}");
    node.remove_pod("held");
    node.remove_pod("other");
}

#[test]
fn images_that_no_pod_needs_are_removed() {
    let (node, _agent) = node_alone();
    node.ok("armlet import /run/payload/curl.tar");
    node.run_pod("needs", &format!("  containers:\n{}", container("main", "exec sleep 1000000")));
    node.ok("armlet stop needs");
    let needed = node.try_run("armlet rmi localhost/busybox:trixie localhost/curl:trixie");
    assert_eq!(needed.status, 1);
    assert!(needed.stderr.contains("is needed by pod default/"), "{needed:?}");
    assert!(needed.stdout.contains("removed localhost/curl:trixie"), "{needed:?}");
    let images = node.ok("armlet images");
    assert!(images.contains("localhost/busybox") && !images.contains("localhost/curl"), "{images}");
    let layers = "ls /var/lib/armlet/images/layers | wc -l";
    let without: u32 = node.ok(layers).trim().parse().unwrap();
    node.ok("armlet import /run/payload/curl.tar");
    assert!(node.ok(layers).trim().parse::<u32>().unwrap() > without, "a removed image's layers go with it");
    let unused = json(node, "rmi --unused");
    let names = unused["names"].as_array().unwrap();
    assert!(names.contains(&"localhost/curl:trixie".into()), "{unused}");
    assert!(!names.contains(&"localhost/busybox:trixie".into()), "{unused}");
    assert!(unused["bytes"].as_u64().unwrap() > 0, "{unused}");
    node.ok("armlet restart needs");
    node.wait_for("needs", "Running");
    node.remove_pod("needs");
}

/// "lifetime bytes written, by part": what a container writes is counted, and kept over the agent's end.
#[test]
fn bytes_written_are_counted_by_part_and_kept() {
    let (node, _agent) = node_alone();
    let written = |part: &str| json(node, "stats")["written"][part].as_u64().unwrap();
    // Not the preloaded image: an agent that was killed since then may have had no time to keep what it had counted.
    node.try_run("armlet rmi localhost/curl:trixie");
    let images = written("images");
    node.ok("armlet import /run/payload/curl.tar");
    let images = images + 1_000_000;
    assert!(written("images") > images, "what an import unpacks is written");
    let before = written("volumes");
    let spec = "  volumes: [{name: v, emptyDir: {}}]\n  containers:\n  - {name: main, image: \
                'localhost/busybox:trixie', imagePullPolicy: IfNotPresent, volumeMounts: [{name: v, mountPath: /v}], \
                command: [sh, -c, 'dd if=/dev/zero of=/v/f bs=1M count=4; sync; echo done; exec sleep 1000000']}";
    node.run_pod("writes", spec);
    node.wait_until("armlet logs writes | grep done", PATIENCE);
    let after = written("volumes");
    assert!((4 << 20..64 << 20).contains(&(after - before)), "{before} {after}");
    let store = written("store");
    assert!(store > 0);
    // The ledger is kept with what else was written, when that has settled.
    node.ok("touch /tmp/counted");
    node.ok("armlet restart writes");
    node.wait_until(
        "find /var/lib/armlet/store/meta -name 'bytes-written.*' -newer /tmp/counted | grep fact",
        PATIENCE,
    );
    node.restart_agent();
    assert!(written("volumes") >= after && written("store") >= store && written("images") > images);
    assert!(node.ok("armlet stats").contains("WRITTEN TO DISKS"));
    node.remove_pod("writes");
}

#[test]
fn top_shows_what_pods_use() {
    let (node, _agent) = node();
    let busy = "  - {name: busy, image: 'localhost/busybox:trixie', imagePullPolicy: IfNotPresent, command: [sh, -c, \
                'while :; do :; done'], resources: {limits: {cpu: 200m, memory: 16Mi}}}\n";
    node.run_pod("uses", &format!("  containers:\n{busy}{}", container("idle", "exec sleep 1000000")));
    let rows = json(node, "top -c");
    let row = |container: &str| {
        let is = |row: &&Value| row["pod"].as_str().unwrap().starts_with("uses") && row["container"] == container;
        rows.as_array().unwrap().iter().find(is).unwrap_or_else(|| panic!("{container} in {rows}")).clone()
    };
    // A quota of 200m is what it gets, and a guest's clock is not exact.
    assert!((20..=400).contains(&row("busy")["cpuMilli"].as_u64().unwrap()), "{rows}");
    assert_eq!(row("busy")["memoryLimit"], 16 << 20);
    assert!(row("idle")["memoryBytes"].as_u64().unwrap() > 0 && row("idle")["pids"] == 1, "{rows}");
    let table = node.ok("armlet top");
    assert!(table.lines().any(|line| line.contains(" uses") && line.contains("Mi")), "{table}");
    node.remove_pod("uses");
}
