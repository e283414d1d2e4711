//! The one loop: waits, tells the table what happened, performs what follows.

mod adopt;
mod effects;
mod events;
mod offer;
mod requests;

use super::groups::Groups;
use super::init::Node;
use super::link::Links;
use super::logs::Logs;
use super::poller::{Interest, Poller, Source, Watched};
use super::records::{Records, private_dir};
use super::sandbox::Namespaces;
use super::streams::ReportPipe;
use super::table::Table;
use super::{Options, StartError};
use crate::model::supervise::{ContainerState, Exit, MAX_MESSAGE, Notice, SandboxSpec};
use crate::model::time::Now;
use crate::model::{BootTime, ContainerId, Millis, PodUid};
use crate::sys::{clock, exe, files, log, memory, own_group, seqpacket, signals};
use offer::{Offer, Outcome};
use rustix::fd::OwnedFd;
use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::path::Path;

/// How long nothing may have started before the code for that is let go.
pub(super) const TRIM_PAUSE: Millis = Millis(5_000);
/// What is read as an event.
const SIGNALS: [i32; 6] = [libc::SIGCHLD, libc::SIGTERM, libc::SIGINT, libc::SIGPWR, libc::SIGUSR1, libc::SIGUSR2];
/// Create children at work at the same time, per processor.
const CREATES_PER_CPU: usize = 2;

/// The supervisor.
#[derive(Debug)]
pub(crate) struct Supervisor {
    options: Options,
    table: Table,
    poller: Poller,
    links: Links,
    logs: Logs,
    groups: Groups,
    records: Records,
    exe: OwnedFd,
    signals: Watched,
    listener: Watched,
    namespaces: BTreeMap<PodUid, Namespaces>,
    helpers: BTreeMap<PodUid, (Watched, SandboxSpec)>,
    starting: BTreeMap<ContainerId, Starting>,
    /// Write ends of standard input, kept so that a program never meets its end.
    stdins: BTreeMap<ContainerId, OwnedFd>,
    emptying: BTreeMap<ContainerId, Watched>,
    sessions: BTreeMap<u64, Streams>,
    /// Groups of sessions that are over but for what their programs left running.
    left_groups: BTreeMap<u64, LeftGroup>,
    /// Groups of create children that could not be removed yet.
    stale_groups: BTreeSet<String>,
    stale_at: Option<BootTime>,
    /// When the code that starting a container needed is let go again.
    trim_at: Option<BootTime>,
    /// Ended children were left unreaped to give others their turn.
    reap_again: bool,
    /// Containers of whose state the agent is to be told.
    changed: BTreeSet<ContainerId>,
    buffer: Box<[u8]>,
    /// Up to which line the agent has read the log, until it was told of the next.
    log_shown: Option<u64>,
    creates: u64,
    orphans: u64,
    /// A program that is being looked at, to be the supervisor from then on.
    offer: Option<Offer>,
    /// What was offered last on a connection and not taken.
    refused: Option<(u64, String)>,
    /// Children that look or have looked a document over, and their cgroups.
    lookers: BTreeMap<u32, String>,
    /// Who is to be told how the hand-over ended that this program came by.
    outcome: Option<Outcome>,
    hand_overs: u64,
    node: Node,
    lock: OwnedFd,
}

/// What is held of a container that is being created.
#[derive(Debug)]
struct Starting {
    report: ReportPipe,
    console: Option<Watched>,
}

/// What is held of an exec session.
#[derive(Debug)]
struct Streams {
    cgroup: String,
    report: Option<ReportPipe>,
    console: Option<Watched>,
    /// Handed to the agent with the answer and not kept: only it can end the program's input.
    stdin: Option<OwnedFd>,
    /// Standard output and error, or the terminal. Kept, so that the program outlives the agent.
    outputs: Vec<OwnedFd>,
    /// The outputs are a terminal.
    terminal: bool,
    /// The terminal's columns and rows.
    size: Option<(u16, u16)>,
}

/// The cgroup of a session that is over, watched until it is empty.
#[derive(Debug)]
struct LeftGroup {
    cgroup: String,
    events: Watched,
}

impl Supervisor {
    /// The data folder.
    pub(crate) fn data(&self) -> &Path {
        &self.options.data
    }

    /// Takes the lock, finds what an earlier supervisor left, and opens the socket.
    ///
    /// # Errors
    /// [`StartError`]: what could not be done.
    pub(crate) fn start(options: &Options, node: Node) -> Result<Self, StartError> {
        let failed = |operation| move |source: io::Error| StartError::System { operation, source };
        private_dir(&options.run).map_err(failed("make the run folder"))?;
        let lock = take_lock(&options.run)?;
        protect_self();
        let groups = Groups::new(options.cgroup.clone(), own_group::place());
        groups.enter_own("supervisor").map_err(failed("enter the own cgroup"))?;
        groups.clear_own();
        let records = Records::open(&options.run).map_err(failed("open the records"))?;
        let mut poller = Poller::new().map_err(failed("make the epoll set"))?;
        let signal_fd = signals::take_over(&SIGNALS).map_err(failed("take over the signals"))?;
        let signals = poller.add(signal_fd, Source::Signals, Interest::Read).map_err(failed("watch the signals"))?;
        let socket = seqpacket::listen(&options.run.join("supervisor.sock")).map_err(failed("open the socket"))?;
        let listener = poller.add(socket, Source::Listener, Interest::Read).map_err(failed("watch the socket"))?;
        let cpus = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
        let mut supervisor = Self {
            options: options.clone(),
            table: Table::new(cpus.saturating_mul(CREATES_PER_CPU)),
            poller,
            links: Links::default(),
            logs: Logs::new(),
            groups,
            records,
            exe: exe::protected().map_err(failed("protect the binary"))?,
            signals,
            listener,
            namespaces: BTreeMap::new(),
            helpers: BTreeMap::new(),
            starting: BTreeMap::new(),
            stdins: BTreeMap::new(),
            emptying: BTreeMap::new(),
            sessions: BTreeMap::new(),
            left_groups: BTreeMap::new(),
            stale_groups: BTreeSet::new(),
            stale_at: None,
            trim_at: Some(clock::now().boot + TRIM_PAUSE),
            reap_again: false,
            changed: BTreeSet::new(),
            buffer: vec![0; MAX_MESSAGE].into_boxed_slice(),
            log_shown: None,
            creates: 0,
            orphans: 0,
            offer: None,
            refused: None,
            lookers: BTreeMap::new(),
            outcome: None,
            hand_overs: 0,
            node,
            lock,
        };
        supervisor.take_over_survivors(clock::now());
        Ok(supervisor)
    }

    /// Containers that outlived their supervisor have nobody who knows how they end: they are killed, and reported
    /// as ended in an unknown way once they are gone.
    fn take_over_survivors(&mut self, now: Now) {
        let (ended, live) = self.records.load();
        for entry in ended {
            self.table.adopt_ended(entry);
        }
        let mut known = BTreeSet::new();
        for entry in live {
            known.insert(entry.cgroup.clone());
            let to = match entry.state {
                ContainerState::Running { started_at, started_wall, .. } => {
                    ContainerState::Exited(unknown_exit((started_at, started_wall), now))
                }
                _ => ContainerState::StartFailed {
                    code: 128,
                    reason: "StartError".to_owned(),
                    message: "the supervisor ended while the container was created".to_owned(),
                    at: now.boot,
                    at_wall: now.wall,
                },
            };
            tracing::warn!(container = %entry.id, "found a container of an earlier supervisor: killing it");
            self.table.adopt_survivor(entry, to, now);
        }
        // Some may live that nothing is written of: they belong to nobody.
        for group in self.groups.containers(|name| name.len() == 32 && ContainerId::new(name).is_ok()) {
            if !known.contains(&group) {
                let _ = self.groups.kill(&group);
            }
        }
    }

    /// Waits and acts until the node is to stop.
    pub(crate) fn run(mut self) {
        loop {
            let now = clock::now();
            self.table.tick(now);
            self.tick_offer(now);
            self.settle(now);
            self.tell_outcome();
            if self.offer_is_accepted() {
                self.hand_over();
                continue;
            }
            if self.trim_at.is_some_and(|at| at <= now.boot) {
                self.trim_at = None;
                memory::forget_code();
            }
            if self.node.is_over(&self.table, self.links.agent().is_some(), now) {
                break;
            }
            let timeout = if self.reap_again { Some(0) } else { self.timeout(now) };
            let sources = match self.poller.wait(timeout) {
                Ok(sources) => sources,
                Err(e) => {
                    // Cannot happen with a good descriptor. Waiting a little keeps a broken one from burning a core.
                    tracing::error!(error = %e, "waiting failed");
                    std::thread::sleep(std::time::Duration::from_millis(100));
                    self.reap(clock::now());
                    Vec::new()
                }
            };
            let now = clock::now();
            if self.reap_again {
                self.reap(now);
            }
            for source in sources {
                self.event(&source, now);
                self.settle(now);
            }
        }
        self.stop();
    }

    /// Milliseconds until something is due; a deadline is over once its millisecond has passed.
    fn timeout(&self, now: Now) -> Option<u64> {
        let deadlines = [
            self.table.deadline(),
            self.logs.deadline(),
            self.node.deadline(),
            self.stale_at,
            self.trim_at,
            self.offer_deadline(),
        ];
        deadlines.into_iter().flatten().min().map(|at| at.since(now.boot).0)
    }

    /// Performs what is due until nothing follows any more, then tells everybody what they are to know.
    fn settle(&mut self, now: Now) {
        loop {
            let effects = self.table.take_effects();
            if effects.is_empty() {
                break;
            }
            for effect in effects {
                self.perform(effect, now);
            }
        }
        if self.logs.start_if_due(&self.exe, &self.groups, &mut self.poller, now) {
            let count = self.logs.restarts();
            tracing::warn!(count, "the logger was started again");
            self.links.notify(Notice::LoggerRestarted { count });
        }
        self.node.start_children(&self.exe, &self.groups, now);
        self.logs.flush(&mut self.poller);
        self.remove_stale_groups(now);
        self.tell_agent();
        self.links.flush(&mut self.poller);
    }

    /// Tells the agent of changed containers, no faster than it reads: a state that was overtaken is not told.
    fn tell_agent(&mut self) {
        while self.links.agent_is_idle() {
            if let Some(id) = self.changed.pop_first() {
                if let Some(entry) = self.table.container(&id) {
                    self.links.notify(Notice::Container(entry.clone()));
                }
            } else if let Some((id, bytes)) = self.logs.take_dropped() {
                self.links.notify(Notice::LogsDropped { id, bytes });
            } else if let Some(reboot) = self.node.take_shutdown_notice() {
                self.links.notify(Notice::Shutdown { reboot });
            } else if self.log_shown.take_if(|shown| *shown < log::written()).is_some() {
                self.links.notify(Notice::Logged);
            } else {
                break;
            }
            self.links.flush(&mut self.poller);
        }
    }

    /// The end: off process 1 the containers are left without a parent, which the agent has emptied by now or cannot.
    fn stop(mut self) {
        for id in self.table.live() {
            if let Some(entry) = self.table.container(&id) {
                let _ = self.groups.kill(&entry.cgroup);
            }
        }
        self.links.flush(&mut self.poller);
        self.node.stop();
    }
}

fn unknown_exit((started_at, started_wall): (BootTime, crate::model::WallTime), now: Now) -> Exit {
    Exit {
        code: 137,
        signal: None,
        oom_killed: false,
        known: false,
        started_at,
        started_wall,
        finished_at: now.boot,
        finished_wall: now.wall,
    }
}

/// One supervisor per run folder: a second one would reap and kill what it does not know.
fn take_lock(run: &Path) -> Result<OwnedFd, StartError> {
    let path = run.join("supervisor.lock");
    match files::lock(&path) {
        Ok(Some(lock)) => Ok(lock.into()),
        Ok(None) => Err(StartError::Locked { path }),
        Err(source) => Err(StartError::System { operation: "take the lock", source }),
    }
}

/// What keeps this process alive and able to work when memory or descriptors get short.
fn protect_self() {
    use rustix::process::{Resource, Rlimit, setrlimit};
    let files = Rlimit { current: Some(16_384), maximum: Some(16_384) };
    let kept = [
        ("oom_score_adj", std::fs::write("/proc/self/oom_score_adj", "-999")),
        ("open files", setrlimit(Resource::Nofile, files).map_err(io::Error::from)),
        ("subreaper", rustix::process::set_child_subreaper(Some(rustix::process::getpid())).map_err(io::Error::from)),
    ];
    for (what, result) in kept {
        if let Err(e) = result {
            tracing::warn!(what, error = %e, "a protection could not be had");
        }
    }
}
