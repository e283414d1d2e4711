//! Upgrades in place and back between two builds that are really different, and programs that are no upgrade.

use super::LONG;
use super::node::{Node, counting, data_files, pod};
use crate::guests::directory;
use armlet_vm::{Boot, Disk, Initramfs, Kind, binary, other_binary};
use std::time::Duration;

/// Where the test keeps the installed program.
const INSTALLED: &str = "/run/installed/armlet";
const BUILDS: [&str; 2] = ["/run/payload/armlet", "/run/payload/other"];

/// What must not change, whatever the supervisor is.
struct Kept {
    container: String,
    process: String,
    supervisor: String,
}

impl Kept {
    #[track_caller]
    fn of(node: &Node) -> Self {
        let pods = node.wait("steady runs", |pods| pods.main("steady").is_some_and(|main| main.runs()));
        let main = pods.main("steady").unwrap();
        assert_eq!(main.restarts(), 0, "{}", node.story());
        Self { container: main.id().to_owned(), process: node.process(&pods, "steady"), supervisor: supervisor(node) }
    }

    /// Checks that all is as it was, and that the log goes on without a gap.
    #[track_caller]
    fn holds(&self, node: &Node) {
        let now = Self::of(node);
        let parts = |kept: &Self| (kept.container.clone(), kept.process.clone(), kept.supervisor.clone());
        assert_eq!(parts(&now), parts(self), "{}", node.story());
        assert_eq!(node.note("steady"), "start\n", "it was started or stopped again");
        // The last line but one is whole. All of them are looked at once, at the end.
        node.guest.ok(
            "cd /var/log/pods/default_steady-node_*/main && last() { tail -n 2 0.log | head -n 1 | cut -d ' ' -f 5; } && \
             n=$(last) && until [ \"$(last)\" -gt $((n + 20)) ] 2>/dev/null; do usleep 50000; done",
        );
    }
}

/// Numbered lines, some written in two parts, and few enough that a campaign's can be read again.
fn lines_for_long() -> String {
    let lines = "i=$((i+1)); echo line $i; i=$((i+1)); printf 'line '; usleep 50000; echo $i; usleep 20000";
    format!("echo start >>/notes/steady; trap 'exit 0' TERM; i=0; while :; do {lines}; done")
}

fn supervisor(node: &Node) -> String {
    node.guest.ok("cat /sys/fs/cgroup/armlet/supervisor/cgroup.procs").trim().to_owned()
}

/// Waits until the supervisor is this program, and so is its logger.
#[track_caller]
fn becomes(node: &Node, program: &str) {
    for role in ["supervisor", "logger"] {
        node.guest
            .wait_until(&format!("cmp -s /proc/$(cat /sys/fs/cgroup/armlet/{role}/cgroup.procs)/exe {program}"), LONG);
    }
}

/// Puts a program where the agent is started from, as an upgrade does.
fn install(node: &Node, program: &str) {
    node.guest.ok(&format!(
        "mkdir -p /run/installed && cp {program} {INSTALLED}.new && mv {INSTALLED}.new {INSTALLED} && \
         ln -sf {INSTALLED} /run/debug/bin/armlet"
    ));
}

/// Ends the agent and waits for the next.
fn restart_agent(node: &Node) {
    node.guest.ok("old=$(cat /run/agent.pid); kill -KILL $old; until [ \"$(cat /run/agent.pid)\" != $old ]; do usleep 20000; done");
    node.guest.wait_until("armlet ps", LONG);
}

#[expect(clippy::print_stderr, reason = "a campaign says how far it is")]
fn announce(round: usize) {
    eprintln!("hand-overs: {}", 3 * round);
}

/// How often: a few times, and in a campaign often enough for fifty hand-overs.
fn times() -> usize {
    if std::env::var("ARMLET_CAMPAIGN_SECONDS").is_ok() { 17 } else { 2 }
}

/// "Upgrade and roll-back: replace the binary, restart the agent, and the supervisor re-executes itself in place by the
/// hand-over; containers, open execs, log streams never notice; a broken new binary is refused and the old goes on."
#[test]
fn builds_take_over_from_each_other_and_nobody_notices() {
    let payload = [("armlet", binary().unwrap()), ("other", other_binary().unwrap())];
    let node = Node::by_hand_with("upgrade", &payload);
    install(&node, BUILDS[0]);
    node.start_supervisor();
    node.start_agents();
    node.guest.wait_until("armlet images | grep -q busybox", LONG);
    node.add("steady", &pod("steady", "", "", &lines_for_long()));
    let kept = Kept::of(&node);
    follow_the_log(&node);

    for round in 0..times() {
        announce(round);
        let (from, to) = (BUILDS[round % 2], BUILDS[(round + 1) % 2]);
        becomes(&node, from);
        with_an_open_session(&node, to);
        kept.holds(&node);
        // The agent is the one before still, and takes its supervisor back when it starts again.
        restart_agent(&node);
        becomes(&node, from);
        // Now for good, and while a pod is on its way.
        install(&node, to);
        let name = format!("late-{round}");
        node.add(&name, &pod(&name, "hostNetwork: false,", "", &counting(&name)));
        restart_agent(&node);
        becomes(&node, to);
        let pods = node.wait("the late one runs", |pods| pods.main(&name).is_some_and(|main| main.runs()));
        assert_eq!(pods.main(&name).unwrap().restarts(), 0, "{}", node.story());
        kept.holds(&node);
        node.unbroken_lines(&name);
        node.remove(&name);
        node.wait("the late one is gone", |pods| pods.get(&name).is_none());
    }
    node.guest.ok("armlet events | grep -q SupervisorReplaced");

    // From here on the other build is the one that is offered.
    install(&node, BUILDS[0]);
    restart_agent(&node);
    becomes(&node, BUILDS[0]);
    what_is_no_upgrade_is_refused(&node);
    becomes(&node, BUILDS[0]);
    kept.holds(&node);
    // And then it is taken.
    replace(&node, BUILDS[1]);
    becomes(&node, BUILDS[1]);
    kept.holds(&node);
    node.unbroken_lines("steady");
    // One that ends is seen as before.
    node.guest.ok(&format!("kill -KILL {}", kept.process.split_whitespace().next().unwrap()));
    let pods = node.wait("steady starts again", |pods| {
        pods.main("steady").is_some_and(|main| main.restarts() == 1 && main.runs())
    });
    assert_eq!(pods.main("steady").unwrap().last_end(), Some((137, "Error")), "{}", node.story());
    the_followed_log_is_whole(&node);
    assert!(!node.guest.ok("cat /run/agent.log").contains("the logger died"), "{}", node.story());
}

/// `armlet supervisor --replace-with`: gives what it says when it is done.
#[track_caller]
fn replace(node: &Node, program: &str) -> String {
    node.guest.ok(&format!("{INSTALLED} supervisor --replace-with {program}"))
}

/// Replaces the supervisor while a session that somebody has open goes on.
#[track_caller]
fn with_an_open_session(node: &Node, to: &str) {
    node.guest.ok("rm -f /run/in /run/out /run/status; mkfifo /run/in; \
         { armlet exec -i steady -- cat </run/in >/run/out 2>/run/session.err; echo $? >/run/status; } & \
         exec 5>/run/in; echo one >&5; until grep -q one /run/out; do usleep 20000; done; \
         sleep 1000 <&- >/dev/null 2>&1 & echo $! >/run/holder");
    let said = replace(node, to);
    assert!(said.contains("the supervisor is "), "{said}");
    becomes(node, to);
    node.guest.ok("echo two >/run/in; until grep -q two /run/out; do usleep 20000; done; kill $(cat /run/holder)");
    node.guest.wait_until("[ -s /run/status ]", LONG);
    let (out, status) = (node.guest.ok("cat /run/out"), node.guest.ok("cat /run/status /run/session.err"));
    assert_eq!((out.as_str(), status.as_str()), ("one\ntwo\n", "0\n"), "{}", node.story());
}

/// What follows the file of the log sees each line once: the name and the file stay.
fn follow_the_log(node: &Node) {
    node.guest.ok("tail -n +1 -F /var/log/pods/default_steady-node_*/main/0.log >/run/followed 2>/dev/null &");
}

#[track_caller]
fn the_followed_log_is_whole(node: &Node) {
    // Whoever was killed may have been in the middle of its last line.
    let script = "awk '$4 == \"line\" && $5 == \"\" { cut = NR; next } $4 == \"line\" && $5 != last + 1 { print; bad = 1 } \
                  { last = $5 } END { exit bad || (cut && cut != NR) }' /run/followed";
    node.guest.ok(&format!("[ -s /run/followed ] && {script}"));
}

/// Truncated, of another machine, another program altogether, one that hangs, one that says no, and one that says yes and
/// then cannot go on.
#[track_caller]
fn what_is_no_upgrade_is_refused(node: &Node) {
    node.guest.ok("mkdir -p /run/bad && cd /run/bad && size=$(wc -c </run/payload/other) && \
         head -c $((size / 2)) /run/payload/other >half && head -c $((size - 65536)) /run/payload/other >nearly && \
         cp /run/payload/other foreign && printf '\\076' | dd of=foreign bs=1 seek=18 conv=notrunc 2>/dev/null && \
         : >empty && echo hello >text && cp /run/debug/busybox busybox && chmod +x *");
    let bad = |file: &str, wish: &str, said: &str| {
        node.guest.ok(&format!("echo {wish} >/run/armlet/hand-over-test"));
        let command = format!("{INSTALLED} supervisor --replace-with {file} 2>&1");
        let output = node.guest.run(&command, Duration::from_secs(120)).unwrap();
        node.guest.ok("rm /run/armlet/hand-over-test");
        assert!(!output.success() && output.stdout.contains(said), "{file} {wish}: {output:?}\n{}", node.story());
        becomes(node, BUILDS[0]);
        node.guest.wait_until("armlet events | tail -n 3 | grep -q FailedSupervisorReplace", LONG);
    };
    for (file, said) in [
        ("half", "refuses"),
        ("nearly", "refuses"),
        ("foreign", "cannot be executed"),
        ("empty", "cannot be executed"),
        ("text", "cannot be executed"),
        ("busybox", "no answer"),
    ] {
        bad(&format!("/run/bad/{file}"), "nothing", said);
    }
    for (wish, said) in [("refuse", "made to fail"), ("hang", "did not answer"), ("fail", "made to fail")] {
        bad(BUILDS[1], wish, said);
    }
}

/// Process 1 starts its agent from the data disk if there is one, becomes it, and does without it when it is broken.
#[test]
fn process_one_becomes_what_lies_on_the_data_disk() {
    let directory = directory("upgrade-one");
    let files = directory.join("payload");
    std::fs::create_dir_all(&files).unwrap();
    for (name, from) in [("armlet", binary().unwrap()), ("other", other_binary().unwrap())] {
        std::fs::copy(from, files.join(name)).unwrap();
    }
    let payload = Disk::make(&directory.join("payload.img"), 64, "armlet-payload", Some(&files)).unwrap();
    let steady = pod("steady", "", "", &lines_for_long());
    let from = data_files(&directory, &[("steady", &steady)]);
    let data = Disk::make(&directory.join("data.img"), 512, "armlet-data", Some(&from)).unwrap();
    let initramfs = Initramfs::build(Kind::Debug, Some(&binary().unwrap())).unwrap();
    let mut boot = Boot::new(&initramfs, &directory).data(&data).payload(&payload);
    for argument in ["--manifests", "/var/lib/armlet/manifests", "--node-name", "node"] {
        boot = boot.append(format!("armlet.agent={argument}"));
    }
    let node = Node { guest: boot.start().unwrap() };
    node.guest.wait_until("armlet images | grep -q busybox", LONG);
    let kept = Kept::of(&node);
    assert_eq!(kept.supervisor, "1");
    let put = |program: &str| {
        node.guest.ok(&format!(
            "mkdir -p /var/lib/armlet/bin && cd /var/lib/armlet/bin && cp {program} new && mv new armlet && \
             kill -TERM $(cat /sys/fs/cgroup/armlet/agent/cgroup.procs)"
        ));
    };
    for program in [BUILDS[1], BUILDS[0], BUILDS[1]] {
        put(program);
        becomes(&node, program);
        node.guest.wait_until("armlet ps", LONG);
        kept.holds(&node);
    }
    node.guest.ok("head -c 100000 /run/payload/armlet >/run/broken; chmod +x /run/broken");
    put("/run/broken");
    let agent = "/proc/$(cat /sys/fs/cgroup/armlet/agent/cgroup.procs)/exe";
    node.guest.wait_until(&format!("cmp -s {agent} {} && armlet ps", BUILDS[1]), LONG);
    becomes(&node, BUILDS[1]);
    kept.holds(&node);
}
