//! armlet's own questions about the node: version, inspect, events, stats.

use super::query::Query;
use super::reply::{self, Body};
use super::{Command, Context, pods};
use crate::model::api;
use crate::model::view::{EventRecord, NodeView};
use futures_util::stream;
use hyper::body::Bytes;
use hyper::{Response, StatusCode};
use std::collections::VecDeque;
use std::io;
use tokio::sync::{oneshot, watch};

/// The Kubernetes version whose rules armlet follows.
const KUBERNETES: &str = "1.36";

/// `GET /armlet/v1/version`.
pub(super) fn version(view: &NodeView) -> Response<Body> {
    let architecture = match std::env::consts::ARCH {
        "aarch64" => "arm64",
        "x86_64" => "amd64",
        other => other,
    };
    reply::json(&api::Version {
        version: env!("CARGO_PKG_VERSION").to_owned(),
        kubernetes: KUBERNETES.to_owned(),
        architecture: architecture.to_owned(),
        node_name: view.node_name.clone(),
    })
}

/// `GET /armlet/v1/inspect`.
pub(super) fn inspect(view: &NodeView) -> Response<Body> {
    let condition =
        |(kind, message): &(String, String)| api::NodeCondition { kind: kind.clone(), message: message.clone() };
    let refused = view.refused.iter().map(|r| api::Refused { path: r.path.clone(), problems: r.problems.clone() });
    reply::json(&api::NodeReport {
        node_name: view.node_name.clone(),
        static_pod_path: view.static_pod_path.clone(),
        pods: view.pods.len(),
        addresses: view.addresses.iter().map(ToString::to_string).collect(),
        capacity: view.resources.capacity.clone(),
        allocatable: view.resources.allocatable.clone(),
        conditions: view.conditions.iter().map(condition).collect(),
        refused: refused.collect(),
        stopped: view.stopped.clone(),
    })
}

/// `GET /armlet/v1/inspect/{namespace}/{pod}`.
pub(super) fn inspect_pod(view: &NodeView, namespace: &str, name: &str) -> Response<Body> {
    let Some(pod) = pods::find(view, namespace, name, None) else {
        return reply::text(StatusCode::NOT_FOUND, format!("pod {name:?} does not exist"));
    };
    let attempts = pod.attempts.iter().map(|a| api::Attempt {
        container: a.container.clone(),
        id: a.id.clone(),
        attempt: a.attempt,
        log_path: a.log_path.clone(),
        cgroup: a.cgroup.clone(),
        pid: a.pid,
    });
    reply::json(&api::PodReport { pod: pods::to_json(pod), attempts: attempts.collect() })
}

/// `POST /armlet/v1/pods/{namespace}/{pod}/stop` and `/restart`: answered once the pod has ended.
pub(super) async fn pod(namespace: String, name: String, verb: api::PodVerb, context: &Context) -> Response<Body> {
    let (reply, answer) = oneshot::channel();
    reply::done(context.ask(Command::Pod { namespace, name, verb, reply }, answer).await)
}

/// `GET /armlet/v1/events[?follow=1]`: one JSON document a line, oldest first.
pub(super) fn events(query: Option<&str>, context: &Context) -> Response<Body> {
    let query = match Query::parse(query) {
        Ok(query) => query,
        Err(error) => return reply::text(StatusCode::BAD_REQUEST, error.to_string()),
    };
    let source = EventSource { view: context.view.clone(), last: None, first: true, follow: query.flag("follow") };
    reply::json_lines(stream::try_unfold(source, |mut source| async move {
        Ok::<_, io::Error>(source.next().await.map(|chunk| (chunk, source)))
    }))
}

struct EventSource {
    view: watch::Receiver<std::sync::Arc<NodeView>>,
    /// The newest event that was sent.
    last: Option<EventRecord>,
    first: bool,
    follow: bool,
}

impl EventSource {
    /// The events since the last call, once there are any; none when no more will come.
    async fn next(&mut self) -> Option<Bytes> {
        loop {
            if !std::mem::take(&mut self.first) && (!self.follow || self.view.changed().await.is_err()) {
                return None;
            }
            let events = std::sync::Arc::clone(&self.view.borrow_and_update().events);
            let fresh = since(&events, self.last.as_ref());
            if let Some(newest) = fresh.last() {
                self.last = Some((*newest).clone());
                let lines = fresh.into_iter().flat_map(line);
                return Some(lines.collect::<Vec<u8>>().into());
            }
        }
    }
}

/// The events after `last`; all where it is not among them any more.
fn since<'a>(events: &'a VecDeque<EventRecord>, last: Option<&EventRecord>) -> Vec<&'a EventRecord> {
    let from = last.and_then(|last| events.iter().rposition(|e| e == last)).map_or(0, |at| at + 1);
    events.range(from..).collect()
}

fn line(event: &EventRecord) -> Vec<u8> {
    let event = api::Event {
        time: event.at.rfc3339(),
        kind: if event.warning { "Warning" } else { "Normal" }.to_owned(),
        reason: event.reason.clone(),
        object: event.object.clone(),
        field_path: event.field_path.clone(),
        message: event.message.clone(),
    };
    let mut line = serde_json::to_vec(&event).unwrap_or_default();
    line.push(b'\n');
    line
}
