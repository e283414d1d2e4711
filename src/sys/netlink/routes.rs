//! Routes of the main table.

use super::addresses::{family_of, ip};
use super::{Netlink, Result, attributes_of, u32_at};
use netlink_packet_core::{NLM_F_CREATE, NLM_F_REPLACE};
use netlink_packet_route::RouteNetlinkMessage;
use netlink_packet_route::route::{
    RouteAddress, RouteAttribute, RouteHeader, RouteMessage, RouteProtocol, RouteScope, RouteType,
};
use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

const RTA_DST: u16 = 1;
const RTA_OIF: u16 = 4;
const RTA_GATEWAY: u16 = 5;
const RTA_PRIORITY: u16 = 6;
const RTA_PREFSRC: u16 = 7;
const RTA_TABLE: u16 = 15;
const RT_TABLE_MAIN: u32 = 254;
const RTN_UNICAST: u8 = 1;
const AF_INET: u8 = 2;
const AF_INET6: u8 = 10;
/// `struct rtmsg`.
const HEADER_BYTES: usize = 12;

/// A unicast route of the main table.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Route {
    /// Where it leads: an unspecified address with length 0 is the default route.
    pub destination: IpAddr,
    /// Leading bits of `destination` that count.
    pub prefix_len: u8,
    /// The next hop; absent when the destination is on the link itself.
    pub gateway: Option<IpAddr>,
    /// The link's number; absent only for a route over several links.
    pub link: Option<u32>,
    /// The address that packets get as their source.
    pub source: Option<IpAddr>,
    /// The smallest wins.
    pub metric: u32,
}

impl Route {
    /// The default route through a gateway.
    #[must_use]
    pub const fn default_via(gateway: IpAddr, link: u32) -> Self {
        let destination = match gateway {
            IpAddr::V4(_) => IpAddr::V4(Ipv4Addr::UNSPECIFIED),
            IpAddr::V6(_) => IpAddr::V6(Ipv6Addr::UNSPECIFIED),
        };
        Self { destination, prefix_len: 0, gateway: Some(gateway), link: Some(link), source: None, metric: 0 }
    }
}

impl fmt::Display for Route {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.destination, self.prefix_len)?;
        self.gateway.iter().try_for_each(|gateway| write!(f, " via {gateway}"))?;
        self.link.iter().try_for_each(|link| write!(f, " on link {link}"))
    }
}

impl Netlink {
    /// All unicast routes of the main table.
    ///
    /// # Errors
    /// Any [`super::NetlinkError`].
    pub fn routes(&mut self) -> Result<Vec<Route>> {
        let answers = self.dump("list routes", &RouteNetlinkMessage::GetRoute(RouteMessage::default()))?;
        Ok(answers.iter().filter_map(|bytes| parse(bytes)).collect())
    }

    /// The same of one family, that of `like`.
    ///
    /// # Errors
    /// Any [`super::NetlinkError`].
    pub fn routes_like(&mut self, like: IpAddr) -> Result<Vec<Route>> {
        let mut message = RouteMessage::default();
        message.header.address_family = family_of(like);
        let answers = self.dump("list routes", &RouteNetlinkMessage::GetRoute(message))?;
        Ok(answers.iter().filter_map(|bytes| parse(bytes)).collect())
    }

    /// Adds a route; one with the same destination and metric is replaced.
    ///
    /// # Errors
    /// ENETUNREACH or EINVAL when the gateway is not reachable over the link.
    pub fn replace_route(&mut self, route: &Route) -> Result<()> {
        let message = RouteNetlinkMessage::NewRoute(encode(route));
        self.change("add route", &route.to_string(), NLM_F_CREATE | NLM_F_REPLACE, message)
    }

    /// Deletes a route.
    ///
    /// # Errors
    /// [`super::NetlinkError::is_missing`] when there is none.
    pub fn delete_route(&mut self, route: &Route) -> Result<()> {
        let message = RouteNetlinkMessage::DelRoute(encode(route));
        self.change("delete route", &route.to_string(), 0, message)
    }
}

fn encode(route: &Route) -> RouteMessage {
    let mut message = RouteMessage::default();
    message.header.address_family = family_of(route.destination);
    message.header.destination_prefix_length = route.prefix_len;
    message.header.table = RouteHeader::RT_TABLE_MAIN;
    message.header.protocol = RouteProtocol::Boot;
    message.header.kind = RouteType::Unicast;
    message.header.scope = if route.gateway.is_some() { RouteScope::Universe } else { RouteScope::Link };
    if route.prefix_len > 0 {
        message.attributes.push(RouteAttribute::Destination(RouteAddress::from(route.destination)));
    }
    message.attributes.extend(route.gateway.map(|gateway| RouteAttribute::Gateway(gateway.into())));
    message.attributes.extend(route.link.map(RouteAttribute::Oif));
    message.attributes.extend(route.source.map(|source| RouteAttribute::PrefSource(source.into())));
    if route.metric > 0 {
        message.attributes.push(RouteAttribute::Priority(route.metric));
    }
    message
}

/// Reads a unicast route of the main table from `struct rtmsg` and its attributes.
pub(super) fn parse(bytes: &[u8]) -> Option<Route> {
    let destination = match *bytes.first()? {
        AF_INET => IpAddr::V4(Ipv4Addr::UNSPECIFIED),
        AF_INET6 => IpAddr::V6(Ipv6Addr::UNSPECIFIED),
        _ => return None,
    };
    let mut table = u32::from(*bytes.get(4)?);
    let mut route =
        Route { destination, prefix_len: *bytes.get(1)?, gateway: None, link: None, source: None, metric: 0 };
    for (kind, value) in attributes_of(bytes.get(HEADER_BYTES..)?) {
        match kind {
            RTA_DST => route.destination = ip(value)?,
            RTA_GATEWAY => route.gateway = ip(value),
            RTA_OIF => route.link = u32_at(value, 0),
            RTA_PREFSRC => route.source = ip(value),
            RTA_PRIORITY => route.metric = u32_at(value, 0)?,
            RTA_TABLE => table = u32_at(value, 0)?,
            _ => {}
        }
    }
    (*bytes.get(7)? == RTN_UNICAST && table == RT_TABLE_MAIN).then_some(route)
}
