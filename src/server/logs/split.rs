//! Bytes to lines, with a bound on what a line can cost.

/// The longest line that is kept, in bytes. The logger cuts at 16 KiB; what is longer is not one of its lines.
const MAX_LINE: usize = 256 * 1024;

/// Cuts what is read block by block into lines.
#[derive(Debug, Default)]
pub(super) struct Splitter {
    /// The beginning of a line whose end was not yet read.
    rest: Vec<u8>,
    /// The line is too long: nothing of it is kept, up to its end.
    skipping: bool,
}

impl Splitter {
    /// Takes the next line out of `block`, or keeps what is left of it for the next block.
    ///
    /// The line is given to `each` without its line break. `block` moves on past it. False: the block is used up.
    pub(super) fn next<R>(&mut self, block: &mut &[u8], each: impl FnOnce(&[u8]) -> R) -> Option<R> {
        loop {
            let Some(end) = block.iter().position(|b| *b == b'\n') else {
                self.keep(block);
                *block = &[];
                return None;
            };
            let (line, after) = block.split_at(end);
            *block = after.get(1..).unwrap_or_default();
            if std::mem::take(&mut self.skipping) {
                continue;
            }
            if self.rest.is_empty() {
                return Some(each(line));
            }
            self.rest.extend_from_slice(line);
            let result = each(&self.rest);
            self.rest.clear();
            return Some(result);
        }
    }

    /// The line that the file ends with, if it does not end with a line break.
    pub(super) fn last(&mut self) -> Option<Vec<u8>> {
        self.skipping = false;
        (!self.rest.is_empty()).then(|| std::mem::take(&mut self.rest))
    }

    fn keep(&mut self, part: &[u8]) {
        if self.skipping || self.rest.len() + part.len() > MAX_LINE {
            self.skipping = true;
            self.rest = Vec::new();
        } else {
            self.rest.extend_from_slice(part);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn split(blocks: &[&[u8]]) -> (Vec<Vec<u8>>, Option<Vec<u8>>) {
        let mut splitter = Splitter::default();
        let mut lines = Vec::new();
        for block in blocks {
            let mut block = *block;
            while let Some(line) = splitter.next(&mut block, <[u8]>::to_vec) {
                lines.push(line);
            }
        }
        (lines, splitter.last())
    }

    #[test]
    fn a_line_without_end_is_dropped_and_the_next_one_is_read() {
        let long = vec![b'x'; MAX_LINE];
        let (lines, last) = split(&[b"a\n", &long, b"x", &long, b"x\nb\n", b"c"]);
        assert_eq!(lines, [b"a", b"b"]);
        assert_eq!(last.as_deref(), Some(&b"c"[..]));
    }

    proptest::proptest! {
        #[test]
        fn lines_do_not_depend_on_blocks(blocks: Vec<Vec<u8>>) {
            let blocks: Vec<&[u8]> = blocks.iter().map(Vec::as_slice).collect();
            let whole = blocks.concat();
            let (lines, last) = split(&blocks);
            let mut want: Vec<&[u8]> = whole.split(|b| *b == b'\n').collect();
            let rest = want.pop().unwrap();
            proptest::prop_assert_eq!(lines, want);
            proptest::prop_assert_eq!(last.unwrap_or_default(), rest);
        }
    }
}
