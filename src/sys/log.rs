//! The node's own log: one line per record on standard error.
//!
//! A subscriber of our own, because the usual one costs 300 KB and a thread-local buffer for what one `write` does.

use super::clock;
use std::fmt::Write as _;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
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
    let sink = Stderr { role, spans: AtomicU64::new(1) };
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
        let mut line = Line(format!("{} {letter} {}:", clock::now().wall.rfc3339_nanos(), self.role));
        event.record(&mut line);
        line.0.push('\n');
        // A log that cannot be written has nowhere to say so.
        let _ = rustix::io::write(rustix::stdio::stderr(), line.0.as_bytes());
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
}
