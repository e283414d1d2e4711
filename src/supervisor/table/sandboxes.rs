//! Pods' namespaces: being made by a helper, or held.

use super::{Asker, Effect, Refusal, Table, Who};
use crate::model::supervise::{RefusalCode, Reply, SandboxEntry, SandboxSpec};
use crate::model::time::Now;
use crate::model::{BootTime, Millis, PodUid};
use serde::{Deserialize, Serialize};

pub(super) const MAX_SANDBOXES: usize = 512;
const MAX_ASKERS: usize = 8;
const MAX_SYSCTLS: usize = 64;
/// How long a helper may take.
const MAKE_WAIT: Millis = Millis(10_000);

/// One pod's namespaces.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", rename_all_fields = "camelCase")]
pub(super) enum Sandbox {
    Making { spec: SandboxSpec, helper: Option<u32>, askers: Vec<Asker>, deadline: BootTime },
    Held(SandboxEntry),
}

impl Sandbox {
    pub(super) fn entry(&self) -> Option<&SandboxEntry> {
        match self {
            Self::Held(entry) => Some(entry),
            Self::Making { .. } => None,
        }
    }

    pub(super) fn deadline(&self) -> Option<BootTime> {
        match self {
            Self::Making { deadline, .. } => Some(*deadline),
            Self::Held(_) => None,
        }
    }
}

impl Table {
    /// The agent asks for a pod's namespaces.
    pub(crate) fn create_sandbox(&mut self, spec: SandboxSpec, asker: Asker, now: Now) {
        match self.sandboxes.get_mut(&spec.pod) {
            Some(Sandbox::Held(entry)) if entry.attempt == spec.attempt => {
                let entry = entry.clone();
                return self.answer(asker, Reply::Pod(entry));
            }
            Some(Sandbox::Making { spec: known, askers, .. }) if *known == spec && askers.len() < MAX_ASKERS => {
                return askers.push(asker);
            }
            Some(_) => {
                let message = format!("create sandbox {} of pod {}: the pod has another", spec.attempt, spec.pod);
                return self.done_or(asker, Err((RefusalCode::Conflict, message)));
            }
            None => {}
        }
        let refusal = if self.sandboxes.len() >= MAX_SANDBOXES {
            Some((RefusalCode::Exhausted, "too many sandboxes"))
        } else if spec.sysctls.len() > MAX_SYSCTLS {
            Some((RefusalCode::Malformed, "too many sysctls"))
        } else {
            None
        };
        if let Some((code, why)) = refusal {
            return self.done_or(asker, Err((code, format!("create sandbox of pod {}: {why}", spec.pod))));
        }
        let deadline = now.boot + MAKE_WAIT;
        let making = Sandbox::Making { spec: spec.clone(), helper: None, askers: vec![asker], deadline };
        self.sandboxes.insert(spec.pod.clone(), making);
        self.effects.push(Effect::MakeSandbox(spec));
    }

    /// The helper was forked.
    pub(crate) fn helper_spawned(&mut self, pod: &PodUid, pid: u32) {
        if let Some(Sandbox::Making { helper, .. }) = self.sandboxes.get_mut(pod) {
            *helper = Some(pid);
        }
        self.children.insert(pid, Who::Helper(pod.clone()));
    }

    /// The helper has handed over the namespaces, or failed. Later news of the same helper changes nothing.
    pub(crate) fn sandbox_made(&mut self, pod: &PodUid, result: Result<SandboxEntry, String>) {
        let Some(Sandbox::Making { askers, helper, .. }) = self.sandboxes.get_mut(pod) else { return };
        let (askers, helper) = (std::mem::take(askers), *helper);
        let reply = match result {
            Ok(entry) => {
                self.sandboxes.insert(pod.clone(), Sandbox::Held(entry.clone()));
                Reply::Pod(entry)
            }
            Err(why) => {
                self.sandboxes.remove(pod);
                self.effects.push(Effect::DropSandbox(pod.clone()));
                self.effects.extend(helper.map(|pid| Effect::Signal(pid, 9)));
                Reply::Refused { code: RefusalCode::System, message: format!("create sandbox of pod {pod}: {why}") }
            }
        };
        for asker in askers {
            self.answer(asker, reply.clone());
        }
    }

    /// The helper was reaped, after its message was read.
    pub(crate) fn helper_ended(&mut self, pod: &PodUid, pid: u32) {
        self.children.remove(&pid);
        let Some(Sandbox::Making { helper: Some(helper), .. }) = self.sandboxes.get_mut(pod) else { return };
        if *helper == pid {
            if let Some(Sandbox::Making { helper, .. }) = self.sandboxes.get_mut(pod) {
                *helper = None;
            }
            self.sandbox_made(pod, Err("the helper ended without an answer".to_owned()));
        }
    }

    /// The agent asks to let a pod's namespaces go.
    pub(crate) fn remove_sandbox(&mut self, pod: &PodUid, asker: Asker) {
        let result = self.remove_sandbox_now(pod);
        self.done_or(asker, result);
    }

    fn remove_sandbox_now(&mut self, pod: &PodUid) -> Result<(), Refusal> {
        if let Some(c) = self.containers.values().find(|c| c.entry.pod == *pod && !c.is_over()) {
            let message = format!("remove sandbox of pod {pod}: container {} has not ended", c.entry.id);
            return Err((RefusalCode::Conflict, message));
        }
        match self.sandboxes.get(pod) {
            Some(Sandbox::Making { .. }) => {
                Err((RefusalCode::Conflict, format!("remove sandbox of pod {pod}: it is being made")))
            }
            Some(Sandbox::Held(_)) => {
                self.sandboxes.remove(pod);
                self.effects.push(Effect::DropSandbox(pod.clone()));
                Ok(())
            }
            None => Ok(()),
        }
    }

    /// Gives up on helpers that take too long.
    pub(super) fn tick_sandboxes(&mut self, now: Now) {
        let due = |s: &Sandbox| s.deadline().is_some_and(|d| d <= now.boot);
        let due: Vec<PodUid> = self.sandboxes.iter().filter(|(_, s)| due(s)).map(|(pod, _)| pod.clone()).collect();
        for pod in due {
            self.sandbox_made(&pod, Err("the helper did not answer in time".to_owned()));
        }
    }

    /// Moves on everything that has waited long enough.
    pub(crate) fn tick(&mut self, now: Now) {
        self.tick_containers(now);
        self.tick_sandboxes(now);
        self.tick_sessions(now);
    }
}
