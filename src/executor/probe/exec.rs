//! A command in the container; exit code 0 is a success.

use super::{MAX_OUTPUT, ProbeResult, output};
use crate::model::ContainerId;
use crate::model::supervise::{ExecExit, ExecSpec};
use crate::runtime::client::{Client, ClientError, Session};
use crate::sys::log::chain;
use crate::sys::ready::Ready;
use std::io;
use std::os::fd::OwnedFd;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

/// The supervisor ends the command in time and then says so; this is for a supervisor that does not answer.
const ANSWER: Duration = Duration::from_secs(10);
/// What a grandchild that holds the output may still say after the command's end.
const DRAIN: Duration = Duration::from_millis(100);

pub(super) async fn probe(client: &Client, id: ContainerId, command: Vec<String>, timeout: Duration) -> ProbeResult {
    let text = command.join(" ");
    let timeout_ms = u64::try_from(timeout.as_millis()).ok();
    let spec = ExecSpec { id, command, tty: false, stdin: false, size: None, timeout_ms };
    match tokio::time::timeout(timeout.saturating_add(ANSWER), run(client, spec)).await {
        Ok(Ok((exit, said))) => verdict(exit, &said, &text, timeout),
        Ok(Err(error)) => ProbeResult::Unknown(chain(&error)),
        Err(_) => ProbeResult::Unknown(format!("no answer from the supervisor about {text:?}")),
    }
}

/// Runs the command. How it ended, if that became known, and the first of what it said on both outputs.
async fn run(client: &Client, spec: ExecSpec) -> Result<(Option<ExecExit>, Vec<u8>), ClientError> {
    let Session { fds, mut exit, .. } = client.exec(spec).await?;
    let mut said = Vec::new();
    let ended = {
        let reading = read_all(fds, &mut said);
        tokio::pin!(reading);
        // Usually the outputs end first; a grandchild that holds them must not hold up the verdict.
        tokio::select! {
            () = &mut reading => exit.await.ok(),
            ended = &mut exit => {
                let _late = tokio::time::timeout(DRAIN, &mut reading).await;
                ended.ok()
            }
        }
    };
    Ok((ended, said))
}

/// Reads all outputs to their ends, side by side; keeps only the first bytes, and goes on reading so that the command is
/// not held up.
async fn read_all(fds: Vec<OwnedFd>, said: &mut Vec<u8>) {
    let said = Mutex::new(said);
    let keep = |bytes: &[u8]| {
        let mut said = said.lock().unwrap_or_else(PoisonError::into_inner);
        let room = MAX_OUTPUT.saturating_sub(said.len());
        said.extend_from_slice(&bytes[..bytes.len().min(room)]);
    };
    futures_util::future::join_all(fds.into_iter().map(|fd| read_one(fd, &keep))).await;
}

async fn read_one(fd: OwnedFd, keep: &(impl Fn(&[u8]) + Sync)) {
    // The pipe's other end is the command's own; without this, reading would hold up the agent's thread.
    let nonblocking = rustix::io::ioctl_fionbio(&fd, true);
    let Ok(ready) = nonblocking.map_err(io::Error::from).and_then(|()| Ready::new(fd)) else { return };
    let mut buffer = [0; 4096];
    while let Ok(read @ 1..) = ready.read(|fd| Ok(rustix::io::read(fd, &mut buffer)?)).await {
        keep(&buffer[..read]);
    }
}

fn verdict(exit: Option<ExecExit>, said: &[u8], command: &str, timeout: Duration) -> ProbeResult {
    match exit {
        Some(ExecExit::Exited { code: 0 }) => ProbeResult::Success(output(said)),
        Some(ExecExit::Exited { .. }) => ProbeResult::Failure(output(said)),
        Some(ExecExit::TimedOut) => {
            ProbeResult::Failure(format!("command timed out: {command:?} timed out after {}s", timeout.as_secs()))
        }
        // The program is not there or not executable: the container's fault, so it counts.
        Some(ExecExit::Failed { code: 126 | 127, message }) => ProbeResult::Failure(message),
        Some(ExecExit::Failed { message, .. }) => ProbeResult::Unknown(message),
        None => ProbeResult::Unknown(format!("the end of {command:?} is not known")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;

    #[test]
    fn the_exit_decides() {
        let said = |exit| verdict(exit, b"words", "sh -c x", Duration::from_secs(2));
        assert_eq!(said(Some(ExecExit::Exited { code: 0 })), ProbeResult::Success("words".to_owned()));
        assert_eq!(said(Some(ExecExit::Exited { code: 1 })), ProbeResult::Failure("words".to_owned()));
        assert_eq!(said(Some(ExecExit::Exited { code: 137 })), ProbeResult::Failure("words".to_owned()));
        assert_eq!(
            said(Some(ExecExit::TimedOut)),
            ProbeResult::Failure("command timed out: \"sh -c x\" timed out after 2s".to_owned())
        );
        let failed = |code| said(Some(ExecExit::Failed { code, message: "no".to_owned() }));
        assert_eq!(failed(127), ProbeResult::Failure("no".to_owned()));
        assert_eq!(failed(128), ProbeResult::Unknown("no".to_owned()));
        assert!(matches!(said(None), ProbeResult::Unknown(_)));
    }

    #[tokio::test]
    async fn both_outputs_are_read_to_their_ends_and_cut() {
        for (length, kept) in [(10, 15), (300_000, MAX_OUTPUT)] {
            let (out, mut out_end) = io::pipe().unwrap();
            let (err, mut err_end) = io::pipe().unwrap();
            // More than a pipe holds: a reader that stopped would leave the writer hanging.
            let writer = std::thread::spawn(move || {
                err_end.write_all(b"words").unwrap();
                out_end.write_all(&vec![b'x'; length]).unwrap();
            });
            let mut said = Vec::new();
            read_all(vec![out.into(), err.into()], &mut said).await;
            writer.join().unwrap();
            assert_eq!(said.len(), kept);
        }
    }
}
