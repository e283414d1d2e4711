//! Output cut into CRI log lines: `<RFC 3339 with nanoseconds> <stream> <F or P> <text>\n`. Pure.
//!
//! A line of a container that is longer than [`MAX_TEXT`] becomes several, all but the last marked P (partial). An
//! unterminated line at the end of the output is marked F: nothing follows that could complete it.

/// The most bytes of text in one log line: containerd's default for `max_container_log_line_size`.
pub(crate) const MAX_TEXT: usize = 16 * 1024;

/// Which stream of a container.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Stream {
    /// Standard output, or a terminal.
    Stdout,
    /// Standard error.
    Stderr,
}

impl Stream {
    fn name(self) -> &'static [u8] {
        match self {
            Self::Stdout => b"stdout",
            Self::Stderr => b"stderr",
        }
    }
}

/// Cuts one stream into lines.
#[derive(Debug)]
pub(crate) struct Cutter {
    stream: Stream,
    /// The line that has begun, at most [`MAX_TEXT`] bytes.
    half: Vec<u8>,
}

impl Cutter {
    /// `half` is what an earlier logger had begun to read.
    pub(crate) fn new(stream: Stream, mut half: Vec<u8>) -> Self {
        half.truncate(MAX_TEXT);
        Self { stream, half }
    }

    /// The line that has begun.
    pub(crate) fn into_half(self) -> Vec<u8> {
        self.half
    }

    /// Takes `input` and appends whole log lines, stamped `stamp`, to `out` until that holds `limit` bytes or more.
    /// Gives what is left of the input.
    pub(crate) fn cut<'a>(&mut self, input: &'a [u8], stamp: &str, out: &mut Vec<u8>, limit: usize) -> &'a [u8] {
        let mut rest = input;
        while !rest.is_empty() && out.len() < limit {
            let room = MAX_TEXT.saturating_sub(self.half.len());
            // One byte more than there is room for: a line break right behind a full line ends it.
            let window = rest.get(..room.saturating_add(1)).unwrap_or(rest);
            if let Some(end) = window.iter().position(|b| *b == b'\n') {
                let (text, after) = rest.split_at(end);
                self.line(stamp, b" F ", text, out);
                rest = after.get(1..).unwrap_or_default();
            } else if window.len() > room {
                let (text, after) = rest.split_at(room);
                self.line(stamp, b" P ", text, out);
                rest = after;
            } else {
                self.half.extend_from_slice(rest);
                rest = &[];
            }
        }
        rest
    }

    /// The output has ended: what is unterminated becomes a full line.
    pub(crate) fn finish(&mut self, stamp: &str, out: &mut Vec<u8>) {
        if !self.half.is_empty() {
            self.line(stamp, b" F ", &[], out);
        }
    }

    fn line(&mut self, stamp: &str, tag: &[u8], text: &[u8], out: &mut Vec<u8>) {
        out.extend_from_slice(stamp.as_bytes());
        out.push(b' ');
        out.extend_from_slice(self.stream.name());
        out.extend_from_slice(tag);
        out.extend_from_slice(&self.half);
        out.extend_from_slice(text);
        out.push(b'\n');
        // A long line's memory is given back: there are two streams per container.
        self.half = Vec::new();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn cut_all(chunks: &[&[u8]], limit: usize) -> Vec<u8> {
        let (mut cutter, mut all) = (Cutter::new(Stream::Stdout, Vec::new()), Vec::new());
        for chunk in chunks {
            let mut rest = *chunk;
            while !rest.is_empty() {
                let mut out = Vec::new();
                rest = cutter.cut(rest, "T", &mut out, limit);
                assert!(out.len() < limit.saturating_add(MAX_TEXT).saturating_add(64));
                all.extend_from_slice(&out);
            }
        }
        cutter.finish("T", &mut all);
        all
    }

    fn check(input: &[u8], expected: &str) {
        assert_eq!(String::from_utf8_lossy(&cut_all(&[input], usize::MAX)), expected);
    }

    #[test]
    fn lines_are_stamped_and_the_last_is_full_even_without_its_end() {
        check(b"", "");
        check(b"a\n", "T stdout F a\n");
        check(b"a\n\nb", "T stdout F a\nT stdout F \nT stdout F b\n");
        check(b"crlf\r\n", "T stdout F crlf\r\n");
    }

    #[test]
    fn a_long_line_is_split_and_one_that_just_fits_is_not() {
        let x = |n| "x".repeat(n);
        check(format!("{}\n", x(MAX_TEXT)).as_bytes(), &format!("T stdout F {}\n", x(MAX_TEXT)));
        check(x(MAX_TEXT).as_bytes(), &format!("T stdout F {}\n", x(MAX_TEXT)));
        check(format!("{}\n", x(MAX_TEXT + 1)).as_bytes(), &format!("T stdout P {}\nT stdout F x\n", x(MAX_TEXT)));
        let p = format!("T stdout P {}\n", x(MAX_TEXT));
        check(x(3 * MAX_TEXT).as_bytes(), &format!("{p}{p}T stdout F {}\n", x(MAX_TEXT)));
    }

    #[test]
    fn a_line_goes_on_in_the_next_logger() {
        for input in [&b"one\ntwo\nthree"[..], &[b'x'; MAX_TEXT + 10], &[b'\n'; 3]] {
            for at in 0..input.len() {
                let (before, after) = input.split_at(at);
                let (mut first, mut out) = (Cutter::new(Stream::Stdout, Vec::new()), Vec::new());
                assert!(first.cut(before, "T", &mut out, usize::MAX).is_empty());
                let mut second = Cutter::new(Stream::Stdout, first.into_half());
                assert!(second.cut(after, "T", &mut out, usize::MAX).is_empty());
                second.finish("T", &mut out);
                assert_eq!(out, cut_all(&[input], usize::MAX), "{at}");
            }
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(64))]
        #[test]
        fn the_log_does_not_depend_on_how_the_output_came(
            parts in prop::collection::vec(prop_oneof![
                3 => prop::collection::vec(prop_oneof![Just(b'\n'), any::<u8>()], 0..50),
                1 => (0..40_000usize).prop_map(|n| vec![b'x'; n]),
            ], 0..8),
            limit in 1..70_000usize,
        ) {
            let whole = parts.concat();
            let chunks: Vec<&[u8]> = parts.iter().map(Vec::as_slice).collect();
            prop_assert_eq!(cut_all(&chunks, limit), cut_all(&[&whole], usize::MAX));
        }
    }
}
