//! Last words: the termination messages of ended attempts. They lie on a card that may stall, so they are read elsewhere,
//! and an end is not an end for the plan before they are there: what is told of it is told once.

use crate::model::ContainerId;
use crate::model::observed::{ContainerSeen, Record};
use crate::model::supervise::{ContainerEntry, ContainerState};
use std::collections::{BTreeMap, BTreeSet};

/// One pod's.
#[derive(Debug, Default)]
pub(super) struct LastWords {
    awaited: BTreeSet<ContainerId>,
    read: BTreeMap<ContainerId, Option<String>>,
}

impl LastWords {
    /// Whether the message of this attempt is to be read now: it has ended, its end is not yet in the container's `record`,
    /// and nobody reads already. It is awaited from then on.
    pub(super) fn are_wanted(&mut self, entry: &ContainerEntry, record: Option<&Record>) -> bool {
        let over = match record {
            Some(record) if record.id == entry.id => record.ended.is_some(),
            // How an attempt ended that another has followed is recorded with that one.
            Some(record) => record.attempt >= entry.attempt,
            None => false,
        };
        matches!(entry.state, ContainerState::Exited(_))
            && !over
            && !self.read.contains_key(&entry.id)
            && self.awaited.insert(entry.id.clone())
    }

    /// The message was read. One that nobody awaits any more is dropped.
    pub(super) fn arrive(&mut self, id: ContainerId, message: Option<String>) {
        if self.awaited.remove(&id) {
            self.read.insert(id, message);
        }
    }

    /// Whether a message is being read.
    pub(super) fn are_awaited(&self) -> bool {
        !self.awaited.is_empty()
    }

    /// Forgets all attempts but these.
    pub(super) fn keep(&mut self, is_kept: impl Fn(&ContainerId) -> bool) {
        self.awaited.retain(|id| is_kept(id));
        self.read.retain(|id, _| is_kept(id));
    }

    /// The pod's attempts for the plan, with their messages. The newest attempt of a container still runs as long as its
    /// message is awaited; of older ones nothing is told.
    pub(super) fn seen(&self, entries: &[&ContainerEntry]) -> Vec<ContainerSeen> {
        let newest = |of: &ContainerEntry| !entries.iter().any(|e| e.name == of.name && e.attempt > of.attempt);
        let seen = |entry: &&ContainerEntry| {
            let mut entry = (*entry).clone();
            if let ContainerState::Exited(exit) = &entry.state
                && self.awaited.contains(&entry.id)
                && newest(&entry)
            {
                let (started_at, started_wall) = (exit.started_at, exit.started_wall);
                // No process has this number.
                entry.state = ContainerState::Running { pid: 0, started_at, started_wall };
            }
            let message = self.read.get(&entry.id).cloned().flatten();
            ContainerSeen { entry, message }
        };
        entries.iter().map(seen).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::supervise::Exit;
    use crate::model::{BootTime, PodUid, WallTime};

    fn id(number: u64) -> ContainerId {
        ContainerId::new(format!("{number:02x}")).unwrap()
    }

    fn entry(attempt: u32, state: ContainerState) -> ContainerEntry {
        ContainerEntry {
            id: id(u64::from(attempt)),
            pod: PodUid::new("p").unwrap(),
            name: "c".into(),
            attempt,
            log_path: String::new(),
            cgroup: String::new(),
            state,
        }
    }

    fn exited() -> ContainerState {
        ContainerState::Exited(Exit {
            code: 3,
            signal: None,
            oom_killed: false,
            known: true,
            started_at: BootTime(5),
            started_wall: WallTime(50),
            finished_at: BootTime(7),
            finished_wall: WallTime(70),
        })
    }

    fn running() -> ContainerState {
        ContainerState::Running { pid: 0, started_at: BootTime(5), started_wall: WallTime(50) }
    }

    fn record(attempt: u32, ended: bool) -> Record {
        let ended = ended.then(|| crate::model::status::Terminated {
            exit_code: 3,
            signal: None,
            reason: "Error".into(),
            message: None,
            started_at: WallTime(50),
            finished_at: WallTime(70),
            container_id: None,
        });
        Record {
            attempt,
            id: id(u64::from(attempt)),
            sandbox: 0,
            started_at: None,
            image: String::new(),
            image_id: String::new(),
            ended,
            interrupted: false,
            before: None,
        }
    }

    #[test]
    fn an_end_is_seen_once_its_message_is_there() {
        let mut words = LastWords::default();
        let (old, new) = (entry(0, exited()), entry(1, exited()));
        assert!(words.are_wanted(&old, None) && words.are_wanted(&new, None));
        assert!(!words.are_wanted(&new, None), "once is enough");
        let state =
            |words: &LastWords| words.seen(&[&old, &new]).into_iter().map(|s| s.entry.state).collect::<Vec<_>>();
        // Never two live attempts.
        assert_eq!(state(&words), [exited(), running()]);
        words.arrive(id(0), None);
        assert_eq!(state(&words), [exited(), running()]);
        words.arrive(id(1), Some("bye".to_owned()));
        assert_eq!(state(&words), [exited(), exited()]);
        assert_eq!(words.seen(&[&new])[0].message.as_deref(), Some("bye"));
        assert!(!words.are_awaited() && !words.are_wanted(&new, None));
    }

    #[test]
    fn what_is_recorded_is_not_read_again() {
        for (recorded, ended, attempt, wanted) in
            [(1, false, 1, true), (1, true, 1, false), (1, false, 0, false), (1, true, 0, false), (1, true, 2, true)]
        {
            let mut words = LastWords::default();
            let entry = entry(attempt, exited());
            let record = record(recorded, ended);
            assert_eq!(words.are_wanted(&entry, Some(&record)), wanted, "{recorded} {ended} {attempt}");
            assert_eq!(words.are_awaited(), wanted);
        }
        assert!(!LastWords::default().are_wanted(&entry(0, running()), None));
    }

    #[test]
    fn a_forgotten_attempt_leaves_nothing() {
        let mut words = LastWords::default();
        for attempt in 0..3 {
            assert!(words.are_wanted(&entry(attempt, exited()), None));
        }
        words.arrive(id(0), Some("a".repeat(4096)));
        words.keep(|kept| *kept == id(1));
        // Its message comes when nobody waits for it any more.
        words.arrive(id(2), Some("late".to_owned()));
        assert!(words.read.is_empty() && words.are_awaited());
        words.keep(|_| false);
        assert!(!words.are_awaited());
    }
}
