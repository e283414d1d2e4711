//! What pods have left on this node.

use crate::config::Config;
use crate::model::PodUid;
use crate::volumes;
use std::path::Path;

/// The pods that have folders. What cannot be read, or is not named as a pod is, is left alone.
#[must_use]
pub fn pods_on_disk(config: &Config) -> Vec<PodUid> {
    match volumes::pods_on_disk(Path::new(&config.data_dir), Path::new(&config.run_dir)) {
        Ok(names) => names.into_iter().filter_map(|name| PodUid::new(name).ok()).collect(),
        Err(error) => {
            tracing::warn!("{}", crate::sys::log::chain(&error));
            Vec::new()
        }
    }
}
