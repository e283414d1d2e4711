//! The stored form of one fact: a checked header, the key, the payload. Used in fact files and as sled's values.
//!
//! | bytes | what |
//! |---|---|
//! | 0..8 | `armlfact` |
//! | 8..10 | version, 1 (all numbers little-endian) |
//! | 10..12 | length of the key |
//! | 12..16 | length of the payload |
//! | 16..24 | generation |
//! | 24..28 | CRC-32 (IEEE) of bytes 0..24, key and payload |
//! | 28.. | key, payload |
//!
//! A fact that was deleted leaves a record without a payload, whose key begins with `gone/`, in its file: the newest
//! generation there, until another fact takes the file over.

/// The greatest payload of one fact. A pod's record is a few KiB; the limit keeps a wrong length from costing memory.
pub(super) const MAX_PAYLOAD: usize = 4 << 20;

const MAGIC: &[u8; 8] = b"armlfact";
const VERSION: u16 = 1;
const HEADER: usize = 28;

const GONE: &str = "gone/";

/// The record that takes the place of a deleted fact.
pub(super) fn encode_gone(key: &str, generation: u64) -> Option<Vec<u8>> {
    encode(&format!("{GONE}{key}"), generation, &[])
}

/// One fact as it was read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Record {
    pub(super) key: String,
    pub(super) generation: u64,
    pub(super) payload: Vec<u8>,
}

impl Record {
    /// The key of the deleted fact whose place this record has taken.
    pub(super) fn gone(&self) -> Option<&str> {
        self.key.strip_prefix(GONE)
    }
}

/// Bytes of a record with this key and payload.
pub(super) const fn encoded_len(key: &str, payload: &[u8]) -> usize {
    HEADER + key.len() + payload.len()
}

/// Writes a record. `None` when key or payload are longer than the header can say.
pub(super) fn encode(key: &str, generation: u64, payload: &[u8]) -> Option<Vec<u8>> {
    let key_len = u16::try_from(key.len()).ok()?;
    let payload_len = u32::try_from(payload.len()).ok().filter(|_| payload.len() <= MAX_PAYLOAD)?;
    let mut out = Vec::with_capacity(encoded_len(key, payload));
    out.extend_from_slice(MAGIC);
    out.extend_from_slice(&VERSION.to_le_bytes());
    out.extend_from_slice(&key_len.to_le_bytes());
    out.extend_from_slice(&payload_len.to_le_bytes());
    out.extend_from_slice(&generation.to_le_bytes());
    let crc = checksum(&out, key.as_bytes(), payload);
    out.extend_from_slice(&crc.to_le_bytes());
    out.extend_from_slice(key.as_bytes());
    out.extend_from_slice(payload);
    Some(out)
}

/// Reads the record at the start of `bytes`; what follows it is not looked at. `None` when it is not whole.
pub(super) fn decode(bytes: &[u8]) -> Option<Record> {
    let header = bytes.get(..HEADER)?;
    let version = u16::from_le_bytes(array(header, 8)?);
    if !header.starts_with(MAGIC) || version != VERSION {
        return None;
    }
    let key_len = usize::from(u16::from_le_bytes(array(header, 10)?));
    let payload_len = usize::try_from(u32::from_le_bytes(array(header, 12)?)).ok()?;
    let generation = u64::from_le_bytes(array(header, 16)?);
    let crc = u32::from_le_bytes(array(header, 24)?);
    if payload_len > MAX_PAYLOAD {
        return None;
    }
    let key = bytes.get(HEADER..HEADER + key_len)?;
    let payload = bytes.get(HEADER + key_len..HEADER + key_len + payload_len)?;
    if checksum(header.get(..24)?, key, payload) != crc {
        return None;
    }
    Some(Record { key: String::from_utf8(key.to_vec()).ok()?, generation, payload: payload.to_vec() })
}

fn array<const N: usize>(bytes: &[u8], at: usize) -> Option<[u8; N]> {
    bytes.get(at..at + N)?.try_into().ok()
}

fn checksum(header: &[u8], key: &[u8], payload: &[u8]) -> u32 {
    let mut crc = crc32fast::Hasher::new();
    crc.update(header);
    crc.update(key);
    crc.update(payload);
    crc.finalize()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn what_is_written_is_read(key in "[a-z0-9-]{1,63}", generation: u64, payload: Vec<u8>, tail: Vec<u8>) {
            let mut bytes = encode(&key, generation, &payload).unwrap();
            bytes.extend_from_slice(&tail);
            prop_assert_eq!(decode(&bytes), Some(Record { key, generation, payload }));
        }

        #[test]
        fn any_changed_bit_is_noticed(payload: Vec<u8>, at: usize, bit in 0_u8..8) {
            let mut bytes = encode("pod", 7, &payload).unwrap();
            let at = at % bytes.len();
            bytes[at] ^= 1 << bit;
            prop_assert_eq!(decode(&bytes), None);
        }

        #[test]
        fn any_bytes_are_survived(bytes: Vec<u8>) {
            let _either = decode(&bytes);
        }
    }

    #[test]
    fn a_cut_record_is_none() {
        let bytes = encode("pod", 7, b"payload").unwrap();
        for len in 0..bytes.len() {
            assert_eq!(decode(&bytes[..len]), None, "{len}");
        }
        assert_eq!(encode("pod", 1, &vec![0; MAX_PAYLOAD + 1]), None);
    }
}
