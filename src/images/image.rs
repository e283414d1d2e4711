//! What is known of one image.

use crate::model::ids::ImageId;
use crate::model::time::WallTime;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::path::PathBuf;

/// An image that is complete on this node.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Image {
    /// Hexadecimal sha256 of the configuration.
    pub id: ImageId,
    /// Full names that lead to it, such as `docker.io/library/nginx:1.27`. May be empty.
    pub references: Vec<String>,
    /// `sha256:` digests of the manifest and of the index it was chosen from. Empty for a docker-save archive, which
    /// carries none.
    pub digests: Vec<String>,
    /// Unpacked layers, **lowest first**. Empty for an image without files.
    pub layers: Vec<PathBuf>,
    /// What to run and how.
    pub config: ImageConfig,
    /// `GOARCH` name with the variant, such as `arm64` or `arm/v7`.
    pub architecture: String,
    /// Bytes of file content in the unpacked layers, layers shared with other images included.
    pub size_bytes: u64,
    /// When the import ended.
    pub imported_at: WallTime,
}

/// The part of the image configuration that a container starts with.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ImageConfig {
    /// Replaced by the container's `command`.
    pub entrypoint: Vec<String>,
    /// Replaced by the container's `args`; dropped when `command` is given.
    pub cmd: Vec<String>,
    /// `NAME=value`, in the image's order.
    pub env: Vec<String>,
    /// Empty means `/`.
    pub working_dir: String,
    /// `user`, `uid`, `user:group`, `uid:gid` or a mix; empty means root.
    pub user: String,
    /// Such as `SIGQUIT` or `3`; empty means SIGTERM.
    pub stop_signal: String,
    /// Such as `80/tcp`.
    pub exposed: Vec<String>,
    /// Paths that want storage of their own.
    pub volumes: Vec<String>,
    /// Free text for people and tools.
    pub labels: BTreeMap<String, String>,
}
