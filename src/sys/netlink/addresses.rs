//! Addresses of links.

use super::{Netlink, Result, attributes_of, u32_at};
use netlink_packet_core::{NLM_F_CREATE, NLM_F_REPLACE};
use netlink_packet_route::address::{AddressAttribute, AddressMessage, AddressScope, CacheInfo};
use netlink_packet_route::{AddressFamily, RouteNetlinkMessage};
use std::fmt;
use std::net::{IpAddr, Ipv4Addr};

const IFA_ADDRESS: u16 = 1;
const IFA_LOCAL: u16 = 2;
/// `struct ifaddrmsg`.
const HEADER_BYTES: usize = 8;
pub(super) const RT_SCOPE_UNIVERSE: u8 = 0;
/// An address without an end (linux/if_addr.h).
const IFA_F_PERMANENT: u8 = 0x80;

/// An address of a link.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Address {
    /// The link's number.
    pub link: u32,
    /// The address.
    pub address: IpAddr,
    /// Leading bits that name the network.
    pub prefix_len: u8,
    /// Reachable from other machines, not only from this one or this cable.
    pub global: bool,
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{} on link {}", self.address, self.prefix_len, self.link)
    }
}

impl Netlink {
    /// All addresses of all links.
    ///
    /// # Errors
    /// Any [`super::NetlinkError`].
    pub fn addresses(&mut self) -> Result<Vec<Address>> {
        let answers = self.dump("list addresses", &RouteNetlinkMessage::GetAddress(AddressMessage::default()))?;
        Ok(answers.iter().filter_map(|bytes| parse(bytes)).collect())
    }

    /// All addresses of the family of `like`.
    ///
    /// # Errors
    /// Any [`super::NetlinkError`].
    pub fn addresses_like(&mut self, like: IpAddr) -> Result<Vec<Address>> {
        let mut message = AddressMessage::default();
        message.header.family = family_of(like);
        let answers = self.dump("list addresses", &RouteNetlinkMessage::GetAddress(message))?;
        Ok(answers.iter().filter_map(|bytes| parse(bytes)).collect())
    }

    /// Gives a link an address; does nothing when it has it. The route to its network comes with it.
    ///
    /// # Errors
    /// [`super::NetlinkError::is_missing`] when there is no such link.
    pub fn replace_address(&mut self, address: &Address) -> Result<()> {
        let message = RouteNetlinkMessage::NewAddress(encode(address));
        self.change("add address", &address.to_string(), NLM_F_CREATE | NLM_F_REPLACE, message)
    }

    /// Gives a link an address that the kernel takes away after so many seconds (`u32::MAX`: never), unless this is
    /// called again before.
    ///
    /// # Errors
    /// [`super::NetlinkError::is_missing`] when there is no such link.
    pub fn lease_address(&mut self, address: &Address, seconds: u32) -> Result<()> {
        let mut message = encode(address);
        let mut times = CacheInfo::default();
        times.ifa_preferred = seconds;
        times.ifa_valid = seconds;
        message.attributes.push(AddressAttribute::CacheInfo(times));
        let message = RouteNetlinkMessage::NewAddress(message);
        self.change("lease address", &address.to_string(), NLM_F_CREATE | NLM_F_REPLACE, message)
    }

    /// The addresses of a link that have an end: those that [`Netlink::lease_address`] gave it.
    ///
    /// # Errors
    /// Any [`super::NetlinkError`].
    pub fn leased_addresses(&mut self, link: u32) -> Result<Vec<Address>> {
        let answers = self.dump("list addresses", &RouteNetlinkMessage::GetAddress(AddressMessage::default()))?;
        let leased = answers.iter().filter(|bytes| bytes.get(2).is_some_and(|flags| flags & IFA_F_PERMANENT == 0));
        Ok(leased.filter_map(|bytes| parse(bytes)).filter(|address| address.link == link).collect())
    }

    /// Takes an address away.
    ///
    /// # Errors
    /// [`super::NetlinkError::is_missing`] when the link does not have it.
    pub fn delete_address(&mut self, address: &Address) -> Result<()> {
        let message = RouteNetlinkMessage::DelAddress(encode(address));
        self.change("delete address", &address.to_string(), 0, message)
    }
}

fn encode(address: &Address) -> AddressMessage {
    let mut message = AddressMessage::default();
    message.header.index = address.link;
    message.header.prefix_len = address.prefix_len;
    message.header.scope = if address.global { AddressScope::Universe } else { AddressScope::Host };
    message.attributes = vec![AddressAttribute::Local(address.address), AddressAttribute::Address(address.address)];
    match address.address {
        IpAddr::V4(v4) => {
            message.header.family = AddressFamily::Inet;
            if address.prefix_len < 31 {
                let host = u32::MAX.checked_shr(u32::from(address.prefix_len)).unwrap_or(0);
                let broadcast = Ipv4Addr::from(u32::from(v4) | host);
                message.attributes.push(AddressAttribute::Broadcast(broadcast));
            }
        }
        IpAddr::V6(_) => message.header.family = AddressFamily::Inet6,
    }
    message
}

/// Netlink's number for the kind of an address.
pub(super) const fn family_of(address: IpAddr) -> AddressFamily {
    match address {
        IpAddr::V4(_) => AddressFamily::Inet,
        IpAddr::V6(_) => AddressFamily::Inet6,
    }
}

/// Reads an address from `struct ifaddrmsg` and its attributes.
pub(super) fn parse(bytes: &[u8]) -> Option<Address> {
    let (mut local, mut remote) = (None, None);
    for (kind, value) in attributes_of(bytes.get(HEADER_BYTES..)?) {
        match kind {
            IFA_LOCAL => local = ip(value),
            IFA_ADDRESS => remote = ip(value),
            _ => {}
        }
    }
    // On a point-to-point link IFA_ADDRESS is the other end; IPv6 has no IFA_LOCAL otherwise.
    let address = local.or(remote)?;
    Some(Address {
        link: u32_at(bytes, 4)?,
        address,
        prefix_len: *bytes.get(1)?,
        global: *bytes.get(3)? == RT_SCOPE_UNIVERSE,
    })
}

/// An address of four or sixteen bytes.
pub(super) fn ip(value: &[u8]) -> Option<IpAddr> {
    <[u8; 4]>::try_from(value).map(IpAddr::from).or_else(|_| <[u8; 16]>::try_from(value).map(IpAddr::from)).ok()
}
