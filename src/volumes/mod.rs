//! One file per volume kind, and the other places of a pod on disk. Decides no policy.
//!
//! Everything here is safe to repeat, blocks while the disk does, and belongs on a blocking thread.

pub mod termination;

mod dirs;
mod empty_dir;
mod host_path;
mod memory;

pub use dirs::{Layer, PodDirs};
pub use empty_dir::tmpfs_size;
pub use memory::{prepare_memory, remove_memory};

use crate::model::pod::{HostPathType, Volume, VolumeKind};
use crate::sys::mounts::{mounts_below, unmount_all};
use crate::sys::tree::{RemoveError, remove_tree};
use std::io;
use std::path::{Path, PathBuf};

/// What went wrong with a volume or another place of a pod.
#[derive(Debug, thiserror::Error)]
pub enum VolumeError {
    /// A step of making or removing something failed.
    #[error("{operation} {}", path.display())]
    Io {
        /// The step.
        operation: &'static str,
        /// Where.
        path: PathBuf,
        /// Why.
        #[source]
        source: io::Error,
    },
    /// Something stayed when a tree was removed.
    #[error(transparent)]
    Remove(#[from] RemoveError),
    /// A hostPath is not what its type asks for. The text is the kubelet's: `pkg/volume/hostpath/host_path.go`.
    #[error("hostPath type check failed: {} is not a {}", path.display(), host_path::noun(*expected))]
    HostPathType {
        /// The path on the node.
        path: PathBuf,
        /// What it should be.
        expected: HostPathType,
    },
    /// A hostPath that `wire` should have refused.
    #[error("hostPath {} must be absolute and must not contain '..'", path.display())]
    HostPathForm {
        /// The path as given.
        path: PathBuf,
    },
    /// A volume name that `wire` should have refused.
    #[error("volume name {name:?} is not one path component")]
    Name {
        /// The name as given.
        name: String,
    },
}

/// The result of a volume call.
pub type Result<T> = std::result::Result<T, VolumeError>;

/// What a volume's making depends on besides the volume.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Settings {
    /// `spec.securityContext.fsGroup`.
    pub fs_group: Option<u32>,
    /// Bytes that the pod's containers may use together; absent when one has no limit.
    pub pod_memory_limit: Option<u64>,
    /// Bytes of the node's memory that pods may use.
    pub node_memory: Option<u64>,
}

/// Makes a volume ready and tells where it lies on the node. One that is ready already stays as it is.
///
/// # Errors
/// [`VolumeError`]; what was begun is taken up again or removed by the next call.
pub fn prepare(dirs: &PodDirs, volume: &Volume, settings: &Settings) -> Result<PathBuf> {
    let path = path_of(dirs, volume)?;
    match &volume.kind {
        VolumeKind::EmptyDir { memory: false, .. } => empty_dir::prepare_disk(&path, settings.fs_group)?,
        VolumeKind::EmptyDir { memory: true, size_limit } => {
            let size = tmpfs_size(*size_limit, settings.pod_memory_limit, settings.node_memory);
            empty_dir::prepare_memory(&path, size, settings.fs_group)?;
        }
        VolumeKind::HostPath { check, .. } => host_path::prepare(&path, *check)?,
    }
    Ok(path)
}

/// Where a volume lies on the node.
///
/// # Errors
/// [`VolumeError::Name`] and [`VolumeError::HostPathForm`].
pub fn path_of(dirs: &PodDirs, volume: &Volume) -> Result<PathBuf> {
    match &volume.kind {
        VolumeKind::EmptyDir { memory, .. } => dirs.volume(empty_dir::PLUGIN, &volume.name, *memory),
        VolumeKind::HostPath { path, .. } => host_path::check_form(Path::new(path)),
    }
}

/// Unmounts a volume and removes what the pod's folder holds of it. What a hostPath names is never touched.
///
/// # Errors
/// [`VolumeError`]; safe to repeat.
pub fn remove(dirs: &PodDirs, volume: &Volume) -> Result<()> {
    match &volume.kind {
        VolumeKind::EmptyDir { .. } => empty_dir::remove(&path_of(dirs, volume)?),
        VolumeKind::HostPath { .. } => Ok(()),
    }
}

/// Removes all that a pod has on disk and in memory: unmounts what is mounted below its folders, deepest first, then
/// removes the folders. Needs no knowledge of the pod's volumes. Goes on after errors and returns them all; a volume
/// that could not be unmounted is left untouched. Files that lie in memory beside the folders stay: what is remembered of
/// the pod there, which has to outlive all that it is about.
#[must_use]
pub fn remove_pod(dirs: &PodDirs) -> Vec<VolumeError> {
    let mut errors = Vec::new();
    match dirs.layer_folders() {
        Ok(layers) => errors.extend(layers.iter().filter_map(|layer| remove_tree(layer).err()).map(VolumeError::from)),
        Err(e) => errors.push(e),
    }
    for folder in [dirs.root(), dirs.run()] {
        let failed = |operation| move |source| VolumeError::Io { operation, path: folder.to_owned(), source };
        match folder.canonicalize() {
            Ok(real) => match mounts_below(&real) {
                Ok(mounts) => errors.extend(mounts.iter().filter_map(|mount| unmount(mount).err())),
                Err(e) => errors.push(failed("list mounts below")(e)),
            },
            Err(e) if e.kind() == io::ErrorKind::NotFound => continue,
            Err(e) => errors.push(failed("resolve")(e)),
        }
        let gone = if folder == dirs.run() { folders_in(folder) } else { Ok(vec![folder.to_owned()]) };
        match gone {
            Ok(folders) => {
                errors.extend(folders.iter().filter_map(|gone| remove_tree(gone).err()).map(VolumeError::from))
            }
            Err(e) => errors.push(e),
        }
    }
    errors
}

fn folders_in(folder: &Path) -> Result<Vec<PathBuf>> {
    let is_folder = |path: &PathBuf| path.symlink_metadata().is_ok_and(|metadata| metadata.is_dir());
    Ok(dirs::list(folder)?.into_iter().filter(is_folder).collect())
}

/// The pods that have folders, by the folders' names; those of removed pods that an earlier agent did not finish are
/// among them.
///
/// # Errors
/// When `pods` below either folder or `layers` cannot be read.
pub fn pods_on_disk(data: &Path, run: &Path) -> Result<Vec<String>> {
    let mut found = std::collections::BTreeSet::new();
    for folder in [data.join("pods"), run.join("pods")] {
        let names = dirs::list(&folder)?;
        found.extend(names.iter().filter_map(|path| Some(path.file_name()?.to_str()?.to_owned())));
    }
    let layers = dirs::list(&dirs::layers(data))?;
    found.extend(layers.iter().filter_map(|path| dirs::pod_of_layer(path)).map(str::to_owned));
    Ok(found.into_iter().collect())
}

fn unmount(path: &Path) -> Result<()> {
    unmount_all(path).map_err(|source| VolumeError::Io { operation: "unmount", path: path.to_owned(), source })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::{ContainerId, PodUid};
    use crate::sys::mounts::is_mount_point;
    use crate::sys::testing::is_root;
    use std::fs;

    fn dirs(base: &Path) -> PodDirs {
        PodDirs::new(&base.join("data"), &base.join("run"), &PodUid::new("uid-1").unwrap())
    }

    fn volume(name: &str, kind: VolumeKind) -> Volume {
        Volume { name: name.to_owned(), kind }
    }

    #[test]
    fn a_volume_stays_inside_its_pod() {
        let base = tempfile::tempdir().unwrap();
        let dirs = dirs(base.path());
        for name in ["", ".", "..", "a/b", "../x", "a\0b"] {
            let volume = volume(name, VolumeKind::EmptyDir { memory: false, size_limit: None });
            assert!(matches!(prepare(&dirs, &volume, &Settings::default()), Err(VolumeError::Name { .. })), "{name:?}");
        }
        for path in ["", "relative", "/a/../b", "/.."] {
            let kind = VolumeKind::HostPath { path: path.to_owned(), check: HostPathType::Unset };
            let result = prepare(&dirs, &volume("v", kind), &Settings::default());
            assert!(matches!(result, Err(VolumeError::HostPathForm { .. })), "{path:?}");
        }
    }

    #[test]
    fn a_host_path_outlives_its_pod() {
        let base = tempfile::tempdir().unwrap();
        let dirs = dirs(base.path());
        let host = base.path().join("host");
        fs::create_dir(&host).unwrap();
        fs::write(host.join("precious"), b"x").unwrap();
        let kind = VolumeKind::HostPath { path: host.to_str().unwrap().to_owned(), check: HostPathType::Directory };
        let volume = volume("h", kind);
        assert_eq!(prepare(&dirs, &volume, &Settings::default()).unwrap(), host);
        remove(&dirs, &volume).unwrap();
        assert!(remove_pod(&dirs).is_empty());
        assert!(host.join("precious").exists());
    }

    #[test]
    fn linux_a_pod_goes_with_all_its_mounts() {
        if !is_root() {
            return;
        }
        let base = tempfile::tempdir().unwrap();
        let dirs = dirs(base.path());
        let data = base.path().join("data");
        let run = base.path().join("run");
        let memory = volume("m", VolumeKind::EmptyDir { memory: true, size_limit: None });
        let at = prepare(&dirs, &memory, &Settings::default()).unwrap();
        let disk = volume("d", VolumeKind::EmptyDir { memory: false, size_limit: None });
        fs::write(prepare(&dirs, &disk, &Settings::default()).unwrap().join("f"), b"x").unwrap();
        prepare_memory(&dirs).unwrap();
        let layer = dirs.layer(&ContainerId::from_bits(1));
        fs::create_dir_all(layer.upper.join("etc")).unwrap();
        fs::create_dir_all(&layer.work).unwrap();
        assert!(is_mount_point(&at).unwrap() && is_mount_point(&dirs.memory()).unwrap());
        assert_eq!(pods_on_disk(&data, &run).unwrap(), ["uid-1"]);
        // What is remembered of the pod goes last, by another hand.
        fs::write(dirs.run().join("facts.json"), b"{}").unwrap();
        for _ in 0..2 {
            let errors = remove_pod(&dirs);
            assert!(errors.is_empty(), "{errors:?}");
            assert!(!dirs.root().exists() && !layer.upper.exists() && !layer.work.exists());
            assert_eq!(dirs::list(dirs.run()).unwrap(), [dirs.run().join("facts.json")]);
        }
        fs::remove_dir_all(dirs.run()).unwrap();
        assert!(pods_on_disk(&data, &run).unwrap().is_empty());
        assert!(pods_on_disk(&base.path().join("no"), &base.path().join("no")).unwrap().is_empty());
    }
}
