//! Capabilities by name, and what a container gets of them.

use crate::sys::privileges::Capabilities;

/// Names by number (linux/capability.h), without `CAP_`.
pub const NAMES: [&str; 41] = [
    "CHOWN",
    "DAC_OVERRIDE",
    "DAC_READ_SEARCH",
    "FOWNER",
    "FSETID",
    "KILL",
    "SETGID",
    "SETUID",
    "SETPCAP",
    "LINUX_IMMUTABLE",
    "NET_BIND_SERVICE",
    "NET_BROADCAST",
    "NET_ADMIN",
    "NET_RAW",
    "IPC_LOCK",
    "IPC_OWNER",
    "SYS_MODULE",
    "SYS_RAWIO",
    "SYS_CHROOT",
    "SYS_PTRACE",
    "SYS_PACCT",
    "SYS_ADMIN",
    "SYS_BOOT",
    "SYS_NICE",
    "SYS_RESOURCE",
    "SYS_TIME",
    "SYS_TTY_CONFIG",
    "MKNOD",
    "LEASE",
    "AUDIT_WRITE",
    "AUDIT_CONTROL",
    "SETFCAP",
    "MAC_OVERRIDE",
    "MAC_ADMIN",
    "SYSLOG",
    "WAKE_ALARM",
    "BLOCK_SUSPEND",
    "AUDIT_READ",
    "PERFMON",
    "BPF",
    "CHECKPOINT_RESTORE",
];

/// All of them.
pub const ALL: Capabilities = Capabilities((1 << NAMES.len()) - 1);

/// CAP_SETPCAP.
pub const SETPCAP: Capabilities = Capabilities(1 << 8);
/// CAP_SYS_ADMIN.
pub const SYS_ADMIN: Capabilities = Capabilities(1 << 21);

/// What a container has unless it says otherwise: the set that container runtimes have given since Docker's first
/// releases (containerd: `defaultUnixCaps`).
pub const DEFAULT: [&str; 14] = [
    "CHOWN",
    "DAC_OVERRIDE",
    "FSETID",
    "FOWNER",
    "MKNOD",
    "NET_RAW",
    "SETGID",
    "SETUID",
    "SETFCAP",
    "SETPCAP",
    "NET_BIND_SERVICE",
    "SYS_CHROOT",
    "KILL",
    "AUDIT_WRITE",
];

/// A name that is no capability.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("unknown capability {0:?}")]
pub struct UnknownCapability(pub String);

/// The set with the capability `name`, with or without `CAP_`, in any case; `ALL` is all of them.
///
/// # Errors
/// [`UnknownCapability`].
pub fn parse(name: &str) -> Result<Capabilities, UnknownCapability> {
    let upper = name.to_ascii_uppercase();
    let plain = upper.strip_prefix("CAP_").unwrap_or(&upper);
    if plain == "ALL" {
        return Ok(ALL);
    }
    match NAMES.iter().position(|known| *known == plain) {
        Some(number) => Ok(Capabilities(1 << number)),
        None => Err(UnknownCapability(name.to_owned())),
    }
}

/// The union of the named capabilities.
///
/// # Errors
/// [`UnknownCapability`] for the first name that is none.
pub fn parse_all<N: AsRef<str>>(names: impl IntoIterator<Item = N>) -> Result<Capabilities, UnknownCapability> {
    names.into_iter().try_fold(Capabilities::default(), |set, name| Ok(set.union(parse(name.as_ref())?)))
}

/// A container's capabilities: the default set with `drop` taken away and `add` put in; what is in both is added,
/// except that `drop: ALL` comes first and `add: ALL` means all but the dropped ones.
///
/// # Errors
/// [`UnknownCapability`].
pub fn container(add: &[String], drop: &[String]) -> Result<Capabilities, UnknownCapability> {
    let all = |names: &[String]| names.iter().any(|name| name.eq_ignore_ascii_case("ALL"));
    let named = |names: &[String]| parse_all(names.iter().filter(|name| !name.eq_ignore_ascii_case("ALL")));
    let start = match (all(add), all(drop)) {
        (true, _) => ALL,
        (false, true) => Capabilities::default(),
        (false, false) => parse_all(DEFAULT)?,
    };
    let (added, dropped) = (named(add)?, named(drop)?);
    Ok(start.without(dropped).union(added))
}

/// Names with `CAP_`, in the order of their numbers.
pub fn names(set: Capabilities) -> impl Iterator<Item = String> {
    NAMES.iter().zip(0..).filter(move |(_, number)| set.has(*number)).map(|(name, _)| format!("CAP_{name}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn set(names: &[&str]) -> Vec<String> {
        names.iter().map(|name| (*name).to_owned()).collect()
    }

    #[test]
    fn numbers_are_the_kernel_s() {
        for (name, number) in
            [("CHOWN", 0), ("SETPCAP", 8), ("SYS_ADMIN", 21), ("MKNOD", 27), ("CHECKPOINT_RESTORE", 40)]
        {
            assert_eq!(parse(name), Ok(Capabilities(1 << number)), "{name}");
        }
        assert_eq!(parse("cap_mknod"), parse("MKNOD"));
        assert_eq!(parse("NOPE"), Err(UnknownCapability("NOPE".into())));
    }

    #[test]
    fn add_and_drop() {
        let default = parse_all(DEFAULT).unwrap();
        assert_eq!(default, Capabilities(0xa804_25fb), "what Docker and containerd give");
        for (add, drop, want) in [
            (set(&[]), set(&[]), default),
            (set(&["SYS_TIME"]), set(&[]), default.union(Capabilities(1 << 25))),
            (set(&[]), set(&["ALL"]), Capabilities(0)),
            (set(&["NET_BIND_SERVICE"]), set(&["ALL"]), Capabilities(1 << 10)),
            (set(&["ALL"]), set(&[]), ALL),
            (set(&["ALL"]), set(&["SYS_ADMIN"]), ALL.without(SYS_ADMIN)),
            (set(&["KILL"]), set(&["KILL"]), default),
            (set(&[]), set(&["CAP_CHOWN"]), default.without(Capabilities(1))),
        ] {
            assert_eq!(container(&add, &drop), Ok(want), "add {add:?} drop {drop:?}");
        }
        assert!(container(&set(&["X"]), &[]).is_err());
        assert!(container(&[], &set(&["X"])).is_err());
    }

    #[test]
    fn names_come_back() {
        assert_eq!(names(SYS_ADMIN.union(SETPCAP)).collect::<Vec<_>>(), ["CAP_SETPCAP", "CAP_SYS_ADMIN"]);
    }
}
