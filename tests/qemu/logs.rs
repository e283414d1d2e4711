//! Container logs: the files, and what `armlet logs` makes of them.

use crate::node::{PATIENCE, container, node, pod};

fn writes(script: &str) -> String {
    format!("  containers:\n{}", container("main", script))
}

/// "CRI line format with partial tags, `/var/log/pods` and `/var/log/containers` layout".
#[test]
fn lines_are_kept_in_the_cri_format() {
    let (node, _agent) = node();
    let script = "echo one; echo two >&2; head -c 40000 /dev/zero | tr '\\0' x; echo; printf unfinished; \
                  exec sleep 1000000 >/dev/null 2>&1";
    node.run_pod("format", &writes(script));
    node.wait_until("armlet logs format | grep unfinished", PATIENCE);
    let uid = node.field("format", "/metadata/uid").as_str().unwrap().to_owned();
    let name = node.field("format", "/metadata/name").as_str().unwrap().to_owned();
    let path = format!("/var/log/pods/default_{name}_{uid}/main/0.log");
    let file = node.ok(&format!("cat {path}"));
    let mut tags = Vec::new();
    for line in file.lines() {
        let fields: Vec<&str> = line.splitn(4, ' ').collect();
        let [time, stream, tag, text] = fields[..] else { panic!("{line:.60}") };
        assert!(time.len() == 30 && time.ends_with('Z') || time.contains('+'), "{time}");
        assert!(["stdout", "stderr"].contains(&stream) && ["P", "F"].contains(&tag), "{line:.60}");
        assert!(text.len() <= 16 * 1024, "{}", text.len());
        tags.push((stream, tag, text.len()));
    }
    assert_eq!(tags.iter().filter(|(stream, ..)| *stream == "stderr").collect::<Vec<_>>(), [&("stderr", "F", 3)]);
    let out: Vec<_> = tags.iter().filter(|(stream, ..)| *stream == "stdout").collect();
    let long: usize = out.iter().skip(1).take(out.len() - 2).map(|(_, _, length)| length).sum();
    assert_eq!((out[0], long, out[out.len() - 1].2), (&("stdout", "F", 3), 40000, "unfinished".len()), "{out:?}");
    assert!(out.iter().filter(|(_, tag, _)| *tag == "P").count() >= 2, "{out:?}");

    assert_eq!(node.ok("armlet logs format --stream stdout"), format!("one\n{}\nunfinished\n", "x".repeat(40000)));
    assert_eq!(node.ok("armlet logs format --stream stderr"), "two\n");
    let link = node.ok(&format!("readlink -f /var/log/containers/{name}_default_main-*.log"));
    assert_eq!(link.trim(), path);
    // The link stays as long as its log: of the attempt before the last one, and of a container that is over.
    let ends = "exec sh -c 'echo over'";
    let never = format!("  restartPolicy: OnFailure\n  containers:\n{}", container("main", ends));
    node.manifest("format-over.yaml", &pod("format-over", &never));
    node.wait_for("format-over", "Completed");
    let link = node.ok("cat /var/log/containers/format-over*_default_main-*.log");
    assert!(link.ends_with(" stdout F over\n"), "{link}");
    node.remove_pod("format-over");
    node.remove_pod("format");
    assert_eq!(node.ok("ls /var/log/containers /var/log/pods | grep -c format || true"), "0\n");
}

/// "rotation by size and count within a node-wide budget; a container that writes as fast as it can stalls nothing and
/// fills nothing": files stay small and few while another pod starts, logs, runs a program and stops beside it.
#[test]
fn a_flood_stalls_nothing_and_fills_nothing() {
    let (node, _agent) = node();
    node.run_pod(
        "flood",
        &format!(
            "  containers:\n{}{}",
            container("loud", "exec yes a line that is repeated as fast as the machine allows"),
            container("louder", "while :; do head -c 100000 /dev/zero | tr '\\0' y; done")
        ),
    );
    node.wait_until("ls /var/log/pods/*_flood-*/loud/ | grep -q 0.log.", PATIENCE);
    node.wait_until("ls /var/log/pods/*_flood-*/louder/ | grep -q 0.log.", PATIENCE);

    node.run_pod("quiet", &writes("echo heard; exec sleep 1000000"));
    node.wait_until("armlet logs quiet | grep -x heard", PATIENCE);
    assert_eq!(node.ok("armlet exec quiet -- echo served"), "served\n");
    let uid = node.field("flood", "/metadata/uid").as_str().unwrap().to_owned();
    let freeze = format!("/sys/fs/cgroup/kubepods/besteffort/pod{uid}/cgroup.freeze");
    for _ in 0..5 {
        // Held still until the logger has written what was on its way: a file that is renamed meanwhile is not found.
        node.ok(&format!("echo 1 >{freeze}"));
        let same =
            "list() { ls -l /var/log/pods/*_flood-*/*/; }; old=$(list); usleep 300000; [ \"$old\" = \"$(list)\" ]";
        node.wait_until(same, PATIENCE);
        let sizes = node.ok("for f in /var/log/pods/*_flood-*/*/*; do [ -e $f ] && stat -c '%s %n' $f; done; true");
        node.ok(&format!("echo 0 >{freeze}"));
        let sizes: Vec<(u64, &str)> = sizes
            .lines()
            .filter_map(|line| line.split_once(' '))
            .map(|(size, path)| (size.parse().unwrap(), path))
            .collect();
        for container in ["/loud/", "/louder/"] {
            let files = sizes.iter().filter(|(_, path)| path.contains(container)).count();
            assert!((1..=4).contains(&files), "{sizes:?}");
        }
        assert!(sizes.iter().all(|(size, _)| *size <= (128 + 64) << 10), "{sizes:?}");
        assert!(sizes.iter().map(|(size, _)| size).sum::<u64>() <= 2 << 20, "{sizes:?}");
    }
    // The supervisor and its logger keep nothing of it in memory either.
    let memory: u64 = node.ok("awk '/VmRSS/ { sum += $2 } END { print sum }' $(for p in $(cat /sys/fs/cgroup/armlet/supervisor/cgroup.procs /sys/fs/cgroup/armlet/logger/cgroup.procs); do echo /proc/$p/status; done)").trim().parse().unwrap();
    assert!(memory < 64 << 10, "{memory} KiB");
    node.remove_pod("quiet");
    node.remove_pod("flood");
}

/// "previous logs after a crash are complete": every line of the attempt that ended, and none of the next.
#[test]
fn the_log_of_a_crashed_attempt_is_complete() {
    let (node, _agent) = node();
    let script = "if mkdir /kept/once 2>/dev/null; then seq 1 2000; echo last words >&2; exit 42; fi; echo again; exec sleep 1000000";
    let spec = writes(script).replace("}\n", ", volumeMounts: [{name: kept, mountPath: /kept}]}\n");
    node.manifest("crash.yaml", &pod("crash", &format!("  volumes: [{{name: kept, emptyDir: {{}}}}]\n{spec}")));
    node.wait_until("armlet logs crash | grep -x again", PATIENCE);
    let expected: String = (1..=2000).map(|n| format!("{n}\n")).collect();
    assert_eq!(node.ok("armlet logs -p crash --stream stdout"), expected);
    assert_eq!(node.ok("armlet logs -p crash --stream stderr"), "last words\n");
    assert_eq!(node.ok("armlet logs crash"), "again\n");
    assert_eq!(node.field("crash", "/status/containerStatuses/0/lastState/terminated/exitCode"), 42);
    node.remove_pod("crash");
}

/// "`logs` (`-f --tail --since -p -c --timestamps`)".
#[test]
fn logs_are_chosen_by_flags() {
    let (node, _agent) = node();
    let main = "seq 1 5; until [ -e /tmp/on ]; do usleep 100000; done; seq 6 8; until [ -e /tmp/end ]; do usleep 100000; done; exit 0";
    let spec = format!(
        "  restartPolicy: Never\n  containers:\n{}{}",
        container("main", main),
        container("other", "echo from the other; exec sleep 1000000")
    );
    node.run_pod("chosen", &spec);
    node.wait_until("armlet logs chosen -c main | grep -x 5", PATIENCE);
    node.wait_until("armlet logs chosen -c other | grep -x 'from the other'", PATIENCE);
    assert_eq!(node.ok("armlet logs chosen --tail 2 2>/dev/null"), "4\n5\n");
    assert_eq!(node.ok("armlet logs chosen -c main --tail 0"), "");
    assert_eq!(node.ok("armlet logs chosen -c main --since 1h"), "1\n2\n3\n4\n5\n");
    assert_eq!(node.ok("armlet logs chosen -c main --limit-bytes 3"), "1\n2");
    let stamped = node.ok("armlet logs chosen -c main --timestamps");
    let times: Vec<&str> = stamped.lines().map(|line| line.split_once(' ').unwrap().0).collect();
    assert_eq!(times.len(), 5);
    assert!(times.windows(2).all(|pair| pair[0] <= pair[1]) && times[0].contains('T'), "{stamped}");
    let third = times[2];
    let since = node.ok(&format!("armlet logs chosen -c main --since-time {third}"));
    assert!(since.ends_with("3\n4\n5\n"), "{since}");

    // Who follows hears what comes later, and that it ends.
    std::thread::scope(|scope| {
        let follow = "armlet logs -f chosen -c main --tail 1 >/tmp/heard; code=$?; cat /tmp/heard; exit $code";
        let follower = scope.spawn(|| node.run(follow, PATIENCE).unwrap());
        node.wait_until("grep -x 5 /tmp/heard", PATIENCE);
        node.ok("armlet exec chosen -c main -- touch /tmp/on");
        node.wait_until("armlet logs chosen -c main | grep -x 8", PATIENCE);
        node.ok("armlet exec chosen -c main -- touch /tmp/end");
        let heard = follower.join().unwrap();
        assert!(heard.success() && heard.stdout == "5\n6\n7\n8\n", "{heard:?}");
    });
    // Two seconds later all of it is older than one.
    assert_eq!(node.ok("sleep 2; armlet logs chosen -c main --since 1s"), "");
    assert_eq!(node.ok("armlet logs chosen -c main --tail -1"), "1\n2\n3\n4\n5\n6\n7\n8\n");

    for (line, why) in [
        ("armlet logs chosen -c absent", "absent"),
        ("armlet logs absent", "absent"),
        ("armlet logs -p chosen -c main", "previous"),
    ] {
        let output = node.try_run(line);
        assert!(output.status == 1 && output.stderr.contains(why), "{line}: {output:?}");
    }
    node.remove_pod("chosen");
}

/// A follower goes on through rotations and loses no line. What is rotated away before it was read is lost by design, so
/// the writer waits after each part of what the files hold until it was heard.
#[test]
fn a_follower_hears_every_line_through_rotations() {
    let (node, _agent) = node();
    let script = "echo begin; n=0; for part in 1 2 3 4 5; do until [ -e /tmp/part$part ]; do usleep 100000; done; \
                  end=$((n + 20)); while [ $n -lt $end ]; do n=$((n+1)); \
                  head -c 5000 /dev/zero | tr '\\0' \"$((n % 10))\"; echo \" $n\"; done; done; echo done";
    node.manifest("turns.yaml", &pod("turns", &format!("  restartPolicy: Never\n{}", writes(script))));
    node.wait_for("turns", "Running");
    std::thread::scope(|scope| {
        let follow = "armlet logs -f turns >/tmp/turns; sed 's/.* //' /tmp/turns";
        let follower = scope.spawn(|| node.run(follow, PATIENCE).unwrap());
        node.wait_until("grep -x begin /tmp/turns", PATIENCE);
        for part in 1..=5 {
            node.ok(&format!("armlet exec turns -- touch /tmp/part{part}"));
            node.wait_until(&format!("grep -q ' {}$' /tmp/turns", part * 20), PATIENCE);
        }
        let heard = follower.join().unwrap();
        let lines = (1..=100).map(|n| format!("{n}\n"));
        let expected: String =
            std::iter::once("begin\n".to_owned()).chain(lines).chain(["done\n".to_owned()]).collect();
        assert_eq!(heard.stdout, expected);
    });
    assert!(
        node.ok("ls /var/log/pods/*_turns-*/main | wc -l").trim().parse::<u32>().unwrap() > 1,
        "it was not rotated"
    );
    node.remove_pod("turns");
}
