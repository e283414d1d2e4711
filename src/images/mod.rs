//! The image store: import, verify, unpack, delete. Decides no policy: what to keep, when to collect and when to pull
//! is told by the caller.
//!
//! Every call blocks on the disk: an async caller runs it on a thread for blocking work. All calls take `&self` and may
//! run side by side; imports wait for each other, so that memory stays flat.
//!
//! On disk, below the store's root:
//! - `<image id>.json`: one record per image, written last and atomically. An image without a record does not exist.
//! - `layers/<diff id>/`: one unpacked layer, usable as an overlay lower folder as it is. Shared between images.
//! - `layers/.new-<diff id>/`: a layer that is being unpacked. Removed when the store is opened.
//! - `preload.json`: what was already imported from the preload folder.

mod archive;
mod compress;
mod digest;
mod error;
mod image;
mod import;
mod manifest;
mod platform;
mod preload;
mod record;
mod reference;
mod tar_reader;
#[cfg(test)]
mod tests;
mod unpack;

use crate::model::ids::ImageId;
use crate::model::time::WallTime;
use crate::sys::accounting::{Process, bytes_written};
use crate::sys::durable;
use record::Record;
use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};

pub use error::{ImportError, RemoveError};
pub use image::{Image, ImageConfig};
pub use import::{OnProgress, Progress};
pub use platform::Host;
pub use preload::Preloaded;
pub use reference::{Reference, ReferenceError};
pub use tar_reader::TarError;
pub use unpack::UnpackError;

/// What was wrong when the store was opened. The images that are sound are there all the same.
#[derive(Debug, thiserror::Error)]
pub enum Problem {
    /// A folder or file could not be reached.
    #[error("cannot {operation} {}", path.display())]
    Io {
        /// What was tried.
        operation: &'static str,
        /// On which path.
        path: PathBuf,
        /// The kernel's answer.
        #[source]
        source: io::Error,
    },
    /// A record was damaged, or its layers are gone. It was set aside; the image has to be imported again.
    #[error("the image of {} is damaged: its record was set aside", path.display())]
    Damaged {
        /// Where the record was.
        path: PathBuf,
    },
    /// A record of a later version of armlet. It was left alone; its image is not known here.
    #[error("{} is of version {version}, which this armlet does not know", path.display())]
    Later {
        /// The record.
        path: PathBuf,
        /// Its version.
        version: u32,
    },
}

/// An open store and what was found on the way.
#[derive(Debug)]
pub struct Opened {
    /// Always usable.
    pub store: ImageStore,
    /// For the log and a node condition. Empty when all is well.
    pub problems: Vec<Problem>,
}

/// The images of this node.
#[derive(Debug)]
pub struct ImageStore {
    root: PathBuf,
    host: Host,
    records: RwLock<BTreeMap<ImageId, Record>>,
    /// Held by an import, and by whoever removes layers: what an import counts on stays.
    layers: Mutex<()>,
    /// Bytes that imports have written to disks.
    written: AtomicU64,
}

impl ImageStore {
    /// Opens the store in `root`, which is made if it is not there, and removes what a cut import left. Never fails:
    /// see [`Opened::problems`].
    #[must_use]
    pub fn open(root: &Path, host: Host) -> Opened {
        let mut problems = Vec::new();
        let layers = root.join("layers");
        if let Err(source) = std::fs::DirBuilder::new().recursive(true).mode(0o700).create(&layers) {
            problems.push(Problem::Io { operation: "create", path: layers, source });
        }
        let (records, unreadable) = record::read_all(root, &mut problems);
        let store = Self {
            root: root.to_owned(),
            host,
            records: RwLock::new(records),
            layers: Mutex::new(()),
            written: AtomicU64::new(0),
        };
        // A layer without a record may belong to a record that cannot be read.
        let is_left_over = |name: &str| name.starts_with('.') || !unreadable;
        if let Err((path, source)) = store.collect(&store.lock_layers(), is_left_over) {
            problems.push(Problem::Io { operation: "remove", path, source });
        }
        Opened { store, problems }
    }

    /// The image that a pod's `image` field means. `None` when it is not here, or the text is no reference.
    #[must_use]
    pub fn resolve(&self, reference: &str) -> Option<Image> {
        let reference = Reference::parse(reference).ok()?;
        let records = self.read();
        let found = match &reference {
            Reference::Tag { .. } => {
                let name = reference.to_string();
                records.values().find(|record| record.references.contains(&name))
            }
            // The digest alone decides: content under any other name is the same.
            Reference::Digest { digest, .. } => records.values().find(|record| record.digests.contains(digest)),
            Reference::Id(id) => ImageId::new(id.as_str()).ok().and_then(|id| records.get(&id)),
        };
        found.map(|record| self.image(record))
    }

    /// The image of this id.
    #[must_use]
    pub fn get(&self, id: &ImageId) -> Option<Image> {
        self.read().get(id).map(|record| self.image(record))
    }

    /// All images, by id.
    #[must_use]
    pub fn list(&self) -> Vec<Image> {
        self.read().values().map(|record| self.image(record)).collect()
    }

    /// Imports all images of an OCI layout folder, or of a tar archive in the OCI or docker-save form, plain, gzip or
    /// zstd. `name` replaces the names that the source gives, and needs a source of one image. An image that is here
    /// already gets the names in addition. A name that another image had moves.
    ///
    /// # Errors
    /// See [`ImportError`]; nothing of the source is kept then.
    pub fn import(
        &self,
        path: &Path,
        name: Option<&str>,
        now: WallTime,
        progress: &mut OnProgress<'_>,
    ) -> Result<Vec<Image>, ImportError> {
        let _held = self.lock_layers();
        // All of an import happens on this thread.
        let before = bytes_written(Process::OwnThread);
        let done = import::import(self, path, name, now, progress);
        let after = bytes_written(Process::OwnThread);
        let grown = before.zip(after).map_or(0, |(before, after)| after.saturating_sub(before));
        self.written.fetch_add(grown, Ordering::Relaxed);
        done
    }

    /// Bytes that imports have written to disks since the store was opened, as far as the kernel counts them.
    #[must_use]
    pub fn bytes_written(&self) -> u64 {
        self.written.load(Ordering::Relaxed)
    }

    /// Bytes that all layers together take.
    #[must_use]
    pub fn layer_bytes(&self) -> u64 {
        self.layer_sizes().into_values().fold(0, u64::saturating_add)
    }

    /// Takes one of an image's names away; the image itself stays.
    ///
    /// # Errors
    /// No image has this name, or the record cannot be written.
    pub fn untag(&self, name: &str) -> Result<(), RemoveError> {
        let mut records = self.write();
        let Some(record) = records.values_mut().find(|record| record.references.iter().any(|n| n == name)) else {
            return Err(RemoveError::Unknown { id: name.to_owned() });
        };
        let without =
            Record { references: record.references.iter().filter(|n| *n != name).cloned().collect(), ..record.clone() };
        self.write_record(&without)
            .map_err(|source| RemoveError::Record { id: record.id.to_string(), source: Box::new(source) })?;
        *record = without;
        Ok(())
    }

    /// Imports what is new in a folder of archives and layouts; a bad one does not keep the others back.
    pub fn preload(&self, folder: &Path, now: WallTime, progress: &mut OnProgress<'_>) -> Preloaded {
        preload::preload(self, folder, now, progress)
    }

    /// Removes an image and the layers that no other image has. Whether a container uses it is the caller's to know.
    /// Waits for an import that runs.
    ///
    /// # Errors
    /// The record cannot be removed. A layer that cannot be is no error: it is tried again at the next open.
    pub fn remove(&self, id: &ImageId) -> Result<(), RemoveError> {
        let guard = self.lock_layers();
        let Some(record) = self.read().get(id).cloned() else {
            return Err(RemoveError::Unknown { id: id.to_string() });
        };
        let path = self.root.join(record::file_name(id));
        let removed = match std::fs::remove_file(&path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
            other => other,
        };
        removed.and_then(|()| durable::sync_dir(&self.root)).map_err(|source| RemoveError::Io { path, source })?;
        self.write().remove(id);
        let _left = self.collect(&guard, |name| record.layers.iter().any(|layer| layer.diff_id == name));
        Ok(())
    }

    /// Adds a record, or the names and digests of one to the record that is there, and takes the names from others.
    fn add(&self, mut record: Record) -> Result<Image, ImportError> {
        let mut records = self.write();
        record.sequence = records.values().map(|r| r.sequence).max().unwrap_or(0).saturating_add(1);
        let old = records.get(&record.id).cloned();
        if let Some(old) = &old {
            record.imported_at = old.imported_at;
            record.references = union(&old.references, &record.references);
            record.digests = union(&old.digests, &record.digests);
        }
        let unchanged = old.as_ref().is_some_and(|old| Record { sequence: old.sequence, ..record.clone() } == *old);
        let new = if unchanged { old.unwrap_or(record) } else { record };
        if !unchanged {
            self.write_record(&new)?;
            records.insert(new.id.clone(), new.clone());
        }
        // After the new record: a cut in between is settled by the sequence.
        for other in records.values_mut().filter(|other| other.id != new.id) {
            let before = other.references.len();
            other.references.retain(|name| !new.references.contains(name));
            if other.references.len() != before {
                self.write_record(other)?;
            }
        }
        Ok(self.image(&new))
    }

    fn write_record(&self, record: &Record) -> Result<(), ImportError> {
        let name = record::file_name(&record.id);
        let path = self.root.join(&name);
        let json = serde_json::to_vec(record).map_err(|source| ImportError::Json {
            path: path.clone(),
            member: name.clone(),
            source,
        })?;
        durable::replace_file(&self.root, &name, &json).map_err(|source| ImportError::Write {
            operation: "write",
            path,
            source,
        })
    }

    fn image(&self, record: &Record) -> Image {
        Image {
            id: record.id.clone(),
            references: record.references.clone(),
            digests: record.digests.clone(),
            layers: record.layers.iter().map(|layer| self.layer_path(&layer.diff_id)).collect(),
            config: record.config.clone(),
            architecture: record.architecture.clone(),
            size_bytes: record.layers.iter().fold(0, |sum, layer| sum.saturating_add(layer.bytes)),
            imported_at: record.imported_at,
        }
    }

    /// The layers that records vouch for, with their sizes.
    fn layer_sizes(&self) -> BTreeMap<String, u64> {
        let records = self.read();
        records.values().flat_map(|r| &r.layers).map(|layer| (layer.diff_id.clone(), layer.bytes)).collect()
    }

    /// Removes those layer folders that may go and that no record names. The first that cannot be is returned.
    fn collect(&self, _held: &MutexGuard<'_, ()>, may_go: impl Fn(&str) -> bool) -> Result<(), (PathBuf, io::Error)> {
        let used: BTreeSet<String> = self.layer_sizes().into_keys().collect();
        let folder = self.layers_folder();
        let entries = std::fs::read_dir(&folder).map_err(|source| (folder, source))?;
        let mut result = Ok(());
        for entry in entries.flatten() {
            let name = entry.file_name().to_string_lossy().into_owned();
            if used.contains(&name) || !may_go(&name) {
                continue;
            }
            let path = entry.path();
            if let Err(source) = std::fs::remove_dir_all(&path) {
                result = result.and(Err((path, source)));
            }
        }
        result
    }

    fn layers_folder(&self) -> PathBuf {
        self.root.join("layers")
    }

    fn layer_path(&self, diff_id: &str) -> PathBuf {
        self.layers_folder().join(diff_id)
    }

    fn lock_layers(&self) -> MutexGuard<'_, ()> {
        self.layers.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn read(&self) -> RwLockReadGuard<'_, BTreeMap<ImageId, Record>> {
        self.records.read().unwrap_or_else(PoisonError::into_inner)
    }

    fn write(&self) -> RwLockWriteGuard<'_, BTreeMap<ImageId, Record>> {
        self.records.write().unwrap_or_else(PoisonError::into_inner)
    }
}

fn union(old: &[String], new: &[String]) -> Vec<String> {
    let mut all = old.to_vec();
    all.extend(new.iter().filter(|name| !old.contains(name)).cloned());
    all
}
