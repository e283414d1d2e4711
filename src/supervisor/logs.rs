//! The supervisor's side of the logger: what it has been told, and what it still has to be told. A logger that does
//! not listen is not waited for; one that dies is replaced, and finds the pipes that were kept here.

use super::groups::Groups;
use super::hand_over::Number;
use super::hand_over::claims::Claims;
use super::logger::protocol::{Order, Report};
use super::poller::{Interest, Poller, Source, Watched};
use super::roles::{self, Role};
use crate::model::supervise::{LogLimits, role};
use crate::model::time::Now;
use crate::model::{BootTime, ContainerId, Millis, PodUid};
use crate::sys::{log, seqpacket};
use rustix::fd::{AsFd, BorrowedFd, OwnedFd};
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};

/// What is kept of a container's output.
#[derive(Debug)]
struct Kept {
    pod: PodUid,
    path: String,
    /// A terminal, or standard output and standard error.
    fds: Vec<OwnedFd>,
    opened: bool,
    finish: bool,
    finish_sent: bool,
    /// Lines that a logger which has left had begun to read, for the next.
    halves: [Option<OwnedFd>; 2],
}

/// The same, as it is handed over.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
struct HandedLog {
    pod: PodUid,
    path: String,
    fds: Vec<Number>,
    #[serde(default)]
    opened: bool,
    #[serde(default)]
    finish: bool,
    #[serde(default)]
    finish_sent: bool,
    #[serde(default)]
    halves: [Option<Number>; 2],
}

/// The logger, and all that it writes, as they are handed over.
#[derive(Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct HandedLogs {
    pid: Option<u32>,
    socket: Option<Number>,
    limits: Option<LogLimits>,
    limits_sent: bool,
    kept: BTreeMap<ContainerId, HandedLog>,
    starts: u32,
    start_at: Option<BootTime>,
    pause: Millis,
    started: BootTime,
    dropped: BTreeMap<ContainerId, u64>,
    untold: BTreeSet<ContainerId>,
    dropped_total: u64,
}

impl HandedLogs {
    pub(crate) fn numbers(&self) -> Vec<Number> {
        let of = |log: &HandedLog| -> Vec<Number> {
            log.fds.iter().copied().chain(log.halves.iter().copied().flatten()).collect()
        };
        self.kept.values().flat_map(of).chain(self.socket).collect()
    }
}

/// Ended containers whose output a hanging logger has not yet written; older ones are given up.
const MAX_UNWRITTEN: usize = 256;
const LONGEST_PAUSE: Millis = Millis(5_000);

/// The logger and all that it writes.
#[derive(Debug)]
pub(crate) struct Logs {
    pid: Option<u32>,
    socket: Option<Watched>,
    limits: LogLimits,
    limits_sent: bool,
    kept: BTreeMap<ContainerId, Kept>,
    waits: bool,
    /// The logger is of another build: it is to leave.
    leave: Leave,
    /// Loggers started.
    starts: u32,
    /// When the next may be started.
    start_at: Option<BootTime>,
    pause: Millis,
    started: BootTime,
    /// Bytes that loggers could not keep, by container.
    dropped: BTreeMap<ContainerId, u64>,
    /// Those of them whose number has changed since an agent was told.
    untold: BTreeSet<ContainerId>,
    dropped_total: u64,
}

/// How far a logger of another build is on its way out.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Leave {
    No,
    /// To be told.
    Due,
    Told,
}

/// What holds until an agent says otherwise: the kubelet's defaults, and a budget that fits a small board.
pub(crate) const FIRST_LIMITS: LogLimits = LogLimits { max_size: 10 << 20, max_files: 5, node_budget: 256 << 20 };

impl Logs {
    pub(crate) fn new() -> Self {
        Self {
            pid: None,
            socket: None,
            limits: FIRST_LIMITS,
            limits_sent: false,
            kept: BTreeMap::new(),
            waits: false,
            leave: Leave::No,
            starts: 0,
            start_at: Some(BootTime(0)),
            pause: Millis(0),
            started: BootTime(0),
            dropped: BTreeMap::new(),
            untold: BTreeSet::new(),
            dropped_total: 0,
        }
    }

    pub(crate) fn hand(&self) -> HandedLogs {
        let log = |(id, kept): (&ContainerId, &Kept)| {
            let handed = HandedLog {
                pod: kept.pod.clone(),
                path: kept.path.clone(),
                fds: kept.fds.iter().map(Number::of).collect(),
                opened: kept.opened,
                finish: kept.finish,
                finish_sent: kept.finish_sent,
                halves: [0, 1].map(|index| kept.halves.get(index)?.as_ref().map(Number::of)),
            };
            (id.clone(), handed)
        };
        HandedLogs {
            pid: self.pid,
            socket: self.socket.as_ref().map(|s| Number::of(&s.fd)),
            limits: Some(self.limits.clone()),
            limits_sent: self.limits_sent,
            kept: self.kept.iter().map(log).collect(),
            starts: self.starts,
            start_at: self.start_at,
            pause: self.pause,
            started: self.started,
            dropped: self.dropped.clone(),
            untold: self.untold.clone(),
            dropped_total: self.dropped_total,
        }
    }

    /// Goes on with another build's logger, which is asked to leave.
    pub(crate) fn adopt(handed: HandedLogs, poller: &mut Poller, claims: &mut Claims) -> Self {
        let mut log = |(id, log): (ContainerId, HandedLog)| {
            let kept = Kept {
                pod: log.pod,
                path: log.path,
                fds: claims.take_all(&log.fds),
                opened: log.opened,
                finish: log.finish,
                finish_sent: log.finish_sent,
                halves: log.halves.map(|half| claims.take(half?)),
            };
            (id, kept)
        };
        let kept = handed.kept.into_iter().map(&mut log).collect();
        let socket = handed.socket.and_then(|number| claims.take(number));
        Self {
            pid: handed.pid,
            socket: socket.map(|s| poller.adopt(s, Source::Logger, Interest::Read)),
            limits: handed.limits.unwrap_or(FIRST_LIMITS),
            limits_sent: handed.limits_sent,
            kept,
            waits: false,
            leave: if handed.pid.is_some() { Leave::Due } else { Leave::No },
            starts: handed.starts,
            start_at: handed.start_at,
            pause: handed.pause,
            started: handed.started,
            dropped: handed.dropped,
            untold: handed.untold,
            dropped_total: handed.dropped_total,
        }
    }

    pub(crate) fn pid(&self) -> Option<u32> {
        self.pid
    }

    /// Loggers started after the first.
    pub(crate) fn restarts(&self) -> u32 {
        self.starts.saturating_sub(1)
    }

    pub(crate) fn dropped_total(&self) -> u64 {
        self.dropped_total
    }

    /// A container of which more was dropped than was told, and how much it is by now.
    pub(crate) fn take_dropped(&mut self) -> Option<(ContainerId, u64)> {
        let id = self.untold.pop_first()?;
        let bytes = self.dropped.get(&id).copied().unwrap_or(0);
        Some((id, bytes))
    }

    /// The container is forgotten.
    pub(crate) fn forget(&mut self, id: &ContainerId) {
        self.dropped.remove(id);
        self.untold.remove(id);
    }

    pub(crate) fn set_limits(&mut self, limits: LogLimits) {
        if limits != self.limits {
            self.limits = limits;
            self.limits_sent = false;
        }
    }

    /// When [`Logs::start_if_due`] is to be called.
    pub(crate) fn deadline(&self) -> Option<BootTime> {
        self.start_at
    }

    /// Starts a logger if there is none and its pause is over. `true`: it follows one that died.
    pub(crate) fn start_if_due(&mut self, exe: &OwnedFd, groups: &Groups, poller: &mut Poller, now: Now) -> bool {
        if self.start_at.is_none_or(|at| at > now.boot) {
            return false;
        }
        match self.start(exe, groups, poller) {
            Ok(()) => {
                self.start_at = None;
                self.started = now.boot;
                if std::mem::replace(&mut self.leave, Leave::No) == Leave::Told {
                    return false;
                }
                self.starts = self.starts.saturating_add(1);
                self.starts > 1
            }
            Err(e) => {
                tracing::error!(error = %e, "the logger cannot be started");
                self.pause_from(now);
                false
            }
        }
    }

    fn start(&mut self, exe: &OwnedFd, groups: &Groups, poller: &mut Poller) -> std::io::Result<()> {
        let (ours, theirs) = seqpacket::pair()?;
        let args = [role::LOGGER.to_owned()];
        let logger = Role { args: &args, rather: None, group: "logger", oom_score_adj: -998, die_with_parent: true };
        self.pid = Some(roles::own(exe, groups, &logger, Some(&theirs))?);
        self.socket = Some(poller.add(ours, Source::Logger, Interest::Read)?);
        self.limits_sent = false;
        self.waits = false;
        for kept in self.kept.values_mut() {
            kept.opened = false;
            kept.finish_sent = false;
        }
        Ok(())
    }

    /// The logger was told to leave, and nothing else is amiss with it when it ends.
    pub(crate) fn has_left(&self) -> bool {
        self.leave == Leave::Told
    }

    /// The logger was reaped.
    pub(crate) fn ended(&mut self, poller: &mut Poller, now: Now) {
        self.pid = None;
        if let Some(socket) = self.socket.take() {
            drop(poller.remove(socket));
        }
        if now.boot.since(self.started) > LONGEST_PAUSE || self.leave == Leave::Told {
            self.pause = Millis(0);
        }
        self.pause_from(now);
    }

    fn pause_from(&mut self, now: Now) {
        self.start_at = Some(now.boot + self.pause);
        self.pause = Millis((self.pause.0.saturating_mul(2)).clamp(100, LONGEST_PAUSE.0));
    }

    /// Takes over a container's output.
    pub(crate) fn open(&mut self, id: &ContainerId, pod: &PodUid, path: &str, fds: Vec<OwnedFd>) {
        let kept = Kept {
            pod: pod.clone(),
            path: path.to_owned(),
            fds,
            opened: false,
            finish: false,
            finish_sent: false,
            halves: [None, None],
        };
        self.kept.insert(id.clone(), kept);
    }

    /// The container has ended. `false`: it has no output here, so that nothing is to be waited for.
    pub(crate) fn finish(&mut self, id: &ContainerId) -> bool {
        let Some(kept) = self.kept.get_mut(id) else { return false };
        kept.finish = true;
        let unwritten = self.kept.values().filter(|k| k.finish).count();
        if unwritten > MAX_UNWRITTEN
            && let Some(oldest) = self.kept.iter().find(|(other, k)| k.finish && *other != id).map(|(id, _)| id.clone())
        {
            tracing::error!(container = %oldest, "output given up: the logger does not write");
            self.kept.remove(&oldest);
        }
        true
    }

    /// Reads what the logger has to say. Gives the containers whose output is written.
    pub(crate) fn receive(&mut self, buffer: &mut [u8]) -> Vec<ContainerId> {
        let mut drained = Vec::new();
        let Some(socket) = &self.socket else { return drained };
        while let Ok(Some(got)) = seqpacket::receive(socket.fd.as_fd(), buffer) {
            if got.len == 0 {
                // It is dying: that it is reaped says so too.
                break;
            }
            match serde_json::from_slice(buffer.get(..got.len).unwrap_or_default()) {
                Ok(Report::Drained { id }) => {
                    self.kept.remove(&id);
                    drained.push(id);
                }
                Ok(Report::Dropped { id, bytes }) => {
                    self.dropped_total = self.dropped_total.saturating_add(bytes);
                    let sum = self.dropped.entry(id.clone()).or_insert(0);
                    *sum = sum.saturating_add(bytes);
                    self.untold.insert(id);
                }
                Ok(Report::Half { id, index }) => {
                    let slot = self.kept.get_mut(&id).and_then(|kept| kept.halves.get_mut(index));
                    if let Some(slot) = slot {
                        *slot = got.fds.into_iter().next();
                    }
                }
                Ok(Report::Said { text }) => text.lines().for_each(log::keep),
                Err(e) => tracing::error!(error = %e, "the logger's message cannot be read"),
            }
        }
        drained
    }

    /// Tells the logger what it does not yet know, as far as it listens.
    pub(crate) fn flush(&mut self, poller: &mut Poller) {
        let Some(socket) = &self.socket else { return };
        if self.leave == Leave::Due && send(socket, &Order::Leave, &[]) {
            self.leave = Leave::Told;
        }
        // One that was told hears no more; the next is told all that it does not know.
        let all_sent = self.leave == Leave::Told
            || (self.leave == Leave::No && send_all(socket, &self.limits, &mut self.limits_sent, &mut self.kept));
        if all_sent == self.waits {
            self.waits = !all_sent;
            poller.change(socket, if self.waits { Interest::ReadWrite } else { Interest::Read });
        }
    }
}

fn send_all(
    socket: &Watched,
    limits: &LogLimits,
    limits_sent: &mut bool,
    kept: &mut BTreeMap<ContainerId, Kept>,
) -> bool {
    *limits_sent = *limits_sent || send(socket, &Order::Limits(limits.clone()), &[]);
    if !*limits_sent {
        return false;
    }
    for (id, kept) in kept.iter_mut() {
        if !kept.opened {
            let halves = [0, 1].map(|index| kept.halves.get(index).is_some_and(Option::is_some));
            let order = Order::Open { id: id.clone(), pod: kept.pod.clone(), path: kept.path.clone(), halves };
            let fds: Vec<BorrowedFd<'_>> =
                kept.fds.iter().chain(kept.halves.iter().flatten()).map(AsFd::as_fd).collect();
            kept.opened = send(socket, &order, &fds);
            if kept.opened {
                // Handed on for good: a logger that dies takes its half lines along.
                kept.halves = [None, None];
            }
        }
        if kept.opened && kept.finish && !kept.finish_sent {
            kept.finish_sent = send(socket, &Order::Finish { id: id.clone() }, &[]);
        }
        if !kept.opened || kept.finish != kept.finish_sent {
            return false;
        }
    }
    true
}

fn send(socket: &Watched, order: &Order, fds: &[BorrowedFd<'_>]) -> bool {
    let Ok(bytes) = serde_json::to_vec(order) else { return true };
    // A logger that is gone gets everything again when the next one is started.
    seqpacket::send(socket.fd.as_fd(), &bytes, fds).unwrap_or(true)
}
