//! `/exec/{namespace}/{pod}[/{uid}]/{container}`: a program in a running container, its streams over a WebSocket.

use super::channel::Dialect;
use super::listen::Slot;
use super::query::Query;
use super::reply::{self, Body};
use super::route::Target;
use super::session::{self, Streams};
use super::{Command, Context, ExecSession, Refusal, pods, upgrade};
use crate::model::ContainerId;
use crate::model::status::State;
use crate::model::supervise::ExecSpec;
use crate::model::view::NodeView;
use hyper::body::Incoming;
use hyper::{Request, Response, StatusCode};
use tokio::sync::{mpsc, oneshot};

/// Why no program is run. Texts and codes are the kubelet's where it has them (`remotecommand.NewOptions`,
/// `server.go: getExec`).
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(super) enum NoExec {
    #[error("{0}\n")]
    Query(#[from] super::query::QueryError),
    #[error("you must specify at least 1 of stdin, stdout, stderr")]
    NoStreams,
    #[error("you must specify a command")]
    NoCommand,
    #[error("pod does not exist")]
    NoPod,
    #[error("container not found ({0:?})")]
    NoContainer(String),
    #[error("container {container:?} in pod {pod:?} is not running")]
    NotRunning { container: String, pod: String },
    #[error(transparent)]
    Upgrade(#[from] upgrade::NoUpgrade),
}

impl NoExec {
    fn status(&self) -> StatusCode {
        match self {
            Self::Query(_) | Self::NoStreams | Self::NoCommand => StatusCode::BAD_REQUEST,
            Self::NoPod => StatusCode::NOT_FOUND,
            Self::NoContainer(_) | Self::NotRunning { .. } => StatusCode::INTERNAL_SERVER_ERROR,
            Self::Upgrade(why) => why.status(),
        }
    }
}

/// Answers one request; what follows the answer runs as a task of its own.
pub(super) fn answer(target: &Target, mut request: Request<Incoming>, context: &Context) -> Response<Body> {
    let plan = Query::parse(request.uri().query()).map_err(NoExec::from).and_then(|query| {
        let (streams, program) = read(&query)?;
        let id = container(&context.now(), target)?;
        Ok((streams, program.place(id, streams), upgrade::check(request.headers())?, query.flag("exitCode")))
    });
    let (streams, spec, agreed, exit_codes) = match plan {
        Ok(plan) => plan,
        Err(error) => return reply::text(error.status(), error.to_string()),
    };
    let slot = request.extensions_mut().remove::<Slot>();
    let commands = context.commands.clone();
    let dialect = Dialect { version: agreed.version, exit_codes };
    tokio::spawn(async move {
        run(request, spec, streams, dialect, commands).await;
        drop(slot);
    });
    upgrade::switching(&agreed)
}

/// What is to run, wherever it may be.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Program {
    command: Vec<String>,
    size: Option<(u16, u16)>,
}

impl Program {
    fn place(self, id: ContainerId, streams: Streams) -> ExecSpec {
        let Self { command, size } = self;
        ExecSpec { id, command, tty: streams.tty, stdin: streams.stdin, size, timeout_ms: None }
    }
}

/// The streams and the program of a query.
fn read(query: &Query) -> Result<(Streams, Program), NoExec> {
    let tty = query.flag("tty");
    let streams = Streams {
        stdin: query.flag("input"),
        stdout: query.flag("output"),
        // A terminal has one output.
        stderr: query.flag("error") && !tty,
        tty,
    };
    if !(streams.stdin || streams.stdout || streams.stderr) {
        return Err(NoExec::NoStreams);
    }
    let command: Vec<String> = query.all("command").map(str::to_owned).collect();
    if command.is_empty() {
        return Err(NoExec::NoCommand);
    }
    // armlet's own addition: the window's size from the first instruction on, not a message later.
    let number = |name| query.first(name).and_then(|v| v.parse().ok());
    Ok((streams, Program { command, size: number("width").zip(number("height")).filter(|_| tty) }))
}

/// The running attempt that is meant.
fn container(view: &NodeView, target: &Target) -> Result<ContainerId, NoExec> {
    let pod = pods::find(view, &target.namespace, &target.pod, target.uid.as_deref()).ok_or(NoExec::NoPod)?;
    if !pods::has_container(pod, &target.container) {
        return Err(NoExec::NoContainer(target.container.clone()));
    }
    let mut statuses = pod.status.containers.iter().chain(&pod.status.init_containers);
    let running = statuses.find(|c| c.name == target.container && matches!(c.state, State::Running { .. }));
    running
        .and_then(|c| c.container_id.clone())
        .ok_or_else(|| NoExec::NotRunning { container: target.container.clone(), pod: target.pod.clone() })
}

async fn run(
    request: Request<Incoming>,
    spec: ExecSpec,
    streams: Streams,
    dialect: Dialect,
    commands: mpsc::Sender<Command>,
) {
    let (socket, exec) = tokio::join!(upgrade::take_over(request), start(spec, &commands));
    match (socket, exec) {
        (Ok((socket, hangup)), Ok(exec)) => session::run(socket, &hangup, exec, streams, dialect, &commands).await,
        (Ok((socket, _)), Err(refusal)) => session::refuse(socket, streams, dialect, refusal).await,
        (Err(error), exec) => {
            tracing::debug!(%error, "a session does not begin");
            if let Ok(ExecSession { session, .. }) = exec {
                session::kill(session, &commands).await;
            }
        }
    }
}

async fn start(spec: ExecSpec, commands: &mpsc::Sender<Command>) -> Result<ExecSession, Refusal> {
    let (reply, answer) = oneshot::channel();
    commands.send(Command::Exec { spec, reply }).await.map_err(|_| Refusal::gone())?;
    answer.await.map_err(|_| Refusal::gone())?
}

#[cfg(test)]
mod tests {
    use super::*;

    fn query(text: &str) -> Result<(Streams, Program), NoExec> {
        read(&Query::parse(Some(text)).unwrap())
    }

    #[test]
    fn the_query_says_what_to_run() {
        let (streams, program) = query("command=sh&command=-c&command=id&input=1&output=true&error=1").unwrap();
        assert_eq!(streams, Streams { stdin: true, stdout: true, stderr: true, tty: false });
        assert_eq!(program, Program { command: vec!["sh".into(), "-c".into(), "id".into()], size: None });
        let (streams, program) = query("command=sh&output=1&error=1&tty=1&width=100&height=40").unwrap();
        assert_eq!(streams, Streams { stdin: false, stdout: true, stderr: false, tty: true });
        assert_eq!(program.size, Some((100, 40)));
        assert_eq!(query("command=sh&output=1&tty=1&width=100&height=x").unwrap().1.size, None);
        assert_eq!(query("command=sh&output=1&width=100&height=40").unwrap().1.size, None);
    }

    #[test]
    fn a_query_without_streams_or_command_is_refused() {
        assert_eq!(query("command=true").unwrap_err(), NoExec::NoStreams);
        assert_eq!(query("command=true&tty=1&error=1").unwrap_err(), NoExec::NoStreams);
        assert_eq!(query("output=1").unwrap_err(), NoExec::NoCommand);
        assert_eq!(NoExec::NoStreams.status(), StatusCode::BAD_REQUEST);
    }
}
