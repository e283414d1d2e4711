//! What groups and processes use at this moment.

use crate::model::api::{GroupUsage, ProcessUsage};
use crate::runtime::cgroup::{GroupStats, usage_of};
use crate::sys::accounting::{self, Process};

/// What a group uses. None: it is gone.
#[must_use]
pub fn group_usage(cgroup: &str) -> Option<GroupUsage> {
    let GroupStats { cpu, memory, pids, .. } = usage_of(cgroup).ok()?;
    Some(GroupUsage {
        cpu_usec: cpu.map(|cpu| cpu.usage_usec),
        memory_bytes: memory.map(|memory| memory.working_set),
        memory_limit: memory.and_then(|memory| memory.limit),
        pids,
    })
}

/// What one of armlet's own processes uses. `pss_bytes` is absent when it is gone.
#[must_use]
pub fn process_usage(role: &str, pid: u32) -> ProcessUsage {
    ProcessUsage { role: role.to_owned(), pid, pss_bytes: accounting::pss(Process::Pid(pid)) }
}
