//! One small file for one fact at a time, with two slots.
//!
//! An update overwrites the slot that does not hold the current generation, in place: one data block reaches the disk
//! and the file system's journal stays quiet (4 KiB an update on ext4, where write-rename-sync costs 73 KiB). A cut in
//! the middle tears the slot whose content nobody was promised; the other one still holds the fact.

use super::record::{self, Record};
use crate::sys::durable;
use std::fs::{File, OpenOptions};
use std::io::{self, Read, Write};
use std::os::unix::fs::FileExt;
use std::path::Path;

/// Slots start at multiples of this: two slots never share a block of any usual file system or card sector.
const BLOCK: usize = 4096;

/// Where the current generation lies in a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Place {
    /// Bytes of one slot; the file holds two.
    slot_len: usize,
    /// The second slot holds the current generation.
    second: bool,
}

impl Place {
    /// Bytes that an update in place can hold.
    pub(super) const fn room(self) -> usize {
        self.slot_len
    }
}

/// What was found in a fact file.
#[derive(Debug)]
pub(super) enum Found {
    /// The newest whole record. `place` is `None` when the file's layout is not as it was written, so that the next
    /// update writes a new file.
    Fact { record: Record, place: Option<Place> },
    /// Empty or all zeros: a creation that was cut short. Nothing was promised, and nothing is in it.
    Unfinished,
    /// There is something, and none of it is a whole record.
    Damaged,
}

/// Reads a fact file of any content.
pub(super) fn read(path: &Path) -> io::Result<Found> {
    let mut bytes = Vec::new();
    let limit = 2 * (record::MAX_PAYLOAD + 2 * BLOCK);
    File::open(path)?.take(limit as u64).read_to_end(&mut bytes)?;
    Ok(scan(&bytes))
}

fn scan(bytes: &[u8]) -> Found {
    let slot_len = bytes.len() / 2;
    let regular = slot_len > 0 && bytes.len().is_multiple_of(2 * BLOCK);
    // Every block is tried, not only the two slots, so that a file cut short still gives what it has.
    let newest = (0..bytes.len())
        .step_by(BLOCK)
        .filter_map(|at| Some((at, record::decode(bytes.get(at..)?)?)))
        .max_by_key(|(_, record)| record.generation);
    match newest {
        Some((at, record)) => {
            let place = (regular && (at == 0 || at == slot_len)).then_some(Place { slot_len, second: at != 0 });
            Found::Fact { record, place }
        }
        None if bytes.iter().all(|b| *b == 0) => Found::Unfinished,
        None => Found::Damaged,
    }
}

/// Writes a new generation durably and tells where it lies. `old` is where the current one lies, if the file is sound.
pub(super) fn write(dir: &Path, name: &str, encoded: &[u8], old: Option<Place>) -> io::Result<Place> {
    if let Some(place) = old.filter(|p| encoded.len() <= p.slot_len) {
        let next = Place { second: !place.second, ..place };
        let file = OpenOptions::new().write(true).open(dir.join(name))?;
        file.write_all_at(encoded, if next.second { next.slot_len as u64 } else { 0 })?;
        file.sync_data()?;
        return Ok(next);
    }
    // A quarter more than needed: most records grow a little, and a new file costs ten times an update.
    let slot_len = (encoded.len() + encoded.len() / 4).next_multiple_of(BLOCK);
    let mut content = encoded.to_vec();
    content.resize(2 * slot_len, 0);
    create(dir, name, &content)?;
    Ok(Place { slot_len, second: false })
}

fn create(dir: &Path, name: &str, content: &[u8]) -> io::Result<()> {
    let path = dir.join(name);
    match OpenOptions::new().write(true).create_new(true).open(&path) {
        // A new file needs no rename: until it is synced nobody was promised anything.
        Ok(mut file) => {
            if let Err(error) = file.write_all(content).and_then(|()| file.sync_all()) {
                let _gone = std::fs::remove_file(&path);
                return Err(error);
            }
            durable::sync_dir(dir)
        }
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => durable::replace_file(dir, name, content),
        Err(error) => Err(error),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn put(dir: &Path, generation: u64, payload: &[u8], old: Option<Place>) -> Place {
        write(dir, "f", &record::encode("k", generation, payload).unwrap(), old).unwrap()
    }

    fn get(dir: &Path) -> (u64, Vec<u8>, Option<Place>) {
        match read(&dir.join("f")).unwrap() {
            Found::Fact { record, place } => (record.generation, record.payload, place),
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn updates_alternate_between_the_slots_and_growth_makes_a_new_file() {
        let dir = tempfile::tempdir().unwrap();
        let mut place = put(dir.path(), 1, b"one", None);
        for generation in 2..6 {
            place = put(dir.path(), generation, format!("{generation}").as_bytes(), Some(place));
            assert_eq!(get(dir.path()), (generation, format!("{generation}").into_bytes(), Some(place)));
            assert_eq!(std::fs::metadata(dir.path().join("f")).unwrap().len(), 8192);
        }
        let big = vec![7; 10_000];
        let place = put(dir.path(), 6, &big, Some(place));
        assert_eq!(get(dir.path()), (6, big, Some(place)));
    }

    #[test]
    fn a_torn_update_leaves_the_generation_before() {
        let dir = tempfile::tempdir().unwrap();
        let first = put(dir.path(), 1, b"one", None);
        put(dir.path(), 2, b"two", Some(first));
        let path = dir.path().join("f");
        let whole = std::fs::read(&path).unwrap();
        for torn in [4096, 4096 + 20, 4096 + 30] {
            let mut bytes = whole.clone();
            bytes[torn] ^= 0xff;
            std::fs::write(&path, bytes).unwrap();
            assert_eq!(get(dir.path()), (1, b"one".to_vec(), Some(first)));
        }
        // The newest in the first slot, torn: the second one counts.
        let mut bytes = whole.clone();
        bytes[0] = 0;
        std::fs::write(&path, bytes).unwrap();
        assert_eq!(get(dir.path()).0, 2);
    }

    #[test]
    fn a_file_cut_short_gives_what_it_has_and_is_written_anew() {
        let dir = tempfile::tempdir().unwrap();
        let first = put(dir.path(), 1, b"one", None);
        put(dir.path(), 2, b"two", Some(first));
        let path = dir.path().join("f");
        File::options().write(true).open(&path).unwrap().set_len(5000).unwrap();
        assert_eq!(get(dir.path()), (2, b"two".to_vec(), None));
        put(dir.path(), 3, b"three", None);
        assert_eq!(get(dir.path()).0, 3);
        assert_eq!(std::fs::metadata(&path).unwrap().len(), 8192);
    }

    #[test]
    fn damage_and_an_unfinished_creation_are_told_apart() {
        assert!(matches!(scan(b""), Found::Unfinished));
        assert!(matches!(scan(&[0; 8192]), Found::Unfinished));
        assert!(matches!(scan(b"x"), Found::Damaged));
        assert!(matches!(scan(&[0xff; 8192]), Found::Damaged));
    }
}
