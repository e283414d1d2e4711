//! Host names of pods: `GeneratePodHostNameAndDomain` of the kubelet.

/// Longest DNS label (RFC 1123), and what Kubernetes cuts a host name to.
const MAX_BYTES: usize = 63;

/// The host name inside a pod: `spec.hostname`, else the pod's name, cut to 63 bytes and not ending in `-` or `.`.
#[must_use]
pub fn pod_hostname(pod_name: &str, hostname: Option<&str>) -> String {
    let full = hostname.filter(|name| !name.is_empty()).unwrap_or(pod_name);
    if full.len() <= MAX_BYTES {
        return full.to_owned();
    }
    let end = (0..=MAX_BYTES).rev().find(|end| full.is_char_boundary(*end)).unwrap_or(0);
    full[..end].trim_end_matches(['-', '.']).to_owned()
}

/// The pod's DNS domain: absent without `spec.subdomain`.
#[must_use]
pub fn pod_domain(subdomain: Option<&str>, namespace: &str, cluster_domain: &str) -> Option<String> {
    let subdomain = subdomain.filter(|name| !name.is_empty())?;
    Some(format!("{subdomain}.{namespace}.svc.{cluster_domain}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hostnames_are_cut_as_upstream_cuts_them() {
        assert_eq!(pod_hostname("web-node", None), "web-node");
        assert_eq!(pod_hostname("web-node", Some("db")), "db");
        assert_eq!(pod_hostname("web-node", Some("")), "web-node");
        let label = "a".repeat(63);
        assert_eq!(pod_hostname(&label, None), label);
        assert_eq!(pod_hostname(&format!("{label}b"), None), label);
        assert_eq!(pod_hostname(&format!("{}-.-xyz", "a".repeat(60)), None), "a".repeat(60));
        assert_eq!(pod_hostname(&"ä".repeat(40), None), "ä".repeat(31));
    }

    #[test]
    fn a_subdomain_makes_a_domain() {
        assert_eq!(pod_domain(Some("db"), "prod", "cluster.local").as_deref(), Some("db.prod.svc.cluster.local"));
        assert_eq!(pod_domain(Some(""), "prod", "cluster.local"), None);
        assert_eq!(pod_domain(None, "prod", "cluster.local"), None);
    }
}
