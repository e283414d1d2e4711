//! What is set aside of the node, made to hold: the limits of all pods together, and of those for whom it is set aside.

use super::publish::Publisher;
use super::start::AgentError;
use crate::config::{Config, Enforced, Reserved};
use crate::executor::{self, Rooms};
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
