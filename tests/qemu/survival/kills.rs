//! Processes of armlet are killed while pods begin, run and end. One test, one boot: each part goes on with what the one
//! before has left running, which is what a node does.

use super::node::{MANIFESTS, NOTES, Node, Pods, counting, pod};
use super::{LONG, Seed, rounds};
use std::collections::BTreeSet;
use std::time::Duration;

/// "kill -9 the agent at any moment: no container is restarted or loses a log line; the new agent adopts all. Kill logger,
/// create child and (off process 1) supervisor at any moment: as the design says", and the store is read again whatever
/// was damaged in it.
#[test]
fn whatever_is_killed_is_replaced_and_pods_go_on() {
    let node = Node::by_hand();
    node.start_supervisor();
    node.start_agents();
    node.guest.wait_until("armlet images | grep -q busybox", LONG);
    let mut seed = Seed::new();

    standing_pods(&node);
    sessions_end_with_their_agent(&node);
    agents_are_killed(&node, &mut seed);
    loggers_are_killed(&node, &mut seed);
    a_create_child_is_killed(&node);
    stores_are_damaged(&node);
    the_supervisor_is_killed(&node);
}

/// What has to hold of the pod `steady` from its start until the supervisor dies.
struct Steady {
    id: String,
    process: String,
    ready_since: String,
}

impl Steady {
    fn of(node: &Node, pods: &Pods) -> Self {
        let container = pods.main("steady").unwrap();
        let ready = pods.condition("steady", "Ready").unwrap();
        Self {
            id: container.id().to_owned(),
            process: node.process(pods, "steady"),
            ready_since: ready["lastTransitionTime"].as_str().unwrap_or_default().to_owned(),
        }
    }
}

/// Checks that `steady` is the same as before: container, process, restarts, readiness, startup probe, log.
#[track_caller]
fn steady_goes_on(node: &Node, before: &Steady) {
    let pods = node.wait("steady is adopted", |pods| pods.ready("steady"));
    let now = Steady::of(node, &pods);
    assert_eq!((&now.id, &now.process), (&before.id, &before.process), "{}", node.story());
    assert_eq!(pods.main("steady").unwrap().restarts(), 0);
    assert_eq!(now.ready_since, before.ready_since, "its readiness was lost meanwhile\n{}", node.story());
    assert_eq!(node.note("steady"), "start\n", "it was started or stopped again");
    assert_eq!(node.note("steady-startup"), "probed\n", "that it has started was forgotten");
    let lines = node.unbroken_lines("steady");
    node.guest.wait_until(
        &format!("cat /var/log/pods/default_steady-node_*/main/0.log | grep -q ' line {}$'", lines + 20),
        LONG,
    );
}

/// Pods that are there all the time: one that must not change, ones that have ended and must stay so, one that crashes.
fn standing_pods(node: &Node) {
    // A startup probe would answer slowly were it asked again: it counts how often that happens.
    let probes = "startupProbe: {exec: {command: [sh, -c, 'echo probed >>/notes/steady-startup']}, periodSeconds: 1, timeoutSeconds: 20}, \
         readinessProbe: {exec: {command: ['true']}, periodSeconds: 3, timeoutSeconds: 20}, \
         livenessProbe: {exec: {command: ['true']}, periodSeconds: 3, timeoutSeconds: 20}, ";
    node.add("steady", &pod("steady", "", probes, &counting("steady")));
    node.add(
        "well",
        &pod("well", "restartPolicy: OnFailure,", "", "echo start >>/notes/well; [ $(wc -l </notes/well) = 2 ]"),
    );
    node.add("ill", &pod("ill", "restartPolicy: Never,", "", "echo start >>/notes/ill; exit 3"));
    node.add("lasting", &pod("lasting", "restartPolicy: Never,", "", &counting("lasting")));
    node.wait("the standing pods are up", |pods| {
        pods.ready("steady")
            && pods.ready("lasting")
            && pods.phase("well") == "Succeeded"
            && pods.phase("ill") == "Failed"
    });
}

#[track_caller]
fn the_finished_stay_finished(node: &Node) {
    let pods = node.wait("the finished pods are known", |pods| pods.get("well").is_some() && pods.get("ill").is_some());
    assert_eq!((pods.phase("well"), pods.main("well").unwrap().restarts()), ("Succeeded", 1), "{}", node.story());
    assert_eq!((pods.phase("ill"), pods.main("ill").unwrap().restarts()), ("Failed", 0), "{}", node.story());
    assert_eq!(pods.main("ill").unwrap().last_end(), Some((3, "Error")));
    assert_eq!((node.note("well").as_str(), node.note("ill").as_str()), ("start\nstart\n", "start\n"));
}

/// What was run for somebody through an agent that is gone ends soon after the next one has come.
fn sessions_end_with_their_agent(node: &Node) {
    let runs = "ps -o args | grep -qx 'sleep 4242'";
    node.guest.ok(&format!(
        "armlet exec steady -- sleep 4242 >/dev/null 2>&1 & until {runs}; do usleep 50000; done; \
         kill -KILL $(cat /run/agent.pid)"
    ));
    node.guest.wait_until("armlet version", LONG);
    node.guest.wait_until(&format!("! {runs}"), LONG);
}

/// Kills the agent at random moments while pods are added and removed.
fn agents_are_killed(node: &Node, seed: &mut Seed) {
    let before = Steady::of(node, &node.wait("steady is ready", |pods| pods.ready("steady")));
    let mut present = BTreeSet::new();
    for round in rounds(12) {
        let name = format!("churn-{round}");
        let oldest =
            present.first().cloned().filter(|_| present.len() > 3 || (present.len() > 1 && seed.below(2) == 0));
        let change = match &oldest {
            Some(name) => {
                present.remove(name);
                format!("rm {MANIFESTS}/{name}.yaml")
            }
            None => {
                // Every other one has a network of its own.
                let spec = format!("terminationGracePeriodSeconds: 30, hostNetwork: {},", round % 2 == 0);
                let manifest = pod(&name, &spec, "", &counting(&name));
                node.guest.write_file(&format!("/var/lib/armlet/{name}"), manifest.as_bytes());
                present.insert(name.clone());
                format!("mv /var/lib/armlet/{name} {MANIFESTS}/{name}.yaml")
            }
        };
        // Most agents are killed at work, the others as they start. A pod takes a second or two to come, and to go.
        let at_work = if seed.below(4) > 0 { "until armlet ps; do usleep 50000; done >/dev/null 2>&1;" } else { "" };
        let moment = seed.below(2_500_000);
        node.guest.ok(&format!("{at_work} {change}; usleep {moment}; kill -KILL $(cat /run/agent.pid)"));
    }
    let pods = node.wait("the pods that are left run, the others are gone", |pods| {
        let churning: BTreeSet<_> = pods.names().into_iter().filter(|name| name.starts_with("churn-")).collect();
        churning.len() == present.len() && present.iter().all(|name| pods.main(name).is_some_and(|main| main.runs()))
    });
    for name in &present {
        assert_eq!(pods.main(name).unwrap().restarts(), 0, "{name}\n{}", node.story());
        assert_eq!(node.note(name), "start\n", "{name} was started more than once or stopped\n{}", node.story());
        node.unbroken_lines(name);
    }
    steady_goes_on(node, &before);
    the_finished_stay_finished(node);
    for name in present {
        node.remove(&name);
    }
    node.wait("the last of them are gone", |pods| !pods.names().iter().any(|name| name.starts_with("churn-")));
    // Each was told to end and did so in time, whoever was the agent then.
    let notes = node.guest.ok(&format!("cd {NOTES}; for note in churn-*; do echo $(cat $note); done | sort | uniq -c"));
    let notes: Vec<_> =
        notes.lines().map(|line| line.split_whitespace().skip(1).collect::<Vec<_>>().join(" ")).collect();
    assert!(notes.iter().all(|note| note == "start term" || note == "start"), "{notes:?}");
    assert_eq!(
        node.guest.ok(
            "ls -d /var/log/pods/*churn* /var/log/containers/*churn* /run/armlet/bundles/*churn* 2>/dev/null | wc -l"
        ),
        "0\n"
    );
    let groups = node.guest.ok("find /sys/fs/cgroup/kubepods -type d -name 'pod*' | wc -l");
    assert_eq!(groups, "2\n", "steady and lasting: {}", node.guest.ok("find /sys/fs/cgroup/kubepods -type d"));
    assert_eq!(node.guest.ok("ls /sys/fs/cgroup/armlet | grep -c create- || true"), "0\n");
    assert_eq!(node.guest.ok("ip -o link | grep -c ': pod[0-9a-f]' || true"), "0\n", "links are left");
}

/// Kills the logger under a flood of lines. "If it dies, the supervisor's duplicate pipe ends keep the containers unharmed
/// and a new one goes on": what a logger had read and not written, one read of 64 KiB per output, is all that is lost.
fn loggers_are_killed(node: &Node, seed: &mut Seed) {
    node.add("flood", &pod("flood", "", "", "echo start >>/notes/flood; exec seq 1 2000000000"));
    let pods = node.wait("the flood runs", |pods| pods.main("flood").is_some_and(|main| main.runs()));
    let before = Steady::of(node, &pods);
    let flood = (pods.main("flood").unwrap().id().to_owned(), node.process(&pods, "flood"));
    let logger = "cat /sys/fs/cgroup/armlet/logger/cgroup.procs";
    let log = "cd /var/log/pods/default_flood-node_*/main";
    let mut kills = 0;
    for _ in rounds(4) {
        let old = node
            .guest
            .ok(&format!("{log}; until [ $(cat 0.log* | wc -c) -gt 1000000 ]; do usleep 100000; done; {logger}"));
        node.guest.ok(&format!("usleep {}; kill -KILL {}", seed.below(400_000), old.trim()));
        kills += 1;
        let newer = format!("new=$({logger}) && [ -n \"$new\" ] && [ \"$new\" != {} ]", old.trim());
        node.guest.wait_until(&newer, LONG);
        // It writes: the last line changes.
        node.guest.ok(&format!(
            "{log}; last=$(tail -n 1 0.log); until [ \"$(tail -n 1 0.log)\" != \"$last\" ]; do usleep 50000; done"
        ));
    }
    let script = format!(
        "{log}; cat $(ls 0.log.* | sort) 0.log | awk 'NR > 1 && $4 != last + 1 {{ gaps++; \
         if ($4 <= last) backward++; lost += $4 - last - 1 }} {{ last = $4 }} END {{ print gaps + 0, backward + 0, lost + 0 }}'"
    );
    let pods = node.wait("the flood goes on", |pods| pods.main("flood").is_some_and(|main| main.runs()));
    assert_eq!((pods.main("flood").unwrap().id(), node.process(&pods, "flood")), (flood.0.as_str(), flood.1));
    assert_eq!(node.note("flood"), "start\n");
    // Held still, the flood ends in the log: nothing is rotated away while it is counted.
    let counted = format!(
        "killall -STOP seq; {log}; \
         until size=$(wc -c <0.log); usleep 500000; [ \"$size\" = \"$(wc -c <0.log)\" ]; do :; done; {script}; \
         killall -CONT seq"
    );
    let counted = node.guest.run(&counted, Duration::from_secs(120)).unwrap();
    let counts: Vec<u64> = counted.stdout.split_whitespace().filter_map(|n| n.parse().ok()).collect();
    let [gaps, backward, lost] = counts[..] else { panic!("{counted:?}") };
    // The line that was cut in two may look like a smaller number: a gap more, and a step back.
    assert!(gaps <= 2 * kills && backward <= kills, "{counted:?}");
    // Lines have at least seven digits or six and their end: 64 KiB are less than 11,000 of them.
    assert!(lost <= kills * 11_000, "{counted:?}");
    node.remove("flood");
    node.wait("the flood is over", |pods| pods.get("flood").is_none());
    let pods = node.wait("steady runs", |pods| pods.ready("steady"));
    let now = Steady::of(node, &pods);
    assert_eq!((now.id, now.process, now.ready_since), (before.id, before.process, before.ready_since));
}

/// Kills a create child half way: "a container that cannot start gives the upstream reason and message, never a hung pod".
fn a_create_child_is_killed(node: &Node) {
    let manifest = pod("late", "", "", &counting("late"));
    node.guest.write_file("/var/lib/armlet/late", manifest.as_bytes());
    node.guest.ok(&format!(
        "mv /var/lib/armlet/late {MANIFESTS}/late.yaml; until pid=$(cat /sys/fs/cgroup/armlet/create-*/cgroup.procs) && [ -n \"$pid\" ] \
         && kill -KILL $pid; do :; done 2>/dev/null"
    ));
    let pods = node.wait("the failure is told", |pods| pods.main("late").is_some_and(|main| main.last_end().is_some()));
    assert_eq!(pods.main("late").unwrap().last_end(), Some((128, "StartError")), "{}", node.story());
    node.guest.wait_until("! ls -d /sys/fs/cgroup/armlet/create-*", LONG);
    let pods = node.wait("the pod recovers", |pods| pods.main("late").is_some_and(|main| main.runs()));
    assert_eq!(pods.main("late").unwrap().restarts(), 1);
    assert_eq!(node.note("late"), "start\n");
    let uid = pods.uid("late");
    let groups = node.guest.ok(&format!("find /sys/fs/cgroup/kubepods/*/pod{uid} -mindepth 1 -type d | wc -l"));
    assert_eq!(groups, "1\n", "the half-born container's cgroup is gone");
    node.remove("late");
    node.wait("the pod is gone", |pods| pods.get("late").is_none());
}

/// Damages the store while no agent runs. "What cannot be read is set aside, never deleted; the agent starts whatever it
/// finds."
fn stores_are_damaged(node: &Node) {
    let before = Steady::of(node, &node.wait("steady is ready", |pods| pods.ready("steady")));
    let damages = [
        ("the database's file is cut in half", "f=sled/db; truncate -s $(($(stat -c %s $f) / 2)) $f"),
        ("the database's file is noise", "dd if=/dev/urandom of=sled/db bs=4096 count=4 conv=notrunc"),
        ("the database's snapshots are empty", "for f in sled/snap.*; do : >$f; done"),
        ("the database is gone", "rm -rf sled"),
        ("one fact's file is cut short", "f=$(ls pods/*.fact | head -n 1); truncate -s 20 $f"),
        ("the epoch is noise", "echo noise >epoch"),
    ];
    for (what, damage) in damages {
        node.stop_agents();
        node.guest.ok(&format!("cd /var/lib/armlet/store && {{ {damage}; }} 2>&1"));
        node.start_agents();
        node.wait(what, |pods| pods.ready("steady") && pods.names().len() == 4);
        steady_goes_on(node, &before);
        the_finished_stay_finished(node);
    }
    node.guest.ok("ls -d /var/lib/armlet/store/*.damaged-*");
}

/// Kills the supervisor: "the next one finds the survivors, reports ContainerStatusUnknown / 137, kills and restarts
/// them".
fn the_supervisor_is_killed(node: &Node) {
    let pods = node.wait("all is well", |pods| pods.ready("steady") && pods.ready("lasting"));
    let old = node.process(&pods, "steady");
    let old = old.split_whitespace().next().unwrap();
    node.guest.ok("kill -KILL $(cat /sys/fs/cgroup/armlet/supervisor/cgroup.procs)");
    node.start_supervisor();
    let pods = node.wait("steady is restarted, lasting is over", |pods| {
        pods.ready("steady")
            && pods.main("steady").is_some_and(|main| main.restarts() == 1)
            && pods.phase("lasting") == "Failed"
    });
    for name in ["steady", "lasting"] {
        let end = pods.main(name).unwrap().last_end().map(|(code, reason)| (code, reason.to_owned()));
        assert_eq!(end, Some((137, "ContainerStatusUnknown".to_owned())), "{name}\n{}", node.story());
    }
    assert_eq!(pods.main("lasting").unwrap().restarts(), 0);
    assert_eq!(node.guest.ok(&format!("cat /proc/{old}/cmdline 2>/dev/null || true")), "", "the survivor was killed");
    assert_eq!(node.note("steady"), "start\nstart\n");
    the_finished_stay_finished(node);
    node.unbroken_lines("steady");
}
