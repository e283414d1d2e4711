//! The supervisor's table as the agent last heard it.

use crate::model::supervise::{ContainerEntry, ContainerState, SandboxEntry};
use crate::model::{ContainerId, PodUid};
use std::collections::{BTreeMap, BTreeSet};

/// The table, kept up to date by notices and answers.
#[derive(Debug, Default)]
pub(super) struct Mirror {
    sandboxes: BTreeMap<PodUid, SandboxEntry>,
    containers: BTreeMap<ContainerId, ContainerEntry>,
}

impl Mirror {
    /// Forgets everything and takes a new table's sandboxes over; its containers follow one by one. Returns the pods
    /// that either table speaks of.
    pub(super) fn replace(&mut self, sandboxes: Vec<SandboxEntry>) -> BTreeSet<PodUid> {
        let mut touched = self.pods();
        self.sandboxes = sandboxes.into_iter().map(|s| (s.pod.clone(), s)).collect();
        self.containers.clear();
        touched.extend(self.pods());
        touched
    }

    /// Takes one container's state over. A state never goes back: a late answer does not undo a notice.
    pub(super) fn container(&mut self, entry: ContainerEntry) {
        let known = self.containers.get(&entry.id).map_or(0, |known| rank(&known.state));
        if rank(&entry.state) >= known {
            self.containers.insert(entry.id.clone(), entry);
        }
    }

    /// Takes one sandbox over.
    pub(super) fn sandbox(&mut self, entry: SandboxEntry) {
        self.sandboxes.insert(entry.pod.clone(), entry);
    }

    /// A sandbox was let go.
    pub(super) fn drop_sandbox(&mut self, pod: &PodUid) {
        self.sandboxes.remove(pod);
    }

    /// A container was forgotten.
    pub(super) fn drop_container(&mut self, id: &ContainerId) {
        self.containers.remove(id);
    }

    /// A pod's sandbox.
    pub(super) fn sandbox_of(&self, pod: &PodUid) -> Option<&SandboxEntry> {
        self.sandboxes.get(pod)
    }

    /// One container.
    pub(super) fn get(&self, id: &ContainerId) -> Option<&ContainerEntry> {
        self.containers.get(id)
    }

    /// A pod's containers.
    pub(super) fn containers_of(&self, pod: &PodUid) -> Vec<&ContainerEntry> {
        self.containers.values().filter(|c| c.pod == *pod).collect()
    }

    /// Whether no container is being made or runs.
    pub(super) fn quiet(&self) -> bool {
        self.containers.values().all(|c| rank(&c.state) == 3)
    }

    fn pods(&self) -> BTreeSet<PodUid> {
        let of_containers = self.containers.values().map(|c| c.pod.clone());
        self.sandboxes.keys().cloned().chain(of_containers).collect()
    }
}

const fn rank(state: &ContainerState) -> u8 {
    match state {
        ContainerState::Creating => 1,
        ContainerState::Running { .. } => 2,
        ContainerState::Exited(_) | ContainerState::StartFailed { .. } => 3,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::{BootTime, WallTime};

    fn entry(state: ContainerState) -> Option<ContainerEntry> {
        Some(ContainerEntry {
            id: ContainerId::new("aa").ok()?,
            pod: PodUid::new("p").ok()?,
            name: "c".into(),
            attempt: 0,
            log_path: String::new(),
            cgroup: String::new(),
            state,
        })
    }

    #[test]
    fn a_late_answer_does_not_bring_a_container_back() {
        let failed = ContainerState::StartFailed {
            code: 127,
            reason: String::new(),
            message: String::new(),
            at: BootTime(1),
            at_wall: WallTime(1),
        };
        let running = ContainerState::Running { pid: 1, started_at: BootTime(1), started_wall: WallTime(1) };
        let mut mirror = Mirror::default();
        let states = [ContainerState::Creating, failed.clone(), running];
        for state in states {
            mirror.container(entry(state).unwrap());
        }
        let id = ContainerId::new("aa").unwrap();
        assert_eq!(mirror.get(&id).map(|e| e.state.clone()), Some(failed));
    }
}
