//! What each ready descriptor means.

use super::Supervisor;
use crate::model::supervise::{ChildReport, SandboxEntry};
use crate::model::time::Now;
use crate::model::{ContainerId, PodUid};
use crate::supervisor::groups;
use crate::supervisor::link::Incoming;
use crate::supervisor::poller::Source;
use crate::supervisor::sandbox;
use crate::supervisor::streams;
use crate::supervisor::table::{EndedFirst, Who};
use crate::sys::children;
use crate::sys::signals;
use rustix::fd::AsFd as _;

/// Requests of one connection that are served before others have their turn.
const REQUESTS_AT_A_TIME: usize = 16;
/// Children reaped before others have their turn: a storm of orphans on process 1 must not hold up the rest.
const REAPED_AT_A_TIME: usize = 256;

impl Supervisor {
    pub(super) fn event(&mut self, source: &Source, now: Now) {
        match source {
            Source::Signals => self.signals(now),
            Source::Listener => self.accept(),
            Source::Link(number) => self.requests(*number, now),
            Source::Logger => self.logger(),
            Source::Report(id) => self.create_reports(id, now),
            Source::Console(id) => self.console(id, now),
            Source::Group(id) => self.group_changed(id, now),
            Source::ExecReport(session) => self.exec_reports(*session),
            Source::ExecConsole(session) => self.exec_console(*session),
            Source::ExecGroup(session) => self.left_group_changed(*session),
            Source::Helper(pod) => self.helper(pod, now),
            Source::LookOver => self.read_answer(),
            // Only the logger reads outputs.
            Source::Output(..) => {}
        }
    }

    /// The logger has something to say.
    fn logger(&mut self) {
        for id in self.logs.receive(&mut self.buffer) {
            self.table.drained(&id);
        }
    }

    fn accept(&mut self) {
        loop {
            match self.links.accept(self.listener.fd.as_fd(), &mut self.poller) {
                Ok(true) => {}
                Ok(false) => return,
                Err(e) => return tracing::warn!(error = %e, "a connection could not be taken"),
            }
        }
    }

    fn requests(&mut self, number: u64, now: Now) {
        for _ in 0..REQUESTS_AT_A_TIME {
            match self.links.receive(number, &mut self.buffer) {
                Incoming::Message(len, fd) => {
                    let message = self.buffer.get(..len).unwrap_or_default().to_vec();
                    self.request(number, &message, fd, now);
                    self.settle(now);
                }
                Incoming::TooLong => self.malformed(number, &[], "the message is too long"),
                Incoming::Nothing => return,
                Incoming::Gone => return self.links.close(number, &mut self.poller),
            }
        }
    }

    fn signals(&mut self, now: Now) {
        let mut children = false;
        while let Some(signal) = signals::next(&self.signals.fd) {
            match signal {
                libc::SIGCHLD => children = true,
                // To process 1 the kernel sends SIGINT for ctrl-alt-del, and busybox' `reboot` SIGTERM; its `halt` and
                // `poweroff` send SIGUSR1 and SIGUSR2, a UPS monitor SIGPWR.
                libc::SIGINT | libc::SIGTERM => self.shut_down(self.node.is_process_one(), now),
                _ => self.shut_down(false, now),
            }
        }
        if children {
            self.reap(now);
        }
    }

    /// Begins to stop the node. Without an agent the containers' first processes are told to end right here.
    pub(super) fn shut_down(&mut self, reboot: bool, now: Now) {
        let agent = self.links.agent().is_some();
        if self.node.begin_stop(reboot, agent, now) && !agent {
            for pid in self.table.running_pids() {
                let _ = signals::send(pid, libc::SIGTERM);
            }
        }
    }

    /// Reaps what has ended: looks first, so that everything the child said is read while its number is still its own.
    pub(super) fn reap(&mut self, now: Now) {
        self.reap_again = false;
        for _ in 0..REAPED_AT_A_TIME {
            let (pid, how) = match children::peek_ended() {
                Ok(Some(ended)) => ended,
                Ok(None) => return,
                Err(e) => return tracing::error!(error = %e, "looking for ended children failed"),
            };
            self.read_last_words(pid, now);
            // What follows may name the child by its number, which after reaping can be somebody else's.
            self.settle(now);
            let who = self.table.who(pid).cloned();
            let oom = matches!(&who, Some(Who::First(id)) if self.oom_killed(id));
            if let Err(e) = children::reap(pid) {
                return tracing::error!(pid, error = %e, "reaping failed");
            }
            self.ended(pid, who, EndedFirst { how, oom, at: now });
            self.settle(now);
        }
        // There may be more, and the signal that said so has been read.
        self.reap_again = true;
    }

    /// Reads the reports that may name or explain this child.
    fn read_last_words(&mut self, pid: u32, now: Now) {
        match self.table.who(pid).cloned() {
            Some(Who::Create(id)) => self.create_reports(&id, now),
            Some(Who::ExecChild(session)) => {
                self.exec_console(session);
                self.exec_reports(session);
            }
            Some(Who::Helper(pod)) => self.helper(&pod, now),
            Some(Who::First(_) | Who::ExecFirst(_)) => {}
            None if self.logs.pid() == Some(pid) => self.logger(),
            None if self.lookers.contains_key(&pid) => self.read_answer(),
            None => {
                let starting: Vec<ContainerId> = self.starting.keys().cloned().collect();
                for id in starting {
                    self.create_reports(&id, now);
                }
                let sessions: Vec<u64> = self.sessions.keys().copied().collect();
                for session in sessions {
                    self.exec_reports(session);
                }
            }
        }
    }

    fn oom_killed(&self, id: &ContainerId) -> bool {
        self.table.container(id).is_some_and(|c| self.groups.oom_kills(&c.cgroup) > 0)
    }

    fn ended(&mut self, pid: u32, who: Option<Who>, ended: EndedFirst) {
        match who {
            Some(Who::Create(id)) => self.table.create_ended(&id, pid, ended.how, ended.at),
            Some(Who::First(id)) => self.table.first_ended(&id, pid, ended),
            Some(Who::ExecChild(session)) => self.table.exec_child_ended(session, pid, ended.how),
            Some(Who::ExecFirst(session)) => self.table.exec_first_ended(session, pid, ended.how),
            Some(Who::Helper(pod)) => self.table.helper_ended(&pod, pid),
            None if self.logs.pid() == Some(pid) => {
                if self.logs.has_left() {
                    tracing::info!("the logger of the build before has left");
                } else {
                    tracing::error!(how = ?ended.how, "the logger ended");
                }
                self.logs.ended(&mut self.poller, ended.at);
            }
            None if self.lookers.contains_key(&pid) => self.looker_ended(pid, ended.how, ended.at),
            None if self.node.child_ended(pid, ended.how, ended.at) => {}
            None => {
                self.orphans = self.orphans.saturating_add(1);
                self.table.stray_ended(pid, ended.how);
            }
        }
    }

    fn create_reports(&mut self, id: &ContainerId, now: Now) {
        let Some(starting) = self.starting.get_mut(id) else { return };
        let read = starting.report.read();
        for report in read.reports {
            match report {
                Ok(report) => {
                    let ours = is_ours(&report);
                    self.table.create_report(id, report, ours, now);
                }
                Err(why) => self.table.start_failed(id, why, now),
            }
        }
        if read.closed {
            self.console(id, now);
            self.drop_starting(id);
        }
    }

    pub(super) fn drop_starting(&mut self, id: &ContainerId) {
        if let Some(starting) = self.starting.remove(id) {
            starting.report.close(&mut self.poller);
            if let Some(console) = starting.console {
                drop(self.poller.remove(console));
            }
        }
    }

    /// A create child sends its container's terminal.
    fn console(&mut self, id: &ContainerId, now: Now) {
        let Some(starting) = self.starting.get_mut(id) else { return };
        let Some(console) = starting.console.take() else { return };
        match streams::take_terminal(&console.fd) {
            Ok(None) => starting.console = Some(console),
            Ok(Some(terminal)) => {
                drop(self.poller.remove(console));
                if let Some(entry) = self.table.container(id) {
                    self.logs.open(id, &entry.pod, &entry.log_path, vec![terminal]);
                }
            }
            Err(_) => {
                drop(self.poller.remove(console));
                self.table.start_failed(id, "the create child sent no terminal".to_owned(), now);
            }
        }
    }

    pub(super) fn group_changed(&mut self, id: &ContainerId, now: Now) {
        let empty = self.emptying.get(id).is_none_or(|events| !groups::populated(&events.fd));
        if empty {
            if let Some(events) = self.emptying.remove(id) {
                drop(self.poller.remove(events));
            }
            self.table.group_empty(id, now);
        }
    }

    fn exec_reports(&mut self, session: u64) {
        let Some(streams) = self.sessions.get_mut(&session) else { return };
        let Some(pipe) = &mut streams.report else { return };
        let read = pipe.read();
        if read.closed
            && let Some(pipe) = streams.report.take()
        {
            pipe.close(&mut self.poller);
        }
        for report in read.reports {
            match report {
                Ok(report) => {
                    let ours = is_ours(&report);
                    self.table.exec_report(session, report, ours);
                }
                Err(why) => self.table.exec_failed(session, 128, why),
            }
        }
    }

    fn exec_console(&mut self, session: u64) {
        let Some(streams) = self.sessions.get_mut(&session) else { return };
        let Some(console) = streams.console.take() else { return };
        match streams::take_terminal(&console.fd) {
            Ok(None) => streams.console = Some(console),
            Ok(Some(terminal)) => {
                streams.outputs = vec![terminal];
                streams.terminal = true;
                drop(self.poller.remove(console));
                self.table.exec_terminal(session);
            }
            // Its report or its end says why.
            Err(_) => drop(self.poller.remove(console)),
        }
    }

    /// A sandbox helper has something to say, or has gone.
    fn helper(&mut self, pod: &PodUid, now: Now) {
        let Some((socket, _)) = self.helpers.get(pod) else { return };
        let Some(answer) = sandbox::answer(socket.fd.as_fd()) else { return };
        let Some((socket, spec)) = self.helpers.remove(pod) else { return };
        drop(self.poller.remove(socket));
        let made = answer.map(|namespaces| {
            let (ipcns, netns, utsns) = namespaces.paths();
            self.namespaces.insert(pod.clone(), namespaces);
            SandboxEntry {
                pod: spec.pod,
                attempt: spec.attempt,
                host_network: spec.host_network,
                netns,
                ipcns: Some(ipcns),
                utsns,
                created_at: now.boot,
                created_wall: now.wall,
            }
        });
        self.table.sandbox_made(pod, made);
    }
}

fn is_ours(report: &ChildReport) -> bool {
    matches!(report, ChildReport::Created { pid } if children::is_ours(*pid))
}
