//! armlet's own log: how much of it is written, and its lines.
//!
//! A line is `TIME L ROLE: TEXT`: the time in RFC 3339 with nine digits of fraction in UTC, a letter (F for what ended
//! the process, then E, W, I, D, T), the role, and the text with its fields.

use serde::{Deserialize, Serialize};

/// What is logged: this and all above it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum LogLevel {
    /// What was not done.
    Error,
    /// What is not as it should be.
    Warn,
    /// What happened.
    Info,
    /// What was decided and done.
    Debug,
    /// Everything.
    Trace,
}

impl LogLevel {
    /// All, the quietest first.
    pub const ALL: [Self; 5] = [Self::Error, Self::Warn, Self::Info, Self::Debug, Self::Trace];

    /// The kubelet's numbers: up to 3 information, 4 and 5 debugging, above that everything.
    #[must_use]
    pub const fn of_verbosity(v: u32) -> Self {
        match v {
            0..=3 => Self::Info,
            4 | 5 => Self::Debug,
            _ => Self::Trace,
        }
    }

    /// Reads a word, or a number from 0 to 10 as [`LogLevel::of_verbosity`] has it.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        let number = || text.parse::<u32>().ok().filter(|v| *v <= 10).map(Self::of_verbosity);
        Self::ALL.into_iter().find(|level| level.word().eq_ignore_ascii_case(text)).or_else(number)
    }

    /// Its word.
    #[must_use]
    pub const fn word(self) -> &'static str {
        match self {
            Self::Error => "error",
            Self::Warn => "warn",
            Self::Info => "info",
            Self::Debug => "debug",
            Self::Trace => "trace",
        }
    }
}

/// How long the time at the beginning of a line is.
const TIME: usize = 30;

/// The time that a line begins with, as text: it sorts as the moments do. Empty where there is none.
#[must_use]
pub fn time_of(line: &str) -> &str {
    line.get(..TIME).filter(|time| time.ends_with('Z')).unwrap_or_default()
}

/// The lines of several logs in the order of their times. Lines of one log stay in their order, also where its clock
/// was set back.
#[must_use]
pub fn merge(parts: &[String]) -> Vec<&str> {
    let mut parts: Vec<_> = parts.iter().map(|part| part.lines().peekable()).collect();
    let mut merged = Vec::new();
    loop {
        let heads = parts.iter_mut().enumerate().filter_map(|(n, lines)| Some((time_of(lines.peek()?), n)));
        // Of equal times the first log's line comes first.
        let Some((_, first)) = heads.min() else { return merged };
        merged.extend(parts.get_mut(first).and_then(Iterator::next));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn levels_are_words_and_the_kubelets_numbers() {
        for (text, level) in [
            ("error", Some(LogLevel::Error)),
            ("WARN", Some(LogLevel::Warn)),
            ("0", Some(LogLevel::Info)),
            ("3", Some(LogLevel::Info)),
            ("4", Some(LogLevel::Debug)),
            ("5", Some(LogLevel::Debug)),
            ("6", Some(LogLevel::Trace)),
            ("10", Some(LogLevel::Trace)),
            ("11", None),
            ("-1", None),
            ("", None),
            ("verbose", None),
        ] {
            assert_eq!(LogLevel::parse(text), level, "{text}");
        }
        assert!(LogLevel::Error < LogLevel::Trace);
    }

    #[test]
    fn logs_are_merged_by_time_and_each_keeps_its_order() {
        let line = |second: u32, what: &str| format!("2026-01-01T00:00:{second:02}.000000000Z I {what}\n");
        let part = |lines: &[(u32, &str)]| lines.iter().map(|(s, w)| line(*s, w)).collect::<String>();
        let parts = [part(&[(1, "a1"), (5, "a5"), (2, "a2"), (9, "a9")]), part(&[(1, "b1"), (3, "b3")]), String::new()];
        let merged: Vec<&str> = merge(&parts).into_iter().filter_map(|line| line.split(" I ").nth(1)).collect();
        assert_eq!(merged, ["a1", "b1", "b3", "a5", "a2", "a9"]);
        // What has no time is not lost, and comes before what follows it.
        assert_eq!(merge(&["no time\n".to_owned(), line(0, "x")])[0], "no time");
        assert_eq!(time_of("2026-01-01T00:00:00.000000000Z I x"), "2026-01-01T00:00:00.000000000Z");
        assert_eq!(time_of("\u{e9}".repeat(40).as_str()), "");
    }
}
