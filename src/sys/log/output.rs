//! The node's own log: one line per record on standard error.
//!
//! A subscriber of our own, because the usual one costs 300 KB and a thread-local buffer for what one `write` does.
//!
//! It never waits: standard error may be a serial line that somebody has stopped, and who logs may be process 1. A
//! little is kept for later, lines beyond that are dropped and counted.

use super::clock;
use rustix::fd::{AsFd, AsRawFd as _, BorrowedFd, OwnedFd};
use rustix::fs::{FileType, Mode, OFlags};
use rustix::io::Errno;
use rustix::net::SendFlags;
use std::fmt::Write as _;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Mutex, OnceLock, PoisonError};
use tracing::field::{Field, Visit};
use tracing::level_filters::LevelFilter;
use tracing::span::{Attributes, Id, Record};
use tracing::{Event, Level, Metadata, Subscriber};

static LEVEL: AtomicUsize = AtomicUsize::new(2);

/// Chooses what is logged from now on, by the kubelet's `-v` numbers: below 2 warnings and errors only, 2 and 3
/// information, 4 and 5 debugging, above that everything.
pub fn set_verbosity(v: u8) {
    LEVEL.store(usize::from(v), Ordering::Relaxed);
    tracing::callsite::rebuild_interest_cache();
}

fn max_level() -> LevelFilter {
    match LEVEL.load(Ordering::Relaxed) {
        0 | 1 => LevelFilter::WARN,
        2 | 3 => LevelFilter::INFO,
        4 | 5 => LevelFilter::DEBUG,
        _ => LevelFilter::TRACE,
    }
}

/// Sends this process' records to standard error, each line marked with the role. Later calls change nothing.
pub fn init(role: &'static str) {
    let sink = Stderr { role, spans: AtomicU64::new(1), output: OnceLock::new(), backlog: Mutex::default() };
    // A second subscriber is refused by tracing, which is what "changes nothing" means.
    let _ = tracing::subscriber::set_global_default(sink);
}

/// An error with all its causes in one line.
#[must_use]
pub fn chain(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        let _ = write!(text, ": {error}");
        cause = error.source();
    }
    text
}

struct Stderr {
    role: &'static str,
    spans: AtomicU64,
    output: OnceLock<Output>,
    backlog: Mutex<Backlog>,
}

impl Stderr {
    fn write(&self, bytes: &[u8]) -> rustix::io::Result<usize> {
        if self.output.get().is_none()
            && let Some(output) = Output::to(rustix::stdio::stderr())
        {
            // Should another thread have been first, its is as good.
            let _ = self.output.set(output);
        }
        self.output.get().unwrap_or(&Output::Shared).write(rustix::stdio::stderr(), bytes)
    }
}

/// The way to a descriptor that others write to as well.
#[derive(Debug)]
enum Output {
    /// The file, opened once more: that it does not wait holds for this open file only, so nobody else meets it.
    Own(OwnedFd),
    /// A socket, which says with each message that it does not wait.
    Socket,
    /// As it is.
    Shared,
}

impl Output {
    /// Finds it; `None` as long as it cannot be said, because `/proc` is not mounted yet.
    fn to(fd: BorrowedFd<'_>) -> Option<Self> {
        match rustix::fs::fstat(fd).map(|stat| FileType::from_raw_mode(stat.st_mode)) {
            Ok(FileType::CharacterDevice | FileType::Fifo) => {
                let flags = OFlags::WRONLY | OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::CLOEXEC;
                match rustix::fs::open(format!("/proc/self/fd/{}", fd.as_raw_fd()), flags, Mode::empty()) {
                    Ok(own) => Some(Self::Own(own)),
                    Err(Errno::NOENT) => None,
                    Err(_) => Some(Self::Shared),
                }
            }
            Ok(FileType::Socket) => Some(Self::Socket),
            // A file does not wait for anybody, and has a position that is to be shared.
            _ => Some(Self::Shared),
        }
    }

    fn write(&self, fd: BorrowedFd<'_>, bytes: &[u8]) -> rustix::io::Result<usize> {
        match self {
            Self::Own(own) => rustix::io::write(own.as_fd(), bytes),
            Self::Socket => rustix::net::send(fd, bytes, SendFlags::DONTWAIT | SendFlags::NOSIGNAL),
            Self::Shared => rustix::io::write(fd, bytes),
        }
    }
}

/// What is kept at most of lines that nobody has taken yet: a burst on a slow serial line.
const BACKLOG: usize = 8 * 1024;

/// Lines that wait, and the number of those that were dropped after them. Pure but for the writer that it is given.
#[derive(Debug, Default)]
struct Backlog {
    unsent: Vec<u8>,
    dropped: u64,
}

impl Backlog {
    /// Writes a line, or keeps it, or drops and counts it. `notice` makes a line of the number of dropped ones.
    fn put(
        &mut self,
        line: &[u8],
        notice: impl FnOnce(u64) -> String,
        mut write: impl FnMut(&[u8]) -> rustix::io::Result<usize>,
    ) {
        self.send(&mut write);
        if self.dropped > 0 && self.unsent.is_empty() {
            self.unsent.extend_from_slice(notice(self.dropped).as_bytes());
            self.dropped = 0;
            self.send(&mut write);
        }
        // Once something was dropped nothing is kept before that is said: lines stay in their order.
        if self.dropped > 0 || (!self.unsent.is_empty() && self.unsent.len().saturating_add(line.len()) > BACKLOG) {
            self.dropped = self.dropped.saturating_add(1);
            return;
        }
        self.unsent.extend_from_slice(line);
        self.send(&mut write);
    }

    /// Writes what can be written now.
    fn send(&mut self, write: &mut impl FnMut(&[u8]) -> rustix::io::Result<usize>) {
        let mut sent = 0;
        while let Some(rest) = self.unsent.get(sent..).filter(|rest| !rest.is_empty()) {
            match write(rest) {
                Ok(0) => break,
                Ok(n) => sent = sent.saturating_add(n),
                Err(Errno::INTR) => {}
                Err(_) => break,
            }
        }
        if sent >= self.unsent.len() {
            self.unsent = Vec::new();
        } else {
            self.unsent.drain(..sent);
        }
    }
}

impl Subscriber for Stderr {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        *metadata.level() <= max_level()
    }

    fn max_level_hint(&self) -> Option<LevelFilter> {
        Some(max_level())
    }

    fn new_span(&self, _: &Attributes<'_>) -> Id {
        Id::from_u64(self.spans.fetch_add(1, Ordering::Relaxed).max(1))
    }

    fn record(&self, _: &Id, _: &Record<'_>) {}

    fn record_follows_from(&self, _: &Id, _: &Id) {}

    fn event(&self, event: &Event<'_>) {
        let letter = match *event.metadata().level() {
            Level::ERROR => 'E',
            Level::WARN => 'W',
            Level::INFO => 'I',
            Level::DEBUG => 'D',
            Level::TRACE => 'T',
        };
        let time = clock::now().wall.rfc3339_nanos();
        let mut line = Line(format!("{time} {letter} {}:", self.role));
        event.record(&mut line);
        line.0.push('\n');
        let notice =
            |dropped| format!("{time} W {}: lines were dropped, nobody took them count={dropped}\n", self.role);
        let mut backlog = self.backlog.lock().unwrap_or_else(PoisonError::into_inner);
        backlog.put(line.0.as_bytes(), notice, |bytes| self.write(bytes));
    }

    fn enter(&self, _: &Id) {}

    fn exit(&self, _: &Id) {}
}

/// One record being put together. Line breaks are escaped: a record is a line, whatever a workload named its things.
struct Line(String);

impl Line {
    fn push(&mut self, name: &str, value: &str) {
        self.0.push(' ');
        if name != "message" {
            self.0.push_str(name);
            self.0.push('=');
        }
        for c in value.chars() {
            if c.is_control() {
                let _ = write!(self.0, "{}", c.escape_default());
            } else {
                self.0.push(c);
            }
        }
    }
}

impl Visit for Line {
    fn record_str(&mut self, field: &Field, value: &str) {
        self.push(field.name(), value);
    }

    fn record_debug(&mut self, field: &Field, value: &dyn std::fmt::Debug) {
        self.push(field.name(), &format!("{value:?}"));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_record_is_one_line_whatever_it_holds() {
        let mut line = Line(String::new());
        line.push("message", "two\nlines \u{1b}[31m");
        line.push("pod", "a\rb");
        assert_eq!(line.0, " two\\nlines \\u{1b}[31m pod=a\\rb");
    }

    /// Puts lines while the other side takes so many bytes at each of them.
    fn put(lines: &[(&str, usize)]) -> String {
        let (mut backlog, mut out) = (Backlog::default(), String::new());
        for (line, room) in lines {
            let mut room = *room;
            backlog.put(
                line.as_bytes(),
                |count| format!("{count} dropped\n"),
                |bytes| {
                    let n = bytes.len().min(room);
                    room -= n;
                    out.push_str(std::str::from_utf8(&bytes[..n]).unwrap());
                    if n == 0 { Err(Errno::AGAIN) } else { Ok(n) }
                },
            );
            assert!(backlog.unsent.len() <= BACKLOG.max(line.len()));
        }
        out
    }

    #[test]
    fn a_line_waits_or_is_dropped_whole_and_counted() {
        let long = format!("{}\n", "x".repeat(BACKLOG - 10));
        let all = 100_000;
        for (what, lines, wanted) in [
            ("all is taken", &[("a\n", all), ("b\n", all)][..], "a\nb\n".to_owned()),
            ("a torn line is finished first", &[("abc\n", 2), ("d\n", all)], "abc\nd\n".to_owned()),
            ("a little is kept", &[("a\n", 0), ("b\n", 0), ("c\n", all)], "a\nb\nc\n".to_owned()),
            (
                "the rest is counted, in its place",
                &[(&long, 0), ("0123456789\n", 0), ("b\n", 0), ("c\n", all), ("d\n", all)],
                format!("{long}2 dropped\nc\nd\n"),
            ),
            (
                "the count itself may wait",
                &[(&long, 0), ("0123456789\n", 0), ("b\n", long.len() + 3), ("c\n", all)],
                format!("{long}1 dropped\nb\nc\n"),
            ),
        ] {
            assert_eq!(put(lines), wanted, "{what}");
        }
    }

    #[test]
    fn a_terminal_that_was_stopped_is_not_waited_for() {
        use rustix::pty::OpenptFlags;
        let master = rustix::pty::openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY).unwrap();
        rustix::pty::unlockpt(&master).unwrap();
        let side = rustix::pty::ioctl_tiocgptpeer(&master, OpenptFlags::RDWR | OpenptFlags::NOCTTY).unwrap();
        let output = Output::to(side.as_fd()).unwrap();
        rustix::termios::tcflow(&side, rustix::termios::Action::OOff).unwrap();
        let stopped = (0..10_000).find_map(|_| output.write(side.as_fd(), b"a line\n").err());
        assert_eq!(stopped, Some(Errno::AGAIN));
        rustix::termios::tcflow(&side, rustix::termios::Action::OOn).unwrap();
        assert_eq!(output.write(side.as_fd(), b"a line\n"), Ok(7));
    }

    #[test]
    fn a_full_pipe_is_not_waited_for_and_stays_as_others_have_it() {
        let (read, write) = rustix::pipe::pipe().unwrap();
        let output = Output::to(write.as_fd()).unwrap();
        assert!(matches!(output, Output::Own(_)));
        let full = (0..10_000).find_map(|_| output.write(write.as_fd(), &[b'x'; 4096]).err());
        assert_eq!(full, Some(Errno::AGAIN));
        assert!(!rustix::fs::fcntl_getfl(&write).unwrap().contains(OFlags::NONBLOCK));
        rustix::io::read(&read, &mut [0; 65_536][..]).unwrap();
        assert_eq!(output.write(write.as_fd(), b"again"), Ok(5));
        let (one, other) = std::os::unix::net::UnixStream::pair().unwrap();
        let output = Output::to(one.as_fd()).unwrap();
        assert!(matches!(output, Output::Socket));
        let full = (0..10_000).find_map(|_| output.write(one.as_fd(), &[b'x'; 4096]).err());
        assert_eq!(full, Some(Errno::AGAIN));
        drop(other);
        assert!(matches!(Output::to(tempfile::tempfile().unwrap().as_fd()), Some(Output::Shared)));
    }
}
