//! To be told when addresses or default routes change.

use super::addresses::RT_SCOPE_UNIVERSE;
use super::{NetlinkError, RawMessage, Result, split};
use netlink_sys::{Socket, SocketAddr, protocols::NETLINK_ROUTE};
use std::io;
use std::os::fd::{AsRawFd, RawFd};

/// Multicast groups of `linux/rtnetlink.h`, as bits: addresses and routes of IPv4 and IPv6.
const GROUPS: u32 = 0x10 | 0x40 | 0x100 | 0x400;
const RTM_NEWADDR: u16 = 20;
const RTM_DELADDR: u16 = 21;
const RTM_NEWROUTE: u16 = 24;
const RTM_DELROUTE: u16 = 25;
/// Longer than any message about one address or route.
const BYTES: usize = 4096;

/// Hears of changes in one network namespace. Readable when there may be one.
#[derive(Debug)]
pub struct Changes {
    socket: Socket,
}

impl Changes {
    /// Listens in the calling thread's network namespace.
    ///
    /// # Errors
    /// [`NetlinkError::Socket`].
    pub fn open() -> Result<Self> {
        let failed = |operation| move |source| NetlinkError::Socket { operation, source };
        let mut socket = Socket::new(NETLINK_ROUTE).map_err(failed("open socket"))?;
        socket.bind(&SocketAddr::new(0, GROUPS)).map_err(failed("listen for changes"))?;
        Ok(Self { socket })
    }

    /// Takes all that was told. True when other machines' way to this one may have changed: an address that they can
    /// reach, or a default route. Never blocks.
    ///
    /// # Errors
    /// `WouldBlock` when nothing was told; that of recv(2).
    pub fn take(&self) -> io::Result<bool> {
        let mut buffer = Vec::with_capacity(BYTES);
        let (mut any, mut matters) = (false, false);
        loop {
            buffer.clear();
            match self.socket.recv(&mut buffer, libc::MSG_DONTWAIT) {
                Ok(_) => matters |= concerns_the_node(&buffer),
                // There was more than the socket holds: it may have been anything.
                Err(error) if error.raw_os_error() == Some(libc::ENOBUFS) => matters = true,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                Err(error) if any && error.kind() == io::ErrorKind::WouldBlock => return Ok(matters),
                Err(error) => return Err(error),
            }
            any = true;
        }
    }
}

impl AsRawFd for Changes {
    fn as_raw_fd(&self) -> RawFd {
        self.socket.as_raw_fd()
    }
}

/// Whether a message, which the kernel sends alone, is about a reachable address or a default route. What is not
/// understood may be.
pub(super) fn concerns_the_node(bytes: &[u8]) -> bool {
    let Some((RawMessage { kind, payload, .. }, _)) = split(bytes) else { return true };
    match kind {
        // `ifa_scope` of `struct ifaddrmsg`: the links of pods have addresses of their own that reach no further.
        RTM_NEWADDR | RTM_DELADDR => payload.get(3).is_none_or(|scope| *scope == RT_SCOPE_UNIVERSE),
        // `rtm_dst_len` of `struct rtmsg`.
        RTM_NEWROUTE | RTM_DELROUTE => payload.get(1).is_none_or(|length| *length == 0),
        _ => false,
    }
}
