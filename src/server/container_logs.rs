//! `GET /containerLogs/{namespace}/{pod}/{container}`: a container's log as text.

use super::logs::{self, Follow, LogOptions, LogReader};
use super::query::Query;
use super::reply::{self, Body};
use super::route::Target;
use super::{Context, pods};
use crate::model::ContainerId;
use crate::model::status::State;
use crate::model::view::PodView;
use hyper::{Response, StatusCode};
use logs::OptionsError;
use std::io;
use std::path::PathBuf;

/// The scheme of container ids in the API.
const RUNTIME: &str = "armlet";

/// Why there is no log to show. The texts and codes are the kubelet's (`pkg/kubelet/server/server.go`,
/// `pkg/kubelet/kubelet_pods.go: validateContainerLogStatus`).
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(super) enum NoLog {
    #[error(transparent)]
    Options(#[from] OptionsError),
    #[error("pod {pod:?} does not exist")]
    NoPod { pod: String },
    #[error("container {container:?} not found in pod {pod:?}")]
    NoContainer { container: String, pod: String },
    #[error("container {container:?} in pod {pod:?} is not available")]
    NoStatus { container: String, pod: String },
    #[error("previous terminated container {container:?} in pod {pod:?} not found")]
    NoPrevious { container: String, pod: String },
    #[error("container {container:?} in pod {pod:?} is terminated")]
    NoLongerKnown { container: String, pod: String },
    #[error("container {container:?} in pod {pod:?} is waiting to start: {why}")]
    Waiting { container: String, pod: String, why: String },
}

impl NoLog {
    fn status(&self) -> StatusCode {
        match self {
            Self::NoPod { .. } | Self::NoContainer { .. } => StatusCode::NOT_FOUND,
            Self::Options(OptionsError::Invalid) => StatusCode::UNPROCESSABLE_ENTITY,
            Self::Options(OptionsError::Undecodable)
            | Self::NoStatus { .. }
            | Self::NoPrevious { .. }
            | Self::NoLongerKnown { .. }
            | Self::Waiting { .. } => StatusCode::BAD_REQUEST,
        }
    }
}

/// Answers one request.
pub(super) async fn answer(target: &Target, query: Option<&str>, context: &Context) -> Response<Body> {
    let chosen = read_options(query).and_then(|options| {
        let view = context.now();
        let pod = pods::find(&view, &target.namespace, &target.pod, None)
            .ok_or_else(|| NoLog::NoPod { pod: target.pod.clone() })?;
        let id = attempt(pod, &target.container, options.previous)?;
        let path = pod.attempts.iter().find(|a| a.id == id).map(|a| PathBuf::from(&a.log_path));
        Ok((options, id, path))
    });
    match chosen {
        Ok((options, id, path)) => open(options, id, path, context).await,
        Err(error) => reply::text(error.status(), error.to_string()),
    }
}

fn read_options(query: Option<&str>) -> Result<LogOptions, NoLog> {
    let query = Query::parse(query).map_err(|_| OptionsError::Undecodable)?;
    Ok(LogOptions::read(&query)?)
}

async fn open(options: LogOptions, id: ContainerId, path: Option<PathBuf>, context: &Context) -> Response<Body> {
    let Some(path) = path else { return unreadable(&id, &io::ErrorKind::NotFound.into()) };
    let follow = options.follow.then(|| Follow::new(&path, context.view.clone(), id.clone())).transpose();
    let now = (context.clock)().wall;
    let reader = tokio::task::spawn_blocking(move || LogReader::open(&path, &options, now)).await;
    match (follow, reader.map_err(io::Error::other).flatten()) {
        (Ok(follow), Ok(reader)) => reply::raw(logs::stream(reader, follow)),
        (Err(error), _) | (_, Err(error)) => unreadable(&id, &error),
    }
}

/// The kubelet says so in the place of the log, with status 200: by then it has begun to answer.
fn unreadable(id: &ContainerId, error: &io::Error) -> Response<Body> {
    tracing::warn!(container = %id, %error, "reading a container's log");
    let mut response = reply::text(StatusCode::OK, format!("unable to retrieve container logs for {RUNTIME}://{id}"));
    response.headers_mut().remove(hyper::header::CONTENT_TYPE);
    response
}

/// Which attempt's log is meant.
fn attempt(pod: &PodView, container: &str, previous: bool) -> Result<ContainerId, NoLog> {
    let (name, pod_name) = (|| container.to_owned(), || pod.pod.name.clone());
    if !pods::has_container(pod, container) {
        return Err(NoLog::NoContainer { container: name(), pod: pod_name() });
    }
    let mut statuses = pod.status.containers.iter().chain(&pod.status.init_containers);
    let Some(status) = statuses.find(|c| c.name == container) else {
        return Err(NoLog::NoStatus { container: name(), pod: pod_name() });
    };
    let before = status.last_state.as_ref().and_then(|t| t.container_id.clone());
    if previous {
        return before.ok_or_else(|| NoLog::NoPrevious { container: name(), pod: pod_name() });
    }
    let gone = || NoLog::NoLongerKnown { container: name(), pod: pod_name() };
    match &status.state {
        State::Running { .. } => status.container_id.clone().ok_or_else(gone),
        // Without an id the attempt never came to be; the log before it says why.
        State::Terminated(ended) => ended.container_id.clone().or(before).ok_or_else(gone),
        State::Waiting { .. } if status.last_state.is_some() => before.ok_or_else(gone),
        State::Waiting { reason, .. } => {
            let why = match reason.as_str() {
                "ErrImagePull" => "image can't be pulled",
                "ImagePullBackOff" => "trying and failing to pull image",
                other => other,
            };
            Err(NoLog::Waiting { container: name(), pod: pod_name(), why: why.to_owned() })
        }
    }
}
