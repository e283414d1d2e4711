//! What the API asks of the agent. Each command is answered by a task of its own: one that takes long holds nobody up.

use super::input::Input;
use super::node_log::NodeLog;
use crate::executor::Rooms;
use crate::model::api::{LogLevels, Stats};
use crate::model::log::LogLevel;
use crate::model::supervise::{self, Ask, RefusalCode, Reply};
use crate::observe::{self, Ledgers};
use crate::runtime::client::{ClientError, Session};
use crate::server::{Command, ExecSession, Refusal};
use crate::sys::log::{self, chain};
use std::sync::Arc;
use tokio::sync::mpsc;

/// Answers one command.
pub(super) fn answer(at: &At, command: Command, tell: mpsc::UnboundedSender<Input>) {
    let at = at.clone();
    tokio::spawn(async move { perform(&at, command, &tell).await });
}

/// What commands are about.
#[derive(Debug, Clone)]
pub(super) struct At {
    pub(super) rooms: Arc<Rooms>,
    pub(super) ledgers: Arc<Ledgers>,
    pub(super) log: Arc<NodeLog>,
}

/// Asks the supervisor which process writes the logs: what it writes is counted.
pub(super) fn look_for_logger(rooms: &Arc<Rooms>, ledgers: &Arc<Ledgers>) {
    let (rooms, ledgers) = (Arc::clone(rooms), Arc::clone(ledgers));
    tokio::spawn(async move { told(ask_stats(&rooms, &ledgers).await) });
}

async fn ask_stats(rooms: &Rooms, ledgers: &Ledgers) -> Result<supervise::Stats, Refusal> {
    match rooms.supervisor.ask(Ask::Stats).await {
        Ok(Reply::Stats(stats)) => {
            ledgers.logger_is(stats.logger_pid);
            Ok(stats)
        }
        Ok(other) => Err(Refusal {
            code: RefusalCode::System,
            message: format!("read the supervisor's figures: unexpected answer {other:?}"),
        }),
        Err(error) => Err(refusal(error)),
    }
}

async fn stats(rooms: &Arc<Rooms>, ledgers: &Arc<Ledgers>) -> Result<Stats, Refusal> {
    let supervisor = ask_stats(rooms, ledgers).await?;
    let (rooms, ledgers) = (Arc::clone(rooms), Arc::clone(ledgers));
    let agent_pid = std::process::id();
    let roles = [("agent", Some(agent_pid)), ("supervisor", Some(supervisor.pid)), ("logger", supervisor.logger_pid)];
    let seen = tokio::task::spawn_blocking(move || {
        let processes = roles.into_iter().filter_map(|(role, pid)| Some(observe::process_usage(role, pid?)));
        (processes.collect(), ledgers.count(rooms.images.bytes_written()))
    });
    let (processes, written) = seen.await.unwrap_or_default();
    Ok(Stats { agent_pid, supervisor, processes, written })
}

async fn perform(at: &At, command: Command, tell: &mpsc::UnboundedSender<Input>) {
    let At { rooms, ledgers, log } = at;
    match command {
        Command::Log { after, wait, mut reply } => {
            // A client that goes away ends the wait.
            let part = tokio::select! {
                part = log.read(&rooms.supervisor, after, wait) => part,
                () = reply.closed() => return,
            };
            let _ = reply.send(part);
        }
        Command::LogLevel { set, reply } => {
            let _ = reply.send(log_level(rooms, set).await);
        }
        Command::Exec { spec, reply } => {
            // A client that went away meanwhile drops the session's descriptors, and the program sees its input end.
            let session = rooms.supervisor.exec(spec).await;
            let session = session.map(|Session { session, fds, exit }| ExecSession { session, fds, exit });
            let _ = reply.send(session.map_err(refusal));
        }
        Command::ResizeExec { session, width, height } => {
            told(rooms.supervisor.ask(Ask::ResizeExec { session, width, height }).await);
        }
        Command::KillExec { session } => told(rooms.supervisor.ask(Ask::KillExec { session }).await),
        Command::Stats { reply } => {
            let _ = reply.send(stats(rooms, ledgers).await);
        }
        Command::Usage { groups, reply } => {
            let used = tokio::task::spawn_blocking(move || groups.iter().map(|g| observe::group_usage(g)).collect());
            let _ = reply.send(Ok(used.await.unwrap_or_default()));
        }
        // The loop knows which images and pods it is about.
        Command::RemoveImages { .. } | Command::Pod { .. } => {}
        Command::Images { reply } => {
            let _ = reply.send(Ok(super::images::list(rooms)));
        }
        Command::Import { path, progress } => {
            super::images::import(rooms, path, progress).await;
            // Pods may have waited for it; a loop that has ended needs no telling.
            let _ = tell.send(Input::LookAtAll);
        }
    }
}

/// Chooses what agent and supervisor log, if a level is given, and tells what they do.
async fn log_level(rooms: &Rooms, set: Option<LogLevel>) -> LogLevels {
    let mut problem = None;
    if let Some(level) = set {
        log::set_level(level);
        tracing::info!(level = level.word(), "what is logged was changed");
        problem = rooms.supervisor.ask(Ask::SetLogLevel { level }).await.err().map(|error| chain(&error));
    }
    let supervisor = match rooms.supervisor.ask(Ask::Stats).await {
        Ok(Reply::Stats(stats)) => stats.log_level,
        _ => None,
    };
    LogLevels { agent: log::level(), supervisor, problem }
}

/// A session that has just ended cannot be resized or killed, and that is no news to anyone.
fn told<T, E: std::error::Error>(result: Result<T, E>) {
    if let Err(error) = result {
        tracing::debug!("{}", chain(&error));
    }
}

fn refusal(error: ClientError) -> Refusal {
    Refusal { code: error.code(), message: chain(&error) }
}
