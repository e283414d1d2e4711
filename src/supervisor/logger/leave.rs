//! How a logger makes room for one of another build: lines that have begun go through memory files, everything else is in
//! the logs or still in the pipes.

use super::protocol::Report;
use super::{Logger, lines};
use crate::model::time::Now;
use crate::sys::{exe, seqpacket};
use rustix::event::{PollFd, PollFlags};
use rustix::fd::{AsFd as _, OwnedFd};
use std::fs;
use std::io::{self, Read as _};

impl Logger {
    /// Gives back the lines that have begun. All others are in their files; what is not read stays in the pipes.
    pub(super) fn leave(&mut self, now: Now) {
        self.tell_dropped(now, true);
        for (id, log) in &mut self.logs {
            for (index, slot) in log.sources.iter_mut().enumerate() {
                let half = slot.take().map(|(_, cutter)| cutter.into_half()).unwrap_or_default();
                if half.is_empty() {
                    continue;
                }
                let said = exe::sealed_bytes("half a line", &half)
                    .and_then(|half| send_and_wait(&self.socket.fd, &Report::Half { id: id.clone(), index }, &half));
                if let Err(e) = said {
                    tracing::error!(container = %id, error = %e, "half a line is lost");
                }
            }
        }
    }
}

/// Each output with the line that had begun there: their memory files follow behind the outputs.
pub(super) fn outputs(mut fds: Vec<OwnedFd>, halves: [bool; 2]) -> Vec<(OwnedFd, Vec<u8>)> {
    let files = fds.split_off(fds.len().saturating_sub(halves.iter().filter(|half| **half).count()));
    let mut files = files.into_iter();
    let mut half = |there: bool| if there { files.next().map(read_half).unwrap_or_default() } else { Vec::new() };
    let halves = halves.map(&mut half);
    fds.into_iter().zip(halves).collect()
}

fn read_half(file: OwnedFd) -> Vec<u8> {
    let mut half = Vec::new();
    let most = u64::try_from(lines::MAX_TEXT).unwrap_or(u64::MAX);
    match fs::File::from(file).take(most).read_to_end(&mut half) {
        Ok(_) => half,
        Err(e) => {
            tracing::error!(error = %e, "half a line is lost");
            Vec::new()
        }
    }
}

/// Sends a report, waiting while the socket is full.
fn send_and_wait(socket: &OwnedFd, report: &Report, fd: &OwnedFd) -> io::Result<()> {
    let bytes = serde_json::to_vec(report)?;
    while !seqpacket::send(socket.as_fd(), &bytes, &[fd.as_fd()])? {
        rustix::event::poll(&mut [PollFd::new(socket, PollFlags::OUT)], None)?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn half_lines_find_their_outputs() {
        let file = |text: &[u8]| exe::sealed_bytes("t", text).unwrap();
        let halves = |fds: Vec<OwnedFd>, there| -> Vec<Vec<u8>> {
            outputs(fds, there).into_iter().map(|(_, half)| half).collect()
        };
        let (one, two): (&[u8], &[u8]) = (b"one", b"two");
        assert_eq!(halves(vec![file(b""), file(b"")], [false, false]), [b"", b""]);
        assert_eq!(halves(vec![file(b""), file(b""), file(one)], [true, false]), [one, b""]);
        assert_eq!(halves(vec![file(b""), file(b""), file(two)], [false, true]), [b"", two]);
        assert_eq!(halves(vec![file(b""), file(b""), file(one), file(two)], [true, true]), [one, two]);
        assert_eq!(halves(vec![file(b""), file(one)], [true, false]), [one], "a terminal");
        assert_eq!(halves(vec![file(one)], [true, true]), Vec::<Vec<u8>>::new(), "fewer than said");
        assert_eq!(halves(vec![file(b""), file(&[b'x'; 20_000])], [true, false])[0].len(), lines::MAX_TEXT);
    }
}
