//! The text of a pod's `/etc/resolv.conf`: the rules of the kubelet's `network/dns/dns.go`.

use crate::model::pod::{DnsConfig, DnsPolicy};
use std::net::IpAddr;

/// `MaxDNSNameservers` of `pkg/apis/core/validation`.
const MAX_NAMESERVERS: usize = 3;
/// `MaxDNSSearchPaths`.
const MAX_SEARCHES: usize = 32;
/// `MaxDNSSearchListChars`.
const MAX_SEARCH_BYTES: usize = 2048;
/// The longest DNS name that Kubernetes knows; some libraries abort on longer search domains.
const MAX_DOMAIN_BYTES: usize = 253;

/// What a resolver file says.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Resolver {
    /// Name servers in order.
    pub nameservers: Vec<String>,
    /// Search domains in order.
    pub searches: Vec<String>,
    /// Options, each `name` or `name:value`.
    pub options: Vec<String>,
}

/// What the pod's resolver is made from.
#[derive(Debug, Clone)]
pub struct Wanted<'a> {
    /// `spec.dnsPolicy`.
    pub policy: DnsPolicy,
    /// `spec.dnsConfig`.
    pub config: &'a DnsConfig,
    /// The pod uses the node's network.
    pub host_network: bool,
    /// The pod's namespace.
    pub namespace: &'a str,
    /// `clusterDNS` of the configuration.
    pub cluster_dns: &'a [IpAddr],
    /// `clusterDomain` of the configuration, empty for none.
    pub cluster_domain: &'a str,
    /// The node's resolver; absent when `resolvConf` is set to nothing, which switches lookups off.
    pub node: Option<&'a Resolver>,
}

/// A warning event that the resolver's making gives.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Warning {
    /// ClusterFirst without a cluster DNS: the node's resolver is used instead.
    MissingClusterDns,
    /// Search domains were left out; the line that is used.
    SearchLimit(String),
    /// Name servers were left out; those that are used.
    NameserverLimit(String),
}

impl Warning {
    /// The event's reason.
    #[must_use]
    pub const fn reason(&self) -> &'static str {
        match self {
            Self::MissingClusterDns => "MissingClusterDNS",
            Self::SearchLimit(_) | Self::NameserverLimit(_) => "DNSConfigForming",
        }
    }

    /// The event's text for a pod, given as `<name>_<namespace>(<uid>)`.
    #[must_use]
    pub fn message(&self, pod: &str) -> String {
        match self {
            Self::MissingClusterDns => format!(
                "pod: \"{pod}\". kubelet does not have ClusterDNS IP configured and cannot create Pod using \
                 \"ClusterFirst\" policy. Falling back to \"Default\" policy."
            ),
            Self::SearchLimit(line) => format!(
                "Search Line limits were exceeded, some search paths have been omitted, the applied search line is: \
                 {line}"
            ),
            Self::NameserverLimit(line) => format!(
                "Nameserver limits were exceeded, some nameservers have been omitted, the applied nameserver line is: \
                 {line}"
            ),
        }
    }
}

impl Resolver {
    /// Reads a resolver file. Lines that say nothing are passed over: a name server without an address must not keep
    /// pods from starting. The last `search` line wins; `domain` is not honoured, as upstream does not.
    #[must_use]
    pub fn parse(text: &str) -> Self {
        let mut found = Self::default();
        for line in text.lines().map(str::trim).filter(|line| !line.starts_with('#')) {
            let mut words = line.split_whitespace();
            match words.next() {
                Some("nameserver") => found.nameservers.extend(words.next().map(str::to_owned)),
                Some("search") => {
                    let domains = words.filter(|domain| *domain != ".");
                    found.searches = domains.map(|d| d.strip_suffix('.').unwrap_or(d).to_owned()).collect();
                }
                Some("options") => words.for_each(|option| set_option(&mut found.options, option.to_owned())),
                _ => {}
            }
        }
        found
    }

    /// Whether every name server is on the loopback network: a stub that a pod with its own network cannot reach.
    #[must_use]
    pub fn is_loopback_stub(&self) -> bool {
        let loopback = |server: &String| server.parse::<IpAddr>().is_ok_and(|address| address.is_loopback());
        !self.nameservers.is_empty() && self.nameservers.iter().all(loopback)
    }

    /// The file's text, as container runtimes write it.
    #[must_use]
    pub fn text(&self) -> String {
        let mut text = String::new();
        if !self.searches.is_empty() {
            text += &format!("search {}\n", self.searches.join(" "));
        }
        for server in &self.nameservers {
            text += &format!("nameserver {server}\n");
        }
        if !self.options.is_empty() {
            text += &format!("options {}\n", self.options.join(" "));
        }
        text
    }
}

/// The resolver of a pod, and the warnings that its making gives.
#[must_use]
pub fn pod_resolver(wanted: &Wanted<'_>) -> (Resolver, Vec<Warning>) {
    let mut warnings = Vec::new();
    let mut resolver = match wanted.policy {
        DnsPolicy::None => Resolver::default(),
        DnsPolicy::Default => node_resolver(wanted.node),
        DnsPolicy::ClusterFirst if wanted.host_network => node_resolver(wanted.node),
        DnsPolicy::ClusterFirst | DnsPolicy::ClusterFirstWithHostNet => {
            if wanted.cluster_dns.is_empty() {
                warnings.push(Warning::MissingClusterDns);
                node_resolver(wanted.node)
            } else {
                cluster_resolver(wanted)
            }
        }
    };
    let config = wanted.config;
    resolver.nameservers.extend(config.nameservers.iter().cloned());
    resolver.searches.extend(config.searches.iter().cloned());
    for (name, value) in &config.options {
        let option = value.as_ref().filter(|v| !v.is_empty()).map_or_else(|| name.clone(), |v| format!("{name}:{v}"));
        set_option(&mut resolver.options, option);
    }
    dedupe(&mut resolver.nameservers);
    dedupe(&mut resolver.searches);
    fit_searches(&mut resolver.searches, &mut warnings);
    if resolver.nameservers.len() > MAX_NAMESERVERS {
        resolver.nameservers.truncate(MAX_NAMESERVERS);
        warnings.push(Warning::NameserverLimit(resolver.nameservers.join(" ")));
    }
    (resolver, warnings)
}

/// The node's resolver, or one that finds nothing: the node itself as name server, the root as search domain.
fn node_resolver(node: Option<&Resolver>) -> Resolver {
    node.cloned().unwrap_or_else(|| Resolver {
        nameservers: vec!["127.0.0.1".to_owned()],
        searches: vec![".".to_owned()],
        options: Vec::new(),
    })
}

fn cluster_resolver(wanted: &Wanted<'_>) -> Resolver {
    let mut searches = Vec::new();
    let domain = wanted.cluster_domain;
    if !domain.is_empty() {
        searches = vec![format!("{}.svc.{domain}", wanted.namespace), format!("svc.{domain}"), domain.to_owned()];
    }
    searches.extend(wanted.node.iter().flat_map(|node| node.searches.iter().cloned()));
    Resolver {
        nameservers: wanted.cluster_dns.iter().map(ToString::to_string).collect(),
        searches,
        options: vec!["ndots:5".to_owned()],
    }
}

/// Sets an option; one of the same name is replaced in its place.
fn set_option(options: &mut Vec<String>, option: String) {
    fn name(option: &str) -> &str {
        option.split(':').next().unwrap_or(option)
    }
    match options.iter_mut().find(|present| name(present) == name(&option)) {
        Some(present) => *present = option,
        None => options.push(option),
    }
}

fn dedupe(list: &mut Vec<String>) {
    let mut seen = std::collections::BTreeSet::new();
    list.retain(|item| seen.insert(item.clone()));
}

fn fit_searches(searches: &mut Vec<String>, warnings: &mut Vec<Warning>) {
    let before = searches.len();
    searches.truncate(MAX_SEARCHES);
    searches.retain(|domain| domain.len() <= MAX_DOMAIN_BYTES);
    let line = |domains: &[String]| domains.iter().map(|d| d.len() + 1).sum::<usize>().saturating_sub(1);
    while line(searches) > MAX_SEARCH_BYTES {
        searches.pop();
    }
    if searches.len() < before {
        warnings.push(Warning::SearchLimit(searches.join(" ")));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const DNS: &[IpAddr] = &[IpAddr::V4(std::net::Ipv4Addr::new(10, 96, 0, 10))];

    fn node() -> Resolver {
        Resolver::parse("nameserver 192.168.1.1\nsearch lan. corp\noptions timeout:2 rotate\n")
    }

    fn resolve(policy: DnsPolicy, host_network: bool, dns: &[IpAddr], config: &DnsConfig) -> (Resolver, Vec<Warning>) {
        let node = node();
        pod_resolver(&Wanted {
            policy,
            config,
            host_network,
            namespace: "prod",
            cluster_dns: dns,
            cluster_domain: "cluster.local",
            node: Some(&node),
        })
    }

    #[test]
    fn a_resolver_file_is_read_as_upstream_reads_it() {
        let read = Resolver::parse(
            "# comment\n  # another\n;x\ndomain ignored\nnameserver 1.1.1.1 2.2.2.2\nnameserver\n\tnameserver\t::1\n\
             search first\nsearch . a. b ..\noptions ndots:1 rotate\noptions ndots:3\n",
        );
        assert_eq!(read.nameservers, ["1.1.1.1", "::1"]);
        assert_eq!(read.searches, ["a", "b", "."]);
        assert_eq!(read.options, ["ndots:3", "rotate"]);
        assert_eq!(Resolver::parse(""), Resolver::default());
        assert!(Resolver::parse("nameserver 127.0.0.53").is_loopback_stub());
        assert!(!Resolver::parse("nameserver 127.0.0.53\nnameserver 1.1.1.1").is_loopback_stub());
        assert!(!Resolver::default().is_loopback_stub());
    }

    #[test]
    fn each_policy_has_its_source() {
        let none = DnsConfig::default();
        let cluster = "search prod.svc.cluster.local svc.cluster.local cluster.local lan corp\n\
             nameserver 10.96.0.10\noptions ndots:5\n";
        let of_node = "search lan corp\nnameserver 192.168.1.1\noptions timeout:2 rotate\n";
        let table = [
            (DnsPolicy::ClusterFirst, false, DNS, cluster),
            (DnsPolicy::ClusterFirst, true, DNS, of_node),
            (DnsPolicy::ClusterFirstWithHostNet, true, DNS, cluster),
            (DnsPolicy::Default, false, DNS, of_node),
            (DnsPolicy::None, false, DNS, ""),
        ];
        for (policy, host_network, dns, text) in table {
            let (resolver, warnings) = resolve(policy, host_network, dns, &none);
            assert_eq!((resolver.text().as_str(), warnings.as_slice()), (text, [].as_slice()), "{policy:?}");
        }
        let (resolver, warnings) = resolve(DnsPolicy::ClusterFirst, false, &[], &none);
        assert_eq!(resolver.text(), of_node);
        assert_eq!(warnings, [Warning::MissingClusterDns]);
        assert_eq!(warnings[0].reason(), "MissingClusterDNS");
        assert_eq!(
            warnings[0].message("web_prod(1)"),
            "pod: \"web_prod(1)\". kubelet does not have ClusterDNS IP configured and cannot create Pod using \
             \"ClusterFirst\" policy. Falling back to \"Default\" policy."
        );
    }

    #[test]
    fn without_a_node_resolver_nothing_is_found() {
        let config = DnsConfig::default();
        let (resolver, _) = pod_resolver(&Wanted {
            policy: DnsPolicy::Default,
            config: &config,
            host_network: false,
            namespace: "prod",
            cluster_dns: &[],
            cluster_domain: "",
            node: None,
        });
        assert_eq!(resolver.text(), "search .\nnameserver 127.0.0.1\n");
    }

    #[test]
    fn the_pods_own_settings_are_added_once() {
        let config = DnsConfig {
            nameservers: vec!["10.96.0.10".to_owned(), "8.8.8.8".to_owned()],
            searches: vec!["corp".to_owned(), "mine".to_owned()],
            options: vec![("ndots".to_owned(), Some("2".to_owned())), ("edns0".to_owned(), None)],
        };
        let (resolver, _) = resolve(DnsPolicy::ClusterFirst, false, DNS, &config);
        assert_eq!(
            resolver.text(),
            "search prod.svc.cluster.local svc.cluster.local cluster.local lan corp mine\n\
             nameserver 10.96.0.10\nnameserver 8.8.8.8\noptions ndots:2 edns0\n"
        );
    }

    #[test]
    fn what_is_over_the_limits_is_left_out_with_a_warning() {
        let mut config = DnsConfig {
            nameservers: (1..=4).map(|n| format!("1.1.1.{n}")).collect(),
            searches: (0..33).map(|n| format!("s{n}")).collect(),
            options: Vec::new(),
        };
        let (resolver, warnings) = resolve(DnsPolicy::None, false, &[], &config);
        assert_eq!((resolver.nameservers.len(), resolver.searches.len()), (3, 32));
        assert_eq!(warnings.len(), 2);
        assert_eq!(
            warnings[1].message(""),
            "Nameserver limits were exceeded, some nameservers have been omitted, the applied nameserver line is: \
             1.1.1.1 1.1.1.2 1.1.1.3"
        );

        config.searches = vec!["a".repeat(254), "b".repeat(253)];
        let (resolver, warnings) = resolve(DnsPolicy::None, false, &[], &config);
        assert_eq!(resolver.searches, ["b".repeat(253)]);
        assert!(warnings[0].message("").ends_with(&format!("the applied search line is: {}", "b".repeat(253))));

        // 8 x 255 + 8 blanks is 2047 bytes and fits; one more does not.
        config.searches = (0..8).map(|n| format!("{n}{}", "c".repeat(252))).chain(["d".repeat(17)]).collect();
        let (resolver, warnings) = resolve(DnsPolicy::None, false, &[], &config);
        assert_eq!((resolver.searches.len(), resolver.searches.join(" ").len()), (8, 2031));
        assert_eq!(warnings[0].reason(), "DNSConfigForming");
        config.searches[8] = "d".repeat(16);
        let (resolver, warnings) = resolve(DnsPolicy::None, false, &[], &config);
        assert_eq!((resolver.searches.join(" ").len(), warnings.len()), (2048, 1));
    }
}
