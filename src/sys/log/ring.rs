//! The last lines, in memory, and nothing else: no disk is worn by them. Pure.

use std::collections::VecDeque;

/// What a line may have at most. A longer one is cut: one record must not push out all others.
const LONGEST_LINE: usize = 4096;

/// Lines in a bounded number of bytes: the oldest go.
#[derive(Debug, Default)]
pub(super) struct Ring {
    /// Whole lines, each with its line feed.
    bytes: VecDeque<u8>,
    most: usize,
    /// Lines that were ever written.
    written: u64,
    /// Lines that are there.
    held: u64,
}

/// Lines that were read.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Lines {
    /// They, each with its line feed.
    pub text: String,
    /// Up to which line, counted from the first that was ever written: what is read next comes after it.
    pub next: u64,
    /// Lines that had gone before they could be read.
    pub missed: u64,
}

impl Ring {
    /// One that holds so many bytes. The memory is touched as it fills.
    pub(super) fn new(most: usize) -> Self {
        Self { bytes: VecDeque::with_capacity(most), most, written: 0, held: 0 }
    }

    /// Adds a line, without its line feed.
    pub(super) fn push(&mut self, line: &str) {
        let end = line.floor_char_boundary(LONGEST_LINE.min(self.most.saturating_sub(1)));
        let line = line.get(..end).unwrap_or_default().as_bytes();
        self.written = self.written.saturating_add(1);
        if self.most == 0 {
            return;
        }
        while self.held > 0 && self.bytes.len().saturating_add(line.len()) >= self.most {
            let first = self.bytes.iter().position(|byte| *byte == b'\n').unwrap_or(self.bytes.len());
            self.bytes.drain(..self.bytes.len().min(first.saturating_add(1)));
            self.held = self.held.saturating_sub(1);
        }
        self.bytes.extend(line);
        self.bytes.push_back(b'\n');
        self.held = self.held.saturating_add(1);
    }

    /// The lines after number `after`, as many as fit into `most` bytes but at least one.
    pub(super) fn after(&self, after: u64, most: usize) -> Lines {
        let gone = self.written.saturating_sub(self.held);
        let missed = gone.saturating_sub(after);
        let mut skip = after.saturating_sub(gone);
        let (mut bytes, mut taken) = (Vec::new(), 0_u64);
        let (one, two) = self.bytes.as_slices();
        let mut line = Vec::new();
        for byte in one.iter().chain(two) {
            if skip == 0 {
                line.push(*byte);
            }
            if *byte != b'\n' {
                continue;
            }
            if skip > 0 {
                skip = skip.saturating_sub(1);
                continue;
            }
            if taken > 0 && bytes.len().saturating_add(line.len()) > most {
                break;
            }
            bytes.append(&mut line);
            taken = taken.saturating_add(1);
        }
        let next = after.max(gone).min(self.written).saturating_add(taken);
        Lines { text: String::from_utf8_lossy(&bytes).into_owned(), next, missed }
    }

    /// Puts the lines of another ring before its own, and counts on from those: `next` is the number of the last of them.
    pub(super) fn follow(&mut self, text: &str, next: u64) {
        let own = self.after(0, usize::MAX).text;
        let before = u64::try_from(text.lines().count()).unwrap_or(u64::MAX);
        let mut ring = Self { written: next.saturating_sub(before), ..Self::new(self.most) };
        text.lines().chain(own.lines()).for_each(|line| ring.push(line));
        *self = ring;
    }

    /// How many lines were ever written.
    pub(super) const fn written(&self) -> u64 {
        self.written
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_oldest_lines_go_whole() {
        let mut ring = Ring::new(16);
        for line in ["one", "two", "three"] {
            ring.push(line);
        }
        assert_eq!(ring.after(0, 100), Lines { text: "one\ntwo\nthree\n".to_owned(), next: 3, missed: 0 });
        ring.push("four");
        assert_eq!(ring.after(0, 100), Lines { text: "two\nthree\nfour\n".to_owned(), next: 4, missed: 1 });
        assert_eq!(ring.after(3, 100), Lines { text: "four\n".to_owned(), next: 4, missed: 0 });
        assert_eq!(ring.after(4, 100), Lines { text: String::new(), next: 4, missed: 0 });
        // A number that a later ring has not reached yet.
        assert_eq!(ring.after(9, 100).next, 4);
    }

    #[test]
    fn what_does_not_fit_into_one_answer_comes_with_the_next() {
        let mut ring = Ring::new(100);
        for line in ["aaaa", "bbbb", "cc"] {
            ring.push(line);
        }
        let mut read = String::new();
        let mut next = 0;
        for want in ["aaaa\n", "bbbb\n", "cc\n", ""] {
            let lines = ring.after(next, 6);
            assert_eq!(lines.text, want);
            (next, read) = (lines.next, read + &lines.text);
        }
        assert_eq!((next, read.as_str()), (3, "aaaa\nbbbb\ncc\n"));
        assert_eq!(ring.after(0, 0).text, "aaaa\n", "at least one");
        assert_eq!(ring.after(0, 10).text, "aaaa\nbbbb\n");
    }

    #[test]
    fn no_line_is_longer_than_it_may_be() {
        let mut ring = Ring::new(64 * 1024);
        ring.push(&"\u{e9}".repeat(LONGEST_LINE));
        assert_eq!(ring.after(0, usize::MAX).text.len(), LONGEST_LINE + 1);
        let mut small = Ring::new(8);
        small.push("0123456789");
        assert_eq!(small.after(0, 100).text, "0123456\n");
        let mut none = Ring::new(0);
        none.push("x");
        assert_eq!(none.after(0, 100), Lines { text: String::new(), next: 1, missed: 1 });
    }

    proptest::proptest! {
        #[test]
        fn a_ring_is_the_end_of_all_that_was_written(
            lines in proptest::collection::vec("[a-z]{0,30}", 0..200), most in 0..300usize, step in 0..100usize,
        ) {
            let mut ring = Ring::new(most);
            for line in &lines {
                ring.push(line);
                proptest::prop_assert!(ring.bytes.len() <= most);
            }
            let (mut all, mut next, mut missed) = (String::new(), 0, 0);
            loop {
                let read = ring.after(next, step);
                missed += read.missed;
                if read.text.is_empty() {
                    break;
                }
                all += &read.text;
                next = read.next;
            }
            let cut = |line: &String| line.get(..line.len().min(most.saturating_sub(1))).unwrap().to_owned() + "\n";
            let want: String = lines[usize::try_from(missed).unwrap()..].iter().map(cut).collect();
            proptest::prop_assert_eq!(all, want);
        }
    }

    #[test]
    fn a_ring_goes_on_with_anothers_lines() {
        let mut first = Ring::new(64);
        for n in 0..20 {
            first.push(&format!("line {n}"));
        }
        let Lines { text, next, .. } = first.after(0, usize::MAX);
        let mut second = Ring::new(64);
        second.push("own");
        second.follow(&text, next);
        assert_eq!(second.written(), 21);
        let all = second.after(0, usize::MAX);
        assert!(all.text.ends_with("line 19\nown\n"), "{all:?}");
        let new = second.after(next, usize::MAX);
        assert_eq!((new.text.as_str(), new.next, new.missed), ("own\n", 21, 0));
        // Nothing to go on with.
        let mut alone = Ring::new(64);
        alone.push("own");
        alone.follow("", 0);
        assert_eq!(alone.after(0, usize::MAX).text, "own\n");
    }
}
