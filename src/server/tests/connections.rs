//! Who may connect, how many, and what hostile clients cost.

use super::fake::{self, FakeNode};
use std::os::unix::fs::PermissionsExt;
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::UnixStream;
use tokio::time::timeout;

/// Sends bytes and reads what comes until the server ends the connection.
async fn send(node: &FakeNode, bytes: &[u8]) -> String {
    let mut stream = node.connect().await;
    // The server may have ended it before everything is sent.
    let _ = stream.write_all(bytes).await;
    let mut answer = Vec::new();
    let _ = timeout(Duration::from_secs(10), stream.read_to_end(&mut answer)).await.expect("the server ends it");
    String::from_utf8_lossy(&answer).into_owned()
}

#[tokio::test]
async fn the_socket_of_a_fake_node_is_roots_and_is_replaced_at_the_next_start() {
    let node = FakeNode::start(fake::view(Vec::new()));
    let mode = std::fs::metadata(node.socket()).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o600);
    let again = crate::server::bind(&node.socket()).unwrap();
    assert!(UnixStream::connect(node.socket()).await.is_ok());
    drop(again);
    let nowhere = crate::server::bind(&node.folder.path().join("no/armlet.sock")).unwrap_err();
    assert!(nowhere.to_string().contains("no/armlet.sock"), "{nowhere}");
    assert!(crate::server::bind(&node.folder.path().join("x".repeat(200))).is_err());
}

#[tokio::test]
async fn hostile_requests_to_a_fake_node_are_refused() {
    let node = FakeNode::start(fake::view(Vec::new()));
    let line = |n: usize| format!("X-{n}: {}\r\n", "y".repeat(100));
    let many: String = (0..2000).map(line).collect();
    let long = "x".repeat(1_000_000);
    for (bytes, want) in [
        (format!("GET /pods HTTP/1.1\r\nHost: x\r\n{many}\r\n").into_bytes(), "HTTP/1.1 431 "),
        (format!("GET /pods HTTP/1.1\r\nHost: x\r\nX: {long}\r\n\r\n").into_bytes(), "HTTP/1.1 431 "),
        (format!("GET /{long} HTTP/1.1\r\nHost: x\r\n\r\n").into_bytes(), "HTTP/1.1 4"),
        (b"GET /pods HTTP/9.9\r\n\r\n".to_vec(), "HTTP/1.1 400 "),
        (b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03\r\n\r\n".to_vec(), "HTTP/1.1 400 "),
        (b"GET /containerLogs/\xff\xfe/x/y HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n".to_vec(), "HTTP/1.1 4"),
        (
            b"GET /containerLogs/a/b/c?tailLines=%zz HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n".to_vec(),
            "HTTP/1.1 400 ",
        ),
        (b"GET /../../etc/shadow HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n".to_vec(), "HTTP/1.1 404 "),
        (
            b"POST /armlet/v1/images/import HTTP/1.1\r\nHost: x\r\nContent-Length: 99999999999\r\n\r\nx".repeat(3000),
            "HTTP/1.1 400 ",
        ),
    ] {
        let answer = send(&node, &bytes).await;
        let shown = &bytes[..bytes.len().min(60)];
        assert!(answer.starts_with(want), "{}: {}", shown.escape_ascii(), answer.get(..60).unwrap_or(&answer));
    }
    assert_eq!(node.curl("/healthz").await.0, 200);
}

#[tokio::test]
async fn more_silent_clients_than_a_fake_node_serves_wait_their_turn() {
    let node = FakeNode::start(fake::view(Vec::new()));
    // Half as many again as are served. Both ends of each are descriptors of this process, which shares what it may have
    // with the other tests.
    let mut clients = Vec::new();
    for _ in 0..192 {
        // The kernel's queue is bounded too: some are turned away at once or have to wait.
        match timeout(Duration::from_millis(20), UnixStream::connect(node.socket())).await {
            Ok(Ok(client)) => clients.push(client),
            Ok(Err(_)) | Err(_) => break,
        }
    }
    assert!(clients.len() > 128, "{}", clients.len());
    // All places are taken.
    let mut late = clients.pop().unwrap();
    late.write_all(b"GET /healthz HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n").await.unwrap();
    let mut answer = [0; 12];
    assert!(timeout(Duration::from_millis(200), late.read_exact(&mut answer)).await.is_err());
    drop(clients);
    timeout(Duration::from_secs(10), late.read_exact(&mut answer)).await.unwrap().unwrap();
    assert_eq!(&answer, b"HTTP/1.1 200");
}
