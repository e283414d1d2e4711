//! Images: what is there, and import from the node's own disk.

use super::query::Query;
use super::reply::{self, Body};
use super::{Command, Context, Refusal};
use crate::model::api::{ImportProgress, ImportRequest};
use futures_util::stream;
use http_body_util::{BodyExt, Limited};
use hyper::body::{Bytes, Incoming};
use hyper::{Request, Response, StatusCode};
use std::io;
use std::path::{Component, Path};
use tokio::sync::{mpsc, oneshot};

/// Bytes of an import's request: a path.
const MAX_REQUEST: usize = 16 * 1024;

/// `GET /armlet/v1/images`.
pub(super) async fn list(context: &Context) -> Response<Body> {
    let (reply, answer) = oneshot::channel();
    let images = context.ask(Command::Images { reply }, answer).await;
    reply::done(images.map(|mut images| {
        images.sort_by(|a, b| (&a.names, &a.id).cmp(&(&b.names, &b.id)));
        images
    }))
}

/// `DELETE /armlet/v1/images?name=NAME`, or `?unused=true` for all that no pod needs.
pub(super) async fn remove(query: Option<&str>, context: &Context) -> Response<Body> {
    let query = match Query::parse(query) {
        Ok(query) => query,
        Err(error) => return reply::text(StatusCode::BAD_REQUEST, error.to_string()),
    };
    let name = query.first("name").filter(|name| !name.is_empty()).map(str::to_owned);
    if name.is_some() == query.flag("unused") {
        return reply::text(StatusCode::BAD_REQUEST, "either `name` or `unused=true` is needed\n");
    }
    let (reply, answer) = oneshot::channel();
    reply::done(context.ask(Command::RemoveImages { name, reply }, answer).await)
}

/// `POST /armlet/v1/images/import`: the body names the archive, the answer tells how it goes, one JSON document a line.
pub(super) async fn import(request: Request<Incoming>, context: &Context) -> Response<Body> {
    let path = match read(request.into_body()).await {
        Ok(request) => request.path,
        Err(problem) => return reply::text(StatusCode::BAD_REQUEST, problem),
    };
    // The agent drops steps that a slow client does not take; it waits only to hand over the last line.
    let (progress, lines) = mpsc::channel(16);
    if context.commands.send(Command::Import { path: path.into(), progress }).await.is_err() {
        return reply::text(StatusCode::INTERNAL_SERVER_ERROR, Refusal::gone().to_string());
    }
    reply::json_lines(stream::unfold(lines, |mut lines| async {
        let line = lines.recv().await?;
        Some((encode(&line), lines))
    }))
}

async fn read(body: Incoming) -> Result<ImportRequest, String> {
    let bytes = Limited::new(body, MAX_REQUEST).collect().await.map_err(|e| format!("reading the request: {e}"))?;
    let request: ImportRequest =
        serde_json::from_slice(&bytes.to_bytes()).map_err(|e| format!("the request is not {{\"path\": ...}}: {e}"))?;
    let path = Path::new(&request.path);
    let plain = path.is_absolute() && !path.components().any(|part| part == Component::ParentDir);
    if plain { Ok(request) } else { Err(format!("path {:?} must be absolute and without \"..\"", request.path)) }
}

fn encode(line: &ImportProgress) -> io::Result<Bytes> {
    let mut bytes = serde_json::to_vec(line)?;
    bytes.push(b'\n');
    Ok(bytes.into())
}
