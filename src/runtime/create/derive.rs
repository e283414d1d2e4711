//! The spec that libcontainer gets: the bundle's own without what armlet does itself. Pure.

use crate::sys::inside::NewMount;
use oci_spec::runtime::{Capability, LinuxCapabilities, Mount, Spec};
use rustix::mount::MountAttrFlags;
use std::path::{Component, Path, PathBuf};

/// What a spec comes to.
#[derive(Debug)]
pub(super) struct Derived {
    /// For libcontainer.
    pub(super) spec: Spec,
    /// To be mounted in the root before libcontainer sees it, in this order.
    pub(super) mounts: Vec<OwnMount>,
}

/// A mount that armlet makes itself.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct OwnMount {
    /// In the container: absolute.
    pub(super) destination: PathBuf,
    /// What is seen there.
    pub(super) what: What,
}

/// What is mounted.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum What {
    /// Something of the node, with all that is mounted below it.
    Bind { source: PathBuf, read_only: bool },
    /// A filesystem of its own.
    New(NewMount),
}

/// Derives it. The bundle's spec is complete; here goes out of it
/// - all mounts but `/proc` and what lies below it: libcontainer looks at each part of each path several times, which
///   took a fifth of the time of a start; here one system call that cannot leave the root does;
/// - seccomp: the executor loads a prepared filter, and needs CAP_SYS_ADMIN and CAP_SETPCAP until then;
/// - no_new_privs: the executor sets it, as anything said here makes libcontainer load filters in another order;
/// - resources: limits act during set-up already, and a small CPU quota would make that take minutes;
/// - the cgroup: the container's processes are born in it, and `stand_in` is a folder that takes process ids and does
///   nothing. To be moved into a group costs a grace period of the whole kernel, half of the time that a start takes.
#[must_use]
pub(super) fn for_libcontainer(spec: &Spec, root: &Path, stand_in: &Path) -> Derived {
    let mut spec = spec.clone();
    let (mounts, left) = own_mounts(spec.mounts().as_deref().unwrap_or_default());
    spec.set_mounts(Some(left));
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
    Derived { spec, mounts }
}

/// Takes out what can be mounted before all that is left, which is what needs the container's pid namespace. A mount
/// keeps its place behind one that is left when either lies below the other.
fn own_mounts(all: &[Mount]) -> (Vec<OwnMount>, Vec<Mount>) {
    let (mut own, mut left) = (Vec::new(), Vec::<Mount>::new());
    for mount in all {
        match own_mount(mount).filter(|_| !left.iter().any(|earlier| related(earlier, mount))) {
            Some(taken) => own.push(taken),
            None => left.push(mount.clone()),
        }
    }
    (own, left)
}

fn related(one: &Mount, other: &Mount) -> bool {
    let (one, other) = (one.destination(), other.destination());
    !plain(one) || one.starts_with(other) || other.starts_with(one)
}

/// Whether a path leads where it seems to, links aside.
fn plain(path: &Path) -> bool {
    path.is_absolute() && path.components().all(|part| matches!(part, Component::RootDir | Component::Normal(_)))
}

/// The same mount in our words; none for what is not known here by heart.
fn own_mount(mount: &Mount) -> Option<OwnMount> {
    let destination = plain(mount.destination()).then(|| mount.destination().clone())?;
    let given = mount.options().as_deref().unwrap_or_default();
    let what = match mount.typ().as_deref()? {
        "bind" => {
            let known = |option: &String| matches!(option.as_str(), "rbind" | "rprivate" | "ro" | "rw");
            let recursive = given.iter().any(|option| option == "rbind");
            let source = mount.source().clone().filter(|_| recursive && given.iter().all(known))?;
            What::Bind { source, read_only: given.iter().any(|option| option == "ro") }
        }
        kind @ ("tmpfs" | "devpts" | "mqueue" | "sysfs" | "cgroup") => {
            let kind = if kind == "cgroup" { "cgroup2" } else { kind };
            What::New(new_mount(kind, mount.source().as_deref()?.to_str()?, given)?)
        }
        _ => return None,
    };
    Some(OwnMount { destination, what })
}

fn new_mount(kind: &str, source: &str, given: &[String]) -> Option<NewMount> {
    let mut attributes = MountAttrFlags::empty();
    let mut options = Vec::new();
    for option in given {
        match option.as_str() {
            "nosuid" => attributes |= MountAttrFlags::MOUNT_ATTR_NOSUID,
            "noexec" => attributes |= MountAttrFlags::MOUNT_ATTR_NOEXEC,
            "nodev" => attributes |= MountAttrFlags::MOUNT_ATTR_NODEV,
            "strictatime" => attributes |= MountAttrFlags::MOUNT_ATTR_STRICTATIME,
            // The devices are made in a tmpfs after it was mounted.
            "ro" if kind != "tmpfs" => attributes |= MountAttrFlags::MOUNT_ATTR_RDONLY,
            // What a mount is without another word.
            "relatime" => {}
            "newinstance" => options.push(option.clone()),
            value if value.contains('=') => options.push(option.clone()),
            _ => return None,
        }
    }
    Some(NewMount { kind: kind.to_owned(), source: source.to_owned(), attributes, options })
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
    use oci_spec::runtime::MountBuilder;

    #[test]
    fn what_armlet_does_itself_goes_out() {
        let text = r#"{"ociVersion":"1.2.0","root":{"path":"rootfs"},"process":{"user":{"uid":5,"gid":6},"cwd":"/",
            "args":["a"],"noNewPrivileges":true,"capabilities":{"bounding":["CAP_KILL"],"effective":["CAP_KILL"],
            "permitted":["CAP_KILL"],"inheritable":["CAP_KILL"],"ambient":["CAP_KILL"]}},
            "linux":{"cgroupsPath":"/a/b","resources":{"pids":{"limit":3}},
            "seccomp":{"defaultAction":"SCMP_ACT_ERRNO"}}}"#;
        let spec: Spec = serde_json::from_str(text).unwrap();
        let derived = for_libcontainer(&spec, Path::new("/b/rootfs"), Path::new("/b/work/group")).spec;
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

    fn mount(destination: &str, kind: &str, options: &[&str]) -> Mount {
        let options: Vec<String> = options.iter().map(|option| (*option).to_owned()).collect();
        let mount = MountBuilder::default().destination(destination).typ(kind).source("/s").options(options);
        mount.build().unwrap()
    }

    fn split(mounts: &[Mount]) -> (Vec<String>, Vec<String>) {
        let (own, left) = own_mounts(mounts);
        let text = |path: &Path| path.display().to_string();
        (own.iter().map(|m| text(&m.destination)).collect(), left.iter().map(|m| text(m.destination())).collect())
    }

    #[test]
    fn mounts_are_taken_unless_they_belong_above_one_that_stays() {
        let bind = |destination| mount(destination, "bind", &["rbind", "rprivate", "rw"]);
        let all = [
            mount("/proc", "proc", &["nosuid"]),
            mount("/dev", "tmpfs", &["nosuid", "strictatime", "mode=755", "size=65536k"]),
            mount("/dev/pts", "devpts", &["nosuid", "noexec", "newinstance", "gid=5"]),
            mount("/dev/mqueue", "mqueue", &["nosuid"]),
            mount("/sys", "sysfs", &["nosuid", "noexec", "nodev", "ro"]),
            mount("/sys/fs/cgroup", "cgroup", &["nosuid", "relatime", "ro"]),
            bind("/etc/hosts"),
            bind("/dev/shm"),
            bind("/proc/own"),
            bind("/process"),
            bind("/a/../proc"),
        ];
        let (own, left) = split(&all);
        assert_eq!(
            own,
            ["/dev", "/dev/pts", "/dev/mqueue", "/sys", "/sys/fs/cgroup", "/etc/hosts", "/dev/shm", "/process"]
        );
        assert_eq!(left, ["/proc", "/proc/own", "/a/../proc"]);
        // Nothing goes before a path of which nobody knows where it leads, nor below the place of one that covers it.
        assert_eq!(split(&[bind("/a/../b"), bind("/c")]).1.len(), 2);
        assert_eq!(split(&[mount("/dev/a", "proc", &[]), bind("/dev"), bind("/dev/x")]).1.len(), 3);
    }

    #[test]
    fn a_mount_with_an_option_that_is_not_known_here_is_left() {
        for options in [&["bind"][..], &["rbind", "rshared"], &["rbind", "rro"]] {
            assert_eq!(own_mount(&mount("/a", "bind", options)), None, "{options:?}");
        }
        assert_eq!(own_mount(&mount("/a", "tmpfs", &["tmpcopyup"])), None);
        let read_only = own_mount(&mount("/a", "bind", &["rbind", "rprivate", "ro"])).unwrap();
        assert_eq!(read_only.what, What::Bind { source: "/s".into(), read_only: true });
        let dev = own_mount(&mount("/dev", "tmpfs", &["nosuid", "strictatime", "mode=755"])).unwrap();
        let attributes = MountAttrFlags::MOUNT_ATTR_NOSUID | MountAttrFlags::MOUNT_ATTR_STRICTATIME;
        let (kind, source, options) = ("tmpfs".to_owned(), "/s".to_owned(), vec!["mode=755".to_owned()]);
        assert_eq!(dev.what, What::New(NewMount { kind, source, attributes, options }));
        let cgroup = own_mount(&mount("/sys/fs/cgroup", "cgroup", &["relatime", "ro"])).unwrap();
        let (kind, source, attributes) = ("cgroup2".to_owned(), "/s".to_owned(), MountAttrFlags::MOUNT_ATTR_RDONLY);
        assert_eq!(cgroup.what, What::New(NewMount { kind, source, attributes, options: Vec::new() }));
        assert_eq!(own_mount(&mount("/dev", "tmpfs", &["ro"])), None);
    }
}
