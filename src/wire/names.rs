//! The forms that Kubernetes gives names, with the texts by which it refuses others.
//!
//! From `staging/src/k8s.io/apimachinery/pkg/util/validation/validation.go`. Each check gives every rule that is broken.

/// What is wrong with a name; empty: nothing.
pub(crate) type Faults = Vec<String>;

const LABEL: &str = "a lowercase RFC 1123 label must consist of lower case alphanumeric characters or '-', and must \
    start and end with an alphanumeric character (e.g. 'my-name',  or '123-abc', regex used for validation is \
    '[a-z0-9]([-a-z0-9]*[a-z0-9])?')";
const SUBDOMAIN: &str = "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or \
    '.', and must start and end with an alphanumeric character (e.g. 'example.com', regex used for validation is \
    '[a-z0-9]([-a-z0-9]*[a-z0-9])?(\\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*')";
const QUALIFIED: &str = "must consist of alphanumeric characters, '-', '_' or '.', and must start and end with an \
    alphanumeric character (e.g. 'MyName',  or 'my.name',  or '123-abc', regex used for validation is \
    '([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]')";
const LABEL_VALUE: &str = "a valid label must be an empty string or consist of alphanumeric characters, '-', '_' or \
    '.', and must start and end with an alphanumeric character (e.g. 'MyValue',  or 'my_value',  or '12345', regex \
    used for validation is '(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?')";

fn too_long(max: usize) -> String {
    format!("must be no more than {max} bytes")
}

fn is_label(text: &str, inner: fn(u8) -> bool) -> bool {
    let edge = |b: Option<&u8>| b.is_some_and(|b| b.is_ascii_lowercase() || b.is_ascii_digit());
    let bytes = text.as_bytes();
    edge(bytes.first()) && edge(bytes.last()) && bytes.iter().all(|b| inner(*b))
}

fn label_byte(b: u8) -> bool {
    b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'-'
}

fn qualified(text: &str) -> bool {
    let bytes = text.as_bytes();
    let edge = |b: Option<&u8>| b.is_some_and(u8::is_ascii_alphanumeric);
    edge(bytes.first()) && edge(bytes.last()) && bytes.iter().all(|b| b.is_ascii_alphanumeric() || b"-_.".contains(b))
}

/// An RFC 1123 label: a container's, volume's or namespace's name, a host name.
pub(crate) fn dns_label(text: &str) -> Faults {
    let mut faults = Vec::new();
    if text.len() > 63 {
        faults.push(too_long(63));
    }
    if !is_label(text, label_byte) {
        faults.push(LABEL.to_owned());
    }
    faults
}

/// The longest RFC 1123 subdomain, in bytes.
pub(crate) const MAX_SUBDOMAIN: usize = 253;

/// An RFC 1123 subdomain: a pod's or priority class's name.
pub(crate) fn dns_subdomain(text: &str) -> Faults {
    let mut faults = Vec::new();
    if text.len() > MAX_SUBDOMAIN {
        faults.push(too_long(MAX_SUBDOMAIN));
    }
    faults.extend(subdomain_form(text));
    faults
}

/// The same, whatever its length.
pub(crate) fn subdomain_form(text: &str) -> Faults {
    if text.split('.').all(|part| is_label(part, label_byte)) { Vec::new() } else { vec![SUBDOMAIN.to_owned()] }
}

/// A search domain: a subdomain, underscores allowed, or `.` alone; one dot may end it.
pub(crate) fn search_domain(text: &str) -> Faults {
    if text == "." {
        return Vec::new();
    }
    let inner = text.strip_suffix('.').unwrap_or(text);
    let part_ok = |part: &str| {
        let edge = |b: Option<&u8>| b.is_some_and(|b| label_byte(*b) && *b != b'-' || *b == b'_');
        let bytes = part.as_bytes();
        edge(bytes.first()) && edge(bytes.last()) && bytes.iter().all(|b| label_byte(*b) || *b == b'_')
    };
    let mut faults = Vec::new();
    if inner.len() > 253 {
        faults.push(too_long(253));
    }
    if !inner.split('.').all(part_ok) {
        faults.push(SUBDOMAIN.to_owned());
    }
    faults
}

/// A label's or annotation's key: a name of up to 63 bytes, before it perhaps a subdomain and a slash.
pub(crate) fn qualified_name(text: &str) -> Faults {
    let mut faults = Vec::new();
    let name = match text.split_once('/') {
        None => text,
        Some((prefix, name)) => {
            if prefix.is_empty() {
                faults.push("prefix part must be non-empty".to_owned());
            } else {
                faults.extend(dns_subdomain(prefix).into_iter().map(|f| format!("prefix part {f}")));
            }
            name
        }
    };
    if name.is_empty() {
        faults.push("name part must be non-empty".to_owned());
    } else if name.len() > 63 {
        faults.push(format!("name part {}", too_long(63)));
    }
    if !qualified(name) {
        faults.push(format!("name part {QUALIFIED}"));
    }
    faults
}

/// A label's value.
pub(crate) fn label_value(text: &str) -> Faults {
    let mut faults = Vec::new();
    if text.len() > 63 {
        faults.push(too_long(63));
    }
    if !text.is_empty() && !qualified(text) {
        faults.push(LABEL_VALUE.to_owned());
    }
    faults
}

/// A port's name (RFC 6335 section 5.1).
pub(crate) fn port_name(text: &str) -> Faults {
    let mut faults = Vec::new();
    let mut rule = |broken: bool, fault: &str| {
        if broken {
            faults.push(fault.to_owned());
        }
    };
    rule(text.len() > 15, "must be no more than 15 bytes");
    rule(!text.bytes().all(label_byte), "must contain only alpha-numeric characters (a-z, 0-9), and hyphens (-)");
    rule(!text.bytes().any(|b| b.is_ascii_lowercase()), "must contain at least one letter (a-z)");
    rule(text.contains("--"), "must not contain consecutive hyphens");
    rule(text.starts_with('-') || text.ends_with('-'), "must not begin or end with a hyphen");
    faults
}

/// A port's number.
pub(crate) fn port_number(port: i32) -> Faults {
    if (1..=65535).contains(&port) { Vec::new() } else { vec!["must be between 1 and 65535, inclusive".to_owned()] }
}

/// A variable's name: any printable ASCII but `=` (RelaxedEnvironmentVariableValidation).
pub(crate) fn env_name(text: &str) -> Faults {
    let ok = !text.is_empty() && text.bytes().all(|b| (b' '..=b'~').contains(&b) && b != b'=');
    if ok {
        return Vec::new();
    }
    vec!["a valid environment variable name must consist only of printable ASCII characters other than '='".to_owned()]
}

/// A HTTP header's name.
pub(crate) fn header_name(text: &str) -> Faults {
    if !text.is_empty() && text.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'-') {
        return Vec::new();
    }
    vec![
        "a valid HTTP header must consist of alphanumeric characters or '-' (e.g. 'X-Header-Name', regex used for \
         validation is '[-A-Za-z0-9]+')"
            .to_owned(),
    ]
}

/// A path without a step up.
pub(crate) fn no_backsteps(path: &str) -> Faults {
    if path.split('/').any(|part| part == "..") { vec!["must not contain '..'".to_owned()] } else { Vec::new() }
}

/// An address of either family, in the form that everyone reads alike (no leading zeros).
pub(crate) fn ip_address(text: &str) -> Faults {
    if text.parse::<std::net::IpAddr>().is_ok() {
        return Vec::new();
    }
    vec!["must be a valid IP address, (e.g. 10.9.8.7 or 2001:db8::ffff)".to_owned()]
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(rule: fn(&str) -> Faults, good: &[&str], bad: &[&str]) {
        for text in good {
            assert_eq!(rule(text), Faults::new(), "{text}");
        }
        for text in bad {
            assert!(!rule(text).is_empty(), "{text}");
        }
    }

    #[test]
    fn each_form_takes_its_own() {
        let long = "a".repeat(64);
        let longer = "a.".repeat(127);
        check(dns_label, &["a", "a-b", "0", "123-abc"], &["", "A", "a_b", "-a", "a-", "a.b", "é", &long]);
        check(dns_subdomain, &["a", "a.b-c.0"], &["", ".", "a.", ".a", "a..b", "A.b", "a._b", &longer]);
        check(search_domain, &[".", "a.b", "a.b.", "_tcp.x"], &["", "..", "a..b", "A", "-a"]);
        check(qualified_name, &["a", "A_b.c-d", "x.io/a"], &["", "/a", "a/", "a/b/c", "-a", "X.io/a", &long]);
        check(label_value, &["", "a", "A_b.c"], &["-a", "a-", "a/b", "a b", &long]);
        check(port_name, &["http", "a-1"], &["", "123", "a--b", "-a", "a-", "A", "a_b", "abcdefghijklmnop"]);
        check(env_name, &["A", "a.b-c d", "0", "$"], &["", "A=B", "é", "a\tb"]);
        check(header_name, &["X-A1"], &["", "a b", "a:b"]);
        check(no_backsteps, &["/a/..b", "/a/...", "a"], &["..", "/a/../b", "/.."]);
        check(ip_address, &["10.0.0.1", "::1"], &["", "10.0.0.01", "10.0.0", "10.0.0.1/8", "x"]);
        assert!(port_number(0).len() == 1 && port_number(65536).len() == 1 && port_number(65535).is_empty());
    }
}
