//! Where a pod's things lie on the node: the kubelet's layout below `pods/<uid>`, and what lives in memory.

use super::{Result, VolumeError};
use crate::model::{ContainerId, PodUid};
use rustix::fs::{Mode, mkdirat};
use rustix::io::Errno;
use std::io;
use std::path::{Path, PathBuf};

/// The kubelet's mode for a pod's folders.
const POD_DIR_MODE: u32 = 0o750;

/// The folders of one pod.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PodDirs {
    root: PathBuf,
    run: PathBuf,
}

impl PodDirs {
    /// The folders of a pod below armlet's data folder (`/var/lib/armlet`) and runtime folder (`/run/armlet`).
    #[must_use]
    pub fn new(data: &Path, run: &Path, pod: &PodUid) -> Self {
        Self { root: data.join("pods").join(pod.as_str()), run: run.join("pods").join(pod.as_str()) }
    }

    /// What survives a reboot: volumes, hosts file, termination logs.
    #[must_use]
    pub fn root(&self) -> &Path {
        &self.root
    }

    /// What does not.
    #[must_use]
    pub fn run(&self) -> &Path {
        &self.run
    }

    /// The pod's shared memory.
    #[must_use]
    pub fn shm(&self) -> PathBuf {
        self.run.join("shm")
    }

    /// Makes both folders, if they are not there.
    ///
    /// # Errors
    /// [`VolumeError::Io`].
    pub fn create(&self) -> Result<()> {
        make_dirs(&self.root)?;
        make_dirs(&self.run)
    }

    /// Where a volume of a kind lies.
    pub(super) fn volume(&self, plugin: &str, name: &str) -> Result<PathBuf> {
        let component = !name.is_empty() && name != "." && name != ".." && !name.contains(['/', '\0']);
        if !component {
            return Err(VolumeError::Name { name: name.to_owned() });
        }
        Ok(self.root.join("volumes").join(plugin).join(name))
    }

    /// Where the termination log of one attempt of a container lies.
    ///
    /// # Errors
    /// [`VolumeError::Name`] when the container's name is not one path component.
    pub fn termination_log(&self, container: &str, id: &ContainerId) -> Result<PathBuf> {
        let component = !container.is_empty() && !container.starts_with('.') && !container.contains(['/', '\0']);
        if !component {
            return Err(VolumeError::Name { name: container.to_owned() });
        }
        Ok(self.root.join("containers").join(container).join(id.as_str()))
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
