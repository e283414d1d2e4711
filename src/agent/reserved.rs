//! What is set aside of the node, made to hold: the limits of all pods together, and of those for whom it is set aside.

use super::publish::Publisher;
use super::start::AgentError;
use crate::config::{Config, Enforced, LEAST_OWN_MEMORY, Reserved};
use crate::executor::{self, Rooms};
use crate::model::action::{GroupLimits, OWN_GROUP, OWN_SLICE};
use crate::model::view::EventRecord;
use crate::sys::clock;
use crate::sys::log::chain;
use crate::{observe, plan};

/// Sets all limits. Where one cannot be kept the node goes on, and says so: with an event, and with the text that is
/// given back, for a condition. Reasons and messages are those of `pkg/kubelet/cm/node_container_manager_linux.go`.
///
/// # Errors
/// More is set aside than there is.
pub(super) fn enforce(rooms: &Rooms, publisher: &mut Publisher) -> Result<Option<String>, AgentError> {
    let (node, reserved) = (observe::amounts()?, observe::reserved(&rooms.config));
    let limits = plan::resources::node_limits(node, reserved, rooms.config.enforce_reserved)?;
    let mut failed = Vec::new();
    if let Err(error) = executor::limit_all_pods(rooms, &limits) {
        failed.push(format!("Failed to update Node Allocatable Limits: {}", chain(&error)));
    }
    executor::free_own_group(rooms);
    for group in groups(&rooms.config) {
        let Group { name, cgroup, enforced, amounts } = group;
        if enforced == Enforced::No {
            continue;
        }
        let limits = plan::resources::reserved_limits(observe::amounts_of(amounts), enforced == Enforced::Compressible);
        let done = match limits {
            Some(mut limits) if is_own(cgroup) => hold_own(rooms, cgroup, &mut limits),
            Some(limits) => executor::limit_reserved(rooms, cgroup, &limits).map_err(|error| chain(&error)),
            None => Err("nothing is reserved that could be enforced".to_owned()),
        };
        match done {
            Ok(()) => {
                let message = format!("Updated limits on {} reserved cgroup /{cgroup}", name.to_lowercase());
                record(rooms, publisher, false, "NodeAllocatableEnforced", message);
            }
            Err(why) => failed.push(format!("Failed to enforce {name} Reserved Cgroup Limits on \"/{cgroup}\": {why}")),
        }
    }
    for message in &failed {
        tracing::warn!("{message}");
        record(rooms, publisher, true, "FailedNodeAllocatableEnforcement", message.clone());
    }
    Ok((!failed.is_empty()).then(|| failed.join("; ")))
}

/// Whether armlet's roles are in this group.
fn is_own(cgroup: &str) -> bool {
    cgroup.split('/').next().is_some_and(|top| top == OWN_GROUP || top == OWN_SLICE)
}

/// Holds armlet's own group to what is reserved for it, but never to less memory than it may need.
fn hold_own(rooms: &Rooms, cgroup: &str, limits: &mut GroupLimits) -> Result<(), String> {
    let config = &rooms.config;
    let logs = observe::lies_in_memory(&config.pod_logs_dir).then(|| observe::log_budget(config));
    let data = observe::lies_in_memory(&config.data_dir);
    let too_little = limits.memory_max.and_then(|memory| too_little(memory, logs, data));
    if too_little.is_some() {
        limits.memory_max = None;
    }
    executor::limit_reserved(rooms, cgroup, limits).map_err(|error| chain(&error))?;
    too_little.map_or(Ok(()), Err)
}

/// Why armlet must not be held to so many bytes of memory; none: it may. What its roles write into a file system in
/// memory is theirs, and nothing but removing the files gives it back: container logs, up to their budget, and, on a
/// node without a data disk, images.
fn too_little(memory: u64, logs_in_memory: Option<u64>, data_in_memory: bool) -> Option<String> {
    let logs = logs_in_memory.unwrap_or(0);
    let need = LEAST_OWN_MEMORY.saturating_add(logs);
    if data_in_memory {
        return Some("memory is not limited: images lie in memory too, for want of a data disk".to_owned());
    }
    (memory < need).then(|| {
        let (memory, need, logs) = (memory >> 20, need.div_ceil(1 << 20), logs >> 20);
        format!("memory is not limited: {memory} MiB are reserved, {need} MiB may be needed, {logs} of them for logs in memory")
    })
}

/// A group that something is set aside for.
struct Group<'a> {
    name: &'static str,
    cgroup: &'a str,
    enforced: Enforced,
    amounts: &'a Reserved,
}

fn groups(config: &Config) -> [Group<'_>; 2] {
    [
        Group {
            name: "System",
            cgroup: &config.system_reserved_cgroup,
            enforced: config.enforce_system,
            amounts: &config.system_reserved,
        },
        Group {
            name: "Kube",
            cgroup: &config.kube_reserved_cgroup,
            enforced: config.enforce_kube,
            amounts: &config.kube_reserved,
        },
    ]
}

fn record(rooms: &Rooms, publisher: &mut Publisher, warning: bool, reason: &str, message: String) {
    let (at, object) = (clock::now().wall, rooms.node_name.clone());
    publisher.record(EventRecord { at, warning, reason: reason.to_owned(), object, field_path: None, message });
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn armlet_is_never_held_to_less_than_it_may_need() {
        const MIB: u64 = 1 << 20;
        assert_eq!(too_little(64 * MIB, None, false), None);
        assert_eq!(too_little(82 * MIB, Some(18 * MIB), false), None);
        assert_eq!(
            too_little(81 * MIB, Some(18 * MIB), false).as_deref(),
            Some("memory is not limited: 81 MiB are reserved, 82 MiB may be needed, 18 of them for logs in memory")
        );
        assert!(too_little(1024 * MIB, None, true).is_some_and(|why| why.contains("images lie in memory")));
        assert!(observe::lies_in_memory("/dev/shm/not/there/yet") && !observe::lies_in_memory("/proc"));
    }
}
