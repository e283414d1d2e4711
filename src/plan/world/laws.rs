//! The laws of the plan, checked at every turn of the world, and the worlds they are checked in.

use super::{CALM, World, random};
use crate::model::action::{Action, ActionKey};
use crate::model::observed::{Observed, StopCause};
use crate::model::pod::{Container, RestartPolicy};
use crate::model::status::{Phase, PodStatus, State};
use crate::model::{BootTime, ContainerId, Millis};
use crate::plan::{Plan, pod};
use std::collections::BTreeSet;
use std::time::Duration;

/// Same inputs, same plan; what it says may all start now; nothing in it is unsafe.
pub(super) fn check(world: &World, observed: &Observed, plan: &Plan) {
    assert_eq!(*plan, pod(observed, &world.grants(), world.now), "the same inputs give the same plan");
    let mut keys = BTreeSet::new();
    for action in &plan.actions {
        let key = action.key();
        let cancel = matches!(action, Action::Cancel { .. });
        assert!(keys.insert((cancel, key.clone())), "{action:?} twice in {plan:#?}");
        assert_eq!(world.under_way(&key), cancel, "{action:?} while it is under way");
        safe(world, plan, action);
    }
    let starts = plan.actions.iter().filter(|a| matches!(a, Action::StartContainer(_))).count();
    assert!(starts <= 1, "containers start one after the other: {plan:#?}");
}

fn safe(world: &World, plan: &Plan, action: &Action) {
    let any_live = world.containers.iter().any(|e| world.live(&e.name));
    let starting = world.work.iter().map(|w| &w.action).chain(&plan.actions).any(is_start);
    match action {
        Action::StartContainer(start) => may_start(world, &start.container, &start.id, start.attempt),
        Action::Signal { container, .. } => may_signal(world, container),
        Action::Kill { id, .. } => may_kill(world, id),
        Action::DetachNetwork { attempt } => {
            let here = world.sandbox.as_ref().map(|s| s.attempt);
            assert!(!(any_live || starting) || here != Some(*attempt), "network taken from what runs");
        }
        Action::RemoveVolume { .. } | Action::DestroySandbox { .. } => {
            assert!(!any_live && !starting, "{action:?} under a living container: {plan:#?}");
        }
        Action::RemoveContainer { id, container, .. } => {
            let dead = world.containers.iter().any(|e| e.id == *id && e.name == *container);
            assert!(dead && !(world.live(container) && newest(world, container) == Some(id)), "{action:?}");
        }
        Action::RemovePod => {
            assert!(world.containers.is_empty() && world.sandbox.is_none() && world.attached.is_none());
            assert!(world.volumes.is_empty() && !starting);
        }
        Action::Cancel { key } => {
            assert!(world.work.iter().any(|w| w.action.key() == *key && !w.cancelled), "{action:?} twice");
        }
        Action::PrepareVolume { .. }
        | Action::CreateSandbox(_)
        | Action::AttachNetwork { .. }
        | Action::EnsureImage { .. }
        | Action::Probe { .. } => {
            assert!(!world.told.as_ref().is_some_and(|t| ended(t.phase)) || matches!(action, Action::Probe { .. }));
        }
    }
}

fn is_start(action: &Action) -> bool {
    matches!(action, Action::StartContainer(_))
}

fn newest<'a>(world: &'a World, name: &str) -> Option<&'a ContainerId> {
    world.containers.iter().filter(|e| e.name == name).max_by_key(|e| e.attempt).map(|e| &e.id)
}

fn may_start(world: &World, name: &str, id: &ContainerId, attempt: u32) {
    assert!(!world.live(name), "two living attempts of {name}");
    assert!(!world.work.iter().any(|w| is_start(&w.action)), "a start under way, and now {name}");
    assert!(world.sandbox.is_some() && (world.pod.spec.host_network || world.attached.is_some()));
    let same = (name.to_owned(), attempt);
    assert!(world.used.get(id).is_none_or(|used| *used == same), "{id} was used before");
    assert!(world.facts.volatile.stop.is_none(), "{name} starts in a pod that stops");
    assert!(!world.told.as_ref().is_some_and(|t| ended(t.phase)), "{name} starts in a pod that has ended");
    let spec = &world.pod.spec;
    assert_eq!(spec.volumes.len(), world.volumes.len(), "{name} starts without its volumes");
    for earlier in spec.init_containers.iter().take_while(|c| c.name != name) {
        assert!(begun_here(world, earlier), "{name} starts before {}", earlier.name);
        let ended = world.facts.durable.containers[&earlier.name].ended.as_ref();
        assert!(earlier.is_sidecar() || ended.is_some_and(|e| e.exit_code == 0), "{} is not done", earlier.name);
    }
    may_start_again(world, name);
    for earlier in spec.containers.iter().take_while(|c| c.name != name) {
        let fact = world.facts.volatile.containers.get(&earlier.name);
        let image = world.facts.volatile.images.get(&earlier.image);
        let init = spec.init_containers.iter().any(|c| c.name == name);
        let failed = fact.is_some_and(|f| f.start_failure.is_some() || f.finished_at.is_some())
            || image.is_some_and(|i| i.failure.is_some() || i.ensured_at.is_some());
        let over = world.facts.durable.containers.get(&earlier.name).is_some_and(|r| r.ended.is_some());
        assert!(init || failed || over || begun_here(world, earlier), "{name} starts before {}", earlier.name);
    }
}

/// What has ended for good does not start again.
fn may_start_again(world: &World, name: &str) {
    let Some(record) = world.facts.durable.containers.get(name) else { return };
    let stop = world.facts.volatile.containers.get(name).and_then(|f| f.stop.as_ref());
    let ours = stop.is_some_and(|s| s.id == record.id && s.restart) || record.interrupted;
    let spec = &world.pod.spec;
    let code = record.ended.as_ref().map(|e| e.exit_code);
    let of = |c: &Container| c.restart_policy.unwrap_or(spec.restart_policy);
    if let Some(main) = spec.containers.iter().find(|c| c.name == name).filter(|_| !ours) {
        let over = match of(main) {
            RestartPolicy::Always => false,
            RestartPolicy::OnFailure => code == Some(0),
            RestartPolicy::Never => true,
        };
        assert!(!over, "{name} had ended for good with {code:?}");
    }
    if let Some(init) = spec.init_containers.iter().find(|c| c.name == name && !c.is_sidecar()) {
        let failed_for_good = of(init) == RestartPolicy::Never && code != Some(0) && !record.interrupted;
        let done = code == Some(0) && begun_here(world, init);
        assert!(!failed_for_good && !done, "{name} had ended for good with {code:?}");
    }
}

fn begun_here(world: &World, container: &Container) -> bool {
    let here = world.sandbox.as_ref().map(|s| s.attempt);
    world.facts.durable.containers.get(&container.name).is_some_and(|r| Some(r.sandbox) == here)
}

/// Sidecars are stopped after all others and in reverse order, unless the time is over.
fn may_signal(world: &World, name: &str) {
    let Some(stop) = &world.facts.volatile.stop else { return };
    let spec = &world.pod.spec;
    let Some(at) = spec.init_containers.iter().position(|c| c.name == name && c.is_sidecar()) else { return };
    let later = spec.init_containers[at + 1..].iter().chain(&spec.containers);
    let waits_for: Vec<_> = later.filter(|c| world.live(&c.name)).map(|c| &c.name).collect();
    assert!(waits_for.is_empty() || world.now.boot >= stop.deadline, "{name} is stopped before {waits_for:?}");
}

/// Never before the deadline that counts now.
fn may_kill(world: &World, id: &ContainerId) {
    let stop = world.facts.volatile.stop.as_ref().map(|s| s.deadline);
    let pods = [stop, finish(world)].into_iter().flatten().min();
    let earliest = match world.signalled.get(id) {
        Some(signal) => {
            let own = signal.at + signal.grace;
            pods.map_or(own, |p| p.min(own)).max(signal.at + Millis::from_secs(2))
        }
        None => pods.unwrap_or(BootTime(u64::MAX)),
    };
    assert!(world.now.boot >= earliest, "{id} killed at {:?} instead of {earliest:?}", world.now.boot);
}

/// When the sidecars of a pod whose other containers are done are out of time.
fn finish(world: &World) -> Option<BootTime> {
    let spec = &world.pod.spec;
    let main = || spec.init_containers.iter().filter(|c| !c.is_sidecar()).chain(&spec.containers);
    let last = main().filter_map(|c| world.facts.volatile.containers.get(&c.name)?.finished_at).max()?;
    let over = !main().any(|c| world.live(&c.name));
    over.then(|| last + Millis::from_secs(spec.termination_grace_secs))
}

fn ended(phase: Phase) -> bool {
    matches!(phase, Phase::Succeeded | Phase::Failed)
}

/// What was told stays true: an end is an end, restarts are never counted back.
pub(super) fn told(world: &World, status: &PodStatus) {
    let Some(before) = &world.told else { return };
    if ended(before.phase) {
        assert_eq!(before.phase, status.phase, "an end was taken back");
    }
    let counts =
        |s: &PodStatus| s.init_containers.iter().chain(&s.containers).map(|c| c.restart_count).collect::<Vec<_>>();
    assert!(counts(before).iter().zip(counts(status)).all(|(b, n)| *b <= n), "{before:?} {status:?}");
    if ended(status.phase) {
        let running = |c: &crate::model::status::ContainerStatus| matches!(c.state, State::Running { .. });
        assert!(!status.containers.iter().any(running), "an end was told while something runs");
    }
}

/// When reality does not change, there is nothing to do before the moment that the plan names.
pub(super) fn quiet(world: &World, uncommitted: bool, plan: &Plan) {
    let observed = Observed { uncommitted, ..world.observe() };
    let until = plan.wake_at.map_or(world.now.boot + Millis::from_secs(100_000), |at| at - Millis(1));
    for boot in [world.now.boot, until].into_iter().filter(|boot| (world.now.boot..=until).contains(boot)) {
        let now = crate::model::time::Now { boot, ..world.now };
        let again = pod(&observed, &world.grants(), now);
        assert!(again.actions.is_empty(), "not quiet: {:#?}\nafter {plan:#?}\nin {observed:#?}", again.actions);
        assert!(again.events.is_empty(), "told twice: {:#?}\nin {observed:#?}", again.events);
    }
}

fn storm(seed: u64, turns: usize) -> World {
    let mut world = World::new(seed);
    for _ in 0..turns {
        world.turn();
        if world.gone {
            break;
        }
        world.disturb();
        world.advance();
    }
    world
}

/// Fair weather until all that was to come has come.
fn settle(world: &mut World) {
    world.weather = CALM;
    for _ in 0..6 {
        for _ in 0..60 {
            world.turn();
            if world.gone || !world.advance() {
                break;
            }
        }
        world.pass(Millis::from_secs(700));
    }
    world.turn();
}

/// A pod that is removed leaves nothing behind, whatever happened before.
fn removal_converges(seed: u64) {
    let mut world = storm(seed, 60);
    world.stop(StopCause::Removed, None);
    settle(&mut world);
    assert!(world.gone, "not gone: {:#?}\n{:#?}", world.plan, world.observe());
    assert!(world.containers.is_empty() && world.sandbox.is_none() && world.volumes.is_empty());
}

/// A pod that is left alone comes to rest: all that should run runs, or it has ended and holds nothing.
fn running_converges(seed: u64) {
    let mut world = storm(seed, 60);
    settle(&mut world);
    if world.gone || world.facts.volatile.stop.is_some() {
        return;
    }
    let context = || format!("{:#?}\n{:#?}", world.plan, world.observe());
    if ended(world.plan.status.phase) {
        assert!(world.containers.is_empty() && world.sandbox.is_none() && world.volumes.is_empty(), "{}", context());
        return;
    }
    assert_eq!(world.plan.status.phase, Phase::Running, "{}", context());
    for container in &world.pod.spec.containers {
        let policy = container.restart_policy.unwrap_or(world.pod.spec.restart_policy);
        let record = world.facts.durable.containers.get(&container.name);
        let over = policy != RestartPolicy::Always && record.is_some_and(|r| r.ended.is_some());
        assert!(over || world.live(&container.name), "{} does not run: {}", container.name, context());
    }
    for sidecar in world.pod.spec.init_containers.iter().filter(|c| c.is_sidecar()) {
        assert!(world.live(&sidecar.name), "{} does not run: {}", sidecar.name, context());
    }
}

/// What only the node's shutdown ended runs again after it, what had ended for good before does not.
fn shutdown_is_no_end(seed: u64) {
    let mut world = storm(seed, 40);
    if world.gone || world.facts.volatile.stop.is_some() || world.facts.durable.finished.is_some() {
        return;
    }
    world.weather = CALM;
    world.turn();
    let (boots, spec) = (world.boots, world.pod.spec.clone());
    let of = |c: &Container| c.restart_policy.unwrap_or(spec.restart_policy);
    let before = world.facts.durable.containers.clone();
    let code = |name: &str| before.get(name).and_then(|record| Some(record.ended.as_ref()?.exit_code));
    world.stop(StopCause::Shutdown, None);
    for _ in 0..500 {
        if world.boots > boots {
            break;
        }
        world.turn();
        if !world.advance() {
            world.pass(Millis::from_secs(5));
        }
    }
    assert!(world.boots > boots, "the node does not go down: {:#?}\n{:#?}", world.plan, world.observe());
    settle(&mut world);
    let context = || format!("before: {before:#?}\n{:#?}\n{:#?}", world.plan, world.observe());
    let dead = spec.init_containers.iter().filter(|c| !c.is_sidecar() && of(c) == RestartPolicy::Never);
    if dead.map(|c| code(&c.name)).any(|code| code.is_some_and(|code| code != 0)) {
        return;
    }
    for container in &spec.containers {
        let code = code(&container.name);
        let over = match of(container) {
            RestartPolicy::Always => false,
            RestartPolicy::OnFailure => code == Some(0),
            RestartPolicy::Never => code.is_some(),
        };
        assert!(over || world.live(&container.name), "{} does not run: {}", container.name, context());
    }
}

/// Runs worlds for a share of them that a change cannot avoid for long, or for `ARMLET_CAMPAIGN_SECONDS`.
fn campaign(name: &str, worlds: u64, run: fn(u64)) {
    let secs = std::env::var("ARMLET_CAMPAIGN_SECONDS").ok().and_then(|s| s.parse().ok());
    let until = secs.map(|secs| crate::plan::testing::Stopwatch::new(Duration::from_secs(secs)));
    let first = std::env::var("ARMLET_SEED").ok().and_then(|s| s.parse().ok()).unwrap_or(0);
    let mut seed = first;
    while until.as_ref().map_or(seed < first + worlds, |u| !u.over()) {
        if std::panic::catch_unwind(|| run(seed)).is_err() {
            panic!("{name}: the world of seed {seed} breaks a law");
        }
        seed += 1;
    }
}

#[test]
fn a_removed_pod_leaves_nothing() {
    campaign("removal", 60, removal_converges);
}

#[test]
fn a_pod_left_alone_comes_to_rest() {
    campaign("running", 60, running_converges);
}

#[test]
fn a_shutdown_ends_nothing_for_good() {
    campaign("shutdown", 60, shutdown_is_no_end);
}

/// Any part of one world put into another still gives a plan.
#[test]
fn any_input_gives_a_plan() {
    for seed in 0..80 {
        let (one, other) = (storm(seed, 20), storm(seed + 1000, 20));
        let mut random = random::Random(seed);
        let mut mixed = one.observe();
        let strange = other.observe();
        if random.percent(50) {
            mixed.facts = strange.facts;
        }
        if random.percent(50) {
            mixed.containers = strange.containers;
        }
        if random.percent(50) {
            mixed.sandbox = strange.sandbox;
        }
        if random.percent(30) {
            mixed.pod = None;
        }
        mixed.in_flight.extend(strange.in_flight);
        let now = crate::model::time::Now { boot: BootTime(random.next()), wall: crate::model::WallTime(0) };
        let plan = pod(&mixed, &one.grants(), now);
        assert_eq!(plan, pod(&mixed, &one.grants(), now));
        let _ = crate::plan::fold::table(&mut mixed, now);
        let _ = pod(&mixed, &one.grants(), now);
    }
}

/// What a board prints can be pasted into a test.
#[test]
fn an_observation_survives_as_text() {
    for seed in 0..20 {
        let observed = storm(seed, 30).observe();
        let text = serde_json::to_string(&observed).unwrap();
        assert_eq!(serde_json::from_str::<Observed>(&text).unwrap(), observed, "{text}");
    }
}

#[test]
fn keys_are_stable_text() {
    let key = ActionKey::StartContainer { container: "app".into() };
    assert_eq!(serde_json::to_string(&key).unwrap(), r#"{"do":"startContainer","container":"app"}"#);
}
