//! The rooms that actions go through, opened once.

use crate::config::Config;
use crate::images::{Host, ImageStore};
use crate::model::pod::Pod;
use crate::model::supervise::LogLimits;
use crate::model::{ContainerId, PodUid};
use crate::network::Bridge;
use crate::runtime::cgroup::Cgroups;
use crate::runtime::client::Client;
use crate::sys::mounts;
use crate::volumes::PodDirs;
use std::net::IpAddr;
use std::os::unix::fs::DirBuilderExt as _;
use std::path::{Path, PathBuf};

/// Why a room could not be opened.
#[derive(Debug, thiserror::Error)]
pub enum RoomsError {
    /// The node's own figures.
    #[error("look at the node")]
    Node(#[from] crate::observe::NodeError),
    /// The control groups.
    #[error("open the control groups")]
    Cgroups(#[from] crate::runtime::cgroup::CgroupError),
}

/// The rooms, and what all actions need to know of the node.
#[derive(Debug)]
pub struct Rooms {
    /// What was configured.
    pub config: Config,
    /// The node's name.
    pub node_name: String,
    /// The supervisor.
    pub supervisor: Client,
    /// The image store.
    pub images: ImageStore,
    /// The groups below `kubepods`.
    pub cgroups: Cgroups,
    /// Bytes of the node's memory.
    pub memory: u64,
    /// What containers could see other pods' work by: masked, where the machine has it.
    pub thermal: Vec<String>,
    /// The pods' bridge.
    pub bridge: Bridge,
    /// The lowest layer of every container, if it could be made.
    pub skeleton: Option<PathBuf>,
}

impl Rooms {
    /// Opens the rooms.
    ///
    /// # Errors
    /// [`RoomsError`].
    pub fn open(config: Config, node_name: String) -> Result<Self, RoomsError> {
        let data = Path::new(&config.data_dir);
        let run = Path::new(&config.run_dir);
        split_off_pods(run);
        let (network, prefix_len) = config.pod_cidr;
        let logs = LogLimits {
            max_size: config.container_log_max_bytes,
            max_files: config.container_log_max_files,
            node_budget: crate::observe::log_budget(&config),
        };
        Ok(Self {
            supervisor: Client::new(&run.join("supervisor.sock"), logs),
            images: open_images(&data.join("images")),
            cgroups: Cgroups::open()?,
            memory: crate::observe::memory_total()?,
            thermal: crate::observe::thermal_folders(),
            bridge: Bridge { name: "armlet0".to_owned(), gateway: first_address(network), prefix_len },
            skeleton: make_skeleton(run),
            node_name,
            config,
        })
    }

    /// Where a pod has its things.
    #[must_use]
    pub fn dirs(&self, uid: &PodUid) -> PodDirs {
        PodDirs::new(Path::new(&self.config.data_dir), Path::new(&self.config.run_dir), uid)
    }

    /// `/run/armlet/pods`: a mount point of its own, if that could be had.
    #[must_use]
    pub fn pods_run_dir(&self) -> PathBuf {
        pods_run_dir(Path::new(&self.config.run_dir))
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
}

/// The first address of a range: the bridge's own, and the pods' gateway.
fn first_address(network: IpAddr) -> IpAddr {
    match network {
        IpAddr::V4(a) => IpAddr::V4((u32::from(a).saturating_add(1)).into()),
        IpAddr::V6(a) => IpAddr::V6((u128::from(a).saturating_add(1)).into()),
    }
}

fn pods_run_dir(run: &Path) -> PathBuf {
    run.join("pods")
}

/// Each pod has something mounted in there, and each start copies the table of mounts and reads it several times.
/// Without this a start takes the longer the more pods there are.
fn split_off_pods(run: &Path) {
    let folder = pods_run_dir(run);
    let made = std::fs::DirBuilder::new().recursive(true).mode(0o750).create(&folder);
    let made = made.and_then(|()| mounts::split_off(&folder));
    if let Err(error) = made {
        tracing::warn!("make {} a mount point: {error}", folder.display());
    }
}

/// Without it containers are made all the same.
fn make_skeleton(run: &Path) -> Option<PathBuf> {
    let made = super::skeleton::make(run);
    made.inspect_err(|error| tracing::warn!("make {}/skeleton: {error}", run.display())).ok()
}

/// Opens the image store, and says what was found damaged.
fn open_images(root: &Path) -> ImageStore {
    let opened = ImageStore::open(root, Host::detect());
    for problem in &opened.problems {
        tracing::warn!("{}", crate::sys::log::chain(problem));
    }
    opened.store
}
