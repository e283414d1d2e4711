//! The command line as people run it: the real binary against a real server with a fake node behind it.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

mod bundle;
mod node;

use node::FakeNode;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::{Mode, OFlags};
use rustix::process::Signal;
use rustix::pty::OpenptFlags;
use rustix::termios::{LocalModes, Winsize, tcgetattr, tcsetwinsize};
use std::fs::File;
use std::io::{BufRead, Read, Write};
use std::os::fd::OwnedFd;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Stdio};
use std::time::Duration;
use tokio_tungstenite::tungstenite::handshake::derive_accept_key;

#[test]
fn ps_of_a_fake_node_is_a_plain_table_when_piped() {
    let node = FakeNode::start();
    let (code, out, err) = node.run(&["ps"]);
    let mut lines = out.lines();
    assert_eq!(lines.next(), Some("NAMESPACE   NAME        READY   STATUS    RESTARTS   AGE"));
    let line = lines.next().unwrap();
    assert!(line.starts_with("shop        web-edge1   1/1     Running   0          "), "{line}");
    assert_eq!((code, lines.next()), (0, None));
    assert_eq!(
        err,
        "Stopped: shop/old-edge1. `armlet restart shop/old-edge1` starts it.\n\
         Manifests that cannot be run: 1. `armlet inspect` says why.\n"
    );
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
    for all in ["-1", "99999999999999999999"] {
        assert_eq!(node.run(&["logs", "web", "-c", "main", "--tail", all]), (0, "one\ntwo\n".into(), String::new()));
    }
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
    assert_eq!(code, 2);
    assert!(err.contains("RFC 3339"), "{err}");
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

/// How long anything may take before a test gives up.
const PATIENCE: Duration = Duration::from_secs(30);

/// Looks again and again until there is something.
#[track_caller]
fn eventually<T>(mut look: impl FnMut() -> Option<T>) -> T {
    let pause = Duration::from_millis(5);
    for _ in 0..PATIENCE.as_millis() / pause.as_millis() {
        if let Some(found) = look() {
            return found;
        }
        std::thread::sleep(pause);
    }
    panic!("not within {PATIENCE:?}");
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
    assert_eq!(ended(&mut child), Some(0));
}

/// The exit code of a program that ends.
#[track_caller]
fn ended(child: &mut Child) -> Option<i32> {
    eventually(|| child.try_wait().unwrap()).code()
}

/// What a terminal shows, read until a text is there.
#[track_caller]
fn shown(terminal: &mut File, text: &str) -> String {
    let mut all = String::new();
    let mut block = [0; 1024];
    while !all.contains(text) {
        let limit = Timespec { tv_sec: PATIENCE.as_secs().try_into().unwrap(), tv_nsec: 0 };
        let ready = poll(&mut [PollFd::new(terminal, PollFlags::IN)], Some(&limit)).unwrap();
        assert!(ready > 0, "{text:?} is not shown: {all:?}");
        let len = terminal.read(&mut block).unwrap();
        all.push_str(&String::from_utf8_lossy(&block[..len]));
    }
    all
}

/// A terminal: the side that a person sits at, and the side of programs.
fn open_terminal() -> (File, OwnedFd) {
    let master = rustix::pty::openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY | OpenptFlags::CLOEXEC).unwrap();
    rustix::pty::unlockpt(&master).unwrap();
    let name = rustix::pty::ptsname(&master, Vec::new()).unwrap();
    let slave = rustix::fs::open(&name, OFlags::RDWR | OFlags::NOCTTY | OFlags::CLOEXEC, Mode::empty()).unwrap();
    (File::from(master), slave)
}

#[test]
fn a_table_of_a_fake_node_is_coloured_where_people_want_it() {
    let node = FakeNode::start();
    let (mut terminal, slave) = open_terminal();
    let mut ps = |set: &[(&str, &str)]| {
        let mut command = node.armlet(&["ps"]);
        command.env("TERM", "xterm").envs(set.iter().copied());
        command.stdout(slave.try_clone().unwrap()).stderr(Stdio::null());
        assert!(command.status().unwrap().success());
        // The terminal keeps what was written until it is read.
        rustix::io::write(&slave, b"end of it").unwrap();
        shown(&mut terminal, "end of it")
    };
    let coloured = ps(&[]);
    assert!(coloured.contains("\x1b[32mRunning\x1b[0m"), "{coloured:?}");
    for plain in [("NO_COLOR", "1"), ("TERM", "dumb"), ("TERM", "")] {
        let table = ps(&[plain]);
        assert!(!table.contains('\x1b'), "{plain:?}: {table:?}");
        assert!(table.contains("\r\nshop        web-edge1   1/1     Running   0          "), "{table:?}");
    }
    // Empty is as good as not set.
    assert!(ps(&[("NO_COLOR", "")]).contains('\x1b'));
}

/// An agent made by hand: it answers `/pods` with a pod of the fake node's and turns the next request into a WebSocket,
/// which it gives to `session`.
fn agent_by_hand(folder: &Path, session: impl FnOnce(UnixStream) + Send + 'static) -> PathBuf {
    let socket = folder.join("by-hand.sock");
    let listener = UnixListener::bind(&socket).unwrap();
    std::thread::spawn(move || {
        let (mut stream, _) = listener.accept().unwrap();
        let head = |stream: &mut UnixStream| {
            let mut head = Vec::new();
            while !head.ends_with(b"\r\n\r\n") {
                let mut byte = [0];
                stream.read_exact(&mut byte).unwrap();
                head.extend(byte);
            }
            String::from_utf8(head).unwrap()
        };
        assert!(head(&mut stream).starts_with("GET /pods "));
        let pods = serde_json::json!({"items": [{"metadata": {"name": "web", "namespace": "default"},
            "spec": {"containers": [{"name": "main"}]}}]});
        let pods = pods.to_string();
        write!(stream, "HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n{pods}", pods.len()).unwrap();
        let request = head(&mut stream);
        let key = request.lines().find(|line| line.to_lowercase().starts_with("sec-websocket-key:"));
        let key = key.unwrap().split_once(':').unwrap().1.trim();
        let accept = derive_accept_key(key.as_bytes());
        // Nothing that is sent from now on arrives.
        stream.shutdown(std::net::Shutdown::Read).unwrap();
        write!(
            stream,
            "HTTP/1.1 101 Switching Protocols\r\nConnection: upgrade\r\nUpgrade: websocket\r\n\
             Sec-WebSocket-Accept: {accept}\r\nSec-WebSocket-Protocol: v5.channel.k8s.io\r\n\r\n"
        )
        .unwrap();
        session(stream);
    });
    socket
}

/// A server's frame.
fn frame(content: &[u8]) -> Vec<u8> {
    [&[0x82, u8::try_from(content.len()).unwrap()], content].concat()
}

#[test]
fn an_exec_that_can_send_nothing_more_hears_the_program_out() {
    let folder = tempfile::tempdir().unwrap();
    let (go, told) = std::sync::mpsc::channel::<()>();
    let socket = agent_by_hand(folder.path(), move |mut stream| {
        for _ in 0..50 {
            stream.write_all(&frame(b"\x01line\n")).unwrap();
            told.recv().unwrap();
        }
        let status = b"\x03{\"status\":\"Failure\",\"reason\":\"NonZeroExitCode\",\
            \"details\":{\"causes\":[{\"reason\":\"ExitCode\",\"message\":\"7\"}]}}";
        stream.write_all(&frame(status)).unwrap();
        // The client leaves first.
        let _ = stream.read(&mut [0]);
        let _ = told.recv();
    });
    let mut child = std::process::Command::new(env!("CARGO_BIN_EXE_armlet"))
        .args(["exec", "-i", "web", "--", "true"])
        .env("ARMLET_SOCKET", socket)
        .stdin(File::open("/dev/zero").unwrap())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut out = child.stdout.take().unwrap();
    for _ in 0..50 {
        let mut line = [0; 5];
        out.read_exact(&mut line).unwrap();
        assert_eq!(&line, b"line\n");
        go.send(()).unwrap();
    }
    assert_eq!(ended(&mut child), Some(7));
    drop(go);
}

#[test]
fn a_program_of_a_fake_pod_that_reads_nothing_goes_with_its_client() {
    let node = FakeNode::start();
    let mut command = node.armlet(&["exec", "-i", "web", "-c", "main", "--", "sleep", "25"]);
    let mut child = command.stdin(File::open("/dev/zero").unwrap()).spawn().unwrap();
    let read = |pid: u32| {
        let text = std::fs::read_to_string(format!("/proc/{pid}/io")).unwrap();
        text.lines().find_map(|line| line.strip_prefix("rchar: ")?.parse::<u64>().ok()).unwrap()
    };
    // Until all that is on the way is full: it reads no more.
    let mut before = 0;
    eventually(|| {
        std::thread::sleep(Duration::from_millis(200));
        let now = read(child.id());
        (now > 200_000 && std::mem::replace(&mut before, now) == now).then_some(())
    });
    assert!(!node.has_seen("kill"));
    child.kill().unwrap();
    child.wait().unwrap();
    eventually(|| node.has_seen("kill").then_some(()));
}

#[test]
fn an_agent_that_does_not_answer_is_waited_for_with_a_word() {
    let folder = tempfile::tempdir().unwrap();
    let socket = folder.path().join("silent.sock");
    let _silent = UnixListener::bind(&socket).unwrap();
    let mut child = std::process::Command::new(env!("CARGO_BIN_EXE_armlet"))
        .arg("ps")
        .env("ARMLET_SOCKET", &socket)
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut word = String::new();
    std::io::BufReader::new(child.stderr.take().unwrap()).read_line(&mut word).unwrap();
    assert_eq!(word, "waiting for the agent: it is busy or stopped\n");
    assert_eq!(child.try_wait().unwrap(), None, "it goes on waiting");
    child.kill().unwrap();
    child.wait().unwrap();
}

#[test]
fn a_terminal_on_a_fake_pod_is_raw_for_a_while_and_knows_its_size() {
    let node = FakeNode::start();
    let (mut terminal, slave) = open_terminal();
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
    size(100, 40);
    let mut child = spawn("echo ready; read line; echo got $line; exit 5");
    shown(&mut terminal, "ready\r\n");
    assert!(is_raw());
    size(120, 50);
    let pid = rustix::process::Pid::from_child(&child);
    rustix::process::kill_process(pid, Signal::WINCH).unwrap();
    eventually(|| node.has_seen("resize 120x50").then_some(()));
    terminal.write_all(b"hello\r").unwrap();
    shown(&mut terminal, "got hello\r\n");
    assert_eq!(ended(&mut child), Some(5));
    assert!(!is_raw());
    assert_eq!(node.seen.lock().unwrap()[0], "size Some((100, 40))");

    // A signal from elsewhere: the terminal is put back, the program is killed.
    for (signal, code) in [(Signal::HUP, 129), (Signal::INT, 130), (Signal::QUIT, 131), (Signal::TERM, 143)] {
        node.seen.lock().unwrap().clear();
        let mut child = spawn("echo again; sleep 5");
        shown(&mut terminal, "again\r\n");
        assert!(is_raw());
        rustix::process::kill_process(rustix::process::Pid::from_child(&child), signal).unwrap();
        assert_eq!(ended(&mut child), Some(code));
        assert!(!is_raw());
        eventually(|| node.has_seen("kill").then_some(()));
    }
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
    assert!(err.contains("import /nonexistent.tar: No such file"), "{err}");
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

/// What the agent would read, and which file each value came from.
#[test]
fn the_configuration_is_shown_and_checked_without_an_agent() {
    let folder = tempfile::tempdir().unwrap();
    let at = |name: &str| folder.path().join(name).display().to_string();
    let head = "apiVersion: kubelet.config.k8s.io/v1beta1\nkind: KubeletConfiguration\n";
    std::fs::create_dir(at("d")).unwrap();
    std::fs::write(at("c.yaml"), format!("{head}maxPods: 20\ncgroupDriver: systemd\nclusterDomain: a\n")).unwrap();
    std::fs::write(at("d/10.conf"), format!("{head}maxPods: 30\n")).unwrap();
    let run = |line: &[&str]| {
        let mut command = std::process::Command::new(env!("CARGO_BIN_EXE_armlet"));
        let out = command.args(line).args(["--config", &at("c.yaml"), "--config-dir", &at("d")]).output().unwrap();
        let text = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).unwrap();
        (out.status.code().unwrap(), text(&out.stdout), text(&out.stderr))
    };
    let (code, out, err) = run(&["config", "show", "-o", "json", "--kubeconfig", "/k", "--cluster-domain=b"]);
    assert_eq!((code, err.lines().count()), (0, 2), "{err}");
    let shown: Vec<serde_json::Value> = serde_json::from_str(&out).unwrap();
    let from = |name: &str| shown.iter().find(|setting| setting["name"] == name).unwrap()["from"].clone();
    assert_eq!(from("maxPods"), format!("{}:3", at("d/10.conf")));
    assert_eq!(from("clusterDomain"), "--cluster-domain");
    assert_eq!(from("socketPath"), "default");

    let warning = format!("{}:4: warning: cgroupDriver: \"systemd\" is not supported", at("c.yaml"));
    let (code, out, err) = run(&["config", "check"]);
    assert!(code == 0 && out.starts_with(&warning) && out.ends_with("The agent would start with it.\n"), "{out}{err}");
    let (code, out, _) = run(&["config", "check", "--max-pods", "-1"]);
    assert!(code == 1 && out.ends_with("The agent would not start with it.\n"), "{out}");
    let (code, _, err) = run(&["config", "check", "--max-podz", "1"]);
    assert!(code == 2 && err.contains("a similar argument exists: '--max-pods'"), "{err}");
}

#[test]
fn pods_of_a_fake_node_are_stopped_and_started_anew() {
    let node = FakeNode::start();
    let said = "shop/web-edge1 is stopped; `armlet restart shop/web-edge1` starts it\n";
    assert_eq!(node.run(&["stop", "web"]), (0, said.into(), String::new()));
    assert_eq!(node.run(&["restart", "shop/web"]), (0, "shop/web-edge1 starts anew\n".into(), String::new()));
    // Stopped before: it is not among the pods any more.
    assert_eq!(node.run(&["restart", "old"]), (0, "shop/old-edge1 starts anew\n".into(), String::new()));
    let (code, _, err) = node.run(&["stop", "none"]);
    assert_eq!(code, 1, "{err}");
    let asked = ["Stop shop/web-edge1", "Restart shop/web-edge1", "Restart shop/old-edge1"];
    assert_eq!(*node.seen.lock().unwrap(), asked);
    let (_, _, err) = node.run(&["ps"]);
    assert!(err.contains("Stopped: shop/old-edge1."), "{err}");
}

#[test]
fn images_of_a_fake_node_are_removed() {
    let node = FakeNode::start();
    let (code, out, err) = node.run(&["rmi", "a:1", "needed", "b:1"]);
    assert_eq!((code, out.as_str()), (1, "removed a:1\nremoved b:1\n"));
    assert!(err.ends_with("armlet: image \"needed\" is needed by pod shop/web\n"), "{err}");
    let (code, out, _) = node.run(&["rmi", "--unused", "-o", "json"]);
    assert_eq!(code, 0);
    assert_eq!(serde_json::from_str::<serde_json::Value>(&out).unwrap()["bytes"], 5);
}

#[test]
fn a_fake_node_tells_what_is_used_and_written() {
    let node = FakeNode::start();
    let (code, out, _) = node.run(&["stats"]);
    assert_eq!(code, 0);
    assert!(out.contains("agent     9     1 KiB") && out.contains("store              4.09 kB"), "{out}");
    let (code, out, _) = node.run(&["top", "-c", "-o", "json"]);
    assert_eq!(code, 0);
    let rows: serde_json::Value = serde_json::from_str(&out).unwrap();
    assert_eq!((&rows[0]["container"], &rows[0]["memoryBytes"]), (&"main".into(), &4096.into()), "{rows}");
}

#[test]
fn shells_and_man_are_served_without_an_agent() {
    let folder = tempfile::tempdir().unwrap();
    let run = |args: &[&str]| {
        let out = std::process::Command::new(env!("CARGO_BIN_EXE_armlet")).args(args).output().unwrap();
        (out.status.code().unwrap(), String::from_utf8(out.stdout).unwrap(), String::from_utf8(out.stderr).unwrap())
    };
    for (shell, word) in [("bash", "complete -F"), ("zsh", "#compdef armlet"), ("fish", "complete -c armlet")] {
        let (code, script, _) = run(&["completions", shell]);
        assert!(code == 0 && script.contains(word) && script.contains("since-time"), "{shell}");
        // A shell that is on this machine must be able to read it.
        let path = folder.path().join(shell);
        std::fs::write(&path, script).unwrap();
        if let Ok(status) = std::process::Command::new(shell).arg("-n").arg(&path).status() {
            assert!(status.success(), "{shell}");
        }
    }
    let pages = folder.path().join("man1");
    assert_eq!(run(&["man", "--dir", pages.to_str().unwrap()]).0, 0);
    for name in ["armlet", "armlet-logs", "armlet-config-show"] {
        let page = std::fs::read_to_string(pages.join(format!("{name}.1"))).unwrap();
        assert!(page.contains(".SH NAME") && page.contains(".SH OPTIONS"), "{name}");
    }
    let (code, _, err) = run(&["man", "nope"]);
    assert_eq!(code, 1);
    assert!(err.starts_with("armlet: there is no page armlet-nope\n"), "{err}");
    let (code, page, _) = run(&["man", "exec"]);
    assert!(code == 0 && page.contains("Exit codes"), "{page}");
}

#[test]
fn without_an_agent_the_command_line_says_what_to_do() {
    let run = |socket: &Path, args: &[&str]| {
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
    drop(UnixListener::bind(&dead).unwrap());
    let (code, err) = run(&dead, &["version"]);
    assert_eq!(code, 3);
    assert!(err.contains("The agent is not running."), "{err}");
    let mut version = std::process::Command::new(env!("CARGO_BIN_EXE_armlet"));
    let out = version.args(["version", "-o", "json", "--socket"]).arg(&missing).output().unwrap();
    assert_eq!(out.status.code(), Some(3));
    let shown: serde_json::Value = serde_json::from_slice(&out.stdout).unwrap();
    assert_eq!(shown, serde_json::json!({"client": env!("CARGO_PKG_VERSION"), "agent": null}));
    let (code, err) = run(&missing, &["pss"]);
    assert_eq!(code, 2);
    assert!(err.contains("tip: a similar subcommand exists: 'ps'"), "{err}");
}

#[test]
fn the_log_of_a_fake_node_is_shown_in_the_order_of_its_times() {
    let node = FakeNode::start();
    let (code, out, err) = node.run(&["logs", "--node"]);
    assert_eq!((code, err.as_str()), (0, ""));
    let roles: Vec<&str> = out.lines().map(|line| line.split(' ').nth(2).unwrap()).collect();
    assert_eq!(roles, ["supervisor:", "agent:"]);
    let (_, last, _) = node.run(&["logs", "--node", "--tail", "1"]);
    assert_eq!(last, out.lines().last().unwrap().to_owned() + "\n");
    // It ends with the agent.
    assert_eq!(node.run(&["logs", "--node", "-f", "--tail", "0"]), (0, String::new(), String::new()));
    let socket = node.socket().display().to_string();
    let curl = |path: &str| {
        let url = format!("http://node{path}");
        let out =
            std::process::Command::new("curl").args(["-q", "-s", "--unix-socket", &socket, &url]).output().unwrap();
        String::from_utf8(out.stdout).unwrap()
    };
    assert!(curl("/armlet/v1/log?previous=true").starts_with("only follow, tailLines"));
    assert!(curl("/armlet/v1/log?tailLines=-1").contains("Invalid request"));
}

#[test]
fn the_log_level_of_a_fake_node_is_shown_and_changed() {
    let node = FakeNode::start();
    assert_eq!(node.run(&["log-level"]), (0, "agent       info\nsupervisor  info\n".into(), String::new()));
    let changed = "agent       debug\nsupervisor  debug\n";
    assert_eq!(node.run(&["log-level", "4"]), (0, changed.into(), "It holds until they end.\n".into()));
    let (_, json, _) = node.run(&["log-level", "trace", "-o", "json"]);
    assert_eq!(serde_json::from_str::<serde_json::Value>(&json).unwrap()["agent"], "trace");
    assert_eq!(node.run(&["log-level", "loud"]).0, 2);
}
