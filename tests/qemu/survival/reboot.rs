//! The machine is started again, in order and otherwise. One test, one disk, four boots.

use super::node::{MANIFESTS, NAME, NOTES, Node, Pods, counting, data_files, pod};
use super::{LONG, Seed, rounds};
use crate::guests::directory;
use armlet_vm::{Arch, Boot, Disk, Initramfs, Kind, binary};
use std::time::Duration;

/// "Reboot and power cut: pods that are to run come back by themselves, finished ones stay finished, restart counts kept,
/// store intact." Beside it what process 1 does: "orphan reaping, supervision of the agent, shutdown that stops pods in
/// order".
#[test]
fn the_node_comes_back_as_it_was() {
    let directory = directory("survival-boots");
    let manifests = manifests();
    let manifests: Vec<_> = manifests.iter().map(|(name, manifest)| (*name, manifest.as_str())).collect();
    let files = data_files(&directory, &manifests);
    let data = Disk::make(&directory.join("data.img"), 512, "armlet-data", Some(&files)).unwrap();
    let initramfs = Initramfs::build(Kind::Debug, Some(&binary().unwrap())).unwrap();
    let mut boot = Boot::new(&initramfs, &directory).data(&data);
    for argument in ["--manifests", MANIFESTS, "--v=4"] {
        boot = boot.append(format!("armlet.agent={argument}"));
    }
    let start = |host: &str| Node { guest: boot.clone().append(format!("armlet.hostname={host}")).start().unwrap() };

    let node = start(NAME);
    let mut known = Known::of(&node.wait("all pods are where they are to be", settled));
    orphans_are_reaped(&node);
    the_agent_is_kept(&node, &known);
    known = Known::of(&node.wait("all pods are as before", settled));
    node.wait("the one that ends last runs", |pods| pods.main("last").is_some_and(|main| main.runs()));
    goes_down(node, "TERM");

    let mut seed = Seed::new();
    // The node keeps the name of its first start, which is a part of its pods' names and UIDs.
    let mut node = start("renamed");
    assert_eq!(node.guest.ok("hostname"), "renamed\n");
    known.came_back(&node, 0);
    stopped_in_order(&node);
    // Every further boot costs as much as all else: two power cuts unless there is a campaign.
    for round in rounds(2) {
        known = Known::of(&node.wait("all pods run", settled));
        cut_while_busy(node, round, &mut seed);
        node = start(NAME);
        known.came_back(&node, round + 1);
        is_whole(&node, round);
    }
    goes_down(node, "USR2");
}

/// The pods that run when all is well, and those that have ended.
const RUNNING: [&str; 3] = ["keep", "stubborn", "order"];
const FINISHED: [(&str, &str); 3] = [("well", "Succeeded"), ("ill", "Failed"), ("once", "Succeeded")];

fn manifests() -> Vec<(&'static str, String)> {
    let sidecar = "initContainers: [{name: side, image: 'localhost/busybox:trixie', restartPolicy: Always, \
         command: [sh, -c, \"trap 'echo side >>/notes/order; exit 0' TERM; while :; do usleep 100000; done\"], \
         volumeMounts: [{name: notes, mountPath: /notes}]}],";
    let init = "restartPolicy: Never, initContainers: [{name: first, image: 'localhost/busybox:trixie', \
         command: [sh, -c, 'echo init >>/notes/once'], volumeMounts: [{name: notes, mountPath: /notes}]}],";
    // It takes its time to end: a sidecar that is told to end together with it is faster.
    let slow = "trap 'usleep 1500000; echo main >>/notes/order; exit 0' TERM; while :; do usleep 100000; done";
    // It ends when all others have: its end is the last that a shutdown stores.
    let last = "trap 'usleep 5000000; exit 0' TERM; while :; do usleep 100000; done";
    let twice = "echo start >>/notes/well; [ $(wc -l </notes/well) = 2 ]";
    // Both answer the shutdown's signal with success, which is no end: they have to come back.
    let keep = "restartPolicy: OnFailure, terminationGracePeriodSeconds: 30,";
    let order = format!("{keep} {sidecar}");
    vec![
        ("keep", pod("keep", keep, "", &counting("keep"))),
        (
            "stubborn",
            pod("stubborn", "terminationGracePeriodSeconds: 3,", "", "trap '' TERM; while :; do usleep 100000; done"),
        ),
        ("order", pod("order", &order, "", slow)),
        ("last", pod("last", "restartPolicy: Never, terminationGracePeriodSeconds: 30,", "", last)),
        ("crash", pod("crash", "", "", "exit 1")),
        ("well", pod("well", "restartPolicy: OnFailure,", "", twice)),
        ("ill", pod("ill", "restartPolicy: Never,", "", "echo start >>/notes/ill; exit 3")),
        ("once", pod("once", init, "", "echo main >>/notes/once")),
    ]
}

fn settled(pods: &Pods) -> bool {
    RUNNING.iter().all(|name| pods.ready(name))
        && FINISHED.iter().all(|(name, phase)| pods.phase(name) == *phase)
        && pods.main("crash").is_some_and(|main| main.restarts() > 0)
}

/// What the node has told of its pods, and so must not forget.
struct Known(Vec<(&'static str, String, String, u64)>);

impl Known {
    fn of(pods: &Pods) -> Self {
        let all = RUNNING.into_iter().chain(FINISHED.into_iter().map(|(name, _)| name)).chain(["crash"]);
        let told = all.map(|name| {
            let main = pods.main(name).unwrap();
            (name, pods.uid(name).to_owned(), main.id().to_owned(), main.restarts())
        });
        Self(told.collect())
    }

    /// Checks after one more boot.
    #[track_caller]
    fn came_back(&self, node: &Node, boot: usize) {
        let pods = node.wait("the pods come back by themselves", settled);
        for (name, uid, id, restarts) in &self.0 {
            let main = pods.main(name).unwrap();
            assert_eq!(pods.uid(name), uid, "{name} is the same pod after boot {boot}");
            if FINISHED.iter().any(|(finished, _)| finished == name) {
                assert_eq!(
                    (main.id(), main.restarts()),
                    (id.as_str(), *restarts),
                    "{name} ran again\n{}",
                    node.story()
                );
            } else if RUNNING.contains(name) {
                assert_ne!(main.id(), id, "{name}");
                assert_eq!(main.restarts(), restarts + 1, "{name} after boot {boot}\n{}", node.story());
            } else {
                assert!(main.restarts() >= *restarts, "{name}: {} after {restarts}", main.restarts());
            }
        }
        for (name, text) in [("well", "start\nstart\n"), ("ill", "start\n"), ("once", "init\nmain\n")] {
            assert_eq!(node.note(name), text, "{name}");
        }
        assert_eq!(
            node.guest.ok("ls -d /var/lib/armlet/store/*damaged* 2>/dev/null | wc -l"),
            "0\n",
            "the store is intact"
        );
        node.guest.ok("sync");
    }
}

/// Programs whose parent has gone belong to process 1, which must not keep their remains.
fn orphans_are_reaped(node: &Node) {
    node.guest.ok("for n in $(seq 100); do sh -c 'usleep 500000 &'; done");
    node.guest.wait_until("! pidof usleep && ! grep -l '^State:.Z' /proc/[0-9]*/status", LONG);
}

/// "Process 1 starts the agent": one that dies is followed by another, later each time, and no pod notices.
fn the_agent_is_kept(node: &Node, known: &Known) {
    // A helper of the agent's is there too for a moment, and may outlive it.
    let agent = "/sys/fs/cgroup/armlet/agent/cgroup.procs";
    let script = format!(
        "now() {{ tr -d . </proc/uptime | cut -d ' ' -f 1; }}; \
         agent() {{ for p in $(cat {agent}); do tr '\\0' ' ' <\"/proc/$p/cmdline\" | grep -q '^[^ ]* agent ' && echo $p; done 2>/dev/null | head -n 1; }}; \
         old=$(agent); for n in 1 2 3 4; do kill -KILL $old; \
         begin=$(now); until new=$(agent) && [ -n \"$new\" ] && [ $new != $old ]; do usleep 10000; done; \
         old=$new; echo $(($(now) - begin)); done"
    );
    // Hundredths of a second.
    let pauses: Vec<u32> = node.guest.ok(&script).lines().map(|line| line.parse().unwrap()).collect();
    let [first, .., last] = pauses[..] else { panic!("{pauses:?}") };
    assert!(last >= 70, "{first} and {last} hundredths: {pauses:?}");
    let pods = node.wait("the pods are adopted", settled);
    for (name, _, id, restarts) in known.0.iter().filter(|(name, ..)| RUNNING.contains(name)) {
        let main = pods.main(name).unwrap();
        assert_eq!((main.id(), main.restarts()), (id.as_str(), *restarts), "{name}\n{}", node.story());
    }
    node.unbroken_lines("keep");
}

/// Asks process 1 to end the node, and waits until the machine is off.
fn goes_down(node: Node, signal: &str) {
    node.guest.ok(&format!("kill -{signal} 1"));
    node.guest.wait_off(LONG).unwrap();
}

/// What the shutdown left behind: who was asked to end could, main containers before their sidecars, who would not was
/// killed once its time was over.
fn stopped_in_order(node: &Node) {
    assert_eq!(node.note("keep"), "start\nterm\nstart\n");
    assert_eq!(node.note("order"), "main\nside\n");
    let pods = node.wait("all pods run", settled);
    let end = |name| pods.main(name).unwrap().last_end().map(|(code, reason)| (code, reason.to_owned()));
    assert_eq!(end("keep"), Some((0, "Completed".to_owned())), "{}", node.story());
    assert_eq!(end("stubborn"), Some((137, "Error".to_owned())), "{}", node.story());
    assert_eq!(end("last"), Some((0, "Completed".to_owned())), "{}", node.story());
}

/// Lets pods come and go and an image arrive, and cuts the power at some moment of that.
fn cut_while_busy(node: Node, round: usize, seed: &mut Seed) {
    for n in 0..3 {
        let name = format!("churn-{n}");
        node.guest.write_file(&format!("{NOTES}/{name}.yaml"), pod(&name, "", "", &counting(&name)).as_bytes());
    }
    node.guest.ok(&format!(
        "round={round} notes={NOTES} architecture={}\n{}",
        Arch::current().image(),
        include_str!("image.sh")
    ));
    node.guest.ok(&format!(
        "sync; (armlet import {NOTES}/image-{round}.tar; for n in 0 1 2; do mv {NOTES}/churn-$n.yaml {MANIFESTS}/; usleep 500000; \
         done; rm {MANIFESTS}/churn-0.yaml; kill -KILL $(cat /sys/fs/cgroup/armlet/agent/cgroup.procs)) >/dev/null 2>&1 & \
         usleep {}",
        seed.below(6_000_000)
    ));
    node.guest.power_cut();
}

/// "A power cut at any instant loses no acknowledged fact and leaves no half image": the image that was arriving is there
/// as a whole or not at all, and can be had again.
fn is_whole(node: &Node, round: usize) {
    node.guest.ok(&format!("rm -f {MANIFESTS}/churn-*"));
    node.wait("the pods that came and went are gone", |pods| {
        !pods.names().iter().any(|name| name.starts_with("churn"))
    });
    let script = format!(
        "cd {NOTES}; want=$(cat image-{round}.sum); name=localhost/image-{round}:1; armlet images | grep -q $name || armlet import image-{round}.tar; \
         armlet images | grep $name && [ $(find /var/lib/armlet/images -name big-{round} -exec sha256sum {{}} + | grep -c \"^$want \") = 1 ] \
         && [ $(find /var/lib/armlet/images -name big-{round} | wc -l) = 1 ]"
    );
    let output = node.guest.run(&script, Duration::from_secs(120)).unwrap();
    assert!(output.success(), "{output:?}\n{}", node.guest.ok("find /var/lib/armlet/images -maxdepth 3"));
}
