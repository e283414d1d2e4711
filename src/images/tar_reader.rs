//! Reading tar archives (ustar, GNU and PAX) from anyone: every length is bounded before memory is taken for it, and
//! what is not understood is refused instead of guessed.
//!
//! The `tar` crate decodes the header block; its entry iterator is not used, as it reads extension headers of any
//! length into memory.

use std::io::{self, Read};

const BLOCK: usize = 512;
/// A long name or link target, as GNU writes it.
const MAX_NAME: u64 = 64 << 10;
/// A PAX header; an extended attribute's value is at most 64 KiB.
const MAX_PAX: u64 = 1 << 20;
/// All extension headers before one entry: writers make one of a kind.
const MAX_EXTENSIONS: u64 = MAX_PAX + 2 * MAX_NAME;

/// Why an archive cannot be read on.
#[derive(Debug, thiserror::Error)]
pub enum TarError {
    /// The archive, or the stream it comes in, cannot be read.
    #[error("cannot read the archive")]
    Read(#[source] io::Error),
    /// The archive breaks the format or a limit.
    #[error("the archive is not valid: {0}")]
    Format(&'static str),
}

/// What an entry is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    File,
    HardLink,
    Symlink,
    Char,
    Block,
    Folder,
    Fifo,
}

/// One entry, with what extension headers said of it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Entry {
    pub(super) kind: Kind,
    pub(super) path: Vec<u8>,
    /// Target of a link.
    pub(super) link: Vec<u8>,
    /// Bytes of content that follow. Zero for everything but files.
    pub(super) size: u64,
    pub(super) mode: u32,
    pub(super) uid: u32,
    pub(super) gid: u32,
    pub(super) mtime: (i64, u32),
    pub(super) device: (u32, u32),
    pub(super) xattrs: Vec<(Vec<u8>, Vec<u8>)>,
}

/// A reader that can pass over bytes, by seeking where that is possible.
pub(super) trait Input: Read {
    /// Passes over `n` bytes; fails when there are fewer.
    fn skip(&mut self, n: u64) -> io::Result<()>;
}

impl Input for Box<dyn Read + '_> {
    fn skip(&mut self, n: u64) -> io::Result<()> {
        if io::copy(&mut self.take(n), &mut io::sink())? == n {
            Ok(())
        } else {
            Err(io::ErrorKind::UnexpectedEof.into())
        }
    }
}

/// Entry after entry; the content of the current one is read from the reader itself.
pub(super) struct TarReader<R> {
    input: R,
    remaining: u64,
    padding: u64,
    position: u64,
}

/// What the extension headers before an entry said.
#[derive(Default)]
struct Extension {
    path: Option<Vec<u8>>,
    link: Option<Vec<u8>>,
    size: Option<u64>,
    uid: Option<u64>,
    gid: Option<u64>,
    mtime: Option<(i64, u32)>,
    xattrs: Vec<(Vec<u8>, Vec<u8>)>,
}

impl<R: Input> TarReader<R> {
    pub(super) const fn new(input: R) -> Self {
        Self { input, remaining: 0, padding: 0, position: 0 }
    }

    /// Where in the archive the content of the current entry starts, as long as nothing of it was read.
    pub(super) const fn position(&self) -> u64 {
        self.position
    }

    /// The next entry; what is left of the one before is passed over. `None` at the end.
    pub(super) fn next(&mut self) -> Result<Option<Entry>, TarError> {
        let mut extension = Extension::default();
        let mut extended = false;
        let mut extensions = 0_u64;
        loop {
            let Some(header) = self.header()? else {
                let whole =
                    if extended { Err(TarError::Format("it ends after an extension header")) } else { Ok(None) };
                return whole;
            };
            let size = header_number(&header.as_old().size, header.entry_size(), "a size is not a number")?;
            let kind = header.entry_type().as_byte();
            match kind {
                b'L' => extension.path = Some(self.name(size)?),
                b'K' => extension.link = Some(self.name(size)?),
                b'x' => parse_pax(&self.meta(size, MAX_PAX, "a PAX header is too long")?, &mut extension)?,
                // For all entries that follow: images carry comments in it.
                b'g' => drop(self.meta(size, MAX_PAX, "a PAX header is too long")?),
                _ => return self.entry(&header, size, extension).map(Some),
            }
            extended = true;
            extensions = extensions.saturating_add(size);
            if extensions > MAX_EXTENSIONS {
                return Err(TarError::Format("the extension headers of an entry are too long"));
            }
        }
    }

    fn entry(&mut self, header: &tar::Header, size: u64, extension: Extension) -> Result<Entry, TarError> {
        let path = extension.path.unwrap_or_else(|| header.path_bytes().into_owned());
        let kind = match header.entry_type().as_byte() {
            b'0' | 0 | b'7' if path.ends_with(b"/") => Kind::Folder,
            b'0' | 0 | b'7' => Kind::File,
            b'1' => Kind::HardLink,
            b'2' => Kind::Symlink,
            b'3' => Kind::Char,
            b'4' => Kind::Block,
            b'5' => Kind::Folder,
            b'6' => Kind::Fifo,
            b'S' => return Err(TarError::Format("sparse files are not supported")),
            _ => return Err(TarError::Format("an entry has an unknown type")),
        };
        // Some writers give links the size of their target; no content follows them (Go's archive/tar does the same).
        let size = if kind == Kind::File { extension.size.unwrap_or(size) } else { 0 };
        if i64::try_from(size).is_err() {
            return Err(TarError::Format("a size is negative or too great"));
        }
        self.remaining = size;
        self.padding = padding(size);
        let old = header.as_old();
        let owner = |from_pax: Option<u64>, field: &[u8], read: io::Result<u64>| {
            let value = from_pax.map_or_else(|| header_number(field, read, "an owner is not a number"), Ok)?;
            u32::try_from(value).map_err(|_| TarError::Format("an owner is out of range"))
        };
        let is_node = matches!(kind, Kind::Char | Kind::Block);
        let part = |field: io::Result<Option<u32>>| match field {
            Ok(number) => Ok(number.unwrap_or(0)),
            Err(_) if is_node => Err(TarError::Format("a device is not a number")),
            Err(_) => Ok(0),
        };
        let seconds = header.mtime().map_or(0, u64::cast_signed);
        Ok(Entry {
            kind,
            path,
            link: extension.link.unwrap_or_else(|| header.link_name_bytes().unwrap_or_default().into_owned()),
            size,
            mode: header_number(&old.mode, header.mode(), "a mode is not a number")?,
            uid: owner(extension.uid, &old.uid, header.uid())?,
            gid: owner(extension.gid, &old.gid, header.gid())?,
            mtime: extension.mtime.unwrap_or((seconds, 0)),
            device: (part(header.device_major())?, part(header.device_minor())?),
            xattrs: extension.xattrs,
        })
    }

    /// The next header block, checked. `None` at the end: a block of zeros, or no more bytes.
    fn header(&mut self) -> Result<Option<tar::Header>, TarError> {
        let left = self.remaining.saturating_add(self.padding);
        if left > 0 {
            self.input.skip(left).map_err(TarError::Read)?;
            self.position = self.position.saturating_add(left);
            (self.remaining, self.padding) = (0, 0);
        }
        let mut block = [0; BLOCK];
        let mut filled = 0;
        while let Some(rest) = block.get_mut(filled..).filter(|rest| !rest.is_empty()) {
            match self.input.read(rest).map_err(TarError::Read)? {
                0 if filled == 0 => return Ok(None),
                0 => return Err(TarError::Format("it ends within a header")),
                n => filled += n,
            }
        }
        self.position = self.position.saturating_add(BLOCK as u64);
        if block.iter().all(|b| *b == 0) {
            return Ok(None);
        }
        let header = tar::Header::from_byte_slice(&block);
        let field = 148..156;
        let sum: u32 = (0..).zip(&block).map(|(i, b)| if field.contains(&i) { 32 } else { u32::from(*b) }).sum();
        if header.cksum().ok() != Some(sum) {
            return Err(TarError::Format("a header's checksum is wrong"));
        }
        Ok(Some(header.clone()))
    }

    /// The content of an extension header.
    fn meta(&mut self, size: u64, limit: u64, too_long: &'static str) -> Result<Vec<u8>, TarError> {
        if size > limit {
            return Err(TarError::Format(too_long));
        }
        let mut bytes = Vec::new();
        self.input.by_ref().take(size).read_to_end(&mut bytes).map_err(TarError::Read)?;
        if bytes.len() as u64 != size {
            return Err(TarError::Format("it ends within an extension header"));
        }
        self.position = self.position.saturating_add(size);
        self.padding = padding(size);
        Ok(bytes)
    }

    fn name(&mut self, size: u64) -> Result<Vec<u8>, TarError> {
        let mut name = self.meta(size, MAX_NAME, "a name is too long")?;
        while name.last() == Some(&0) {
            name.pop();
        }
        Ok(name)
    }
}

impl<R: Read> Read for TarReader<R> {
    fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        if self.remaining == 0 || buf.is_empty() {
            return Ok(0);
        }
        let limit = usize::try_from(self.remaining).unwrap_or(usize::MAX).min(buf.len());
        let n = self.input.read(buf.get_mut(..limit).unwrap_or_default())?;
        if n == 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        self.remaining -= n as u64;
        self.position = self.position.saturating_add(n as u64);
        Ok(n)
    }
}

/// A header's number. A field that is left blank is zero, as Go's `archive/tar` has it: some writers leave owners blank.
fn header_number<T: Default>(field: &[u8], read: io::Result<T>, otherwise: &'static str) -> Result<T, TarError> {
    if field.iter().all(|byte| matches!(byte, 0 | b' ')) {
        return Ok(T::default());
    }
    read.map_err(|_| TarError::Format(otherwise))
}

const fn padding(size: u64) -> u64 {
    (BLOCK as u64 - size % BLOCK as u64) % BLOCK as u64
}

/// Records of `<length> <key>=<value>\n`, the length being that of the whole record. Values may hold any byte.
fn parse_pax(mut bytes: &[u8], extension: &mut Extension) -> Result<(), TarError> {
    const BAD: TarError = TarError::Format("a PAX header is malformed");
    while !bytes.is_empty() {
        let space = bytes.iter().position(|b| *b == b' ').ok_or(BAD)?;
        let len: usize = number(bytes.get(..space).unwrap_or_default()).ok_or(BAD)?;
        let record = bytes.get(space + 1..len).ok_or(BAD)?;
        bytes = bytes.get(len..).ok_or(BAD)?;
        let record = record.strip_suffix(b"\n").ok_or(BAD)?;
        let equals = record.iter().position(|b| *b == b'=').ok_or(BAD)?;
        let (key, value) = (record.get(..equals).unwrap_or_default(), record.get(equals + 1..).unwrap_or_default());
        match key {
            b"path" => extension.path = Some(value.to_vec()),
            b"linkpath" => extension.link = Some(value.to_vec()),
            b"size" => extension.size = Some(number(value).ok_or(BAD)?),
            b"uid" => extension.uid = Some(number(value).ok_or(BAD)?),
            b"gid" => extension.gid = Some(number(value).ok_or(BAD)?),
            b"mtime" => extension.mtime = Some(pax_time(value).ok_or(BAD)?),
            _ if key.starts_with(b"GNU.sparse.") => return Err(TarError::Format("sparse files are not supported")),
            _ => {
                if let Some(name) = key.strip_prefix(b"SCHILY.xattr.") {
                    extension.xattrs.push((name.to_vec(), value.to_vec()));
                }
            }
        }
    }
    Ok(())
}

fn number<T: std::str::FromStr>(digits: &[u8]) -> Option<T> {
    let text = std::str::from_utf8(digits).ok()?;
    text.bytes().all(|b| b.is_ascii_digit()).then(|| text.parse().ok())?
}

/// `[-]seconds[.fraction]`; digits beyond nanoseconds are dropped.
fn pax_time(value: &[u8]) -> Option<(i64, u32)> {
    let text = std::str::from_utf8(value).ok()?;
    let (seconds, fraction) = text.split_once('.').unwrap_or((text, ""));
    let negative = seconds.starts_with('-');
    let seconds: i64 = seconds.parse().ok()?;
    if !fraction.bytes().all(|b| b.is_ascii_digit()) {
        return None;
    }
    let nanos: u32 = format!("{fraction:0<9.9}").parse().ok()?;
    if negative && nanos > 0 { Some((seconds.checked_sub(1)?, 1_000_000_000 - nanos)) } else { Some((seconds, nanos)) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn read(bytes: &[u8]) -> Result<Vec<(Entry, Vec<u8>)>, TarError> {
        let input: Box<dyn Read + '_> = Box::new(bytes);
        let mut reader = TarReader::new(input);
        let mut out = Vec::new();
        while let Some(entry) = reader.next()? {
            let mut content = Vec::new();
            reader.read_to_end(&mut content).map_err(TarError::Read)?;
            out.push((entry, content));
        }
        Ok(out)
    }

    fn block(kind: u8, name: &str, size: u64) -> Vec<u8> {
        let mut header = tar::Header::new_ustar();
        header.as_old_mut().name[..name.len()].copy_from_slice(name.as_bytes());
        header.set_entry_type(tar::EntryType::new(kind));
        header.set_size(size);
        header.set_mode(0o644);
        header.set_uid(0);
        header.set_gid(0);
        header.set_mtime(5);
        header.set_cksum();
        header.as_bytes().to_vec()
    }

    fn padded(kind: u8, name: &str, content: &[u8]) -> Vec<u8> {
        let mut out = block(kind, name, content.len() as u64);
        out.extend_from_slice(content);
        out.resize(out.len().next_multiple_of(512), 0);
        out
    }

    fn pax(records: &[(&str, &[u8])]) -> Vec<u8> {
        let mut out = Vec::new();
        for (key, value) in records {
            let body = key.len() + value.len() + 3;
            let len = (1..8).map(|digits| body + digits).find(|len| len.to_string().len() + body == *len).unwrap();
            out.extend_from_slice(format!("{len} {key}=").as_bytes());
            out.extend_from_slice(value);
            out.push(b'\n');
        }
        padded(b'x', "pax", &out)
    }

    #[test]
    fn blank_numbers_are_zero_and_others_must_be_numbers() {
        let with = |owner: &[u8; 8]| {
            let mut header = tar::Header::from_byte_slice(&block(b'0', "f", 0)).clone();
            header.as_old_mut().uid = *owner;
            header.set_cksum();
            read(header.as_bytes()).map(|entries| entries[0].0.uid)
        };
        assert_eq!((with(&[0; 8]).unwrap(), with(b"        ").unwrap(), with(b"0000017\0").unwrap()), (0, 0, 15));
        assert!(with(b"99999999").is_err() && with(b"x\0\0\0\0\0\0\0").is_err());
    }

    #[test]
    fn extension_headers_count_for_the_next_entry_only() {
        let capability = b"\x01\0\0\x02\n\n=\n\0 ";
        let records: [(&str, &[u8]); 6] = [
            ("path", b"long/name"),
            ("uid", b"70000"),
            ("mtime", b"12.5"),
            ("SCHILY.xattr.security.capability", capability),
            ("comment", b"x"),
            ("size", b"3"),
        ];
        let gnu = padded(b'L', "././@LongLink", b"gnu/name\0");
        let bytes =
            [pax(&records), padded(b'0', "short", b"abc"), gnu, padded(b'0', "s", b""), padded(b'0', "t", b"z")];
        let entries = read(&bytes.concat()).unwrap();
        let (entry, content) = &entries[0];
        assert_eq!(
            (entry.path.as_slice(), entry.uid, entry.gid, entry.mtime),
            (&b"long/name"[..], 70_000, 0, (12, 500_000_000))
        );
        assert_eq!(entry.xattrs, [(b"security.capability".to_vec(), capability.to_vec())]);
        assert_eq!(content, b"abc");
        assert_eq!(entries[1].0.path, b"gnu/name");
        assert_eq!(
            (entries[2].0.path.as_slice(), entries[2].0.mtime, entries[2].1.as_slice()),
            (&b"t"[..], (5, 0), &b"z"[..])
        );
    }

    #[test]
    fn broken_and_hostile_archives_are_refused() {
        let mut negative = block(b'0', "x", 0);
        negative[124..136].fill(0xff);
        let mut bad_sum = block(b'0', "x", 0);
        bad_sum[0] = b'y';
        let fix = |mut bytes: Vec<u8>| {
            bytes[148..156].fill(b' ');
            let sum: u32 = bytes.iter().map(|b| u32::from(*b)).sum();
            bytes[148..156].copy_from_slice(format!("{sum:06o}\0 ").as_bytes());
            bytes
        };
        for (bytes, expect) in [
            (fix(negative), "negative"),
            (bad_sum, "checksum"),
            (block(b'S', "x", 0), "sparse"),
            (pax(&[("GNU.sparse.major", b"1")]), "sparse"),
            (block(b'Z', "x", 0), "unknown type"),
            (block(b'L', "x", 5 << 30), "name is too long"),
            (block(b'x', "x", 5 << 30), "PAX header is too long"),
            (block(b'g', "x", 5 << 30), "PAX header is too long"),
            (block(b'L', "x", 100), "ends within an extension"),
            (padded(b'x', "x", b"99 path=x\n"), "malformed"),
            (padded(b'x', "x", b"0 \n"), "malformed"),
            (padded(b'x', "x", b"6 a=b"), "malformed"),
            (padded(b'x', "x", b"x"), "malformed"),
            (pax(&[("SCHILY.xattr.user.a", &[b'a'; 600_000])]).repeat(2), "headers of an entry are too long"),
            (pax(&[("size", b"-1")]), "malformed"),
            (pax(&[("path", b"x")]), "after an extension"),
            ([pax(&[("uid", b"4294967296")]), block(b'0', "x", 0)].concat(), "out of range"),
            (block(b'0', "x", 0)[..300].to_vec(), "within a header"),
        ] {
            let error = read(&bytes).unwrap_err().to_string();
            assert!(error.contains(expect), "{error} instead of {expect}");
        }
        assert!(matches!(read(&block(b'0', "x", 5)), Err(TarError::Read(_))));
    }

    #[test]
    fn an_archive_may_end_without_zero_blocks_and_links_have_no_content() {
        let bytes = [block(b'1', "link", 700), block(b'0', "folder/", 0), padded(b'0', "x", b"1")].concat();
        let entries = read(&bytes).unwrap();
        let kinds: Vec<_> = entries.iter().map(|(e, _)| (e.kind, e.size)).collect();
        assert_eq!(kinds, [(Kind::HardLink, 0), (Kind::Folder, 0), (Kind::File, 1)]);
        assert_eq!(read(b"").unwrap().len(), 0);
        assert_eq!(read(&[0; 1024]).unwrap().len(), 0);
    }

    #[test]
    fn times_before_1970_have_positive_nanoseconds() {
        assert_eq!(pax_time(b"-1.25"), Some((-2, 750_000_000)));
        assert_eq!(pax_time(b"1.1234567891"), Some((1, 123_456_789)));
        assert_eq!(pax_time(b"-0.5"), Some((-1, 500_000_000)));
        for bad in [&b""[..], b"x", b"1.x", b"1.-5", b"99999999999999999999"] {
            assert_eq!(pax_time(bad), None);
        }
    }

    proptest! {
        #[test]
        fn any_bytes_are_survived(head in "[xLg0125S]", junk: Vec<u8>, size in 0_u64..2000) {
            let _either = read(&junk);
            let bytes = [block(head.as_bytes()[0], "n", size), junk].concat();
            let _either = read(&bytes);
            let mut extension = Extension::default();
            let _either = parse_pax(&bytes, &mut extension);
        }
    }
}
