//! Connections from agents: messages in, answers and notices out. A peer that does not read is not waited for.

use super::hand_over::Number;
use super::hand_over::claims::Claims;
use super::poller::{Interest, Poller, Source, Watched};
use crate::model::supervise::{MAX_MESSAGE, Message, Notice, Reply};
use crate::sys::seqpacket;
use rustix::fd::{AsFd as _, BorrowedFd, OwnedFd};
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, VecDeque};
use std::io;

/// The most connections at a time: one agent, its successor, and a few people looking.
const MAX_LINKS: usize = 8;
/// Requests are not read from a peer that has this many answers to fetch.
const MAX_UNSENT: usize = 64;

/// All connections. At most one is the agent's: the last that said hello.
#[derive(Debug, Default)]
pub(crate) struct Links {
    links: BTreeMap<u64, Link>,
    last: u64,
    agent: Option<u64>,
}

#[derive(Debug)]
struct Link {
    socket: Watched,
    unsent: VecDeque<Outgoing>,
    interest: Interest,
}

#[derive(Debug)]
struct Outgoing {
    bytes: Vec<u8>,
    fds: Vec<OwnedFd>,
}

/// All connections, as they are handed over.
#[derive(Debug, Default, Serialize, Deserialize)]
#[serde(default)]
pub(crate) struct HandedLinks {
    links: BTreeMap<u64, HandedLink>,
    last: u64,
    agent: Option<u64>,
}

#[derive(Debug, Serialize, Deserialize)]
struct HandedLink {
    socket: Number,
    #[serde(default)]
    unsent: Vec<HandedMessage>,
}

#[derive(Debug, Serialize, Deserialize)]
struct HandedMessage {
    text: String,
    #[serde(default)]
    fds: Vec<Number>,
}

impl HandedLinks {
    pub(crate) fn numbers(&self) -> Vec<Number> {
        let of = |link: &HandedLink| -> Vec<Number> {
            [link.socket].into_iter().chain(link.unsent.iter().flat_map(|m| m.fds.iter().copied())).collect()
        };
        self.links.values().flat_map(of).collect()
    }
}

/// What came in on a connection.
#[derive(Debug)]
pub(crate) enum Incoming {
    /// A message of this length lies in the buffer, and beside it came this descriptor.
    Message(usize, Option<OwnedFd>),
    /// A message too long.
    TooLong,
    /// Nothing for now.
    Nothing,
    /// The peer has gone.
    Gone,
}

impl Links {
    pub(crate) fn hand(&self) -> HandedLinks {
        let message = |m: &Outgoing| HandedMessage {
            text: String::from_utf8_lossy(&m.bytes).into_owned(),
            fds: m.fds.iter().map(Number::of).collect(),
        };
        let link = |(number, link): (&u64, &Link)| {
            let unsent = link.unsent.iter().map(message).collect();
            (*number, HandedLink { socket: Number::of(&link.socket.fd), unsent })
        };
        HandedLinks { links: self.links.iter().map(link).collect(), last: self.last, agent: self.agent }
    }

    pub(crate) fn adopt(handed: HandedLinks, poller: &mut Poller, claims: &mut Claims) -> Self {
        let mut links = Self { links: BTreeMap::new(), last: handed.last, agent: handed.agent };
        for (number, link) in handed.links {
            let Some(socket) = claims.take(link.socket) else { continue };
            let socket = poller.adopt(socket, Source::Link(number), Interest::Read);
            let mut message = |m: HandedMessage| Outgoing { bytes: m.text.into_bytes(), fds: claims.take_all(&m.fds) };
            let unsent = link.unsent.into_iter().map(&mut message).collect();
            links.links.insert(number, Link { socket, unsent, interest: Interest::Read });
        }
        links
    }

    /// Takes a connection if its peer is root and there is room.
    pub(crate) fn accept(&mut self, listener: BorrowedFd<'_>, poller: &mut Poller) -> io::Result<bool> {
        let Some(socket) = seqpacket::accept(listener)? else { return Ok(false) };
        let uid = seqpacket::peer_uid(socket.as_fd())?;
        if uid != rustix::process::geteuid().as_raw() || self.links.len() >= MAX_LINKS {
            tracing::warn!(uid, connections = self.links.len(), "connection refused");
            return Ok(true);
        }
        self.last = self.last.wrapping_add(1);
        let socket = poller.add(socket, Source::Link(self.last), Interest::Read)?;
        self.links.insert(self.last, Link { socket, unsent: VecDeque::new(), interest: Interest::Read });
        Ok(true)
    }

    /// The agent's connection.
    pub(crate) fn agent(&self) -> Option<u64> {
        self.agent
    }

    /// Makes a connection the agent's and ends the one that was.
    pub(crate) fn greet(&mut self, number: u64, poller: &mut Poller) {
        if let Some(old) = self.agent.replace(number).filter(|old| *old != number) {
            tracing::info!(old, new = number, "another agent took over");
            self.close(old, poller);
        }
    }

    /// Ends a connection.
    pub(crate) fn close(&mut self, number: u64, poller: &mut Poller) {
        if let Some(link) = self.links.remove(&number) {
            drop(poller.remove(link.socket));
        }
        if self.agent == Some(number) {
            self.agent = None;
        }
    }

    /// Reads the next message of a connection into `buffer`.
    pub(crate) fn receive(&self, number: u64, buffer: &mut [u8]) -> Incoming {
        let Some(link) = self.links.get(&number) else { return Incoming::Nothing };
        if link.unsent.len() >= MAX_UNSENT {
            return Incoming::Nothing;
        }
        // Descriptors that come uninvited are closed as they are dropped.
        match seqpacket::receive(link.socket.fd.as_fd(), buffer) {
            Ok(None) => Incoming::Nothing,
            Ok(Some(got)) if got.len == 0 => Incoming::Gone,
            Ok(Some(got)) if got.truncated => Incoming::TooLong,
            Ok(Some(got)) => Incoming::Message(got.len, got.fds.into_iter().next()),
            Err(_) => Incoming::Gone,
        }
    }

    /// Queues a message, and descriptors beside it, for a connection that may be gone.
    pub(crate) fn send(&mut self, number: u64, message: &Message, fds: Vec<OwnedFd>) {
        let Some(link) = self.links.get_mut(&number) else { return };
        match serde_json::to_vec(message) {
            Ok(bytes) if bytes.len() <= MAX_MESSAGE => link.unsent.push_back(Outgoing { bytes, fds }),
            Ok(bytes) => tracing::error!(length = bytes.len(), "a message is too long to be sent"),
            Err(e) => tracing::error!(error = %e, "a message cannot be written"),
        }
    }

    /// Queues an answer.
    pub(crate) fn reply(&mut self, number: u64, seq: u64, reply: Reply, fds: Vec<OwnedFd>) {
        self.send(number, &Message::Reply { seq, reply }, fds);
    }

    /// Queues a notice for the agent, if one is there.
    pub(crate) fn notify(&mut self, notice: Notice) {
        if let Some(agent) = self.agent {
            self.send(agent, &Message::Notice { notice }, Vec::new());
        }
    }

    /// Whether the agent is there and has fetched all that was queued.
    pub(crate) fn agent_is_idle(&self) -> bool {
        self.agent.and_then(|a| self.links.get(&a)).is_some_and(|l| l.unsent.is_empty())
    }

    /// Sends what can be sent. Connections that turn out to be gone are closed.
    pub(crate) fn flush(&mut self, poller: &mut Poller) {
        let mut gone = Vec::new();
        for (number, link) in &mut self.links {
            if !link.flush() {
                gone.push(*number);
                continue;
            }
            // Who is not listened to must not wake the loop either.
            let interest = match link.unsent.len() {
                0 => Interest::Read,
                n if n < MAX_UNSENT => Interest::ReadWrite,
                _ => Interest::Write,
            };
            if interest != link.interest {
                link.interest = interest;
                poller.change(&link.socket, interest);
            }
        }
        for number in gone {
            self.close(number, poller);
        }
    }
}

impl Link {
    /// `false`: the peer is gone.
    fn flush(&mut self) -> bool {
        while let Some(first) = self.unsent.front() {
            match seqpacket::send(self.socket.fd.as_fd(), &first.bytes, &seqpacket::borrow(&first.fds)) {
                Ok(true) => drop(self.unsent.pop_front()),
                Ok(false) => return true,
                Err(_) => return false,
            }
        }
        true
    }
}
