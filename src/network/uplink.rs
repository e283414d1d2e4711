//! The node's own way out and its addresses.

use super::{Result, of};
use crate::sys::netlink::{Address, Link, Netlink, Route};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// The link over which the node reaches others.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Uplink {
    /// Its name.
    pub name: String,
    /// Largest packet in bytes.
    pub mtu: u32,
    /// Its addresses that others can reach, IPv4 first.
    pub addresses: Vec<IpAddr>,
}

/// The link of the best default route; without one, the first real link that has an address.
///
/// # Errors
/// What the kernel refuses.
pub fn uplink() -> Result<Option<Uplink>> {
    read(&mut of("node", Netlink::open())?)
}

/// The node's addresses that others can reach, IPv4 first. Empty while it has none.
///
/// # Errors
/// What the kernel refuses.
pub fn node_addresses() -> Result<Vec<IpAddr>> {
    Ok(uplink()?.map(|found| found.addresses).unwrap_or_default())
}

pub(super) fn read(netlink: &mut Netlink) -> Result<Option<Uplink>> {
    let links = of("node", netlink.links())?;
    let addresses = of("node", netlink.addresses())?;
    let routes = of("node", netlink.routes())?;
    Ok(choose(&links, &addresses, &routes))
}

/// The uplink's largest packet. What is asked for does not grow with the number of pods, each of which has links,
/// addresses and IPv6 routes on the node.
pub(super) fn mtu(netlink: &mut Netlink) -> Result<Option<u32>> {
    for family in [IpAddr::V4(Ipv4Addr::UNSPECIFIED), IpAddr::V6(Ipv6Addr::UNSPECIFIED)] {
        let routes = of("node", netlink.routes_like(family))?;
        if let Some(index) = default_route(&routes).and_then(|route| route.link)
            && let Some(link) = of("node", netlink.link_at(index))?
        {
            return Ok(Some(link.mtu));
        }
    }
    Ok(read(netlink)?.map(|found| found.mtu))
}

fn default_route(routes: &[Route]) -> Option<&Route> {
    let defaults = routes.iter().filter(|r| r.prefix_len == 0 && r.gateway.is_some());
    defaults.min_by_key(|r| (r.destination.is_ipv6(), r.metric))
}

fn choose(links: &[Link], addresses: &[Address], routes: &[Route]) -> Option<Uplink> {
    let default = default_route(routes).and_then(|r| links.iter().find(|link| Some(link.index) == r.link));
    // Without a default route: a link that is a device, not a bridge, tunnel or veth end made by software.
    let first = || {
        links.iter().find(|link| {
            let addressed = addresses.iter().any(|a| a.link == link.index && a.global);
            link.up && !link.loopback && link.kind.is_none() && addressed
        })
    };
    let link = default.or_else(first)?;
    let mut reachable: Vec<IpAddr> =
        addresses.iter().filter(|a| a.link == link.index && a.global).map(|a| a.address).collect();
    reachable.sort_by_key(IpAddr::is_ipv6);
    Some(Uplink { name: link.name.clone(), mtu: link.mtu, addresses: reachable })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn link(index: u32, name: &str, kind: Option<&str>) -> Link {
        Link {
            index,
            name: name.to_owned(),
            kind: kind.map(str::to_owned),
            mac: None,
            mtu: 1400 + index,
            up: true,
            carrier: true,
            loopback: name == "lo",
            ethernet: true,
            master: None,
            peer: None,
        }
    }

    fn address(link: u32, address: &str, global: bool) -> Address {
        Address { link, address: address.parse().unwrap(), prefix_len: 24, global }
    }

    #[test]
    fn the_best_default_route_wins() {
        let links =
            [link(1, "lo", None), link(2, "eth0", None), link(3, "wlan0", None), link(4, "armlet0", Some("bridge"))];
        let addresses = [
            address(1, "127.0.0.1", false),
            address(4, "10.244.0.1", true),
            address(2, "192.168.1.5", true),
            address(3, "2001:db8::5", true),
            address(3, "fe80::1", false),
            address(3, "192.168.2.5", true),
        ];
        let route = |index, metric| Route { metric, ..Route::default_via("192.168.9.1".parse().unwrap(), index) };
        let names = |routes: &[Route]| choose(&links, &addresses, routes).map(|u| u.name);
        assert_eq!(names(&[route(2, 100), route(3, 50)]).as_deref(), Some("wlan0"));
        assert_eq!(names(&[route(2, 0), route(3, 50)]).as_deref(), Some("eth0"));
        assert_eq!(names(&[]).as_deref(), Some("eth0"));
        assert_eq!(names(&[route(99, 0)]).as_deref(), Some("eth0"));
        let wlan = choose(&links, &addresses, &[route(3, 0)]).unwrap();
        assert_eq!(wlan.mtu, 1403);
        assert_eq!(wlan.addresses, ["192.168.2.5".parse::<IpAddr>().unwrap(), "2001:db8::5".parse().unwrap()]);
        assert_eq!(choose(&links[..1], &addresses, &[]), None);
        assert_eq!(choose(&[], &[], &[route(2, 0)]), None);
    }
}
