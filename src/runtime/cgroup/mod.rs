//! The node's cgroups: `kubepods`, its QoS groups and the pods' groups through cgroups-rs, the containers' groups
//! below them, and what they say about themselves.
//!
//! Group names are below the cgroup mount, without a leading slash: `kubepods/burstable/pod<uid>/<container id>`.

mod remove;
mod stats;

pub use stats::{CpuStats, GroupStats, MemoryStats, Pressure, parse_stats};

use crate::model::PodUid;
use crate::model::action::{GroupLimits, NodeLimits, OWN_GROUP, PodLimits};
use crate::runtime::spec::kernel_page_size;
use cgroups_rs::fs::cpu::CpuController;
use cgroups_rs::fs::hierarchies::V2;
use cgroups_rs::fs::hugetlb::HugeTlbController;
use cgroups_rs::fs::memory::{MemController, SetMemory};
use cgroups_rs::fs::pid::PidController;
use cgroups_rs::fs::{Cgroup, MaxValue};
use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};

/// Where cgroup v2 is mounted.
const MOUNT: &str = "/sys/fs/cgroup";

/// The group of all pods.
const PODS: &str = "kubepods";

/// What pods are accounted and limited by, where the kernel has it.
const CONTROLLERS: [&str; 6] = ["cpu", "cpuset", "memory", "hugetlb", "pids", "io"];

/// A step on a cgroup that did not work.
#[derive(Debug, thiserror::Error)]
pub enum CgroupError {
    /// The mount is not there, or is not cgroup v2.
    #[error("{MOUNT} is not a cgroup v2 mount")]
    NotMounted(#[source] io::Error),
    /// cgroups-rs failed.
    #[error("failed to {operation} cgroup {cgroup}")]
    Library {
        /// What was tried.
        operation: &'static str,
        /// Which group.
        cgroup: String,
        /// Why not.
        source: cgroups_rs::fs::error::Error,
    },
    /// A file operation failed.
    #[error("failed to {operation} cgroup {cgroup}")]
    File {
        /// What was tried.
        operation: &'static str,
        /// Which group.
        cgroup: String,
        /// Why not.
        source: io::Error,
    },
    /// A limit is wanted and nothing on this kernel can keep it.
    #[error("cgroup {cgroup} cannot be limited: the kernel's {controller} controller is not enabled")]
    NoController {
        /// Which group.
        cgroup: String,
        /// Which controller.
        controller: &'static str,
    },
    /// A group that is to be limited was not made.
    #[error("cgroup {cgroup} does not exist")]
    Absent {
        /// Which group.
        cgroup: String,
    },
    /// Killed processes did not leave the group in time.
    #[error("cgroup {cgroup} still has processes after they were killed")]
    StillBusy {
        /// Which group.
        cgroup: String,
    },
    /// A name that would lead out of the cgroup mount.
    #[error("cgroup name {0:?} is not a relative path of plain names")]
    BadName(String),
}

/// The node's groups.
#[derive(Debug, Clone)]
pub struct Cgroups {
    /// Those of [`CONTROLLERS`] that the kernel has.
    controllers: Vec<String>,
}

impl Cgroups {
    /// Makes the groups `kubepods`, `kubepods/burstable` and `kubepods/besteffort`, with the controllers enabled from the
    /// top down.
    ///
    /// # Errors
    /// [`CgroupError::NotMounted`] without cgroup v2, else what went wrong with a group.
    pub fn open() -> Result<Self, CgroupError> {
        let available = std::fs::read_to_string(Path::new(MOUNT).join("cgroup.controllers"));
        let available = available.map_err(CgroupError::NotMounted)?;
        let controllers: Vec<String> =
            available.split_whitespace().filter(|name| CONTROLLERS.contains(name)).map(str::to_owned).collect();
        let groups = Self { controllers };
        for class in ["burstable", "besteffort"] {
            let group = format!("{PODS}/{class}");
            groups.make(&group)?;
            groups.enable_below(&group)?;
        }
        Ok(groups)
    }

    /// Makes a group, and enables the controllers in every group above it.
    fn make(&self, cgroup: &str) -> Result<Cgroup, CgroupError> {
        check(cgroup)?;
        let controllers = Some(self.controllers.clone());
        Cgroup::new_with_specified_controllers(Box::new(V2::new()), cgroup, controllers)
            .map_err(|source| CgroupError::Library { operation: "make", cgroup: cgroup.to_owned(), source })
    }

    /// Makes a group in one of those that [`Cgroups::open`] has made. Only if that one is gone is all above it seen to
    /// again: that takes as long as all the rest.
    fn make_in_class(&self, cgroup: &str) -> Result<Cgroup, CgroupError> {
        check(cgroup)?;
        match std::fs::create_dir(path(cgroup)) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => self.make(cgroup),
            Err(source) if source.kind() != io::ErrorKind::AlreadyExists => {
                Err(CgroupError::File { operation: "make", cgroup: cgroup.to_owned(), source })
            }
            _ => Ok(Cgroup::load(Box::new(V2::new()), cgroup)),
        }
    }

    /// Enables the controllers for the groups right below one.
    fn enable_below(&self, cgroup: &str) -> Result<(), CgroupError> {
        let all: Vec<String> = self.controllers.iter().map(|name| format!("+{name}")).collect();
        let file = path(cgroup).join("cgroup.subtree_control");
        std::fs::write(file, all.join(" ")).map_err(|source| CgroupError::File {
            operation: "enable the controllers below",
            cgroup: cgroup.to_owned(),
            source,
        })
    }

    /// Sets `cpu.weight` of the two QoS groups.
    ///
    /// # Errors
    /// [`CgroupError`].
    pub fn set_qos_weights(&self, burstable: u64, besteffort: u64) -> Result<(), CgroupError> {
        for (class, weight) in [("burstable", burstable), ("besteffort", besteffort)] {
            let name = format!("{PODS}/{class}");
            let group = Cgroup::load(Box::new(V2::new()), &name);
            set_weight(&group, &name, weight)?;
        }
        Ok(())
    }

    /// Sets what all pods together may take. What one controller cannot keep does not keep the others from it.
    ///
    /// # Errors
    /// [`CgroupError`]: the first limit that cannot be kept.
    pub fn limit_all(&self, limits: &NodeLimits) -> Result<(), CgroupError> {
        let group = Cgroup::load(Box::new(V2::new()), PODS);
        let weight = set_weight(&group, PODS, limits.cpu_weight);
        let memory = set_memory(&group, PODS, limits.memory_max);
        weight.and(memory).and(set_pids(&group, PODS, limits.pids_max))
    }

    /// Holds a group that somebody else has made to what is reserved for those in it. What one controller cannot keep
    /// does not keep the others from it.
    ///
    /// # Errors
    /// [`CgroupError`]: there is no such group, or the first limit that cannot be kept.
    pub fn limit_reserved(&self, cgroup: &str, limits: &GroupLimits) -> Result<(), CgroupError> {
        check(cgroup)?;
        if !path(cgroup).is_dir() {
            return Err(CgroupError::Absent { cgroup: cgroup.to_owned() });
        }
        let group = Cgroup::load(Box::new(V2::new()), cgroup);
        let weight = limits.cpu_weight.map_or(Ok(()), |weight| set_weight(&group, cgroup, weight));
        let memory = limits.memory_max.map_or(Ok(()), |bytes| set_memory(&group, cgroup, bytes));
        weight.and(memory).and(limits.pids_max.map_or(Ok(()), |count| set_pids(&group, cgroup, count)))
    }

    /// Gives armlet's own group what the kernel gives to any: a limit that is no longer wanted does not outlive the
    /// configuration that wanted it.
    pub fn free_own(&self) {
        for (file, value) in [("cpu.weight", "100"), ("memory.max", "max"), ("pids.max", "max")] {
            // Without the controller there is neither the file nor a limit.
            let _ = std::fs::write(path(OWN_GROUP).join(file), value);
        }
    }

    /// Makes a pod's group and sets its values; what is there already is set again.
    ///
    /// # Errors
    /// [`CgroupError`]; a limit that cannot be kept is one.
    pub fn create_pod(&self, cgroup: &str, limits: &PodLimits) -> Result<(), CgroupError> {
        let group = self.make_in_class(cgroup)?;
        self.enable_below(cgroup)?;
        set_weight(&group, cgroup, limits.cpu_weight)?;
        let failed = |operation| move |source| CgroupError::Library { operation, cgroup: cgroup.to_owned(), source };
        let missing = |controller| CgroupError::NoController { cgroup: cgroup.to_owned(), controller };
        if let Some(max) = limits.cpu_max {
            let cpu: &CpuController = group.controller_of().ok_or_else(|| missing("cpu"))?;
            let quota = i64::try_from(max.quota).unwrap_or(i64::MAX);
            cpu.set_cfs_quota_and_period(Some(quota), Some(max.period)).map_err(failed("set cpu.max of"))?;
        }
        if let Some(bytes) = limits.memory_max {
            set_memory(&group, cgroup, bytes)?;
        }
        if let Some(count) = limits.pids_max {
            set_pids(&group, cgroup, count)?;
        }
        for (size, bytes) in &limits.hugetlb {
            let pages: &HugeTlbController = group.controller_of().ok_or_else(|| missing("hugetlb"))?;
            let set = pages.set_limit_in_bytes(&kernel_page_size(size), *bytes);
            set.map_err(failed("set the huge page limit of"))?;
        }
        Ok(())
    }

    /// Makes a container's group in its pod's, which must be there. The create child sets its values, as some of them
    /// must not act while the container is made.
    ///
    /// # Errors
    /// [`CgroupError::File`].
    pub fn create_container(&self, cgroup: &str) -> Result<(), CgroupError> {
        check(cgroup)?;
        match std::fs::create_dir(path(cgroup)) {
            Err(source) if source.kind() != io::ErrorKind::AlreadyExists => {
                Err(CgroupError::File { operation: "make", cgroup: cgroup.to_owned(), source })
            }
            _ => Ok(()),
        }
    }

    /// Kills whatever is in a group and the groups below it, and removes them all. That there is no such group is fine.
    /// Blocks while the kernel clears the processes away, for some seconds at most.
    ///
    /// # Errors
    /// [`CgroupError::StillBusy`] when processes do not go (they hang in the kernel), else what the system said.
    pub fn remove(&self, cgroup: &str) -> Result<(), CgroupError> {
        check(cgroup)?;
        remove::remove(cgroup, &path(cgroup))
    }

    /// The groups of a pod that exist, whatever its class.
    #[must_use]
    pub fn pod_groups(&self, uid: &PodUid) -> Vec<String> {
        ["", "burstable/", "besteffort/"]
            .map(|class| format!("{PODS}/{class}pod{uid}"))
            .into_iter()
            .filter(|group| path(group).is_dir())
            .collect()
    }

    /// The values that a group is set to, by file name: what people compare with the manifest.
    ///
    /// # Errors
    /// [`CgroupError::File`] when there is no such group.
    pub fn values(&self, cgroup: &str) -> Result<BTreeMap<String, String>, CgroupError> {
        check(cgroup)?;
        let folder = path(cgroup);
        let failed = |source| CgroupError::File { operation: "read", cgroup: cgroup.to_owned(), source };
        let mut values = BTreeMap::new();
        for entry in std::fs::read_dir(&folder).map_err(failed)? {
            let name = entry.map_err(failed)?.file_name().to_string_lossy().into_owned();
            if is_setting(&name)
                && let Ok(value) = std::fs::read_to_string(folder.join(&name))
            {
                values.insert(name, value.trim().to_owned());
            }
        }
        Ok(values)
    }
}

/// What a group has used. A file that the kernel does not have leaves its figures absent.
///
/// # Errors
/// [`CgroupError::File`] when there is no such group.
pub fn usage_of(cgroup: &str) -> Result<GroupStats, CgroupError> {
    check(cgroup)?;
    let folder = path(cgroup);
    if let Err(source) = std::fs::metadata(&folder) {
        return Err(CgroupError::File { operation: "read", cgroup: cgroup.to_owned(), source });
    }
    Ok(parse_stats(|file| std::fs::read_to_string(folder.join(file)).ok()))
}

fn is_setting(file: &str) -> bool {
    matches!(
        file,
        "cpu.weight"
            | "cpu.max"
            | "memory.max"
            | "memory.high"
            | "memory.low"
            | "memory.min"
            | "memory.swap.max"
            | "memory.oom.group"
            | "pids.max"
    ) || (file.starts_with("hugetlb.") && file.ends_with(".max") && !file.contains(".rsvd."))
}

fn set_weight(group: &Cgroup, name: &str, weight: u64) -> Result<(), CgroupError> {
    // Without the controller all groups weigh the same: no promise is broken that a pod relies on.
    let Some(cpu) = group.controller_of::<CpuController>() else { return Ok(()) };
    cpu.set_shares(weight).map_err(|source| CgroupError::Library {
        operation: "set cpu.weight of",
        cgroup: name.to_owned(),
        source,
    })
}

fn set_memory(group: &Cgroup, name: &str, bytes: u64) -> Result<(), CgroupError> {
    let missing = || CgroupError::NoController { cgroup: name.to_owned(), controller: "memory" };
    let memory: &MemController = group.controller_of().ok_or_else(missing)?;
    let max = Some(MaxValue::Value(i64::try_from(bytes).unwrap_or(i64::MAX)));
    memory.set_mem(SetMemory { max, ..SetMemory::default() }).map_err(|source| CgroupError::Library {
        operation: "set memory.max of",
        cgroup: name.to_owned(),
        source,
    })
}

fn set_pids(group: &Cgroup, name: &str, count: u64) -> Result<(), CgroupError> {
    let missing = || CgroupError::NoController { cgroup: name.to_owned(), controller: "pids" };
    let pids: &PidController = group.controller_of().ok_or_else(missing)?;
    let max = MaxValue::Value(i64::try_from(count).unwrap_or(i64::MAX));
    pids.set_pid_max(max).map_err(|source| CgroupError::Library {
        operation: "set pids.max of",
        cgroup: name.to_owned(),
        source,
    })
}

fn path(cgroup: &str) -> PathBuf {
    Path::new(MOUNT).join(cgroup)
}

fn check(cgroup: &str) -> Result<(), CgroupError> {
    let plain = |part: &str| !matches!(part, "" | "." | "..") && !part.contains('\0');
    if cgroup.split('/').all(plain) { Ok(()) } else { Err(CgroupError::BadName(cgroup.to_owned())) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_stay_below_the_mount() {
        for bad in ["", "/", "/kubepods", "kubepods/../..", "kubepods//x", "a/./b", "a\0"] {
            assert!(check(bad).is_err(), "{bad:?}");
        }
        assert!(check("kubepods/burstable/podx/0123").is_ok());
    }

    #[test]
    fn settings_are_told_from_figures() {
        for (file, want) in [
            ("memory.max", true),
            ("cpu.weight", true),
            ("hugetlb.2MB.max", true),
            ("hugetlb.2MB.rsvd.max", false),
            ("hugetlb.2MB.current", false),
            ("memory.current", false),
            ("cgroup.procs", false),
        ] {
            assert_eq!(is_setting(file), want, "{file}");
        }
    }
}
