//! Scripts in the guest: the host's side of `tests/vm/guest/shell.sh`, where the protocol is described.

use crate::Error;
use base64::Engine;
use std::collections::HashMap;
use std::io::{BufRead, BufReader, Read, Write};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError, mpsc};
use std::time::Duration;

/// How a script in the guest ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Output {
    /// Exit status as a shell gives it; 137 when it was killed at its time limit.
    pub status: i32,
    /// What it wrote to standard output.
    pub stdout: String,
    /// What it wrote to standard error.
    pub stderr: String,
}

impl Output {
    /// True for exit status 0.
    pub fn success(&self) -> bool {
        self.status == 0
    }
}

/// Scripts whose answer is awaited. The reading thread empties it when the guest is gone.
type Waiting = Arc<Mutex<Option<HashMap<u64, mpsc::Sender<Output>>>>>;

pub(crate) struct Shell {
    stream: Mutex<UnixStream>,
    waiting: Waiting,
    next: AtomicU64,
}

impl Shell {
    /// Takes the QEMU end of the port. The guest need not have opened its end yet: what is sent waits for it.
    pub(crate) fn connect(path: &Path) -> Result<Self, Error> {
        let error = |source| Error::Io { operation: "connect to", path: path.to_owned(), source };
        let stream = UnixStream::connect(path).map_err(error)?;
        let reader = stream.try_clone().map_err(error)?;
        let waiting: Waiting = Arc::new(Mutex::new(Some(HashMap::new())));
        let shared = Arc::clone(&waiting);
        std::thread::spawn(move || {
            // The end of the stream and a broken answer mean the same: nobody will be answered any more.
            let _ = deliver(BufReader::new(reader), &shared);
            *shared.lock().unwrap_or_else(PoisonError::into_inner) = None;
        });
        Ok(Self { stream: Mutex::new(stream), waiting, next: AtomicU64::new(1) })
    }

    /// Runs a script with the guest's `sh`; the guest kills it after `limit`.
    pub(crate) fn run(&self, script: &str, limit: Duration) -> Result<Output, Error> {
        let id = self.next.fetch_add(1, Ordering::Relaxed);
        let (sender, receiver) = mpsc::channel();
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner).as_mut().ok_or(Error::Gone)?.insert(id, sender);
        let seconds = limit.as_secs().max(1);
        let line = format!("{id} {seconds} {}\n", base64::engine::general_purpose::STANDARD.encode(script));
        self.stream
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .write_all(line.as_bytes())
            .map_err(|_| Error::Gone)?;
        // The guest keeps the limit; this one is for a guest that hangs, so it is generous.
        let limit = limit + Duration::from_secs(30);
        receiver.recv_timeout(limit).map_err(|error| match error {
            mpsc::RecvTimeoutError::Timeout => Error::Timeout(limit),
            mpsc::RecvTimeoutError::Disconnected => Error::Gone,
        })
    }
}

/// Hands out the answers until the stream ends.
fn deliver(mut reader: impl BufRead, waiting: &Waiting) -> std::io::Result<()> {
    while let Some((id, output)) = read_answer(&mut reader)? {
        if let Some(senders) = waiting.lock().unwrap_or_else(PoisonError::into_inner).as_mut()
            && let Some(sender) = senders.remove(&id)
        {
            // Whoever asked may have given up.
            let _ = sender.send(output);
        }
    }
    Ok(())
}

fn read_answer(reader: &mut impl BufRead) -> std::io::Result<Option<(u64, Output)>> {
    let mut line = String::new();
    if reader.read_line(&mut line)? == 0 {
        return Ok(None);
    }
    let bad = || std::io::Error::new(std::io::ErrorKind::InvalidData, line.clone());
    let fields: Vec<u64> = line.split_whitespace().map_while(|field| field.parse().ok()).collect();
    let [id, status, stdout, stderr] = fields[..] else { return Err(bad()) };
    let status = i32::try_from(status).map_err(|_| bad())?;
    Ok(Some((id, Output { status, stdout: read_text(reader, stdout)?, stderr: read_text(reader, stderr)? })))
}

fn read_text(reader: &mut impl BufRead, length: u64) -> std::io::Result<String> {
    let mut bytes = Vec::new();
    reader.take(length).read_to_end(&mut bytes)?;
    Ok(String::from_utf8_lossy(&bytes).into_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn answers_are_read_by_their_lengths() {
        let mut stream = "7 0 3 0\na\nb12 137 0 4\noh\n\n".as_bytes();
        let (id, output) = read_answer(&mut stream).unwrap().unwrap();
        assert_eq!((id, output.status, output.stdout.as_str(), output.stderr.as_str()), (7, 0, "a\nb", ""));
        let (id, output) = read_answer(&mut stream).unwrap().unwrap();
        assert_eq!((id, output.status, output.stdout.as_str(), output.stderr.as_str()), (12, 137, "", "oh\n\n"));
        assert!(read_answer(&mut stream).unwrap().is_none());
    }

    #[test]
    fn a_broken_answer_is_an_error() {
        for line in ["7 0 3\n", "a b c d\n", "\n", "1 99999999999 0 0\n"] {
            assert!(read_answer(&mut line.as_bytes()).is_err(), "{line:?}");
        }
    }
}
