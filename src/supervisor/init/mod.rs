//! What the supervisor does for the node as a whole: stopping in order, and, as process 1, starting it and keeping
//! its own long-lived children alive (the agent, and the role that keeps the network address).

mod boot;
pub(crate) mod cmdline;
mod disk;
mod mounts;

use super::groups::Groups;
use super::roles::{self, Role};
use super::table::Table;
use crate::model::time::Now;
use crate::model::{BootTime, Millis};
use crate::sys::children::Ended;
use crate::sys::{children, clock, signals};
use cmdline::Settings;
use rustix::fd::OwnedFd;
use serde::{Deserialize, Serialize};
use std::ffi::{CString, OsString};
use std::path::{Path, PathBuf};

/// How long the agent may take to stop the pods. A second request to stop ends the wait.
const STOP_WAIT: Millis = Millis(90_000);
/// The same when there is no agent, and the pods' first processes were told to end by the supervisor itself.
const STOP_WAIT_ALONE: Millis = Millis(10_000);
/// How long the agent may take to store its last facts once no container is left.
const STORE_WAIT: Millis = Millis(10_000);
/// How long all processes have between the polite signal and the last one.
const END_WAIT: Millis = Millis(2_000);
/// How long the disks may take at the end.
const SYNC_WAIT: Millis = Millis(20_000);
/// The longest pause before a child that keeps ending is started again.
const LONGEST_PAUSE: Millis = Millis(10_000);

/// The node: of process 1, or a guest on another distribution.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct Node {
    stopping: Option<Stopping>,
    power_off: Option<bool>,
    /// On process 1.
    own: Option<Own>,
}

#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Stopping {
    reboot: bool,
    told: bool,
    deadline: BootTime,
    /// Since when no container is left.
    empty_since: Option<BootTime>,
}

/// What only process 1 has.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Own {
    agent: Kept,
    network: Option<Kept>,
}

/// A child that is started again whenever it ends.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Kept {
    args: Vec<String>,
    group: String,
    /// A program of its own, if one lies there.
    #[serde(default)]
    file: Option<PathBuf>,
    /// It was started last without looking for that.
    #[serde(default)]
    without: bool,
    /// It has come so far that it could be talked to.
    #[serde(default)]
    greeted: bool,
    pid: Option<u32>,
    start_at: Option<BootTime>,
    pause: Millis,
    started: BootTime,
}

impl Kept {
    fn new(args: Vec<String>, group: &str, file: Option<&str>) -> Self {
        Self {
            args,
            group: group.to_owned(),
            file: file.map(PathBuf::from),
            without: false,
            greeted: false,
            pid: None,
            start_at: Some(BootTime(0)),
            pause: Millis(100),
            started: BootTime(0),
        }
    }

    fn start_if_due(&mut self, exe: &OwnedFd, groups: &Groups, now: Now) {
        if self.start_at.is_none_or(|at| at > now.boot) {
            return;
        }
        let file = self.file.as_ref().filter(|_| !self.without);
        // A path with a NUL in it names no file.
        let file = file.and_then(|f| CString::new(f.as_os_str().as_encoded_bytes()).ok());
        let role = Role {
            args: &self.args,
            rather: file.as_deref(),
            group: &self.group,
            oom_score_adj: -998,
            die_with_parent: false,
        };
        self.greeted = false;
        match roles::own(exe, groups, &role, None) {
            Ok(pid) => {
                self.pid = Some(pid);
                self.start_at = None;
                self.started = now.boot;
            }
            Err(e) => {
                tracing::error!(role = ?self.args, error = %e, "a role could not be started");
                self.pause_from(now);
            }
        }
    }

    /// `true`: it was this child.
    fn ended(&mut self, pid: u32, how: Ended, now: Now) -> bool {
        if self.pid != Some(pid) {
            return false;
        }
        self.pid = None;
        if how == Ended::Code(0) && self.group == NETWORK {
            // A fixed address needs nobody to keep it.
            return true;
        }
        tracing::error!(role = ?self.args, ?how, "a role ended: it is started again");
        let lasted = now.boot.since(self.started) > LONGEST_PAUSE;
        if lasted {
            self.pause = Millis(100);
        }
        // One that came to nothing may be a file that is broken: every other try goes without it.
        let in_order = how == Ended::Code(0) || (lasted && self.greeted);
        self.without = self.file.is_some() && !self.without && !in_order;
        self.pause_from(now);
        true
    }

    fn pause_from(&mut self, now: Now) {
        self.start_at = Some(now.boot + self.pause);
        self.pause = Millis(self.pause.0.saturating_mul(2).min(LONGEST_PAUSE.0));
    }
}

const NETWORK: &str = "network";
/// On process 1 the agent is this program rather than process 1's own, if it is there: how a node is upgraded whose first
/// program lies in an initramfs. The agent then hands it to process 1.
const AGENT_FILE: &str = "/var/lib/armlet/bin/armlet";

impl Node {
    /// Off process 1: somebody else starts the agent and stops the machine.
    pub(crate) fn guest() -> Self {
        Self::default()
    }

    /// As process 1: makes a Linux system out of a kernel.
    pub(crate) fn boot(args: &[OsString]) -> Self {
        let settings: Settings = boot::boot(args);
        let line = std::fs::read_to_string("/proc/cmdline").unwrap_or_default();
        let network = boot::network_role(&settings, &line).map(|args| Kept::new(args, NETWORK, None));
        let agent = [vec!["agent".to_owned()], settings.agent].concat();
        Self { own: Some(Own { agent: Kept::new(agent, "agent", Some(AGENT_FILE)), network }), ..Self::default() }
    }

    pub(crate) fn is_process_one(&self) -> bool {
        self.own.is_some()
    }

    /// Begins to stop. `false`: that had begun already, and now it is not waited any longer.
    pub(crate) fn begin_stop(&mut self, reboot: bool, agent: bool, now: Now) -> bool {
        if self.stopping.is_some() {
            self.power_off = self.power_off.or(Some(reboot));
            return false;
        }
        tracing::warn!(reboot, "the node is stopping");
        let wait = if agent { STOP_WAIT } else { STOP_WAIT_ALONE };
        self.stopping = Some(Stopping { reboot, told: false, deadline: now.boot + wait, empty_since: None });
        true
    }

    /// The agent has stopped the pods.
    pub(crate) fn power_off(&mut self, reboot: bool) {
        self.power_off = Some(reboot);
    }

    /// Whether the node goes down.
    pub(crate) const fn is_stopping(&self) -> bool {
        self.stopping.is_some()
    }

    /// Whether the agent is still to be told that the node stops, and whether it starts again.
    pub(crate) fn take_shutdown_notice(&mut self) -> Option<bool> {
        let stopping = self.stopping.as_mut().filter(|s| !s.told)?;
        stopping.told = true;
        Some(stopping.reboot)
    }

    /// A new agent knows nothing of it.
    pub(crate) fn agent_changed(&mut self) {
        if let Some(stopping) = &mut self.stopping {
            stopping.told = false;
        }
        if let Some(own) = &mut self.own {
            own.agent.greeted = true;
        }
    }

    pub(crate) fn deadline(&self) -> Option<BootTime> {
        let own = self.own.as_ref();
        let kept = own.into_iter().flat_map(|o| [Some(&o.agent), o.network.as_ref()]).flatten();
        let stopping = self.stopping.as_ref();
        let stop = stopping.map(|s| s.empty_since.map_or(s.deadline, |at| s.deadline.min(at + STORE_WAIT)));
        kept.filter_map(|k| k.start_at).chain(stop).min()
    }

    /// Whether the loop is to end. With an agent that is its to say, for it has facts to store first; it does not get
    /// for ever.
    pub(crate) fn is_over(&mut self, table: &Table, agent: bool, now: Now) -> bool {
        let alone = !(agent && self.is_process_one());
        let Some(stopping) = &mut self.stopping else { return self.power_off.is_some() };
        stopping.empty_since = if table.live().is_empty() { stopping.empty_since.or(Some(now.boot)) } else { None };
        let stored = stopping.empty_since.is_some_and(|at| alone || at + STORE_WAIT <= now.boot);
        self.power_off.is_some() || stopping.deadline <= now.boot || stored
    }

    /// `true`: it was one of process 1's own children.
    pub(crate) fn child_ended(&mut self, pid: u32, how: Ended, now: Now) -> bool {
        let Some(own) = &mut self.own else { return false };
        own.agent.ended(pid, how, now) || own.network.as_mut().is_some_and(|n| n.ended(pid, how, now))
    }

    /// Starts those of process 1's own children that are to run and do not.
    pub(crate) fn start_children(&mut self, exe: &OwnedFd, groups: &Groups, now: Now) {
        if let Some(own) = &mut self.own {
            if let Some(network) = &mut own.network {
                network.start_if_due(exe, groups, now);
            }
            own.agent.start_if_due(exe, groups, now);
        }
    }

    /// The end: on process 1 of everything. Off it the supervisor just leaves.
    pub(crate) fn stop(self) {
        if self.own.is_none() {
            return;
        }
        let reboot = self.power_off.or(self.stopping.map(|s| s.reboot)).unwrap_or(false);
        end_all(libc::SIGTERM);
        end_all(libc::SIGKILL);
        let disks = children::fork(|| {
            mounts::let_go_of_disks(Path::new(disk::FOLDER));
            0
        });
        if disks.map(|pid| boot::wait_bounded(pid, SYNC_WAIT)).is_ok_and(|ended| ended.is_none()) {
            tracing::error!("the disks do not answer: stopping without them");
        }
        use rustix::system::{RebootCommand, reboot as command};
        if let Err(e) = command(if reboot { RebootCommand::Restart } else { RebootCommand::PowerOff }) {
            tracing::error!(error = %e, "the machine could not be stopped");
        }
        // A machine that cannot switch itself off halts.
        let _ = command(RebootCommand::Halt);
    }
}

/// Signals everybody and reaps until nobody is left or the time is over.
fn end_all(signal: i32) {
    if let Err(e) = signals::send_to_all(signal) {
        tracing::error!(error = %e, "the processes could not be ended");
    }
    let end = clock::now().boot + END_WAIT;
    while clock::now().boot < end {
        match children::peek_ended() {
            Ok(Some((pid, _))) => drop(children::reap(pid)),
            Ok(None) if children::are_left() => std::thread::sleep(std::time::Duration::from_millis(10)),
            Ok(None) | Err(_) => return,
        }
    }
}

/// Process 1 that cannot work starts the machine again: it must neither return nor stand still for good.
pub(crate) fn give_up() {
    tracing::error!("process 1 cannot work: the machine starts again in 30 seconds");
    std::thread::sleep(std::time::Duration::from_secs(30));
    rustix::fs::sync();
    let _ = rustix::system::reboot(rustix::system::RebootCommand::Restart);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_broken_file_is_done_without_every_other_time() {
        let at = |ms| Now { boot: BootTime(ms), ..Now::default() };
        let mut kept = Kept::new(Vec::new(), "agent", Some("/f"));
        // How it ended, when, and whether it was talked to; then whether the next goes without the file.
        for (how, after, greeted, without) in [
            (Ended::Code(125), 10, false, true),
            (Ended::Code(1), 10, false, false),
            (Ended::Signal(11), 10, true, true),
            (Ended::Signal(9), 60_000, true, false),
            // It hung before it said anything.
            (Ended::Signal(9), 60_000, false, true),
            (Ended::Code(0), 10, true, false),
        ] {
            (kept.pid, kept.greeted, kept.started) = (Some(5), greeted, BootTime(0));
            assert!(kept.ended(5, how, at(after)));
            assert_eq!(kept.without, without, "{how:?} {after} {greeted}");
        }
        let mut other = Kept::new(Vec::new(), NETWORK, None);
        other.pid = Some(6);
        assert!(!other.ended(5, Ended::Code(1), at(1)));
        assert!(other.ended(6, Ended::Code(1), at(1)) && !other.without);
    }
}
