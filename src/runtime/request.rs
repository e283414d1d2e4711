//! What a create child finds in its bundle beside the OCI spec.

use crate::model::ContainerId;
use crate::sys::confined::NewFolder;
use serde::{Deserialize, Serialize};
use std::path::PathBuf;

/// File name of the OCI spec in a bundle. It is complete: any OCI runtime can run it once the root filesystem is
/// mounted at `rootfs` in the bundle.
pub const SPEC_FILE: &str = "config.json";

/// File name of the [`CreateRequest`] in a bundle.
pub const REQUEST_FILE: &str = "create.json";

/// Folder in a bundle where the root filesystem is mounted, in the create child's own mount namespace.
pub const ROOT_FOLDER: &str = "rootfs";

/// What the OCI spec has no place for.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct CreateRequest {
    /// The attempt's id.
    pub id: ContainerId,
    /// What the root filesystem is made of.
    pub root: OverlayRoot,
    /// Folders that the container needs inside its root, made with all their parents when they are missing.
    #[serde(default)]
    pub folders: Vec<Folder>,
}

/// The parts of the overlay that becomes a container's root. All paths are absolute.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct OverlayRoot {
    /// Folders of the image's unpacked layers, the topmost first; at least one.
    pub lower: Vec<PathBuf>,
    /// The container's writable layer. Made, as is `work`, when missing.
    pub upper: PathBuf,
    /// The overlay's scratch folder, on the filesystem of `upper`.
    pub work: PathBuf,
}

/// A folder that the container sees.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Folder {
    /// Absolute, as seen from the root filesystem, or from `base`.
    pub path: PathBuf,
    /// The volume that it is in.
    #[serde(default)]
    pub base: Option<PathBuf>,
    /// Permission bits.
    pub mode: u32,
    /// Owner.
    pub uid: u32,
    /// Group.
    pub gid: u32,
}

impl Folder {
    /// How it is made.
    #[must_use]
    pub const fn new_folder(&self) -> NewFolder {
        NewFolder { mode: self.mode, uid: self.uid, gid: self.gid }
    }
}
