//! Against the kernel, in fresh network namespaces.

use super::*;
use crate::sys::netns;
use crate::sys::testing::is_root;
use std::net::IpAddr;

fn fresh() -> (std::os::fd::OwnedFd, Netlink) {
    let netns = netns::create().unwrap();
    let netlink = Netlink::open_in(&netns).unwrap();
    (netns, netlink)
}

fn ip(text: &str) -> IpAddr {
    text.parse().unwrap()
}

fn address(link: u32, text: &str, prefix_len: u8) -> Address {
    Address { link, address: ip(text), prefix_len, global: true }
}

#[test]
fn linux_a_fresh_namespace_has_only_lo() {
    if !is_root() {
        return;
    }
    let (_netns, mut netlink) = fresh();
    let links = netlink.links().unwrap();
    let [lo] = links.as_slice() else { panic!("{links:?}") };
    assert!(lo.loopback && !lo.up && !lo.ethernet);
    assert_eq!((lo.name.as_str(), lo.mtu), ("lo", 65536));
    netlink.set_up(lo.index, true).unwrap();
    netlink.set_up(lo.index, true).unwrap();
    assert!(netlink.link("lo").unwrap().unwrap().up);
    let addresses = netlink.addresses().unwrap();
    assert!(addresses.iter().any(|a| a.address == ip("127.0.0.1") && !a.global), "{addresses:?}");
}

#[test]
fn linux_a_veth_pair_joins_a_bridge_and_another_namespace() {
    if !is_root() {
        return;
    }
    let (_node, mut node) = fresh();
    let (pod_ns, mut pod) = fresh();
    let mac = Mac([0x0a, 0x58, 10, 244, 0, 1]);
    node.add_bridge("armlet0", mac, 1400).unwrap();
    let again = node.add_bridge("armlet0", mac, 1400).unwrap_err();
    assert!(again.already_exists(), "{again}");
    let bridge = node.link("armlet0").unwrap().unwrap();
    assert_eq!((bridge.kind.as_deref(), bridge.mac, bridge.mtu), (Some("bridge"), Some(mac), 1400));

    let peer_mac = Mac([0x0a, 0x58, 10, 244, 0, 2]);
    node.add_veth(&Veth {
        name: "veth1234",
        peer_name: "eth0",
        peer_netns: pod_ns.as_fd(),
        peer_mac,
        mtu: 1400,
        master: bridge.index,
    })
    .unwrap();
    let host = node.link("veth1234").unwrap().unwrap();
    assert_eq!((host.kind.as_deref(), host.master, host.mtu), (Some("veth"), Some(bridge.index), 1400));
    let eth0 = pod.link("eth0").unwrap().unwrap();
    assert_eq!((eth0.mac, eth0.peer, eth0.ethernet, eth0.mtu), (Some(peer_mac), Some(host.index), true, 1400));

    node.set_master(host.index, None).unwrap();
    assert_eq!(node.link("veth1234").unwrap().unwrap().master, None);
    node.set_mtu(host.index, 1280).unwrap();
    node.set_mac(host.index, mac).unwrap();
    let changed = node.link("veth1234").unwrap().unwrap();
    assert_eq!((changed.mtu, changed.mac), (1280, Some(mac)));
    node.delete_link(host.index).unwrap();
    assert!(node.delete_link(host.index).unwrap_err().is_missing());
    assert_eq!(pod.link("eth0").unwrap(), None);
}

#[test]
fn linux_addresses_and_routes_are_replaced_not_doubled() {
    if !is_root() {
        return;
    }
    let (_netns, mut netlink) = fresh();
    netlink.add_bridge("br", Mac([2, 0, 0, 0, 0, 1]), 1500).unwrap();
    let link = netlink.link("br").unwrap().unwrap().index;
    netlink.set_up(link, true).unwrap();
    let mine = address(link, "10.1.2.3", 24);
    netlink.replace_address(&mine).unwrap();
    netlink.replace_address(&mine).unwrap();
    let v4 = netlink.addresses().unwrap().into_iter().filter(|a| a.address.is_ipv4()).collect::<Vec<_>>();
    assert_eq!(v4, [mine]);

    for gateway in ["10.1.2.1", "10.1.2.1", "10.1.2.2"] {
        netlink.replace_route(&Route::default_via(ip(gateway), link)).unwrap();
    }
    let default = Route::default_via(ip("10.1.2.2"), link);
    let routes = netlink.routes().unwrap();
    assert_eq!(routes.iter().filter(|r| r.prefix_len == 0).collect::<Vec<_>>(), [&default]);
    assert!(routes.iter().any(|r| r.destination == ip("10.1.2.0") && r.prefix_len == 24 && r.gateway.is_none()));
    netlink.delete_route(&default).unwrap();
    assert!(netlink.delete_route(&default).unwrap_err().is_missing());

    netlink.delete_address(&mine).unwrap();
    assert!(netlink.delete_address(&mine).unwrap_err().is_missing());
}

#[test]
fn linux_a_leased_address_is_told_from_one_that_stays() {
    let (_netns, mut netlink) = fresh();
    netlink.add_bridge("br", Mac([2, 0, 0, 0, 0, 1]), 1500).unwrap();
    let link = netlink.link("br").unwrap().unwrap().index;
    netlink.set_up(link, true).unwrap();
    let [stays, leased, endless] = ["10.1.2.3", "10.1.2.4", "10.1.2.5"].map(|text| address(link, text, 24));
    netlink.replace_address(&stays).unwrap();
    netlink.lease_address(&leased, 3600).unwrap();
    netlink.lease_address(&leased, 7200).unwrap();
    netlink.lease_address(&endless, u32::MAX).unwrap();
    let v4 = |all: Vec<Address>| all.into_iter().filter(|a| a.address.is_ipv4()).collect::<Vec<_>>();
    assert_eq!(v4(netlink.leased_addresses(link).unwrap()), [leased]);
    assert_eq!(v4(netlink.leased_addresses(link + 1).unwrap()), []);
    assert_eq!(v4(netlink.addresses().unwrap()), [stays, leased, endless]);
}

#[test]
fn linux_changes_that_other_machines_notice_are_told() {
    let (netns, mut netlink) = fresh();
    let changes = netns::run_in(&netns, Changes::open).unwrap().unwrap();
    assert_eq!(changes.take().unwrap_err().kind(), io::ErrorKind::WouldBlock);
    netlink.add_bridge("br", Mac([2, 0, 0, 0, 0, 1]), 1500).unwrap();
    let link = netlink.link("br").unwrap().unwrap().index;
    netlink.set_up(link, true).unwrap();
    // What the kernel itself gives a link matters to nobody.
    assert!(!changes.take().unwrap_or(false));
    netlink.replace_address(&Address { global: false, ..address(link, "10.9.9.9", 32) }).unwrap();
    assert!(!changes.take().unwrap());
    let mine = address(link, "10.1.2.3", 24);
    netlink.replace_address(&mine).unwrap();
    assert!(changes.take().unwrap());
    let route = |destination: &str, prefix_len| Route { destination: ip(destination), prefix_len, ..default(link) };
    netlink.replace_route(&route("10.3.0.0", 16)).unwrap();
    assert!(!changes.take().unwrap());
    netlink.replace_route(&default(link)).unwrap();
    assert!(changes.take().unwrap());
    netlink.delete_address(&mine).unwrap();
    assert!(changes.take().unwrap());
    assert_eq!(changes.take().unwrap_err().kind(), io::ErrorKind::WouldBlock);
}

fn default(link: u32) -> Route {
    Route::default_via(ip("10.1.2.1"), link)
}

#[test]
fn linux_refusals_say_what_was_asked_of_which_object() {
    if !is_root() {
        return;
    }
    let (_netns, mut netlink) = fresh();
    let missing = netlink.set_up(4711, true).unwrap_err();
    assert!(missing.is_missing() && missing.to_string().contains("switch on link 4711"), "{missing}");
    assert_eq!(netlink.link("nothere").unwrap(), None);
    assert!(matches!(netlink.link("much/too/bad"), Err(NetlinkError::Name { .. })));
    let unreachable = netlink.replace_route(&Route::default_via(ip("10.9.9.9"), 1)).unwrap_err();
    assert!(unreachable.to_string().contains("0.0.0.0/0 via 10.9.9.9"), "{unreachable}");
}
