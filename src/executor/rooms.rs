//! The rooms that actions go through, opened once.

use crate::config::Config;
use crate::images::ImageStore;
use crate::model::{ContainerId, PodUid};
use crate::model::pod::Pod;
use crate::network::Bridge;
use crate::runtime::cgroup::Cgroups;
use crate::volumes::PodDirs;
use std::net::IpAddr;
use std::path::{Path, PathBuf};

/// The rooms, and what all actions need to know of the node.
#[derive(Debug)]
pub struct Rooms {
    /// What was configured.
    pub config: Config,
    /// The node's name.
    pub node_name: String,
    /// The supervisor.
    pub supervisor: Supervised,
    /// The image store.
    pub images: ImageStore,
    /// The groups below `kubepods`.
    pub cgroups: Cgroups,
    /// Bytes of the node's memory.
    pub memory: u64,
    /// The pods' bridge.
    pub bridge: Bridge,
}

impl Rooms {
    /// Where a pod has its things.
    #[must_use]
    pub fn dirs(&self, uid: &PodUid) -> PodDirs {
        PodDirs::new(Path::new(&self.config.data_dir), Path::new(&self.config.run_dir), uid)
    }

    /// `/var/lib/armlet/pods/<uid>/layers/<container id>`: the attempt's writable layer.
    #[must_use]
    pub fn layer_dir(&self, uid: &PodUid, id: &ContainerId) -> PathBuf {
        self.dirs(uid).root().join("layers").join(id.as_str())
    }

    /// `/run/armlet/bundles/<container id>`.
    #[must_use]
    pub fn bundle_dir(&self, id: &ContainerId) -> PathBuf {
        Path::new(&self.config.run_dir).join("bundles").join(id.as_str())
    }

    /// `/var/log/pods/<namespace>_<name>_<uid>`.
    #[must_use]
    pub fn pod_log_dir(&self, pod: &Pod) -> PathBuf {
        Path::new(&self.config.pod_logs_dir).join(format!("{}_{}_{}", pod.namespace, pod.name, pod.uid))
    }

    /// The node's addresses as they are now.
    #[must_use]
    pub fn host_ips(&self) -> Vec<IpAddr> {
        crate::network::node_addresses().unwrap_or_default()
    }
}
