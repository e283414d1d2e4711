//! A connection that is accepted is a success.

use super::{ProbeResult, go_text, join};
use std::time::Duration;
use tokio::net::TcpStream;

pub(super) async fn probe(host: &str, port: u16, timeout: Duration) -> ProbeResult {
    let address = join(host, port);
    match tokio::time::timeout(timeout, TcpStream::connect((host, port))).await {
        Ok(Ok(_stream)) => ProbeResult::Success(String::new()),
        Ok(Err(error)) => ProbeResult::Failure(format!("dial tcp {address}: connect: {}", go_text(&error))),
        Err(_) => ProbeResult::Failure(format!("dial tcp {address}: i/o timeout")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tokio::net::TcpListener;

    const SECOND: Duration = Duration::from_secs(1);

    #[tokio::test]
    async fn whoever_accepts_lives() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = listener.local_addr().unwrap().port();
        assert_eq!(probe("127.0.0.1", port, SECOND).await, ProbeResult::Success(String::new()));
        drop(listener);
        let refused = format!("dial tcp 127.0.0.1:{port}: connect: connection refused");
        assert_eq!(probe("127.0.0.1", port, SECOND).await, ProbeResult::Failure(refused));
    }

    #[tokio::test]
    async fn a_full_queue_times_out() {
        let socket = tokio::net::TcpSocket::new_v4().unwrap();
        socket.bind("127.0.0.1:0".parse().unwrap()).unwrap();
        let listener = socket.listen(1).unwrap();
        let address = listener.local_addr().unwrap();
        // The queue takes one more than asked for; what comes then is dropped.
        let _first = TcpStream::connect(address).await.unwrap();
        let _second = TcpStream::connect(address).await.unwrap();
        let late = probe("127.0.0.1", address.port(), Duration::from_millis(100)).await;
        assert_eq!(late, ProbeResult::Failure(format!("dial tcp {address}: i/o timeout")));
    }

    #[tokio::test]
    async fn a_name_that_is_not_known_fails() {
        let ProbeResult::Failure(text) = probe("no.such.name.invalid", 80, Duration::from_secs(10)).await else {
            panic!("a name was found");
        };
        assert!(text.starts_with("dial tcp no.such.name.invalid:80: "), "{text}");
    }
}
