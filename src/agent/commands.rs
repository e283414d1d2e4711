//! What the API asks of the agent. Each command is answered by a task of its own: one that takes long holds nobody up.

use super::input::Input;
use crate::executor::Rooms;
use crate::model::supervise::{Ask, RefusalCode, Reply};
use crate::runtime::client::{ClientError, Session};
use crate::server::{Command, ExecSession, Refusal};
use crate::sys::log::chain;
use std::sync::Arc;
use tokio::sync::mpsc;

/// Answers one command.
pub(super) fn answer(rooms: &Arc<Rooms>, command: Command, tell: mpsc::UnboundedSender<Input>) {
    let rooms = Arc::clone(rooms);
    tokio::spawn(async move { perform(&rooms, command, &tell).await });
}

async fn perform(rooms: &Arc<Rooms>, command: Command, tell: &mpsc::UnboundedSender<Input>) {
    match command {
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
            let stats = match rooms.supervisor.ask(Ask::Stats).await {
                Ok(Reply::Stats(stats)) => Ok(stats),
                Ok(other) => Err(Refusal {
                    code: RefusalCode::System,
                    message: format!("read the supervisor's figures: unexpected answer {other:?}"),
                }),
                Err(error) => Err(refusal(error)),
            };
            let _ = reply.send(stats);
        }
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

/// A session that has just ended cannot be resized or killed, and that is no news to anyone.
fn told<T, E: std::error::Error>(result: Result<T, E>) {
    if let Err(error) = result {
        tracing::debug!("{}", chain(&error));
    }
}

fn refusal(error: ClientError) -> Refusal {
    Refusal { code: error.code(), message: chain(&error) }
}
