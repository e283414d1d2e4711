//! Everything that the supervisor has, as one build hands it to another, and back to a supervisor that goes on.

use super::offer::Outcome;
use super::{LeftGroup, SIGNALS, Starting, Streams, Supervisor, TRIM_PAUSE};
use crate::model::supervise::MAX_MESSAGE;
use crate::supervisor::Options;
use crate::supervisor::groups::Groups;
use crate::supervisor::hand_over::claims::Claims;
#[cfg(feature = "other-build")]
use crate::supervisor::hand_over::made_to;
use crate::supervisor::hand_over::{
    Back, Document, FORMAT, HandedGroup, HandedHelper, HandedLog, HandedStarting, HandedStreams, Number, Why,
};
use crate::supervisor::link::Links;
use crate::supervisor::logs::Logs;
use crate::supervisor::poller::{Interest, Poller, Source, Watched};
use crate::supervisor::records::Records;
use crate::supervisor::sandbox::Namespaces;
use crate::supervisor::streams::ReportPipe;
use crate::supervisor::table::Asker;
use crate::sys::{build, clock, log, own_group, signals};
use rustix::fd::OwnedFd;
use std::collections::{BTreeMap, BTreeSet};

impl Supervisor {
    /// Everything, as it is handed to the program `to`.
    pub(super) fn document(&self, asker: Asker, offered: &str, to: &OwnedFd) -> Document {
        let watched = |w: &Watched| Number::of(&w.fd);
        let lines = log::lines_after(0, log::SUPERVISOR_RING);
        let starting =
            |s: &Starting| HandedStarting { report: s.report.hand(), console: s.console.as_ref().map(watched) };
        let streams = |s: &Streams| HandedStreams {
            cgroup: s.cgroup.clone(),
            report: s.report.as_ref().map(ReportPipe::hand),
            console: s.console.as_ref().map(watched),
            stdin: s.stdin.as_ref().map(Number::of),
            outputs: s.outputs.iter().map(Number::of).collect(),
            terminal: s.terminal,
            size: s.size,
        };
        let group = |g: &LeftGroup| HandedGroup { cgroup: g.cgroup.clone(), events: watched(&g.events) };
        Document {
            format: FORMAT,
            build: build::identity().to_owned(),
            back: Back { from: Number::of(&self.exe), numbers: BTreeSet::new() },
            to: Number::of(to),
            asker: Some(asker),
            offered: offered.to_owned(),
            hand_overs: self.hand_overs,
            run: self.options.run.clone(),
            cgroup: self.options.cgroup.clone(),
            data: self.options.data.clone(),
            lock: Number::of(&self.lock),
            listener: watched(&self.listener),
            table: self.table.clone(),
            links: self.links.hand(),
            logs: self.logs.hand(),
            namespaces: each(&self.namespaces, Namespaces::hand),
            helpers: each(&self.helpers, |(s, spec)| HandedHelper { socket: watched(s), spec: spec.clone() }),
            starting: each(&self.starting, starting),
            stdins: each(&self.stdins, Number::of),
            emptying: each(&self.emptying, watched),
            sessions: each(&self.sessions, streams),
            left_groups: each(&self.left_groups, group),
            stale_groups: self.stale_groups.clone(),
            stale_at: self.stale_at,
            changed: self.changed.clone(),
            creates: self.creates,
            orphans: self.orphans,
            lookers: self.lookers.clone(),
            node: self.node.clone(),
            log: HandedLog { text: lines.text, next: lines.next },
            #[cfg(feature = "other-build")]
            unheard_of: BTreeMap::from([("of".to_owned(), vec![1, 2, 3])]),
        }
    }

    /// Goes on with what another build handed over; `refused` says why it went back to this one.
    ///
    /// # Errors
    /// [`Why`] not. Every descriptor is open then as it was.
    pub(crate) fn adopt(document: Document, refused: Option<String>) -> Result<Self, Why> {
        if document.node.is_process_one() != (std::process::id() == 1) {
            return Err(Why::Process);
        }
        // First what can fail, then what was handed: taken and dropped it would be lost.
        let mut claims = Claims::of(&document)?;
        let mut poller = Poller::new().map_err(|e| Why::System("make the epoll set", e))?;
        let signals = signals::take_over(&SIGNALS)
            .and_then(|fd| poller.add(fd, Source::Signals, Interest::Read))
            .map_err(|e| Why::System("take over the signals", e))?;
        let records = Records::open(&document.run).map_err(|e| Why::System("open the records", e))?;
        let own = if refused.is_some() { document.back.from } else { document.to };
        let taken = (claims.take(own), claims.take(document.lock), claims.take(document.listener));
        let (Some(exe), Some(lock), Some(listener)) = taken else { return Err(Why::Descriptor(own)) };

        let links = Links::adopt(document.links, &mut poller, &mut claims);
        let logs = Logs::adopt(document.logs, &mut poller, &mut claims);
        let namespaces = taken_of(document.namespaces, |_, n| Namespaces::adopt(&n, &mut claims));
        let helpers = taken_of(document.helpers, |pod, h| {
            Some((poller.adopt(claims.take(h.socket)?, Source::Helper(pod.clone()), Interest::Read), h.spec))
        });
        let starting = taken_of(document.starting, |id, s| {
            let report = ReportPipe::adopt(s.report, Source::Report(id.clone()), &mut poller, &mut claims)?;
            let console = s.console.and_then(|number| claims.take(number));
            let console = console.map(|fd| poller.adopt(fd, Source::Console(id.clone()), Interest::Read));
            Some(Starting { report, console })
        });
        let stdins = taken_of(document.stdins, |_, number| claims.take(number));
        let emptying = taken_of(document.emptying, |id, number| {
            Some(poller.adopt(claims.take(number)?, Source::Group(id.clone()), Interest::Priority))
        });
        let sessions = taken_of(document.sessions, |session, s| {
            let source = Source::ExecReport(*session);
            let report = s.report.and_then(|r| ReportPipe::adopt(r, source, &mut poller, &mut claims));
            let console = s.console.and_then(|number| claims.take(number));
            let console = console.map(|fd| poller.adopt(fd, Source::ExecConsole(*session), Interest::Read));
            let stdin = s.stdin.and_then(|number| claims.take(number));
            let outputs = claims.take_all(&s.outputs);
            let (cgroup, terminal, size) = (s.cgroup, s.terminal, s.size);
            Some(Streams { cgroup, report, console, stdin, outputs, terminal, size })
        });
        let left_groups = taken_of(document.left_groups, |session, g| {
            let events = poller.adopt(claims.take(g.events)?, Source::ExecGroup(*session), Interest::Priority);
            Some(LeftGroup { cgroup: g.cgroup, events })
        });
        let listener = poller.adopt(listener, Source::Listener, Interest::Read);

        log::follow(&document.log.text, document.log.next);
        let failed = poller.take_failure().map(|e| Why::System("watch what was handed over", e));
        let failed = failed.or(claims.missed().map(Why::Descriptor));
        #[cfg(feature = "other-build")]
        let failed = failed.or(made_to("fail", &document.run).then_some(Why::Made));
        let hand_overs = document.hand_overs.saturating_add(u64::from(refused.is_none()));
        let other = if refused.is_some() { document.offered } else { build::identity().to_owned() };
        let supervisor = Self {
            table: document.table,
            poller,
            links,
            logs,
            groups: Groups::new(document.cgroup.clone(), own_group::place()),
            records,
            exe,
            signals,
            listener,
            namespaces,
            helpers,
            starting,
            stdins,
            emptying,
            sessions,
            left_groups,
            stale_groups: document.stale_groups,
            stale_at: document.stale_at,
            trim_at: Some(clock::now().boot + TRIM_PAUSE),
            // What ended meanwhile lies there unreaped, and its signal may have been read before.
            reap_again: true,
            changed: document.changed,
            buffer: vec![0; MAX_MESSAGE].into_boxed_slice(),
            log_shown: None,
            creates: document.creates,
            orphans: document.orphans,
            offer: None,
            refused: None,
            lookers: document.lookers,
            outcome: Some(Outcome { asker: document.asker, build: other, refused }),
            hand_overs,
            node: document.node,
            lock,
            options: Options { run: document.run, cgroup: document.cgroup, data: document.data },
        };
        match failed {
            None => {
                claims.close_rest();
                Ok(supervisor)
            }
            Some(why) => {
                // What it holds has to stay open for the way back.
                std::mem::forget(supervisor);
                Err(why)
            }
        }
    }
}

fn each<K: Ord + Clone, V, H>(map: &BTreeMap<K, V>, hand: impl Fn(&V) -> H) -> BTreeMap<K, H> {
    map.iter().map(|(key, value)| (key.clone(), hand(value))).collect()
}

/// What cannot be taken is left out: the claims remember that.
fn taken_of<K: Ord, H, V>(map: BTreeMap<K, H>, mut take: impl FnMut(&K, H) -> Option<V>) -> BTreeMap<K, V> {
    map.into_iter().filter_map(|(key, handed)| take(&key, handed).map(|value| (key, value))).collect()
}
