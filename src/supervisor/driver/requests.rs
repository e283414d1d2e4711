//! What agents ask.

use super::Supervisor;
use crate::model::supervise::{
    Ask, ExecOrder, ExecSpec, LogLines, MAX_MESSAGE, PROTOCOL, RefusalCode, Reply, Request, Stats,
};
use crate::model::time::Now;
use crate::supervisor::driver::Streams;
use crate::supervisor::poller::{Interest, Source};
use crate::supervisor::roles;
use crate::supervisor::streams::{self, ReportPipe};
use crate::supervisor::table::{Asker, ExecPlan};
use crate::sys::{build, exe, log};
use rustix::fd::OwnedFd;
use rustix::termios::{Winsize, tcsetwinsize};
use serde::Deserialize;
use std::io;

/// Bytes of the log in one answer: written as JSON they have room in a message, also when each is escaped.
const LOG_PART: usize = MAX_MESSAGE / 2 - 4096;

impl Supervisor {
    pub(super) fn request(&mut self, link: u64, message: &[u8], fd: Option<OwnedFd>, now: Now) {
        let request: Request = match serde_json::from_slice(message) {
            Ok(request) => request,
            Err(e) => return self.malformed(link, message, &format!("the message cannot be read: {e}")),
        };
        let asker = Asker { link, seq: request.seq };
        let open_to_all =
            matches!(request.ask, Ask::Hello { .. } | Ask::Stats | Ask::HandOver { .. } | Ask::Log { .. });
        if !open_to_all && self.links.agent() != Some(link) {
            return self.refuse(asker, RefusalCode::Conflict, "say hello first");
        }
        self.ask(asker, request.ask, fd, now);
    }

    fn ask(&mut self, asker: Asker, ask: Ask, fd: Option<OwnedFd>, now: Now) {
        match ask {
            Ask::Hello { version, logs, build, .. } => {
                tracing::info!(version, build, "an agent said hello");
                self.logs.set_limits(logs);
                self.hello(asker);
                self.table.agent_changed(asker.link, now);
            }
            Ask::CreateSandbox(spec) => self.table.create_sandbox(spec, asker, now),
            Ask::RemoveSandbox { pod } => self.table.remove_sandbox(&pod, asker),
            Ask::Start(spec) => self.table.start(spec, asker),
            Ask::Signal { id, signal } => self.table.signal(&id, signal, asker),
            Ask::Kill { id } => self.table.kill(&id, asker, now),
            Ask::Forget { id } => self.table.forget(&id, asker),
            Ask::Exec(spec) => self.exec(spec, asker, now),
            Ask::ResizeExec { session, width, height } => self.resize(asker, session, width, height),
            Ask::KillExec { session } => self.table.kill_session(session, asker),
            Ask::Stats => {
                let stats = self.stats();
                self.reply(asker, Reply::Stats(stats));
            }
            Ask::HandOver { build } => self.take_offer(asker, build, fd, now),
            Ask::Log { after } => self.answer_log(asker, after),
            Ask::SetLogLevel { level } => {
                log::set_level(level);
                self.reply(asker, Reply::Done);
            }
            Ask::PowerOff { reboot } => {
                if self.node.is_process_one() {
                    self.node.power_off(reboot);
                    self.reply(asker, Reply::Done);
                } else {
                    self.refuse(asker, RefusalCode::Conflict, "the supervisor is not process 1");
                }
            }
        }
    }

    pub(super) fn malformed(&mut self, link: u64, message: &[u8], why: &str) {
        /// The part of a request that may be readable when the rest is not.
        #[derive(Deserialize)]
        struct Numbered {
            seq: u64,
        }
        let seq = serde_json::from_slice(message).map_or(0, |n: Numbered| n.seq);
        self.refuse(Asker { link, seq }, RefusalCode::Malformed, why);
    }

    pub(super) fn refuse(&mut self, asker: Asker, code: RefusalCode, message: &str) {
        self.reply(asker, Reply::Refused { code, message: message.to_owned() });
    }

    pub(super) fn reply(&mut self, asker: Asker, reply: Reply) {
        self.links.reply(asker.link, asker.seq, reply, Vec::new());
    }

    /// Tells a new agent all there is. From now on it is told what changes.
    fn hello(&mut self, asker: Asker) {
        self.links.greet(asker.link, &mut self.poller);
        self.changed.clear();
        self.log_shown = None;
        self.node.agent_changed();
        let boot_id = std::fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap_or_default();
        let welcome = Reply::Welcome {
            version: PROTOCOL,
            build: build::identity().to_owned(),
            boot_id: boot_id.trim().to_owned(),
            pid: std::process::id(),
            stopping: self.node.is_stopping(),
            #[cfg(feature = "other-build")]
            unheard_of: 1,
        };
        let pods = self.table.sandbox_entries().map(|e| Reply::Pod(e.clone()));
        let containers = self.table.container_entries().map(|e| Reply::Container(e.clone()));
        let replies: Vec<Reply> = [welcome].into_iter().chain(pods).chain(containers).chain([Reply::Done]).collect();
        for reply in replies {
            self.reply(asker, reply);
        }
    }

    fn stats(&self) -> Stats {
        Stats {
            pid: std::process::id(),
            logger_pid: self.logs.pid(),
            logger_restarts: self.logs.restarts(),
            creates: self.creates,
            orphans_reaped: self.orphans,
            log_bytes_dropped: self.logs.dropped_total(),
            build: build::identity().to_owned(),
            hand_overs: self.hand_overs,
            log_level: Some(log::level()),
        }
    }

    fn answer_log(&mut self, asker: Asker, after: u64) {
        let log::Lines { text, next, missed } = log::lines_after(after, LOG_PART);
        if self.links.agent() == Some(asker.link) {
            self.log_shown = Some(next);
        }
        self.reply(asker, Reply::Log(LogLines { pid: std::process::id(), text, next, missed }));
    }

    fn exec(&mut self, spec: ExecSpec, asker: Asker, now: Now) {
        let plan = match self.table.admit_exec(&spec) {
            Ok(plan) => plan,
            Err((code, message)) => return self.refuse(asker, code, &message),
        };
        match self.spawn_exec(&spec, &plan) {
            Ok(pid) => self.table.exec_spawned(plan.session, &spec, pid, asker, now),
            Err(e) => {
                self.drop_session(plan.session);
                let _ = self.groups.remove(&plan.cgroup);
                self.refuse(asker, RefusalCode::System, &format!("exec in {}: {e}", spec.id));
            }
        }
    }

    fn spawn_exec(&mut self, spec: &ExecSpec, plan: &ExecPlan) -> io::Result<u32> {
        self.groups.make(&plan.cgroup)?;
        let order =
            ExecOrder { spec: spec.clone(), pid: plan.pid, bundle: plan.bundle.clone(), cgroup: plan.cgroup.clone() };
        let order = exe::sealed_bytes("order", &serde_json::to_vec(&order)?)?;
        let (child, own) = streams::make(spec.tty, spec.stdin)?;
        // All that can fail comes before the child: one that nobody knew of would run on.
        let report = self.poller.add(own.report, Source::ExecReport(plan.session), Interest::Read)?;
        let streams = Streams {
            cgroup: plan.cgroup.clone(),
            report: Some(ReportPipe::new(report)),
            console: None,
            stdin: own.stdin,
            outputs: own.outputs.map(|(out, err)| vec![out, err]).unwrap_or_default(),
            terminal: false,
            size: spec.size,
        };
        let streams = self.sessions.entry(plan.session).insert_entry(streams).into_mut();
        if let Some(console) = own.console {
            streams.console = Some(self.poller.add(console, Source::ExecConsole(plan.session), Interest::Read)?);
        }
        roles::exec(&self.exe, &self.groups, &child, &order)
    }

    fn resize(&mut self, asker: Asker, session: u64, width: u16, height: u16) {
        let Some(streams) = self.sessions.get_mut(&session) else {
            return self.refuse(asker, RefusalCode::NotFound, &format!("resize: no session {session}"));
        };
        streams.size = Some((width, height));
        let result = streams.apply_size();
        match result {
            Ok(()) => self.reply(asker, Reply::Done),
            Err(e) => self.refuse(asker, RefusalCode::System, &format!("resize session {session}: {e}")),
        }
    }
}

impl Streams {
    /// Gives the terminal its size. Without a terminal, or before it has come, the size is only remembered.
    pub(super) fn apply_size(&self) -> io::Result<()> {
        let (true, Some((width, height)), Some(terminal)) = (self.terminal, self.size, self.outputs.first()) else {
            return Ok(());
        };
        let size = Winsize { ws_col: width, ws_row: height, ws_xpixel: 0, ws_ypixel: 0 };
        Ok(tcsetwinsize(terminal, size)?)
    }
}
