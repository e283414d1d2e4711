//! The text of a pod's `/etc/hosts`: `managedHostsFileContent` and `nodeHostsFileContent` of the kubelet.

use std::net::IpAddr;

/// Names of an address: `spec.hostAliases`.
pub type HostAlias = (String, Vec<String>);

const MANAGED: &str = "# Kubernetes-managed hosts file.\n\
    127.0.0.1\tlocalhost\n\
    ::1\tlocalhost ip6-localhost ip6-loopback\n\
    fe00::0\tip6-localnet\n\
    fe00::0\tip6-mcastprefix\n\
    fe00::1\tip6-allnodes\n\
    fe00::2\tip6-allrouters\n";
const HOST_NETWORK: &str = "# Kubernetes-managed hosts file (host network).\n";

/// The hosts file of a pod with its own network.
#[must_use]
pub fn hosts_file(addresses: &[IpAddr], hostname: &str, domain: Option<&str>, aliases: &[HostAlias]) -> String {
    let mut text = MANAGED.to_owned();
    for address in addresses {
        match domain.filter(|domain| !domain.is_empty()) {
            Some(domain) => text += &format!("{address}\t{hostname}.{domain}\t{hostname}\n"),
            None => text += &format!("{address}\t{hostname}\n"),
        }
    }
    text + &alias_lines(aliases)
}

/// The hosts file of a pod on the node's network, given the node's own.
#[must_use]
pub fn host_network_hosts_file(node_hosts: &str, aliases: &[HostAlias]) -> String {
    format!("{HOST_NETWORK}{node_hosts}{}", alias_lines(aliases))
}

fn alias_lines(aliases: &[HostAlias]) -> String {
    if aliases.is_empty() {
        return String::new();
    }
    let mut text = "\n# Entries added by HostAliases.\n".to_owned();
    for (address, names) in aliases {
        text += &format!("{address}\t{}\n", names.join("\t"));
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    fn aliases() -> Vec<HostAlias> {
        vec![
            ("10.0.0.9".to_owned(), vec!["db".to_owned(), "db.example".to_owned()]),
            ("fd00::9".to_owned(), vec!["six".to_owned()]),
        ]
    }

    #[test]
    fn a_pods_addresses_follow_the_fixed_part() {
        let addresses = ["10.244.0.5".parse().unwrap(), "fd00::5".parse().unwrap()];
        let text = hosts_file(&addresses, "web", None, &[]);
        assert_eq!(text.strip_prefix(MANAGED), Some("10.244.0.5\tweb\nfd00::5\tweb\n"));
        let text = hosts_file(&addresses[..1], "web", Some("sub.ns.svc.cluster.local"), &aliases());
        assert_eq!(
            text.strip_prefix(MANAGED),
            Some(
                "10.244.0.5\tweb.sub.ns.svc.cluster.local\tweb\n\n# Entries added by HostAliases.\n\
                 10.0.0.9\tdb\tdb.example\nfd00::9\tsix\n"
            )
        );
        assert_eq!(hosts_file(&[], "web", Some(""), &[]), MANAGED);
    }

    #[test]
    fn on_the_nodes_network_the_nodes_file_is_kept() {
        assert_eq!(
            host_network_hosts_file("127.0.0.1 localhost\n", &aliases()[..1]),
            "# Kubernetes-managed hosts file (host network).\n127.0.0.1 localhost\n\n\
             # Entries added by HostAliases.\n10.0.0.9\tdb\tdb.example\n"
        );
    }
}
