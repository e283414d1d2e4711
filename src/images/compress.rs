//! Compressed streams: told by their first bytes, unpacked as they are read, and bounded.

use std::cell::Cell;
use std::io::{self, BufRead, BufReader, Read};
use std::rc::Rc;

/// The greatest zstd window. `zstd -19 --long=26` still fits; more would cost memory that a small board does not have.
const MAX_WINDOW: u64 = 64 << 20;
/// Output that is free of the ratio rule: an empty database of some megabytes packs to almost nothing.
const FREE_OUTPUT: u64 = 64 << 20;
/// The greatest ratio of output to input. Text and programs reach 3 to 20; a bomb reaches 1000 and more.
const MAX_RATIO: u64 = 250;

/// Why a stream is not read on. Carried inside an [`io::Error`].
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(super) enum StreamError {
    #[error("{0} compression is not supported, only gzip and zstd")]
    Unsupported(&'static str),
    #[error("the zstd window of {0} bytes is above the limit of {MAX_WINDOW}")]
    Window(u64),
    #[error("a compression bomb: more than {MAX_RATIO} times its packed size")]
    Bomb,
    #[error("damaged zstd data")]
    Zstd,
}

impl From<StreamError> for io::Error {
    fn from(error: StreamError) -> Self {
        Self::new(io::ErrorKind::InvalidData, error)
    }
}

/// Reads gzip (any number of members), zstd (any number of frames) or plain bytes. `packed` counts what was read of
/// the input, for the ratio; see [`super::digest::Hashing::count`].
pub(super) fn decoder<'a>(input: impl Read + 'a, packed: Rc<Cell<u64>>) -> io::Result<Box<dyn Read + 'a>> {
    let mut input = BufReader::with_capacity(64 << 10, input);
    let start = input.fill_buf()?;
    let unpacked: Box<dyn Read + 'a> = match start {
        [0x1f, 0x8b, ..] => Box::new(flate2::bufread::MultiGzDecoder::new(input)),
        [0x28, 0xb5, 0x2f, 0xfd, ..] | [0x50..=0x5f, 0x2a, 0x4d, 0x18, ..] => Box::new(Zstd::new(input)),
        [b'B', b'Z', b'h', ..] => return Err(StreamError::Unsupported("bzip2").into()),
        [0xfd, b'7', b'z', b'X', b'Z', ..] => return Err(StreamError::Unsupported("xz").into()),
        // A plain file is as long as it is.
        _ => return Ok(Box::new(input)),
    };
    Ok(Box::new(Bounded { inner: unpacked, packed, unpacked: 0 }))
}

/// Whether the bytes start a stream that [`decoder`] would unpack.
pub(super) fn is_compressed(start: &[u8]) -> bool {
    matches!(
        start,
        [0x1f, 0x8b, ..]
            | [0x28, 0xb5, 0x2f, 0xfd, ..]
            | [0x50..=0x5f, 0x2a, 0x4d, 0x18, ..]
            | [b'B', b'Z', b'h', ..]
            | [0xfd, b'7', b'z', b'X', b'Z', ..]
    )
}

struct Bounded<R> {
    inner: R,
    packed: Rc<Cell<u64>>,
    unpacked: u64,
}

impl<R: Read> Read for Bounded<R> {
    fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        let n = self.inner.read(buf)?;
        self.unpacked = self.unpacked.saturating_add(n as u64);
        if self.unpacked > FREE_OUTPUT && self.unpacked / MAX_RATIO > self.packed.get() {
            return Err(StreamError::Bomb.into());
        }
        Ok(n)
    }
}

/// All frames of a zstd stream. The decoder itself knows only one frame, and takes any window in the first.
struct Zstd<R: Read> {
    state: State<R>,
}

/// Used for frame after frame: it keeps its window and tables.
type Decoder = Box<ruzstd::decoding::FrameDecoder>;

enum State<R: Read> {
    Between(Rewind<R>, Decoder),
    Inside(ruzstd::decoding::StreamingDecoder<Rewind<R>, Decoder>),
    Ended,
}

impl<R: Read> Zstd<R> {
    fn new(input: R) -> Self {
        let input = Rewind { held: Vec::new(), inner: input };
        Self { state: State::Between(input, Decoder::default()) }
    }
}

impl<R: Read> Read for Zstd<R> {
    fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        if buf.is_empty() {
            return Ok(0);
        }
        loop {
            // Whatever fails below leaves the stream ended.
            self.state = match std::mem::replace(&mut self.state, State::Ended) {
                State::Ended => return Ok(0),
                State::Between(input, decoder) => next_frame(input, decoder)?,
                State::Inside(mut frame) => {
                    let n = frame.read(buf)?;
                    if n > 0 {
                        self.state = State::Inside(frame);
                        return Ok(n);
                    }
                    let (input, decoder) = frame.into_parts();
                    State::Between(input, decoder)
                }
            };
        }
    }
}

/// A reader that can take back what was read of it.
struct Rewind<R> {
    /// In reverse order.
    held: Vec<u8>,
    inner: R,
}

impl<R: Read> Read for Rewind<R> {
    fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        if self.held.is_empty() {
            return self.inner.read(buf);
        }
        let n = buf.len().min(self.held.len());
        for (to, from) in buf.iter_mut().zip(self.held.drain(self.held.len() - n..).rev()) {
            *to = from;
        }
        Ok(n)
    }
}

impl<R: Read> Rewind<R> {
    fn take_back(&mut self, bytes: &[u8]) {
        self.held.extend(bytes.iter().rev());
    }
}

/// Looks at the next frame's header (RFC 8878, 3.1) before the decoder gets it.
fn next_frame<R: Read>(mut input: Rewind<R>, decoder: Decoder) -> io::Result<State<R>> {
    let mut header = Vec::with_capacity(FRAME_HEADER);
    if input.by_ref().take(FRAME_HEADER as u64).read_to_end(&mut header)? == 0 {
        return Ok(State::Ended);
    }
    if let [0x50..=0x5f, 0x2a, 0x4d, 0x18, a, b, c, d, rest @ ..] = header.as_slice() {
        let len = u64::from(u32::from_le_bytes([*a, *b, *c, *d]));
        input.take_back(rest);
        if io::copy(&mut input.by_ref().take(len), &mut io::sink())? != len {
            return Err(StreamError::Zstd.into());
        }
        return Ok(State::Between(input, decoder));
    }
    let window = window_size(&header).ok_or(StreamError::Zstd)?;
    if window > MAX_WINDOW {
        return Err(StreamError::Window(window).into());
    }
    input.take_back(&header);
    let frame = ruzstd::decoding::StreamingDecoder::new_with_decoder(input, decoder);
    Ok(State::Inside(frame.map_err(|_| StreamError::Zstd)?))
}

/// The longest frame header, the magic number included.
const FRAME_HEADER: usize = 18;

/// Bytes of memory that a frame asks for: its window, or its whole size when it is one segment.
fn window_size(header: &[u8]) -> Option<u64> {
    let rest = header.strip_prefix(&[0x28, 0xb5, 0x2f, 0xfd])?;
    let descriptor = *rest.first()?;
    let single = descriptor & 0x20 != 0;
    if !single {
        let window = u64::from(*rest.get(1)?);
        let base = 1_u64 << (10 + (window >> 3));
        return Some(base + base / 8 * (window & 7));
    }
    let dictionary = [0, 1, 2, 4].get(usize::from(descriptor & 3)).copied()?;
    let (len, offset) = [(1_usize, 0), (2, 256), (4, 0), (8, 0)].get(usize::from(descriptor >> 6)).copied()?;
    let size = rest.get(1 + dictionary..1 + dictionary + len)?;
    Some(size.iter().rev().fold(0_u64, |n, byte| n << 8 | u64::from(*byte)).saturating_add(offset))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;
    use std::process::{Command, Stdio};

    fn unpack(packed: &[u8]) -> io::Result<Vec<u8>> {
        let count = Rc::new(Cell::new(packed.len() as u64));
        let mut out = Vec::new();
        decoder(packed, count)?.take(256 << 20).read_to_end(&mut out)?;
        Ok(out)
    }

    fn gzip(data: &[u8]) -> Vec<u8> {
        let mut packer = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
        packer.write_all(data).unwrap();
        packer.finish().unwrap()
    }

    fn zstd(data: &[u8]) -> Vec<u8> {
        ruzstd::encoding::compress_to_vec(data, ruzstd::encoding::CompressionLevel::Fastest)
    }

    fn text() -> Vec<u8> {
        (0..100_000_u32).flat_map(|n| format!("{n} ").into_bytes()).collect()
    }

    #[test]
    fn every_form_gives_the_same_bytes() {
        let data = text();
        let skippable = [&[0x5a, 0x2a, 0x4d, 0x18, 3, 0, 0, 0, 1, 2, 3][..], &zstd(&data)].concat();
        let empty_skippable = [&zstd(&data)[..], &[0x50, 0x2a, 0x4d, 0x18, 0, 0, 0, 0]].concat();
        for packed in [data.clone(), gzip(&data), zstd(&data), skippable, empty_skippable] {
            assert!(unpack(&packed).unwrap() == data);
        }
        let (a, b) = data.split_at(1000);
        assert!(unpack(&[gzip(a), gzip(b)].concat()).unwrap() == data);
        assert!(unpack(&[zstd(a), zstd(b)].concat()).unwrap() == data);
        assert_eq!(unpack(b"").unwrap(), b"");
    }

    #[test]
    fn the_real_zstd_program_is_understood() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("data");
        let data = text();
        std::fs::write(&path, &data).unwrap();
        for level in [&["-1"][..], &["-19"], &["-3", "--long=24"], &["-3", "--no-check", "-B1MiB"]] {
            let out = Command::new("zstd").args(level).arg("-qc").arg(&path).stdin(Stdio::null()).output().unwrap();
            assert!(out.status.success());
            assert!(unpack(&out.stdout).unwrap() == data, "{level:?}");
        }
    }

    #[test]
    fn cut_and_foreign_streams_are_errors() {
        let data = text();
        for packed in [gzip(&data), zstd(&data)] {
            for len in [5, 20, packed.len() / 2, packed.len() - 1] {
                assert!(unpack(&packed[..len]).is_err(), "{len}");
            }
        }
        for (start, name) in [(&b"BZh91AY"[..], "bzip2"), (&[0xfd, b'7', b'z', b'X', b'Z', 0], "xz")] {
            assert!(unpack(start).unwrap_err().to_string().contains(name));
        }
    }

    #[test]
    fn bombs_and_great_windows_are_refused() {
        let mut packer = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::best());
        io::copy(&mut io::repeat(0).take(80 << 20), &mut packer).unwrap();
        let bomb = packer.finish().unwrap();
        assert!(unpack(&bomb).unwrap_err().to_string().contains("bomb"));
        // A window descriptor of 2^41 bytes, and one segment of 2^40.
        let window = [0x28, 0xb5, 0x2f, 0xfd, 0x00, 0xf8, 0, 0];
        let segment = [0x28, 0xb5, 0x2f, 0xfd, 0xe0, 0, 0, 0, 0, 0, 1, 0, 0];
        for header in [&window[..], &segment] {
            assert!(unpack(header).unwrap_err().to_string().contains("window"), "{header:?}");
        }
    }

    #[test]
    fn windows_are_read_as_the_format_says() {
        let magic = |rest: &[u8]| [&[0x28, 0xb5, 0x2f, 0xfd][..], rest].concat();
        for (header, expect) in [
            (magic(&[0x00, 0x00]), Some(1 << 10)),
            (magic(&[0x00, 0x58]), Some(2 << 20)),
            (magic(&[0x00, 0x59]), Some((2 << 20) + (2 << 20) / 8)),
            (magic(&[0x20, 0x07]), Some(7)),
            (magic(&[0x60, 0x01, 0x00]), Some(257)),
            (magic(&[0x23, 9, 9, 9, 9, 0x07]), Some(7)),
            (magic(&[]), None),
            (magic(&[0x60, 0x01]), None),
            (b"tar".to_vec(), None),
        ] {
            assert_eq!(window_size(&header), expect, "{header:?}");
        }
    }
}
