//! Pieces to whole lines, filtered and written out.

use super::line::{Line, Output};
use super::options::LogOptions;
use crate::model::WallTime;

/// Bytes of an unfinished line that are kept for its end. A longer line is written out piece by piece, so that a
/// container that never ends its line costs no memory.
const MAX_PENDING: usize = 256 * 1024;

/// Makes the text that the client reads out of the file's lines.
///
/// A line's pieces are put together even where the other output's lines lie between them; whole lines come out in the
/// order of their ends, each under the time of its first piece.
#[derive(Debug)]
pub(super) struct Joiner {
    timestamps: bool,
    since: Option<WallTime>,
    only: Option<Output>,
    /// Lines still to leave out at the beginning.
    skip: u64,
    /// Bytes still to write.
    left: Option<u64>,
    stdout: Pending,
    stderr: Pending,
    /// The output whose unfinished line was written last.
    open: Option<Output>,
}

/// What is known of an output's unfinished line.
#[derive(Debug, Default)]
struct Pending {
    /// The time of the first piece; none between lines.
    since: Option<WallTime>,
    content: Vec<u8>,
}

impl Joiner {
    /// `since` is the options' moment as seen from now; `skip` counts lines to leave out at the beginning.
    pub(super) fn new(options: &LogOptions, since: Option<WallTime>, skip: u64) -> Self {
        Self {
            timestamps: options.timestamps,
            since,
            only: options.only,
            skip,
            left: options.limit,
            stdout: Pending::default(),
            stderr: Pending::default(),
            open: None,
        }
    }

    /// Whether all was written that may be.
    pub(super) fn is_full(&self) -> bool {
        self.left == Some(0)
    }

    /// Takes one line of the file and writes what it completes.
    pub(super) fn push(&mut self, line: &Line<'_>, out: &mut Vec<u8>) {
        if self.only.is_some_and(|only| only != line.output) {
            return;
        }
        let skipping = self.skip > 0;
        let pending = self.pending(line.output);
        let time = *pending.since.get_or_insert(line.time);
        if !line.ends && (skipping || pending.content.len() + line.content.len() <= MAX_PENDING) {
            if pending.content.len() + line.content.len() <= MAX_PENDING {
                pending.content.extend_from_slice(line.content);
            }
            return;
        }
        let mut content = std::mem::take(&mut pending.content);
        if line.ends {
            pending.since = None;
        }
        if skipping {
            self.skip -= 1;
            return;
        }
        content.extend_from_slice(line.content);
        self.write(line.output, time, &content, line.ends, out);
    }

    /// Writes the unfinished lines: nothing more is to come, or not soon.
    pub(super) fn flush(&mut self, out: &mut Vec<u8>) {
        for output in [Output::Stdout, Output::Stderr] {
            let pending = self.pending(output);
            let content = std::mem::take(&mut pending.content);
            if let (false, Some(time)) = (content.is_empty(), pending.since) {
                self.write(output, time, &content, false, out);
            }
        }
    }

    fn pending(&mut self, output: Output) -> &mut Pending {
        match output {
            Output::Stdout => &mut self.stdout,
            Output::Stderr => &mut self.stderr,
        }
    }

    fn write(&mut self, output: Output, time: WallTime, content: &[u8], ends: bool, out: &mut Vec<u8>) {
        if self.since.is_some_and(|since| time < since) {
            return;
        }
        let begin = out.len();
        if self.open.is_some_and(|open| open != output) {
            out.push(b'\n');
            self.open = None;
        }
        if self.open.is_none() && self.timestamps {
            out.extend_from_slice(time.rfc3339_nanos().as_bytes());
            out.push(b' ');
        }
        out.extend_from_slice(content);
        if ends {
            out.push(b'\n');
        }
        self.open = (!ends).then_some(output);
        if let Some(left) = &mut self.left {
            let written = (out.len() - begin) as u64;
            if written > *left {
                out.truncate(begin + usize::try_from(*left).unwrap_or(usize::MAX));
            }
            *left = left.saturating_sub(written);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::line::parse;
    use super::*;

    fn join(options: &LogOptions, since: Option<&str>, skip: u64, lines: &[&str]) -> String {
        let since = since.map(|t| WallTime::parse_rfc3339(t).unwrap());
        let mut joiner = Joiner::new(options, since, skip);
        let mut out = Vec::new();
        for line in lines {
            joiner.push(&parse(line.as_bytes()).unwrap(), &mut out);
        }
        joiner.flush(&mut out);
        String::from_utf8(out).unwrap()
    }

    const LINES: [&str; 6] = [
        "2026-01-01T00:00:01Z stdout F one",
        "2026-01-01T00:00:02Z stdout P tw",
        "2026-01-01T00:00:03Z stderr F err",
        "2026-01-01T00:00:04Z stdout F o",
        "2026-01-01T00:00:05Z stderr F ",
        "2026-01-01T00:00:06Z stdout P thr",
    ];

    #[test]
    fn pieces_become_lines() {
        let all = LogOptions::default();
        assert_eq!(join(&all, None, 0, &LINES), "one\nerr\ntwo\n\nthr");
        assert_eq!(join(&all, None, 2, &LINES), "two\n\nthr");
        let only = LogOptions { only: Some(Output::Stdout), ..all.clone() };
        assert_eq!(join(&only, None, 0, &LINES), "one\ntwo\nthr");
        // A line belongs to the time of its first piece.
        assert_eq!(join(&all, Some("2026-01-01T00:00:03Z"), 0, &LINES), "err\n\nthr");
        assert_eq!(join(&all, Some("2026-01-01T00:00:02Z"), 0, &LINES), "err\ntwo\n\nthr");
    }

    #[test]
    fn timestamps_stand_once_before_each_line() {
        let options = LogOptions { timestamps: true, ..LogOptions::default() };
        assert_eq!(
            join(&options, None, 0, &LINES[..4]),
            "2026-01-01T00:00:01.000000000Z one\n2026-01-01T00:00:03.000000000Z err\n\
             2026-01-01T00:00:02.000000000Z two\n"
        );
    }

    #[test]
    fn the_limit_counts_what_is_written() {
        for (limit, want) in [(1, "o"), (4, "one\n"), (7, "one\nerr"), (1000, "one\nerr\ntwo\n\nthr")] {
            let options = LogOptions { limit: Some(limit), ..LogOptions::default() };
            assert_eq!(join(&options, None, 0, &LINES), want);
        }
    }

    #[test]
    fn an_endless_line_is_written_piece_by_piece() {
        let piece = format!("2026-01-01T00:00:01Z stdout P {}", "x".repeat(16 * 1024));
        let other = "2026-01-01T00:00:02Z stderr F err";
        let mut joiner = Joiner::new(&LogOptions::default(), None, 0);
        let mut out = Vec::new();
        for _ in 0..100 {
            joiner.push(&parse(piece.as_bytes()).unwrap(), &mut out);
            assert!(joiner.stdout.content.len() <= MAX_PENDING);
        }
        assert!(out.len() > MAX_PENDING, "{}", out.len());
        joiner.push(&parse(other.as_bytes()).unwrap(), &mut out);
        assert!(out.ends_with(b"x\nerr\n"));
        joiner.flush(&mut out);
        assert_eq!(out.iter().filter(|b| **b == b'x').count(), 100 * 16 * 1024);
    }
}
