//! The kubelet's HTTP API, for now on a unix socket that only root can open.
//!
//! It shows the agent's published [`NodeView`] and streams logs and exec sessions; what has to be done it asks of the
//! agent through [`Command`]s. It changes no facts itself. Paths, status codes, bodies and stream protocols are those
//! of the upstream kubelet (`pkg/kubelet/server`) where it has them; armlet's own lie below `/armlet/v1/`.
//!
//! Nothing here has a clock or a timer while nobody asks: an idle server costs nothing. Answers of unknown length are
//! streamed with the client's pace, so memory stays flat.

mod channel;
mod command;
mod container_logs;
mod descriptor;
mod exec;
mod images;
mod listen;
mod logs;
mod node;
mod node_log;
mod pods;
mod query;
mod reply;
mod route;
mod session;
mod upgrade;
mod usage;

pub use command::{Command, ExecSession, LogMark, LogPart, Refusal};
pub use listen::{Listener, ServerError, bind};

use crate::model::time::Now;
use crate::model::view::NodeView;
use hyper::body::Incoming;
use hyper::{Request, Response};
use reply::Body;
use route::Route;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::{mpsc, oneshot, watch};

/// How long a question about pods waits for an agent that is just starting.
const STARTING: Duration = Duration::from_secs(5);

/// What the server needs of the rest of the node.
#[derive(Debug, Clone)]
pub struct Context {
    /// The agent's picture of the node.
    pub view: watch::Receiver<Arc<NodeView>>,
    /// What the server asks of the agent. Bounded; the agent answers each without waiting for the one before.
    pub commands: mpsc::Sender<Command>,
    /// Reads the clocks.
    pub clock: fn() -> Now,
}

impl Context {
    /// The picture as it is now.
    fn now(&self) -> Arc<NodeView> {
        Arc::clone(&self.view.borrow())
    }

    /// The picture with all pods in it, which an agent that has just started has only in a moment.
    async fn whole(&self) -> Result<Arc<NodeView>, Response<Body>> {
        let mut view = self.view.clone();
        match tokio::time::timeout(STARTING, view.wait_for(|view| view.settled)).await {
            Ok(Ok(view)) => Ok(Arc::clone(&view)),
            Ok(Err(_)) | Err(_) => {
                let why =
                    self.now().conditions.iter().map(|(word, text)| format!(" {word}: {text}.")).collect::<String>();
                let text = format!("the agent has not taken over the pods yet.{why}");
                Err(reply::text(hyper::StatusCode::SERVICE_UNAVAILABLE, text))
            }
        }
    }

    /// Has the agent do something and waits for its answer.
    async fn ask<T>(&self, command: Command, answer: oneshot::Receiver<Result<T, Refusal>>) -> Result<T, Refusal> {
        self.commands.send(command).await.map_err(|_| Refusal::gone())?;
        answer.await.unwrap_or_else(|_| Err(Refusal::gone()))
    }
}

/// Answers requests until the future is dropped.
pub async fn serve(listener: Listener, context: Context) {
    listen::accept(listener, Arc::new(context)).await;
}

/// Answers one request.
async fn answer(request: Request<Incoming>, context: &Context) -> Response<Body> {
    let route = route::route(request.method(), request.uri().path());
    let view = match route.is_about_pods() {
        true => context.whole().await,
        false => Ok(context.now()),
    };
    let view = match view {
        Ok(view) => view,
        Err(starting) => return starting,
    };
    match route {
        Route::Healthz => reply::text(hyper::StatusCode::OK, "ok"),
        Route::Pods => pods::list(&view),
        Route::ContainerLogs(target) => container_logs::answer(&target, request.uri().query(), context).await,
        Route::Exec(target) => exec::answer(&target, request, context),
        Route::Version => node::version(&view),
        Route::Inspect => node::inspect(&view),
        Route::InspectPod { namespace, pod } => node::inspect_pod(&view, &namespace, &pod),
        Route::Events => node::events(request.uri().query(), context),
        Route::Stats => usage::stats(context).await,
        Route::Usage => usage::usage(context).await,
        Route::Metrics => usage::metrics(context).await,
        Route::Pod { namespace, pod, verb } => node::pod(namespace, pod, verb, context).await,
        Route::RemoveImages => images::remove(request.uri().query(), context).await,
        Route::Log => node_log::answer(request.uri().query(), context).await,
        Route::LogLevel => node_log::level(request, context).await,
        Route::Images => images::list(context).await,
        Route::Import => images::import(request, context).await,
        Route::WrongMethod => reply::text(hyper::StatusCode::METHOD_NOT_ALLOWED, "405: Method Not Allowed"),
        Route::Unknown => reply::text(hyper::StatusCode::NOT_FOUND, "404 page not found\n"),
    }
}

#[cfg(test)]
mod tests;
