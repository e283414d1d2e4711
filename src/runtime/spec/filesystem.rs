//! Mounts, and what of the kernel's filesystems is hidden.

use super::{Bind, Inputs, root_folder};
use crate::runtime::request::Folder;
use oci_spec::OciSpecError;
use oci_spec::runtime::{Mount, MountBuilder};
use std::path::{Path, PathBuf};

/// Kernel filesystems: destination, type, options.
const KERNEL: [(&str, &str, &[&str]); 6] = [
    ("/proc", "proc", &["nosuid", "noexec", "nodev"]),
    ("/dev", "tmpfs", &["nosuid", "strictatime", "mode=755", "size=65536k"]),
    ("/dev/pts", "devpts", &["nosuid", "noexec", "newinstance", "ptmxmode=0666", "mode=0620", "gid=5"]),
    ("/dev/mqueue", "mqueue", &["nosuid", "noexec", "nodev"]),
    ("/sys", "sysfs", &["nosuid", "noexec", "nodev"]),
    ("/sys/fs/cgroup", "cgroup", &["nosuid", "noexec", "nodev", "relatime"]),
];

/// Hidden from containers that are not privileged (`pkg/securitycontext/util.go`, `defaultMaskedPaths`), and `more`.
pub(super) fn masked(more: &[String]) -> Vec<String> {
    let everywhere = [
        "/proc/asound",
        "/proc/acpi",
        "/proc/interrupts",
        "/proc/kcore",
        "/proc/keys",
        "/proc/latency_stats",
        "/proc/timer_list",
        "/proc/timer_stats",
        "/proc/sched_debug",
        "/proc/scsi",
        "/sys/firmware",
        "/sys/devices/virtual/powercap",
    ];
    everywhere.map(str::to_owned).into_iter().chain(more.iter().cloned()).collect()
}

/// Not writable for them (`defaultReadonlyPaths`).
pub(super) fn read_only() -> Vec<String> {
    ["/proc/bus", "/proc/fs", "/proc/irq", "/proc/sys", "/proc/sysrq-trigger"].map(str::to_owned).to_vec()
}

/// The binds of the container: its volumes, and the managed files that no volume replaces; outer ones first, else in
/// the order given.
pub(super) fn binds(inputs: &Inputs<'_>) -> Vec<Bind> {
    let taken = |path: &Path| inputs.volumes.iter().any(|volume| same_place(&volume.destination, path));
    let managed = inputs.managed.iter().filter(|bind| !taken(&bind.destination));
    let mut binds: Vec<Bind> = managed.chain(inputs.volumes).cloned().collect();
    binds.sort_by_key(|bind| bind.destination.components().count());
    binds
}

fn same_place(one: &Path, other: &Path) -> bool {
    one.components().eq(other.components())
}

/// All mounts in their order.
pub(super) fn mounts(inputs: &Inputs<'_>, binds: &[Bind]) -> Result<Vec<Mount>, OciSpecError> {
    let privileged = inputs.container.security.privileged;
    let mut mounts = Vec::new();
    for (destination, kind, options) in KERNEL {
        if binds.iter().any(|bind| same_place(&bind.destination, Path::new(destination))) {
            continue;
        }
        let mut options: Vec<String> = options.iter().map(|option| (*option).to_owned()).collect();
        if !privileged && destination.starts_with("/sys") {
            options.push("ro".to_owned());
        }
        mounts.push(mount(destination.into(), kind, kind.into(), options)?);
    }
    for bind in binds {
        let access = if bind.read_only { "ro" } else { "rw" };
        let options = ["rbind", "rprivate", access].map(str::to_owned).to_vec();
        mounts.push(mount(bind.destination.clone(), "bind", bind.source.clone(), options)?);
    }
    Ok(mounts)
}

fn mount(destination: PathBuf, kind: &str, source: PathBuf, options: Vec<String>) -> Result<Mount, OciSpecError> {
    MountBuilder::default().destination(destination).typ(kind).source(source).options(options).build()
}

/// The working directory, to be made where it will be seen: in the root filesystem or in the volume over it.
pub(super) fn folder_for(cwd: &Path, binds: &[Bind]) -> Option<Folder> {
    // The last that covers it is mounted over the others.
    let cover = binds.iter().rfind(|bind| cwd.starts_with(&bind.destination));
    match cover {
        Some(bind) if bind.read_only => None,
        Some(bind) => {
            let inner = cwd.strip_prefix(&bind.destination).ok()?;
            (inner.components().count() > 0).then(|| root_folder(Path::new("/").join(inner), Some(bind.source.clone())))
        }
        None => (cwd != Path::new("/")).then(|| root_folder(cwd.to_owned(), None)),
    }
}
