//! A small seeded world in which the plan runs one pod: containers that end or hang, actions that fail, an agent and a
//! supervisor that are killed, reboots, leaps of time. The laws of [`super`] are checked at every step ([`laws`]).

mod laws;
mod random;

use crate::model::action::{Action, ActionKey, Failure, Outcome};
use crate::model::observed::{ContainerSeen, Durable, Facts, Image, InFlight, Observed, StopCause, Volatile};
use crate::model::pod::Pod;
use crate::model::status::PodStatus;
use crate::model::supervise::{ContainerEntry, ContainerState, Exit, SandboxEntry};
use crate::model::time::Now;
use crate::model::{BootTime, ContainerId, ImageId, Millis, WallTime};
use crate::plan::{Admission, Grants, Plan, fold, pod};
use random::Random;
use std::collections::{BTreeMap, BTreeSet};
use std::net::Ipv4Addr;
use std::sync::Arc;

/// How much goes wrong, in percent.
#[derive(Clone, Copy)]
struct Weather {
    action_fails: u64,
    ends_badly: u64,
    disturbed: u64,
}

const STORM: Weather = Weather { action_fails: 15, ends_badly: 40, disturbed: 8 };
const CALM: Weather = Weather { action_fails: 0, ends_badly: 0, disturbed: 0 };

/// An action under way in the world.
struct Work {
    action: Action,
    since: BootTime,
    until: BootTime,
    cancelled: bool,
}

/// What the laws remember about a signal.
struct Signalled {
    at: BootTime,
    grace: Millis,
}

struct World {
    random: Random,
    weather: Weather,
    pod: Arc<Pod>,
    now: Now,
    boots: u64,
    /// The agent's memory.
    facts: Facts,
    tmpfs: Volatile,
    disk: Durable,
    /// Commits under way: when each is done, and what it holds.
    commits: Vec<(BootTime, Durable)>,
    /// Statuses that wait for those commits.
    untold: Vec<(usize, PodStatus)>,
    work: Vec<Work>,
    sandbox: Option<SandboxEntry>,
    containers: Vec<ContainerEntry>,
    /// When a running container ends by itself, and with which code.
    ends: BTreeMap<ContainerId, (BootTime, i32)>,
    /// When a container that is being created begins to run.
    births: BTreeMap<ContainerId, BootTime>,
    images: BTreeSet<String>,
    attached: Option<u32>,
    volumes: BTreeSet<String>,
    plan: Plan,
    told: Option<PodStatus>,
    /// What was just decided is not told before it is on the disk.
    hold: bool,
    used: BTreeMap<ContainerId, (String, u32)>,
    signalled: BTreeMap<ContainerId, Signalled>,
    gone: bool,
}

impl World {
    fn new(seed: u64) -> Self {
        let mut random = Random(seed);
        let pod = Arc::new(random::pod(&mut random));
        let now = Now { boot: BootTime(1000), wall: WallTime(1_700_000_000_000_000_000) };
        let facts = fold::take_up(seed, now.wall);
        Self {
            random,
            weather: STORM,
            pod,
            now,
            boots: 0,
            tmpfs: facts.volatile.clone(),
            disk: facts.durable.clone(),
            commits: Vec::new(),
            untold: Vec::new(),
            facts,
            work: Vec::new(),
            sandbox: None,
            containers: Vec::new(),
            ends: BTreeMap::new(),
            births: BTreeMap::new(),
            images: BTreeSet::new(),
            attached: None,
            volumes: BTreeSet::new(),
            plan: Plan::default(),
            told: None,
            hold: false,
            used: BTreeMap::new(),
            signalled: BTreeMap::new(),
            gone: false,
        }
    }

    fn observe(&self) -> Observed {
        let image = |reference: &String| {
            let image =
                Image { id: ImageId::new("aa").unwrap(), digest: format!("{reference}@sha256:aa"), stop_signal: None };
            (reference.clone(), image)
        };
        let flight = |w: &Work| InFlight { key: w.action.key(), since: w.since, cancelled: w.cancelled };
        Observed {
            uid: self.pod.uid.clone(),
            pod: Some(self.pod.clone()),
            facts: self.facts.clone(),
            uncommitted: !self.commits.is_empty(),
            sandbox: self.sandbox.clone(),
            containers: self.containers.iter().map(|e| ContainerSeen { entry: e.clone(), message: None }).collect(),
            images: self.images.iter().map(image).collect(),
            in_flight: self.work.iter().map(flight).collect(),
            node: random::node(self.boots),
        }
    }

    fn grants(&self) -> Grants {
        let address = (!self.pod.spec.host_network).then_some(Ipv4Addr::new(10, 88, 0, 2));
        Grants { admission: Admission::Admitted, address }
    }

    fn keep(&mut self, changes: &fold::Changes) {
        if changes.volatile {
            self.tmpfs = self.facts.volatile.clone();
        }
        if changes.durable {
            let done = self.now.boot + Millis(self.random.pick(&[0, 5, 3000]));
            let after = self.commits.last().map_or(done, |(at, _)| done.max(*at));
            self.commits.push((after, self.facts.durable.clone()));
        }
        self.hold |= changes.commit_first;
    }

    /// Tells what may be told.
    fn tell(&mut self) {
        let now = self.now.boot;
        while self.commits.first().is_some_and(|(at, _)| *at <= now) {
            self.disk = self.commits.remove(0).1;
            for (waits_for, _) in &mut self.untold {
                *waits_for = waits_for.saturating_sub(1);
            }
        }
        self.hold &= !self.commits.is_empty();
        while self.untold.first().is_some_and(|(waits_for, _)| *waits_for == 0) {
            let (_, status) = self.untold.remove(0);
            laws::told(self, &status);
            self.told = Some(status);
        }
    }

    /// One turn of the agent's loop. A node that goes down starts again once nothing is left to stop or to store.
    fn turn(&mut self) {
        let down = self.facts.volatile.stop.as_ref().is_some_and(|stop| stop.cause == StopCause::Shutdown);
        if down && !self.any_live() && self.work.is_empty() && self.untaken() == 0 && self.commits.is_empty() {
            self.reboot();
        }
        let mut observed = self.observe();
        let changes = fold::table(&mut observed, self.now);
        self.facts = observed.facts.clone();
        self.keep(&changes);
        let plan = pod(&observed, &self.grants(), self.now);
        laws::check(self, &observed, &plan);
        let changes = fold::status(&mut self.facts, &plan.status);
        self.keep(&changes);
        let waits_for = if self.hold { self.commits.len() } else { 0 };
        self.untold.push((waits_for.max(self.untold.last().map_or(0, |(w, _)| *w)), plan.status.clone()));
        self.tell();
        self.gone |= plan.gone;
        for action in &plan.actions {
            self.begin(action.clone());
        }
        laws::quiet(self, observed.uncommitted, &plan);
        self.plan = plan;
    }

    fn begin(&mut self, action: Action) {
        if let Action::Cancel { key } = &action {
            for work in self.work.iter_mut().filter(|w| w.action.key() == *key) {
                work.cancelled = true;
                work.until = self.now.boot;
            }
            return;
        }
        if let Action::StartContainer(plan) = &action {
            self.used.insert(plan.id.clone(), (plan.container.clone(), plan.attempt));
        }
        if let Action::Signal { id, grace, .. } = &action {
            self.signalled.entry(id.clone()).or_insert(Signalled { at: self.now.boot, grace: *grace });
        }
        let until = self.now.boot + Millis(self.random.below(3000));
        self.work.push(Work { action, since: self.now.boot, until, cancelled: false });
    }

    /// Goes on to the next moment at which something happens. False: nothing will.
    fn advance(&mut self) -> bool {
        let ends = self.ends.values().map(|(at, _)| *at);
        let next = self
            .work
            .iter()
            .map(|w| w.until)
            .chain(ends)
            .chain(self.births.values().copied())
            .chain(self.plan.wake_at)
            .min();
        let Some(next) = next else { return false };
        self.pass(next.since(self.now.boot));
        self.tell();
        let now = self.now.boot;
        for (id, code) in
            self.ends.iter().filter(|(_, (at, _))| *at <= now).map(|(i, (_, c))| (i.clone(), *c)).collect::<Vec<_>>()
        {
            self.end(&id, code, true);
        }
        let born = |e: &&mut ContainerEntry| self.births.get(&e.id).is_some_and(|at| *at <= now);
        for entry in self.containers.iter_mut().filter(born) {
            if matches!(entry.state, ContainerState::Creating) {
                entry.state = ContainerState::Running { pid: 1, started_at: now, started_wall: self.now.wall };
            }
        }
        self.births.retain(|_, at| *at > now);
        while let Some(at) = self.work.iter().position(|w| w.until <= now) {
            let work = self.work.swap_remove(at);
            let outcome =
                if work.cancelled && self.random.percent(70) { Outcome::Cancelled } else { self.perform(&work.action) };
            let changes = fold::outcome(&mut self.facts, Some(&self.pod), &work.action, &outcome, self.now);
            self.keep(&changes);
        }
        true
    }

    fn pass(&mut self, time: Millis) {
        self.now.boot = self.now.boot + time;
        self.now.wall.0 += i64::try_from(time.0).unwrap() * 1_000_000;
    }

    fn end(&mut self, id: &ContainerId, code: i32, known: bool) {
        self.ends.remove(id);
        let now = self.now;
        let Some(entry) = self.containers.iter_mut().find(|e| e.id == *id) else { return };
        let (started_at, started_wall) = match entry.state {
            ContainerState::Running { started_at, started_wall, .. } => (started_at, started_wall),
            ContainerState::Creating => (now.boot, now.wall),
            ContainerState::Exited(_) | ContainerState::StartFailed { .. } => return,
        };
        entry.state = ContainerState::Exited(Exit {
            code,
            signal: None,
            oom_killed: false,
            known,
            started_at,
            started_wall,
            finished_at: now.boot,
            finished_wall: now.wall,
        });
    }

    fn fails(&mut self) -> bool {
        self.random.percent(self.weather.action_fails)
    }

    /// What the executor does. A failure may come after the deed.
    fn perform(&mut self, action: &Action) -> Outcome {
        let fails = self.fails();
        let failed = || Outcome::Failed(Failure { reason: "ErrImagePull".into(), message: "weather".into() });
        if fails && self.random.percent(50) {
            return failed();
        }
        let done = self.deed(action);
        if fails { failed() } else { done }
    }

    fn deed(&mut self, action: &Action) -> Outcome {
        match action {
            Action::PrepareVolume { volume } => {
                self.volumes.insert(volume.clone());
                Outcome::Done
            }
            Action::CreateSandbox(plan) => {
                let sandbox = self.sandbox.get_or_insert_with(|| SandboxEntry {
                    pod: self.pod.uid.clone(),
                    attempt: plan.attempt,
                    host_network: plan.host_network,
                    netns: None,
                    ipcns: None,
                    utsns: None,
                    created_at: self.now.boot,
                    created_wall: self.now.wall,
                });
                Outcome::Sandbox { sandbox: sandbox.clone(), events: Vec::new() }
            }
            Action::AttachNetwork { attempt, address } => {
                self.attached = Some(*attempt);
                Outcome::Attached { ips: address.iter().map(|a| (*a).into()).collect() }
            }
            Action::EnsureImage { reference, .. } => {
                self.images.insert(reference.clone());
                Outcome::Image { id: ImageId::new("aa").unwrap(), fetched: None }
            }
            Action::StartContainer(plan) => self.started(plan.container.clone(), plan.id.clone(), plan.attempt, false),
            Action::Signal { id, .. } => self.signal(id),
            Action::Kill { id, .. } => {
                self.end(id, 137, true);
                Outcome::Done
            }
            Action::Probe { .. } => {
                let success = !self.random.percent(self.weather.ends_badly / 2);
                Outcome::Probed { success, warning: false, message: "said".into() }
            }
            Action::RemoveContainer { id, .. } => {
                self.containers.retain(|e| e.id != *id);
                Outcome::Done
            }
            Action::DetachNetwork { .. } => {
                self.attached = None;
                Outcome::Done
            }
            Action::DestroySandbox { .. } => {
                self.sandbox = None;
                Outcome::Done
            }
            Action::RemoveVolume { volume } => {
                self.volumes.remove(volume);
                Outcome::Done
            }
            Action::RemovePod | Action::Cancel { .. } => Outcome::Done,
        }
    }

    fn started(&mut self, name: String, id: ContainerId, attempt: u32, slow: bool) -> Outcome {
        if self.sandbox.is_none() {
            return Outcome::Failed(Failure { reason: "CreateContainerError".into(), message: "no sandbox".into() });
        }
        if let Some(entry) = self.containers.iter().find(|e| e.id == id) {
            return Outcome::Container { entry: entry.clone() };
        }
        let now = self.now;
        let state = if slow {
            self.births.insert(id.clone(), now.boot + Millis(self.random.below(5000)));
            ContainerState::Creating
        } else if self.fails() {
            let reason = "StartError".into();
            ContainerState::StartFailed {
                code: 128,
                reason,
                message: "weather".into(),
                at: now.boot,
                at_wall: now.wall,
            }
        } else {
            ContainerState::Running { pid: 1, started_at: now.boot, started_wall: now.wall }
        };
        match state {
            ContainerState::Running { .. } => self.live_on(&name, &id, now.boot),
            ContainerState::Creating => self.live_on(&name, &id, now.boot + Millis(5000)),
            ContainerState::Exited(_) | ContainerState::StartFailed { .. } => {}
        }
        let entry = ContainerEntry {
            id,
            pod: self.pod.uid.clone(),
            name,
            attempt,
            log_path: String::new(),
            cgroup: String::new(),
            state,
        };
        self.containers.push(entry.clone());
        Outcome::Container { entry }
    }

    /// Init containers end by themselves, others only while the weather is bad.
    fn live_on(&mut self, name: &str, id: &ContainerId, from: BootTime) {
        let plain_init = self.pod.spec.init_containers.iter().any(|c| c.name == name && !c.is_sidecar());
        if plain_init || self.random.percent(if self.weather.disturbed > 0 { 60 } else { 0 }) {
            let bad = self.random.percent(self.weather.ends_badly);
            let life = Millis(self.random.pick(&[10, 1000, 20_000, 700_000]));
            self.ends.insert(id.clone(), (from + life, i32::from(bad)));
        }
    }

    fn signal(&mut self, id: &ContainerId) -> Outcome {
        if self.containers.iter().any(|e| e.id == *id) && self.random.percent(70) {
            let end = self.now.boot + Millis(self.random.below(4000));
            self.ends.insert(id.clone(), (end, self.random.pick(&[0, 143])));
        }
        Outcome::Done
    }

    /// Lets something happen that nobody asked for.
    fn disturb(&mut self) {
        if !self.random.percent(self.weather.disturbed) {
            return;
        }
        match self.random.below(7) {
            0 | 1 => self.kill_agent(),
            2 => self.kill_supervisor(),
            3 => self.reboot(),
            4 => {
                let grace = self.random.percent(50).then(|| Millis(self.random.below(20_000)));
                match self.random.below(6) {
                    0 | 1 => self.stop(StopCause::Removed, grace),
                    2 => self.stop(StopCause::Shutdown, None),
                    _ => {}
                }
            }
            5 => {
                let time = self.random.below(900_000);
                self.pass(Millis(time));
            }
            _ => self.images.clear(),
        }
    }

    fn stop(&mut self, cause: StopCause, grace: Option<Millis>) {
        let changes = fold::stop(&mut self.facts, Some(&self.pod), cause, grace, self.now);
        self.keep(&changes);
    }

    /// Actions under way end half done, or not at all; what the agent knew and did not store is gone.
    fn kill_agent(&mut self) {
        for work in std::mem::take(&mut self.work) {
            match &work.action {
                // The supervisor goes on with what it was asked for.
                Action::StartContainer(plan) if self.random.percent(50) => {
                    let _ = self.started(plan.container.clone(), plan.id.clone(), plan.attempt, true);
                }
                action if self.random.percent(50) => {
                    let _ = self.perform(action);
                }
                _ => {}
            }
        }
        self.facts = Facts { durable: self.disk.clone(), volatile: self.tmpfs.clone() };
        self.forget();
    }

    fn forget(&mut self) {
        self.plan = Plan::default();
        self.commits.clear();
        self.untold.clear();
        self.hold = false;
    }

    /// The next supervisor reports what it finds as ended without a known code; the namespaces are gone.
    fn kill_supervisor(&mut self) {
        for id in self.containers.iter().map(|e| e.id.clone()).collect::<Vec<_>>() {
            self.end(&id, 137, false);
        }
        if self.random.percent(50) {
            self.containers.clear();
        }
        (self.sandbox, self.attached) = (None, None);
    }

    fn reboot(&mut self) {
        let removed = self.facts.volatile.stop.clone();
        (self.sandbox, self.attached) = (None, None);
        self.containers.clear();
        self.ends.clear();
        self.births.clear();
        self.work.clear();
        self.volumes.clear();
        self.facts = Facts { durable: self.disk.clone(), ..Facts::default() };
        self.tmpfs = Volatile::default();
        self.forget();
        self.boots += 1;
        self.now.boot = BootTime(500);
        // The sources say again what is no longer desired.
        if let Some(stop) = removed.filter(|s| s.cause == StopCause::Removed) {
            self.stop(stop.cause, None);
        }
    }

    fn live(&self, name: &str) -> bool {
        let alive = |e: &ContainerEntry| matches!(e.state, ContainerState::Creating | ContainerState::Running { .. });
        self.containers.iter().any(|e| e.name == name && alive(e))
    }

    fn any_live(&self) -> bool {
        self.containers.iter().any(|e| self.live(&e.name))
    }

    /// How many ends the agent has not taken over yet.
    fn untaken(&self) -> usize {
        let known = |e: &&ContainerEntry| {
            self.facts.durable.containers.get(&e.name).is_some_and(|r| r.id != e.id || r.ended.is_some())
        };
        self.containers.iter().filter(|e| !known(e)).count()
    }

    fn under_way(&self, key: &ActionKey) -> bool {
        self.work.iter().any(|w| w.action.key() == *key)
    }
}
