//! Where the last lines of a log begin, found from the end without reading the rest.

use super::line::{self, Line, MAX_HEADER, Output};
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;

/// Bytes read at once.
const BLOCK: u64 = 16 * 1024;

/// Lines of the file that are looked through beyond the last wanted one for its first piece. Pieces lie close together:
/// the logger writes them as it reads them.
const LOOK_BACK: u32 = 64;

/// Where to begin to read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Start {
    /// Which file.
    pub(super) file: usize,
    /// Where in it.
    pub(super) offset: u64,
    /// Lines to leave out from there on: the other output's lines between the pieces of the first wanted one.
    pub(super) skip: u64,
}

/// Finds the last `wanted` lines of files in order, oldest first.
///
/// # Errors
/// When a file cannot be read.
pub(super) fn find(files: &[&File], wanted: u64, only: Option<Output>) -> io::Result<Start> {
    let end = match files.last() {
        Some(newest) => Start { file: files.len() - 1, offset: newest.metadata()?.len(), skip: 0 },
        None => Start { file: 0, offset: 0, skip: 0 },
    };
    if wanted == 0 {
        return Ok(end);
    }
    let mut counter = Counter::new(wanted, only, end);
    for (index, file) in files.iter().enumerate().rev() {
        if backwards(file, |header, offset| counter.push(header, index, offset))? == Look::Enough {
            break;
        }
    }
    Ok(counter.start)
}

/// Whether to go on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Look {
    Further,
    Enough,
}

/// Gives the beginning of each line, last line first.
fn backwards(file: &File, mut each: impl FnMut(&[u8], u64) -> Look) -> io::Result<Look> {
    let len = file.metadata()?.len();
    let mut begin = len;
    let mut block: Vec<u8> = Vec::new();
    while begin > 0 {
        let end = begin;
        begin = end.saturating_sub(BLOCK);
        let fresh = usize::try_from(end - begin).unwrap_or(usize::MAX);
        // The head of what was read before stays behind the block: a line may begin in one and go on in the other.
        block.truncate(MAX_HEADER);
        let mut bytes = vec![0; fresh];
        file.read_exact_at(&mut bytes, begin)?;
        bytes.append(&mut block);
        block = bytes;
        let breaks = block.iter().take(fresh).enumerate().rev().filter(|(_, b)| **b == b'\n');
        for at in breaks.map(|(at, _)| at + 1) {
            let offset = begin + at as u64;
            if offset < len && each(head(&block, at), offset) == Look::Enough {
                return Ok(Look::Enough);
            }
        }
    }
    if len > 0 { Ok(each(head(&block, 0), 0)) } else { Ok(Look::Further) }
}

/// The beginning of the line at `at`, no longer than a header.
fn head(block: &[u8], at: usize) -> &[u8] {
    let rest = block.get(at..).unwrap_or_default();
    let rest = rest.get(..MAX_HEADER).unwrap_or(rest);
    rest.split(|b| *b == b'\n').next().unwrap_or_default()
}

/// Counts lines from the last to the first.
struct Counter {
    wanted: u64,
    only: Option<Output>,
    stdout: Seen,
    stderr: Seen,
    /// Ends of lines before the wanted ones.
    extra: u64,
    look_back: u32,
    start: Start,
}

/// What was seen of one output.
#[derive(Default, Clone, Copy)]
struct Seen {
    any: bool,
    /// The line seen last is wanted, and pieces of it may lie further ahead.
    open: bool,
}

impl Counter {
    fn new(wanted: u64, only: Option<Output>, end: Start) -> Self {
        let seen = Seen::default();
        Self { wanted, only, stdout: seen, stderr: seen, extra: 0, look_back: LOOK_BACK, start: end }
    }

    fn push(&mut self, header: &[u8], file: usize, offset: u64) -> Look {
        if self.wanted == 0 {
            if self.look_back == 0 || !(self.stdout.open || self.stderr.open) {
                return Look::Enough;
            }
            self.look_back -= 1;
        }
        let Some(Line { output, ends, .. }) = line::parse(header) else { return Look::Further };
        if self.only.is_some_and(|only| only != output) {
            return Look::Further;
        }
        let seen = match output {
            Output::Stdout => &mut self.stdout,
            Output::Stderr => &mut self.stderr,
        };
        // The last piece in the file is the end of a line too, as far as it was written.
        let last_piece = ends || !seen.any;
        *seen = Seen { any: true, open: if last_piece { self.wanted > 0 } else { seen.open } };
        if seen.open {
            self.start = Start { file, offset, skip: self.extra };
        }
        if last_piece && self.wanted > 0 {
            self.wanted -= 1;
        } else if ends {
            self.extra += 1;
        }
        Look::Further
    }
}

#[cfg(test)]
mod tests {
    use super::super::join::Joiner;
    use super::super::options::LogOptions;
    use super::*;
    use proptest::prelude::*;
    use std::io::Write;

    /// What a reader shows from `start` on.
    fn shown(files: &[Vec<u8>], start: Start, only: Option<Output>) -> Vec<u8> {
        let mut joiner = Joiner::new(&LogOptions { only, ..LogOptions::default() }, None, start.skip);
        let mut out = Vec::new();
        for (index, file) in files.iter().enumerate().skip(start.file) {
            let from = if index == start.file { usize::try_from(start.offset).unwrap() } else { 0 };
            for line in file[from..].split(|b| *b == b'\n').filter_map(line::parse) {
                joiner.push(&line, &mut out);
            }
        }
        joiner.flush(&mut out);
        out
    }

    fn on_disk(files: &[Vec<u8>]) -> Vec<File> {
        let write = |bytes: &Vec<u8>| {
            let mut file = tempfile::tempfile().unwrap();
            file.write_all(bytes).unwrap();
            file
        };
        files.iter().map(write).collect()
    }

    fn check(files: &[Vec<u8>], wanted: u64, only: Option<Output>) {
        let disk = on_disk(files);
        let start = find(&disk.iter().collect::<Vec<_>>(), wanted, only).unwrap();
        let all = shown(files, Start { file: 0, offset: 0, skip: 0 }, only);
        let lines: Vec<&[u8]> = all.split_inclusive(|b| *b == b'\n').collect();
        let want = lines[lines.len().saturating_sub(usize::try_from(wanted).unwrap())..].concat();
        let got = shown(files, start, only);
        assert_eq!(got.escape_ascii().to_string(), want.escape_ascii().to_string(), "{start:?}");
    }

    #[test]
    fn the_last_lines_are_found() {
        let t = "2026-01-01T00:00:00.123456789Z";
        let old = format!("{t} stdout F a\n{t} stdout P b").into_bytes();
        let new = format!("{t} stderr F x\n{t} stdout F c\n\0\0\0\n{t} stdout F d\n").into_bytes();
        let disk = on_disk(&[old.clone(), new.clone()]);
        let disk: Vec<&File> = disk.iter().collect();
        assert_eq!(find(&disk, 0, None).unwrap(), Start { file: 1, offset: new.len() as u64, skip: 0 });
        assert_eq!(find(&disk, 1, None).unwrap().offset, new.len() as u64 - 42);
        assert_eq!(find(&disk, 2, None).unwrap(), Start { file: 0, offset: 42, skip: 1 });
        assert_eq!(find(&[], 5, None).unwrap(), Start { file: 0, offset: 0, skip: 0 });
        for wanted in 0..6 {
            check(&[old.clone(), new.clone()], wanted, None);
            check(&[old.clone(), new.clone(), Vec::new()], wanted, Some(Output::Stdout));
        }
    }

    #[test]
    fn a_large_log_is_not_read_whole() {
        let line = format!("2026-01-01T00:00:00.123456789Z stdout F {}\n", "x".repeat(100));
        let mut file = tempfile::tempfile().unwrap();
        // A hole that would be read as a line of zeros.
        file.set_len(1 << 40).unwrap();
        io::Seek::seek(&mut file, io::SeekFrom::End(0)).unwrap();
        file.write_all(format!("\n{}", line.repeat(500)).as_bytes()).unwrap();
        let start = find(&[&file], 400, None).unwrap();
        assert_eq!(start.offset, file.metadata().unwrap().len() - 400 * line.len() as u64);
    }

    proptest! {
        #[test]
        fn the_tail_is_the_end_of_the_whole(
            lines in prop::collection::vec((any::<bool>(), prop::bool::weighted(0.7), 0..3000usize), 0..60),
            cuts in prop::collection::vec(any::<prop::sample::Index>(), 0..3),
            wanted in 0..30u64,
            only in prop::option::of(prop_oneof![Just(Output::Stdout), Just(Output::Stderr)]),
        ) {
            let mut text: Vec<Vec<u8>> = lines.iter().enumerate().map(|(n, (out, ends, len))| {
                let (out, tag) = (if *out { "stdout" } else { "stderr" }, if *ends { "F" } else { "P" });
                format!("2026-01-01T00:00:00.{n:09}Z {out} {tag} {n}:{}\n", "x".repeat(*len)).into_bytes()
            }).collect();
            // Both outputs end their last line: which unfinished one is the last is a matter of taste.
            for out in ["stdout", "stderr"] {
                text.push(format!("2026-01-01T00:00:01Z {out} F end\n").into_bytes());
            }
            let mut cuts: Vec<usize> = cuts.iter().map(|c| c.index(text.len())).collect();
            cuts.sort_unstable();
            cuts.push(text.len());
            let mut from = 0;
            let files: Vec<Vec<u8>> = cuts.iter().map(|to| {
                let file = text[from..*to].concat();
                from = *to;
                file
            }).collect();
            check(&files, wanted, only);
        }
    }
}
