//! A pod's links and addresses, its resolver and hosts files. Decides no policy.
//!
//! The built-in network is one bridge per node. Each pod has a veth pair: `eth0` in the pod's network namespace, and
//! an end named after the pod's UID at the bridge. Who gets which address is decided by the plan.
//! Links speak synchronous netlink and take a few milliseconds: from async code, call them on a blocking thread.

pub mod files;
pub mod hostname;
pub mod hosts;
pub mod resolver;

mod bridge;
mod link;
mod uplink;

pub use bridge::{Bridge, ensure_bridge};
pub use link::{PodLink, Reconciled, attach, detach, reconcile};
pub use uplink::{Uplink, node_addresses, uplink};

use crate::sys::netlink::NetlinkError;
use std::io;
use std::net::IpAddr;
use std::path::PathBuf;

/// What went wrong with a pod's network.
#[derive(Debug, thiserror::Error)]
pub enum NetworkError {
    /// The kernel refused a link, an address or a route.
    #[error("network of {of}")]
    Netlink {
        /// The pod's UID or the bridge's name.
        of: String,
        /// The request that failed and why.
        #[source]
        source: NetlinkError,
    },
    /// The pod's network namespace cannot be opened or entered.
    #[error("open network namespace {}", path.display())]
    Netns {
        /// Its path.
        path: PathBuf,
        /// Why.
        #[source]
        source: io::Error,
    },
    /// A link that the request just before made or found is gone.
    #[error("network of {of}: link {name} vanished")]
    Vanished {
        /// The pod's UID or the bridge's name.
        of: String,
        /// The link's name.
        name: String,
    },
    /// The bridge's name belongs to a link that is no bridge.
    #[error("link {name} is not a bridge but {kind}: remove or rename it")]
    NotABridge {
        /// The link's name.
        name: String,
        /// What it is.
        kind: String,
    },
    /// The pod's address cannot lie on the bridge's network.
    #[error("address {address} does not belong to the bridge network {gateway}/{prefix_len}")]
    ForeignAddress {
        /// The pod's address.
        address: IpAddr,
        /// The bridge's address.
        gateway: IpAddr,
        /// Leading bits of the network.
        prefix_len: u8,
    },
    /// A kernel setting cannot be written.
    #[error("set {name}")]
    Sysctl {
        /// Its dotted name.
        name: &'static str,
        /// Why.
        #[source]
        source: io::Error,
    },
    /// One of the pod's files cannot be read or written.
    #[error("{operation} {}", path.display())]
    File {
        /// `read` or `write`.
        operation: &'static str,
        /// Which file.
        path: PathBuf,
        /// Why.
        #[source]
        source: io::Error,
    },
}

/// The result of a network call.
pub type Result<T> = std::result::Result<T, NetworkError>;

/// Names the pod or bridge that a netlink request was for.
fn of<T>(object: impl ToString, result: crate::sys::netlink::Result<T>) -> Result<T> {
    result.map_err(|source| NetworkError::Netlink { of: object.to_string(), source })
}
