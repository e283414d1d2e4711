//! The record of one image: what makes it exist.

use super::reference::is_hex64;
use super::{ImageConfig, Problem};
use crate::model::ids::ImageId;
use crate::model::time::WallTime;
use crate::sys::durable;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::path::Path;

/// Written into each record. A reader of version 1 leaves later ones alone.
pub(super) const VERSION: u32 = 1;

/// As stored in `<id>.json`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Record {
    pub(super) version: u32,
    /// Grows with every import; of two records with one name the later has it.
    pub(super) sequence: u64,
    pub(super) id: ImageId,
    pub(super) references: Vec<String>,
    pub(super) digests: Vec<String>,
    /// Lowest first.
    pub(super) layers: Vec<LayerRecord>,
    pub(super) config: ImageConfig,
    pub(super) architecture: String,
    pub(super) imported_at: WallTime,
}

/// One layer of an image.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct LayerRecord {
    /// Hexadecimal sha256 of the unpacked archive; the name of its folder.
    pub(super) diff_id: String,
    /// Bytes of content in its files.
    pub(super) bytes: u64,
}

/// Enough to tell a record of a later version from a damaged one.
#[derive(Debug, Deserialize)]
struct Versioned {
    version: u32,
}

/// Name of the file that holds the record.
pub(super) fn file_name(id: &ImageId) -> String {
    format!("{id}.json")
}

/// Reads every record; tells also whether there is one that cannot be read, found now or at an earlier open.
pub(super) fn read_all(root: &Path, problems: &mut Vec<Problem>) -> (BTreeMap<ImageId, Record>, bool) {
    let mut records = BTreeMap::new();
    let mut unreadable = false;
    let mut set_aside: Vec<String> = Vec::new();
    let entries = match std::fs::read_dir(root) {
        Ok(entries) => entries,
        Err(source) => {
            problems.push(Problem::Io { operation: "list", path: root.to_owned(), source });
            return (records, true);
        }
    };
    for entry in entries.flatten() {
        let name = entry.file_name().to_string_lossy().into_owned();
        set_aside.extend(name.split_once(".json.damaged-").map(|(id, _)| id.to_owned()));
        let Some(id) = name.strip_suffix(".json").filter(|stem| is_hex64(stem)) else {
            continue;
        };
        match read_one(root, id, &entry.path()) {
            Ok(record) => {
                records.insert(record.id.clone(), record);
            }
            Err(problem) => {
                unreadable = true;
                problems.push(problem);
            }
        }
    }
    settle_names(&mut records);
    // An image that was imported again since is no loss any more.
    let lost = |id: &String| !records.keys().any(|known| known.as_str() == id);
    let unreadable = unreadable || set_aside.iter().any(lost);
    (records, unreadable)
}

fn read_one(root: &Path, id: &str, path: &Path) -> Result<Record, Problem> {
    let failed = |operation, source| Problem::Io { operation, path: path.to_owned(), source };
    let bytes = std::fs::read(path).map_err(|source| failed("read", source))?;
    if let Ok(Versioned { version }) = serde_json::from_slice(&bytes)
        && version > VERSION
    {
        return Err(Problem::Later { path: path.to_owned(), version });
    }
    let sound = serde_json::from_slice(&bytes).ok().filter(|record: &Record| {
        let layers = record.layers.iter().map(|layer| &layer.diff_id);
        let whole = |diff_id: &String| is_hex64(diff_id) && root.join("layers").join(diff_id).is_dir();
        record.id.as_str() == id && layers.into_iter().all(whole)
    });
    match sound {
        Some(record) => Ok(record),
        None => {
            durable::set_aside(path).map_err(|source| failed("set aside", source))?;
            Err(Problem::Damaged { path: path.to_owned() })
        }
    }
}

/// Of two records with one name the later import has it.
fn settle_names(records: &mut BTreeMap<ImageId, Record>) {
    let mut owner: BTreeMap<String, u64> = BTreeMap::new();
    for record in records.values() {
        for name in &record.references {
            let sequence = owner.entry(name.clone()).or_default();
            *sequence = record.sequence.max(*sequence);
        }
    }
    for record in records.values_mut() {
        record.references.retain(|name| owner.get(name) == Some(&record.sequence));
    }
}
