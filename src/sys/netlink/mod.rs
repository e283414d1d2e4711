//! rtnetlink, synchronous and small: links, addresses and routes of one network namespace.
//!
//! Requests are encoded with `netlink-packet-route`. Answers are read attribute by attribute, taking only what is
//! needed: a kernel newer than that crate may send attributes that it refuses, and one of those must not hide a link.
//! Needs neither threads nor an event loop: the kernel has queued its answer before the request's `send` returns.

mod addresses;
mod changes;
mod links;
#[cfg(test)]
mod linux_tests;
mod routes;

pub use addresses::Address;
pub use changes::Changes;
pub use links::{Link, Mac, Veth};
pub use routes::Route;

use netlink_packet_core::{
    DecodeError, NLM_F_ACK, NLM_F_DUMP, NLM_F_DUMP_INTR, NLM_F_REQUEST, NetlinkHeader, NetlinkMessage, NetlinkPayload,
    NlasIterator,
};
use netlink_packet_route::RouteNetlinkMessage;
use netlink_sys::{Socket, SocketAddr, protocols::NETLINK_ROUTE};
use rustix::io::Errno;
use rustix::net::sockopt::{Timeout, set_socket_timeout};
use std::fmt;
use std::io;
use std::os::fd::AsFd;
use std::time::Duration;

/// The kernel makes dump messages of at most this size (`netlink_dump` in `net/netlink/af_netlink.c`).
const RECEIVE_BYTES: usize = 32 * 1024;
/// Never reached in practice; keeps a broken kernel from holding a caller for good.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(5);
/// A dump that ran while something changed is repeated; after so many times the last one is taken.
const DUMP_ATTEMPTS: u32 = 8;

const NLMSG_ERROR: u16 = 2;
const NLMSG_DONE: u16 = 3;
/// Set on an error message that carries attributes, among them the kernel's own words.
const NLM_F_ACK_TLVS: u16 = 0x200;
const NLMSGERR_ATTR_MSG: u16 = 1;
const HEADER_BYTES: usize = 16;

/// What went wrong with a netlink request.
#[derive(Debug, thiserror::Error)]
pub enum NetlinkError {
    /// The socket could not be opened, written or read.
    #[error("netlink: {operation}")]
    Socket {
        /// The call that failed.
        operation: &'static str,
        /// Why.
        #[source]
        source: io::Error,
    },
    /// The kernel refused the request.
    #[error("netlink: {operation} {object}{}", Detail(.detail))]
    Refused {
        /// What was asked for.
        operation: &'static str,
        /// On which object: a link's name or index, an address, a route.
        object: String,
        /// The kernel's explanation, often empty.
        detail: String,
        /// The error number.
        #[source]
        source: io::Error,
    },
    /// The kernel's answer does not have the documented form.
    #[error("netlink: {operation}: malformed answer ({what})")]
    Malformed {
        /// What was asked for.
        operation: &'static str,
        /// Which part is wrong.
        what: &'static str,
    },
    /// The name cannot be a link's name.
    #[error("{name:?} is not a link name: 1 to 15 bytes without '/', ':' and white space, not '.' or '..'")]
    Name {
        /// The name as given.
        name: String,
    },
}

struct Detail<'a>(&'a str);

impl fmt::Display for Detail<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.0.is_empty() { Ok(()) } else { write!(f, " ({})", self.0) }
    }
}

impl NetlinkError {
    /// The kernel's error number, if the kernel refused the request.
    #[must_use]
    pub fn errno(&self) -> Option<Errno> {
        match self {
            Self::Refused { source, .. } => Errno::from_io_error(source),
            Self::Socket { .. } | Self::Malformed { .. } | Self::Name { .. } => None,
        }
    }

    /// Whether the object was there already.
    #[must_use]
    pub fn already_exists(&self) -> bool {
        self.errno() == Some(Errno::EXIST)
    }

    /// Whether the object was not there.
    #[must_use]
    pub fn is_missing(&self) -> bool {
        matches!(self.errno(), Some(Errno::NODEV | Errno::SRCH | Errno::ADDRNOTAVAIL | Errno::NXIO | Errno::NOENT))
    }
}

/// The result of a netlink call.
pub type Result<T> = std::result::Result<T, NetlinkError>;

/// A netlink socket. It speaks to the network namespace in which it was opened, whichever thread uses it later.
pub struct Netlink {
    socket: Socket,
    sequence: u32,
    buffer: Vec<u8>,
}

impl Netlink {
    /// Opens a socket in the calling thread's network namespace.
    ///
    /// # Errors
    /// [`NetlinkError::Socket`].
    pub fn open() -> Result<Self> {
        let failed = |operation| move |source| NetlinkError::Socket { operation, source };
        let mut socket = Socket::new(NETLINK_ROUTE).map_err(failed("open socket"))?;
        socket.bind_auto().map_err(failed("bind socket"))?;
        set_socket_timeout(socket.as_fd(), Timeout::Recv, Some(ANSWER_TIMEOUT))
            .map_err(|e| NetlinkError::Socket { operation: "set timeout", source: e.into() })?;
        // Both only improve error texts; a kernel without them still works.
        let _ = socket.set_ext_ack(true);
        let _ = socket.set_cap_ack(true);
        Ok(Self { socket, sequence: 0, buffer: Vec::with_capacity(RECEIVE_BYTES) })
    }

    /// Opens a socket in another network namespace. The calling thread stays where it is.
    ///
    /// # Errors
    /// [`NetlinkError::Socket`], also when the namespace cannot be joined.
    pub fn open_in(netns: impl AsFd) -> Result<Self> {
        super::netns::run_in(netns, Self::open)
            .map_err(|source| NetlinkError::Socket { operation: "join namespace", source })?
    }

    /// Sends a request that changes something and waits for the acknowledgement.
    fn change(
        &mut self,
        operation: &'static str,
        object: &str,
        flags: u16,
        message: RouteNetlinkMessage,
    ) -> Result<()> {
        self.ask(operation, object, flags, message).map(drop)
    }

    /// Sends a request for one object and gives the messages before the acknowledgement.
    fn ask(
        &mut self,
        operation: &'static str,
        object: &str,
        flags: u16,
        message: RouteNetlinkMessage,
    ) -> Result<Vec<Vec<u8>>> {
        let sequence = self.send(flags | NLM_F_ACK, message)?;
        self.collect(operation, object, sequence).map(|answer| answer.messages)
    }

    /// Asks for all objects of a kind.
    fn dump(&mut self, operation: &'static str, message: &RouteNetlinkMessage) -> Result<Vec<Vec<u8>>> {
        let mut attempt = 1;
        loop {
            let sequence = self.send(NLM_F_DUMP, message.clone())?;
            let answer = self.collect(operation, "", sequence)?;
            if !answer.interrupted || attempt == DUMP_ATTEMPTS {
                return Ok(answer.messages);
            }
            attempt += 1;
        }
    }

    fn send(&mut self, flags: u16, message: RouteNetlinkMessage) -> Result<u32> {
        self.sequence = self.sequence.wrapping_add(1);
        let mut header = NetlinkHeader::default();
        header.flags = NLM_F_REQUEST | flags;
        header.sequence_number = self.sequence;
        let mut packet = NetlinkMessage::new(header, NetlinkPayload::InnerMessage(message));
        packet.finalize();
        let mut bytes = vec![0; packet.buffer_len()];
        packet.serialize(&mut bytes);
        self.socket
            .send_to(&bytes, &SocketAddr::new(0, 0), 0)
            .map_err(|source| NetlinkError::Socket { operation: "send", source })?;
        Ok(self.sequence)
    }

    /// Reads messages up to the acknowledgement or the end of the dump.
    fn collect(&mut self, operation: &'static str, object: &str, sequence: u32) -> Result<Answer> {
        let mut answer = Answer::default();
        loop {
            self.receive(operation)?;
            let mut rest = self.buffer.as_slice();
            while !rest.is_empty() {
                let (message, after) = split(rest).ok_or(NetlinkError::Malformed { operation, what: "length" })?;
                rest = after;
                // An answer to an earlier request that was given up.
                if message.sequence != sequence {
                    continue;
                }
                answer.interrupted |= message.flags & NLM_F_DUMP_INTR != 0;
                match message.kind {
                    NLMSG_ERROR | NLMSG_DONE => {
                        return match verdict(&message) {
                            None => Ok(answer),
                            Some((source, detail)) => {
                                Err(NetlinkError::Refused { operation, object: object.to_owned(), detail, source })
                            }
                        };
                    }
                    _ => answer.messages.push(message.payload.to_vec()),
                }
            }
        }
    }

    /// Reads one datagram from the kernel into `self.buffer`.
    fn receive(&mut self, operation: &'static str) -> Result<()> {
        loop {
            self.buffer.clear();
            match self.socket.recv_from(&mut self.buffer, libc::MSG_TRUNC) {
                Ok((length, _)) if length > self.buffer.len() => {
                    return Err(NetlinkError::Malformed { operation, what: "longer than announced" });
                }
                Ok((_, from)) if from.port_number() == 0 => return Ok(()),
                Ok(_) => {}
                Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
                Err(source) => return Err(NetlinkError::Socket { operation: "receive", source }),
            }
        }
    }
}

#[derive(Default)]
struct Answer {
    messages: Vec<Vec<u8>>,
    interrupted: bool,
}

struct RawMessage<'a> {
    kind: u16,
    flags: u16,
    sequence: u32,
    payload: &'a [u8],
}

fn u16_at(bytes: &[u8], at: usize) -> Option<u16> {
    Some(u16::from_ne_bytes(bytes.get(at..at + 2)?.try_into().ok()?))
}

fn u32_at(bytes: &[u8], at: usize) -> Option<u32> {
    Some(u32::from_ne_bytes(bytes.get(at..at + 4)?.try_into().ok()?))
}

/// Splits the first message (`struct nlmsghdr` and payload) off a datagram.
fn split(bytes: &[u8]) -> Option<(RawMessage<'_>, &[u8])> {
    let length = usize::try_from(u32_at(bytes, 0)?).ok()?;
    let payload = bytes.get(HEADER_BYTES..length)?;
    let message =
        RawMessage { kind: u16_at(bytes, 4)?, flags: u16_at(bytes, 6)?, sequence: u32_at(bytes, 8)?, payload };
    let next = length.checked_next_multiple_of(4)?.min(bytes.len());
    Some((message, &bytes[next..]))
}

/// What an error or end message says: nothing for success, else the error and the kernel's words.
fn verdict(message: &RawMessage<'_>) -> Option<(io::Error, String)> {
    // An end message without a number is an old kernel's success.
    let code = u32_at(message.payload, 0)?.cast_signed();
    if code == 0 {
        return None;
    }
    let mut detail = String::new();
    if message.kind == NLMSG_ERROR && message.flags & NLM_F_ACK_TLVS != 0 {
        let attributes = message.payload.get(4 + HEADER_BYTES..).unwrap_or_default();
        detail = attributes_of(attributes)
            .find(|(kind, _)| *kind == NLMSGERR_ATTR_MSG)
            .map(|(_, value)| text(value))
            .unwrap_or_default();
    }
    Some((io::Error::from_raw_os_error(code.saturating_neg()), detail))
}

/// The attributes of a message after its fixed header, as kind and value. Stops at the first malformed one.
fn attributes_of(bytes: &[u8]) -> impl Iterator<Item = (u16, &[u8])> {
    NlasIterator::new(bytes).map_while(|nla: std::result::Result<_, DecodeError>| {
        let nla = nla.ok()?;
        let length = usize::from(nla.length());
        Some((nla.kind(), nla.into_inner().get(4..length)?))
    })
}

/// A text attribute, which ends in a NUL byte.
fn text(value: &[u8]) -> String {
    String::from_utf8_lossy(value.strip_suffix(&[0]).unwrap_or(value)).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn message(length: u32, kind: u16, flags: u16, payload: &[u8]) -> Vec<u8> {
        let mut bytes = length.to_ne_bytes().to_vec();
        bytes.extend(kind.to_ne_bytes());
        bytes.extend(flags.to_ne_bytes());
        bytes.extend(7u32.to_ne_bytes());
        bytes.extend(0u32.to_ne_bytes());
        bytes.extend(payload);
        bytes
    }

    #[test]
    fn messages_with_a_wrong_length_are_refused() {
        assert!(split(&[]).is_none());
        assert!(split(&[0; 15]).is_none());
        assert!(split(&message(0, 2, 0, &[])).is_none());
        assert!(split(&message(15, 2, 0, &[])).is_none());
        assert!(split(&message(21, 2, 0, &[0; 4])).is_none());
        assert!(split(&message(u32::MAX, 2, 0, &[0; 4])).is_none());
        let (first, rest) =
            split(&message(17, 9, 1, &[5, 0, 0, 0])).map(|(m, r)| (m.payload.to_vec(), r.len())).unwrap();
        assert_eq!((first, rest), (vec![5], 0));
    }

    #[test]
    fn the_kernels_words_are_found() {
        let mut payload = (-17i32).to_ne_bytes().to_vec();
        payload.extend([0; HEADER_BYTES]);
        payload.extend([10, 0, 1, 0]);
        payload.extend(b"taken\0");
        let bytes = message(u32::try_from(HEADER_BYTES + payload.len()).unwrap(), 2, NLM_F_ACK_TLVS, &payload);
        let (error, detail) = verdict(&split(&bytes).unwrap().0).unwrap();
        assert_eq!((error.kind(), detail.as_str()), (io::ErrorKind::AlreadyExists, "taken"));
        let refused =
            NetlinkError::Refused { operation: "add link", object: "armlet0".to_owned(), detail, source: error };
        assert_eq!(refused.to_string(), "netlink: add link armlet0 (taken)");
        assert!(refused.already_exists() && !refused.is_missing());
    }

    #[test]
    fn an_acknowledgement_is_no_error() {
        for kind in [NLMSG_ERROR, NLMSG_DONE] {
            assert!(verdict(&split(&message(20, kind, 0, &[0; 4])).unwrap().0).is_none());
        }
        assert!(verdict(&split(&message(16, NLMSG_DONE, 0, &[])).unwrap().0).is_none());
        let smallest = i32::MIN.to_ne_bytes();
        assert!(verdict(&split(&message(20, NLMSG_ERROR, 0, &smallest)).unwrap().0).is_some());
    }

    proptest::proptest! {
        #[test]
        fn no_bytes_panic(bytes in proptest::collection::vec(proptest::num::u8::ANY, 0..200)) {
            if let Some((message, _)) = split(&bytes) {
                let _ = verdict(&message);
            }
            let _ = attributes_of(&bytes).count();
            let _ = (links::parse(&bytes), addresses::parse(&bytes), routes::parse(&bytes));
            let _ = changes::concerns_the_node(&bytes);
        }
    }
}
