//! sha256 of what streams by. ring's assembly is used: the cores of many boards have no SHA instructions.

use std::cell::Cell;
use std::fmt::Write as _;
use std::io::{self, Read};
use std::rc::Rc;

/// Hexadecimal sha256 of the bytes.
pub(super) fn of(bytes: &[u8]) -> String {
    hex(ring::digest::digest(&ring::digest::SHA256, bytes).as_ref())
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().fold(String::with_capacity(2 * bytes.len()), |mut out, byte| {
        let _infallible = write!(out, "{byte:02x}");
        out
    })
}

/// A reader that counts what passes, and hashes it if asked.
pub(super) struct Hashing<R> {
    inner: R,
    context: Option<ring::digest::Context>,
    count: Rc<Cell<u64>>,
}

impl<R: Read> Hashing<R> {
    pub(super) fn new(inner: R) -> Self {
        Self { inner, context: Some(ring::digest::Context::new(&ring::digest::SHA256)), count: Rc::default() }
    }

    /// Only counts.
    pub(super) fn counting(inner: R) -> Self {
        Self { inner, context: None, count: Rc::default() }
    }

    /// Bytes read so far, to be asked while the reader is lent out.
    pub(super) fn count(&self) -> Rc<Cell<u64>> {
        Rc::clone(&self.count)
    }

    /// Reads to the end, so that the digest covers everything, and gives it in hexadecimal.
    pub(super) fn finish(mut self) -> io::Result<Option<String>> {
        io::copy(&mut self, &mut io::sink())?;
        Ok(self.context.map(|context| hex(context.finish().as_ref())))
    }
}

impl<R: Read> Read for Hashing<R> {
    fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        let n = self.inner.read(buf)?;
        if let Some(context) = &mut self.context {
            context.update(buf.get(..n).unwrap_or_default());
        }
        self.count.set(self.count.get().saturating_add(n as u64));
        Ok(n)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn digests_cover_everything_to_the_end() {
        let expect = "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad";
        assert_eq!(of(b"abc"), expect);
        let mut reader = Hashing::new(&b"abc"[..]);
        let count = reader.count();
        reader.read_exact(&mut [0]).unwrap();
        assert_eq!(count.get(), 1);
        assert_eq!(reader.finish().unwrap().unwrap(), expect);
        assert_eq!(count.get(), 3);
    }
}
