//! Probes: one try each, by the kubelet's rules (`pkg/probe`, `pkg/kubelet/prober/prober.go`).
//!
//! Sockets are closed the ordinary way: the kubelet's SO_LINGER of one second would hold the thread that closes up to
//! that long, and a probe a second leaves no more than sixty sockets in TIME_WAIT.

mod exec;
mod http;
#[cfg(test)]
mod http_tests;
mod tcp;
mod tls;
mod url;

use super::Rooms;
use super::failure::failed;
use crate::model::ContainerId;
use crate::model::action::Outcome;
use crate::model::pod::{Probe, ProbeHandler};
use std::io;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;
use url::Url;

/// What is kept of what a probe says (`maxRespBodyLength`, `maxReadLength`).
const MAX_OUTPUT: usize = 10 * 1024;

/// What one try came to.
#[derive(Debug, Clone, PartialEq, Eq)]
enum ProbeResult {
    /// It worked.
    Success(String),
    /// It counts as a success, and somebody should look at it.
    Warning(String),
    /// It did not work.
    Failure(String),
    /// It could not be tried: it counts for nothing.
    Unknown(String),
}

/// Tries a probe once. `address` is where to connect when the handler names no host.
pub(super) async fn perform(rooms: &Arc<Rooms>, id: ContainerId, probe: Probe, address: Option<IpAddr>) -> Outcome {
    let timeout = Duration::from_secs(probe.timeout_secs.max(1).into());
    let pod = address.map(|address| address.to_string());
    let result = match probe.handler {
        ProbeHandler::Exec { command } => exec::probe(&rooms.supervisor, id, command, timeout).await,
        ProbeHandler::HttpGet { host, port, path, https, headers } => match host.or(pod) {
            Some(host) => http::probe(Url::new(https, &host, port, &path), &headers, timeout).await,
            None => ProbeResult::Unknown(NO_ADDRESS.to_owned()),
        },
        ProbeHandler::TcpSocket { host, port } => match host.or(pod) {
            Some(host) => tcp::probe(&host, port, timeout).await,
            None => ProbeResult::Unknown(NO_ADDRESS.to_owned()),
        },
    };
    match result {
        ProbeResult::Success(message) => Outcome::Probed { success: true, warning: false, message },
        ProbeResult::Warning(message) => Outcome::Probed { success: true, warning: true, message },
        ProbeResult::Failure(message) => Outcome::Probed { success: false, warning: false, message },
        ProbeResult::Unknown(message) => failed("ProbeErrored", message),
    }
}

const NO_ADDRESS: &str = "the pod has no address yet";

/// The first [`MAX_OUTPUT`] bytes as text.
fn output(bytes: &[u8]) -> String {
    String::from_utf8_lossy(&bytes[..bytes.len().min(MAX_OUTPUT)]).into_owned()
}

/// An address as Go's `net.JoinHostPort` writes it.
fn join(host: &str, port: u16) -> String {
    if host.contains(':') { format!("[{host}]:{port}") } else { format!("{host}:{port}") }
}

/// A socket error in Go's words, which people and dashboards know from kubelet events.
fn go_text(error: &io::Error) -> String {
    match error.kind() {
        io::ErrorKind::ConnectionRefused => "connection refused".to_owned(),
        io::ErrorKind::ConnectionReset => "connection reset by peer".to_owned(),
        io::ErrorKind::HostUnreachable => "no route to host".to_owned(),
        io::ErrorKind::NetworkUnreachable => "network is unreachable".to_owned(),
        io::ErrorKind::TimedOut => "connection timed out".to_owned(),
        io::ErrorKind::BrokenPipe => "broken pipe".to_owned(),
        io::ErrorKind::UnexpectedEof => "EOF".to_owned(),
        _ => error.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_and_output_are_as_upstreams() {
        assert_eq!(join("10.0.0.1", 80), "10.0.0.1:80");
        assert_eq!(join("fd00::1", 80), "[fd00::1]:80");
        assert_eq!(output(&[b'x'; 20_000]).len(), MAX_OUTPUT);
        assert_eq!(output(b"\xff"), "\u{fffd}");
    }
}
