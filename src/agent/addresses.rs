//! The node's addresses, followed without polling: process 1 starts the agent before there is any, and a lease may bring
//! another.

use super::input::Input;
use crate::network;
use crate::sys::log::chain;
use crate::sys::netlink::{Changes, NetlinkError};
use crate::sys::ready::Ready;
use std::io;
use std::net::IpAddr;
use std::time::Duration;
use tokio::sync::mpsc;
use tokio::time::sleep;

/// One address that takes another's place is several changes, a network that comes up more: they are one look.
const SETTLE: Duration = Duration::from_millis(200);

/// Why addresses cannot be followed.
#[derive(Debug, thiserror::Error)]
pub enum FollowError {
    /// The kernel's announcements cannot be had.
    #[error("listen for changes of addresses")]
    Listen(#[source] NetlinkError),
    /// They cannot be waited for.
    #[error("wait for changes of addresses")]
    Wait(#[source] io::Error),
}

/// The addresses now; each later set of them is told as an [`Input`]. Must be called in a runtime with I/O and time.
///
/// # Errors
/// [`FollowError`]; that there is no address is none.
pub(super) fn follow(tell: mpsc::UnboundedSender<Input>) -> Result<Vec<IpAddr>, FollowError> {
    // Before the first look, so that nothing gets lost between the two.
    let changes = Ready::new(Changes::open().map_err(FollowError::Listen)?).map_err(FollowError::Wait)?;
    tokio::spawn(watch(changes, tell));
    Ok(look().unwrap_or_default())
}

async fn watch(changes: Ready<Changes>, tell: mpsc::UnboundedSender<Input>) {
    loop {
        match changes.read(Changes::take).await {
            Ok(true) => {}
            Ok(false) => continue,
            Err(error) => return tracing::error!(%error, "the node's addresses are no longer followed"),
        }
        sleep(SETTLE).await;
        // What came meanwhile is seen by the same look.
        let _ = changes.get_ref().take();
        if let Some(addresses) = look()
            && tell.send(Input::Addresses(addresses)).is_err()
        {
            return;
        }
    }
}

/// None, and a word in the log, when the kernel does not say: what was known before stays.
fn look() -> Option<Vec<IpAddr>> {
    let found = network::node_addresses();
    found.inspect_err(|error| tracing::warn!("{}", chain(error))).ok()
}
