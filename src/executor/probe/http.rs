//! A GET request; a status from 200 to 399 is a success (`pkg/probe/http`).

use super::url::Url;
use super::{MAX_OUTPUT, ProbeResult, go_text, join, output, tls};
use http_body_util::{BodyExt, Empty};
use hyper::body::{Bytes, Incoming};
use hyper::client::conn::http1;
use hyper::header::{ACCEPT, CONNECTION, HOST, HeaderMap, HeaderName, HeaderValue, LOCATION, USER_AGENT};
use hyper::rt::{Read, Write};
use hyper::{Request, Response, StatusCode};
use hyper_util::rt::TokioIo;
use std::error::Error as _;
use std::io;
use std::time::Duration;
use tokio::net::TcpStream;
use tokio::task::JoinSet;

const PROBER: HeaderValue = HeaderValue::from_static("kube-probe/1.36");
const ANYTHING: HeaderValue = HeaderValue::from_static("*/*");
const CLOSE: HeaderValue = HeaderValue::from_static("close");
/// As Go's `http.Client`.
const MAX_REDIRECTS: usize = 10;
/// Bytes of a response's head; more is an answer that no health check gives.
const MAX_HEAD: usize = 64 * 1024;

pub(super) async fn probe(url: Url, headers: &[(String, String)], timeout: Duration) -> ProbeResult {
    let first = url.to_string();
    match tokio::time::timeout(timeout, follow(url, headers)).await {
        Ok(Ok((status, body))) => verdict(status, &body),
        Ok(Err(text)) => ProbeResult::Failure(text),
        Err(_) => ProbeResult::Failure(format!(
            "Get \"{first}\": context deadline exceeded (Client.Timeout exceeded while awaiting headers)"
        )),
    }
}

fn verdict(status: StatusCode, body: &[u8]) -> ProbeResult {
    match status.as_u16() {
        200..=299 => ProbeResult::Success(output(body)),
        300..=399 => ProbeResult::Warning(format!("Probe terminated redirects, Response body: {}", output(body))),
        status => ProbeResult::Failure(format!("HTTP probe failed with statuscode: {status}")),
    }
}

/// Asks, and follows redirects within the same host. The text of an error is as Go's client gives it.
async fn follow(url: Url, headers: &[(String, String)]) -> Result<(StatusCode, Vec<u8>), String> {
    let origin = url.host.clone();
    let (mut headers, mut host) = request_headers(headers).map_err(|why| format!("Get \"{url}\": {why}"))?;
    headers.insert(CONNECTION, CLOSE);
    let mut url = url;
    let mut redirects = 0;
    loop {
        let named = |why: String| format!("Get \"{url}\": {why}");
        let mut connection = JoinSet::new();
        let response = send(&url, headers.clone(), host.as_ref(), &mut connection).await.map_err(named)?;
        let location = response.headers().get(LOCATION).filter(|_| is_redirect(response.status()));
        let Some(location) = location else {
            return read(response).await.map_err(named);
        };
        let location = String::from_utf8_lossy(location.as_bytes()).into_owned();
        let next = url.join(&location).ok_or_else(|| named(format!("failed to parse Location header {location:?}")))?;
        if next.host != origin {
            return read(response).await.map_err(named);
        }
        redirects += 1;
        if redirects >= MAX_REDIRECTS {
            return Err(format!("Get \"{next}\": stopped after {MAX_REDIRECTS} redirects"));
        }
        // A Host header of the probe's own goes along only where the server did not name a host itself.
        if location.contains("//") {
            host = None;
        }
        url = next;
    }
}

fn is_redirect(status: StatusCode) -> bool {
    matches!(status.as_u16(), 301 | 302 | 303 | 307 | 308)
}

/// The probe's headers with the defaults, and apart from them the Host header.
fn request_headers(given: &[(String, String)]) -> Result<(HeaderMap, Option<HeaderValue>), String> {
    let mut headers = HeaderMap::new();
    for (name, value) in given {
        let parsed = HeaderName::from_bytes(name.as_bytes());
        let parsed = parsed.map_err(|_| format!("net/http: invalid header field name {name:?}"))?;
        let value = HeaderValue::from_bytes(value.as_bytes());
        let value = value.map_err(|_| format!("net/http: invalid header field value for {name:?}"))?;
        headers.append(parsed, value);
    }
    // Given but empty means: send none.
    for (name, default) in [(USER_AGENT, PROBER), (ACCEPT, ANYTHING)] {
        match headers.get(&name) {
            None => {
                headers.insert(name, default);
            }
            Some(value) if value.is_empty() => {
                headers.remove(name);
            }
            Some(_) => {}
        }
    }
    let host = headers.remove(HOST).filter(|host| !host.is_empty());
    Ok((headers, host))
}

/// Connects and sends. The connection is served by a task of the set: dropping that closes it.
async fn send(
    url: &Url,
    headers: HeaderMap,
    host: Option<&HeaderValue>,
    connection: &mut JoinSet<()>,
) -> Result<Response<Incoming>, String> {
    let address = join(&url.host, url.port);
    let stream = TcpStream::connect((url.host.as_str(), url.port)).await;
    let stream = stream.map_err(|error| format!("dial tcp {address}: connect: {}", go_text(&error)))?;
    let mut request = Request::new(Empty::<Bytes>::new());
    *request.uri_mut() = url.path.parse().map_err(|_| format!("invalid path {:?}", url.path))?;
    *request.headers_mut() = headers;
    let host = host.cloned().map_or_else(|| HeaderValue::try_from(url.authority()), Ok);
    request.headers_mut().insert(HOST, host.map_err(|_| format!("invalid host {:?}", url.host))?);
    if url.https {
        let stream = tls::connect(stream, &url.host).await.map_err(|error| format!("tls: {}", go_text(&error)))?;
        exchange(TokioIo::new(stream), request, connection).await
    } else {
        exchange(TokioIo::new(stream), request, connection).await
    }
}

async fn exchange<T: Read + Write + Unpin + Send + 'static>(
    stream: T,
    request: Request<Empty<Bytes>>,
    connection: &mut JoinSet<()>,
) -> Result<Response<Incoming>, String> {
    let (mut sender, driver) =
        http1::Builder::new().max_buf_size(MAX_HEAD).handshake(stream).await.map_err(|error| text(&error))?;
    connection.spawn(async move {
        // What goes wrong on the connection the request's own future tells.
        let _ = driver.await;
    });
    sender.send_request(request).await.map_err(|error| text(&error))
}

/// The status, and the body as far as anybody wants to know it.
async fn read(response: Response<Incoming>) -> Result<(StatusCode, Vec<u8>), String> {
    let status = response.status();
    let mut body = response.into_body();
    let mut bytes = Vec::new();
    while bytes.len() < MAX_OUTPUT {
        let Some(frame) = body.frame().await else { break };
        if let Ok(data) = frame.map_err(|error| text(&error))?.into_data() {
            bytes.extend_from_slice(&data);
        }
    }
    Ok((status, bytes))
}

fn text(error: &hyper::Error) -> String {
    if error.is_incomplete_message() {
        return "EOF".to_owned();
    }
    if error.is_parse() {
        return format!("net/http: HTTP/1.x transport connection broken: malformed HTTP response ({error})");
    }
    match error.source().and_then(|source| source.downcast_ref::<io::Error>()) {
        Some(source) => go_text(source),
        None => error.to_string(),
    }
}
