//! The logger role: writes containers' output into CRI log files. It may wait for the disk; nothing else may.
//!
//! One thread, one epoll set, no timer unless something was dropped: while nobody writes it sleeps. Each pod gets the
//! same share of every round. What does not fit the node's budget goes, oldest of the noisiest first, and is counted.

mod file;
mod leave;
mod lines;
pub(crate) mod protocol;
mod rotation;

use super::driver::TRIM_PAUSE;
use super::poller::{Interest, Poller, Source, Watched};
use super::roles::LOGGER_SOCKET;
use crate::model::supervise::{LogLimits, MAX_MESSAGE};
use crate::model::time::Now;
use crate::model::{BootTime, ContainerId, Millis, PodUid};
use crate::sys::{children, clock, log, memory, seqpacket};
use file::LogFile;
use lines::{Cutter, Stream};
use protocol::{Order, Report};
use rotation::Seen;
use rustix::fd::{AsFd as _, OwnedFd};
use rustix::io::Errno;
use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

/// One read: what a pipe holds by default.
const READ: usize = 64 * 1024;
/// Log lines are written when this many bytes are together.
const BATCH: usize = 64 * 1024;
/// What a pod may have read in one round.
const POD_SHARE: usize = 2 * READ;
/// What is read at most of a pipe whose container has ended: the largest pipe an unprivileged program can ask for.
const LAST_WORDS: usize = 1024 * 1024;
/// Dropped bytes are told at most this often.
const TELL_PAUSE: Millis = Millis(1000);

/// The role `armlet logger`: works until the supervisor has gone.
#[must_use]
pub fn run() -> ExitCode {
    log::init("logger", protocol::OWN_LOG);
    super::keep_panics("logger", Path::new(super::DATA), log::panics::Writer::Itself);
    match children::inherited(LOGGER_SOCKET).and_then(Logger::new) {
        Ok(mut logger) => {
            logger.run();
            ExitCode::SUCCESS
        }
        Err(e) => {
            tracing::error!(error = %e, "the logger does not start");
            ExitCode::FAILURE
        }
    }
}

#[derive(Debug)]
struct Logger {
    poller: Poller,
    socket: Watched,
    limits: LogLimits,
    logs: BTreeMap<ContainerId, Log>,
    /// Folders of pods' log folders.
    roots: BTreeSet<PathBuf>,
    /// Bytes of all log files; `None` until they are counted.
    total: Option<u64>,
    /// When dropped bytes may be told again.
    tell_at: BootTime,
    /// Up to which line of its own log the supervisor was told.
    said: u64,
    /// When the code that opening a log needed is let go again.
    trim_at: Option<BootTime>,
    input: Box<[u8]>,
    out: Vec<u8>,
}

#[derive(Debug)]
struct Log {
    pod: PodUid,
    file: LogFile,
    sources: [Option<(Watched, Cutter)>; 2],
    /// Bytes dropped and not yet told.
    dropped: u64,
}

impl Logger {
    fn new(socket: OwnedFd) -> io::Result<Self> {
        let mut poller = Poller::new()?;
        let socket = poller.add(socket, Source::Logger, Interest::Read)?;
        Ok(Self {
            poller,
            socket,
            limits: super::logs::FIRST_LIMITS,
            logs: BTreeMap::new(),
            roots: BTreeSet::new(),
            total: None,
            tell_at: BootTime(0),
            said: 0,
            trim_at: None,
            input: vec![0; READ].into_boxed_slice(),
            out: Vec::new(),
        })
    }

    fn run(&mut self) {
        loop {
            let tell_at = self.logs.values().any(|l| l.dropped > 0).then_some(self.tell_at);
            let deadline = tell_at.into_iter().chain(self.trim_at).min();
            let timeout = deadline.map(|at| at.since(clock::now().boot).0);
            let ready = match self.poller.wait(timeout) {
                Ok(ready) => ready,
                Err(e) => return tracing::error!(error = %e, "waiting failed"),
            };
            let now = clock::now();
            let mut spent: BTreeMap<PodUid, usize> = BTreeMap::new();
            for source in ready {
                match source {
                    Source::Logger if self.orders(now) => {}
                    Source::Logger => return,
                    Source::Output(id, index) => self.output(&id, index, &mut spent, now),
                    _ => {}
                }
            }
            if self.out.capacity() > 2 * BATCH {
                self.out = Vec::new();
            }
            self.tell_dropped(now, false);
            if let Some(report) = protocol::said(&mut self.said) {
                self.report(&report);
            }
            if self.trim_at.is_some_and(|at| at <= now.boot) {
                self.trim_at = None;
                memory::forget_code();
            }
        }
    }

    /// `false`: the supervisor has gone, or wants another logger.
    fn orders(&mut self, now: Now) -> bool {
        loop {
            let mut message = vec![0; MAX_MESSAGE / 4];
            let got = match seqpacket::receive(self.socket.fd.as_fd(), &mut message) {
                Ok(Some(got)) if got.len > 0 => got,
                Ok(None) => return true,
                Ok(Some(_)) | Err(_) => return false,
            };
            self.trim_at = Some(now.boot + TRIM_PAUSE);
            match serde_json::from_slice(message.get(..got.len).unwrap_or_default()) {
                Ok(Order::Limits(limits)) => self.limits = sensible(limits),
                Ok(Order::Open { id, pod, path, halves }) => {
                    self.open(id, pod, PathBuf::from(path), leave::outputs(got.fds, halves));
                }
                Ok(Order::Finish { id }) => self.finish(&id, now),
                Ok(Order::Leave) => {
                    self.leave(now);
                    return false;
                }
                Err(e) => tracing::error!(error = %e, "an order cannot be read"),
            }
        }
    }

    fn open(&mut self, id: ContainerId, pod: PodUid, path: PathBuf, outputs: Vec<(OwnedFd, Vec<u8>)>) {
        if self.logs.contains_key(&id) {
            return;
        }
        if let Some(root) = path.ancestors().nth(3) {
            self.roots.insert(root.to_owned());
        }
        let mut sources = [None, None];
        for (index, ((fd, half), slot)) in outputs.into_iter().zip(&mut sources).enumerate() {
            let stream = if index == 0 { Stream::Stdout } else { Stream::Stderr };
            let source = Source::Output(id.clone(), index);
            let watched = rustix::io::ioctl_fionbio(&fd, true)
                .map_err(io::Error::from)
                .and_then(|()| self.poller.add(fd, source, Interest::Read));
            match watched {
                Ok(watched) => *slot = Some((watched, Cutter::new(stream, half))),
                Err(e) => tracing::error!(container = %id, error = %e, "an output cannot be watched"),
            }
        }
        self.logs.insert(id, Log { pod, file: LogFile::open(path), sources, dropped: 0 });
    }

    /// One of a container's outputs can be read.
    fn output(&mut self, id: &ContainerId, index: usize, spent: &mut BTreeMap<PodUid, usize>, now: Now) {
        let Some(log) = self.logs.get(id) else { return };
        let share = spent.entry(log.pod.clone()).or_insert(0);
        if *share < POD_SHARE {
            *share = share.saturating_add(self.read_once(id, index, now));
        }
    }

    /// Reads an output once and writes the lines. Gives how much was read; 0 when nothing was there.
    fn read_once(&mut self, id: &ContainerId, index: usize, now: Now) -> usize {
        let Some(slot) = self.logs.get_mut(id).and_then(|l| l.sources.get_mut(index)) else { return 0 };
        let Some((watched, mut cutter)) = slot.take() else { return 0 };
        let stamp = now.wall.rfc3339_nanos();
        let read = loop {
            match rustix::io::read(&watched.fd, &mut self.input[..]) {
                Err(Errno::INTR) => {}
                other => break other,
            }
        };
        // The other end of a terminal that is closed gives EIO.
        let (length, ended) = match read {
            Ok(0) => (0, true),
            Ok(n) => (n, false),
            Err(Errno::AGAIN) => (0, false),
            Err(_) => (0, true),
        };
        let input = std::mem::take(&mut self.input);
        let mut rest = input.get(..length).unwrap_or_default();
        loop {
            rest = cutter.cut(rest, &stamp, &mut self.out, BATCH);
            if ended {
                cutter.finish(&stamp, &mut self.out);
            }
            self.write(id, now);
            if rest.is_empty() {
                break;
            }
        }
        self.input = input;
        if ended {
            drop(self.poller.remove(watched));
        } else if let Some(slot) = self.logs.get_mut(id).and_then(|l| l.sources.get_mut(index)) {
            *slot = Some((watched, cutter));
        }
        length
    }

    /// Writes the lines put together. When the disk is full the oldest logs go; lines that still cannot be kept are
    /// dropped and counted.
    fn write(&mut self, id: &ContainerId, now: Now) {
        let lines = std::mem::take(&mut self.out);
        let length = u64::try_from(lines.len()).unwrap_or(u64::MAX);
        if length > 0 {
            self.make_room(length);
            let mut result = self.append(id, &lines, now);
            if result.as_ref().is_err_and(is_full) {
                let total = self.total.unwrap_or(0);
                self.shrink_to(total.saturating_sub(total / 4).saturating_sub(length));
                result = self.append(id, &lines, now);
            }
            match result {
                Ok(()) => self.total = self.total.map(|t| t.saturating_add(length)),
                Err(_) => {
                    if let Some(log) = self.logs.get_mut(id) {
                        log.dropped = log.dropped.saturating_add(length);
                    }
                }
            }
        }
        self.out = lines;
        self.out.clear();
    }

    fn append(&mut self, id: &ContainerId, lines: &[u8], now: Now) -> io::Result<()> {
        match self.logs.get_mut(id) {
            Some(log) => log.file.append(lines, &self.limits, now.wall),
            None => Ok(()),
        }
    }

    /// Keeps the budget before `more` bytes are written.
    fn make_room(&mut self, more: u64) {
        let budget = self.limits.node_budget;
        let total = match self.total {
            Some(total) if total.saturating_add(more) <= budget => return,
            // Rotation and the agent remove files too: the truth is on the disk.
            _ => self.seen().iter().fold(0_u64, |sum, f| sum.saturating_add(f.size)),
        };
        self.total = Some(total);
        if total.saturating_add(more) > budget {
            self.shrink_to(budget.saturating_sub(budget / 10).saturating_sub(more));
        }
    }

    /// Removes logs until all together hold at most `target` bytes.
    fn shrink_to(&mut self, target: u64) {
        let files = self.seen();
        let mut total = files.iter().fold(0_u64, |sum, f| sum.saturating_add(f.size));
        for victim in rotation::victims(&files, target) {
            let freed = self.drop_log(victim);
            total = total.saturating_sub(freed);
        }
        self.total = Some(total);
    }

    /// Gives up a log file. Gives how many bytes are free now.
    fn drop_log(&mut self, victim: &Seen) -> u64 {
        // A name that is taken away frees nothing as long as the file is open here.
        if let Some(log) = self.logs.values_mut().find(|l| l.file.path() == victim.path) {
            return match log.file.empty() {
                Ok(freed) => {
                    log.dropped = log.dropped.saturating_add(freed);
                    freed
                }
                Err(e) => {
                    tracing::warn!(path = %victim.path.display(), error = %e, "a log file cannot be emptied");
                    0
                }
            };
        }
        if !file::remove(&victim.path) {
            return 0;
        }
        match self.logs.values_mut().find(|l| l.file.path().parent() == victim.path.parent()) {
            Some(log) => log.dropped = log.dropped.saturating_add(victim.size),
            None => {
                tracing::warn!(path = %victim.path.display(), bytes = victim.size, "log dropped for want of room");
            }
        }
        victim.size
    }

    /// Every log file there is.
    fn seen(&self) -> Vec<Seen> {
        let live: BTreeSet<&Path> = self.logs.values().map(|l| l.file.path()).collect();
        let mut found = Vec::new();
        for root in &self.roots {
            for pod in folders(root) {
                for container in folders(&pod) {
                    for entry in fs::read_dir(&container).into_iter().flatten().flatten() {
                        let Ok(meta) = entry.metadata() else { continue };
                        if meta.is_file() {
                            let path = entry.path();
                            let written = i128::from(meta.mtime()) * 1_000_000_000 + i128::from(meta.mtime_nsec());
                            let live = live.contains(path.as_path());
                            found.push(Seen { path, size: meta.len(), written, live });
                        }
                    }
                }
            }
        }
        found
    }

    /// The container has ended: what is left in its pipes is written.
    fn finish(&mut self, id: &ContainerId, now: Now) {
        for index in 0..2 {
            let mut left = LAST_WORDS;
            while left > 0 {
                match self.read_once(id, index, now) {
                    0 => break,
                    n => left = left.saturating_sub(n),
                }
            }
            self.close(id, index, now);
        }
        self.tell_dropped(now, true);
        self.logs.remove(id);
        self.report(&Report::Drained { id: id.clone() });
    }

    /// Lets an output go that somebody may still hold open.
    fn close(&mut self, id: &ContainerId, index: usize, now: Now) {
        let Some(slot) = self.logs.get_mut(id).and_then(|l| l.sources.get_mut(index)) else { return };
        if let Some((watched, mut cutter)) = slot.take() {
            drop(self.poller.remove(watched));
            cutter.finish(&now.wall.rfc3339_nanos(), &mut self.out);
            self.write(id, now);
        }
    }

    fn tell_dropped(&mut self, now: Now, at_once: bool) {
        if !at_once && now.boot < self.tell_at {
            return;
        }
        let untold: Vec<_> = self.logs.iter_mut().filter(|(_, l)| l.dropped > 0).collect();
        let reports: Vec<Report> = untold
            .into_iter()
            .map(|(id, log)| Report::Dropped { id: id.clone(), bytes: std::mem::take(&mut log.dropped) })
            .collect();
        if !reports.is_empty() {
            self.tell_at = now.boot + TELL_PAUSE;
        }
        for report in &reports {
            self.report(report);
        }
    }

    fn report(&self, report: &Report) {
        let Ok(bytes) = serde_json::to_vec(report) else { return };
        // The supervisor always reads. Should its socket be full all the same, its own time limit takes over.
        if !seqpacket::send(self.socket.fd.as_fd(), &bytes, &[]).unwrap_or(false) {
            tracing::warn!("a report could not be sent");
        }
    }
}

fn folders(of: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(of).into_iter().flatten().flatten();
    entries.filter(|e| e.file_type().is_ok_and(|t| t.is_dir())).map(|e| e.path()).collect()
}

fn is_full(e: &io::Error) -> bool {
    matches!(e.kind(), io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded)
}

/// Limits that can be kept: one file is never more than a part of the whole budget, so that old lines go before new.
fn sensible(limits: LogLimits) -> LogLimits {
    let node_budget = limits.node_budget.max(1 << 20);
    LogLimits {
        max_size: limits.max_size.clamp(4096, node_budget / 8),
        max_files: limits.max_files.max(2),
        node_budget,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs::File;

    fn id(number: u64) -> ContainerId {
        ContainerId::from_bits(number.into())
    }

    /// A logger with one log for each of these, all of pods of their own.
    fn logger(folder: &Path, logs: &[(&str, usize)]) -> Logger {
        // Reports go nowhere.
        let mut logger = Logger::new(seqpacket::pair().unwrap().0).unwrap();
        for (number, (name, bytes)) in (1..).zip(logs) {
            let container = folder.join(name).join("c");
            fs::create_dir_all(&container).unwrap();
            logger.open(id(number), PodUid::new(*name).unwrap(), container.join("0.log"), Vec::new());
            logger.out = vec![b'x'; *bytes];
            logger.write(&id(number), clock::now());
        }
        logger
    }

    #[test]
    fn a_log_that_is_being_written_is_given_back_at_once() {
        let folder = tempfile::tempdir().unwrap();
        let mut logger = logger(folder.path(), &[("quiet", 1000), ("noisy", 5000)]);
        let path = folder.path().join("noisy/c/0.log");
        // It shows what the descriptor that the logger holds still takes.
        let held = File::open(&path).unwrap();
        logger.shrink_to(3000);
        assert_eq!(held.metadata().unwrap().len(), 0);
        assert_eq!(logger.total, Some(1000));
        assert_eq!(logger.logs[&id(2)].dropped, 5000);
        // The next lines are where everybody looks for them.
        logger.out = b"next\n".to_vec();
        logger.write(&id(2), clock::now());
        assert_eq!(fs::read_to_string(&path).unwrap(), "next\n");
        assert_eq!(logger.total, Some(1005));
    }

    #[test]
    fn linux_what_cannot_be_removed_still_counts() {
        use crate::sys::mounts::unmount_all;
        let folder = tempfile::tempdir().unwrap();
        let at = folder.path().canonicalize().unwrap();
        let mut logger = logger(&at, &[("p", 1000)]);
        // Rotated: it goes before the one that is being written.
        let stuck = at.join("p/c/0.log.20000101-000000");
        fs::write(&stuck, [b'x'; 5000]).unwrap();
        // A file that something is mounted on cannot be removed.
        rustix::mount::mount_bind(&stuck, &stuck).unwrap();
        logger.shrink_to(500);
        let left = logger.total;
        unmount_all(&stuck).unwrap();
        assert_eq!(left, Some(5000));
        assert_eq!(logger.logs[&id(1)].dropped, 1000);
    }
}
