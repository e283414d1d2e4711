//! What the supervisor knows, and what follows from each thing that happens to it. Pure: no system call, no clock.
//!
//! The driver tells the table what happened and performs the [`Effect`]s that it finds afterwards. Everything here is
//! bounded: a request that would grow a table beyond its bound is refused.

mod containers;
mod sandboxes;
mod sessions;

pub(crate) use containers::EndedFirst;
pub(crate) use sessions::ExecPlan;

use crate::model::supervise::{ContainerEntry, ExecExit, RefusalCode, Reply, SandboxEntry, SandboxSpec, StartSpec};
use crate::model::{BootTime, ContainerId, PodUid};
use crate::sys::children::Ended;
use containers::Container;
use sandboxes::Sandbox;
use serde::{Deserialize, Serialize};
use sessions::Session;
use std::collections::{BTreeMap, VecDeque};

/// Which request of which connection waits for an answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Asker {
    /// Number of the connection; never used twice.
    pub(crate) link: u64,
    /// The request's own number.
    pub(crate) seq: u64,
}

/// Something for the driver to do.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Effect {
    /// Spawn the create child.
    Create(StartSpec),
    /// Fork the helper that makes a pod's namespaces.
    MakeSandbox(SandboxSpec),
    /// Let a pod's namespaces go.
    DropSandbox(PodUid),
    /// Kill all in the container's cgroup.
    KillGroup(ContainerId),
    /// Kill all in the create child's cgroup.
    KillCreate(ContainerId),
    /// The create child is gone: its cgroup can be removed.
    CreateGone(ContainerId),
    /// Say `group_empty` when nothing is left in the container's cgroup.
    WatchEmpty(ContainerId),
    /// Have the logger write what is left in the pipes and say `drained`.
    FinishLog(ContainerId),
    /// Write down on tmpfs that this container exists.
    Save(ContainerId),
    /// Write the exit record, then let go of the container's descriptors.
    Record(ContainerId),
    /// Remove what Save and Record wrote.
    Erase(ContainerId),
    /// Send a signal to a child.
    Signal(u32, i32),
    /// The container's state changed: the agent is to know.
    Tell(ContainerId),
    /// Answer a request.
    Answer(Asker, Reply),
    /// Answer an exec request, with the session's descriptors.
    AnswerExec(u64, Asker),
    /// Kill all that the session started.
    KillSession(u64),
    /// The session is over: tell who asked, let its descriptors and cgroup go.
    SessionOver {
        /// Which.
        session: u64,
        /// Who asked for it.
        asker: Asker,
        /// The container it ran in.
        container: ContainerId,
        /// How it ended.
        exit: ExecExit,
    },
}

/// What a child of the supervisor is.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) enum Who {
    /// The create child of a container.
    Create(ContainerId),
    /// The first process of a container.
    First(ContainerId),
    /// The exec child of a session.
    ExecChild(u64),
    /// The program of a session.
    ExecFirst(u64),
    /// The helper that makes a pod's namespaces.
    Helper(PodUid),
}

/// Why a request is refused.
pub(crate) type Refusal = (RefusalCode, String);

/// An ended child that nobody claimed yet: its report may still be unread.
#[derive(Debug, Clone, Copy, Serialize, Deserialize)]
struct Stray {
    pid: u32,
    how: Ended,
}

const MAX_STRAYS: usize = 256;

/// All that the supervisor knows of pods. One build hands it to another as it is written here (see
/// [`hand_over`](super::hand_over)): fields of this and of what it holds are only added, and have defaults.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct Table {
    containers: BTreeMap<ContainerId, Container>,
    sandboxes: BTreeMap<PodUid, Sandbox>,
    sessions: BTreeMap<u64, Session>,
    children: BTreeMap<u32, Who>,
    strays: VecDeque<Stray>,
    queue: VecDeque<StartSpec>,
    creating: usize,
    max_creating: usize,
    last_session: u64,
    /// Nothing is handed over before all of these are done.
    #[serde(skip)]
    effects: Vec<Effect>,
}

impl Table {
    /// An empty table that lets at most `max_creating` create children work at the same time.
    pub(crate) fn new(max_creating: usize) -> Self {
        Self { max_creating: max_creating.max(1), ..Self::default() }
    }

    /// Makes sure of a table that was handed over: that its bounds are kept, and that it counts right.
    ///
    /// # Errors
    /// What there is too much of.
    pub(crate) fn settle_in(&mut self) -> Result<(), &'static str> {
        let bounds = [
            (self.containers.len() > containers::MAX_CONTAINERS, "too many containers"),
            (self.sandboxes.len() > sandboxes::MAX_SANDBOXES, "too many sandboxes"),
            (self.sessions.len() > sessions::MAX_SESSIONS, "too many sessions"),
            (self.strays.len() > MAX_STRAYS, "too many ended children"),
            (self.queue.len() > self.containers.len(), "more starts than containers"),
        ];
        if let Some((_, what)) = bounds.iter().find(|(broken, _)| *broken) {
            return Err(what);
        }
        self.max_creating = self.max_creating.max(1);
        self.creating = self.containers.values().filter(|c| c.is_creating()).count();
        Ok(())
    }

    /// Takes what is to be done. Performing it may bring more.
    pub(crate) fn take_effects(&mut self) -> Vec<Effect> {
        std::mem::take(&mut self.effects)
    }

    /// What an ended child is; `None`: not one of the table's.
    pub(crate) fn who(&self, pid: u32) -> Option<&Who> {
        self.children.get(&pid)
    }

    /// Every sandbox that is ready.
    pub(crate) fn sandbox_entries(&self) -> impl Iterator<Item = &SandboxEntry> {
        self.sandboxes.values().filter_map(Sandbox::entry)
    }

    /// Every container.
    pub(crate) fn container_entries(&self) -> impl Iterator<Item = &ContainerEntry> {
        self.containers.values().map(|c| &c.entry)
    }

    /// One container.
    pub(crate) fn container(&self, id: &ContainerId) -> Option<&ContainerEntry> {
        self.containers.get(id).map(|c| &c.entry)
    }

    /// When [`Table::tick`] is to be called at the latest.
    pub(crate) fn deadline(&self) -> Option<BootTime> {
        let containers = self.containers.values().filter_map(Container::deadline);
        let sandboxes = self.sandboxes.values().filter_map(Sandbox::deadline);
        let sessions = self.sessions.values().filter_map(Session::deadline);
        containers.chain(sandboxes).chain(sessions).min()
    }

    /// An ended child that the table does not know. It may be one whose report is still to be read, so as long as any
    /// child is at work its end is remembered.
    pub(crate) fn stray_ended(&mut self, pid: u32, how: Ended) {
        if self.creating == 0 && self.sessions.is_empty() {
            self.strays.clear();
            return;
        }
        if self.strays.len() >= MAX_STRAYS {
            self.strays.pop_front();
        }
        self.strays.push_back(Stray { pid, how });
    }

    /// How a process ended that was unknown at that time. Is it `here`, a child that is not reaped, then a stray of that
    /// number was another process, and is forgotten.
    fn take_stray(&mut self, pid: u32, here: bool) -> Option<Ended> {
        if here {
            self.strays.retain(|s| s.pid != pid);
            return None;
        }
        let at = self.strays.iter().rposition(|s| s.pid == pid)?;
        self.strays.remove(at).map(|s| s.how)
    }

    fn answer(&mut self, asker: Asker, reply: Reply) {
        self.effects.push(Effect::Answer(asker, reply));
    }

    fn done_or(&mut self, asker: Asker, result: Result<(), Refusal>) {
        let reply = match result {
            Ok(()) => Reply::Done,
            Err((code, message)) => Reply::Refused { code, message },
        };
        self.answer(asker, reply);
    }
}

/// The exit code that Kubernetes shows.
pub(crate) fn exit_code(how: Ended) -> (i32, Option<i32>) {
    match how {
        Ended::Code(code) => (code, None),
        Ended::Signal(signal) => (signal.saturating_add(128), Some(signal)),
    }
}

#[cfg(test)]
mod tests;
