//! The command line as people run it: the real binary against a real server with a fake node behind it.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

mod node;

use node::FakeNode;
use rustix::fs::{Mode, OFlags};
use rustix::pty::OpenptFlags;
use rustix::termios::{LocalModes, Winsize, tcgetattr, tcsetwinsize};
use std::fs::File;
use std::io::{Read, Write};
use std::process::Stdio;

#[test]
fn ps_of_a_fake_node_is_a_plain_table_when_piped() {
    let node = FakeNode::start();
    let (code, out, err) = node.run(&["ps"]);
    let mut lines = out.lines();
    assert_eq!(lines.next(), Some("NAMESPACE   NAME        READY   STATUS    RESTARTS   AGE"));
    let line = lines.next().unwrap();
    assert!(line.starts_with("shop        web-edge1   1/1     Running   0          "), "{line}");
    assert_eq!((code, lines.next()), (0, None));
    assert_eq!(err, "Manifests that cannot be run: 1. `armlet inspect` says why.\n");
    let (_, out, _) = node.run(&["--color", "always", "ps"]);
    assert!(out.contains("\x1b[32mRunning\x1b[0m"), "{out}");
    let (_, out, err) = node.run(&["ps", "-n", "none"]);
    assert!(out.is_empty() && err.starts_with("No pods in namespace \"none\".\n"), "{out}{err}");
    let (_, out, _) = node.run(&["ps", "-c", "-o", "wide"]);
    assert!(out.contains("main        app    yes     Running"), "{out}");
    assert!(out.contains("setup       init   yes     Completed"), "{out}");
    let (_, out, _) = node.run(&["ps", "-o", "json"]);
    let list: serde_json::Value = serde_json::from_str(&out).unwrap();
    assert_eq!(list["items"][0]["status"]["containerStatuses"][0]["ready"], true);
    let (_, out, _) = node.run(&["ps", "-o", "yaml"]);
    assert!(out.starts_with("apiVersion: v1\nitems:\n"), "{out}");
}

#[test]
fn logs_of_a_fake_pod_are_shown() {
    let node = FakeNode::start();
    let text = "Showing container \"main\" of: main, setup\n";
    assert_eq!(node.run(&["logs", "web"]), (0, "one\ntwo\n".into(), text.into()));
    assert_eq!(node.run(&["logs", "shop/web-edge1", "-c", "main", "--tail", "1"]), (0, "two\n".into(), String::new()));
    assert_eq!(
        node.run(&["logs", "web", "-c", "main", "--timestamps", "--stream", "stdout"]),
        (0, "2026-01-01T00:00:00.000000000Z one\n".into(), String::new())
    );
    assert_eq!(
        node.run(&["logs", "-p", "web", "-c", "main"]),
        (1, String::new(), "armlet: previous terminated container \"main\" in pod \"web-edge1\" not found\n".into())
    );
    assert_eq!(
        node.run(&["logs", "weeb"]),
        (1, String::new(), "armlet: there is no pod \"weeb\"\n  did you mean shop/web-edge1?\n".into())
    );
    let (code, _, err) = node.run(&["logs", "web", "-c", "nope"]);
    assert_eq!(
        (code, err.as_str()),
        (1, "armlet: pod \"shop/web-edge1\" has no container \"nope\"\n  it has: setup, main\n")
    );
    let (code, _, err) = node.run(&["logs", "web", "--since-time", "yesterday"]);
    assert_eq!(code, 1);
    assert!(err.contains("Unable to decode query"), "{err}");
}

#[test]
fn following_a_fake_pod_stops_when_nobody_reads() {
    let node = FakeNode::start();
    let mut child = node.armlet(&["logs", "-f", "web", "-c", "main"]).stdout(Stdio::piped()).spawn().unwrap();
    let mut out = child.stdout.take().unwrap();
    let mut text = [0; 8];
    out.read_exact(&mut text).unwrap();
    assert_eq!(&text, b"one\ntwo\n");
    drop(out);
    // A program that another test is just starting may hold the pipe for a moment: one line need not be enough.
    let mut log = File::options().append(true).open(node.folder.path().join("0.log")).unwrap();
    let ended = eventually(|| {
        log.write_all(b"2026-01-01T00:00:02Z stdout F three\n").unwrap();
        child.try_wait().unwrap()
    });
    assert_eq!(ended.code(), Some(0));
}

/// Looks again and again until there is something. The test runner's patience is the only limit.
fn eventually<T>(mut look: impl FnMut() -> Option<T>) -> T {
    loop {
        if let Some(found) = look() {
            return found;
        }
        std::thread::sleep(std::time::Duration::from_millis(5));
    }
}

#[test]
fn exec_in_a_fake_pod_passes_streams_and_exit_code_on() {
    let node = FakeNode::start();
    let exec = |args: &[&str]| node.run(&[&["exec", "web", "-c", "main", "--"], args].concat());
    assert_eq!(exec(&["sh", "-c", "echo out; echo err >&2; exit 3"]), (3, "out\n".into(), "err\n".into()));
    assert_eq!(exec(&["true"]).0, 0);
    let (code, out, err) = exec(&["/nope"]);
    assert_eq!((code, out.as_str()), (127, ""));
    assert!(err.contains("\"/nope\": no such file or directory"), "{err}");
    let (code, _, err) = node.run(&["exec", "web", "-c", "setup", "--", "true"]);
    assert_eq!((code, err.as_str()), (125, "armlet: container \"setup\" in pod \"web-edge1\" is not running\n"));

    let mut child = node.armlet(&["exec", "-i", "web", "-c", "main", "--", "cat"]);
    let mut child = child.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    let mut stdin = child.stdin.take().unwrap();
    let sent: Vec<u8> = (0..2_000_000_u32).map(|n| n.to_le_bytes()[1]).collect();
    let writer = std::thread::spawn({
        let sent = sent.clone();
        move || stdin.write_all(&sent).unwrap()
    });
    let mut got = Vec::new();
    child.stdout.take().unwrap().read_to_end(&mut got).unwrap();
    writer.join().unwrap();
    assert!(got == sent, "{} bytes of {}", got.len(), sent.len());
    assert_eq!(child.wait().unwrap().code(), Some(0));
}

/// What a terminal shows, read until a text is there.
fn shown(terminal: &mut File, text: &str) -> String {
    let mut all = String::new();
    let mut block = [0; 1024];
    while !all.contains(text) {
        let len = terminal.read(&mut block).unwrap();
        all.push_str(&String::from_utf8_lossy(&block[..len]));
    }
    all
}

#[test]
fn a_terminal_on_a_fake_pod_is_raw_for_a_while_and_knows_its_size() {
    let node = FakeNode::start();
    let master = rustix::pty::openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY | OpenptFlags::CLOEXEC).unwrap();
    rustix::pty::unlockpt(&master).unwrap();
    let name = rustix::pty::ptsname(&master, Vec::new()).unwrap();
    let slave = rustix::fs::open(&name, OFlags::RDWR | OFlags::NOCTTY | OFlags::CLOEXEC, Mode::empty()).unwrap();
    let size = |columns, rows| {
        let size = Winsize { ws_row: rows, ws_col: columns, ws_xpixel: 0, ws_ypixel: 0 };
        tcsetwinsize(&slave, size).unwrap();
    };
    let is_raw = || !tcgetattr(&slave).unwrap().local_modes.contains(LocalModes::ICANON);
    let spawn = |script: &str| {
        let end = || Stdio::from(slave.try_clone().unwrap());
        let mut command = node.armlet(&["exec", "-it", "web", "-c", "main", "--", "sh", "-c", script]);
        command.stdin(end()).stdout(end()).stderr(end()).spawn().unwrap()
    };
    let mut terminal = File::from(master);
    size(100, 40);
    let mut child = spawn("echo ready; read line; echo got $line; exit 5");
    shown(&mut terminal, "ready\r\n");
    assert!(is_raw());
    size(120, 50);
    let pid = rustix::process::Pid::from_child(&child);
    rustix::process::kill_process(pid, rustix::process::Signal::WINCH).unwrap();
    eventually(|| node.has_seen("resize 120x50").then_some(()));
    terminal.write_all(b"hello\r").unwrap();
    shown(&mut terminal, "got hello\r\n");
    assert_eq!(child.wait().unwrap().code(), Some(5));
    assert!(!is_raw());
    assert_eq!(node.seen.lock().unwrap()[0], "size Some((100, 40))");

    // A signal from elsewhere: the terminal is put back, the program is killed.
    let mut child = spawn("echo again; sleep 5");
    shown(&mut terminal, "again\r\n");
    assert!(is_raw());
    rustix::process::kill_process(rustix::process::Pid::from_child(&child), rustix::process::Signal::TERM).unwrap();
    assert_eq!(child.wait().unwrap().code(), Some(143));
    assert!(!is_raw());
    eventually(|| node.has_seen("kill").then_some(()));
}

#[test]
fn images_of_a_fake_node_are_listed_and_imported() {
    let node = FakeNode::start();
    assert_eq!(node.run(&["images"]).1, "NAME   ID   ARCH    SIZE\na:1    0a   arm64   5 B\n");
    for name in ["good.tar", "bad.tar"] {
        std::fs::write(node.folder.path().join(name), "").unwrap();
    }
    let mut import = node.armlet(&["import", "./good.tar"]);
    let out = import.current_dir(node.folder.path()).output().unwrap();
    assert!(out.status.success());
    assert!(String::from_utf8(out.stderr).unwrap().ends_with("/good.tar\n"));
    assert!(String::from_utf8(out.stdout).unwrap().contains("a:1"));
    let bad = node.folder.path().join("bad.tar").display().to_string();
    let (code, _, err) = node.run(&["import", &bad]);
    assert_eq!(code, 1);
    assert!(err.ends_with("armlet: nothing was imported: bad.tar: no manifest\n"), "{err}");
    let (code, _, err) = node.run(&["import", "/nonexistent.tar"]);
    assert_eq!(code, 1);
    assert!(err.contains("import of /nonexistent.tar cannot be asked for: No such file"), "{err}");
}

#[test]
fn a_fake_node_and_its_pods_are_inspected() {
    let node = FakeNode::start();
    let (_, out, _) = node.run(&["inspect"]);
    assert!(out.contains("path: /m/bad.yaml"), "{out}");
    let (_, out, _) = node.run(&["inspect", "web", "-o", "json"]);
    let report: serde_json::Value = serde_json::from_str(&out).unwrap();
    assert_eq!(report["attempts"][0]["pid"], 4242);
    assert_eq!(report["pod"]["metadata"]["name"], "web-edge1");
    let (_, out, _) = node.run(&["events"]);
    assert!(out.contains("1970-01-01T00:00:00Z   Warning   BackOff   shop/web-edge1"), "{out}");
    let (_, out, _) = node.run(&["version"]);
    assert!(out.contains(" on node edge1, "), "{out}");
}

#[test]
fn without_an_agent_the_command_line_says_what_to_do() {
    let run = |socket: &std::path::Path, args: &[&str]| {
        let mut command = std::process::Command::new(env!("CARGO_BIN_EXE_armlet"));
        let out = command.args(args).arg("--socket").arg(socket).output().unwrap();
        (out.status.code().unwrap(), String::from_utf8(out.stderr).unwrap())
    };
    let folder = tempfile::tempdir().unwrap();
    let missing = folder.path().join("armlet.sock");
    let (code, err) = run(&missing, &["ps"]);
    assert_eq!(code, 3);
    assert!(err.contains("Is armlet running on this machine?"), "{err}");
    let dead = folder.path().join("dead.sock");
    drop(std::os::unix::net::UnixListener::bind(&dead).unwrap());
    let (code, err) = run(&dead, &["version"]);
    assert_eq!(code, 3);
    assert!(err.contains("The agent is not running."), "{err}");
    let (code, err) = run(&missing, &["pss"]);
    assert_eq!(code, 2);
    assert!(err.contains("tip: a similar subcommand exists: 'ps'"), "{err}");
}
