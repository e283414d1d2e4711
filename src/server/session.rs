//! One exec session: what the program writes goes to the client, what the client sends goes to the program.
//!
//! Both directions run side by side in one task, each at the pace of its slower end: what cannot be handed on is not
//! read, but for one message of the client that waits for its turn. The session ends with the program, or with the
//! client: then the program is killed, for nobody reads it. A client that is gone is noticed behind input that the
//! program does not take, too.

use super::channel::{self, Dialect, Input, Output, Version};
use super::descriptor::Descriptor;
use super::upgrade::Socket;
use super::{Command, ExecSession, Refusal};
use crate::model::supervise::ExecExit;
use crate::sys::ready::Hangup;
use futures_util::stream::{SplitSink, SplitStream};
use futures_util::{SinkExt, StreamExt};
use hyper::body::Bytes;
use std::io;
use std::os::fd::OwnedFd;
use std::time::Duration;
use tokio::sync::{mpsc, oneshot};
use tokio::time::timeout;
use tokio_tungstenite::tungstenite::protocol::CloseFrame;
use tokio_tungstenite::tungstenite::protocol::frame::coding::CloseCode;
use tokio_tungstenite::tungstenite::{Error, Message};

/// Bytes in one message to the client.
const BLOCK: usize = 16 * 1024;

/// How long the end of an output is waited for after the program's exit: a program that it left behind may hold it.
const HELD_OUTPUT: Duration = Duration::from_millis(100);

/// Bytes of an output that are read after the program's exit: more than a pipe holds of what it wrote.
const AFTER_EXIT: usize = 1024 * 1024;

/// How long the client may take to say goodbye.
const GOODBYE: Duration = Duration::from_secs(2);

/// What a terminal takes for the end of its input.
const END_OF_TRANSMISSION: &[u8] = b"\x04";

/// Which streams the client wants.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[expect(clippy::struct_excessive_bools, reason = "each is a parameter of the request")]
pub(super) struct Streams {
    pub(super) stdin: bool,
    pub(super) stdout: bool,
    pub(super) stderr: bool,
    pub(super) tty: bool,
}

type Sink = SplitSink<Socket, Message>;

/// Runs a session to its end.
pub(super) async fn run(
    socket: Socket,
    hangup: &Hangup,
    exec: ExecSession,
    streams: Streams,
    dialect: Dialect,
    commands: &mpsc::Sender<Command>,
) {
    let session = exec.session;
    let (mut sink, mut source) = socket.split();
    let mut ends = match Ends::new(exec.fds, streams) {
        Ok(ends) => ends,
        Err(error) => {
            kill(session, commands).await;
            let exit = ExecExit::Failed { code: 128, message: format!("taking over the program's streams: {error}") };
            finish(sink, source, &exit, dialect).await;
            return;
        }
    };
    let (stdin, outputs) = ends.split(streams);
    let mut input = Words { source: &mut source, version: dialect.version, session, commands };
    let exit = tokio::select! {
        () = take_input(&mut input, stdin, hangup) => None,
        exit = give_output(&mut sink, outputs, streams, exec.exit) => exit.ok(),
    };
    match exit {
        Some(exit) => finish(sink, source, &exit, dialect).await,
        None => kill(session, commands).await,
    }
}

/// Tells the client that there is no session.
pub(super) async fn refuse(socket: Socket, streams: Streams, dialect: Dialect, refusal: Refusal) {
    let (mut sink, source) = socket.split();
    let exit = ExecExit::Failed { code: 128, message: refusal.message };
    if sink.send(Message::Binary(channel::hello(streams.stdout, streams.stderr))).await.is_ok() {
        finish(sink, source, &exit, dialect).await;
    }
}

/// Kills a session's program. A stopped agent needs no telling.
pub(super) async fn kill(session: u64, commands: &mpsc::Sender<Command>) {
    let _ = commands.send(Command::KillExec { session }).await;
}

/// The program's ends of its streams.
#[derive(Debug)]
enum Ends {
    /// Input and output are one.
    Terminal(Descriptor),
    Pipes {
        stdin: Option<Descriptor>,
        stdout: Descriptor,
        stderr: Descriptor,
    },
}

/// Where the client's bytes go.
#[derive(Debug)]
enum Stdin<'a> {
    Nowhere,
    Pipe(Descriptor),
    Terminal(&'a Descriptor),
}

/// Where the program's bytes come from.
#[derive(Debug, Clone, Copy)]
struct Outputs<'a> {
    stdout: &'a Descriptor,
    stderr: Option<&'a Descriptor>,
}

impl Ends {
    fn new(fds: Vec<OwnedFd>, streams: Streams) -> io::Result<Self> {
        let given = fds.len();
        let mut fds = fds.into_iter().map(Descriptor::new);
        let mut next = || {
            let missing = || io::Error::new(io::ErrorKind::InvalidData, format!("only {given} descriptors were given"));
            fds.next().ok_or_else(missing)?
        };
        if streams.tty {
            return Ok(Self::Terminal(next()?));
        }
        let stdin = if streams.stdin { Some(next()?) } else { None };
        Ok(Self::Pipes { stdin, stdout: next()?, stderr: next()? })
    }

    fn split(&mut self, streams: Streams) -> (Stdin<'_>, Outputs<'_>) {
        match self {
            Self::Terminal(master) => {
                let stdin = if streams.stdin { Stdin::Terminal(master) } else { Stdin::Nowhere };
                (stdin, Outputs { stdout: master, stderr: None })
            }
            Self::Pipes { stdin, stdout, stderr } => {
                (stdin.take().map_or(Stdin::Nowhere, Stdin::Pipe), Outputs { stdout, stderr: Some(stderr) })
            }
        }
    }
}

/// What the client sends, message by message.
struct Words<'a> {
    source: &'a mut SplitStream<Socket>,
    version: Version,
    session: u64,
    commands: &'a mpsc::Sender<Command>,
}

/// A part of the program's input.
#[derive(Debug)]
enum Word {
    Bytes(Bytes),
    End,
}

impl Words<'_> {
    /// The next message; none when the client is gone. May be dropped at any moment: nothing is lost.
    async fn next(&mut self) -> Option<Input> {
        loop {
            match self.source.next().await {
                Some(Ok(Message::Binary(message))) => return Some(channel::read(&message, self.version)),
                Some(Ok(Message::Close(_)) | Err(_)) | None => return None,
                Some(Ok(Message::Text(_) | Message::Ping(_) | Message::Pong(_) | Message::Frame(_))) => {}
            }
        }
    }

    /// Does at once what need not wait for the program. What is left is for its input.
    async fn act(&self, input: Input) -> Option<Word> {
        match input {
            Input::Stdin(bytes) => Some(Word::Bytes(bytes)),
            Input::EndStdin => Some(Word::End),
            Input::Resize(width, height) => {
                let _ = self.commands.send(Command::ResizeExec { session: self.session, width, height }).await;
                None
            }
            Input::Nothing => None,
        }
    }
}

/// Hands on what the client sends, until the client is gone. While the program takes nothing, the client is listened to
/// until it sends more input; from then on only its going away is watched for.
async fn take_input(words: &mut Words<'_>, mut stdin: Stdin<'_>, hangup: &Hangup) {
    let mut waiting: Option<Word> = None;
    loop {
        let word = match waiting.take() {
            Some(word) => word,
            None => {
                let Some(input) = words.next().await else { return };
                let Some(word) = words.act(input).await else { continue };
                word
            }
        };
        let mut taken = std::pin::pin!(stdin.take(word));
        loop {
            tokio::select! {
                () = &mut taken => break,
                input = words.next(), if waiting.is_none() => {
                    let Some(input) = input else { return };
                    waiting = words.act(input).await;
                }
                _ = hangup.wait(), if waiting.is_some() => return,
            }
        }
    }
}

impl Stdin<'_> {
    /// A program that reads no more is no reason to end its session: what is sent to it is dropped.
    async fn write(&mut self, bytes: &[u8]) {
        let written = match self {
            Self::Nowhere => Ok(()),
            Self::Pipe(pipe) => pipe.write_all(bytes).await,
            Self::Terminal(master) => master.write_all(bytes).await,
        };
        if written.is_err() {
            *self = Self::Nowhere;
        }
    }

    async fn take(&mut self, word: Word) {
        match word {
            Word::Bytes(bytes) => self.write(&bytes).await,
            Word::End => self.end().await,
        }
    }

    async fn end(&mut self) {
        if let Self::Terminal(_) = self {
            self.write(END_OF_TRANSMISSION).await;
        }
        *self = Self::Nowhere;
    }
}

/// Hands on what the program writes, until it has ended. An error: the client is gone.
async fn give_output(
    sink: &mut Sink,
    outputs: Outputs<'_>,
    streams: Streams,
    mut exit: oneshot::Receiver<ExecExit>,
) -> Result<ExecExit, Error> {
    sink.send(Message::Binary(channel::hello(streams.stdout, streams.stderr))).await?;
    let mut stdout = Source::new(Output::Stdout, Some(outputs.stdout), streams.stdout);
    let mut stderr = Source::new(Output::Stderr, outputs.stderr, streams.stderr);
    let exit = loop {
        tokio::select! {
            len = stdout.read(), if stdout.is_open() => stdout.give(len, sink).await?,
            len = stderr.read(), if stderr.is_open() => stderr.give(len, sink).await?,
            exit = &mut exit => break exit,
        }
    };
    stdout.drain(sink).await?;
    stderr.drain(sink).await?;
    let lost =
        |_| ExecExit::Failed { code: 128, message: "the supervisor was lost: how it ended is not known".to_owned() };
    Ok(exit.unwrap_or_else(lost))
}

/// One output of the program.
struct Source<'a> {
    name: Output,
    end: Option<&'a Descriptor>,
    /// Whether the client wants it; else it is read and dropped, so that the program is not held up.
    wanted: bool,
    buffer: Vec<u8>,
}

impl<'a> Source<'a> {
    fn new(name: Output, end: Option<&'a Descriptor>, wanted: bool) -> Self {
        Self { name, end, wanted, buffer: vec![0; if end.is_some() { BLOCK } else { 0 }] }
    }

    fn is_open(&self) -> bool {
        self.end.is_some()
    }

    async fn read(&mut self) -> io::Result<usize> {
        match self.end {
            Some(end) => end.read(&mut self.buffer).await,
            None => Ok(0),
        }
    }

    async fn give(&mut self, len: io::Result<usize>, sink: &mut Sink) -> Result<(), Error> {
        let content = len.ok().and_then(|len| self.buffer.get(..len)).unwrap_or_default();
        if content.is_empty() {
            self.end = None;
        } else if self.wanted {
            sink.send(Message::Binary(channel::output(self.name, content))).await?;
        }
        Ok(())
    }

    /// What the program wrote before its exit.
    async fn drain(&mut self, sink: &mut Sink) -> Result<(), Error> {
        let mut left = AFTER_EXIT;
        while self.is_open() && left > 0 {
            let Ok(len) = timeout(HELD_OUTPUT, self.read()).await else { break };
            left = left.saturating_sub(len.as_ref().map_or(0, |len| *len));
            self.give(len, sink).await?;
        }
        Ok(())
    }
}

/// Tells the client how it ended and parts from it as the protocol wants: a connection that is dropped with unread
/// bytes in it would take what was sent along.
async fn finish(mut sink: Sink, mut source: SplitStream<Socket>, exit: &ExecExit, dialect: Dialect) {
    let close = CloseFrame { code: CloseCode::Normal, reason: "".into() };
    let told = async {
        sink.send(Message::Binary(channel::end(exit, dialect))).await?;
        sink.send(Message::Close(Some(close))).await
    };
    if told.await.is_ok() {
        let _ = timeout(GOODBYE, async { while let Some(Ok(_)) = source.next().await {} }).await;
    }
}
