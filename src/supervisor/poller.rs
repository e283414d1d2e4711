//! Which descriptors are waited for, and what each one means.

use crate::model::{ContainerId, PodUid};
use rustix::event::Timespec;
use rustix::event::epoll::{self, CreateFlags, EventData, EventFlags};
use rustix::fd::{AsFd as _, OwnedFd};
use rustix::io::Errno;
use std::collections::BTreeMap;
use std::io;

/// What a watched descriptor is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Source {
    /// Signals to this process.
    Signals,
    /// The socket on which agents connect.
    Listener,
    /// A connection, by its number.
    Link(u64),
    /// The logger's socket.
    Logger,
    /// A create child's report pipe.
    Report(ContainerId),
    /// The socket over which a container's terminal comes.
    Console(ContainerId),
    /// The events file of an ending container's cgroup.
    Group(ContainerId),
    /// An exec child's report pipe.
    ExecReport(u64),
    /// The socket over which a session's terminal comes.
    ExecConsole(u64),
    /// The events file of the cgroup that a session has left.
    ExecGroup(u64),
    /// A sandbox helper's socket.
    Helper(PodUid),
    /// The pipe on which an offered program answers.
    LookOver,
    /// In the logger: a container's first or second output.
    Output(ContainerId, usize),
}

/// A descriptor that is being watched. It must go back through [`Poller::remove`]: duplicates of it live in other
/// processes, so that closing it would not end the watch.
#[derive(Debug)]
pub(crate) struct Watched {
    pub(crate) fd: OwnedFd,
    token: u64,
}

/// What can be waited for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Interest {
    Read,
    ReadWrite,
    Write,
    /// A changed kernel file.
    Priority,
}

impl Interest {
    fn flags(self) -> EventFlags {
        match self {
            Self::Read => EventFlags::IN,
            Self::ReadWrite => EventFlags::IN | EventFlags::OUT,
            Self::Write => EventFlags::OUT,
            Self::Priority => EventFlags::PRI,
        }
    }
}

/// An epoll set. Tokens are never used twice, so that an event of a descriptor that has just been let go means nothing.
#[derive(Debug)]
pub(crate) struct Poller {
    epoll: OwnedFd,
    sources: BTreeMap<u64, Source>,
    last: u64,
    /// Why an adopted descriptor could not be watched.
    failure: Option<io::Error>,
}

impl Poller {
    pub(crate) fn new() -> io::Result<Self> {
        Ok(Self { epoll: epoll::create(CreateFlags::CLOEXEC)?, sources: BTreeMap::new(), last: 0, failure: None })
    }

    pub(crate) fn add(&mut self, fd: OwnedFd, source: Source, interest: Interest) -> io::Result<Watched> {
        self.last = self.last.wrapping_add(1);
        epoll::add(&self.epoll, &fd, EventData::new_u64(self.last), interest.flags())?;
        self.sources.insert(self.last, source);
        Ok(Watched { fd, token: self.last })
    }

    /// Watches a descriptor that an earlier build handed over. If that fails it stays open and unwatched, and
    /// [`Poller::take_failure`] tells: nothing of what was handed may be lost then.
    pub(crate) fn adopt(&mut self, fd: OwnedFd, source: Source, interest: Interest) -> Watched {
        self.last = self.last.wrapping_add(1);
        match epoll::add(&self.epoll, &fd, EventData::new_u64(self.last), interest.flags()) {
            Ok(()) => drop(self.sources.insert(self.last, source)),
            Err(e) => self.failure = self.failure.take().or(Some(e.into())),
        }
        Watched { fd, token: self.last }
    }

    /// Why an adopted descriptor could not be watched.
    pub(crate) fn take_failure(&mut self) -> Option<io::Error> {
        self.failure.take()
    }

    pub(crate) fn change(&mut self, watched: &Watched, interest: Interest) {
        // Fails only for a descriptor that is not watched, which a `Watched` cannot be.
        let _ = epoll::modify(&self.epoll, &watched.fd, EventData::new_u64(watched.token), interest.flags());
    }

    /// Ends the watch and gives the descriptor back.
    pub(crate) fn remove(&mut self, watched: Watched) -> OwnedFd {
        self.sources.remove(&watched.token);
        let _ = epoll::delete(&self.epoll, watched.fd.as_fd());
        watched.fd
    }

    /// Waits at most `timeout_ms` (for ever if `None`) and gives what is ready.
    pub(crate) fn wait(&mut self, timeout_ms: Option<u64>) -> io::Result<Vec<Source>> {
        // A longer wait than a day is a wait for something else.
        let limit = timeout_ms.map(|ms| ms.min(86_400_000));
        let timeout = limit.map(|ms| Timespec {
            tv_sec: i64::try_from(ms / 1000).unwrap_or(0),
            tv_nsec: i64::try_from(ms % 1000 * 1_000_000).unwrap_or(0),
        });
        let mut events = Vec::with_capacity(32);
        match epoll::wait(&self.epoll, rustix::buffer::spare_capacity(&mut events), timeout.as_ref()) {
            Ok(_) => {}
            Err(Errno::INTR) => return Ok(Vec::new()),
            Err(e) => return Err(e.into()),
        }
        Ok(events.iter().filter_map(|e| self.sources.get(&{ e.data }.u64()).cloned()).collect())
    }
}
