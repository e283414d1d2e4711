//! Exec sessions: a program run in a running container.

use super::{Asker, Effect, Refusal, Table, Who, exit_code};
use crate::model::supervise::{ChildReport, ExecExit, ExecSpec, RefusalCode};
use crate::model::time::Now;
use crate::model::{BootTime, ContainerId, Millis};
use crate::sys::children::Ended;
use serde::{Deserialize, Serialize};

pub(super) const MAX_SESSIONS: usize = 128;
/// How long the exec child may take until the program runs.
const READY_WAIT: Millis = Millis(30_000);
/// How long a killed session is waited for before it is told as over.
const KILL_WAIT: Millis = Millis(2_000);
/// What a session still gets once another agent is there than the one that asked for it: nobody can have its output any
/// more, but what it began may be about to end by itself.
const ORPHAN_WAIT: Millis = Millis(5_000);

/// One session.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Session {
    container: ContainerId,
    asker: Asker,
    child: u32,
    first: Option<u32>,
    started: bool,
    /// The exec request was answered: at once without a terminal, else when the terminal has come.
    answered: bool,
    ready_by: BootTime,
    kill_at: Option<BootTime>,
    /// Killed because its time was over; told as such at the latest then.
    timed_out: Option<BootTime>,
    /// The agent asked to kill it.
    killed: bool,
    /// The program ended before the child's report of its start was read.
    ended: Option<Ended>,
}

impl Session {
    pub(super) fn deadline(&self) -> Option<BootTime> {
        if self.timed_out.is_some() {
            return self.timed_out;
        }
        let ready = (!self.started).then_some(self.ready_by);
        [ready, self.kill_at].into_iter().flatten().min()
    }
}

/// What the driver needs to start a session.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct ExecPlan {
    /// The session's number.
    pub(crate) session: u64,
    /// The container's first process.
    pub(crate) pid: u32,
    /// The container's bundle.
    pub(crate) bundle: String,
    /// The cgroup for the program, to be made.
    pub(crate) cgroup: String,
}

/// The cgroup of a session's program, below the container's.
pub(crate) fn session_group(container_group: &str, session: u64) -> String {
    format!("{container_group}/exec-{session}")
}

impl Table {
    /// Whether a program may be run, and as what.
    ///
    /// # Errors
    /// The refusal to answer.
    pub(crate) fn admit_exec(&mut self, spec: &ExecSpec) -> Result<ExecPlan, Refusal> {
        let refuse = |code, why: &str| Err((code, format!("exec in {}: {why}", spec.id)));
        let Some(container) = self.containers.get(&spec.id) else {
            return refuse(RefusalCode::NotFound, "no such container");
        };
        let Some(pid) = container.running() else {
            return refuse(RefusalCode::Conflict, "the container does not run");
        };
        if self.sessions.len() >= MAX_SESSIONS {
            return refuse(RefusalCode::Exhausted, "too many sessions");
        }
        if spec.command.first().is_none_or(String::is_empty) || spec.command.iter().any(|a| a.contains('\0')) {
            return refuse(RefusalCode::Malformed, "the command is empty or holds a NUL");
        }
        self.last_session = self.last_session.wrapping_add(1);
        let cgroup = session_group(&container.entry.cgroup, self.last_session);
        Ok(ExecPlan { session: self.last_session, pid, bundle: container.bundle.clone(), cgroup })
    }

    /// The exec child was spawned.
    pub(crate) fn exec_spawned(&mut self, session: u64, spec: &ExecSpec, child: u32, asker: Asker, now: Now) {
        let kill_at = spec.timeout_ms.map(|ms| now.boot + Millis(ms));
        let ready_by = now.boot + READY_WAIT;
        let container = spec.id.clone();
        let answered = !spec.tty;
        self.children.insert(child, Who::ExecChild(session));
        self.sessions.insert(
            session,
            Session {
                container,
                asker,
                child,
                first: None,
                started: false,
                answered,
                ready_by,
                kill_at,
                timed_out: None,
                killed: false,
                ended: None,
            },
        );
        if answered {
            self.effects.push(Effect::AnswerExec(session, asker));
        }
    }

    /// The child has sent the terminal.
    pub(crate) fn exec_terminal(&mut self, session: u64) {
        if let Some(s) = self.sessions.get_mut(&session)
            && !s.answered
        {
            s.answered = true;
            self.effects.push(Effect::AnswerExec(session, s.asker));
        }
    }

    /// A line from the exec child. `ours` says whether the process id in it is a child of the supervisor.
    pub(crate) fn exec_report(&mut self, session: u64, report: ChildReport, ours: bool) {
        match report {
            ChildReport::Created { pid } => self.exec_created(session, pid, ours),
            ChildReport::Started => {
                if let Some(s) = self.sessions.get_mut(&session) {
                    s.started = true;
                    if let Some(how) = s.ended {
                        self.exec_over(session, ExecExit::Exited { code: exit_code(how).0 });
                    }
                }
            }
            ChildReport::Failed { code, message, .. } => self.exec_failed(session, code, message),
        }
    }

    fn exec_created(&mut self, session: u64, pid: u32, ours: bool) {
        let taken = self.children.contains_key(&pid);
        let stray = self.take_stray(pid, ours && !taken);
        let Some(s) = self.sessions.get_mut(&session) else { return };
        let itself = pid == s.child;
        if s.first.is_some() || (stray.is_none() && !itself && (!ours || taken)) {
            let message = format!("the exec child reported process {pid}, which cannot be the program's");
            return self.exec_failed(session, 128, message);
        }
        s.first = Some(pid);
        match stray {
            Some(how) => s.ended = Some(how),
            None => {
                self.children.insert(pid, Who::ExecFirst(session));
            }
        }
    }

    /// Something went wrong before the program ran.
    pub(crate) fn exec_failed(&mut self, session: u64, code: i32, message: String) {
        if self.sessions.contains_key(&session) {
            self.effects.push(Effect::KillSession(session));
            self.exec_over(session, ExecExit::Failed { code, message });
        }
    }

    /// The exec child was reaped, after its last report was read.
    pub(crate) fn exec_child_ended(&mut self, session: u64, pid: u32, how: Ended) {
        self.children.remove(&pid);
        let Some(s) = self.sessions.get(&session) else { return };
        let code = exit_code(how).0;
        match s.first {
            // It became the program itself.
            None if s.started || s.killed => self.exec_over(session, ExecExit::Exited { code }),
            _ if !s.started && s.timed_out.is_none() && !s.killed => {
                self.exec_failed(session, 128, format!("the exec child ended with code {code} and no report"));
            }
            None => self.exec_over(session, ExecExit::TimedOut),
            Some(_) => {}
        }
    }

    /// The session's program was reaped.
    pub(crate) fn exec_first_ended(&mut self, session: u64, pid: u32, how: Ended) {
        self.children.remove(&pid);
        let Some(s) = self.sessions.get_mut(&session) else { return };
        if s.started || s.killed || s.timed_out.is_some() {
            self.exec_over(session, ExecExit::Exited { code: exit_code(how).0 });
        } else if s.child == pid {
            self.exec_child_ended(session, pid, how);
        } else {
            s.ended = Some(how);
        }
    }

    fn exec_over(&mut self, session: u64, exit: ExecExit) {
        let Some(s) = self.sessions.remove(&session) else { return };
        if !s.answered {
            self.effects.push(Effect::AnswerExec(session, s.asker));
        }
        let exit = if s.timed_out.is_some() { ExecExit::TimedOut } else { exit };
        self.effects.push(Effect::SessionOver { session, asker: s.asker, container: s.container, exit });
    }

    /// The processes of a session: its program, and the child that starts it.
    pub(crate) fn session_pids(&self, session: u64) -> Vec<u32> {
        let of = |(pid, who): (&u32, &Who)| {
            matches!(who, Who::ExecChild(s) | Who::ExecFirst(s) if *s == session).then_some(*pid)
        };
        self.children.iter().filter_map(of).collect()
    }

    /// The container ends, and with it its sessions.
    pub(super) fn kill_sessions_of(&mut self, id: &ContainerId) {
        let of = self.sessions.iter().filter(|(_, s)| s.container == *id).map(|(n, _)| Effect::KillSession(*n));
        self.effects.extend(of);
    }

    /// The agent asks to kill a session.
    pub(crate) fn kill_session(&mut self, session: u64, asker: Asker) {
        // One that is over needs no killing: that it ended may not have been read yet.
        if let Some(s) = self.sessions.get_mut(&session) {
            s.killed = true;
            self.effects.push(Effect::KillSession(session));
        }
        self.done_or(asker, Ok(()));
    }

    /// Another agent is there, or the same one again: sessions that others asked for have lost the end of their streams,
    /// and would hold their places for as long as they like.
    pub(crate) fn agent_changed(&mut self, link: u64, now: Now) {
        let end = now.boot + ORPHAN_WAIT;
        for session in self.sessions.values_mut().filter(|s| s.asker.link != link) {
            session.kill_at = Some(session.kill_at.map_or(end, |at| at.min(end)));
        }
    }

    /// Kills what has run long enough.
    pub(super) fn tick_sessions(&mut self, now: Now) {
        let due = |s: &Session| s.deadline().is_some_and(|d| d <= now.boot);
        let due: Vec<u64> = self.sessions.iter().filter(|(_, s)| due(s)).map(|(n, _)| *n).collect();
        for session in due {
            let Some(s) = self.sessions.get_mut(&session) else { continue };
            if s.timed_out.is_some() {
                self.exec_over(session, ExecExit::TimedOut);
            } else if s.kill_at.is_some_and(|at| at <= now.boot) {
                s.timed_out = Some(now.boot + KILL_WAIT);
                self.effects.push(Effect::KillSession(session));
            } else {
                self.exec_failed(session, 128, "the program was not started in time".to_owned());
            }
        }
    }
}
