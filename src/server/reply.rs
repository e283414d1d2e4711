//! Answers: a status, a type, a body.

use super::Refusal;
use crate::model::supervise::RefusalCode;
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt, Full, StreamBody};
use hyper::body::{Bytes, Frame};
use hyper::header::{CONTENT_TYPE, HeaderValue};
use hyper::{Response, StatusCode};
use serde::Serialize;
use std::io;

/// An answer's body. An error in it cuts the connection, so that the client sees that the answer is not whole.
pub(super) type Body = UnsyncBoxBody<Bytes, io::Error>;

const TEXT: HeaderValue = HeaderValue::from_static("text/plain; charset=utf-8");
const JSON: HeaderValue = HeaderValue::from_static("application/json");

/// A body that is there.
pub(super) fn whole(bytes: impl Into<Bytes>) -> Body {
    Full::new(bytes.into()).map_err(|never| match never {}).boxed_unsync()
}

/// A body that is made as the client reads it.
pub(super) fn streamed<S>(chunks: S) -> Body
where
    S: futures_util::Stream<Item = io::Result<Bytes>> + Send + 'static,
{
    use futures_util::TryStreamExt;
    StreamBody::new(chunks.map_ok(Frame::data)).boxed_unsync()
}

/// A text for people. What the kubelet ends with a line break, the caller ends with one.
pub(super) fn text(status: StatusCode, text: impl Into<Bytes>) -> Response<Body> {
    typed(status, TEXT, whole(text))
}

/// A JSON document.
pub(super) fn json(value: &impl Serialize) -> Response<Body> {
    match serde_json::to_vec(value) {
        Ok(bytes) => typed(StatusCode::OK, JSON, whole(bytes)),
        Err(error) => text(StatusCode::INTERNAL_SERVER_ERROR, format!("writing the answer as JSON: {error}\n")),
    }
}

/// A JSON document, or why there is none.
pub(super) fn done(answer: Result<impl Serialize, Refusal>) -> Response<Body> {
    match answer {
        Ok(value) => json(&value),
        Err(refusal) => {
            let status = match refusal.code {
                RefusalCode::Malformed => StatusCode::BAD_REQUEST,
                RefusalCode::NotFound => StatusCode::NOT_FOUND,
                RefusalCode::Conflict => StatusCode::CONFLICT,
                RefusalCode::Exhausted | RefusalCode::System | RefusalCode::Unknown => {
                    StatusCode::INTERNAL_SERVER_ERROR
                }
            };
            text(status, refusal.to_string())
        }
    }
}

/// JSON documents, one a line, as they come.
pub(super) fn json_lines<S>(chunks: S) -> Response<Body>
where
    S: futures_util::Stream<Item = io::Result<Bytes>> + Send + 'static,
{
    typed(StatusCode::OK, HeaderValue::from_static("application/x-ndjson"), streamed(chunks))
}

/// Bytes without a type, as they come: a container's log.
pub(super) fn raw<S>(chunks: S) -> Response<Body>
where
    S: futures_util::Stream<Item = io::Result<Bytes>> + Send + 'static,
{
    Response::new(streamed(chunks))
}

fn typed(status: StatusCode, kind: HeaderValue, body: Body) -> Response<Body> {
    let mut response = Response::new(body);
    *response.status_mut() = status;
    response.headers_mut().insert(CONTENT_TYPE, kind);
    response
}
