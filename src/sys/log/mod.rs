//! The node's own log: one line per record, on standard error and in a ring in memory.
//!
//! A subscriber of our own, because the usual one costs 300 KB and a thread-local buffer for what one `write` does.
//!
//! It never waits: standard error may be a serial line that somebody has stopped, and who logs may be process 1. A
//! little is kept for later, lines beyond that are dropped and counted. The ring has them all the same. Where standard
//! error is systemd's journal each line begins with its priority instead of time and letter, which the journal has.
//!
//! - `output`: standard error. `ring`: the last lines. [`panics`]: what ended a process, kept on the disk.

mod output;
pub mod panics;
mod ring;

pub use ring::Lines;

use super::clock;
use crate::model::WallTime;
use crate::model::log::LogLevel;
use output::{Backlog, Output};
use ring::Ring;
use std::fmt::Write as _;
use std::sync::atomic::{AtomicU8, AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError, TryLockError};
use tracing::field::{Field, Visit};
use tracing::level_filters::LevelFilter;
use tracing::span::{Attributes, Id, Record};
use tracing::{Event, Level, Metadata, Subscriber};

/// What the agent keeps of its log in memory, in bytes: some thousand lines.
pub const AGENT_RING: usize = 256 * 1024;
/// What the supervisor keeps of it.
pub const SUPERVISOR_RING: usize = 32 * 1024;

/// The index of the level in [`LogLevel::ALL`].
static LEVEL: AtomicU8 = AtomicU8::new(2);

/// This process' log: one, as the process has one standard error and tracing one subscriber.
static SINK: OnceLock<Sink> = OnceLock::new();

/// Called after each record; see [`on_record`].
static TOLD: OnceLock<Box<dyn Fn() + Send + Sync>> = OnceLock::new();

/// Chooses what is logged from now on, until the process ends.
pub fn set_level(level: LogLevel) {
    let index = LogLevel::ALL.into_iter().position(|one| one == level).unwrap_or(2);
    LEVEL.store(u8::try_from(index).unwrap_or(2), Ordering::Relaxed);
    tracing::callsite::rebuild_interest_cache();
}

/// What is logged now.
#[must_use]
pub fn level() -> LogLevel {
    LogLevel::ALL.get(usize::from(LEVEL.load(Ordering::Relaxed))).copied().unwrap_or(LogLevel::Info)
}

fn max_level() -> LevelFilter {
    match level() {
        LogLevel::Error => LevelFilter::ERROR,
        LogLevel::Warn => LevelFilter::WARN,
        LogLevel::Info => LevelFilter::INFO,
        LogLevel::Debug => LevelFilter::DEBUG,
        LogLevel::Trace => LevelFilter::TRACE,
    }
}

/// Sends this process' records to standard error, each line marked with the role, and keeps the last `ring` bytes of
/// them in memory. Later calls change nothing.
pub fn init(role: &'static str, ring: usize) {
    let new = || Sink { role, journal: is_journal(), output: OnceLock::new(), state: Mutex::new(State::new(ring)) };
    SINK.get_or_init(new);
    // A second subscriber is refused by tracing, which is what "changes nothing" means.
    let _ = tracing::subscriber::set_global_default(Records { spans: AtomicU64::new(1) });
}

/// Whether this process' standard error is systemd's journal.
#[must_use]
pub fn is_journal() -> bool {
    std::env::var("JOURNAL_STREAM").is_ok_and(|named| output::is_journal(rustix::stdio::stderr(), &named))
}

/// Has this called after each record, by whoever made it: it must neither wait nor log. The first one stays.
pub fn on_record(told: impl Fn() + Send + Sync + 'static) {
    let _ = TOLD.set(Box::new(told));
}

/// The lines of the ring after number `after`, in at most `most` bytes.
#[must_use]
pub fn lines_after(after: u64, most: usize) -> Lines {
    SINK.get().map(|sink| sink.state().ring.after(after, most)).unwrap_or_default()
}

/// Puts lines of a program that this process was before this one's own; `next` is the number of the last of them.
pub fn follow(text: &str, next: u64) {
    if let Some(sink) = SINK.get() {
        sink.state().ring.follow(text, next);
    }
}

/// Keeps a line that another process of armlet has written and shown.
pub fn keep(line: &str) {
    if let Some(sink) = SINK.get() {
        sink.state().ring.push(line);
    }
}

/// How many lines were ever written to the ring.
#[must_use]
pub fn written() -> u64 {
    SINK.get().map_or(0, |sink| sink.state().ring.written())
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

struct Sink {
    role: &'static str,
    /// Standard error is the journal.
    journal: bool,
    output: OnceLock<Output>,
    state: Mutex<State>,
}

struct State {
    backlog: Backlog,
    ring: Ring,
}

impl State {
    fn new(ring: usize) -> Self {
        Self { backlog: Backlog::default(), ring: Ring::new(ring) }
    }
}

impl Sink {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Writes one record, whose text holds no line break.
    fn put(&self, state: &mut State, time: WallTime, letter: char, text: &str) {
        let line = shown(self.role, time, letter, text);
        state.ring.push(&line);
        let out = |letter, line: &str, text: &str| match self.journal {
            true => format!("<{}>{}: {text}\n", priority(letter), self.role),
            false => format!("{line}\n"),
        };
        let notice = |dropped| {
            let text = format!("lines were dropped, nobody took them count={dropped}");
            out('W', &shown(self.role, time, 'W', &text), &text)
        };
        state.backlog.put(out(letter, &line, text).as_bytes(), notice, |bytes| self.write(bytes));
    }

    fn write(&self, bytes: &[u8]) -> rustix::io::Result<usize> {
        if self.output.get().is_none()
            && let Some(output) = Output::to(rustix::stdio::stderr())
        {
            // Should another thread have been first, its is as good.
            let _ = self.output.set(output);
        }
        self.output.get().unwrap_or(&Output::Shared).write(rustix::stdio::stderr(), bytes)
    }

    /// Says something on the way down: whoever panics may be in the middle of a record.
    fn last_words(&self, time: WallTime, text: &str) {
        let state = match self.state.try_lock() {
            Ok(state) => Some(state),
            Err(TryLockError::Poisoned(poisoned)) => Some(poisoned.into_inner()),
            Err(TryLockError::WouldBlock) => None,
        };
        match state {
            Some(mut state) => self.put(&mut state, time, 'F', text),
            // Nobody is left to be told that this failed too.
            None => drop(self.write(format!("{}\n", shown(self.role, time, 'F', text)).as_bytes())),
        }
    }
}

/// A line as [`crate::model::log`] tells.
fn shown(role: &str, time: WallTime, letter: char, text: &str) -> String {
    format!("{} {letter} {role}: {text}", time.rfc3339_nanos())
}

/// The syslog priority that the journal takes in angle brackets (sd-daemon(3)).
const fn priority(letter: char) -> u8 {
    match letter {
        'F' => 2,
        'E' => 3,
        'W' => 4,
        'I' => 6,
        _ => 7,
    }
}

/// What tracing hands its records to.
struct Records {
    spans: AtomicU64,
}

impl Subscriber for Records {
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
        let Some(sink) = SINK.get() else { return };
        let letter = match *event.metadata().level() {
            Level::ERROR => 'E',
            Level::WARN => 'W',
            Level::INFO => 'I',
            Level::DEBUG => 'D',
            Level::TRACE => 'T',
        };
        let mut text = Text::default();
        event.record(&mut text);
        let time = clock::now().wall;
        sink.put(&mut sink.state(), time, letter, &text.0);
        if let Some(told) = TOLD.get() {
            told();
        }
    }

    fn enter(&self, _: &Id) {}

    fn exit(&self, _: &Id) {}
}

/// One record's text being put together. Line breaks are escaped: a record is a line, whatever a workload named its
/// things.
#[derive(Default)]
struct Text(String);

impl Text {
    fn push(&mut self, name: &str, value: &str) {
        if !self.0.is_empty() {
            self.0.push(' ');
        }
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

impl Visit for Text {
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
        let mut text = Text::default();
        text.push("message", "two\nlines \u{1b}[31m");
        text.push("pod", "a\rb");
        assert_eq!(text.0, "two\\nlines \\u{1b}[31m pod=a\\rb");
        assert_eq!(
            shown("agent", WallTime(1), 'I', &text.0).get(..43),
            Some("1970-01-01T00:00:00.000000001Z I agent: two")
        );
    }

    #[test]
    fn the_journal_gets_priorities() {
        let priorities: Vec<u8> = "FEWIDT".chars().map(priority).collect();
        assert_eq!(priorities, [2, 3, 4, 6, 7, 7]);
    }
}
