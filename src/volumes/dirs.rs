//! Where a pod's things lie on the node: the kubelet's layout below `pods/<uid>`, and what lives in memory.
//!
//! A folder costs a flash card 16 KiB and more, journal included. So a pod has one on the disk only with a volume on the
//! disk, its writable layers are two folders beside each other, and what is made anew for each start is in memory.

use super::{Result, VolumeError};
use crate::model::{ContainerId, PodUid};
use rustix::fs::{Mode, mkdirat};
use rustix::io::Errno;
use std::ffi::OsStr;
use std::io;
use std::path::{Path, PathBuf};

/// The kubelet's mode for a pod's folders.
const POD_DIR_MODE: u32 = 0o750;
/// Ends the name of a layer's second folder, in which the overlay prepares its changes.
const WORK: &str = "work";

/// The folders of one pod.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PodDirs {
    uid: PodUid,
    root: PathBuf,
    layers: PathBuf,
    run: PathBuf,
}

/// The two folders of a writable layer, as an overlay wants them: on one file system, neither inside the other.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Layer {
    /// What the container has written.
    pub upper: PathBuf,
    /// The overlay's own.
    pub work: PathBuf,
}

impl PodDirs {
    /// The folders of a pod below armlet's data folder (`/var/lib/armlet`) and runtime folder (`/run/armlet`).
    #[must_use]
    pub fn new(data: &Path, run: &Path, pod: &PodUid) -> Self {
        Self {
            uid: pod.clone(),
            root: data.join("pods").join(pod.as_str()),
            layers: layers(data),
            run: run.join("pods").join(pod.as_str()),
        }
    }

    /// What survives a reboot: the volumes. Not there before the first one is.
    #[must_use]
    pub fn root(&self) -> &Path {
        &self.root
    }

    /// What does not.
    #[must_use]
    pub fn run(&self) -> &Path {
        &self.run
    }

    /// The pod's file system in memory: shared memory, hosts file and its like, termination messages. Its containers
    /// may write to all of that, so it has a size of its own.
    #[must_use]
    pub fn memory(&self) -> PathBuf {
        self.run.join("memory")
    }

    /// The pod's shared memory.
    #[must_use]
    pub fn shm(&self) -> PathBuf {
        self.memory().join("shm")
    }

    /// The writable layer of one attempt.
    #[must_use]
    pub fn layer(&self, id: &ContainerId) -> Layer {
        let name = format!("{}.{id}", self.uid);
        Layer { work: self.layers.join(format!("{name}.{WORK}")), upper: self.layers.join(name) }
    }

    /// All folders of the pod's writable layers.
    pub(super) fn layer_folders(&self) -> Result<Vec<PathBuf>> {
        Ok(list(&self.layers)?.into_iter().filter(|path| pod_of_layer(path) == Some(self.uid.as_str())).collect())
    }

    /// Where a volume of a kind lies, or is mounted when it is in memory.
    pub(super) fn volume(&self, plugin: &str, name: &str, memory: bool) -> Result<PathBuf> {
        let component = !name.is_empty() && name != "." && name != ".." && !name.contains(['/', '\0']);
        if !component {
            return Err(VolumeError::Name { name: name.to_owned() });
        }
        let home = if memory { &self.run } else { &self.root };
        Ok(home.join("volumes").join(plugin).join(name))
    }

    /// Where the termination log of one attempt lies.
    #[must_use]
    pub fn termination_log(&self, id: &ContainerId) -> PathBuf {
        self.memory().join(format!("message-{id}"))
    }
}

/// Where the writable layers of all pods lie.
pub(super) fn layers(data: &Path) -> PathBuf {
    data.join("layers")
}

/// The pod whose layer a folder is. Neither a UID nor an id holds a dot.
pub(super) fn pod_of_layer(path: &Path) -> Option<&str> {
    let name = path.file_name().and_then(OsStr::to_str)?;
    let name = name.strip_suffix(WORK).and_then(|name| name.strip_suffix('.')).unwrap_or(name);
    name.split_once('.').map(|(uid, _)| uid)
}

/// What lies in a folder; nothing in one that is not there.
pub(super) fn list(folder: &Path) -> Result<Vec<PathBuf>> {
    let failed = |source| VolumeError::Io { operation: "list", path: folder.to_owned(), source };
    match std::fs::read_dir(folder) {
        Ok(entries) => entries.map(|entry| Ok(entry.map_err(failed)?.path())).collect(),
        Err(e) if e.kind() == io::ErrorKind::NotFound => Ok(Vec::new()),
        Err(e) => Err(failed(e)),
    }
}

/// Makes a folder and its parents with the kubelet's mode.
pub(super) fn make_dirs(path: &Path) -> Result<()> {
    let failed = |source| VolumeError::Io { operation: "make folder", path: path.to_owned(), source };
    match mkdirat(rustix::fs::CWD, path, Mode::from_raw_mode(POD_DIR_MODE)) {
        Ok(()) => Ok(()),
        Err(Errno::EXIST) if path.is_dir() => Ok(()),
        Err(Errno::NOENT) => {
            let parent = path.parent().ok_or_else(|| failed(io::ErrorKind::InvalidInput.into()))?;
            make_dirs(parent)?;
            match mkdirat(rustix::fs::CWD, path, Mode::from_raw_mode(POD_DIR_MODE)) {
                // Another volume of the pod was quicker.
                Ok(()) | Err(Errno::EXIST) => Ok(()),
                Err(e) => Err(failed(e.into())),
            }
        }
        Err(e) => Err(failed(e.into())),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn layers_tell_their_pod() {
        let uid = PodUid::new("u-1-a").unwrap();
        let dirs = PodDirs::new(Path::new("/data"), Path::new("/run"), &uid);
        let layer = dirs.layer(&ContainerId::from_bits(7));
        assert_eq!(pod_of_layer(&layer.upper), Some(uid.as_str()));
        assert_eq!(pod_of_layer(&layer.work), Some(uid.as_str()));
        assert_eq!(pod_of_layer(Path::new("/data/layers/other")), None);
    }
}
