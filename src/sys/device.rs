//! Sockets of one network device, and news of devices.
#![expect(unsafe_code, reason = "SO_BINDTODEVICE has no safe wrapper here")]

use rustix::fd::{AsRawFd as _, OwnedFd};
use rustix::net::{AddressFamily, Ipv4Addr, SocketAddrV4, SocketFlags, SocketType, netlink, sockopt};
use std::io;

/// A UDP socket on `port` that sends and receives through one device only, broadcasts included, whether the device has
/// an address or not. It does not block.
///
/// # Errors
/// Of socket, setsockopt and bind.
pub fn udp_socket(device: &str, port: u16) -> io::Result<OwnedFd> {
    let socket = rustix::net::socket_with(AddressFamily::INET, SocketType::DGRAM, flags(), None)?;
    sockopt::set_socket_reuseaddr(&socket, true)?;
    sockopt::set_socket_broadcast(&socket, true)?;
    let length = libc::socklen_t::try_from(device.len()).map_err(|_| io::ErrorKind::InvalidInput)?;
    // SAFETY: the name is valid for `length` bytes.
    let rc = unsafe {
        libc::setsockopt(socket.as_raw_fd(), libc::SOL_SOCKET, libc::SO_BINDTODEVICE, device.as_ptr().cast(), length)
    };
    if rc != 0 {
        return Err(io::Error::last_os_error());
    }
    rustix::net::bind(&socket, &SocketAddrV4::new(Ipv4Addr::UNSPECIFIED, port))?;
    Ok(socket)
}

/// A socket that becomes readable when a network device appears, goes, or changes its state.
///
/// # Errors
/// Of socket and bind.
pub fn link_changes() -> io::Result<OwnedFd> {
    /// `RTMGRP_LINK`.
    const LINK: u32 = 1;
    // The routing protocol is number 0, which is what no protocol given means.
    let socket = rustix::net::socket_with(AddressFamily::NETLINK, SocketType::RAW, flags(), None)?;
    rustix::net::bind(&socket, &netlink::SocketAddrNetlink::new(0, LINK))?;
    Ok(socket)
}

/// A socket that becomes readable when the kernel finds or loses a device of any kind.
///
/// # Errors
/// Of socket and bind.
pub fn device_changes() -> io::Result<OwnedFd> {
    /// The kernel's own messages.
    const KERNEL: u32 = 1;
    let socket =
        rustix::net::socket_with(AddressFamily::NETLINK, SocketType::DGRAM, flags(), Some(netlink::KOBJECT_UEVENT))?;
    rustix::net::bind(&socket, &netlink::SocketAddrNetlink::new(0, KERNEL))?;
    Ok(socket)
}

/// Reads away what such a socket has to tell. `true`: there was something, or something was lost.
#[must_use]
pub fn forget_changes(socket: &OwnedFd) -> bool {
    let mut buffer = [0; 4096];
    let mut any = false;
    loop {
        match rustix::io::read(socket, &mut buffer[..]) {
            Err(rustix::io::Errno::AGAIN) => return any,
            Ok(0) => return any,
            // ENOBUFS says that messages were lost.
            Ok(_) | Err(rustix::io::Errno::NOBUFS | rustix::io::Errno::INTR) => any = true,
            Err(_) => return true,
        }
    }
}

fn flags() -> SocketFlags {
    SocketFlags::CLOEXEC | SocketFlags::NONBLOCK
}
