//! Security contexts and sysctls.

use super::super::manifest::NodeIdentity;
use super::super::problem::Path;
use super::super::report::Report;
use k8s_openapi::api::core::v1::{Container, PodSpec, SecurityContext, Sysctl};
use std::collections::BTreeSet;

/// Sysctls that only touch the pod's own namespaces (`pkg/kubelet/sysctl/safe_sysctls.go`).
const SAFE_SYSCTLS: [&str; 12] = [
    "kernel.shm_rmid_forced",
    "net.ipv4.ip_local_port_range",
    "net.ipv4.tcp_syncookies",
    "net.ipv4.ping_group_range",
    "net.ipv4.ip_unprivileged_port_start",
    "net.ipv4.ip_local_reserved_ports",
    "net.ipv4.tcp_keepalive_time",
    "net.ipv4.tcp_fin_timeout",
    "net.ipv4.tcp_keepalive_intvl",
    "net.ipv4.tcp_keepalive_probes",
    "net.ipv4.tcp_rmem",
    "net.ipv4.tcp_wmem",
];

/// What capabilities(7) lists, without `CAP_`.
const CAPABILITIES: [&str; 41] = [
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

pub(super) fn pod(spec: &PodSpec, node: &NodeIdentity, path: &Path, report: &mut Report<'_>) {
    let Some(context) = &spec.security_context else { return };
    id(context.run_as_user, &path.field("runAsUser"), report);
    id(context.run_as_group, &path.field("runAsGroup"), report);
    id(context.fs_group, &path.field("fsGroup"), report);
    for (i, group) in context.supplemental_groups.iter().flatten().enumerate() {
        id(Some(*group), &path.field("supplementalGroups").index(i), report);
    }
    if let Some(policy) = &context.supplemental_groups_policy {
        report.one_of(&path.field("supplementalGroupsPolicy"), policy, &["Merge", "Strict"]);
    }
    if let Some(policy) = &context.fs_group_change_policy {
        report.one_of(&path.field("fsGroupChangePolicy"), policy, &["OnRootMismatch", "Always"]);
    }
    if let Some(profile) = &context.seccomp_profile {
        profile_type(&profile.type_, &path.field("seccompProfile"), report);
    }
    if let Some(profile) = &context.app_armor_profile {
        profile_type(&profile.type_, &path.field("appArmorProfile"), report);
    }
    let host_network = spec.host_network == Some(true);
    sysctls(context.sysctls.as_deref().unwrap_or(&[]), host_network, node, &path.field("sysctls"), report);
}

pub(super) fn container(container: &Container, path: &Path, report: &mut Report<'_>) {
    let Some(context) = &container.security_context else { return };
    id(context.run_as_user, &path.field("runAsUser"), report);
    id(context.run_as_group, &path.field("runAsGroup"), report);
    if let Some(profile) = &context.seccomp_profile {
        profile_type(&profile.type_, &path.field("seccompProfile"), report);
    }
    if let Some(profile) = &context.app_armor_profile {
        profile_type(&profile.type_, &path.field("appArmorProfile"), report);
    }
    capabilities(context, &path.field("capabilities"), report);
    if context.allow_privilege_escalation == Some(false) {
        let why = if context.privileged == Some(true) {
            Some("cannot set `allowPrivilegeEscalation` to false and `privileged` to true")
        } else if added(context).any(|c| capability(c) == "SYS_ADMIN") {
            Some("cannot set `allowPrivilegeEscalation` to false and `capabilities.Add` CAP_SYS_ADMIN")
        } else {
            None
        };
        if let Some(why) = why {
            report.invalid(path, false, why);
        }
    }
}

/// A capability's name as the kernel's list has it: upper case, without `CAP_`.
pub(crate) fn capability(given: &str) -> String {
    let upper = given.to_uppercase();
    upper.strip_prefix("CAP_").unwrap_or(&upper).to_owned()
}

fn added(context: &SecurityContext) -> impl Iterator<Item = &String> {
    context.capabilities.iter().flat_map(|c| c.add.iter().flatten())
}

fn capabilities(context: &SecurityContext, path: &Path, report: &mut Report<'_>) {
    let Some(capabilities) = &context.capabilities else { return };
    for (name, list) in [("add", &capabilities.add), ("drop", &capabilities.drop)] {
        for (i, given) in list.iter().flatten().enumerate() {
            let bare = capability(given);
            if bare != "ALL" && !CAPABILITIES.contains(&bare.as_str()) {
                report.invalid(&path.field(name).index(i), given, "the kernel has no capability of this name");
            }
        }
    }
}

fn id(value: Option<i64>, path: &Path, report: &mut Report<'_>) {
    if let Some(value) = value.filter(|v| !(0..=i64::from(i32::MAX)).contains(v)) {
        report.invalid(path, value, "must be between 0 and 2147483647, inclusive");
    }
}

fn profile_type(given: &str, path: &Path, report: &mut Report<'_>) {
    if given.is_empty() && !report.failed_within(path) {
        report.required(&path.field("type"), "type is required");
    }
}

/// A sysctl's dotted name: `/` may stand for `.`, as in sysctl(8).
pub(crate) fn sysctl_name(given: &str) -> String {
    match given.find(['.', '/']).and_then(|at| given.as_bytes().get(at)) {
        // With a slash first, dots are part of the names (of VLAN interfaces).
        Some(b'/') => given
            .chars()
            .map(|c| match c {
                '/' => '.',
                '.' => '/',
                other => other,
            })
            .collect(),
        _ => given.to_owned(),
    }
}

fn sysctls(sysctls: &[Sysctl], host_network: bool, node: &NodeIdentity, path: &Path, report: &mut Report<'_>) {
    let mut seen = BTreeSet::new();
    for (i, sysctl) in sysctls.iter().enumerate() {
        let at = path.index(i).field("name");
        if sysctl.name.is_empty() {
            report.required(&at, "");
            continue;
        }
        let name = sysctl_name(&sysctl.name);
        if !well_formed(&name) {
            let why = "must have at most 253 characters and match regex \
                ^([a-z0-9]([-_a-z0-9]*[a-z0-9])?[\\./])*[a-z0-9]([-_a-z0-9]*[a-z0-9])?$";
            report.invalid(&at, &sysctl.name, why);
        } else if host_network && name.starts_with("net.") {
            report.invalid(&at, &sysctl.name, "may not be specified when 'hostNetwork' is true");
        } else if !namespaced(&name) || !(SAFE_SYSCTLS.contains(&name.as_str()) || node.allows_sysctl(&name)) {
            report.forbidden(&at, &format!("forbidden sysctl: {name:?} not allowlisted"));
        }
        if !seen.insert(name) {
            report.duplicate(&at, &sysctl.name);
        }
    }
}

fn well_formed(name: &str) -> bool {
    let edge = |b: Option<&u8>| b.is_some_and(|b| b.is_ascii_lowercase() || b.is_ascii_digit());
    let part_ok = |part: &str| {
        let bytes = part.as_bytes();
        let inner = |b: &u8| b.is_ascii_lowercase() || b.is_ascii_digit() || *b == b'-' || *b == b'_';
        edge(bytes.first()) && edge(bytes.last()) && bytes.iter().all(inner)
    };
    name.len() <= 253 && name.split(['.', '/']).all(part_ok)
}

/// Whether the kernel keeps a sysctl per namespace that a pod has; any other would change the node.
fn namespaced(name: &str) -> bool {
    let groups = ["kernel.shm", "kernel.msg", "fs.mqueue.", "net."];
    name == "kernel.sem" || groups.iter().any(|g| name.starts_with(g))
}
