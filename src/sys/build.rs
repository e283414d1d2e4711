//! Which build of armlet this is.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt as _;
use std::sync::OnceLock;

/// The version that people see.
pub const VERSION: &str = if cfg!(feature = "other-build") {
    concat!(env!("CARGO_PKG_VERSION"), "-other")
} else {
    env!("CARGO_PKG_VERSION")
};

/// The greatest note segment that is read.
const MAX_NOTES: u64 = 4096;
/// How many program headers are looked at.
const MAX_HEADERS: u16 = 64;

/// Version and what tells one build from another: the linker's build id, of which a few hundred bytes of the file are
/// read, or, where there is none, a checksum of the file.
pub fn identity() -> &'static str {
    static IDENTITY: OnceLock<String> = OnceLock::new();
    IDENTITY.get_or_init(|| {
        let own = File::open("/proc/self/exe");
        let mark = own.and_then(|file| match build_id(&file)? {
            Some(id) => Ok(id.iter().take(10).map(|byte| format!("{byte:02x}")).collect()),
            None => checksum(&file),
        });
        format!("{VERSION}+{}", mark.unwrap_or_else(|_| "unknown".to_owned()))
    })
}

/// The GNU build id of a 64-bit little-endian ELF file (System V ABI, chapters 4 and 5): `None` if it has none.
///
/// # Errors
/// Of reading.
pub fn build_id(file: &File) -> io::Result<Option<Vec<u8>>> {
    const NOTE: u32 = 4;
    for segment in segments(file)?.iter().filter(|s| s.kind == NOTE && s.length <= MAX_NOTES) {
        let mut notes = vec![0; usize::try_from(segment.length).unwrap_or(0)];
        file.read_exact_at(&mut notes, segment.offset)?;
        if let Some(id) = id_in(&notes) {
            return Ok(Some(id.to_vec()));
        }
    }
    Ok(None)
}

/// Whether the file has all that is mapped of this ELF program: of one that was cut short the kernel maps pages that are
/// not there, and it ends when it comes to the first.
///
/// # Errors
/// Of reading.
pub fn is_whole(file: &File) -> io::Result<bool> {
    const LOAD: u32 = 1;
    let size = file.metadata()?.len();
    let fits = |s: &Segment| s.offset.checked_add(s.length).is_some_and(|end| end <= size);
    Ok(segments(file)?.iter().filter(|s| s.kind == LOAD).all(fits))
}

/// A program header.
#[derive(Debug)]
struct Segment {
    kind: u32,
    offset: u64,
    length: u64,
}

/// The program headers of a 64-bit little-endian ELF file; none of another.
fn segments(file: &File) -> io::Result<Vec<Segment>> {
    let mut header = [0; 64];
    file.read_exact_at(&mut header, 0)?;
    let half = |at: usize| header.get(at..at + 2).and_then(|b| b.try_into().ok()).map_or(0, u16::from_le_bytes);
    if header.get(..6) != Some(b"\x7fELF\x02\x01") || half(54) != 56 {
        return Ok(Vec::new());
    }
    let mut found = Vec::new();
    for number in 0..half(56).min(MAX_HEADERS) {
        let mut program = [0; 56];
        file.read_exact_at(&mut program, word(&header, 32).saturating_add(u64::from(number) * 56))?;
        let kind = program.first_chunk().map_or(0, |bytes| u32::from_le_bytes(*bytes));
        found.push(Segment { kind, offset: word(&program, 8), length: word(&program, 32) });
    }
    Ok(found)
}

fn word(bytes: &[u8], at: usize) -> u64 {
    bytes.get(at..at + 8).and_then(|b| b.try_into().ok()).map_or(0, u64::from_le_bytes)
}

/// The description of the note of type 3 and name `GNU`.
fn id_in(mut notes: &[u8]) -> Option<&[u8]> {
    const BUILD_ID: usize = 3;
    loop {
        let (head, rest) = notes.split_at_checked(12)?;
        let field = |at: usize| {
            let bytes = head.get(at..at + 4)?.try_into().ok()?;
            usize::try_from(u32::from_le_bytes(bytes)).ok()
        };
        let (name_len, len, kind) = (field(0)?, field(4)?, field(8)?);
        let (name, rest) = rest.split_at_checked(name_len.checked_next_multiple_of(4)?)?;
        let description = rest.get(..len)?;
        if kind == BUILD_ID && name == b"GNU\0" && !description.is_empty() {
            return Some(description);
        }
        notes = rest.get(len.checked_next_multiple_of(4)?..)?;
    }
}

fn checksum(file: &File) -> io::Result<String> {
    let mut sum = crc32fast::Hasher::new();
    let mut buffer = vec![0; 64 * 1024];
    let mut at = 0;
    loop {
        match file.read_at(&mut buffer, at)? {
            0 => return Ok(format!("{:08x}", sum.finalize())),
            n => {
                sum.update(buffer.get(..n).unwrap_or_default());
                at = at.saturating_add(u64::try_from(n).unwrap_or(u64::MAX));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write as _;

    fn note(name: &[u8], kind: u32, description: &[u8]) -> Vec<u8> {
        let padded = |bytes: &[u8]| [bytes, &vec![0; bytes.len().next_multiple_of(4) - bytes.len()]].concat();
        let length = |bytes: &[u8]| u32::try_from(bytes.len()).unwrap().to_le_bytes();
        let head = [length(name), length(description), kind.to_le_bytes()].concat();
        [head, padded(name), padded(description)].concat()
    }

    #[test]
    fn the_id_is_found_among_other_notes_and_rubbish_is_none() {
        let id = note(b"GNU\0", 3, &[1, 2, 3, 4, 5]);
        let other = note(b"Linker\0", 3, b"x");
        assert_eq!(id_in(&[other.clone(), id.clone()].concat()), Some(&[1, 2, 3, 4, 5][..]));
        assert_eq!(id_in(&other), None);
        for end in 0..17 {
            assert_eq!(id_in(&id[..end]), None, "{end}");
        }
        assert_eq!(id_in(&[0xff; 64]), None);
        assert_eq!(id_in(&[0; 64]), None);
    }

    #[test]
    fn this_program_has_one_identity_and_another_file_another() {
        assert_eq!(identity(), identity());
        let (version, mark) = identity().split_once('+').unwrap();
        assert!(version.starts_with(env!("CARGO_PKG_VERSION")) && mark.len() >= 8, "{version} {mark}");
        let mut file = tempfile::tempfile().unwrap();
        file.write_all(&[7; 70_000]).unwrap();
        assert_eq!(build_id(&file).unwrap(), None);
        let sum = checksum(&file).unwrap();
        file.write_all(&[7]).unwrap();
        assert_ne!(checksum(&file).unwrap(), sum);
    }

    #[test]
    fn a_program_that_was_cut_short_is_not_whole() {
        let own = File::open("/proc/self/exe").unwrap();
        assert!(is_whole(&own).unwrap());
        let mut start = vec![0; 64 * 1024];
        own.read_exact_at(&mut start, 0).unwrap();
        let mut file = tempfile::tempfile().unwrap();
        file.write_all(&start).unwrap();
        assert!(!is_whole(&file).unwrap());
    }

    #[test]
    fn headers_that_point_nowhere_are_an_error_and_no_more() {
        let mut file = tempfile::tempfile().unwrap();
        let mut header = [0xff; 64];
        header[..6].copy_from_slice(b"\x7fELF\x02\x01");
        header[54..56].copy_from_slice(&56_u16.to_le_bytes());
        file.write_all(&header).unwrap();
        assert!(build_id(&file).is_err());
        assert!(build_id(&tempfile::tempfile().unwrap()).is_err(), "an empty file");
    }
}
