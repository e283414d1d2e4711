//! Performing what the table decided. What fails is said and, where a container depends on it, told to the table.

use super::{LeftGroup, Starting, Supervisor, TRIM_PAUSE};
use crate::model::supervise::{Notice, Reply, SandboxSpec, StartSpec};
use crate::model::time::Now;
use crate::model::{ContainerId, Millis};
use crate::supervisor::groups;
use crate::supervisor::poller::{Interest, Source};
use crate::supervisor::streams::{self, ReportPipe};
use crate::supervisor::table::{Asker, Effect};
use crate::supervisor::{roles, sandbox};
use crate::sys::signals;
use std::io;

/// A create child's group that is not empty yet is tried again after this time.
const STALE_PAUSE: Millis = Millis(100);
/// Groups of ended sessions that are watched at the same time. One beyond that stays until its container ends.
const MAX_LEFT_GROUPS: usize = 512;

impl Supervisor {
    pub(super) fn perform(&mut self, effect: Effect, now: Now) {
        match effect {
            Effect::Create(spec) => self.create(&spec, now),
            Effect::MakeSandbox(spec) => self.make_sandbox(spec),
            Effect::DropSandbox(pod) => {
                self.namespaces.remove(&pod);
                if let Some((socket, _)) = self.helpers.remove(&pod) {
                    drop(self.poller.remove(socket));
                }
            }
            Effect::KillGroup(id) => {
                if let Some(entry) = self.table.container(&id) {
                    warn("kill a container's group", self.groups.kill(&entry.cgroup));
                }
            }
            Effect::KillCreate(id) => warn("kill a create child", self.groups.kill(&self.create_group(&id))),
            Effect::CreateGone(id) => {
                self.trim_at = Some(now.boot + TRIM_PAUSE);
                self.drop_starting(&id);
                self.remove_group_soon(self.create_group(&id), now);
            }
            Effect::WatchEmpty(id) => self.watch_empty(&id, now),
            Effect::FinishLog(id) => self.finish_log(&id),
            Effect::Save(id) => {
                if let Some(entry) = self.table.container(&id) {
                    warn("write down a container", self.records.save(entry));
                }
            }
            Effect::Record(id) => self.record(&id),
            Effect::Erase(id) => {
                self.changed.remove(&id);
                self.logs.forget(&id);
                warn("erase a record", self.records.erase(&id));
            }
            Effect::Signal(pid, signal) => warn("send a signal", signals::send(pid, signal)),
            Effect::Tell(id) => {
                self.changed.insert(id);
            }
            Effect::Answer(asker, reply) => self.reply(asker, reply),
            Effect::AnswerExec(session, asker) => self.answer_exec(session, asker),
            Effect::KillSession(session) => self.kill_session(session),
            Effect::SessionOver { session, asker, exit, .. } => {
                self.drop_session(session);
                let notice = Notice::ExecExited { session, exit };
                self.links.send(asker.link, &crate::model::supervise::Message::Notice { notice }, Vec::new());
            }
        }
    }

    fn create(&mut self, spec: &StartSpec, now: Now) {
        match self.spawn_create(spec) {
            Ok(pid) => {
                self.creates = self.creates.saturating_add(1);
                self.table.create_spawned(&spec.id, pid, spec.timeout_ms, now);
            }
            Err(e) => {
                self.remove_group_soon(self.create_group(&spec.id), now);
                self.table.start_failed(&spec.id, format!("start the create child: {e}"), now);
            }
        }
    }

    fn spawn_create(&mut self, spec: &StartSpec) -> io::Result<u32> {
        let (child, own) = streams::make(spec.tty, spec.stdin)?;
        let report = self.poller.add(own.report, Source::Report(spec.id.clone()), Interest::Read)?;
        let starting = Starting { report: ReportPipe::new(report), console: None };
        let starting = self.starting.entry(spec.id.clone()).insert_entry(starting).into_mut();
        if let Some(console) = own.console {
            starting.console = Some(self.poller.add(console, Source::Console(spec.id.clone()), Interest::Read)?);
        }
        if let Some((stdout, stderr)) = own.outputs {
            self.logs.open(&spec.id, &spec.pod, &spec.log_path, vec![stdout, stderr]);
        }
        if let Some(stdin) = own.stdin {
            self.stdins.insert(spec.id.clone(), stdin);
        }
        roles::create(&self.exe, &self.groups, &self.create_group(&spec.id), &spec.bundle, &child)
    }

    fn make_sandbox(&mut self, spec: SandboxSpec) {
        let pod = spec.pod.clone();
        let made = sandbox::spawn(&spec).and_then(|(pid, socket)| {
            self.table.helper_spawned(&pod, pid);
            self.poller.add(socket, Source::Helper(pod.clone()), Interest::Read)
        });
        match made {
            Ok(socket) => drop(self.helpers.insert(pod, (socket, spec))),
            Err(e) => self.table.sandbox_made(&pod, Err(format!("start the helper: {e}"))),
        }
    }

    fn watch_empty(&mut self, id: &ContainerId, now: Now) {
        let Some(entry) = self.table.container(id) else { return };
        let events = match self.groups.events(&entry.cgroup) {
            Ok(events) => events,
            Err(e) => {
                tracing::warn!(container = %id, error = %e, "the cgroup cannot be watched");
                None
            }
        };
        if let Some(events) = events {
            // Watched before it is looked at, so that no change is missed in between.
            match self.poller.add(events, Source::Group(id.clone()), Interest::Priority) {
                Ok(events) => drop(self.emptying.insert(id.clone(), events)),
                Err(e) => tracing::warn!(container = %id, error = %e, "the cgroup cannot be watched"),
            }
        }
        self.group_changed(id, now);
    }

    fn finish_log(&mut self, id: &ContainerId) {
        self.stdins.remove(id);
        if let Some(events) = self.emptying.remove(id) {
            drop(self.poller.remove(events));
        }
        if !self.logs.finish(id) {
            self.table.drained(id);
        }
    }

    fn record(&mut self, id: &ContainerId) {
        self.drop_starting(id);
        self.stdins.remove(id);
        if let Some(entry) = self.table.container(id) {
            // Whoever joined after the first time is too late.
            warn("kill a container's group", self.groups.kill(&entry.cgroup));
            self.groups.remove_sessions(&entry.cgroup);
            let below = format!("{}/", entry.cgroup);
            for (_, left) in self.left_groups.extract_if(.., |_, left| left.cgroup.starts_with(&below)) {
                drop(self.poller.remove(left.events));
            }
            warn("write an exit record", self.records.record(entry));
        }
    }

    fn answer_exec(&mut self, session: u64, asker: Asker) {
        let mut fds = Vec::new();
        if let Some(streams) = self.sessions.get_mut(&session) {
            warn("set a terminal's size", streams.apply_size());
            fds.extend(streams.stdin.take());
            fds.extend(streams.outputs.iter().filter_map(|fd| fd.try_clone().ok()));
        }
        self.links.reply(asker.link, asker.seq, Reply::Exec { session }, fds);
    }

    fn kill_session(&mut self, session: u64) {
        if let Some(streams) = self.sessions.get(&session) {
            warn("kill a session's group", self.groups.kill(&streams.cgroup));
        }
        for pid in self.table.session_pids(session) {
            warn("kill a session", signals::send(pid, libc::SIGKILL));
        }
    }

    /// Lets a session's descriptors go, and its group: at once, or when what the program left running has ended, be it
    /// only a process that is just dying.
    pub(super) fn drop_session(&mut self, session: u64) {
        let Some(streams) = self.sessions.remove(&session) else { return };
        if let Some(report) = streams.report {
            report.close(&mut self.poller);
        }
        if let Some(console) = streams.console {
            drop(self.poller.remove(console));
        }
        if self.groups.remove(&streams.cgroup).is_err() && self.left_groups.len() < MAX_LEFT_GROUPS {
            self.watch_left_group(session, streams.cgroup);
        }
    }

    fn watch_left_group(&mut self, session: u64, cgroup: String) {
        let Ok(Some(events)) = self.groups.events(&cgroup) else { return };
        // Watched before it is looked at, so that no change is missed in between.
        match self.poller.add(events, Source::ExecGroup(session), Interest::Priority) {
            Ok(events) => {
                self.left_groups.insert(session, LeftGroup { cgroup, events });
                self.left_group_changed(session);
            }
            Err(e) => tracing::warn!(cgroup, error = %e, "the group of a session cannot be watched"),
        }
    }

    /// Removes the group of a session that is over, if it is empty.
    pub(super) fn left_group_changed(&mut self, session: u64) {
        if let Some(left) = self.left_groups.remove(&session) {
            if groups::populated(&left.events.fd) {
                self.left_groups.insert(session, left);
                return;
            }
            drop(self.poller.remove(left.events));
            // One with groups of the container's own in it stays until the container ends.
            let _ = self.groups.remove(&left.cgroup);
        }
    }

    fn create_group(&self, id: &ContainerId) -> String {
        self.groups.own(&format!("create-{id}"))
    }

    /// Removes a create child's group, now or when its last process has gone.
    pub(super) fn remove_group_soon(&mut self, group: String, now: Now) {
        warn("kill what a create child left", self.groups.kill(&group));
        if self.groups.remove(&group).is_err() {
            self.stale_groups.insert(group);
            self.stale_at = Some(now.boot + STALE_PAUSE);
        }
    }

    pub(super) fn remove_stale_groups(&mut self, now: Now) {
        if self.stale_at.is_some_and(|at| at <= now.boot) {
            let groups = &self.groups;
            self.stale_groups.retain(|group| groups.remove(group).is_err());
            self.stale_at = (!self.stale_groups.is_empty()).then(|| now.boot + STALE_PAUSE);
        }
    }
}

pub(super) fn warn<T>(operation: &str, result: io::Result<T>) {
    if let Err(e) = result {
        tracing::warn!(operation, error = %e, "failed");
    }
}
