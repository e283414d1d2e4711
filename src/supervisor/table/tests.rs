use super::*;
use crate::model::supervise::{ChildReport, ContainerState, Exit};
use crate::model::time::Now;
use crate::model::{Millis, WallTime};
use proptest::prelude::*;
use std::collections::BTreeSet;

fn at(ms: u64) -> Now {
    Now { boot: BootTime(ms), wall: WallTime(0) }
}

fn id(n: u8) -> ContainerId {
    ContainerId::new(format!("{n:02x}")).unwrap()
}

fn pod() -> PodUid {
    PodUid::new("p").unwrap()
}

fn spec(n: u8) -> StartSpec {
    StartSpec {
        id: id(n),
        pod: pod(),
        name: "c".to_owned(),
        attempt: 0,
        bundle: "/b".to_owned(),
        log_path: "/l".to_owned(),
        cgroup: format!("g/{n}"),
        tty: false,
        stdin: false,
        timeout_ms: 1000,
    }
}

fn exec_spec(n: u8, timeout_ms: Option<u64>, tty: bool) -> ExecSpec {
    ExecSpec { id: id(n), command: vec!["x".to_owned()], tty, stdin: false, size: None, timeout_ms }
}

use crate::model::supervise::ExecSpec;

fn asker(seq: u64) -> Asker {
    Asker { link: 1, seq }
}

fn with_sandbox(max_creating: usize) -> Table {
    let mut table = Table::new(max_creating);
    let spec = SandboxSpec { pod: pod(), attempt: 0, host_network: true, hostname: None, sysctls: Vec::new() };
    table.create_sandbox(spec, asker(0), at(0));
    let entry = SandboxEntry {
        pod: pod(),
        attempt: 0,
        host_network: true,
        netns: None,
        ipcns: None,
        utsns: None,
        created_at: BootTime(0),
        created_wall: WallTime(0),
    };
    table.sandbox_made(&pod(), Ok(entry));
    table.take_effects();
    table
}

fn started(table: &mut Table, n: u8, child: u32, first: u32) {
    table.start(spec(n), asker(1));
    table.create_spawned(&id(n), child, 1000, at(0));
    table.create_report(&id(n), ChildReport::Created { pid: first }, true, at(1));
    table.create_report(&id(n), ChildReport::Started, false, at(2));
    table.create_ended(&id(n), child, Ended::Code(0), at(3));
    table.take_effects();
}

#[test]
fn an_exit_is_told_after_the_group_is_empty_and_the_log_written() {
    let mut table = with_sandbox(4);
    started(&mut table, 1, 100, 101);
    assert_eq!(table.who(101), Some(&Who::First(id(1))));
    let ended = EndedFirst { how: Ended::Signal(9), oom: true, at: at(50) };
    table.first_ended(&id(1), 101, ended);
    assert_eq!(table.take_effects(), [Effect::KillGroup(id(1)), Effect::WatchEmpty(id(1))]);
    assert!(matches!(table.container(&id(1)).unwrap().state, ContainerState::Running { .. }));
    table.group_empty(&id(1), at(60));
    assert_eq!(table.take_effects(), [Effect::FinishLog(id(1))]);
    table.group_empty(&id(1), at(61));
    table.drained(&id(1));
    assert_eq!(table.take_effects(), [Effect::Record(id(1)), Effect::Tell(id(1))]);
    let ContainerState::Exited(exit) = &table.container(&id(1)).unwrap().state else { panic!() };
    let Exit { code, signal, oom_killed, started_at, finished_at, .. } = exit;
    assert_eq!((*code, *signal, *oom_killed), (137, Some(9), true));
    assert_eq!((*started_at, *finished_at), (BootTime(2), BootTime(50)));
    table.drained(&id(1));
    assert_eq!(table.take_effects(), []);
}

#[test]
fn what_does_not_come_is_waited_for_only_so_long() {
    let mut table = with_sandbox(4);
    started(&mut table, 1, 100, 101);
    table.first_ended(&id(1), 101, EndedFirst { how: Ended::Code(0), oom: false, at: at(100) });
    assert_eq!(table.deadline(), Some(BootTime(2100)));
    table.tick(at(2100));
    assert_eq!(table.deadline(), Some(BootTime(4100)));
    table.tick(at(4100));
    assert_eq!(table.deadline(), None);
    assert!(matches!(table.container(&id(1)).unwrap().state, ContainerState::Exited(_)));
}

#[test]
fn few_create_children_work_at_a_time() {
    let mut table = with_sandbox(2);
    for n in 1..=4 {
        table.start(spec(n), asker(u64::from(n)));
    }
    let creates = |effects: &[Effect]| effects.iter().filter(|e| matches!(e, Effect::Create(_))).count();
    assert_eq!(creates(&table.take_effects()), 2);
    table.start_failed(&id(1), "no".to_owned(), at(1));
    assert_eq!(creates(&table.take_effects()), 1);
    // One that still waits can be killed, and its place is not kept.
    table.kill(&id(4), asker(9), at(2));
    let effects = table.take_effects();
    assert!(effects.contains(&Effect::Answer(asker(9), Reply::Done)));
    assert!(matches!(table.container(&id(4)).unwrap().state, ContainerState::StartFailed { .. }));
    table.start_failed(&id(2), "no".to_owned(), at(3));
    assert_eq!(creates(&table.take_effects()), 0);
}

#[test]
fn a_process_that_ended_unnamed_is_remembered_for_its_report() {
    let mut table = with_sandbox(4);
    table.stray_ended(7, Ended::Code(1));
    assert!(table.strays.is_empty(), "nobody is being created");
    table.start(spec(1), asker(1));
    table.create_spawned(&id(1), 100, 1000, at(0));
    table.stray_ended(101, Ended::Code(5));
    table.create_report(&id(1), ChildReport::Created { pid: 101 }, false, at(1));
    table.create_report(&id(1), ChildReport::Started, false, at(2));
    table.group_empty(&id(1), at(3));
    table.drained(&id(1));
    let ContainerState::Exited(exit) = &table.container(&id(1)).unwrap().state else { panic!() };
    assert_eq!(exit.code, 5);
}

#[test]
fn a_number_that_is_used_again_means_the_process_that_has_it_now() {
    let mut table = with_sandbox(4);
    started(&mut table, 1, 100, 101);
    table.start(spec(2), asker(1));
    table.create_spawned(&id(2), 102, 1000, at(0));
    for pid in [103, 104] {
        table.stray_ended(pid, Ended::Code(5));
    }
    table.create_report(&id(2), ChildReport::Created { pid: 103 }, true, at(1));
    table.create_report(&id(2), ChildReport::Started, false, at(2));
    assert_eq!(table.who(103), Some(&Who::First(id(2))));
    assert!(matches!(table.container(&id(2)).unwrap().state, ContainerState::Running { pid: 103, .. }));
    let plan = table.admit_exec(&exec_spec(1, None, false)).unwrap();
    table.exec_spawned(plan.session, &exec_spec(1, None, false), 105, asker(2), at(3));
    table.exec_report(plan.session, ChildReport::Created { pid: 104 }, true);
    table.exec_report(plan.session, ChildReport::Started, false);
    assert_eq!(table.who(104), Some(&Who::ExecFirst(plan.session)));
    assert!(!table.take_effects().iter().any(|e| matches!(e, Effect::SessionOver { .. })));
    assert!(table.strays.is_empty());
}

#[test]
fn sessions_of_an_agent_that_is_gone_are_ended_when_the_next_is_there() {
    let mut table = with_sandbox(4);
    started(&mut table, 1, 100, 101);
    let session = |table: &mut Table, child, timeout, link| {
        let spec = exec_spec(1, timeout, false);
        let plan = table.admit_exec(&spec).unwrap();
        table.exec_spawned(plan.session, &spec, child, Asker { link, seq: 1 }, at(0));
        table.exec_report(plan.session, ChildReport::Created { pid: child + 1 }, true);
        table.exec_report(plan.session, ChildReport::Started, false);
        plan.session
    };
    let endless = session(&mut table, 200, None, 1);
    let short = session(&mut table, 300, Some(1000), 1);
    let of_the_next = session(&mut table, 400, None, 2);
    table.take_effects();
    table.agent_changed(2, at(100));
    table.tick(at(1000));
    assert_eq!(table.take_effects(), [Effect::KillSession(short)]);
    table.exec_first_ended(short, 301, Ended::Signal(9));
    // A third agent does not give them more time.
    table.agent_changed(2, at(4000));
    table.take_effects();
    table.tick(at(5099));
    assert_eq!(table.take_effects(), []);
    table.tick(at(5100));
    assert_eq!(table.take_effects(), [Effect::KillSession(endless)]);
    table.exec_first_ended(endless, 201, Ended::Signal(9));
    assert!(matches!(table.take_effects()[..], [Effect::SessionOver { exit: ExecExit::TimedOut, .. }]));
    assert_eq!(table.sessions.keys().copied().collect::<Vec<_>>(), [of_the_next]);
}

#[test]
fn two_containers_never_share_a_group_nor_a_process() {
    let mut table = with_sandbox(4);
    started(&mut table, 1, 100, 101);
    table.start(StartSpec { cgroup: "g/1".to_owned(), ..spec(2) }, asker(2));
    assert!(matches!(
        table.take_effects()[..],
        [Effect::Answer(_, Reply::Refused { code: RefusalCode::Conflict, .. })]
    ));
    table.start(spec(3), asker(3));
    table.create_spawned(&id(3), 102, 1000, at(0));
    table.create_report(&id(3), ChildReport::Created { pid: 101 }, true, at(1));
    assert!(table.take_effects().contains(&Effect::KillCreate(id(3))));
    assert_eq!(table.who(101), Some(&Who::First(id(1))));
}

#[test]
fn tables_have_an_end() {
    let mut table = with_sandbox(4);
    for n in 0..2000_u32 {
        let id = ContainerId::new(format!("{n:04x}")).unwrap();
        table.start(StartSpec { id, cgroup: format!("g/{n}"), ..spec(0) }, asker(u64::from(n)));
    }
    assert_eq!(table.containers.len(), containers::MAX_CONTAINERS);
    for n in 0..2000_u32 {
        table.stray_ended(n, Ended::Code(0));
    }
    assert_eq!(table.strays.len(), MAX_STRAYS);
}

/// What the property test does to a table: a number for the kind of step and two for its details.
type Step = (u8, u8, u8);

/// A small world beside the table: which processes live, who waits for what.
struct World {
    table: Table,
    now: u64,
    alive: BTreeSet<u32>,
    next_pid: u32,
    seq: u64,
    waiting: BTreeSet<u64>,
    recorded: BTreeSet<ContainerId>,
    creates: BTreeSet<ContainerId>,
}

impl World {
    fn ask(&mut self) -> Asker {
        self.seq += 1;
        self.waiting.insert(self.seq);
        asker(self.seq)
    }

    fn new_pid(&mut self) -> u32 {
        self.next_pid += 1;
        self.alive.insert(self.next_pid);
        self.next_pid
    }

    fn any_pid(&self, pick: u8) -> Option<u32> {
        self.alive.iter().nth(usize::from(pick) % self.alive.len().max(1)).copied()
    }

    /// Reaps a process as the driver does.
    fn end(&mut self, pid: u32, how: Ended) {
        self.alive.remove(&pid);
        let now = at(self.now);
        match self.table.who(pid).cloned() {
            Some(Who::Create(id)) => self.table.create_ended(&id, pid, how, now),
            Some(Who::First(id)) => self.table.first_ended(&id, pid, EndedFirst { how, oom: false, at: now }),
            Some(Who::ExecChild(session)) => self.table.exec_child_ended(session, pid, how),
            Some(Who::ExecFirst(session)) => self.table.exec_first_ended(session, pid, how),
            Some(Who::Helper(pod)) => self.table.helper_ended(&pod, pid),
            None => self.table.stray_ended(pid, how),
        }
        assert_eq!(self.table.who(pid), None, "a reaped number means nothing any more");
    }

    fn step(&mut self, (kind, n, m): Step) {
        let now = at(self.now);
        let which = id(n % 6);
        let session = u64::from(m % 8);
        let how = if m % 2 == 0 { Ended::Code(i32::from(m)) } else { Ended::Signal(9) };
        match kind % 16 {
            0 | 1 => {
                let asker = self.ask();
                self.table.start(spec(n % 6), asker);
            }
            2 => {
                let pid = self.new_pid();
                self.table.create_report(&which, ChildReport::Created { pid }, m % 8 != 0, now);
            }
            3 => self.table.create_report(&which, ChildReport::Started, false, now),
            4 => {
                let (reason, message) = (String::new(), String::new());
                self.table.create_report(&which, ChildReport::Failed { code: 127, reason, message }, false, now);
            }
            5 | 6 => {
                if let Some(pid) = self.any_pid(n) {
                    self.end(pid, how);
                }
            }
            7 => self.table.group_empty(&which, now),
            8 => self.table.drained(&which),
            9 => self.now += u64::from(n) * u64::from(m),
            10 => {
                let asker = self.ask();
                self.table.kill(&which, asker, now);
            }
            11 => {
                let asker = self.ask();
                self.table.signal(&which, i32::from(m), asker);
            }
            12 => {
                let asker = self.ask();
                self.table.forget(&which, asker);
            }
            13 => self.exec(n % 6, m),
            14 => {
                let pid = self.new_pid();
                self.table.exec_report(session, ChildReport::Created { pid }, true);
                self.table.exec_report(session, ChildReport::Started, false);
            }
            _ => {
                let asker = self.ask();
                self.table.kill_session(session, asker);
                self.table.exec_terminal(session);
            }
        }
        self.table.tick(at(self.now));
        self.perform();
    }

    fn exec(&mut self, n: u8, m: u8) {
        let asker = self.ask();
        let spec = exec_spec(n, m.is_multiple_of(3).then_some(500), m.is_multiple_of(2));
        match self.table.admit_exec(&spec) {
            Ok(plan) => {
                let pid = self.new_pid();
                self.table.exec_spawned(plan.session, &spec, pid, asker, at(self.now));
            }
            Err(_) => assert!(self.waiting.remove(&asker.seq)),
        }
    }

    fn perform(&mut self) {
        for _ in 0..1000 {
            let effects = self.table.take_effects();
            if effects.is_empty() {
                return;
            }
            for effect in effects {
                self.perform_one(effect);
            }
        }
        panic!("effects without end");
    }

    fn perform_one(&mut self, effect: Effect) {
        match effect {
            Effect::Create(spec) => {
                assert!(self.creates.insert(spec.id.clone()), "{} is created twice", spec.id);
                let pid = self.new_pid();
                self.table.create_spawned(&spec.id, pid, spec.timeout_ms, at(self.now));
            }
            Effect::Answer(asker, _) | Effect::AnswerExec(_, asker) => {
                assert!(self.waiting.remove(&asker.seq), "request {} is answered twice", asker.seq);
            }
            Effect::Signal(pid, signal) => {
                assert!(self.alive.contains(&pid), "{pid} is gone");
                assert!((1..=64).contains(&signal));
            }
            Effect::Record(id) => drop(self.recorded.insert(id)),
            Effect::Erase(id) => {
                self.recorded.remove(&id);
                self.creates.remove(&id);
            }
            Effect::Tell(id) => {
                let over = matches!(
                    self.table.container(&id).unwrap().state,
                    ContainerState::Exited(_) | ContainerState::StartFailed { .. }
                );
                assert!(!over || self.recorded.contains(&id), "{id} is told before it is recorded");
            }
            _ => {}
        }
    }

    /// Every process ends and time goes on: nothing may be left undone.
    fn settle(&mut self) {
        for _ in 0..10 {
            for pid in self.alive.clone() {
                self.end(pid, Ended::Code(0));
                self.perform();
            }
            self.now += 60_000;
            self.table.tick(at(self.now));
            self.perform();
        }
        assert_eq!(self.waiting, BTreeSet::new(), "requests without an answer");
        assert_eq!(self.table.deadline(), None);
        assert_eq!(self.table.live(), Vec::<ContainerId>::new());
        assert!(self.table.sessions.is_empty() && self.table.children.is_empty());
        assert_eq!(self.table.creating, 0);
        assert!(self.table.queue.is_empty());
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(128))]
    #[test]
    fn whatever_happens_everybody_is_answered_once_and_everything_ends(
        steps in prop::collection::vec(any::<Step>(), 0..150),
    ) {
        let mut world = World {
            table: with_sandbox(2),
            now: 10,
            alive: BTreeSet::new(),
            next_pid: 1000,
            seq: 10,
            waiting: BTreeSet::new(),
            recorded: BTreeSet::new(),
            creates: BTreeSet::new(),
        };
        for step in steps {
            world.step(step);
        }
        world.settle();
    }
}

#[test]
fn an_exec_that_runs_too_long_is_killed_and_told_so() {
    let mut table = with_sandbox(4);
    started(&mut table, 1, 100, 101);
    let spec = exec_spec(1, Some(500), false);
    let plan = table.admit_exec(&spec).unwrap();
    assert_eq!((plan.pid, plan.cgroup.as_str()), (101, "g/1/exec-1"));
    table.exec_spawned(plan.session, &spec, 200, asker(5), at(0));
    table.exec_report(plan.session, ChildReport::Created { pid: 201 }, true);
    table.exec_report(plan.session, ChildReport::Started, false);
    table.take_effects();
    assert_eq!(table.deadline(), Some(BootTime(500)));
    table.tick(at(500));
    assert_eq!(table.take_effects(), [Effect::KillSession(1)]);
    assert_eq!(table.session_pids(1), [200, 201]);
    // A program that cannot die (it waits for a dead disk) does not hold up the answer.
    assert_eq!(table.deadline(), Some(BootTime(500) + Millis(2000)));
    table.tick(at(2500));
    let over = Effect::SessionOver { session: 1, asker: asker(5), container: id(1), exit: ExecExit::TimedOut };
    assert_eq!(table.take_effects(), [over]);
}
