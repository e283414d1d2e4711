//! One import: layers unpacked beside, synced, renamed, then recorded. A failure or a power cut at any point leaves
//! the images that were there, and no half one.

use super::archive::Source;
use super::manifest::{self, Planned, PlannedLayer};
use super::record::{LayerRecord, Record, VERSION};
use super::tar_reader::TarError;
use super::unpack::{self, Limits, UnpackError};
use super::{Image, ImageStore, ImportError, Reference, compress, digest};
use crate::model::ids::ImageId;
use crate::model::time::WallTime;
use crate::sys::beneath::{self, Beneath};
use crate::sys::durable;
use std::collections::{BTreeMap, BTreeSet};
use std::io::{self, Read};
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};

/// Kept free on the disk whatever an image asks for: a node without space cannot even store its facts.
const RESERVE: u64 = 32 << 20;
/// The same of inodes: pods make folders, logs and facts.
const RESERVE_INODES: u64 = 4096;
/// More files than this has no image.
const MAX_ENTRIES: u64 = 1 << 20;

/// How far an import is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Progress {
    /// Layers done.
    pub layers_done: usize,
    /// Layers to unpack; those that are here already do not count.
    pub layers: usize,
    /// Bytes of content written so far.
    pub bytes: u64,
}

/// Hears of every step; `Break` cancels the import.
pub type OnProgress<'a> = dyn FnMut(Progress) -> ControlFlow<()> + 'a;

/// Folders of layers that are unpacked and not yet part of the store. Dropped, they are removed.
struct Staged {
    folder: PathBuf,
    layers: BTreeMap<String, u64>,
}

impl Drop for Staged {
    fn drop(&mut self) {
        for diff_id in self.layers.keys() {
            let _left_for_the_next_open = std::fs::remove_dir_all(staged_path(&self.folder, diff_id));
        }
    }
}

fn staged_path(folder: &Path, diff_id: &str) -> PathBuf {
    folder.join(format!(".new-{diff_id}"))
}

/// Imports all images of a source. The caller holds the import lock.
pub(super) fn import(
    store: &ImageStore,
    path: &Path,
    name: Option<&str>,
    now: WallTime,
    progress: &mut OnProgress<'_>,
) -> Result<Vec<Image>, ImportError> {
    let name = name.map(Reference::parse).transpose()?;
    let source = Source::open(path)?;
    let mut planned = manifest::plan(&source, &store.host)?;
    if let Some(name) = name {
        rename(path, &mut planned, &name)?;
    }
    let mut sizes = store.layer_sizes();
    let missing: BTreeMap<String, PlannedLayer> = planned
        .iter()
        .flat_map(|image| &image.layers)
        .filter(|layer| !sizes.contains_key(&layer.diff_id))
        .map(|layer| (layer.diff_id.clone(), layer.clone()))
        .collect();
    let staged = unpack_layers(store, &source, missing, progress)?;
    place(store, staged, &mut sizes)?;
    planned.into_iter().map(|image| record(store, image, &sizes, now)).collect()
}

fn rename(path: &Path, planned: &mut [Planned], name: &Reference) -> Result<(), ImportError> {
    match (planned, name) {
        ([only], Reference::Tag { .. }) => {
            only.names = vec![name.to_string()];
            Ok(())
        }
        (images, _) => {
            Err(ImportError::Ambiguous { path: path.to_owned(), count: images.len(), name: name.to_string() })
        }
    }
}

fn unpack_layers(
    store: &ImageStore,
    source: &Source,
    missing: BTreeMap<String, PlannedLayer>,
    progress: &mut OnProgress<'_>,
) -> Result<Staged, ImportError> {
    let folder = store.layers_folder();
    let mut staged = Staged { folder: folder.clone(), layers: BTreeMap::new() };
    let mut by_member: BTreeMap<String, Vec<PlannedLayer>> = BTreeMap::new();
    let layers = missing.len();
    for layer in missing.into_values() {
        by_member.entry(layer.member.clone()).or_default().push(layer);
    }
    let wanted: BTreeSet<String> = by_member.keys().cloned().collect();
    let mut so_far = Progress { layers_done: 0, layers, bytes: 0 };
    source.read(&wanted, &mut |member, packed| {
        let failed = |error| in_layer(source, member, error);
        // Two diff ids for one member: at least one of them is wrong.
        let [layer] = by_member.get(member).map(Vec::as_slice).unwrap_or_default() else {
            return Err(ImportError::Member {
                path: source.path().to_owned(),
                member: member.to_owned(),
                why: "it is given for two different layers",
            });
        };
        let path = staged_path(&folder, &layer.diff_id);
        make_empty(&path)?;
        staged.layers.insert(layer.diff_id.clone(), 0);
        let limits = limits(&folder)?;
        let mut tick = |n: u64| {
            so_far.bytes = so_far.bytes.saturating_add(n);
            progress(so_far)
        };
        let bytes = unpack_one(&path, packed, layer, limits, &mut tick).map_err(|error| match error {
            LayerError::Unpack(error) => failed(error),
            LayerError::Digest { expected, found } => ImportError::Digest {
                path: source.path().to_owned(),
                member: member.to_owned(),
                expected: format!("sha256:{expected}"),
                found: format!("sha256:{found}"),
            },
        })?;
        staged.layers.insert(layer.diff_id.clone(), bytes);
        so_far.layers_done += 1;
        if progress(so_far).is_break() { Err(failed(UnpackError::Cancelled)) } else { Ok(()) }
    })?;
    Ok(staged)
}

fn in_layer(source: &Source, layer: &str, error: UnpackError) -> ImportError {
    ImportError::Layer { path: source.path().to_owned(), layer: layer.to_owned(), source: error }
}

fn write_error(operation: &'static str, path: &Path) -> impl FnOnce(io::Error) -> ImportError {
    let path = path.to_owned();
    move |source| ImportError::Write { operation, path, source }
}

fn make_empty(path: &Path) -> Result<(), ImportError> {
    if path.symlink_metadata().is_ok() {
        std::fs::remove_dir_all(path).map_err(write_error("remove the left-over", path))?;
    }
    std::fs::create_dir(path).map_err(write_error("create", path))?;
    // A container's `/`, unless the layer says otherwise.
    let mode = std::os::unix::fs::PermissionsExt::from_mode(0o755);
    std::fs::set_permissions(path, mode).map_err(write_error("set the mode of", path))
}

fn limits(folder: &Path) -> Result<Limits, ImportError> {
    let (bytes, inodes) = beneath::free_space(folder).map_err(write_error("ask the free space of", folder))?;
    Ok(Limits { bytes: bytes.saturating_sub(RESERVE), entries: inodes.saturating_sub(RESERVE_INODES).min(MAX_ENTRIES) })
}

enum LayerError {
    Unpack(UnpackError),
    Digest { expected: String, found: String },
}

impl From<UnpackError> for LayerError {
    fn from(error: UnpackError) -> Self {
        Self::Unpack(error)
    }
}

/// Unpacks one layer and checks both its digests, over every byte of the stream.
fn unpack_one(
    path: &Path,
    packed: &mut dyn Read,
    layer: &PlannedLayer,
    limits: Limits,
    tick: &mut dyn FnMut(u64) -> ControlFlow<()>,
) -> Result<u64, LayerError> {
    let read = |source| UnpackError::Archive(TarError::Read(source));
    let root = Beneath::open(path).map_err(|source| UnpackError::Io {
        operation: "open the layer's folder",
        member: String::new(),
        source,
    })?;
    // What nobody gave a digest for is hashed once, unpacked.
    let mut raw = if layer.packed.is_some() { digest::Hashing::new(packed) } else { digest::Hashing::counting(packed) };
    let count = raw.count();
    let (bytes, diff_id) = {
        let mut plain = digest::Hashing::new(compress::decoder(&mut raw, count).map_err(read)?);
        let layer_stream: Box<dyn Read + '_> = Box::new(&mut plain);
        let bytes = unpack::unpack(&root, layer_stream, limits, tick)?;
        (bytes, plain.finish().map_err(read)?)
    };
    let found = raw.finish().map_err(read)?;
    for (expected, found) in [(layer.packed.as_ref(), found), (Some(&layer.diff_id), diff_id)] {
        if let (Some(expected), Some(found)) = (expected, found)
            && *expected != found
        {
            return Err(LayerError::Digest { expected: expected.clone(), found });
        }
    }
    Ok(bytes)
}

/// Makes the unpacked layers durable and gives them their names.
fn place(store: &ImageStore, mut staged: Staged, sizes: &mut BTreeMap<String, u64>) -> Result<(), ImportError> {
    if staged.layers.is_empty() {
        return Ok(());
    }
    let folder = staged.folder.clone();
    // Before the names: a layer that has its name is whole.
    durable::sync_filesystem(&folder).map_err(write_error("sync", &folder))?;
    let mut done = Vec::new();
    for (diff_id, bytes) in &staged.layers {
        let target = store.layer_path(diff_id);
        if target.symlink_metadata().is_ok() {
            // No record knows it: left by an import that was cut after this point.
            std::fs::remove_dir_all(&target).map_err(write_error("remove the left-over", &target))?;
        }
        std::fs::rename(staged_path(&folder, diff_id), &target).map_err(write_error("rename to", &target))?;
        sizes.insert(diff_id.clone(), *bytes);
        done.push(diff_id.clone());
    }
    staged.layers.retain(|diff_id, _| !done.contains(diff_id));
    durable::sync_dir(&folder).map_err(write_error("sync", &folder))
}

fn record(
    store: &ImageStore,
    image: Planned,
    sizes: &BTreeMap<String, u64>,
    now: WallTime,
) -> Result<Image, ImportError> {
    let id = ImageId::new(image.id)
        .map_err(|_| ImportError::Form { path: store.root.clone(), why: "an image id is not hexadecimal" })?;
    let layers = image.layers.into_iter().map(|layer| {
        let bytes = sizes.get(&layer.diff_id).copied().unwrap_or(0);
        LayerRecord { diff_id: layer.diff_id, bytes }
    });
    store.add(Record {
        version: VERSION,
        sequence: 0,
        id,
        references: image.names,
        digests: image.digests,
        layers: layers.collect(),
        config: image.config,
        architecture: image.architecture,
        imported_at: now,
    })
}
