//! armlet's own survival: what guards its processes, what it is held to, what it tells about itself.

use crate::guests::directory;
use crate::node::{IMAGE, PATIENCE, container, image, pod};
use armlet_vm::{Boot, Disk, Guest, Initramfs, Kind, binary};
use serde_json::Value;
use std::path::{Path, PathBuf};
use std::time::Duration;

const GROUPS: &str = "/sys/fs/cgroup";
/// What an earlier boot left: the supervisor of process 1 has no panicking path that a test could take.
const PANIC: &str = "2026-01-02T03:04:05.000000000Z F supervisor: panicked at src/x.rs:7: planted for the test\n";

const CONFIG: &str = "\
apiVersion: kubelet.config.k8s.io/v1beta1
kind: KubeletConfiguration
kubeReserved: {cpu: 200m, memory: 96Mi, pid: 2000}
kubeReservedCgroup: /armlet
systemReserved: {memory: 16Mi}
systemReservedCgroup: /nothing-there
enforceNodeAllocatable: [pods, kube-reserved, system-reserved]
---
apiVersion: armlet.dev/v1alpha1
kind: NodeConfiguration
logFile: /var/lib/armlet/own.log
logFileMaxSize: 64Ki
";

/// A data disk with an image to preload and a panic of an earlier boot.
fn data(directory: &Path) -> Disk {
    let from = directory.join("data");
    std::fs::create_dir_all(from.join("preload")).unwrap();
    std::fs::create_dir_all(from.join("panics")).unwrap();
    std::fs::copy(image("busybox"), from.join("preload/busybox.tar")).unwrap();
    std::fs::write(from.join("panics/0003-supervisor.new"), PANIC).unwrap();
    Disk::make(&directory.join("data.img"), 256, "armlet-data", Some(&from)).unwrap()
}

/// The node as process 1, with little memory.
fn boot(name: &str) -> Guest {
    let directory = directory(name);
    let initramfs = Initramfs::build(Kind::Debug, Some(&binary().unwrap())).unwrap();
    let guest = Boot::new(&initramfs, &directory).data(&data(&directory)).memory(384).start().unwrap();
    guest.wait_until(&format!("armlet images -o json | grep -q {IMAGE}"), PATIENCE);
    guest
}

/// The role's process: the first of its group. The agent has children there for a moment.
fn role(guest: &Guest, role: &str) -> u32 {
    guest.ok(&format!("head -n 1 {GROUPS}/armlet/{role}/cgroup.procs")).trim().parse().unwrap()
}

/// Process id, group and oom_score_adj of each role.
#[track_caller]
fn guarded(guest: &Guest) -> [u32; 3] {
    let roles = [("supervisor", "-999"), ("agent", "-999"), ("logger", "-998")];
    let pids = roles.map(|(name, score)| {
        let pid = role(guest, name);
        let of = guest.ok(&format!("cat /proc/{pid}/oom_score_adj /proc/{pid}/cgroup"));
        assert_eq!(of, format!("{score}\n0::/armlet/{name}\n"), "{name}");
        pid
    });
    // Right below the root and with no controller on below: the kernel grants what the group asks for, to all in it.
    let values = guest
        .ok(&format!("cd {GROUPS} && cat armlet/memory.min kubepods/memory.min && cat armlet/cgroup.subtree_control"));
    assert_eq!(values, "33554432\n0\n");
    guest.ok(&format!("grep -qw memory {GROUPS}/cgroup.subtree_control"));
    let used: u64 = guest.ok(&format!("cat {GROUPS}/armlet/memory.current")).trim().parse().unwrap();
    assert!(used < 32 << 20, "more than is guarded: {} KiB", used >> 10);
    pids
}

fn restart_agent(guest: &Guest) {
    let agent = role(guest, "agent");
    guest.ok(&format!("kill -9 {agent}"));
    let another = format!(
        "pid=$(head -n 1 {GROUPS}/armlet/agent/cgroup.procs) && [ -n \"$pid\" ] && [ $pid != {agent} ] && armlet version"
    );
    guest.wait_until(&another, PATIENCE);
}

fn conditions(guest: &Guest) -> Vec<(String, String)> {
    let report: Value = serde_json::from_str(&guest.ok("armlet inspect -o json")).unwrap();
    let text = |value: &Value| value.as_str().unwrap().to_owned();
    let conditions = report["conditions"].as_array().unwrap();
    conditions.iter().map(|c| (text(&c["type"]), text(&c["message"]))).collect()
}

fn condition(guest: &Guest, kind: &str) -> Option<String> {
    conditions(guest).into_iter().find(|(one, _)| one == kind).map(|(_, message)| message)
}

/// One boot: a panic of the boot before is shown; a pod that eats all memory takes none of armlet's processes along; the
/// log is followed, its level changed, written to a file; what is reserved is enforced, and given back.
#[test]
fn armlet_guards_itself_and_tells_about_itself() {
    let guest = boot("own-life");
    a_panic_is_shown_once(&guest);
    a_hog_goes_alone(&guest);
    the_log_is_followed(&guest);
    what_is_reserved_is_enforced(&guest);
    a_bundle_has_no_secrets(&guest);
}

fn a_panic_is_shown_once(guest: &Guest) {
    guest.wait_until("armlet inspect | grep -q Panicked", PATIENCE);
    let shown = condition(guest, "Panicked").unwrap();
    assert!(shown.starts_with(PANIC.trim_end()), "{shown}");
    assert!(guest.ok("armlet events").contains("Warning   Panicked"));
    restart_agent(guest);
    assert_eq!(condition(guest, "Panicked"), None, "it was shown");
    // Its lines stay, in the order of time.
    let log = guest.ok("armlet logs --node");
    assert_eq!(log.lines().next(), Some(PANIC.trim_end()));
    assert!(log.lines().is_sorted_by_key(|line| line.get(..30).unwrap()), "{log}");
    assert!(log.contains(" I agent: ") && log.contains(" I supervisor: "), "{log}");
    guest.ok("ls /var/lib/armlet/panics/0003-supervisor.log");
}

fn a_hog_goes_alone(guest: &Guest) {
    let before = guarded(guest);
    let quiet = pod("quiet", &format!("  containers:\n{}", container("main", "exec sleep 1000000")));
    guest.write_file("/etc/armlet/manifests/quiet.yaml", quiet.as_bytes());
    guest.wait_until("armlet ps | grep -E 'quiet.* Running '", PATIENCE);
    let group = guest.ok(&format!("find {GROUPS}/kubepods/besteffort -mindepth 2 -type d"));
    let first = format!("$(cat {}/cgroup.procs)", group.trim());
    assert_eq!(guest.ok(&format!("cat /proc/{first}/oom_score_adj {}/memory.min", group.trim())), "1000\n0\n");
    let exec = guest.ok("armlet exec quiet -- cat /proc/self/oom_score_adj");
    assert_eq!(exec, "1000\n");
    assert_eq!(guarded(guest), before);

    // More than there is, and nothing is reserved: the kernel has to end somebody.
    let eat = "head -c 2000000000 /dev/zero | tail";
    let hog = pod("hog", &format!("  restartPolicy: Never\n  containers:\n{}", container("main", eat)));
    guest.write_file("/etc/armlet/manifests/hog.yaml", hog.as_bytes());
    guest.wait_until("armlet ps | grep -E 'hog.* (OOMKilled|Error) '", Duration::from_secs(300));
    let killed = guest.ok(
        "dmesg | grep -iE 'out of memory: killed process' | sed 's/.*(\\(.*\\)).*/\\1/' | cut -d ')' -f 1 | sort -u",
    );
    assert!(!killed.is_empty() && !killed.contains("armlet"), "{killed}");
    assert_eq!(guarded(guest), before, "neither was ended");
    guest.ok("armlet ps | grep -E 'quiet.* Running ' || armlet events quiet | grep -i oom");
    guest.ok("rm /etc/armlet/manifests/hog.yaml");
}

fn the_log_is_followed(guest: &Guest) {
    assert_eq!(guest.ok("armlet log-level"), "agent       info\nsupervisor  info\n");
    guest.ok("armlet logs --node -f --tail 0 >/run/followed 2>&1 & echo $! >/run/follower");
    // The follower is there once it shows something.
    guest.wait_until(
        "armlet log-level debug; grep -q 'I agent: what is logged was changed level=debug' /run/followed",
        PATIENCE,
    );
    assert_eq!(guest.ok("armlet log-level"), "agent       debug\nsupervisor  debug\n");
    guest.ok(&format!("kill -9 $(cat {GROUPS}/armlet/logger/cgroup.procs)"));
    guest.wait_until("grep -q ' W supervisor: the logger was started again' /run/followed", PATIENCE);
    let again = pod("again", &format!("  containers:\n{}", container("main", "exec sleep 1000000")));
    guest.write_file("/etc/armlet/manifests/again.yaml", again.as_bytes());
    guest.wait_until("grep -q ' D agent: start pod=' /run/followed", PATIENCE);
    guest.ok("rm /etc/armlet/manifests/again.yaml; kill $(cat /run/follower)");
    let both = guest.ok("armlet logs --node --tail 3; armlet logs --node --since 1s");
    assert!(both.lines().count() >= 3, "{both}");
    // Not kept: another agent logs what the configuration says, the supervisor goes on as it was told.
    restart_agent(guest);
    assert_eq!(guest.ok("armlet log-level"), "agent       info\nsupervisor  debug\n");
    guest.ok("armlet log-level 0");
    let wrong = guest.run("armlet log-level loud", PATIENCE).unwrap();
    assert!(wrong.status == 2 && wrong.stderr.contains("write error, warn, info"), "{wrong:?}");
}

fn what_is_reserved_is_enforced(guest: &Guest) {
    let values = || guest.ok(&format!("cd {GROUPS}/armlet && cat cpu.weight memory.max pids.max"));
    assert_eq!(values(), "100\nmax\nmax\n");
    guest.write_file("/etc/armlet/config.yaml", CONFIG.as_bytes());
    restart_agent(guest);
    // 200m are 204 shares.
    assert_eq!(values(), "8\n100663296\n2000\n");
    let missing = condition(guest, "NodeAllocatableNotEnforced").unwrap();
    assert_eq!(
        missing,
        "Failed to enforce System Reserved Cgroup Limits on \"/nothing-there\": cgroup nothing-there does not exist"
    );
    let events = guest.ok("armlet events -o json");
    for (kind, message) in [("Normal", "Updated limits on kube reserved cgroup /armlet"), ("Warning", &missing)] {
        let is_there = |line: &str| {
            let event: Value = serde_json::from_str(line).unwrap();
            event["type"] == kind && event["message"] == message
        };
        assert!(events.lines().any(is_there), "{message} in {events}");
    }
    // The log is in the file as well, both roles' lines.
    guest.wait_until(
        "grep -q ' I agent: ' /var/lib/armlet/own.log && grep -q ' I supervisor: ' /var/lib/armlet/own.log",
        PATIENCE,
    );
    guest.ok("[ $(stat -c %s /var/lib/armlet/own.log) -le 65536 ]");
    guest.ok("rm /etc/armlet/config.yaml");
    restart_agent(guest);
    assert_eq!(values(), "100\nmax\nmax\n");
    assert_eq!(condition(guest, "NodeAllocatableNotEnforced"), None);
}

/// Everything that the archive holds, as one text, and what the command said.
fn bundle(guest: &Guest) -> (String, String) {
    let said = guest.run("armlet debug bundle -o /run/b.tar.gz", Duration::from_secs(120)).unwrap();
    assert!(said.success(), "{said:?}");
    let all = "rm -rf /run/b && mkdir /run/b && tar -xzf /run/b.tar.gz -C /run/b && cd /run/b/* && \
               for f in $(find . -type f | sort); do echo \"#### $f\"; cat $f; done";
    (guest.ok(all), said.stdout)
}

fn a_bundle_has_no_secrets(guest: &Guest) {
    let secret = "apiVersion: v1\nkind: Pod\nmetadata:\n  name: keeper\n  annotations: {db/password: planted-note}\nspec:\n  \
        terminationGracePeriodSeconds: 1\n  containers:\n  - name: main\n    image: localhost/busybox:trixie\n    \
        env: [{name: DATABASE, value: planted-value}]\n    \
        command: [sh, -c, 'sleep 100000 # --password=planted-script', --token, planted-word]\n  \
        - name: broken\n    image: localhost/busybox:trixie\n    command: [/no/such/program, --password=planted-argument]\n";
    guest.write_file("/etc/armlet/manifests/keeper.yaml", secret.as_bytes());
    let refused =
        secret.replace("keeper", "refused").replace("env:", "environment:").replace("planted-value", "planted-typo");
    guest.write_file("/etc/armlet/manifests/refused.yaml", refused.as_bytes());
    guest.wait_until(
        "armlet events keeper | grep -q 'Back-off\\|no such file\\|not found' && armlet inspect | grep -q refused.yaml",
        PATIENCE,
    );

    let (text, said) = bundle(guest);
    assert!(
        !text.contains("planted-"),
        "{}",
        text.lines().filter(|line| line.contains("planted-")).collect::<String>()
    );
    for part in [
        "#### ./README",
        "#### ./version.json",
        "#### ./check.json",
        "#### ./config.json",
        "#### ./node.json",
        "#### ./pods.json",
        "#### ./attempts.json",
        "#### ./events.txt",
        "#### ./stats.json",
        "#### ./log.txt",
        "#### ./supervisor-log.txt",
        "#### ./panics.txt",
        "#### ./roles.txt",
        "#### ./kernel.txt",
        "#### ./kernel-messages.txt",
        "#### ./cgroups.txt",
        "#### ./mounts.txt",
        "#### ./network.txt",
        "#### ./disks.txt",
    ] {
        assert!(text.contains(part), "{part}: {said}");
    }
    for there in [
        "\"DATABASE\"",
        "<redacted>",
        "I supervisor: ",
        "== /sys/fs/cgroup/kubepods/besteffort/pod",
        "memory.min: 33554432",
        "oom_score_adj -999; VmHWM: ",
        "Linux version 6.",
        "eth0 state",
        "overlay",
        "keeper",
        "planted for the test",
    ] {
        assert!(text.contains(there), "{there} is not in it: {said}");
    }
    assert!(!said.contains(" missing "), "{said}");
    guest.ok("[ $(stat -c %a /run/b.tar.gz) = 600 ]");

    // An agent that hangs costs its time limit, and what can be read without it is there.
    let agent = role(guest, "agent");
    guest.ok(&format!("kill -STOP {agent}"));
    let (text, said) = bundle(guest);
    guest.ok(&format!("kill -CONT {agent}"));
    assert!(
        !text.contains("planted-"),
        "{}",
        text.lines().filter(|line| line.contains("planted-")).collect::<String>()
    );
    assert!(said.contains("the agent did not answer within 10 s"), "{said}");
    let (_, log) = text.split_once("#### ./supervisor-log.txt").unwrap();
    assert!(log.contains(" I supervisor: ") && text.contains("\"findings\""), "{text}");
}

/// A guest on which another program is process 1, as under a service manager: both roles leave the groups that they were
/// started in, because those are not guarded. What logs into the journal, with priorities, stays: the journal knows by the
/// group whose lines they are.
#[test]
fn roles_that_somebody_else_started_are_guarded_too() {
    let directory = directory("own-life-guest");
    let files: PathBuf = directory.join("payload");
    std::fs::create_dir_all(&files).unwrap();
    std::fs::copy(binary().unwrap(), files.join("armlet")).unwrap();
    let payload = Disk::make(&directory.join("payload.img"), 64, "armlet-payload", Some(&files)).unwrap();
    let initramfs = Initramfs::build(Kind::Bare, None).unwrap();
    let guest = Boot::new(&initramfs, &directory).data(&data(&directory)).payload(&payload).start().unwrap();
    guest.ok("ln -sf /run/payload/armlet /run/debug/bin/armlet");
    let start = |journal: &str| {
        for role in ["supervisor", "agent"] {
            guest.ok(&format!(
                "group={GROUPS}/system.slice/armlet-{role}.service; mkdir -p $group; : >/run/{role}.out; {journal}=$(stat -c \
                 %d:%i /run/{role}.out); export {journal}; \
                 setsid sh -c \"echo 0 >$group/cgroup.procs; exec armlet {role}\" </dev/null >>/run/{role}.out 2>&1 &"
            ));
        }
    };
    start("NO_JOURNAL");
    guest.wait_until("armlet version && [ -n \"$(cat /sys/fs/cgroup/armlet/logger/cgroup.procs)\" ]", PATIENCE);
    guarded(&guest);
    let out = guest.ok("cat /run/agent.out /run/supervisor.out");
    assert!(out.contains(" I agent: ") && out.contains(" I supervisor: ") && !out.contains("\n<"), "{out}");

    guest.ok(&format!("kill -KILL $(cat {GROUPS}/armlet/supervisor/cgroup.procs {GROUPS}/armlet/agent/cgroup.procs)"));
    guest.wait_until(&format!("[ -z \"$(cat {GROUPS}/armlet/*/cgroup.procs)\" ]"), PATIENCE);
    start("JOURNAL_STREAM");
    let unit = format!("{GROUPS}/system.slice/armlet");
    guest.wait_until(
        &format!("armlet version && [ -n \"$(cat {unit}-supervisor.service/logger/cgroup.procs)\" ]"),
        PATIENCE,
    );
    for role in ["supervisor", "agent"] {
        guest.ok(&format!("grep -q {role} /proc/$(cat {unit}-{role}.service/cgroup.procs)/cmdline"));
    }
    assert_eq!(guest.ok(&format!("cat {GROUPS}/armlet/*/cgroup.procs")), "");
    let out = guest.ok("cat /run/agent.out /run/supervisor.out");
    assert!(out.contains("\n<6>agent: ") && out.contains("\n<6>supervisor: "), "{out}");
    assert!(out.lines().all(|line| line.starts_with('<')), "{out}");
    let shown = guest.ok("armlet logs --node --tail 1");
    assert!(shown.get(..30).is_some_and(|time| time.ends_with('Z')), "{shown}");
}
