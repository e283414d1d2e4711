//! Images that lie on the node: archives and layouts in a folder, imported at start. What was imported once is not
//! read again while file and images are the same.

use super::import::OnProgress;
use super::{Image, ImageStore, ImportError};
use crate::model::ids::ImageId;
use crate::model::time::WallTime;
use crate::sys::durable;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

const MEMORY: &str = "preload.json";

/// What a preload came to.
#[derive(Debug, Default)]
pub struct Preloaded {
    /// Imported now.
    pub imported: Vec<Image>,
    /// What could not be; the rest was, all the same.
    pub failed: Vec<(PathBuf, ImportError)>,
}

/// What is remembered of one entry of the folder, by its name.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
struct Seen {
    size: u64,
    mtime: (i64, i64),
    images: Vec<ImageId>,
}

/// Imports what is new in the folder. A folder that does not exist holds nothing.
pub(super) fn preload(store: &ImageStore, folder: &Path, now: WallTime, progress: &mut OnProgress<'_>) -> Preloaded {
    let mut out = Preloaded::default();
    let known = read_memory(store);
    let mut memory = BTreeMap::new();
    for path in candidates(folder, &mut out) {
        let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
        let stamp = match stamp(&path) {
            Ok(stamp) => stamp,
            Err(source) => {
                out.failed.push((path.clone(), ImportError::Read { path, source }));
                continue;
            }
        };
        let same = known.get(&name).filter(|seen| (seen.size, seen.mtime) == stamp);
        // An image that is gone since, damaged or removed, comes back from here.
        if let Some(same) = same.filter(|seen| seen.images.iter().all(|id| store.get(id).is_some())) {
            memory.insert(name, same.clone());
            continue;
        }
        match store.import(&path, None, now, progress) {
            Ok(images) => {
                let ids = images.iter().map(|image| image.id.clone()).collect();
                memory.insert(name, Seen { size: stamp.0, mtime: stamp.1, images: ids });
                out.imported.extend(images);
            }
            Err(error) => out.failed.push((path, error)),
        }
    }
    if memory != known {
        let json = serde_json::to_vec(&memory).unwrap_or_default();
        if let Err(source) = durable::replace_file(&store.root, MEMORY, &json) {
            let path = store.root.join(MEMORY);
            out.failed.push((path.clone(), ImportError::Write { operation: "write", path, source }));
        }
    }
    out
}

/// Only a help for speed: what cannot be read is forgotten.
fn read_memory(store: &ImageStore) -> BTreeMap<String, Seen> {
    let bytes = std::fs::read(store.root.join(MEMORY)).unwrap_or_default();
    serde_json::from_slice(&bytes).unwrap_or_default()
}

/// Archives by their extension and folders with an index, by name, so that every node imports in one order.
fn candidates(folder: &Path, out: &mut Preloaded) -> Vec<PathBuf> {
    const EXTENSIONS: [&str; 6] = [".tar", ".tar.gz", ".tgz", ".tar.zst", ".tzst", ".oci"];
    let entries = match std::fs::read_dir(folder) {
        Ok(entries) => entries,
        Err(source) => {
            if source.kind() != std::io::ErrorKind::NotFound {
                out.failed.push((folder.to_owned(), ImportError::Read { path: folder.to_owned(), source }));
            }
            return Vec::new();
        }
    };
    let paths = entries.flatten().map(|entry| entry.path()).filter(|path| {
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        let is_archive = EXTENSIONS.iter().any(|extension| name.ends_with(extension)) && path.is_file();
        !name.starts_with('.') && (is_archive || path.join("index.json").is_file())
    });
    let mut paths: Vec<PathBuf> = paths.collect();
    paths.sort();
    paths
}

/// Size and time of the archive, or of a layout's index: every change of a layout changes that.
fn stamp(path: &Path) -> std::io::Result<(u64, (i64, i64))> {
    let meta = path.metadata()?;
    let meta = if meta.is_dir() { path.join("index.json").metadata()? } else { meta };
    Ok((meta.len(), (meta.mtime(), meta.mtime_nsec())))
}
