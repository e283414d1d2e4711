//! The spec that libcontainer gets: the bundle's own without what armlet does itself. Pure.

use oci_spec::runtime::{Capability, LinuxCapabilities, Spec};
use std::path::Path;

/// Derives it. The bundle's spec is complete; here goes out of it
/// - seccomp: the executor loads a prepared filter, and needs CAP_SYS_ADMIN and CAP_SETPCAP until then;
/// - no_new_privs: the executor sets it, as anything said here makes libcontainer load filters in another order;
/// - resources: limits act during set-up already, and a small CPU quota would make that take minutes.
#[must_use]
pub(super) fn for_libcontainer(spec: &Spec, root: &Path) -> Spec {
    let mut spec = spec.clone();
    if let Some(part) = spec.root_mut() {
        part.set_path(root.to_owned());
    }
    if let Some(linux) = spec.linux_mut() {
        linux.set_seccomp(None);
        linux.set_resources(None);
    }
    if let Some(process) = spec.process_mut() {
        process.set_no_new_privileges(None);
        let capabilities = process.capabilities().clone().unwrap_or_default();
        process.set_capabilities(Some(with_helpers(capabilities)));
    }
    spec
}

fn with_helpers(mut capabilities: LinuxCapabilities) -> LinuxCapabilities {
    let helped = |set: &Option<std::collections::HashSet<Capability>>| {
        let mut set = set.clone().unwrap_or_default();
        set.extend([Capability::SysAdmin, Capability::Setpcap]);
        Some(set)
    };
    capabilities.set_bounding(helped(capabilities.bounding()));
    capabilities.set_effective(helped(capabilities.effective()));
    capabilities.set_permitted(helped(capabilities.permitted()));
    // These would have to be within what the kernel allows at that moment; the executor sets them.
    capabilities.set_inheritable(Some(std::collections::HashSet::new()));
    capabilities.set_ambient(Some(std::collections::HashSet::new()));
    capabilities
}
