//! `armlet supervisor --replace-with FILE`: has the supervisor that runs become another program, and says how it went.

use crate::model::supervise::{Ask, MAX_MESSAGE, Message, Reply, Request};
use crate::sys::{exe, seqpacket};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fd::{AsFd as _, OwnedFd};
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};

/// How long an answer may take; a supervisor gives an offered program less.
const PATIENCE: Timespec = Timespec { tv_sec: 60, tv_nsec: 0 };

/// Why it was not replaced.
#[derive(Debug, thiserror::Error)]
pub(super) enum ReplaceError {
    /// A system call failed.
    #[error("{operation} {}", path.display())]
    System {
        /// What was tried.
        operation: &'static str,
        /// On which file.
        path: PathBuf,
        /// Why it failed.
        #[source]
        source: io::Error,
    },
    /// The supervisor has another opinion.
    #[error("the supervisor refuses: {0}")]
    Refused(String),
    /// It ended, or said something else.
    #[error("the supervisor gave no answer")]
    Silent,
}

/// Offers the program and waits for the end of it.
pub(super) fn replace(run: &Path, with: &Path) -> Result<(), ReplaceError> {
    let failed = |operation, path: &Path| {
        let path = path.to_owned();
        move |source| ReplaceError::System { operation, path, source }
    };
    let program = exe::protected_file(with).map_err(failed("open the program", with))?;
    let socket = run.join("supervisor.sock");
    let speak = failed("speak to the supervisor at", &socket);
    let connection = seqpacket::connect(&socket).map_err(failed("reach the supervisor at", &socket))?;
    let build = with.display().to_string();
    let done = (|| {
        let answer = ask(&connection, 1, Ask::HandOver { build }, Some(&program))?;
        if let Some(Reply::Done) = answer {
            return ask(&connection, 2, Ask::Stats, None);
        }
        Ok(answer)
    })();
    match done.map_err(speak)? {
        Some(Reply::Stats(stats)) => {
            // Who has closed standard output does not want to know.
            let _ = writeln!(io::stdout(), "the supervisor is {} now, process {}", stats.build, stats.pid);
            Ok(())
        }
        Some(Reply::Refused { message, .. }) => Err(ReplaceError::Refused(message)),
        _ => Err(ReplaceError::Silent),
    }
}

/// One request and its answer; none when there is none.
fn ask(connection: &OwnedFd, seq: u64, ask: Ask, fd: Option<&OwnedFd>) -> io::Result<Option<Reply>> {
    let request = serde_json::to_vec(&Request { seq, ask })?;
    let fds: Vec<_> = fd.iter().map(|fd| fd.as_fd()).collect();
    seqpacket::send(connection.as_fd(), &request, &fds)?;
    let mut buffer = vec![0; MAX_MESSAGE];
    while poll(&mut [PollFd::new(connection, PollFlags::IN)], Some(&PATIENCE))? > 0 {
        let Some(got) = seqpacket::receive(connection.as_fd(), &mut buffer)?.filter(|got| got.len > 0) else { break };
        match serde_json::from_slice(buffer.get(..got.len).unwrap_or_default())? {
            Message::Reply { seq: of, reply } if of == seq => return Ok(Some(reply)),
            _ => {}
        }
    }
    Ok(None)
}
