//! The spec that libcontainer gets: the bundle's own without what armlet does itself. Pure.

use oci_spec::runtime::{Capability, LinuxCapabilities, Spec};
use std::path::Path;

/// Derives it. The bundle's spec is complete; here goes out of it
/// - seccomp: the executor loads a prepared filter, and needs CAP_SYS_ADMIN and CAP_SETPCAP until then;
/// - no_new_privs: the executor sets it, as anything said here makes libcontainer load filters in another order;
/// - resources: limits act during set-up already, and a small CPU quota would make that take minutes;
/// - the cgroup: the container's processes are born in it, and `stand_in` is a folder that takes process ids and does
///   nothing. To be moved into a group costs a grace period of the whole kernel, half of the time that a start takes.
#[must_use]
pub(super) fn for_libcontainer(spec: &Spec, root: &Path, stand_in: &Path) -> Spec {
    let mut spec = spec.clone();
    if let Some(part) = spec.root_mut() {
        part.set_path(root.to_owned());
    }
    if let Some(linux) = spec.linux_mut() {
        linux.set_seccomp(None);
        linux.set_resources(None);
        // libcontainer puts the path behind the cgroup mount, and does not look at what comes out.
        linux.set_cgroups_path(Some(Path::new("/../../..").join(stand_in.strip_prefix("/").unwrap_or(stand_in))));
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_armlet_does_itself_goes_out() {
        let text = r#"{"ociVersion":"1.2.0","root":{"path":"rootfs"},"process":{"user":{"uid":5,"gid":6},"cwd":"/",
            "args":["a"],"noNewPrivileges":true,"capabilities":{"bounding":["CAP_KILL"],"effective":["CAP_KILL"],
            "permitted":["CAP_KILL"],"inheritable":["CAP_KILL"],"ambient":["CAP_KILL"]}},
            "linux":{"cgroupsPath":"/a/b","resources":{"pids":{"limit":3}},
            "seccomp":{"defaultAction":"SCMP_ACT_ERRNO"}}}"#;
        let spec: Spec = serde_json::from_str(text).unwrap();
        let derived = for_libcontainer(&spec, Path::new("/b/rootfs"), Path::new("/b/work/group"));
        let linux = derived.linux().as_ref().unwrap();
        assert_eq!((linux.seccomp(), linux.resources()), (&None, &None));
        assert_eq!(linux.cgroups_path(), &Some("/../../../b/work/group".into()));
        assert_eq!(derived.root().as_ref().unwrap().path(), Path::new("/b/rootfs"));
        let process = derived.process().as_ref().unwrap();
        assert_eq!(process.no_new_privileges(), None);
        assert_eq!((process.user().uid(), process.user().gid()), (5, 6));
        let sets = process.capabilities().clone().unwrap();
        for set in [sets.bounding(), sets.effective(), sets.permitted()] {
            let want = [Capability::Kill, Capability::SysAdmin, Capability::Setpcap].into_iter().collect();
            assert_eq!(set, &Some(want));
        }
        assert_eq!(sets.inheritable().as_ref().map(std::collections::HashSet::len), Some(0));
        assert_eq!(sets.ambient().as_ref().map(std::collections::HashSet::len), Some(0));
    }
}
