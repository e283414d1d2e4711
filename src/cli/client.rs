//! HTTP over the agent's socket.

use super::age;
use super::error::CliError;
use super::pods::PodList;
use crate::model::WallTime;
use http_body_util::{BodyExt, Full};
use hyper::body::{Bytes, Incoming};
use hyper::client::conn::http1::{self, SendRequest};
use hyper::header::{self, HeaderValue};
use hyper::{Method, Request, Response, StatusCode};
use hyper_util::rt::TokioIo;
use serde::Serialize;
use serde::de::DeserializeOwned;
use std::io::{self, Write};
use std::path::Path;
use std::time::Duration;
use tokio::net::UnixStream;

/// How long an answer may take until a person is told why nothing happens. There is no limit beside this: the agent of a
/// slow board may be busy for a while, and who has waited enough can stop.
const PATIENCE: Duration = Duration::from_secs(4);

/// How often an agent that has just gone is looked for, and after how long each time: two seconds in all.
const RETRIES: u32 = 40;
const RETRY: Duration = Duration::from_millis(50);

/// Whether an agent's socket is there and nobody listens: one has gone, and another is about to come.
fn is_between_agents<T>(connected: &io::Result<T>) -> bool {
    matches!(connected, Err(error) if error.kind() == io::ErrorKind::ConnectionRefused)
}

/// What a query and a path cannot hold as it is.
fn is_plain(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_' | b'.' | b'~')
}

/// Writes a text so that it can stand in a path or a query.
pub(super) fn escape(text: &str) -> String {
    let escape = |byte: u8| if is_plain(byte) { char::from(byte).to_string() } else { format!("%{byte:02X}") };
    text.bytes().map(escape).collect()
}

/// Writes names and values as a query, without the `?`.
pub(super) fn query<'a>(pairs: impl IntoIterator<Item = (&'a str, &'a str)>) -> String {
    let pairs: Vec<String> = pairs.into_iter().map(|(n, v)| format!("{}={}", escape(n), escape(v))).collect();
    pairs.join("&")
}

/// One connection.
#[derive(Debug)]
pub(super) struct Client {
    sender: SendRequest<Full<Bytes>>,
}

/// An answer that is there.
#[derive(Debug)]
pub(super) struct Answer<T> {
    pub(super) value: T,
    /// When it was given, on the agent's clock.
    pub(super) at: WallTime,
}

impl Client {
    /// Connects. An agent that is just being started again is waited for.
    pub(super) async fn connect(socket: &Path) -> Result<Self, CliError> {
        let mut connected = UnixStream::connect(socket).await;
        for _ in 0..RETRIES {
            if !is_between_agents(&connected) {
                break;
            }
            tokio::time::sleep(RETRY).await;
            connected = UnixStream::connect(socket).await;
        }
        let stream = connected.map_err(|source| CliError::Connect { socket: socket.to_owned(), source })?;
        let (sender, connection) =
            http1::handshake(TokioIo::new(stream)).await.map_err(|source| CliError::Talk { source })?;
        // Its errors reach whoever waits for an answer.
        tokio::spawn(connection.with_upgrades());
        Ok(Self { sender })
    }

    /// Sends a request and gives the answer whatever its status.
    pub(super) async fn send(&mut self, request: Request<Full<Bytes>>) -> Result<Response<Incoming>, CliError> {
        patiently(self.sender.send_request(request)).await.map_err(|source| CliError::Talk { source })
    }

    /// Sends a request for something that takes long by its nature, like the end of a pod.
    pub(super) async fn send_slow(&mut self, request: Request<Full<Bytes>>) -> Result<Response<Incoming>, CliError> {
        self.sender.send_request(request).await.map_err(|source| CliError::Talk { source })
    }

    /// Asks for a body that comes bit by bit.
    pub(super) async fn stream(&mut self, path: &str) -> Result<Incoming, CliError> {
        let answer = self.send(request(Method::GET, path, Bytes::new())?).await?;
        Ok(accepted(answer).await?.into_body())
    }

    /// Asks for a JSON document.
    pub(super) async fn get<T: DeserializeOwned>(&mut self, path: &str) -> Result<Answer<T>, CliError> {
        let answer = self.send(request(Method::GET, path, Bytes::new())?).await?;
        let date = answer.headers().get(header::DATE).and_then(|v| v.to_str().ok()).and_then(age::http_date);
        Ok(Answer { value: document(path, answer).await?, at: date.unwrap_or_default() })
    }

    /// Sends a JSON document; the answer comes bit by bit.
    pub(super) async fn post(&mut self, path: &str, body: &impl Serialize) -> Result<Incoming, CliError> {
        let bytes = serde_json::to_vec(body).map_err(|source| CliError::Encode { source })?;
        let answer = self.send(request(Method::POST, path, bytes.into())?).await?;
        Ok(accepted(answer).await?.into_body())
    }

    /// Changes something by a JSON document; the answer is one too.
    pub(super) async fn put<T: DeserializeOwned>(&mut self, path: &str, body: &impl Serialize) -> Result<T, CliError> {
        let bytes = serde_json::to_vec(body).map_err(|source| CliError::Encode { source })?;
        let answer = accepted(self.send(request(Method::PUT, path, bytes.into())?).await?).await?;
        let bytes = whole(answer).await?;
        serde_json::from_slice(&bytes).map_err(|source| CliError::Decode { path: path.to_owned(), source })
    }

    /// All pods.
    pub(super) async fn pods(&mut self) -> Result<Answer<PodList>, CliError> {
        self.get("/pods").await
    }
}

/// Waits for something of the agent's, and says so when it takes long.
async fn patiently<T>(answer: impl Future<Output = T>) -> T {
    let mut answer = std::pin::pin!(answer);
    if let Ok(answer) = tokio::time::timeout(PATIENCE, &mut answer).await {
        return answer;
    }
    // Nobody depends on the remark: it may fail.
    let _ = writeln!(io::stderr(), "waiting for the agent: it is busy or stopped");
    answer.await
}

/// The beginning of a long text, for an error.
fn short(text: &str) -> String {
    const MOST: usize = 100;
    let end = text.floor_char_boundary(MOST);
    if end == text.len() { text.to_owned() } else { format!("{}...", &text[..end]) }
}

/// A request to the agent.
pub(super) fn request(method: Method, path: &str, body: Bytes) -> Result<Request<Full<Bytes>>, CliError> {
    Request::builder()
        .method(method)
        .uri(path)
        .header(header::HOST, HeaderValue::from_static("localhost"))
        .body(Full::new(body))
        .map_err(|error| CliError::Request { what: short(path), source: error.into() })
}

/// An answer of another status than 200 as the error that it is.
pub(super) async fn accepted(answer: Response<Incoming>) -> Result<Response<Incoming>, CliError> {
    if answer.status() == StatusCode::OK { Ok(answer) } else { Err(refusal(answer).await) }
}

/// The JSON document that an answer is.
pub(super) async fn document<T: DeserializeOwned>(path: &str, answer: Response<Incoming>) -> Result<T, CliError> {
    let bytes = whole(accepted(answer).await?).await?;
    serde_json::from_slice(&bytes).map_err(|source| CliError::Decode { path: path.to_owned(), source })
}

/// What an answer that is none says.
pub(super) async fn refusal(answer: Response<Incoming>) -> CliError {
    let status = answer.status();
    match whole(answer).await {
        Ok(bytes) => {
            let text = String::from_utf8_lossy(&bytes);
            // The kubelet words some of its refusals as JSON.
            let message = serde_json::from_str::<serde_json::Value>(&text).ok();
            let message = message.and_then(|v| Some(v.get("message")?.as_str()?.to_owned()));
            let message = message.unwrap_or_else(|| text.trim().to_owned());
            let message = if message.is_empty() { status.to_string() } else { message };
            CliError::Refused { status: status.as_u16(), message }
        }
        Err(error) => error,
    }
}

async fn whole(answer: Response<Incoming>) -> Result<Bytes, CliError> {
    let body = patiently(answer.into_body().collect()).await.map_err(|source| CliError::Talk { source })?;
    Ok(body.to_bytes())
}

/// A body of JSON documents, one a line.
#[derive(Debug)]
pub(super) struct Lines {
    body: Incoming,
    rest: Vec<u8>,
}

impl Lines {
    pub(super) const fn new(body: Incoming) -> Self {
        Self { body, rest: Vec::new() }
    }

    /// The next document; none at the end.
    pub(super) async fn next<T: DeserializeOwned>(&mut self) -> Result<Option<T>, CliError> {
        loop {
            if let Some(end) = self.rest.iter().position(|b| *b == b'\n') {
                let line: Vec<u8> = self.rest.drain(..=end).collect();
                let decoded = serde_json::from_slice(&line);
                return decoded.map(Some).map_err(|source| CliError::Decode { path: "the request".to_owned(), source });
            }
            match self.body.frame().await {
                Some(frame) => {
                    let frame = frame.map_err(|source| CliError::Talk { source })?;
                    self.rest.extend_from_slice(&frame.into_data().unwrap_or_default());
                }
                None if self.rest.is_empty() => return Ok(None),
                None => return Err(CliError::CutOff),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn queries_are_escaped() {
        assert_eq!(
            query([("command", "sh"), ("command", "echo a+b; c&d=\u{e9}")]),
            "command=sh&command=echo%20a%2Bb%3B%20c%26d%3D%C3%A9"
        );
        assert_eq!(escape("a/b"), "a%2Fb");
    }
}
