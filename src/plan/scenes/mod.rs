//! Scripted scenes: one pod, one thing happening at a time, and what the plan makes of it.

mod images;
mod lifecycle;
mod survival;
mod termination;

use super::testing;
use super::{Admission, Grants, Plan, fold, pod};
use crate::model::action::{Action, Failure, Outcome, ProbeKind};
use crate::model::event::PodEvent;
use crate::model::observed::{ContainerSeen, Image, InFlight, Observed, StopCause};
use crate::model::pod::{Pod, Probe, ProbeHandler};
use crate::model::status::{ContainerStatus, Phase, State};
use crate::model::supervise::{ContainerEntry, ContainerState, Exit, SandboxEntry};
use crate::model::time::Now;
use crate::model::{BootTime, ImageId, Millis, WallTime};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// A pod in a world where everything works at once, unless a test says otherwise.
struct Scene {
    seen: Observed,
    grants: Grants,
    now: Now,
    plan: Plan,
    events: Vec<PodEvent>,
    /// Actions, by their label, that stay under way.
    hang: BTreeSet<String>,
    /// Actions, by their label, that fail: with which reason.
    fail: BTreeMap<String, &'static str>,
    hanging: Vec<Action>,
    /// The disk does not keep up.
    uncommitted: bool,
}

/// An action in a few words.
fn label(action: &Action) -> String {
    match action {
        Action::PrepareVolume { volume } => format!("prepare {volume}"),
        Action::CreateSandbox(plan) => format!("sandbox {}", plan.attempt),
        Action::AttachNetwork { attempt, .. } => format!("attach {attempt}"),
        Action::EnsureImage { reference, silent: true, .. } => format!("prefetch {reference}"),
        Action::EnsureImage { reference, .. } => format!("pull {reference}"),
        Action::StartContainer(plan) => format!("start {}#{}", plan.container, plan.attempt),
        Action::Signal { container, signal, grace, .. } => format!("{signal} {container} {}ms", grace.0),
        Action::Kill { container, .. } => format!("kill {container}"),
        Action::Probe { container, kind, .. } => format!("{kind:?} {container}"),
        Action::RemoveContainer { container, .. } => format!("remove {container}"),
        Action::DetachNetwork { attempt } => format!("detach {attempt}"),
        Action::DestroySandbox { attempt } => format!("destroy {attempt}"),
        Action::RemoveVolume { volume } => format!("unmount {volume}"),
        Action::RemovePod => "remove pod".into(),
        Action::Cancel { key } => format!("cancel {key:?}"),
    }
}

impl Scene {
    fn new(pod: Pod) -> Self {
        let now = Now { boot: BootTime(100_000), wall: WallTime(1_700_000_000_000_000_000) };
        let image = |reference: &String| {
            let id = ImageId::new("ab").unwrap();
            (reference.clone(), Image { id, digest: format!("{reference}@sha256:ab"), stop_signal: None })
        };
        let images = pod.spec.init_containers.iter().chain(&pod.spec.containers).map(|c| image(&c.image)).collect();
        let seen = Observed {
            uid: pod.uid.clone(),
            pod: Some(Arc::new(pod)),
            facts: fold::take_up(7, now.wall),
            uncommitted: false,
            sandbox: None,
            containers: Vec::new(),
            images,
            in_flight: Vec::new(),
            node: crate::model::observed::NodeFacts::default(),
        };
        Self {
            seen,
            grants: Grants { admission: Admission::Admitted, address: Some([10, 88, 0, 2].into()) },
            now,
            plan: Plan::default(),
            events: Vec::new(),
            hang: BTreeSet::new(),
            fail: BTreeMap::new(),
            hanging: Vec::new(),
            uncommitted: false,
        }
    }

    /// Turns the loop until nothing is left to do now. Returns what was done, in order.
    fn go(&mut self) -> Vec<String> {
        let mut done = Vec::new();
        for _ in 0..50 {
            let changes = fold::table(&mut self.seen, self.now);
            self.events.extend(changes.events);
            self.seen.uncommitted = self.uncommitted;
            self.plan = pod(&self.seen, &self.grants, self.now);
            self.events.extend(self.plan.events.clone());
            self.events.extend(fold::status(&mut self.seen.facts, &self.plan.status).events);
            if self.plan.actions.is_empty() && self.plan.wake_at != Some(self.now.boot) {
                return done;
            }
            for action in self.plan.actions.clone() {
                let label = label(&action);
                done.push(label.clone());
                if self.hang.contains(&label) {
                    self.seen.in_flight.push(InFlight { key: action.key(), since: self.now.boot, cancelled: false });
                    self.hanging.push(action);
                } else if let Action::Cancel { key } = &action {
                    for flight in self.seen.in_flight.iter_mut().filter(|f| f.key == *key) {
                        flight.cancelled = true;
                    }
                } else {
                    self.perform(&action);
                }
            }
        }
        panic!("no rest: {done:?}");
    }

    /// Looks once, without doing anything: what would be done.
    fn look(&mut self) -> Vec<String> {
        let _ = fold::table(&mut self.seen, self.now);
        self.seen.uncommitted = self.uncommitted;
        self.plan = pod(&self.seen, &self.grants, self.now);
        let _ = fold::status(&mut self.seen.facts, &self.plan.status);
        self.plan.actions.iter().map(label).collect()
    }

    /// Ends an action that hangs, or does one.
    fn perform(&mut self, action: &Action) {
        let outcome = match self.fail.get(&label(action)) {
            Some(reason) => Outcome::Failed(Failure { reason: (*reason).into(), message: "it broke".into() }),
            None => self.deed(action),
        };
        let pod = self.seen.pod.clone();
        let changes = fold::outcome(&mut self.seen.facts, pod.as_deref(), action, &outcome, self.now);
        self.events.extend(changes.events);
    }

    /// Lets an action that hangs come to its end.
    fn finish(&mut self, name: &str) {
        self.hang.remove(name);
        let at = self.hanging.iter().position(|a| label(a) == name).unwrap();
        let action = self.hanging.remove(at);
        self.seen.in_flight.retain(|f| f.key != action.key());
        self.perform(&action);
    }

    fn deed(&mut self, action: &Action) -> Outcome {
        let now = self.now;
        match action {
            Action::CreateSandbox(plan) => {
                let sandbox = SandboxEntry {
                    pod: self.seen.uid.clone(),
                    attempt: plan.attempt,
                    host_network: plan.host_network,
                    netns: None,
                    ipcns: None,
                    utsns: None,
                    created_at: now.boot,
                    created_wall: now.wall,
                };
                self.seen.sandbox = Some(sandbox.clone());
                Outcome::Sandbox { sandbox, events: Vec::new() }
            }
            Action::AttachNetwork { address, .. } => {
                Outcome::Attached { ips: address.iter().map(|a| (*a).into()).collect() }
            }
            Action::EnsureImage { reference, .. } => {
                let id = ImageId::new("ab").unwrap();
                let image = Image { id: id.clone(), digest: format!("{reference}@sha256:ab"), stop_signal: None };
                self.seen.images.insert(reference.clone(), image);
                Outcome::Image { id, fetched: None }
            }
            Action::StartContainer(plan) => {
                let entry = ContainerEntry {
                    id: plan.id.clone(),
                    pod: self.seen.uid.clone(),
                    name: plan.container.clone(),
                    attempt: plan.attempt,
                    log_path: plan.log_path.clone(),
                    cgroup: plan.cgroup.clone(),
                    state: ContainerState::Running { pid: 9, started_at: now.boot, started_wall: now.wall },
                };
                self.seen.containers.push(ContainerSeen { entry: entry.clone(), message: None });
                Outcome::Container { entry }
            }
            Action::Kill { container, .. } => {
                self.exit(container, 137);
                Outcome::Done
            }
            Action::Probe { .. } => Outcome::Probed { success: true, warning: false, message: String::new() },
            Action::RemoveContainer { id, .. } => {
                self.seen.containers.retain(|c| c.entry.id != *id);
                Outcome::Done
            }
            Action::DestroySandbox { .. } => {
                self.seen.sandbox = None;
                Outcome::Done
            }
            Action::PrepareVolume { .. }
            | Action::Signal { .. }
            | Action::DetachNetwork { .. }
            | Action::RemoveVolume { .. }
            | Action::RemovePod
            | Action::Cancel { .. } => Outcome::Done,
        }
    }

    /// Lets a running container end.
    fn exit(&mut self, name: &str, code: i32) {
        let now = self.now;
        for seen in self.seen.containers.iter_mut().filter(|c| c.entry.name == name) {
            if let ContainerState::Running { started_at, started_wall, .. } = seen.entry.state {
                seen.entry.state = ContainerState::Exited(Exit {
                    code,
                    signal: None,
                    oom_killed: false,
                    known: true,
                    started_at,
                    started_wall,
                    finished_at: now.boot,
                    finished_wall: now.wall,
                });
            }
        }
    }

    fn pass(&mut self, millis: u64) {
        self.now.boot = self.now.boot + Millis(millis);
        self.now.wall.0 += i64::try_from(millis).unwrap() * 1_000_000;
    }

    fn stop(&mut self, grace_secs: Option<u64>) {
        let pod = self.seen.pod.clone();
        let grace = grace_secs.map(Millis::from_secs);
        let _ = fold::stop(&mut self.seen.facts, pod.as_deref(), StopCause::Removed, grace, self.now);
    }

    fn reboot(&mut self) {
        self.seen.facts.volatile = crate::model::observed::Volatile::default();
        self.seen.sandbox = None;
        self.seen.containers.clear();
        self.seen.node.boot_id = "another".into();
        self.now.boot = BootTime(3000);
    }

    fn container(&self, name: &str) -> &ContainerStatus {
        let status = &self.plan.status;
        status.init_containers.iter().chain(&status.containers).find(|c| c.name == name).unwrap()
    }

    fn phase(&self) -> Phase {
        self.plan.status.phase
    }

    /// State, restart count, readiness: `Waiting CrashLoopBackOff 2`, `Running 0 started ready`.
    fn tell(&self, name: &str) -> String {
        let status = self.container(name);
        let state = match &status.state {
            State::Waiting { reason, .. } => format!("Waiting {reason}"),
            State::Running { .. } => "Running".into(),
            State::Terminated(ended) => format!("{} {}", ended.reason, ended.exit_code),
        };
        let flags = [(status.started, " started"), (status.ready, " ready")];
        let flags: String = flags.iter().filter(|(is, _)| *is).map(|(_, word)| *word).collect();
        format!("{state} {}{flags}", status.restart_count)
    }

    fn message(&self, name: &str) -> String {
        match &self.container(name).state {
            State::Waiting { message, .. } => message.clone().unwrap_or_default(),
            State::Running { .. } | State::Terminated(_) => String::new(),
        }
    }

    /// `Type=status` of each condition, with its reason.
    fn conditions(&self) -> Vec<String> {
        let one = |c: &crate::model::status::Condition| {
            let reason = c.reason.as_ref().map(|r| format!(" {r}")).unwrap_or_default();
            format!("{}={}{reason}", c.kind, c.status)
        };
        self.plan.status.conditions.iter().map(one).collect()
    }

    /// Reasons of the events since the last call.
    fn reasons(&mut self) -> Vec<String> {
        std::mem::take(&mut self.events).into_iter().map(|e| e.reason).collect()
    }
}

fn probe(period_secs: u32, failure_threshold: u32) -> Probe {
    Probe {
        handler: ProbeHandler::Exec { command: vec!["check".into()] },
        initial_delay_secs: 0,
        period_secs,
        timeout_secs: 1,
        success_threshold: 1,
        failure_threshold,
        termination_grace_secs: None,
    }
}

fn failing_probe(scene: &mut Scene, kind: ProbeKind, name: &str) {
    scene.hang.insert(format!("{kind:?} {name}"));
}

/// Answers a probe that was made to hang.
fn answer(scene: &mut Scene, kind: ProbeKind, name: &str, success: bool) {
    let wanted = format!("{kind:?} {name}");
    let at = scene.hanging.iter().position(|a| label(a) == wanted).unwrap();
    let action = scene.hanging.remove(at);
    scene.seen.in_flight.retain(|f| f.key != action.key());
    let outcome = Outcome::Probed { success, warning: false, message: "refused".into() };
    answered(scene, &action, &outcome);
}

/// Hands in what came of an action.
fn answered(scene: &mut Scene, action: &Action, outcome: &Outcome) {
    let pod = scene.seen.pod.clone();
    let changes = fold::outcome(&mut scene.seen.facts, pod.as_deref(), action, outcome, scene.now);
    scene.events.extend(changes.events);
}
