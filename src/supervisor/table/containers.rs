//! A container attempt's way: queued, creating, running, ending, over.

use super::{Asker, Effect, Refusal, Table, Who, exit_code};
use crate::model::supervise::{ChildReport, ContainerEntry, ContainerState, Exit, RefusalCode, Reply, StartSpec};
use crate::model::time::Now;
use crate::model::{BootTime, ContainerId, Millis};
use crate::sys::children::Ended;
use serde::{Deserialize, Serialize};

/// The most containers, those included whose exit is not yet forgotten.
pub(crate) const MAX_CONTAINERS: usize = 1024;
/// The most requests that may wait for one container's start.
const MAX_ASKERS: usize = 8;
/// A container's name is a DNS label; this is only a bound on memory.
const MAX_NAME: usize = 256;
/// How long a killed cgroup may take to get empty before the exit is recorded all the same.
const EMPTY_WAIT: Millis = Millis(2000);
/// How long the logger may take to write the rest before the exit is recorded all the same.
const DRAIN_WAIT: Millis = Millis(2000);
/// A create child gets at least and at most this long.
const CREATE_LIMITS: (u64, u64) = (1_000, 600_000);

/// One attempt.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(super) struct Container {
    pub(super) entry: ContainerEntry,
    #[serde(default)]
    pub(super) bundle: String,
    phase: Phase,
    #[serde(default)]
    askers: Vec<Asker>,
}

#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", rename_all_fields = "camelCase")]
enum Phase {
    /// Waits for its turn: few create children work at a time.
    Queued,
    /// The create child works.
    Creating { child: Option<u32>, first: Option<u32>, first_ended: Option<EndedFirst>, deadline: BootTime },
    /// The program runs.
    Running { pid: u32 },
    /// The cgroup was told to die; `emptied` once that is so, then the log is finished.
    Ending { to: ContainerState, emptied: bool, deadline: BootTime },
    /// Nothing more will happen.
    Over,
}

/// How and when a container's first process ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct EndedFirst {
    /// How.
    pub(crate) how: Ended,
    /// The OOM killer was at work in the container's cgroup.
    pub(crate) oom: bool,
    /// When.
    pub(crate) at: Now,
}

impl Container {
    pub(super) fn deadline(&self) -> Option<BootTime> {
        match &self.phase {
            Phase::Creating { deadline, .. } | Phase::Ending { deadline, .. } => Some(*deadline),
            Phase::Queued | Phase::Running { .. } | Phase::Over => None,
        }
    }

    pub(super) fn running(&self) -> Option<u32> {
        match self.phase {
            Phase::Running { pid } => Some(pid),
            _ => None,
        }
    }

    pub(super) fn is_creating(&self) -> bool {
        matches!(self.phase, Phase::Creating { .. })
    }

    pub(super) fn is_over(&self) -> bool {
        matches!(self.phase, Phase::Over)
    }

    fn new(spec: &StartSpec, asker: Asker) -> Self {
        Self {
            entry: ContainerEntry {
                id: spec.id.clone(),
                pod: spec.pod.clone(),
                name: spec.name.clone(),
                attempt: spec.attempt,
                log_path: spec.log_path.clone(),
                cgroup: spec.cgroup.clone(),
                state: ContainerState::Creating,
            },
            bundle: spec.bundle.clone(),
            phase: Phase::Queued,
            askers: vec![asker],
        }
    }
}

impl Table {
    /// The agent asks to start a container.
    pub(crate) fn start(&mut self, spec: StartSpec, asker: Asker) {
        if let Some(known) = self.containers.get_mut(&spec.id) {
            if known.entry.state != ContainerState::Creating {
                let entry = known.entry.clone();
                self.answer(asker, Reply::Container(entry));
            } else if known.askers.len() < MAX_ASKERS {
                known.askers.push(asker);
            } else {
                self.done_or(asker, Err((RefusalCode::Exhausted, format!("start {}: asked too often", spec.id))));
            }
            return;
        }
        if let Err(refusal) = self.admit(&spec) {
            return self.done_or(asker, Err(refusal));
        }
        self.containers.insert(spec.id.clone(), Container::new(&spec, asker));
        self.queue.push_back(spec);
        self.next_create();
    }

    fn admit(&self, spec: &StartSpec) -> Result<(), Refusal> {
        let refuse = |code, why: &str| Err((code, format!("start {} of pod {}: {why}", spec.id, spec.pod)));
        if self.containers.len() >= MAX_CONTAINERS {
            return refuse(RefusalCode::Exhausted, "too many containers are kept");
        }
        if spec.name.len() > MAX_NAME {
            return refuse(RefusalCode::Malformed, "the container's name is too long");
        }
        if self.sandboxes.get(&spec.pod).and_then(super::Sandbox::entry).is_none() {
            return refuse(RefusalCode::NotFound, "the pod has no sandbox");
        }
        for (what, path, absolute) in
            [("cgroup", &spec.cgroup, false), ("bundle", &spec.bundle, true), ("log path", &spec.log_path, true)]
        {
            if !plain_path(path, absolute) {
                return refuse(RefusalCode::Malformed, &format!("{what} {path:?} is not a plain path"));
            }
        }
        let shared = self.containers.values().any(|c| !c.is_over() && c.entry.cgroup == spec.cgroup);
        if shared { refuse(RefusalCode::Conflict, "another container is in that cgroup") } else { Ok(()) }
    }

    /// Lets waiting creates go on while there is room.
    fn next_create(&mut self) {
        while self.creating < self.max_creating {
            let Some(spec) = self.queue.pop_front() else { return };
            let Some(container) = self.containers.get_mut(&spec.id) else { continue };
            if !matches!(container.phase, Phase::Queued) {
                continue;
            }
            // The deadline is set when the child exists; until then the driver is at work on it, in this very moment.
            container.phase =
                Phase::Creating { child: None, first: None, first_ended: None, deadline: BootTime(u64::MAX) };
            self.creating = self.creating.saturating_add(1);
            self.effects.push(Effect::Create(spec));
        }
    }

    /// The create child was spawned.
    pub(crate) fn create_spawned(&mut self, id: &ContainerId, pid: u32, timeout_ms: u64, now: Now) {
        let (least, most) = CREATE_LIMITS;
        if let Some(Container { phase: Phase::Creating { child, deadline, .. }, .. }) = self.containers.get_mut(id) {
            *child = Some(pid);
            *deadline = now.boot + Millis(timeout_ms.clamp(least, most));
            self.children.insert(pid, Who::Create(id.clone()));
            self.effects.push(Effect::Save(id.clone()));
        }
    }

    /// The create child could not be spawned, or reported something that cannot be.
    pub(crate) fn start_failed(&mut self, id: &ContainerId, message: String, now: Now) {
        self.fail(id, 128, "StartError".to_owned(), message, now);
    }

    /// A line from the create child. `ours` says whether the process id in it is a child of the supervisor.
    pub(crate) fn create_report(&mut self, id: &ContainerId, report: ChildReport, ours: bool, now: Now) {
        match report {
            ChildReport::Created { pid } => self.created(id, pid, ours, now),
            ChildReport::Started => self.started(id, now),
            ChildReport::Failed { code, reason, message } => self.fail(id, code, reason, message, now),
        }
    }

    fn created(&mut self, id: &ContainerId, pid: u32, ours: bool, now: Now) {
        let taken = self.children.contains_key(&pid);
        let stray = self.take_stray(pid, ours && !taken);
        let Some(Container { phase: Phase::Creating { first, first_ended, .. }, .. }) = self.containers.get_mut(id)
        else {
            return;
        };
        if first.is_some() || (stray.is_none() && (!ours || taken)) {
            let message = format!("the create child reported process {pid}, which cannot be the container's");
            return self.start_failed(id, message, now);
        }
        *first = Some(pid);
        match stray {
            Some(how) => *first_ended = Some(EndedFirst { how, oom: false, at: now }),
            None => {
                self.children.insert(pid, Who::First(id.clone()));
            }
        }
    }

    fn started(&mut self, id: &ContainerId, now: Now) {
        let Some(container) = self.containers.get_mut(id) else { return };
        let Phase::Creating { first, first_ended, .. } = &container.phase else { return };
        let Some(pid) = *first else {
            return self.start_failed(id, "the create child reported a start without a process".to_owned(), now);
        };
        let ended = *first_ended;
        container.entry.state = ContainerState::Running { pid, started_at: now.boot, started_wall: now.wall };
        container.phase = Phase::Running { pid };
        self.create_finished();
        self.effects.push(Effect::Save(id.clone()));
        self.tell_and_answer(id);
        if let Some(ended) = ended {
            self.end(id, ended);
        }
    }

    fn create_finished(&mut self) {
        self.creating = self.creating.saturating_sub(1);
        self.next_create();
    }

    fn tell_and_answer(&mut self, id: &ContainerId) {
        let Some(container) = self.containers.get_mut(id) else { return };
        let entry = container.entry.clone();
        for asker in std::mem::take(&mut container.askers) {
            self.effects.push(Effect::Answer(asker, Reply::Container(entry.clone())));
        }
        self.effects.push(Effect::Tell(id.clone()));
    }

    /// The create child was reaped, after its last report was read.
    pub(crate) fn create_ended(&mut self, id: &ContainerId, pid: u32, how: Ended, now: Now) {
        self.children.remove(&pid);
        self.effects.push(Effect::CreateGone(id.clone()));
        let Some(Container { phase: Phase::Creating { .. }, .. }) = self.containers.get(id) else { return };
        let message = match how {
            Ended::Code(code) => format!("the create child left with code {code} and no report"),
            Ended::Signal(signal) => format!("the create child was killed by signal {signal}"),
        };
        self.start_failed(id, message, now);
    }

    /// A container's first process was reaped.
    pub(crate) fn first_ended(&mut self, id: &ContainerId, pid: u32, ended: EndedFirst) {
        self.children.remove(&pid);
        match self.containers.get_mut(id).map(|c| &mut c.phase) {
            Some(Phase::Creating { first_ended, .. }) => *first_ended = Some(ended),
            Some(Phase::Running { .. }) => self.end(id, ended),
            Some(Phase::Queued | Phase::Ending { .. } | Phase::Over) | None => {}
        }
    }

    fn end(&mut self, id: &ContainerId, ended: EndedFirst) {
        let Some(container) = self.containers.get(id) else { return };
        let (started_at, started_wall) = match container.entry.state {
            ContainerState::Running { started_at, started_wall, .. } => (started_at, started_wall),
            _ => (ended.at.boot, ended.at.wall),
        };
        let (code, signal) = exit_code(ended.how);
        let exit = Exit {
            code,
            signal,
            oom_killed: ended.oom,
            known: true,
            started_at,
            started_wall,
            finished_at: ended.at.boot,
            finished_wall: ended.at.wall,
        };
        self.begin_ending(id, ContainerState::Exited(exit), ended.at);
    }

    fn fail(&mut self, id: &ContainerId, code: i32, reason: String, message: String, now: Now) {
        let Some(container) = self.containers.get(id) else { return };
        let Phase::Creating { child, .. } = container.phase else { return };
        self.begin_ending(
            id,
            ContainerState::StartFailed { code, reason, message, at: now.boot, at_wall: now.wall },
            now,
        );
        if child.is_some() {
            self.effects.push(Effect::KillCreate(id.clone()));
        }
        self.create_finished();
    }

    fn begin_ending(&mut self, id: &ContainerId, to: ContainerState, now: Now) {
        if let Some(container) = self.containers.get_mut(id) {
            container.phase = Phase::Ending { to, emptied: false, deadline: now.boot + EMPTY_WAIT };
            self.effects.push(Effect::KillGroup(id.clone()));
            // Exec children that are about to join the group.
            self.kill_sessions_of(id);
            self.effects.push(Effect::WatchEmpty(id.clone()));
        }
    }

    /// Nothing is left in the container's cgroup (or it was waited for long enough).
    pub(crate) fn group_empty(&mut self, id: &ContainerId, now: Now) {
        if let Some(Container { phase: Phase::Ending { emptied, deadline, .. }, .. }) = self.containers.get_mut(id)
            && !*emptied
        {
            *emptied = true;
            *deadline = now.boot + DRAIN_WAIT;
            self.effects.push(Effect::FinishLog(id.clone()));
        }
    }

    /// The logger has written all of the container's output (or it was waited for long enough).
    pub(crate) fn drained(&mut self, id: &ContainerId) {
        let Some(container) = self.containers.get_mut(id) else { return };
        let Phase::Ending { to, emptied: true, .. } = &container.phase else { return };
        container.entry.state = to.clone();
        container.phase = Phase::Over;
        self.effects.push(Effect::Record(id.clone()));
        self.tell_and_answer(id);
    }

    /// Moves on what has waited long enough.
    pub(super) fn tick_containers(&mut self, now: Now) {
        let due = |c: &&Container| c.deadline().is_some_and(|d| d <= now.boot);
        let due: Vec<ContainerId> = self.containers.values().filter(due).map(|c| c.entry.id.clone()).collect();
        for id in due {
            match self.containers.get(&id).map(|c| &c.phase) {
                Some(Phase::Creating { .. }) => {
                    self.start_failed(&id, "the container was not started in time".to_owned(), now);
                }
                Some(Phase::Ending { emptied: false, .. }) => self.group_empty(&id, now),
                Some(Phase::Ending { .. }) => self.drained(&id),
                Some(Phase::Queued | Phase::Running { .. } | Phase::Over) | None => {}
            }
        }
    }

    /// The agent asks to signal a container's first process.
    pub(crate) fn signal(&mut self, id: &ContainerId, signal: i32, asker: Asker) {
        let result = match self.containers.get(id) {
            _ if !(1..=64).contains(&signal) => Err((RefusalCode::Malformed, format!("no signal {signal}"))),
            None => Err(unknown("signal", id)),
            Some(c) => match c.phase {
                Phase::Queued | Phase::Creating { .. } => {
                    Err((RefusalCode::Conflict, format!("signal {id}: it is being created")))
                }
                Phase::Running { pid } => {
                    self.effects.push(Effect::Signal(pid, signal));
                    Ok(())
                }
                Phase::Ending { .. } | Phase::Over => Ok(()),
            },
        };
        self.done_or(asker, result);
    }

    /// The agent asks to kill all of a container.
    pub(crate) fn kill(&mut self, id: &ContainerId, asker: Asker, now: Now) {
        let result = self.kill_now(id, now);
        self.done_or(asker, result);
    }

    /// Kills all of a container, in whatever phase it is.
    pub(crate) fn kill_now(&mut self, id: &ContainerId, now: Now) -> Result<(), Refusal> {
        let container = self.containers.get_mut(id).ok_or_else(|| unknown("kill", id))?;
        match container.phase {
            Phase::Queued => {
                let message = "killed before it was created".to_owned();
                let reason = "StartError".to_owned();
                container.entry.state =
                    ContainerState::StartFailed { code: 128, reason, message, at: now.boot, at_wall: now.wall };
                container.phase = Phase::Over;
                self.queue.retain(|spec| spec.id != *id);
                self.effects.push(Effect::Record(id.clone()));
                self.tell_and_answer(id);
            }
            Phase::Creating { .. } => self.start_failed(id, "killed while it was created".to_owned(), now),
            Phase::Running { .. } | Phase::Ending { .. } => self.effects.push(Effect::KillGroup(id.clone())),
            Phase::Over => {}
        }
        Ok(())
    }

    /// The agent asks to forget an ended container.
    pub(crate) fn forget(&mut self, id: &ContainerId, asker: Asker) {
        let result = match self.containers.get(id) {
            Some(c) if !c.is_over() => Err((RefusalCode::Conflict, format!("forget {id}: it has not ended"))),
            Some(_) => {
                self.containers.remove(id);
                self.effects.push(Effect::Erase(id.clone()));
                Ok(())
            }
            None => Ok(()),
        };
        self.done_or(asker, result);
    }

    /// Takes in a container that an earlier supervisor wrote down, ended by now. `false`: there is no room.
    pub(crate) fn adopt_ended(&mut self, entry: ContainerEntry) -> bool {
        if self.containers.len() >= MAX_CONTAINERS {
            return false;
        }
        let container = Container { entry, bundle: String::new(), phase: Phase::Over, askers: Vec::new() };
        self.effects.push(Effect::Record(container.entry.id.clone()));
        self.containers.insert(container.entry.id.clone(), container);
        true
    }

    /// Takes in a container of an earlier supervisor whose processes may still live: they are killed, then it is `to`.
    pub(crate) fn adopt_survivor(&mut self, entry: ContainerEntry, to: ContainerState, now: Now) {
        if self.containers.len() < MAX_CONTAINERS {
            let id = entry.id.clone();
            let container = Container { entry, bundle: String::new(), phase: Phase::Queued, askers: Vec::new() };
            self.containers.insert(id.clone(), container);
            self.begin_ending(&id, to, now);
        }
    }

    /// The first processes of the running containers.
    pub(crate) fn running_pids(&self) -> Vec<u32> {
        self.containers.values().filter_map(Container::running).collect()
    }

    /// Ids of the containers that are not over.
    pub(crate) fn live(&self) -> Vec<ContainerId> {
        self.containers.values().filter(|c| !c.is_over()).map(|c| c.entry.id.clone()).collect()
    }
}

fn unknown(operation: &str, id: &ContainerId) -> Refusal {
    (RefusalCode::NotFound, format!("{operation} {id}: no such container"))
}

/// Whether a path says what it says: no empty, `.` or `..` part, no NUL.
fn plain_path(path: &str, absolute: bool) -> bool {
    let parts = if absolute { path.strip_prefix('/') } else { Some(path) };
    parts.is_some_and(|p| {
        p.len() < 4096 && !p.contains('\0') && p.split('/').all(|part| !matches!(part, "" | "." | ".."))
    })
}
