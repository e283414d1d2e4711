//! The role that gives the Ethernet link its address, by DHCP or a fixed one, and keeps it.
//!
//! It sleeps until a lease is to be renewed or a cable is plugged in. When it is killed the address stays and the next
//! one asks anew.

mod lease;
mod packet;

use super::init::cmdline::{Static, parse_static};
use crate::model::{BootTime, Millis};
use crate::sys::netlink::{Address, Link, Netlink, NetlinkError, Route};
use crate::sys::{clock, device, log, memory};
use lease::{Machine, Output};
use packet::{Client, Terms};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fd::OwnedFd;
use rustix::io::Errno;
use rustix::net::{RecvFlags, SendFlags, SocketAddrV4, recvfrom, sendto};
use std::ffi::OsString;
use std::io;
use std::net::{IpAddr, Ipv4Addr};
use std::path::Path;
use std::process::ExitCode;

const SERVER_PORT: u16 = 67;
const CLIENT_PORT: u16 = 68;
/// A routed default through this link loses against one that somebody set by hand.
const METRIC: u32 = 100;
/// Before a sleep of more than this the code that setting the address needed is let go.
const LONG_SLEEP: Millis = Millis(60_000);
const RESOLV_CONF: &str = "/etc/resolv.conf";

/// Why the role ends.
#[derive(Debug, thiserror::Error)]
enum DhcpError {
    #[error("usage: @dhcp LINK [ADDRESS/LENGTH[,GATEWAY[,DNS...]]]")]
    Usage,
    #[error("{operation}")]
    System {
        operation: &'static str,
        #[source]
        source: io::Error,
    },
    #[error("set up the link")]
    Link {
        #[from]
        source: NetlinkError,
    },
}

/// The role `armlet @dhcp LINK [ADDRESS/LENGTH[,GATEWAY[,DNS...]]]`.
#[must_use]
pub fn run(args: &[OsString]) -> ExitCode {
    log::init("network", 0);
    match serve(args) {
        Ok(()) => ExitCode::SUCCESS,
        Err(e) => {
            tracing::error!(error = &e as &dyn std::error::Error, cause = cause(&e), "the network role ends");
            ExitCode::FAILURE
        }
    }
}

fn cause(e: &dyn std::error::Error) -> String {
    std::iter::successors(e.source(), |e| e.source()).map(|e| format!(": {e}")).collect()
}

fn serve(args: &[OsString]) -> Result<(), DhcpError> {
    let text: Vec<&str> = args.iter().map(|a| a.to_str()).collect::<Option<_>>().ok_or(DhcpError::Usage)?;
    let (name, fixed) = match text[..] {
        [name] => (name, None),
        [name, fixed] => (name, Some(parse_static(fixed).ok_or(DhcpError::Usage)?)),
        _ => return Err(DhcpError::Usage),
    };
    // Listened before it is looked, so that no change is missed in between.
    let changes =
        device::link_changes().map_err(|source| DhcpError::System { operation: "listen for links", source })?;
    let mut netlink = Netlink::open()?;
    let link = wait_for_link(&mut netlink, name, &changes)?;
    netlink.set_up(link.index, true)?;
    match fixed {
        Some(fixed) => set_fixed(&mut netlink, &link, &fixed),
        None => Keeper::new(netlink, link, changes)?.run(),
    }
}

fn wait_for_link(netlink: &mut Netlink, name: &str, changes: &OwnedFd) -> Result<Link, DhcpError> {
    loop {
        if let Some(link) = netlink.link(name)? {
            return Ok(link);
        }
        tracing::warn!(link = name, "waiting for the link");
        let _ = poll(&mut [PollFd::new(changes, PollFlags::IN)], None);
        let _ = device::forget_changes(changes);
    }
}

fn set_fixed(netlink: &mut Netlink, link: &Link, fixed: &Static) -> Result<(), DhcpError> {
    let address = IpAddr::V4(fixed.address);
    netlink.replace_address(&Address { link: link.index, address, prefix_len: fixed.prefix_len, global: true })?;
    if let Some(gateway) = fixed.gateway {
        netlink.replace_route(&default_route(gateway, link.index))?;
    }
    write_resolvers(&fixed.dns, None);
    tracing::info!(link = link.name, address = %fixed.address, "fixed address set");
    Ok(())
}

fn default_route(gateway: Ipv4Addr, link: u32) -> Route {
    Route { metric: METRIC, ..Route::default_via(IpAddr::V4(gateway), link) }
}

/// Holds a lease.
struct Keeper {
    netlink: Netlink,
    link: Link,
    changes: OwnedFd,
    socket: OwnedFd,
    machine: Machine,
    held: Option<Terms>,
    carrier: bool,
}

impl Keeper {
    fn new(netlink: Netlink, link: Link, changes: OwnedFd) -> Result<Self, DhcpError> {
        let failed = |operation| move |source| DhcpError::System { operation, source };
        let socket = device::udp_socket(&link.name, CLIENT_PORT).map_err(failed("open the socket"))?;
        let mac = link.mac.ok_or(DhcpError::System {
            operation: "find the link's Ethernet address",
            source: io::ErrorKind::Unsupported.into(),
        })?;
        let hostname = rustix::system::uname().nodename().to_string_lossy().into_owned();
        let client = Client { mac: mac.0, hostname };
        let machine = Machine::new(client, noise(), clock::now().boot);
        Ok(Self { netlink, link, changes, socket, machine, held: None, carrier: false })
    }

    fn run(&mut self) -> Result<(), DhcpError> {
        loop {
            let now = clock::now().boot;
            let outputs = self.machine.tick(now, u64::from(noise()));
            self.perform(outputs)?;
            self.wait();
            self.receive()?;
            if device::forget_changes(&self.changes) {
                self.look_at_cable()?;
            }
        }
    }

    fn wait(&self) {
        let left = self.machine.deadline().since(clock::now().boot);
        if left > LONG_SLEEP {
            memory::forget_code();
        }
        let timeout = Timespec {
            tv_sec: i64::try_from(left.as_secs()).unwrap_or(i64::MAX),
            tv_nsec: i64::try_from(left.0 % 1000 * 1_000_000).unwrap_or(0),
        };
        let forever = self.machine.deadline() == BootTime(u64::MAX);
        let mut sockets = [PollFd::new(&self.socket, PollFlags::IN), PollFd::new(&self.changes, PollFlags::IN)];
        // An interrupted or failed wait only means to look again.
        let _ = poll(&mut sockets, (!forever).then_some(&timeout));
    }

    fn receive(&mut self) -> Result<(), DhcpError> {
        let mut buffer = [0; 2048];
        loop {
            match recvfrom(&self.socket, &mut buffer[..], RecvFlags::empty()) {
                Ok((_, length, _)) => {
                    let bytes = buffer.get(..length).unwrap_or_default();
                    let outputs = self.machine.receive(bytes, clock::now().boot);
                    self.perform(outputs)?;
                }
                Err(Errno::INTR) => {}
                // A link that is down says so here; its return is announced.
                Err(_) => return Ok(()),
            }
        }
    }

    fn look_at_cable(&mut self) -> Result<(), DhcpError> {
        let Some(link) = self.netlink.link(&self.link.name)? else { return Ok(()) };
        if link.carrier && !self.carrier {
            self.machine.plugged_in(clock::now().boot);
        }
        self.carrier = link.carrier;
        Ok(())
    }

    fn perform(&mut self, outputs: Vec<Output>) -> Result<(), DhcpError> {
        for output in outputs {
            match output {
                Output::Broadcast(bytes) => self.send(Ipv4Addr::BROADCAST, &bytes),
                Output::Unicast(server, bytes) => self.send(server, &bytes),
                Output::Apply(terms) => self.apply(terms)?,
                Output::Drop => self.drop_address()?,
            }
        }
        Ok(())
    }

    fn send(&self, to: Ipv4Addr, bytes: &[u8]) {
        let to = SocketAddrV4::new(to, SERVER_PORT);
        if let Err(e) = sendto(&self.socket, bytes, SendFlags::empty(), &to) {
            // It is repeated anyhow.
            tracing::warn!(error = %e, "a DHCP message could not be sent");
        }
    }

    fn apply(&mut self, terms: Terms) -> Result<(), DhcpError> {
        if self.held.as_ref().is_some_and(|h| (h.address, h.prefix_len) != (terms.address, terms.prefix_len)) {
            self.drop_address()?;
        }
        if self.held.is_none() {
            self.drop_inherited(&terms)?;
        }
        // With the lease the kernel takes the address away itself, should this role not be there to do it.
        self.netlink.lease_address(&self.address(&terms), terms.lease)?;
        if let Some(gateway) = terms.gateway {
            self.netlink.replace_route(&default_route(gateway, self.link.index))?;
        }
        if self.held.as_ref() != Some(&terms) {
            let dns: Vec<IpAddr> = terms.dns.iter().map(|a| IpAddr::V4(*a)).collect();
            write_resolvers(&dns, terms.domain.as_deref());
            tracing::info!(
                link = self.link.name,
                address = %terms.address,
                prefix = terms.prefix_len,
                gateway = ?terms.gateway,
                seconds = terms.lease,
                "address leased"
            );
        }
        self.held = Some(terms);
        Ok(())
    }

    /// Takes away what a killed predecessor of this role left on the link, but for the address that is leased again.
    fn drop_inherited(&mut self, terms: &Terms) -> Result<(), DhcpError> {
        for old in inherited(&self.netlink.leased_addresses(self.link.index)?, terms.address) {
            tracing::warn!(link = self.link.name, address = %old.address, "an address of an earlier lease is taken away");
            match self.netlink.delete_address(&old) {
                Err(e) if !e.is_missing() => return Err(e.into()),
                _ => {}
            }
        }
        Ok(())
    }

    fn drop_address(&mut self) -> Result<(), DhcpError> {
        let Some(terms) = self.held.take() else { return Ok(()) };
        tracing::warn!(link = self.link.name, address = %terms.address, "address lost");
        match self.netlink.delete_address(&self.address(&terms)) {
            Err(e) if !e.is_missing() => Err(e.into()),
            _ => Ok(()),
        }
    }

    fn address(&self, terms: &Terms) -> Address {
        let address = IpAddr::V4(terms.address);
        Address { link: self.link.index, address, prefix_len: terms.prefix_len, global: true }
    }
}

/// Which of a link's leased addresses are of an earlier lease. IPv6 has ends of its own, which routers set.
fn inherited(leased: &[Address], kept: Ipv4Addr) -> Vec<Address> {
    leased.iter().filter(|a| a.global && a.address.is_ipv4() && a.address != IpAddr::V4(kept)).copied().collect()
}

/// A few random bits.
fn noise() -> u32 {
    let mut bytes = [0; 4];
    // Early in the boot there may be none yet: then the clock has to do.
    match rustix::rand::getrandom(&mut bytes, rustix::rand::GetRandomFlags::NONBLOCK) {
        Ok(_) => u32::from_ne_bytes(bytes),
        Err(_) => u32::try_from(clock::now().wall.0 & 0xffff_ffff).unwrap_or(0),
    }
}

fn write_resolvers(dns: &[IpAddr], domain: Option<&str>) {
    let mut text = String::new();
    if let Some(domain) = domain {
        text.push_str(&format!("search {domain}\n"));
    }
    for server in dns {
        text.push_str(&format!("nameserver {server}\n"));
    }
    let beside = Path::new("/etc/.resolv.conf.new");
    if let Err(e) = std::fs::write(beside, text).and_then(|()| std::fs::rename(beside, RESOLV_CONF)) {
        tracing::error!(error = %e, "the resolvers could not be written");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_other_leased_addresses_are_of_an_earlier_lease() {
        let address = |text: &str, global| Address { link: 2, address: text.parse().unwrap(), prefix_len: 24, global };
        let old = address("10.0.2.9", true);
        let all = [old, address("10.0.2.15", true), address("169.254.3.4", false), address("fd00::5", true)];
        assert_eq!(inherited(&all, Ipv4Addr::new(10, 0, 2, 15)), [old]);
        assert_eq!(inherited(&[], Ipv4Addr::new(10, 0, 2, 15)), []);
    }
}
