//! Where an HTTP probe goes, and where a redirect leads.

use super::join;
use std::fmt;

/// An http or https URL without user and fragment.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Url {
    pub(super) https: bool,
    /// A name or an address, IPv6 without brackets.
    pub(super) host: String,
    pub(super) port: u16,
    /// Path and query, beginning with `/`, fit to be sent.
    pub(super) path: String,
}

impl Url {
    /// The URL of a probe.
    pub(super) fn new(https: bool, host: &str, port: u16, path: &str) -> Self {
        let host = host.strip_prefix('[').and_then(|h| h.strip_suffix(']')).unwrap_or(host);
        Self { https, host: host.to_owned(), port, path: sendable(path) }
    }

    /// Where a `Location` leads from here (RFC 3986, section 5.2); nothing when it is no http or https URL.
    pub(super) fn join(&self, location: &str) -> Option<Self> {
        let location = location.split('#').next().unwrap_or_default();
        if let Some((scheme, rest)) = scheme_of(location) {
            let https = match scheme.to_ascii_lowercase().as_str() {
                "http" => false,
                "https" => true,
                _ => return None,
            };
            return Self::with_authority(https, rest.strip_prefix("//")?);
        }
        if let Some(rest) = location.strip_prefix("//") {
            return Self::with_authority(self.https, rest);
        }
        let (path, query) = split_query(location);
        let (base, base_query) = split_query(&self.path);
        let path = match path {
            "" => base.to_owned(),
            _ if path.starts_with('/') => without_dots(path),
            _ => without_dots(&format!("{}/{path}", base.rsplit_once('/').map_or("", |(folder, _)| folder))),
        };
        let query = if location.is_empty() { base_query } else { query };
        Some(Self { path: sendable(&format!("{path}{query}")), ..self.clone() })
    }

    fn with_authority(https: bool, rest: &str) -> Option<Self> {
        let end = rest.find(['/', '?']).unwrap_or(rest.len());
        let (authority, path) = rest.split_at(end);
        let authority = authority.rsplit_once('@').map_or(authority, |(_, host)| host);
        let (host, port) = match authority.strip_prefix('[') {
            Some(v6) => v6.split_once(']').map(|(host, port)| (host, port.strip_prefix(':').unwrap_or(port)))?,
            None => authority.split_once(':').unwrap_or((authority, "")),
        };
        let default = if https { 443 } else { 80 };
        let port = if port.is_empty() { default } else { port.parse().ok()? };
        let (path, query) = split_query(path);
        let path = format!("{}{query}", without_dots(path));
        (!host.is_empty()).then(|| Self { https, host: host.to_ascii_lowercase(), port, path: sendable(&path) })
    }

    /// What a Host header says: the port only when it is not the scheme's own.
    pub(super) fn authority(&self) -> String {
        let default = if self.https { 443 } else { 80 };
        let full = join(&self.host, self.port);
        if self.port == default { full.trim_end_matches(&format!(":{default}")).to_owned() } else { full }
    }
}

impl fmt::Display for Url {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}://{}{}", if self.https { "https" } else { "http" }, join(&self.host, self.port), self.path)
    }
}

/// The scheme before the first colon, if what stands there is one.
fn scheme_of(location: &str) -> Option<(&str, &str)> {
    let (scheme, rest) = location.split_once(':')?;
    let plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '+' | '-' | '.');
    (scheme.starts_with(|c: char| c.is_ascii_alphabetic()) && scheme.chars().all(plain)).then_some((scheme, rest))
}

/// The path, and the query with its question mark.
fn split_query(path: &str) -> (&str, &str) {
    path.split_at(path.find('?').unwrap_or(path.len()))
}

/// Removes `.` and `..` segments.
fn without_dots(path: &str) -> String {
    let mut kept: Vec<&str> = Vec::new();
    let mut segments = path.split('/').skip(1).peekable();
    while let Some(segment) = segments.next() {
        let last = segments.peek().is_none();
        match segment {
            "." | ".." => {
                if segment == ".." {
                    kept.pop();
                }
                if last {
                    kept.push("");
                }
            }
            _ => kept.push(segment),
        }
    }
    format!("/{}", kept.join("/"))
}

/// Makes a path fit for a request line: begins with `/`, ends before a fragment, and what may not stand there as it is
/// stands as `%` and two digits.
fn sendable(path: &str) -> String {
    let path = path.split('#').next().unwrap_or_default();
    let mut sent = if path.starts_with('/') { String::new() } else { "/".to_owned() };
    for (at, byte) in path.bytes().enumerate() {
        let escape = byte == b'%' && {
            let digits = path.as_bytes().get(at + 1..at + 3);
            digits.is_some_and(|digits| digits.iter().all(u8::is_ascii_hexdigit))
        };
        let plain = byte.is_ascii_alphanumeric() || b"-._~!$&'()*+,;=:@/?[]|".contains(&byte);
        if plain || escape {
            sent.push(char::from(byte));
        } else {
            sent += &format!("%{byte:02X}");
        }
    }
    sent
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_probes_url_is_as_upstream_forms_it() {
        let table = [
            (false, "10.0.0.1", 80, "/", "http://10.0.0.1:80/"),
            (true, "fd00::1", 443, "", "https://[fd00::1]:443/"),
            (true, "[fd00::1]", 1, "x", "https://[fd00::1]:1/x"),
            (false, "h", 8080, "/a?b=c&d=%20e#f", "http://h:8080/a?b=c&d=%20e"),
            (false, "h", 1, "/a b\"ü\r\nX: y%zz", "http://h:1/a%20b%22%C3%BC%0D%0AX:%20y%25zz"),
        ];
        for (https, host, port, path, expected) in table {
            let url = Url::new(https, host, port, path);
            assert_eq!(url.to_string(), expected);
        }
        assert_eq!(Url::new(false, "h", 80, "").authority(), "h");
        assert_eq!(Url::new(true, "h", 80, "").authority(), "h:80");
        assert_eq!(Url::new(true, "fd00::1", 443, "").authority(), "[fd00::1]");
    }

    #[test]
    fn redirects_are_resolved() {
        let base = Url::new(false, "10.0.0.1", 8080, "/a/b?q=1");
        let table = [
            ("/x", Some("http://10.0.0.1:8080/x")),
            ("x?y", Some("http://10.0.0.1:8080/a/x?y")),
            ("../../../x", Some("http://10.0.0.1:8080/x")),
            ("./.", Some("http://10.0.0.1:8080/a/")),
            ("..", Some("http://10.0.0.1:8080/")),
            ("?z", Some("http://10.0.0.1:8080/a/b?z")),
            ("", Some("http://10.0.0.1:8080/a/b?q=1")),
            ("#f", Some("http://10.0.0.1:8080/a/b?q=1")),
            ("//other/x", Some("http://other:80/x")),
            ("HTTPS://Other", Some("https://other:443/")),
            ("http://u:p@10.0.0.1:9090?x", Some("http://10.0.0.1:9090/?x")),
            ("https://[fd00::1]:8443/x", Some("https://[fd00::1]:8443/x")),
            ("https://[fd00::1/x", None),
            ("http://h:99999/", None),
            ("http:///x", None),
            ("ftp://h/x", None),
            ("mailto:x", None),
            ("/a:b", Some("http://10.0.0.1:8080/a:b")),
        ];
        for (location, expected) in table {
            assert_eq!(base.join(location).map(|url| url.to_string()).as_deref(), expected, "{location}");
        }
    }

    proptest::proptest! {
        #[test]
        fn whatever_a_server_says_the_path_can_be_sent(location in ".{0,60}") {
            if let Some(url) = Url::new(false, "h", 80, "/a").join(&location) {
                proptest::prop_assert!(url.path.parse::<hyper::Uri>().is_ok(), "{}", url.path);
                proptest::prop_assert!(url.path.starts_with('/'));
            }
        }
    }
}
