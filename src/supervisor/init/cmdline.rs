//! What the kernel command line says to armlet. Pure.
//!
//! | argument | meaning |
//! |---|---|
//! | `armlet.ip=none` | no address, as without it |
//! | `armlet.ip=dhcp` | an address by DHCP |
//! | `armlet.ip=ADDRESS/LENGTH[,GATEWAY[,DNS...]]` | a fixed address |
//! | `armlet.link=NAME` | the Ethernet link for that; `eth0` if not given |
//! | `armlet.hostname=NAME` | the host name; `armlet` if not given |
//! | `armlet.data=none` | do not look for a data disk |
//! | `armlet.agent=ARGUMENT` | an argument of the agent; may be repeated |

use std::net::{IpAddr, Ipv4Addr};

/// How the Ethernet link gets its address.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(crate) enum Ip {
    /// Not at all.
    #[default]
    None,
    /// By DHCP.
    Dhcp,
    /// Fixed.
    Static(Static),
}

/// A fixed address.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Static {
    /// The address.
    pub(crate) address: Ipv4Addr,
    /// Leading bits that name the network.
    pub(crate) prefix_len: u8,
    /// The default route's next hop.
    pub(crate) gateway: Option<Ipv4Addr>,
    /// Resolvers.
    pub(crate) dns: Vec<IpAddr>,
}

/// All of it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Settings {
    pub(crate) ip: Ip,
    pub(crate) link: String,
    pub(crate) hostname: String,
    /// Look for a data disk.
    pub(crate) data: bool,
    pub(crate) agent: Vec<String>,
}

impl Default for Settings {
    fn default() -> Self {
        Self { ip: Ip::None, link: "eth0".to_owned(), hostname: "armlet".to_owned(), data: true, agent: Vec::new() }
    }
}

/// Reads a command line. Gives what could be understood, and what could not.
pub(crate) fn parse(line: &str) -> (Settings, Vec<String>) {
    let (mut settings, mut problems) = (Settings::default(), Vec::new());
    for word in line.split_whitespace() {
        let Some((key, value)) = word.strip_prefix("armlet.").and_then(|w| w.split_once('=')) else { continue };
        let understood = match key {
            "ip" => parse_ip(value).map(|ip| settings.ip = ip),
            "link" => is_link(value).then(|| settings.link = value.to_owned()),
            "hostname" => is_hostname(value).then(|| settings.hostname = value.to_owned()),
            "data" => (value == "none").then(|| settings.data = false),
            "agent" => {
                settings.agent.push(value.to_owned());
                Some(())
            }
            _ => None,
        };
        if understood.is_none() {
            problems.push(word.to_owned());
        }
    }
    (settings, problems)
}

fn parse_ip(value: &str) -> Option<Ip> {
    match value {
        "none" => Some(Ip::None),
        "dhcp" => Some(Ip::Dhcp),
        _ => parse_static(value).map(Ip::Static),
    }
}

/// `ADDRESS/LENGTH[,GATEWAY[,DNS...]]`; an empty gateway is none.
pub(crate) fn parse_static(value: &str) -> Option<Static> {
    let mut parts = value.split(',');
    let (address, length) = parts.next()?.split_once('/')?;
    let gateway = match parts.next().unwrap_or_default() {
        "" => None,
        gateway => Some(gateway.parse().ok()?),
    };
    let prefix_len = length.parse().ok().filter(|l| *l <= 32)?;
    Some(Static {
        address: address.parse().ok()?,
        prefix_len,
        gateway,
        dns: parts.map(|d| d.parse().ok()).collect::<Option<_>>()?,
    })
}

/// The kernel's rule for link names.
fn is_link(name: &str) -> bool {
    (1..16).contains(&name.len()) && name != "." && name != ".." && !name.contains(['/', ':'])
}

/// RFC 1123 labels, 64 bytes together (the kernel's limit).
fn is_hostname(name: &str) -> bool {
    let label = |l: &str| {
        (1..=63).contains(&l.len())
            && !l.starts_with('-')
            && !l.ends_with('-')
            && l.bytes().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'-')
    };
    name.len() <= 64 && name.split('.').all(label)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn every_argument_is_read() {
        let line = "console=ttyAMA0 quiet armlet.ip=dhcp armlet.link=end0 armlet.hostname=pi.lan armlet.data=none \
                    armlet.agent=--v=4 armlet.agent=--node-ip=10.0.0.1\n";
        let (settings, problems) = parse(line);
        let agent = vec!["--v=4".to_owned(), "--node-ip=10.0.0.1".to_owned()];
        let wanted =
            Settings { ip: Ip::Dhcp, link: "end0".to_owned(), hostname: "pi.lan".to_owned(), data: false, agent };
        assert_eq!((settings, problems), (wanted, Vec::new()));
        assert_eq!(parse("root=/dev/vda").0, Settings::default());
    }

    #[test]
    fn a_fixed_address_has_its_parts() {
        let fixed = |text: &str| parse_static(text);
        let got = fixed("10.0.2.15/24,10.0.2.2,10.0.2.3,fd00::1").unwrap();
        assert_eq!((got.address, got.prefix_len, got.dns.len()), (Ipv4Addr::new(10, 0, 2, 15), 24, 2));
        assert_eq!(got.gateway, Some(Ipv4Addr::new(10, 0, 2, 2)));
        assert_eq!(fixed("10.0.2.15/24,,1.1.1.1").unwrap().gateway, None);
        for bad in ["10.0.2.15", "10.0.2.15/33", "x/24", "10.0.2.15/24,x", "10.0.2.15/24,,y", ""] {
            assert_eq!(fixed(bad), None, "{bad:?}");
        }
    }

    #[test]
    fn what_is_wrong_is_named_and_the_rest_is_used() {
        let (settings, problems) =
            parse("armlet.ip=nonsense armlet.hostname=-x armlet.colour=red armlet.link=a/b armlet.data=none");
        assert_eq!(problems, ["armlet.ip=nonsense", "armlet.hostname=-x", "armlet.colour=red", "armlet.link=a/b"]);
        assert!(!settings.data);
    }

    proptest! {
        #[test]
        fn any_line_is_read(line in "(armlet\\.(ip|link|hostname|data|agent)=)?\\PC{0,40}") {
            let _ = parse(&line);
        }
    }
}
