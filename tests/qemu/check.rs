//! `armlet check` on a board that has everything, and on one whose firmware switches the memory controller off.

use crate::guests::directory;
use crate::node::{IMAGE, PATIENCE, image, node, pod};
use armlet_vm::{Boot, Disk, Initramfs, Kind, binary};
use serde_json::Value;

fn findings(report: &str) -> Vec<(String, String)> {
    let report: Value = serde_json::from_str(report).unwrap();
    let text = |value: &Value| value.as_str().unwrap().to_owned();
    report["findings"].as_array().unwrap().iter().map(|f| (text(&f["topic"]), text(&f["level"]))).collect()
}

#[test]
fn a_board_with_everything_is_ready() {
    let (node, _agent) = node();
    let found = findings(&node.ok("armlet check -o json"));
    for topic in ["cgroup v2", "memory controller", "overlay", "BPF", "seccomp", "pod network", "modules", "namespaces"]
    {
        assert!(found.contains(&(topic.to_owned(), "ok".to_owned())), "{topic} in {found:?}");
    }
    assert!(found.iter().all(|(_, level)| level != "missing" && level != "degraded"), "{found:?}");
    assert_eq!(node.ok("armlet check | tail -n 1"), "This machine is ready to be a node.\n");
    assert_eq!(node.ok("ls -A /var/lib/armlet | grep check || true"), "", "nothing of the trial stays");
}

/// "What is missing degrades one feature with a node condition, never the whole node."
#[test]
fn without_the_memory_controller_only_limits_are_missing() {
    let directory = directory("check");
    let data = directory.join("data");
    std::fs::create_dir_all(data.join("preload")).unwrap();
    std::fs::copy(image("busybox"), data.join("preload/busybox.tar")).unwrap();
    let data = Disk::make(&directory.join("data.img"), 256, "armlet-data", Some(&data)).unwrap();
    let initramfs = Initramfs::build(Kind::Debug, Some(&binary().unwrap())).unwrap();
    let guest =
        Boot::new(&initramfs, &directory).data(&data).append("cgroup_disable=memory").append("psi=0").start().unwrap();
    guest.wait_until("armlet version", PATIENCE);

    let found = findings(&guest.ok("armlet check -o json"));
    assert!(found.contains(&("memory controller".to_owned(), "degraded".to_owned())), "{found:?}");
    assert!(found.contains(&("pressure".to_owned(), "note".to_owned())), "{found:?}");
    assert!(found.iter().all(|(_, level)| level != "missing"), "{found:?}");

    let missing = guest.run("armlet check --fix", PATIENCE).unwrap();
    assert_eq!(missing.status, 1);
    assert!(missing.stderr.contains("cgroup_enable=memory cgroup_memory=1 psi=1"), "{}", missing.stderr);
    guest.write_file("/boot/firmware/cmdline.txt", b"root=/dev/x cgroup_disable=memory rootwait");
    guest.ok("armlet check --fix");
    let fixed = "root=/dev/x rootwait cgroup_enable=memory cgroup_memory=1 psi=1";
    assert_eq!(guest.ok("cat /boot/firmware/cmdline.txt"), fixed);
    assert!(guest.ok("armlet check --fix").contains("has the words already"));
    assert_eq!(
        guest.ok("cd /boot/firmware && ls -A && cat cmdline.txt.armlet-before"),
        "cmdline.txt\ncmdline.txt.armlet-before\nroot=/dev/x cgroup_disable=memory rootwait"
    );
    guest.write_file("/boot/firmware/cmdline.txt", b"two\nlines\n");
    let refused = guest.run("armlet check --fix", PATIENCE).unwrap();
    assert_eq!(refused.status, 1);
    assert!(refused.stderr.contains("it has 2 lines"), "{}", refused.stderr);
    assert_eq!(guest.ok("cat /boot/firmware/cmdline.txt"), "two\nlines\n");

    guest.wait_until("armlet inspect -o json | grep -q MemoryLimitsUnavailable", PATIENCE);
    let container = |limit: &str| {
        format!("  containers: [{{name: main, image: \"{IMAGE}\", command: [sleep, \"100000\"]{limit}}}]")
    };
    guest.write_file("/etc/armlet/manifests/free.yaml", pod("free", &container("")).as_bytes());
    let limited = pod("limited", &container(", resources: {limits: {memory: 32Mi}}"));
    guest.write_file("/etc/armlet/manifests/limited.yaml", limited.as_bytes());
    guest.wait_until("armlet ps | grep -E 'free-[a-z]+ +1/1 +Running'", PATIENCE);
    guest.wait_until("armlet events | grep -F 'memory controller is not enabled'", PATIENCE);
    assert!(!guest.ok("armlet ps").contains("limited-armlet   1/1"));
}
