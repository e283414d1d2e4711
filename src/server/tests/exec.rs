//! `/exec` with real programs behind a fake agent, byte for byte as clients see it.

use super::fake::{self, FakeNode, in_time};
use crate::model::supervise::{ExecExit, ExecSpec};
use crate::server::{Command, ExecSession};
use rustix::fs::{Mode, OFlags};
use rustix::pty::OpenptFlags;
use std::os::fd::OwnedFd;
use std::process::Stdio;
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::UnixStream;
use tokio::sync::oneshot;

fn start() -> FakeNode {
    let mut pod = fake::pod();
    pod.status.containers = vec![fake::running("main", "0a")];
    FakeNode::start(fake::view(vec![pod]))
}

/// What the API server sends for `kubectl exec`.
fn head(query: &str, protocol: &str) -> String {
    format!(
        "GET /exec/shop/web-edge1/main?{query} HTTP/1.1\r\nHost: 127.0.0.1:16443\r\nConnection: Upgrade\r\n\
         Sec-Websocket-Key: 3tlha4/NR15ywHvc/KgRWg==\r\nSec-Websocket-Protocol: {protocol}\r\n\
         Sec-Websocket-Version: 13\r\nUpgrade: websocket\r\n\r\n"
    )
}

/// Asks, and reads the answer's head.
async fn ask(node: &FakeNode, query: &str, protocol: &str) -> (UnixStream, String) {
    let mut stream = node.connect().await;
    stream.write_all(head(query, protocol).as_bytes()).await.unwrap();
    let mut answer = Vec::new();
    while !answer.ends_with(b"\r\n\r\n") {
        answer.push(in_time(stream.read_u8()).await.unwrap());
    }
    (stream, String::from_utf8(answer).unwrap())
}

/// A client's frame, masked as the protocol wants it.
fn frame(opcode: u8, content: &[u8]) -> Vec<u8> {
    let mask = [0x7b, 0xb2, 0x40, 0x36];
    let mut bytes = vec![0x80 | opcode];
    match u8::try_from(content.len()) {
        Ok(len @ 0..126) => bytes.push(0x80 | len),
        _ => {
            bytes.push(0x80 | 127);
            bytes.extend((content.len() as u64).to_be_bytes());
        }
    }
    bytes.extend(mask);
    bytes.extend(content.iter().zip(mask.iter().cycle()).map(|(b, m)| b ^ m));
    bytes
}

/// Reads one frame of the server: opcode and content.
async fn read(stream: &mut UnixStream) -> (u8, Vec<u8>) {
    in_time(read_frame(stream)).await
}

async fn read_frame(stream: &mut UnixStream) -> (u8, Vec<u8>) {
    let first = stream.read_u8().await.unwrap();
    assert_eq!(first & 0x80, 0x80, "one frame is one message");
    let len = match stream.read_u8().await.unwrap() {
        126 => u64::from(stream.read_u16().await.unwrap()),
        127 => stream.read_u64().await.unwrap(),
        len => u64::from(len),
    };
    let mut content = vec![0; usize::try_from(len).unwrap()];
    stream.read_exact(&mut content).await.unwrap();
    (first & 0x0f, content)
}

/// Reads to the end of a session: standard output, standard error, the status.
async fn collect(stream: &mut UnixStream) -> (Vec<u8>, Vec<u8>, String) {
    let (mut stdout, mut stderr) = (Vec::new(), Vec::new());
    let mut status = String::new();
    loop {
        let (opcode, content) = read(stream).await;
        match (opcode, content.first()) {
            (2, Some(1)) => stdout.extend_from_slice(&content[1..]),
            (2, Some(2)) => stderr.extend_from_slice(&content[1..]),
            (2, Some(3)) => status = String::from_utf8(content[1..].to_vec()).unwrap(),
            (8, _) => {
                assert_eq!(content, 1000_u16.to_be_bytes());
                stream.write_all(&frame(8, &content)).await.unwrap();
                assert_eq!(stream.read(&mut [0]).await.unwrap(), 0, "the connection ends after the goodbye");
                return (stdout, stderr, status);
            }
            other => panic!("{other:?}"),
        }
    }
}

const SUCCESS: &str = "{\"metadata\":{},\"status\":\"Success\"}";

/// Takes the command for a new session and runs the program on this machine.
async fn run(node: &mut FakeNode) -> ExecSpec {
    let Command::Exec { spec, reply } = in_time(node.commands.recv()).await.unwrap() else { panic!() };
    let mut program = std::process::Command::new(&spec.command[0]);
    program.args(&spec.command[1..]).stdout(Stdio::piped()).stderr(Stdio::piped());
    program.stdin(if spec.stdin { Stdio::piped() } else { Stdio::null() });
    let mut child = program.spawn().unwrap();
    let mut fds: Vec<OwnedFd> = child.stdin.take().map(OwnedFd::from).into_iter().collect();
    fds.push(child.stdout.take().unwrap().into());
    fds.push(child.stderr.take().unwrap().into());
    let (ended, exit) = oneshot::channel();
    std::thread::spawn(move || {
        let code = child.wait().unwrap().code().unwrap_or(137);
        let _ = ended.send(ExecExit::Exited { code });
    });
    assert!(reply.send(Ok(ExecSession { session: 42, fds, exit })).is_ok());
    spec
}

#[tokio::test]
async fn an_exit_code_comes_from_a_fake_agent_as_recorded_of_a_kubelet() {
    let mut node = start();
    let query = "command=sh&command=-c&command=echo+out%3B+sleep+0.2%3B+echo+err+%3E%262%3B+exit+3&error=1&output=1";
    let (mut stream, head) = ask(&node, query, "v5.channel.k8s.io").await;
    assert!(head.starts_with("HTTP/1.1 101 Switching Protocols\r\n"), "{head}");
    for line in [
        "upgrade: websocket\r\n",
        "connection: upgrade\r\n",
        "sec-websocket-accept: ozgqpkxwgopxvyosftssoobcyra=\r\n",
        "sec-websocket-protocol: v5.channel.k8s.io\r\n",
    ] {
        assert!(head.to_lowercase().contains(line), "{head}");
    }
    let spec = run(&mut node).await;
    assert_eq!(spec.command, ["sh", "-c", "echo out; sleep 0.2; echo err >&2; exit 3"]);
    assert_eq!((spec.id.as_str(), spec.tty, spec.stdin, spec.size), ("0a", false, false, None));
    let recorded = b"\x82\x01\x01\x82\x05\x01out\n\x82\x05\x02err\n\x82\x7e\x00\xd5\x03{\"metadata\":{},\"status\":\"Failure\",\
        \"message\":\"command terminated with non-zero exit code: command terminated with exit code 3\",\
        \"reason\":\"NonZeroExitCode\",\"details\":{\"causes\":[{\"reason\":\"ExitCode\",\"message\":\"3\"}]}}\x88\x02\x03\xe8";
    let mut bytes = vec![0; recorded.len()];
    stream.read_exact(&mut bytes).await.unwrap();
    assert_eq!(bytes.escape_ascii().to_string(), recorded.escape_ascii().to_string());
    stream.write_all(&frame(8, &1000_u16.to_be_bytes())).await.unwrap();
    assert_eq!(stream.read(&mut [0]).await.unwrap(), 0);
}

#[tokio::test]
async fn standard_input_of_a_fake_session_can_be_ended_alone() {
    let mut node = start();
    let (mut stream, _) = ask(&node, "command=cat&input=1&output=1", "v9.channel.k8s.io, v5.channel.k8s.io").await;
    assert!(run(&mut node).await.stdin);
    // A ping in between is answered, an unknown channel and a text are not.
    for message in
        [frame(2, b"\x00hello\n"), frame(9, b""), frame(2, b"\x09x"), frame(1, b"\x00x"), frame(2, b"\xff\x00")]
    {
        stream.write_all(&message).await.unwrap();
    }
    let mut frames = Vec::new();
    while frames.len() < 4 {
        frames.push(read(&mut stream).await);
    }
    frames.sort();
    let want: [(u8, &[u8]); 4] =
        [(2, b"\x01"), (2, b"\x01hello\n"), (2, b"\x03{\"metadata\":{},\"status\":\"Success\"}"), (10, b"")];
    assert_eq!(frames, want.map(|(opcode, content)| (opcode, content.to_vec())));
}

#[tokio::test]
async fn a_fake_session_of_version_4_ends_with_its_status() {
    let mut node = start();
    let (mut stream, head) = ask(&node, "command=echo&command=hi&output=1", "v4.channel.k8s.io").await;
    assert!(head.contains("v4.channel.k8s.io"), "{head}");
    run(&mut node).await;
    let (stdout, stderr, status) = collect(&mut stream).await;
    assert_eq!((stdout.as_slice(), stderr.as_slice(), status.as_str()), (&b"hi\n"[..], &b""[..], SUCCESS));
}

#[tokio::test]
async fn much_goes_through_a_fake_session_both_ways() {
    let mut node = start();
    let (mut stream, _) = ask(&node, "command=cat&input=1&output=1", "v5.channel.k8s.io").await;
    run(&mut node).await;
    let block: Vec<u8> = std::iter::once(0).chain((0..50_000_u32).map(|n| n.to_le_bytes()[0])).collect();
    let (mut from, mut to) = stream.split();
    let send = async {
        for _ in 0..200 {
            to.write_all(&frame(2, &block)).await.unwrap();
        }
        to.write_all(&frame(2, b"\xff\x00")).await.unwrap();
    };
    let receive = async {
        let mut got = 0;
        let mut head = [0; 2];
        loop {
            from.read_exact(&mut head).await.unwrap();
            let len = match head[1] {
                126 => usize::from(from.read_u16().await.unwrap()),
                len => usize::from(len),
            };
            let mut content = vec![0; len];
            from.read_exact(&mut content).await.unwrap();
            match content[0] {
                1 => got += len - 1,
                3 => return got,
                other => panic!("{other}"),
            }
        }
    };
    let ((), got) = in_time(async { tokio::join!(send, receive) }).await;
    assert_eq!(got, 200 * 50_000);
}

#[tokio::test]
async fn a_slow_client_slows_a_fake_program_down() {
    let mut node = start();
    let (mut stream, _) = ask(&node, "command=yes&output=1", "v5.channel.k8s.io").await;
    let Command::Exec { reply, .. } = in_time(node.commands.recv()).await.unwrap() else { panic!() };
    let (output, stdout) = rustix::pipe::pipe_with(rustix::pipe::PipeFlags::NONBLOCK).unwrap();
    let (ended, exit) = oneshot::channel();
    let (errors, _silent) = rustix::pipe::pipe().unwrap();
    assert!(reply.send(Ok(ExecSession { session: 42, fds: vec![output, errors], exit })).is_ok());
    // Nobody reads: the pipe, one block and the socket's buffers take what they hold, and then no more is taken.
    let mut stdout = tokio::net::unix::pipe::Sender::from_owned_fd(stdout).unwrap();
    let block = [b'y'; 4096];
    let mut taken = 0;
    while let Ok(written) = tokio::time::timeout(Duration::from_secs(1), stdout.write(&block)).await {
        taken += written.unwrap();
        assert!(taken < 2_000_000, "{taken} bytes for a client that reads nothing");
    }
    // All of it is there in the end.
    drop(stdout);
    ended.send(ExecExit::Exited { code: 0 }).unwrap();
    let (stdout, _, status) = collect(&mut stream).await;
    assert_eq!((stdout.len(), status.as_str()), (taken, SUCCESS));
}

#[tokio::test]
async fn a_program_of_a_fake_session_that_reads_nothing_does_not_hold_it_up() {
    let mut node = start();
    for command in ["command=true", "command=sleep&command=0.3"] {
        let (mut stream, _) = ask(&node, &format!("{command}&input=1&output=1"), "v5.channel.k8s.io").await;
        run(&mut node).await;
        // 1 MiB, more than its pipe and the sockets hold.
        for _ in 0..16 {
            in_time(stream.write_all(&frame(2, &[0; 65_536]))).await.unwrap();
        }
        let (_, _, status) = collect(&mut stream).await;
        assert_eq!(status, SUCCESS, "{command}");
    }
}

#[tokio::test]
async fn a_client_of_a_fake_session_is_heard_while_the_program_reads_nothing() {
    let mut node = start();
    let (mut stream, _) = ask(&node, "command=sleep&command=20&input=1&output=1", "v5.channel.k8s.io").await;
    run(&mut node).await;
    assert_eq!(read(&mut stream).await, (2, b"\x01".to_vec()));
    // More than the pipe holds, then a sign of life and a new size of the window.
    let message = [&[0], &[b'x'; 100_000][..]].concat();
    for bytes in [frame(2, &message), frame(9, b"alive"), frame(2, b"\x04{\"Width\":120,\"Height\":50}")] {
        stream.write_all(&bytes).await.unwrap();
    }
    let resize = in_time(node.commands.recv()).await;
    assert!(matches!(resize, Some(Command::ResizeExec { session: 42, width: 120, height: 50 })), "{resize:?}");
    assert_eq!(in_time(read(&mut stream)).await, (10, b"alive".to_vec()));
    stream.write_all(&frame(8, &1000_u16.to_be_bytes())).await.unwrap();
    let end = in_time(node.commands.recv()).await;
    assert!(matches!(end, Some(Command::KillExec { session: 42 })), "{end:?}");
}

#[tokio::test]
async fn the_program_of_a_client_that_is_gone_is_killed_by_the_fake_agent_though_it_reads_nothing() {
    let mut node = start();
    let (mut stream, _) = ask(&node, "command=sleep&command=20&input=1&output=1", "v5.channel.k8s.io").await;
    run(&mut node).await;
    let message = frame(2, &[&[0], &[b'x'; 100_000][..]].concat());
    // Until nothing is taken any more.
    while tokio::time::timeout(Duration::from_millis(500), stream.write_all(&message)).await.is_ok() {}
    drop(stream);
    let end = in_time(node.commands.recv()).await;
    assert!(matches!(end, Some(Command::KillExec { session: 42 })), "{end:?}");
}

#[tokio::test]
async fn a_grandchild_that_holds_the_output_does_not_hold_a_fake_session_up() {
    let mut node = start();
    let query = "command=sh&command=-c&command=echo+out%3B+sleep+3+%26+exit+0&output=1";
    let (mut stream, _) = ask(&node, query, "v5.channel.k8s.io").await;
    run(&mut node).await;
    let ended = tokio::time::timeout(Duration::from_secs(2), collect(&mut stream)).await;
    let (stdout, _, status) = ended.unwrap();
    assert_eq!((stdout.as_slice(), status.as_str()), (&b"out\n"[..], SUCCESS));
}

#[tokio::test]
async fn a_fake_agent_that_refuses_is_heard_in_the_status() {
    let mut node = start();
    let (mut stream, _) = ask(&node, "command=true&output=1", "v5.channel.k8s.io").await;
    node.answer_one().await;
    let (_, _, status) = collect(&mut stream).await;
    assert!(status.contains("error executing command in container: no such container"), "{status}");
    assert!(status.contains("\"code\":500"), "{status}");
}

#[tokio::test]
async fn the_program_of_a_client_that_is_gone_is_killed_by_the_fake_agent() {
    let mut node = start();
    let (stream, _) = ask(&node, "command=sleep&command=5&input=1&output=1", "v5.channel.k8s.io").await;
    run(&mut node).await;
    drop(stream);
    assert!(matches!(in_time(node.commands.recv()).await, Some(Command::KillExec { session: 42 })));
    let (mut stream, _) = ask(&node, "command=sleep&command=5&output=1", "v5.channel.k8s.io").await;
    run(&mut node).await;
    stream.write_all(&frame(8, &1000_u16.to_be_bytes())).await.unwrap();
    assert!(matches!(in_time(node.commands.recv()).await, Some(Command::KillExec { session: 42 })));
}

#[tokio::test]
async fn a_terminal_of_a_fake_session_has_a_size_and_one_output() {
    let mut node = start();
    let query = "command=sh&input=1&output=1&error=1&tty=1&width=100&height=40";
    let (mut stream, _) = ask(&node, query, "v5.channel.k8s.io").await;
    let Command::Exec { spec, reply } = in_time(node.commands.recv()).await.unwrap() else { panic!() };
    assert_eq!((spec.tty, spec.stdin, spec.size), (true, true, Some((100, 40))));
    let master = rustix::pty::openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY | OpenptFlags::CLOEXEC).unwrap();
    rustix::pty::unlockpt(&master).unwrap();
    let name = rustix::pty::ptsname(&master, Vec::new()).unwrap();
    let program = rustix::fs::open(&name, OFlags::RDWR | OFlags::NOCTTY, Mode::empty()).unwrap();
    let (ended, exit) = oneshot::channel();
    assert!(reply.send(Ok(ExecSession { session: 7, fds: vec![master], exit })).is_ok());
    assert_eq!(read(&mut stream).await, (2, b"\x01".to_vec()));

    stream.write_all(&frame(2, b"\x04{\"Width\":120,\"Height\":50}")).await.unwrap();
    let resize = in_time(node.commands.recv()).await;
    assert!(matches!(resize, Some(Command::ResizeExec { session: 7, width: 120, height: 50 })), "{resize:?}");

    stream.write_all(&frame(2, b"\x00id\n")).await.unwrap();
    stream.write_all(&frame(2, b"\xff\x00")).await.unwrap();
    // The program reads a line and then the end of its input.
    let program = tokio::task::spawn_blocking(move || {
        let mut buffer = [0; 64];
        let line = rustix::io::read(&program, &mut buffer).unwrap();
        assert_eq!(&buffer[..line], b"id\n");
        assert_eq!(rustix::io::read(&program, &mut buffer).unwrap(), 0);
        rustix::io::write(&program, b"uid=0\n").unwrap();
    });
    program.await.unwrap();
    assert!(ended.send(ExecExit::Exited { code: 0 }).is_ok());
    let (stdout, _, status) = collect(&mut stream).await;
    let stdout = String::from_utf8_lossy(&stdout).into_owned();
    assert!(stdout.starts_with("id\r\n") && stdout.ends_with("uid=0\r\n"), "{stdout:?}");
    assert_eq!(status, SUCCESS);
}

#[tokio::test]
async fn refusals_of_a_fake_node_before_the_upgrade_are_the_kubelets() {
    let node = start();
    for (path, code, text) in [
        ("shop/web-edge1/main?command=true&output=1", 500, "Upgrade request required\n"),
        ("shop/web-edge1/main?command=true", 400, "you must specify at least 1 of stdin, stdout, stderr"),
        ("shop/web-edge1/main?output=1", 400, "you must specify a command"),
        ("shop/nope/main?command=true&output=1", 404, "pod does not exist"),
        ("shop/web-edge1/otheruid/main?command=true&output=1", 404, "pod does not exist"),
        ("shop/web-edge1/600634036acad158/main?command=true&output=1", 500, "Upgrade request required\n"),
        ("shop/web-edge1/nope?command=true&output=1", 500, "container not found (\"nope\")"),
        (
            "shop/web-edge1/helper?command=true&output=1",
            500,
            "container \"helper\" in pod \"web-edge1\" is not running",
        ),
        ("shop/web-edge1/main?command=%ff&output=1", 400, "\"%ff\" is not UTF-8 once decoded\n"),
    ] {
        let want = (code, "text/plain; charset=utf-8".to_owned(), text.to_owned());
        assert_eq!(node.curl(&format!("/exec/{path}")).await, want, "{path}");
    }
    let (_, head) = ask(&node, "command=true&output=1", "v9.channel.k8s.io").await;
    assert!(head.starts_with("HTTP/1.1 403 "), "{head}");
}

#[tokio::test]
async fn broken_frames_end_a_fake_session() {
    let mut node = start();
    let unmasked = b"\x82\x02\x00x".to_vec();
    let reserved = b"\xf2\x80\0\0\0\0".to_vec();
    let huge = [&b"\x82\xff"[..], &(1_u64 << 40).to_be_bytes(), &[0; 4]].concat();
    for bytes in [unmasked, reserved, huge] {
        let (mut stream, _) = ask(&node, "command=sleep&command=5&input=1&output=1", "v5.channel.k8s.io").await;
        run(&mut node).await;
        stream.write_all(&bytes).await.unwrap();
        let end = in_time(node.commands.recv()).await;
        assert!(matches!(end, Some(Command::KillExec { session: 42 })), "{} {end:?}", bytes.escape_ascii());
    }
}
