//! What the supervisor does for the node as a whole: stopping in order, and, as process 1, starting it.

use super::groups::Groups;
use super::table::Table;
use crate::model::time::Now;
use crate::model::{BootTime, Millis};
use crate::sys::children::Ended;
use rustix::fd::OwnedFd;

/// How long the agent may take to stop the pods. A second request to stop ends the wait.
const STOP_WAIT: Millis = Millis(90_000);
/// The same when there is no agent, and the pods' first processes were told to end by the supervisor itself.
const STOP_WAIT_ALONE: Millis = Millis(10_000);

/// The node: of process 1, or a guest on another distribution.
#[derive(Debug, Default)]
pub(crate) struct Node {
    stopping: Option<Stopping>,
    power_off: Option<bool>,
}

#[derive(Debug)]
struct Stopping {
    reboot: bool,
    told: bool,
    deadline: BootTime,
}

impl Node {
    /// Off process 1: somebody else starts the agent and stops the machine.
    pub(crate) fn guest() -> Self {
        Self::default()
    }

    pub(crate) fn is_process_one(&self) -> bool {
        false
    }

    /// Begins to stop. `false`: that had begun already, and now it is not waited any longer.
    pub(crate) fn begin_stop(&mut self, reboot: bool, agent: bool, now: Now) -> bool {
        if self.stopping.is_some() {
            self.power_off = self.power_off.or(Some(reboot));
            return false;
        }
        let wait = if agent { STOP_WAIT } else { STOP_WAIT_ALONE };
        self.stopping = Some(Stopping { reboot, told: false, deadline: now.boot + wait });
        true
    }

    /// The agent has stopped the pods.
    pub(crate) fn power_off(&mut self, reboot: bool) {
        self.power_off = Some(reboot);
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
    }

    pub(crate) fn deadline(&self) -> Option<BootTime> {
        self.stopping.as_ref().map(|s| s.deadline)
    }

    /// Whether the loop is to end.
    pub(crate) fn is_over(&self, table: &Table, now: Now) -> bool {
        let waited = self.stopping.as_ref().is_some_and(|s| s.deadline <= now.boot || table.live().is_empty());
        self.power_off.is_some() || waited
    }

    pub(crate) fn child_ended(&mut self, _pid: u32, _how: Ended, _now: Now) -> bool {
        false
    }

    pub(crate) fn start_agent_if_due(&mut self, _exe: &OwnedFd, _groups: &Groups, _now: Now) {}

    pub(crate) fn stop(self, _logger: Option<u32>) {}
}
