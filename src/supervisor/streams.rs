//! The descriptors of a container or an exec session: what its program writes to, and what the supervisor keeps.

use super::hand_over::Number;
use super::hand_over::claims::Claims;
use super::poller::{Interest, Poller, Source, Watched};
use crate::model::supervise::ChildReport;
use crate::sys::seqpacket;
use rustix::fd::{AsFd as _, OwnedFd};
use rustix::io::Errno;
use rustix::pipe::{PipeFlags, pipe_with};
use serde::{Deserialize, Serialize};
use std::io;

/// The ends that the child gets.
#[derive(Debug)]
pub(crate) struct ChildEnds {
    pub(crate) stdin: OwnedFd,
    pub(crate) stdout: OwnedFd,
    pub(crate) stderr: OwnedFd,
    pub(crate) report: OwnedFd,
    pub(crate) console: Option<OwnedFd>,
}

/// The ends that stay here. Kept open they make sure that a container never meets a closed pipe.
#[derive(Debug)]
pub(crate) struct OwnEnds {
    pub(crate) stdin: Option<OwnedFd>,
    /// Standard output and standard error; none on a terminal.
    pub(crate) outputs: Option<(OwnedFd, OwnedFd)>,
    pub(crate) report: OwnedFd,
    pub(crate) console: Option<OwnedFd>,
}

/// Makes the ends of standard streams, report pipe and, with `tty`, the socket for the terminal.
///
/// # Errors
/// Of pipe, socketpair and opening /dev/null.
pub(crate) fn make(tty: bool, stdin: bool) -> io::Result<(ChildEnds, OwnEnds)> {
    let (report, report_end) = pipe_with(PipeFlags::CLOEXEC)?;
    rustix::io::ioctl_fionbio(&report, true)?;
    if tty {
        let (console, console_end) = seqpacket::stream_pair()?;
        let child = ChildEnds {
            stdin: null()?,
            stdout: null()?,
            stderr: null()?,
            report: report_end,
            console: Some(console_end),
        };
        return Ok((child, OwnEnds { stdin: None, outputs: None, report, console: Some(console) }));
    }
    let (stdin_end, stdin) = if stdin {
        let (read, write) = pipe_with(PipeFlags::CLOEXEC)?;
        (read, Some(write))
    } else {
        (null()?, None)
    };
    let (stdout, stdout_end) = pipe_with(PipeFlags::CLOEXEC)?;
    let (stderr, stderr_end) = pipe_with(PipeFlags::CLOEXEC)?;
    let child =
        ChildEnds { stdin: stdin_end, stdout: stdout_end, stderr: stderr_end, report: report_end, console: None };
    Ok((child, OwnEnds { stdin, outputs: Some((stdout, stderr)), report, console: None }))
}

pub(crate) fn null() -> io::Result<OwnedFd> {
    Ok(std::fs::OpenOptions::new().read(true).write(true).open("/dev/null")?.into())
}

/// What a read of a report pipe brought.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Reports {
    pub(crate) reports: Vec<Result<ChildReport, String>>,
    /// The child has closed its end.
    pub(crate) closed: bool,
}

/// A report pipe with the half line that was read last.
#[derive(Debug)]
pub(crate) struct ReportPipe {
    pub(crate) pipe: Watched,
    half: Vec<u8>,
}

/// The same, as it is handed over.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct HandedReport {
    pub(crate) pipe: Number,
    #[serde(default)]
    half: Vec<u8>,
}

/// The longest report line that is understood.
const MAX_LINE: usize = 32 * 1024;

impl ReportPipe {
    pub(crate) fn new(pipe: Watched) -> Self {
        Self { pipe, half: Vec::new() }
    }

    pub(crate) fn hand(&self) -> HandedReport {
        HandedReport { pipe: Number::of(&self.pipe.fd), half: self.half.clone() }
    }

    pub(crate) fn adopt(
        handed: HandedReport,
        source: Source,
        poller: &mut Poller,
        claims: &mut Claims,
    ) -> Option<Self> {
        let pipe = poller.adopt(claims.take(handed.pipe)?, source, Interest::Read);
        Some(Self { pipe, half: handed.half })
    }

    /// Reads all that is there.
    pub(crate) fn read(&mut self) -> Reports {
        let mut found = Reports { reports: Vec::new(), closed: false };
        let mut buffer = [0; 4096];
        // A child that writes without end is read at most this often at a time.
        for _ in 0..16 {
            match rustix::io::read(&self.pipe.fd, &mut buffer[..]) {
                Ok(0) => {
                    found.closed = true;
                    break;
                }
                Ok(n) => take_lines(&mut self.half, buffer.get(..n).unwrap_or_default(), &mut found.reports),
                Err(Errno::INTR) => {}
                Err(Errno::AGAIN) => break,
                Err(_) => {
                    found.closed = true;
                    break;
                }
            }
        }
        found
    }

    /// Ends the watch.
    pub(crate) fn close(self, poller: &mut Poller) {
        drop(poller.remove(self.pipe));
    }
}

fn take_lines(half: &mut Vec<u8>, bytes: &[u8], out: &mut Vec<Result<ChildReport, String>>) {
    let mut rest = bytes;
    while let Some(end) = rest.iter().position(|b| *b == b'\n') {
        let (line, after) = rest.split_at(end);
        half.extend_from_slice(line);
        out.push(parse(half));
        half.clear();
        rest = after.get(1..).unwrap_or_default();
    }
    if half.len().saturating_add(rest.len()) > MAX_LINE {
        out.push(Err("a report is too long".to_owned()));
        half.clear();
    } else {
        half.extend_from_slice(rest);
    }
}

fn parse(line: &[u8]) -> Result<ChildReport, String> {
    match serde_json::from_slice(line) {
        Ok(ChildReport::Failed { code, mut reason, mut message }) => {
            clip(&mut reason, 128);
            clip(&mut message, 4096);
            Ok(ChildReport::Failed { code, reason, message })
        }
        Ok(report) => Ok(report),
        Err(e) => Err(format!("a report cannot be read: {e}")),
    }
}

fn clip(text: &mut String, max: usize) {
    text.truncate(text.floor_char_boundary(max));
}

/// Takes the terminal that a child sends. `Ok(None)`: not there yet.
///
/// # Errors
/// The child has closed the socket without sending one.
pub(crate) fn take_terminal(console: &OwnedFd) -> io::Result<Option<OwnedFd>> {
    let mut text = [0; 64];
    match seqpacket::receive(console.as_fd(), &mut text)? {
        None => Ok(None),
        Some(got) => match got.fds.into_iter().next() {
            Some(terminal) => Ok(Some(terminal)),
            None => Err(io::ErrorKind::UnexpectedEof.into()),
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn feed(chunks: &[&[u8]]) -> Vec<Result<ChildReport, String>> {
        let (mut half, mut out) = (Vec::new(), Vec::new());
        for chunk in chunks {
            take_lines(&mut half, chunk, &mut out);
        }
        out
    }

    #[test]
    fn reports_are_read_whatever_way_they_are_cut() {
        let all: &[u8] = b"{\"type\":\"created\",\"pid\":7}\n{\"type\":\"started\"}\n";
        for at in 0..all.len() {
            let (a, b) = all.split_at(at);
            assert_eq!(feed(&[a, b]), [Ok(ChildReport::Created { pid: 7 }), Ok(ChildReport::Started)]);
        }
        let long =
            format!("{{\"type\":\"failed\",\"code\":1,\"reason\":\"r\",\"message\":\"{}\"}}\n", "ä".repeat(5000));
        let Some(Ok(ChildReport::Failed { message, .. })) = feed(&[long.as_bytes()]).pop() else { panic!() };
        assert_eq!(message.len(), 4096);
        assert!(feed(&[&[b'x'; MAX_LINE], b"y"])[0].is_err());
    }

    proptest! {
        #[test]
        fn rubbish_neither_panics_nor_piles_up(chunks in prop::collection::vec(prop::collection::vec(any::<u8>(), 0..9000), 0..20)) {
            let (mut half, mut out) = (Vec::new(), Vec::new());
            for chunk in &chunks {
                take_lines(&mut half, chunk, &mut out);
                prop_assert!(half.len() <= MAX_LINE);
            }
        }
    }
}
