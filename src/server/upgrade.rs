//! From HTTP to WebSocket (RFC 6455, section 4.2).

use super::channel::Version;
use super::reply::{self, Body};
use crate::sys::ready::Hangup;
use hyper::header::{self, HeaderMap, HeaderName, HeaderValue};
use hyper::{Request, Response, StatusCode};
use hyper_util::rt::TokioIo;
use std::io;
use std::os::fd::AsFd;
use tokio::net::UnixStream;
use tokio_tungstenite::WebSocketStream;
use tokio_tungstenite::tungstenite::handshake::derive_accept_key;
use tokio_tungstenite::tungstenite::protocol::{Role, WebSocketConfig};

/// A connection that speaks WebSocket.
pub(super) type Socket = WebSocketStream<UnixStream>;

/// The largest message of a client. Clients send what they read from a terminal or a pipe: up to 32 KiB.
const MAX_MESSAGE: usize = 1024 * 1024;

/// What both sides agreed on.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Agreed {
    pub(super) version: Version,
    accept: HeaderValue,
}

/// Why a request does not become a WebSocket.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub(super) enum NoUpgrade {
    /// It does not ask for one.
    #[error("Upgrade request required\n")]
    NotAsked,
    /// It asks for something else, or wrongly.
    #[error("not a WebSocket request of version 13 (RFC 6455): {0}\n")]
    Malformed(&'static str),
    /// It offers no protocol that we speak.
    #[error("none of the offered WebSocket protocols is spoken here: v5.channel.k8s.io, v4.channel.k8s.io\n")]
    NoProtocol,
}

impl NoUpgrade {
    /// The status that the kubelet gives.
    pub(super) fn status(self) -> StatusCode {
        match self {
            Self::NotAsked => StatusCode::INTERNAL_SERVER_ERROR,
            Self::Malformed(_) => StatusCode::BAD_REQUEST,
            Self::NoProtocol => StatusCode::FORBIDDEN,
        }
    }
}

/// Checks a request's head.
pub(super) fn check(headers: &HeaderMap) -> Result<Agreed, NoUpgrade> {
    if !lists(headers, &header::CONNECTION, "upgrade") {
        return Err(NoUpgrade::NotAsked);
    }
    if !lists(headers, &header::UPGRADE, "websocket") {
        return Err(NoUpgrade::Malformed("Upgrade is not websocket"));
    }
    if headers.get(header::SEC_WEBSOCKET_VERSION).is_none_or(|v| v != "13") {
        return Err(NoUpgrade::Malformed("Sec-WebSocket-Version is not 13"));
    }
    let key = headers.get(header::SEC_WEBSOCKET_KEY).ok_or(NoUpgrade::Malformed("Sec-WebSocket-Key is missing"))?;
    // 16 bytes in base64.
    if key.len() != 24 {
        return Err(NoUpgrade::Malformed("Sec-WebSocket-Key is not 16 bytes in base64"));
    }
    let version = Version::choose(values(headers, &header::SEC_WEBSOCKET_PROTOCOL)).ok_or(NoUpgrade::NoProtocol)?;
    let accept = HeaderValue::from_str(&derive_accept_key(key.as_bytes()))
        .map_err(|_| NoUpgrade::Malformed("Sec-WebSocket-Key is not text"))?;
    Ok(Agreed { version, accept })
}

/// The answer after which the connection speaks WebSocket.
pub(super) fn switching(agreed: &Agreed) -> Response<Body> {
    let mut response = Response::new(reply::whole(""));
    *response.status_mut() = StatusCode::SWITCHING_PROTOCOLS;
    let headers = response.headers_mut();
    headers.insert(header::UPGRADE, HeaderValue::from_static("websocket"));
    headers.insert(header::CONNECTION, HeaderValue::from_static("Upgrade"));
    headers.insert(header::SEC_WEBSOCKET_ACCEPT, agreed.accept.clone());
    headers.insert(header::SEC_WEBSOCKET_PROTOCOL, HeaderValue::from_static(agreed.version.name()));
    response
}

/// Why a connection cannot be taken over.
#[derive(Debug, thiserror::Error)]
pub(super) enum NoSocket {
    /// The client was gone before its session began.
    #[error("waiting for the answer to be sent")]
    Gone(#[source] hyper::Error),
    /// It cannot be watched.
    #[error("watching the connection")]
    Watch(#[source] io::Error),
    /// It is none of our sockets.
    #[error("the connection is no unix socket")]
    Foreign,
}

/// Takes the connection over, once the answer is on its way, with a watch on the client's going away.
///
/// # Errors
/// When the client is gone by then, or no descriptor is left.
pub(super) async fn take_over<B>(request: Request<B>) -> Result<(Socket, Hangup), NoSocket> {
    let upgraded = hyper::upgrade::on(request).await.map_err(NoSocket::Gone)?;
    let parts = upgraded.downcast::<TokioIo<UnixStream>>().map_err(|_| NoSocket::Foreign)?;
    let stream = parts.io.into_inner();
    let hangup = Hangup::of(stream.as_fd()).map_err(NoSocket::Watch)?;
    let config = WebSocketConfig::default()
        .read_buffer_size(8 * 1024)
        .write_buffer_size(0)
        .max_message_size(Some(MAX_MESSAGE))
        .max_frame_size(Some(MAX_MESSAGE));
    let read = parts.read_buf.to_vec();
    Ok((WebSocketStream::from_partially_read(stream, read, Role::Server, Some(config)).await, hangup))
}

fn values<'a>(headers: &'a HeaderMap, name: &HeaderName) -> impl Iterator<Item = &'a str> {
    headers.get_all(name).into_iter().filter_map(|v| v.to_str().ok()).flat_map(|v| v.split(',')).map(str::trim)
}

fn lists(headers: &HeaderMap, name: &HeaderName, word: &str) -> bool {
    values(headers, name).any(|v| v.eq_ignore_ascii_case(word))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn head(lines: &[(&'static str, &'static str)]) -> HeaderMap {
        lines.iter().map(|(n, v)| (HeaderName::from_static(n), HeaderValue::from_static(v))).collect()
    }

    const KEY: (&str, &str) = ("sec-websocket-key", "3tlha4/NR15ywHvc/KgRWg==");

    #[test]
    fn a_request_as_clients_send_it_is_agreed_to() {
        let head = head(&[
            ("connection", "keep-alive, Upgrade"),
            ("upgrade", "websocket"),
            ("sec-websocket-version", "13"),
            ("sec-websocket-protocol", "v9.channel.k8s.io, v5.channel.k8s.io"),
            KEY,
        ]);
        let agreed = check(&head).unwrap();
        assert_eq!(agreed.version, Version::V5);
        assert_eq!(agreed.accept, "OZGqpkXwgopXVyoSfTsSOOBcyrA=");
    }

    #[test]
    fn bad_requests_are_refused() {
        let upgrade = ("connection", "Upgrade");
        let websocket = ("upgrade", "websocket");
        let version = ("sec-websocket-version", "13");
        let protocol = ("sec-websocket-protocol", "v5.channel.k8s.io");
        for (lines, status) in [
            (vec![], 500),
            (vec![websocket, version, KEY, protocol], 500),
            (vec![upgrade, ("upgrade", "SPDY/3.1"), version, KEY, protocol], 400),
            (vec![upgrade, websocket, ("sec-websocket-version", "8"), KEY, protocol], 400),
            (vec![upgrade, websocket, version, protocol], 400),
            (vec![upgrade, websocket, version, ("sec-websocket-key", "x"), protocol], 400),
            (vec![upgrade, websocket, version, KEY], 403),
            (vec![upgrade, websocket, version, KEY, ("sec-websocket-protocol", "v9.channel.k8s.io")], 403),
        ] {
            assert_eq!(check(&head(&lines)).unwrap_err().status(), status, "{lines:?}");
        }
    }
}
