//! The node's bridge.

use super::{NetworkError, Result, of};
use crate::sys::netlink::{Address, Link, Mac, Netlink};
use crate::sys::sysctl;
use serde::{Deserialize, Serialize};
use std::net::IpAddr;

/// The bridge that the pods of a node share.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Bridge {
    /// Its link name: `armlet0`.
    pub name: String,
    /// Its address, which is the pods' gateway: the first one of the pod range.
    pub gateway: IpAddr,
    /// Leading bits of the pod range.
    pub prefix_len: u8,
}

impl Bridge {
    /// Whether an address lies in the pod range and is not the bridge's own.
    #[must_use]
    pub fn has_room_for(&self, address: IpAddr) -> bool {
        let same = match (address, self.gateway) {
            (IpAddr::V4(a), IpAddr::V4(b)) => {
                let shift = 32u32.saturating_sub(self.prefix_len.into());
                (u32::from(a) ^ u32::from(b)).checked_shr(shift).unwrap_or(0) == 0
            }
            (IpAddr::V6(a), IpAddr::V6(b)) => {
                let shift = 128u32.saturating_sub(self.prefix_len.into());
                (u128::from(a) ^ u128::from(b)).checked_shr(shift).unwrap_or(0) == 0
            }
            _ => false,
        };
        same && address != self.gateway
    }
}

/// Makes the bridge, or repairs the one that is there: address, largest packet, switched on; and lets the node forward
/// packets. Safe to repeat.
///
/// # Errors
/// [`NetworkError::NotABridge`] when the name belongs to something else; what the kernel refuses.
pub fn ensure_bridge(bridge: &Bridge) -> Result<()> {
    let mut netlink = of(&bridge.name, Netlink::open())?;
    let mtu = super::uplink::mtu(&mut netlink)?.unwrap_or(DEFAULT_MTU);
    ensure(&mut netlink, bridge, mtu).map(drop)
}

/// Ethernet's own: used while the node has no uplink.
pub(super) const DEFAULT_MTU: u32 = 1500;

pub(super) fn ensure(netlink: &mut Netlink, bridge: &Bridge, mtu: u32) -> Result<Link> {
    let name = bridge.name.as_str();
    let link = match of(name, netlink.link(name))? {
        Some(link) => link,
        None => {
            match netlink.add_bridge(name, stable_mac(bridge.gateway), mtu) {
                // Another attach was quicker.
                Err(e) if e.already_exists() => {}
                made => of(name, made)?,
            }
            let vanished = || NetworkError::Vanished { of: name.to_owned(), name: name.to_owned() };
            of(name, netlink.link(name))?.ok_or_else(vanished)?
        }
    };
    if link.kind.as_deref() != Some("bridge") {
        let kind = link.kind.unwrap_or_else(|| "a device".to_owned());
        return Err(NetworkError::NotABridge { name: link.name, kind });
    }
    if link.mtu != mtu {
        of(name, netlink.set_mtu(link.index, mtu))?;
    }
    let address = Address { link: link.index, address: bridge.gateway, prefix_len: bridge.prefix_len, global: true };
    only_address(netlink, name, &address)?;
    if !link.up {
        of(name, netlink.set_up(link.index, true))?;
    }
    let forward = match bridge.gateway {
        IpAddr::V4(_) => "net.ipv4.ip_forward",
        IpAddr::V6(_) => "net.ipv6.conf.all.forwarding",
    };
    sysctl::set(forward, "1").map_err(|source| NetworkError::Sysctl { name: forward, source })?;
    Ok(link)
}

/// Gives a link one address and takes other global ones of the same family away: they are left from another
/// configuration or another pod.
pub(super) fn only_address(netlink: &mut Netlink, object: &str, wanted: &Address) -> Result<()> {
    let present = of(object, netlink.addresses_like(wanted.address))?;
    let mine = |a: &&Address| a.link == wanted.link && a.global && *a != wanted;
    for other in present.iter().filter(mine) {
        match netlink.delete_address(other) {
            Err(e) if e.is_missing() => {}
            deleted => of(object, deleted)?,
        }
    }
    if present.contains(wanted) { Ok(()) } else { of(object, netlink.replace_address(wanted)) }
}

/// A locally administered Ethernet address that follows from the IP address. When an address passes to another pod its
/// Ethernet address goes along, so nobody's neighbour table is wrong; and the bridge keeps its own when ports come and
/// go.
pub(super) fn stable_mac(address: IpAddr) -> Mac {
    let [a, b, c, d] = match address {
        IpAddr::V4(v4) => v4.octets(),
        IpAddr::V6(v6) => {
            let [.., a, b, c, d] = v6.octets();
            [a, b, c, d]
        }
    };
    Mac([0x0a, 0x58, a, b, c, d])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_addresses_of_the_range_have_room() {
        let bridge = |gateway: &str, prefix_len| Bridge {
            name: "armlet0".to_owned(),
            gateway: gateway.parse().unwrap(),
            prefix_len,
        };
        let table = [
            ("10.244.0.1", 24, "10.244.0.2", true),
            ("10.244.0.1", 24, "10.244.0.1", false),
            ("10.244.0.1", 24, "10.244.1.2", false),
            ("10.244.0.1", 16, "10.244.1.2", true),
            ("10.244.0.1", 0, "1.2.3.4", true),
            ("10.244.0.1", 32, "10.244.0.2", false),
            ("10.244.0.1", 24, "fd00::2", false),
            ("fd00::1", 64, "fd00::2", true),
            ("fd00::1", 64, "fd01::2", false),
            ("fd00::1", 0, "fe80::2", true),
        ];
        for (gateway, prefix_len, address, room) in table {
            let found = bridge(gateway, prefix_len).has_room_for(address.parse().unwrap());
            assert_eq!(found, room, "{address} in {gateway}/{prefix_len}");
        }
    }
}
