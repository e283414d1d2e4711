//! A pod's link: made, repaired, removed.

use super::bridge::{Bridge, DEFAULT_MTU, ensure, only_address, stable_mac};
use super::{NetworkError, Result, of, uplink};
use crate::model::PodUid;
use crate::sys::netlink::{Address, Link, Netlink, Route, Veth};
use crate::sys::netns;
use ring::digest::{SHA256, digest};
use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::net::IpAddr;
use std::os::fd::{AsFd, OwnedFd};
use std::path::PathBuf;

/// The link's name inside the pod.
const INSIDE: &str = "eth0";
/// The node's ends are named so, with twelve hexadecimal digits of the UID's hash behind: 15 bytes, the most there are.
const PREFIX: &str = "pod";

/// A pod's place on the built-in network.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PodLink {
    /// Whose.
    pub pod: PodUid,
    /// The pod's network namespace.
    pub netns: PathBuf,
    /// The address that the plan chose.
    pub address: IpAddr,
    /// The node's bridge.
    pub bridge: Bridge,
}

/// What [`reconcile`] did.
#[derive(Debug, Default)]
pub struct Reconciled {
    /// Links that belonged to no known pod and were removed.
    pub removed: Vec<String>,
    /// Those that could not be.
    pub failed: Vec<NetworkError>,
}

/// Connects a pod: bridge, veth pair, `lo`, address, default route. Safe to repeat, also after a crash half way or
/// with a new namespace or address: what is there and right stays, so connections live on.
///
/// # Errors
/// What the kernel refuses; the pod is then not connected, and another try or [`detach`] cleans up.
pub fn attach(link: &PodLink) -> Result<()> {
    let Bridge { gateway, prefix_len, .. } = link.bridge;
    if !link.bridge.has_room_for(link.address) {
        return Err(NetworkError::ForeignAddress { address: link.address, gateway, prefix_len });
    }
    let pod = link.pod.as_str();
    let mut node = of(pod, Netlink::open())?;
    let mtu = uplink::mtu(&mut node)?.unwrap_or(DEFAULT_MTU);
    let bridge = ensure(&mut node, &link.bridge, mtu)?;
    let netns = netns::open(&link.netns).map_err(|source| NetworkError::Netns { path: link.netns.clone(), source })?;
    let mut inside = of(pod, Netlink::open_in(&netns))?;
    if let Some(lo) = of(pod, inside.link("lo"))?.filter(|lo| !lo.up) {
        of(pod, inside.set_up(lo.index, true))?;
    }
    let Pair { outer, eth0, new } = pair(&mut node, &mut inside, link, &netns, &bridge, mtu)?;
    let address = Address { link: eth0.index, address: link.address, prefix_len, global: true };
    if new {
        // Nobody talks to a port of the bridge itself, and the search for others with its address would reach all pods.
        // Without IPv6 there is nothing to keep off.
        let _ = node.set_no_own_address(outer.index);
        of(pod, inside.replace_address(&address))?;
    } else {
        only_address(&mut inside, pod, &address)?;
    }
    of(pod, node.set_up(outer.index, true))?;
    of(pod, inside.set_up(eth0.index, true))?;
    of(pod, inside.replace_route(&Route::default_via(gateway, eth0.index)))
}

/// A pod's veth pair.
struct Pair {
    /// The node's end.
    outer: Link,
    /// The pod's.
    eth0: Link,
    /// It was made just now.
    new: bool,
}

/// The two ends of the pod's veth pair, made when they are not there or do not belong together.
fn pair(
    node: &mut Netlink,
    inside: &mut Netlink,
    link: &PodLink,
    netns: &OwnedFd,
    bridge: &Link,
    mtu: u32,
) -> Result<Pair> {
    let pod = link.pod.as_str();
    let name = outer_name(&link.pod);
    let outer = of(pod, node.link(&name))?;
    let eth0 = of(pod, inside.link(INSIDE))?;
    if let (Some(outer), Some(eth0)) = (&outer, &eth0) {
        let whole = eth0.peer == Some(outer.index) && outer.peer == Some(eth0.index);
        if whole && eth0.mac == Some(stable_mac(link.address)) {
            if outer.master != Some(bridge.index) {
                of(pod, node.set_master(outer.index, Some(bridge.index)))?;
            }
            return Ok(Pair { outer: outer.clone(), eth0: eth0.clone(), new: false });
        }
    }
    // Left from another sandbox or another address. Removing one end removes its other.
    for (netlink, left) in [(&mut *node, outer), (&mut *inside, eth0)] {
        if let Some(left) = left {
            of(pod, gone_is_fine(netlink.delete_link(left.index)))?;
        }
    }
    let veth = Veth {
        name: &name,
        peer_name: INSIDE,
        peer_netns: netns.as_fd(),
        peer_mac: stable_mac(link.address),
        mtu,
        master: bridge.index,
    };
    of(pod, node.add_veth(&veth))?;
    let vanished = |name: &str| NetworkError::Vanished { of: pod.to_owned(), name: name.to_owned() };
    let outer = of(pod, node.link(&name))?.ok_or_else(|| vanished(&name))?;
    let eth0 = of(pod, inside.link(INSIDE))?.ok_or_else(|| vanished(INSIDE))?;
    Ok(Pair { outer, eth0, new: true })
}

/// Removes a pod's link. Needs no namespace, and a link that is gone is no error: safe to repeat.
///
/// # Errors
/// What the kernel refuses.
pub fn detach(pod: &PodUid) -> Result<()> {
    let mut node = of(pod, Netlink::open())?;
    match of(pod, node.link(&outer_name(pod)))? {
        Some(link) => of(pod, gone_is_fine(node.delete_link(link.index))),
        None => Ok(()),
    }
}

/// Removes the links of pods that are not known. Never stops at the first error.
///
/// # Errors
/// Only when the node's links cannot be listed.
pub fn reconcile<'a>(known: impl IntoIterator<Item = &'a PodUid>) -> Result<Reconciled> {
    let known: BTreeSet<String> = known.into_iter().map(outer_name).collect();
    let mut node = of("node", Netlink::open())?;
    let mut done = Reconciled::default();
    for link in of("node", node.links())? {
        if link.kind.as_deref() != Some("veth") || !is_outer_name(&link.name) || known.contains(&link.name) {
            continue;
        }
        match of(&link.name, gone_is_fine(node.delete_link(link.index))) {
            Ok(()) => done.removed.push(link.name),
            Err(e) => done.failed.push(e),
        }
    }
    Ok(done)
}

fn gone_is_fine(result: crate::sys::netlink::Result<()>) -> crate::sys::netlink::Result<()> {
    match result {
        Err(e) if e.is_missing() => Ok(()),
        other => other,
    }
}

/// The name of the node's end of a pod's veth pair.
fn outer_name(pod: &PodUid) -> String {
    let hash = digest(&SHA256, pod.as_str().as_bytes());
    hash.as_ref().iter().take(6).fold(PREFIX.to_owned(), |mut name, byte| {
        // Writing to a String cannot fail.
        let _ = write!(name, "{byte:02x}");
        name
    })
}

fn is_outer_name(name: &str) -> bool {
    name.strip_prefix(PREFIX)
        .is_some_and(|rest| rest.len() == 12 && rest.bytes().all(|b| b.is_ascii_digit() || (b'a'..=b'f').contains(&b)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sys::testing::is_root;
    use std::io::{Read, Write};
    use std::net::{SocketAddr, TcpListener, TcpStream};
    use std::os::fd::AsRawFd;

    fn uid(text: &str) -> PodUid {
        PodUid::new(text).unwrap()
    }

    fn bridge() -> Bridge {
        Bridge { name: "armlet0".to_owned(), gateway: "10.244.7.1".parse().unwrap(), prefix_len: 24 }
    }

    fn pod_link(pod: &str, netns: &OwnedFd, address: &str) -> PodLink {
        PodLink {
            pod: uid(pod),
            netns: format!("/proc/self/fd/{}", netns.as_raw_fd()).into(),
            address: address.parse().unwrap(),
            bridge: bridge(),
        }
    }

    /// Sends a word from one namespace to a listener in another one.
    fn talk(from: &OwnedFd, to: &OwnedFd, address: &str) {
        let address: SocketAddr = address.parse().unwrap();
        let listener = netns::run_in(to, || TcpListener::bind(address)).unwrap().unwrap();
        let mut client = netns::run_in(from, || TcpStream::connect(address)).unwrap().unwrap();
        let (mut server, _) = listener.accept().unwrap();
        client.write_all(b"hello").unwrap();
        drop(client);
        let mut heard = String::new();
        server.read_to_string(&mut heard).unwrap();
        assert_eq!(heard, "hello");
    }

    #[test]
    fn names_are_short_stable_and_recognised() {
        let name = outer_name(&uid("0b5a7c6e-1111-2222-3333-444444444444"));
        assert_eq!(name, outer_name(&uid("0b5a7c6e-1111-2222-3333-444444444444")));
        assert_ne!(name, outer_name(&uid("0b5a7c6e-1111-2222-3333-444444444445")));
        assert_eq!(name.len(), 15);
        assert!(is_outer_name(&name));
        for other in ["eth0", "pod", "pod0", "podABCDEFABCDEF", "pod12345678901g", "veth12345678901"] {
            assert!(!is_outer_name(other), "{other}");
        }
    }

    #[test]
    fn linux_pods_and_node_reach_each_other() {
        if !is_root() {
            return;
        }
        let node = netns::create().unwrap();
        let (a, b) = (netns::create().unwrap(), netns::create().unwrap());
        netns::run_in(&node, || {
            attach(&pod_link("a", &a, "10.244.7.2")).unwrap();
            attach(&pod_link("b", &b, "10.244.7.3")).unwrap();
        })
        .unwrap();
        talk(&node, &a, "10.244.7.2:80");
        talk(&a, &b, "10.244.7.3:81");
        talk(&b, &node, "10.244.7.1:82");
        talk(&a, &a, "127.0.0.1:83");
    }

    #[test]
    fn linux_attaching_again_keeps_connections_and_repairs_what_is_wrong() {
        if !is_root() {
            return;
        }
        let node = netns::create().unwrap();
        let pod = netns::create().unwrap();
        let again = |address: &str| netns::run_in(&node, || attach(&pod_link("a", &pod, address))).unwrap();
        again("10.244.7.2").unwrap();
        let mut netlink = Netlink::open_in(&node).unwrap();
        let before = netlink.link(&outer_name(&uid("a"))).unwrap().unwrap();
        again("10.244.7.2").unwrap();
        assert_eq!(netlink.link(&before.name).unwrap().unwrap().index, before.index, "the pair was made anew");

        netlink.set_master(before.index, None).unwrap();
        netlink.set_up(before.index, false).unwrap();
        again("10.244.7.2").unwrap();
        talk(&node, &pod, "10.244.7.2:80");

        again("10.244.7.9").unwrap();
        talk(&node, &pod, "10.244.7.9:80");
        let mut inside = Netlink::open_in(&pod).unwrap();
        let global = inside.addresses().unwrap().into_iter().filter(|a| a.global).map(|a| a.address);
        assert_eq!(global.collect::<Vec<_>>(), ["10.244.7.9".parse::<IpAddr>().unwrap()]);
    }

    #[test]
    fn linux_a_new_sandbox_takes_over_while_the_old_one_still_lives() {
        if !is_root() {
            return;
        }
        let node = netns::create().unwrap();
        let (old, new) = (netns::create().unwrap(), netns::create().unwrap());
        netns::run_in(&node, || {
            attach(&pod_link("a", &old, "10.244.7.2")).unwrap();
            attach(&pod_link("a", &new, "10.244.7.2")).unwrap();
        })
        .unwrap();
        talk(&node, &new, "10.244.7.2:80");
        assert_eq!(Netlink::open_in(&old).unwrap().link(INSIDE).unwrap(), None);
    }

    #[test]
    fn linux_detaching_is_safe_to_repeat_and_orphans_are_found() {
        if !is_root() {
            return;
        }
        let node = netns::create().unwrap();
        let (a, b) = (netns::create().unwrap(), netns::create().unwrap());
        netns::run_in(&node, || {
            attach(&pod_link("a", &a, "10.244.7.2")).unwrap();
            attach(&pod_link("b", &b, "10.244.7.3")).unwrap();
            let done = reconcile([&uid("b"), &uid("c")]).unwrap();
            assert_eq!(done.removed, [outer_name(&uid("a"))]);
            assert!(done.failed.is_empty());
            detach(&uid("a")).unwrap();
            detach(&uid("b")).unwrap();
            detach(&uid("b")).unwrap();
            let left: Vec<String> = Netlink::open().unwrap().links().unwrap().into_iter().map(|l| l.name).collect();
            assert_eq!(left, ["lo", "armlet0"]);
        })
        .unwrap();
    }

    #[test]
    fn linux_what_cannot_be_is_refused_by_name() {
        if !is_root() {
            return;
        }
        let node = netns::create().unwrap();
        let pod = netns::create().unwrap();
        netns::run_in(&node, || {
            let foreign = attach(&pod_link("a", &pod, "192.168.0.1")).unwrap_err();
            assert!(matches!(foreign, NetworkError::ForeignAddress { .. }));
            let nowhere = PodLink { netns: "/nonexistent".into(), ..pod_link("a", &pod, "10.244.7.2") };
            assert!(matches!(attach(&nowhere), Err(NetworkError::Netns { .. })));
            let wrong =
                PodLink { bridge: Bridge { name: "lo".to_owned(), ..bridge() }, ..pod_link("a", &pod, "10.244.7.2") };
            assert!(matches!(attach(&wrong), Err(NetworkError::NotABridge { .. })));
            detach(&uid("a")).unwrap();
        })
        .unwrap();
    }
}
