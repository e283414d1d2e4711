//! The supervisor's client: one connection that makes itself anew, requests that wait for their answers, and what the
//! supervisor says unasked.

use crate::model::supervise::{
    Ask, ContainerEntry, ExecExit, ExecSpec, LogLimits, MAX_MESSAGE, Message, Notice, PROTOCOL, RefusalCode, Reply,
    Request, SandboxEntry,
};
use crate::sys::ready::Ready;
use crate::sys::{build, exe, seqpacket};
use std::collections::BTreeMap;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tokio::sync::{mpsc, oneshot};

/// Between two tries to reach a supervisor that is not there: at first, and at most.
const RETRY: (Duration, Duration) = (Duration::from_millis(20), Duration::from_secs(1));

/// Why the supervisor did not do what it was asked.
#[derive(Debug, thiserror::Error)]
pub enum ClientError {
    /// There is no connection now; it is being made anew.
    #[error("ask the supervisor: not connected; is `armlet supervisor` running?")]
    NotConnected,
    /// The connection was lost before the answer came. What was asked may have been done.
    #[error("ask the supervisor: the connection was lost before its answer")]
    Lost,
    /// The request does not fit into one message.
    #[error("ask the supervisor: the request has {len} bytes, more than {MAX_MESSAGE}")]
    TooLarge {
        /// Its length.
        len: usize,
    },
    /// The request could not be sent.
    #[error("ask the supervisor: send")]
    Send(#[source] io::Error),
    /// The supervisor refused.
    #[error("{message}")]
    Refused {
        /// Machine-readable cause.
        code: RefusalCode,
        /// The supervisor's words.
        message: String,
    },
    /// The answer does not belong to the question.
    #[error("ask the supervisor: unexpected answer {0}")]
    Unexpected(String),
}

impl ClientError {
    /// The cause, as the supervisor would say it.
    #[must_use]
    pub const fn code(&self) -> RefusalCode {
        match self {
            Self::Refused { code, .. } => *code,
            Self::TooLarge { .. } => RefusalCode::Malformed,
            Self::NotConnected | Self::Lost | Self::Send(_) | Self::Unexpected(_) => RefusalCode::System,
        }
    }
}

/// What is heard from the supervisor unasked, in order.
#[derive(Debug)]
pub enum Heard {
    /// A connection was made; this is the whole table.
    Table {
        /// Namespaces.
        sandboxes: Vec<SandboxEntry>,
        /// Container attempts.
        containers: Vec<ContainerEntry>,
        /// The node goes down. If not, an earlier supervisor's word that it does is void.
        stopping: bool,
    },
    /// Something happened.
    Notice(Notice),
    /// The connection is gone and is being made anew.
    Lost,
}

/// A running exec session.
#[derive(Debug)]
pub struct Session {
    /// Its number.
    pub session: u64,
    /// As [`Reply::Exec`] has them.
    pub fds: Vec<OwnedFd>,
    /// How it ends. A dropped sender means that it is not known.
    pub exit: oneshot::Receiver<ExecExit>,
}

/// An answer, its descriptors, and for an exec session its end.
type Answer = (Reply, Vec<OwnedFd>, Option<oneshot::Receiver<ExecExit>>);
type Socket = Ready<OwnedFd>;

/// The way to the supervisor.
#[derive(Debug)]
pub struct Client {
    path: PathBuf,
    logs: LogLimits,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    seq: u64,
    socket: Option<Arc<Socket>>,
    waiting: BTreeMap<u64, oneshot::Sender<Answer>>,
    /// The offer of this program.
    offer: Option<u64>,
    /// Exec sessions and who waits for their end. The waiting end is made when the answer is read, before the next
    /// message: the notice of an end cannot overtake it.
    sessions: BTreeMap<u64, oneshot::Sender<ExecExit>>,
}

impl Client {
    /// A client of the supervisor at this socket. [`Client::run`] makes the connection.
    #[must_use]
    pub fn new(path: &Path, logs: LogLimits) -> Self {
        Self { path: path.to_owned(), logs, state: Mutex::new(State::default()) }
    }

    /// Keeps a connection until nobody listens any more.
    pub async fn run(&self, heard: mpsc::UnboundedSender<Heard>) {
        let mut pause = RETRY.0;
        loop {
            match self.connected(&heard).await {
                Ok(()) => pause = RETRY.0,
                Err(error) => tracing::debug!(path = %self.path.display(), %error, "no supervisor"),
            }
            if self.disconnect() {
                pause = RETRY.0;
                if heard.send(Heard::Lost).is_err() {
                    return;
                }
            }
            tokio::time::sleep(pause).await;
            pause = (pause * 2).min(RETRY.1);
            if heard.is_closed() {
                return;
            }
        }
    }

    /// One connection from its hello to its end.
    async fn connected(&self, heard: &mpsc::UnboundedSender<Heard>) -> io::Result<()> {
        let socket = Arc::new(Ready::new(seqpacket::connect(&self.path)?)?);
        let mut buffer = vec![0; MAX_MESSAGE];
        let build = build::identity().to_owned();
        let hello = Ask::Hello {
            version: PROTOCOL,
            logs: self.logs.clone(),
            build,
            #[cfg(feature = "other-build")]
            unheard_of: 1,
        };
        let seq = self.next_seq();
        send(&socket, &Request { seq, ask: hello }, &[]).await.map_err(io::Error::other)?;
        let (table, theirs) = table(&socket, &mut buffer, seq).await?;
        self.state().socket = Some(Arc::clone(&socket));
        if theirs != build::identity() {
            self.offer(&socket, &theirs).await;
        }
        let mut next = Some(table);
        loop {
            if let Some(news) = next.take()
                && heard.send(news).is_err()
            {
                return Ok(());
            }
            let Some((message, fds)) = receive(&socket, &mut buffer).await? else { return Ok(()) };
            next = self.take(message, fds);
        }
    }

    /// Offers this program to a supervisor of another build, once a connection: an upgrade, or the way back from one.
    async fn offer(&self, socket: &Socket, theirs: &str) {
        // A copy, where one is needed, may take a while.
        let program = match tokio::task::spawn_blocking(exe::protected).await.map_err(io::Error::other).flatten() {
            Ok(program) => program,
            Err(error) => return tracing::warn!(%error, "this program cannot be offered to the supervisor"),
        };
        tracing::info!(theirs, "the supervisor is of another build: offering it this one");
        let (seq, build) = (self.next_seq(), build::identity().to_owned());
        self.state().offer = Some(seq);
        if let Err(error) = send(socket, &Request { seq, ask: Ask::HandOver { build } }, &[program.as_fd()]).await {
            tracing::warn!(%error, "this program could not be offered to the supervisor");
        }
    }

    /// Takes one message: an answer goes to who waits for it, a notice is handed on.
    fn take(&self, message: Message, fds: Vec<OwnedFd>) -> Option<Heard> {
        match message {
            Message::Reply { seq, reply } => {
                let mut state = self.state();
                if state.offer == Some(seq)
                    && let Reply::Refused { message, .. } = &reply
                {
                    tracing::warn!(message, "the supervisor stays what it is");
                }
                let waiting = state.waiting.remove(&seq);
                let exit = match (&reply, &waiting) {
                    (Reply::Exec { session }, Some(_)) => {
                        let (to, exit) = oneshot::channel();
                        state.sessions.insert(*session, to);
                        Some(exit)
                    }
                    _ => None,
                };
                // Nobody waits any more: the descriptors are closed, and a session sees its client go.
                if let Some(to) = waiting {
                    drop(to.send((reply, fds, exit)));
                }
                None
            }
            Message::Notice { notice: Notice::ExecExited { session, exit } } => {
                let waiting = self.state().sessions.remove(&session);
                let _ = waiting.map(|to| to.send(exit));
                None
            }
            Message::Notice { notice } => Some(Heard::Notice(notice)),
        }
    }

    /// Forgets a connection that has ended. Whoever waits for an answer learns that there is none.
    fn disconnect(&self) -> bool {
        let mut state = self.state();
        state.waiting.clear();
        state.sessions.clear();
        state.socket.take().is_some()
    }

    /// Asks and waits for the one answer. Dropping the future drops the answer, not the request.
    ///
    /// # Errors
    /// [`ClientError`]; a refusal of the supervisor is one.
    pub async fn ask(&self, ask: Ask) -> Result<Reply, ClientError> {
        self.ask_with_fds(ask).await.map(|(reply, ..)| reply)
    }

    async fn ask_with_fds(&self, ask: Ask) -> Result<Answer, ClientError> {
        let seq = self.next_seq();
        let (to, answer) = oneshot::channel();
        let socket = {
            let mut state = self.state();
            let socket = state.socket.clone().ok_or(ClientError::NotConnected)?;
            state.waiting.insert(seq, to);
            socket
        };
        let mut guard = Waiting { client: self, seq, armed: true };
        send(&socket, &Request { seq, ask }, &[]).await?;
        let answered = answer.await.map_err(|_| ClientError::Lost);
        guard.armed = false;
        match answered? {
            (Reply::Refused { code, message }, ..) => Err(ClientError::Refused { code, message }),
            answer => Ok(answer),
        }
    }

    /// Runs a program in a running container.
    ///
    /// # Errors
    /// [`ClientError`].
    pub async fn exec(&self, spec: ExecSpec) -> Result<Session, ClientError> {
        match self.ask_with_fds(Ask::Exec(spec)).await? {
            (Reply::Exec { session }, fds, Some(exit)) => Ok(Session { session, fds, exit }),
            (other, ..) => Err(ClientError::Unexpected(format!("{other:?}"))),
        }
    }

    fn next_seq(&self) -> u64 {
        let mut state = self.state();
        state.seq += 1;
        state.seq
    }

    /// No call panics while it holds the lock, so that a poisoned one still guards sound data.
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Takes a request out of the waiting ones when nobody waits for its answer any more.
struct Waiting<'a> {
    client: &'a Client,
    seq: u64,
    armed: bool,
}

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        if self.armed {
            self.client.state().waiting.remove(&self.seq);
        }
    }
}

async fn send(socket: &Socket, request: &Request, fds: &[BorrowedFd<'_>]) -> Result<(), ClientError> {
    let bytes = serde_json::to_vec(request).map_err(|e| ClientError::Send(e.into()))?;
    if bytes.len() > MAX_MESSAGE {
        return Err(ClientError::TooLarge { len: bytes.len() });
    }
    let sent = socket.write(|fd| match seqpacket::send(fd.as_fd(), &bytes, fds)? {
        true => Ok(()),
        false => Err(io::ErrorKind::WouldBlock.into()),
    });
    sent.await.map_err(ClientError::Send)
}

/// The next message; none at the connection's end. One that cannot be understood is logged and passed over: a newer
/// supervisor may say things that this agent does not know.
async fn receive(socket: &Socket, buffer: &mut [u8]) -> io::Result<Option<(Message, Vec<OwnedFd>)>> {
    loop {
        let received = socket.read(|fd| {
            let received = seqpacket::receive(fd.as_fd(), buffer)?;
            received.ok_or_else(|| io::ErrorKind::WouldBlock.into())
        });
        let received = received.await?;
        if received.len == 0 {
            return Ok(None);
        }
        match serde_json::from_slice(&buffer[..received.len]) {
            Ok(message) => return Ok(Some((message, received.fds))),
            Err(error) => tracing::warn!(%error, "the supervisor said something that is not understood"),
        }
    }
}

/// The table that follows a hello, and the supervisor's build.
async fn table(socket: &Socket, buffer: &mut [u8], hello: u64) -> io::Result<(Heard, String)> {
    let (mut sandboxes, mut containers) = (Vec::new(), Vec::new());
    let (mut goes_down, mut theirs) = (false, String::new());
    loop {
        let Some((message, _)) = receive(socket, buffer).await? else {
            return Err(io::ErrorKind::UnexpectedEof.into());
        };
        match message {
            Message::Reply { seq, reply } if seq == hello => match reply {
                Reply::Welcome { version, build, pid, stopping, .. } => {
                    goes_down = stopping;
                    tracing::info!(version, build, pid, "connected to the supervisor");
                    theirs = build;
                }
                Reply::Pod(entry) => sandboxes.push(entry),
                Reply::Container(entry) => containers.push(entry),
                Reply::Done => return Ok((Heard::Table { sandboxes, containers, stopping: goes_down }, theirs)),
                Reply::Refused { message, .. } => return Err(io::Error::other(message)),
                Reply::Exec { .. } | Reply::Stats(_) | Reply::Log(_) => {}
            },
            // What happens while the table is told is in the table, or is told again after it.
            Message::Reply { .. } => {}
            Message::Notice { notice: Notice::Container(entry) } => containers.push(entry),
            Message::Notice { .. } => {}
        }
    }
}
