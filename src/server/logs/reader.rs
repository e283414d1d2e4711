//! A container's log as a client reads it. Blocking: a caller on an async thread runs each step elsewhere.

use super::files::{LogFile, LogFiles};
use super::join::Joiner;
use super::options::LogOptions;
use super::split::Splitter;
use super::{line, tail};
use crate::model::WallTime;
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::Path;

/// Bytes read at once.
const BLOCK: usize = 32 * 1024;

/// Bytes read in one step, even where nothing of them is shown.
const STEP: usize = 1024 * 1024;

/// Reads one log from where the options say, in steps.
#[derive(Debug)]
pub(in crate::server) struct LogReader {
    files: LogFiles,
    current: LogFile,
    offset: u64,
    /// Bytes to be read yet, where the log ends with what was there at first; else it would chase a fast writer.
    left: Option<u64>,
    splitter: Splitter,
    joiner: Joiner,
}

/// How far a step came.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Step {
    /// There is more.
    More,
    /// All that was written so far has been read.
    CaughtUp,
    /// The client has all that it asked for.
    Full,
}

impl LogReader {
    /// Opens the log whose newest file is at `path`.
    ///
    /// # Errors
    /// `NotFound` when there is no file at all; others when one cannot be read.
    pub(in crate::server) fn open(path: &Path, options: &LogOptions, now: WallTime) -> io::Result<Self> {
        let files = LogFiles::new(path);
        let mut all = files.open_all()?;
        let open: Vec<&File> = all.iter().map(|file| &file.file).collect();
        let start = match options.tail {
            Some(wanted) => tail::find(&open, wanted, options.only)?,
            None => tail::Start { file: 0, offset: 0, skip: 0 },
        };
        if all.is_empty() {
            return Err(io::ErrorKind::NotFound.into());
        }
        let mut there = 0_u64;
        for file in open.iter().skip(start.file) {
            there = there.saturating_add(file.metadata()?.len());
        }
        Ok(Self {
            files,
            left: (!options.follow).then(|| there.saturating_sub(start.offset)),
            current: all.swap_remove(start.file),
            offset: start.offset,
            splitter: Splitter::default(),
            joiner: Joiner::new(options, options.since.map(|since| since.moment(now)), start.skip),
        })
    }

    /// Reads on, appending to `out` about a block at most.
    ///
    /// # Errors
    /// When a file cannot be read.
    pub(super) fn step(&mut self, out: &mut Vec<u8>) -> io::Result<Step> {
        let mut block = vec![0; BLOCK];
        let mut read = 0;
        while out.len() < BLOCK && read < STEP {
            if self.joiner.is_full() {
                return Ok(Step::Full);
            }
            if self.left == Some(0) {
                return Ok(Step::CaughtUp);
            }
            let len = self.read(&mut block)?;
            if len == 0 && !self.next_file(&mut block, out)? {
                return Ok(Step::CaughtUp);
            }
            read += len;
            self.take(block.get(..len).unwrap_or_default(), out);
        }
        Ok(Step::More)
    }

    /// Shows what stands at the end without a line break, and takes it for complete.
    pub(super) fn finish(&mut self, out: &mut Vec<u8>) {
        self.end_of_file(out);
        self.joiner.flush(out);
    }

    /// Shows what was read of an unfinished line: the rest may take its time.
    pub(super) fn pause(&mut self, out: &mut Vec<u8>) {
        self.joiner.flush(out);
    }

    /// Goes on to the file after this one, if there is one.
    fn next_file(&mut self, block: &mut [u8], out: &mut Vec<u8>) -> io::Result<bool> {
        let Some(next) = self.files.after(&self.current)? else {
            if self.current.file.metadata()?.len() < self.offset {
                // Somebody emptied it in place: what is there now is new.
                self.offset = 0;
                self.splitter = Splitter::default();
                return Ok(true);
            }
            return Ok(false);
        };
        // Between the end that was read and the rotation there may have been another write.
        loop {
            let len = self.read(block)?;
            if len == 0 {
                break;
            }
            self.take(block.get(..len).unwrap_or_default(), out);
        }
        self.end_of_file(out);
        self.current = next;
        self.offset = 0;
        Ok(true)
    }

    fn read(&mut self, block: &mut [u8]) -> io::Result<usize> {
        let most = self
            .left
            .map_or(block.len(), |left| usize::try_from(left).map_or(block.len(), |left| left.min(block.len())));
        let block = block.get_mut(..most).unwrap_or_default();
        loop {
            match self.current.file.read_at(block, self.offset) {
                Ok(len) => {
                    self.offset += len as u64;
                    self.left = self.left.map(|left| left.saturating_sub(len as u64));
                    return Ok(len);
                }
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
    }

    fn take(&mut self, mut block: &[u8], out: &mut Vec<u8>) {
        let joiner = &mut self.joiner;
        while !joiner.is_full() && self.splitter.next(&mut block, |text| push(joiner, text, out)).is_some() {}
    }

    fn end_of_file(&mut self, out: &mut Vec<u8>) {
        if let Some(text) = self.splitter.last() {
            push(&mut self.joiner, &text, out);
        }
    }
}

/// What is no line of a log is left out, as upstream does.
fn push(joiner: &mut Joiner, text: &[u8], out: &mut Vec<u8>) {
    if let Some(line) = line::parse(text) {
        joiner.push(&line, out);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;
    use std::path::PathBuf;

    struct Log {
        folder: tempfile::TempDir,
        count: u32,
    }

    impl Log {
        fn new() -> Self {
            Self { folder: tempfile::tempdir().unwrap(), count: 0 }
        }

        fn path(&self) -> PathBuf {
            self.folder.path().join("0.log")
        }

        fn raw(&self, bytes: &[u8]) {
            let mut file = File::options().append(true).create(true).open(self.path()).unwrap();
            file.write_all(bytes).unwrap();
        }

        fn line(&self, text: &str) {
            self.raw(format!("2026-01-01T00:00:00.5Z stdout F {text}\n").as_bytes());
        }

        fn rotate(&mut self) {
            self.count += 1;
            std::fs::rename(self.path(), self.folder.path().join(format!("0.log.{:04}", self.count))).unwrap();
        }

        fn open(&self, options: &LogOptions) -> LogReader {
            LogReader::open(&self.path(), options, WallTime(0)).unwrap()
        }
    }

    fn read(reader: &mut LogReader) -> String {
        let mut all = Vec::new();
        loop {
            let mut out = Vec::new();
            let step = reader.step(&mut out).unwrap();
            all.extend(out);
            if step != Step::More {
                return String::from_utf8(all).unwrap();
            }
        }
    }

    #[test]
    fn rotated_files_are_read_in_order() {
        let mut log = Log::new();
        for n in 0..4 {
            log.line(&format!("{n}a"));
            log.line(&format!("{n}b"));
            if n < 3 {
                log.rotate();
            }
        }
        assert_eq!(read(&mut log.open(&LogOptions::default())), "0a\n0b\n1a\n1b\n2a\n2b\n3a\n3b\n");
        assert_eq!(read(&mut log.open(&LogOptions { tail: Some(5), ..LogOptions::default() })), "1b\n2a\n2b\n3a\n3b\n");
        assert_eq!(read(&mut log.open(&LogOptions { limit: Some(4), ..LogOptions::default() })), "0a\n0");
    }

    /// Without `follow` the end is where it was when it was asked for.
    #[test]
    fn a_fast_writer_is_not_chased() {
        let mut log = Log::new();
        log.line("a");
        log.rotate();
        log.line("b");
        let mut whole = log.open(&LogOptions::default());
        let mut last = log.open(&LogOptions { tail: Some(1), ..LogOptions::default() });
        log.line("c");
        log.rotate();
        log.line("d");
        assert_eq!((read(&mut whole).as_str(), read(&mut last).as_str()), ("a\nb\n", "b\n"));
        assert_eq!(read(&mut whole), "");
    }

    #[test]
    fn a_reader_goes_on_across_rotations() {
        let mut log = Log::new();
        log.line("a");
        let mut reader = log.open(&LogOptions { tail: Some(0), follow: true, ..LogOptions::default() });
        assert_eq!(read(&mut reader), "");
        log.line("b");
        assert_eq!(read(&mut reader), "b\n");
        log.line("c");
        log.rotate();
        assert_eq!(read(&mut reader), "c\n");
        log.line("d");
        log.rotate();
        log.line("e");
        assert_eq!(read(&mut reader), "d\ne\n");
        log.raw(b"2026-01-01T00:00:00.5Z stdout F half");
        assert_eq!(read(&mut reader), "");
        log.raw(b" line\n");
        assert_eq!(read(&mut reader), "half line\n");
        std::fs::write(log.path(), "").unwrap();
        log.line("x");
        assert_eq!(read(&mut reader), "x\n", "emptied in place");
    }

    #[test]
    fn a_log_cut_off_in_a_line_shows_what_there_is() {
        let mut log = Log::new();
        log.raw(b"2026-01-01T00:00:00.5Z stdout F cut");
        log.rotate();
        log.raw(b"\0\0\0\0garbage\n2026-01-01T00:00:00.5Z stdout P un");
        let mut reader = log.open(&LogOptions::default());
        let mut all = read(&mut reader).into_bytes();
        reader.finish(&mut all);
        assert_eq!(String::from_utf8(all).unwrap(), "cut\nun");
    }

    #[test]
    fn a_missing_log_is_not_found() {
        let log = Log::new();
        let open = |path: &Path| LogReader::open(path, &LogOptions::default(), WallTime(0)).unwrap_err().kind();
        assert_eq!(open(&log.path()), io::ErrorKind::NotFound);
        assert_eq!(open(&log.folder.path().join("no/0.log")), io::ErrorKind::NotFound);
    }

    #[test]
    fn a_large_log_comes_in_small_steps() {
        let log = Log::new();
        log.raw(format!("2026-01-01T00:00:00.5Z stdout F {}\n", "x".repeat(1000)).repeat(5000).as_bytes());
        let mut reader = log.open(&LogOptions::default());
        let (mut total, mut largest) = (0, 0);
        loop {
            let mut out = Vec::new();
            let step = reader.step(&mut out).unwrap();
            total += out.len();
            largest = largest.max(out.len());
            if step == Step::CaughtUp {
                break;
            }
        }
        assert_eq!(total, 5000 * 1001);
        assert!(largest <= 2 * BLOCK, "{largest}");
    }

    /// What can happen between two looks at a log.
    #[derive(Debug, Clone, Copy)]
    enum Happening {
        Line,
        HalfLine,
        Rotation,
        Look,
    }

    proptest::proptest! {
        #[test]
        fn a_reader_misses_nothing_and_repeats_nothing(
            happenings in proptest::collection::vec(
                proptest::prop_oneof![
                    4 => proptest::strategy::Just(Happening::Line),
                    1 => proptest::strategy::Just(Happening::HalfLine),
                    1 => proptest::strategy::Just(Happening::Rotation),
                    2 => proptest::strategy::Just(Happening::Look),
                ],
                0..60,
            ),
        ) {
            let mut log = Log::new();
            log.line("first");
            let mut reader = log.open(&LogOptions { follow: true, ..LogOptions::default() });
            let (mut want, mut got) = ("first\n".to_owned(), String::new());
            let mut half = false;
            for (n, happening) in happenings.into_iter().enumerate() {
                match happening {
                    Happening::Line if half => {
                        log.raw(b"rest\n");
                        want.push_str("rest\n");
                        half = false;
                    }
                    Happening::Line => {
                        log.line(&n.to_string());
                        want.push_str(&format!("{n}\n"));
                    }
                    Happening::HalfLine if !half => {
                        log.raw(format!("2026-01-01T00:00:00.5Z stdout F {n}").as_bytes());
                        want.push_str(&n.to_string());
                        half = true;
                    }
                    // The logger ends a line before it rotates.
                    Happening::Rotation if !half && log.path().exists() => log.rotate(),
                    Happening::Look => got.push_str(&read(&mut reader)),
                    Happening::HalfLine | Happening::Rotation => {}
                }
            }
            got.push_str(&read(&mut reader));
            let mut rest = Vec::new();
            reader.finish(&mut rest);
            got.push_str(&String::from_utf8(rest).unwrap());
            if half {
                // A line that was cut off counts as one.
                want.push('\n');
            }
            proptest::prop_assert_eq!(got, want);
        }
    }
}
