//! Links: bridges, veth pairs, and what any link has.

use super::{Netlink, NetlinkError, Result, attributes_of, text, u16_at, u32_at};
use netlink_packet_core::{NLM_F_CREATE, NLM_F_EXCL};
use netlink_packet_route::RouteNetlinkMessage;
use netlink_packet_route::link::{
    AfSpecInet6, AfSpecUnspec, In6AddrGenMode, InfoBridge, InfoData, InfoKind, InfoVeth, LinkAttribute, LinkExtentMask,
    LinkFlags, LinkInfo, LinkMessage,
};
use std::fmt;
use std::os::fd::{AsRawFd, BorrowedFd};

const IFLA_ADDRESS: u16 = 1;
const IFLA_IFNAME: u16 = 3;
const IFLA_MTU: u16 = 4;
const IFLA_LINK: u16 = 5;
const IFLA_MASTER: u16 = 10;
const IFLA_LINKINFO: u16 = 18;
const IFLA_INFO_KIND: u16 = 1;
const IFF_UP: u32 = 1;
const IFF_LOOPBACK: u32 = 1 << 3;
const IFF_LOWER_UP: u32 = 1 << 16;
const ARPHRD_ETHER: u16 = 1;
/// `struct ifinfomsg`.
const HEADER_BYTES: usize = 16;
/// The kernel's IFNAMSIZ without the NUL byte.
const NAME_BYTES: usize = 15;

/// An Ethernet address.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Mac(pub [u8; 6]);

impl fmt::Display for Mac {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [a, b, c, d, e, g] = self.0;
        write!(f, "{a:02x}:{b:02x}:{c:02x}:{d:02x}:{e:02x}:{g:02x}")
    }
}

/// A link as the kernel describes it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Link {
    /// Its number, unique in the namespace.
    pub index: u32,
    /// Its name.
    pub name: String,
    /// `bridge`, `veth`, ...; absent for a real device.
    pub kind: Option<String>,
    /// Its Ethernet address, if it has one of that length.
    pub mac: Option<Mac>,
    /// Largest packet in bytes.
    pub mtu: u32,
    /// It was switched on.
    pub up: bool,
    /// The other end of the cable answers.
    pub carrier: bool,
    /// It is `lo`.
    pub loopback: bool,
    /// It carries Ethernet frames.
    pub ethernet: bool,
    /// The bridge or bond that it belongs to.
    pub master: Option<u32>,
    /// The number of the veth peer or of the link below, which may be in another namespace.
    pub peer: Option<u32>,
}

/// A pair of links whose second end is born in another network namespace.
#[derive(Debug, Clone, Copy)]
pub struct Veth<'a> {
    /// The name of the end in the socket's own namespace.
    pub name: &'a str,
    /// The other end's name.
    pub peer_name: &'a str,
    /// Where the other end lives.
    pub peer_netns: BorrowedFd<'a>,
    /// The other end's Ethernet address.
    pub peer_mac: Mac,
    /// Largest packet in bytes, of both ends.
    pub mtu: u32,
    /// The bridge that the first end joins.
    pub master: u32,
}

impl Netlink {
    /// All links of the namespace.
    ///
    /// # Errors
    /// Any [`NetlinkError`].
    pub fn links(&mut self) -> Result<Vec<Link>> {
        let mut message = LinkMessage::default();
        // Counters are most of a link's description and nobody here reads them.
        message.attributes.push(LinkAttribute::ExtMask(vec![LinkExtentMask::SkipStats]));
        let answers = self.dump("list links", &RouteNetlinkMessage::GetLink(message))?;
        Ok(answers.iter().filter_map(|bytes| parse(bytes)).collect())
    }

    /// One link by name; nothing when there is none.
    ///
    /// # Errors
    /// Any [`NetlinkError`].
    pub fn link(&mut self, name: &str) -> Result<Option<Link>> {
        check_name(name)?;
        let mut message = LinkMessage::default();
        message.attributes.push(LinkAttribute::IfName(name.to_owned()));
        match self.ask("read link", name, 0, RouteNetlinkMessage::GetLink(message)) {
            Ok(answers) => Ok(answers.iter().find_map(|bytes| parse(bytes))),
            Err(e) if e.is_missing() => Ok(None),
            Err(e) => Err(e),
        }
    }

    /// One link by number; nothing when there is none.
    ///
    /// # Errors
    /// Any [`NetlinkError`].
    pub fn link_at(&mut self, index: u32) -> Result<Option<Link>> {
        let mut message = LinkMessage::default();
        message.header.index = index;
        match self.ask("read link", &index.to_string(), 0, RouteNetlinkMessage::GetLink(message)) {
            Ok(answers) => Ok(answers.iter().find_map(|bytes| parse(bytes))),
            Err(e) if e.is_missing() => Ok(None),
            Err(e) => Err(e),
        }
    }

    /// Makes a bridge, without spanning tree and switched off.
    ///
    /// # Errors
    /// [`NetlinkError::already_exists`] when the name is taken.
    pub fn add_bridge(&mut self, name: &str, mac: Mac, mtu: u32) -> Result<()> {
        check_name(name)?;
        let mut message = LinkMessage::default();
        message.attributes = vec![
            LinkAttribute::IfName(name.to_owned()),
            LinkAttribute::Mtu(mtu),
            LinkAttribute::Address(mac.0.to_vec()),
            LinkAttribute::LinkInfo(vec![
                LinkInfo::Kind(InfoKind::Bridge),
                // A port forwards at once instead of after the default 15 s of learning.
                LinkInfo::Data(InfoData::Bridge(vec![InfoBridge::ForwardDelay(0)])),
            ]),
        ];
        self.change("add bridge", name, NLM_F_CREATE | NLM_F_EXCL, RouteNetlinkMessage::NewLink(message))
    }

    /// Makes a veth pair. Both ends are switched off.
    ///
    /// # Errors
    /// [`NetlinkError::already_exists`] when either name is taken in its namespace.
    pub fn add_veth(&mut self, veth: &Veth<'_>) -> Result<()> {
        check_name(veth.name)?;
        check_name(veth.peer_name)?;
        let mut peer = LinkMessage::default();
        peer.attributes = vec![
            LinkAttribute::IfName(veth.peer_name.to_owned()),
            LinkAttribute::Mtu(veth.mtu),
            LinkAttribute::Address(veth.peer_mac.0.to_vec()),
            LinkAttribute::NetNsFd(veth.peer_netns.as_raw_fd()),
        ];
        let mut message = LinkMessage::default();
        message.attributes = vec![
            LinkAttribute::IfName(veth.name.to_owned()),
            LinkAttribute::Mtu(veth.mtu),
            LinkAttribute::Controller(veth.master),
            LinkAttribute::LinkInfo(vec![
                LinkInfo::Kind(InfoKind::Veth),
                LinkInfo::Data(InfoData::Veth(InfoVeth::Peer(peer))),
            ]),
        ];
        self.change("add veth", veth.name, NLM_F_CREATE | NLM_F_EXCL, RouteNetlinkMessage::NewLink(message))
    }

    /// Switches a link on or off.
    ///
    /// # Errors
    /// [`NetlinkError::is_missing`] when there is no such link.
    pub fn set_up(&mut self, index: u32, up: bool) -> Result<()> {
        let mut message = LinkMessage::default();
        message.header.index = index;
        message.header.flags = if up { LinkFlags::Up } else { LinkFlags::empty() };
        message.header.change_mask = LinkFlags::Up;
        let operation = if up { "switch on link" } else { "switch off link" };
        self.change(operation, &index.to_string(), 0, RouteNetlinkMessage::SetLink(message))
    }

    /// Sets the largest packet in bytes.
    ///
    /// # Errors
    /// [`NetlinkError::is_missing`] when there is no such link; EINVAL when the device cannot.
    pub fn set_mtu(&mut self, index: u32, mtu: u32) -> Result<()> {
        self.set_link("set MTU of link", index, LinkAttribute::Mtu(mtu))
    }

    /// Sets the Ethernet address.
    ///
    /// # Errors
    /// [`NetlinkError::is_missing`] when there is no such link; EBUSY when the device must be off for it.
    pub fn set_mac(&mut self, index: u32, mac: Mac) -> Result<()> {
        self.set_link("set address of link", index, LinkAttribute::Address(mac.0.to_vec()))
    }

    /// Makes a link the port of a bridge, or of none.
    ///
    /// # Errors
    /// [`NetlinkError::is_missing`] when there is no such link.
    pub fn set_master(&mut self, index: u32, master: Option<u32>) -> Result<()> {
        self.set_link("set bridge of link", index, LinkAttribute::Controller(master.unwrap_or(0)))
    }

    /// Keeps the kernel from giving a link an IPv6 address of its own making when it is switched on.
    ///
    /// # Errors
    /// [`NetlinkError::is_missing`] when there is no such link; EAFNOSUPPORT on a kernel without IPv6.
    pub fn set_no_own_address(&mut self, index: u32) -> Result<()> {
        let none = vec![AfSpecInet6::AddrGenMode(In6AddrGenMode::None)];
        let attribute = LinkAttribute::AfSpecUnspec(vec![AfSpecUnspec::Inet6(none)]);
        self.set_link("keep addresses off link", index, attribute)
    }

    /// Deletes a link; of a veth pair, both ends.
    ///
    /// # Errors
    /// [`NetlinkError::is_missing`] when there is no such link.
    pub fn delete_link(&mut self, index: u32) -> Result<()> {
        let mut message = LinkMessage::default();
        message.header.index = index;
        self.change("delete link", &index.to_string(), 0, RouteNetlinkMessage::DelLink(message))
    }

    fn set_link(&mut self, operation: &'static str, index: u32, attribute: LinkAttribute) -> Result<()> {
        let mut message = LinkMessage::default();
        message.header.index = index;
        message.attributes.push(attribute);
        self.change(operation, &index.to_string(), 0, RouteNetlinkMessage::SetLink(message))
    }
}

/// The kernel's `dev_valid_name`, and no format sign: `%d` would ask the kernel to pick a number.
fn check_name(name: &str) -> Result<()> {
    let plain = |b: u8| !b.is_ascii_whitespace() && !b.is_ascii_control() && !matches!(b, b'/' | b':' | b'%');
    if (1..=NAME_BYTES).contains(&name.len()) && name != "." && name != ".." && name.bytes().all(plain) {
        return Ok(());
    }
    Err(NetlinkError::Name { name: name.chars().take(80).collect() })
}

/// Reads a link from `struct ifinfomsg` and its attributes.
pub(super) fn parse(bytes: &[u8]) -> Option<Link> {
    let flags = u32_at(bytes, 8)?;
    let mut link = Link {
        index: u32_at(bytes, 4)?,
        name: String::new(),
        kind: None,
        mac: None,
        mtu: 0,
        up: flags & IFF_UP != 0,
        carrier: flags & IFF_LOWER_UP != 0,
        loopback: flags & IFF_LOOPBACK != 0,
        ethernet: u16_at(bytes, 2)? == ARPHRD_ETHER,
        master: None,
        peer: None,
    };
    for (kind, value) in attributes_of(bytes.get(HEADER_BYTES..)?) {
        match kind {
            IFLA_IFNAME => link.name = text(value),
            IFLA_ADDRESS => link.mac = value.try_into().ok().map(Mac),
            IFLA_MTU => link.mtu = u32_at(value, 0)?,
            IFLA_LINK => link.peer = u32_at(value, 0),
            IFLA_MASTER => link.master = u32_at(value, 0),
            IFLA_LINKINFO => {
                link.kind = attributes_of(value).find(|(k, _)| *k == IFLA_INFO_KIND).map(|(_, v)| text(v));
            }
            _ => {}
        }
    }
    (!link.name.is_empty()).then_some(link)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_link_names_are_sent() {
        for good in ["lo", "armlet0", "a23456789012345", "eth0.5", "vé"] {
            assert!(check_name(good).is_ok(), "{good}");
        }
        for bad in ["", ".", "..", "a/b", "a b", "a:b", "eth%d", "a\nb", "a234567890123456"] {
            assert!(matches!(check_name(bad), Err(NetlinkError::Name { .. })), "{bad}");
        }
    }
}
