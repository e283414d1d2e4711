//! `armlet exec`: a program in a container, its streams over a WebSocket (`v5.channel.k8s.io`).

use super::args::Exec;
use super::client::{self, Client};
use super::error::CliError;
use super::lookup;
use super::output::Out;
use super::terminal::{self, Raw};
use futures_util::stream::{SplitSink, SplitStream};
use futures_util::{SinkExt, StreamExt};
use hyper::body::Bytes;
use hyper::header::{self, HeaderValue};
use hyper::upgrade::Upgraded;
use hyper::{Method, StatusCode};
use hyper_util::rt::TokioIo;
use serde::Deserialize;
use std::io::{self, Read, Write};
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::sync::mpsc;
use tokio_tungstenite::WebSocketStream;
use tokio_tungstenite::tungstenite::Message;
use tokio_tungstenite::tungstenite::handshake::client::generate_key;
use tokio_tungstenite::tungstenite::handshake::derive_accept_key;
use tokio_tungstenite::tungstenite::protocol::{Role, WebSocketConfig};

const PROTOCOL: &str = "v5.channel.k8s.io";
const STDIN: u8 = 0;
const STDOUT: u8 = 1;
const STDERR: u8 = 2;
const ERROR: u8 = 3;
const RESIZE: u8 = 4;
const CLOSE: u8 = 255;

/// Bytes of standard input in one message.
const BLOCK: usize = 16 * 1024;

type Socket = WebSocketStream<TokioIo<Upgraded>>;

/// Runs the command; the answer is the program's exit code.
pub(super) async fn run(args: &Exec, mut client: Client, out: &mut Out) -> Result<u8, CliError> {
    let pods = client.pods().await?.value.items;
    let pod = lookup::pod(&pods, &args.pod, args.namespace.as_deref())?;
    let (container, others) = lookup::container(pod, args.container.as_deref())?;
    if let Some(others) = others {
        out.remark(&format!("Using container {:?} of: {}", container.name, others.join(", ")));
    }
    let tty = args.tty && (!args.stdin || terminal::is_interactive());
    if tty != args.tty {
        out.remark("Standard input is no terminal: the program gets none either.");
    }
    let place = [&pod.metadata.namespace, &pod.metadata.name, &container.name].map(|part| client::escape(part));
    let path = format!("/exec/{}?{}", place.join("/"), query(args, tty, terminal::size()));
    let socket = open(&mut client, &path).await?;
    // Whoever ends this program finds the terminal put back: the signals are listened to before it is changed.
    let (signals, raw) = if tty && args.stdin { (Some(Signals::listen()?), Some(Raw::enter()?)) } else { (None, None) };
    let ended = session(socket, args.stdin, tty, signals).await;
    drop(raw);
    ended
}

fn query(args: &Exec, tty: bool, size: Option<(u16, u16)>) -> String {
    let flag = |name: &'static str, set: bool| set.then(|| (name, "1".to_owned()));
    let size = size.filter(|_| tty);
    let pairs: Vec<(&str, String)> = args
        .command
        .iter()
        .map(|word| ("command", word.clone()))
        .chain(flag("input", args.stdin))
        .chain(flag("output", true))
        .chain(flag("error", !tty))
        .chain(flag("exitCode", true))
        .chain(flag("tty", tty))
        .chain(size.map(|(columns, _)| ("width", columns.to_string())))
        .chain(size.map(|(_, rows)| ("height", rows.to_string())))
        .collect();
    client::query(pairs.iter().map(|(n, v)| (*n, v.as_str())))
}

/// Turns the connection into a WebSocket.
async fn open(client: &mut Client, path: &str) -> Result<Socket, CliError> {
    let key = generate_key();
    let mut request = client::request(Method::GET, path, Bytes::new())?;
    let accept = derive_accept_key(key.as_bytes());
    let headers = request.headers_mut();
    headers.insert(header::CONNECTION, HeaderValue::from_static("Upgrade"));
    headers.insert(header::UPGRADE, HeaderValue::from_static("websocket"));
    headers.insert(header::SEC_WEBSOCKET_VERSION, HeaderValue::from_static("13"));
    headers.insert(header::SEC_WEBSOCKET_PROTOCOL, HeaderValue::from_static(PROTOCOL));
    let bad_key = |error: header::InvalidHeaderValue| CliError::Request { what: path.to_owned(), source: error.into() };
    headers.insert(header::SEC_WEBSOCKET_KEY, HeaderValue::from_str(&key).map_err(bad_key)?);
    let answer = client.send(request).await?;
    if answer.status() != StatusCode::SWITCHING_PROTOCOLS {
        return Err(client::refusal(answer).await);
    }
    if answer.headers().get(header::SEC_WEBSOCKET_ACCEPT).is_none_or(|v| v != accept.as_str()) {
        let message = "the agent's answer is that of another request".to_owned();
        return Err(CliError::Exec { code: None, message });
    }
    let upgraded = hyper::upgrade::on(answer).await.map_err(|source| CliError::Talk { source })?;
    let config = WebSocketConfig::default().read_buffer_size(16 * 1024).write_buffer_size(0);
    Ok(WebSocketStream::from_raw_socket(TokioIo::new(upgraded), Role::Client, Some(config)).await)
}

/// Runs both directions side by side, until it is known how the program ended, or this one is ended. That nothing can be
/// sent any more is no end: what the program wrote and how it ended may still be on its way.
async fn session(socket: Socket, stdin: bool, tty: bool, signals: Option<Signals>) -> Result<u8, CliError> {
    let (mut sink, mut source) = socket.split();
    let input = if stdin { Some(read_stdin()) } else { None };
    let resized = if tty { Some(listen(SignalKind::window_change())?) } else { None };
    let sending = async {
        send(&mut sink, input, resized).await;
        std::future::pending().await
    };
    tokio::select! {
        ended = receive(&mut source) => ended,
        never = sending => never,
        signal = ended_by_signal(signals) => Err(CliError::Signal { signal }),
    }
}

fn listen(kind: SignalKind) -> Result<Signal, CliError> {
    signal(kind).map_err(|source| CliError::Terminal { source })
}

/// The signals that end a program, for one that has something to put back first. Elsewhere the system's own way is good
/// enough.
struct Signals([(Signal, u8); 4]);

impl Signals {
    fn listen() -> Result<Self, CliError> {
        let on = |kind: SignalKind, number| Ok::<_, CliError>((listen(kind)?, number));
        Ok(Self([
            on(SignalKind::hangup(), 1)?,
            on(SignalKind::interrupt(), 2)?,
            on(SignalKind::quit(), 3)?,
            on(SignalKind::terminate(), 15)?,
        ]))
    }
}

/// Waits for a signal that ends this program and gives its number.
async fn ended_by_signal(mut signals: Option<Signals>) -> u8 {
    let Some(Signals([(hup, hup_is), (int, int_is), (quit, quit_is), (term, term_is)])) = &mut signals else {
        return std::future::pending().await;
    };
    tokio::select! {
        _ = hup.recv() => *hup_is,
        _ = int.recv() => *int_is,
        _ = quit.recv() => *quit_is,
        _ = term.recv() => *term_is,
    }
}

/// Reads standard input on a thread of its own: it may be a file, a pipe or a terminal that others use too, and none
/// of them may be switched to another mode. The thread is left behind when the program ends.
fn read_stdin() -> mpsc::Receiver<Bytes> {
    let (sender, receiver) = mpsc::channel(2);
    std::thread::spawn(move || {
        let mut block = vec![0; BLOCK];
        loop {
            match io::stdin().read(&mut block) {
                Ok(0) => return,
                Ok(len) => {
                    let bytes = Bytes::copy_from_slice(block.get(..len).unwrap_or_default());
                    if sender.blocking_send(bytes).is_err() {
                        return;
                    }
                }
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(_) => return,
            }
        }
    });
    receiver
}

/// Sends what is typed and how large the window is, until nothing can be sent any more.
async fn send(
    sink: &mut SplitSink<Socket, Message>,
    mut input: Option<mpsc::Receiver<Bytes>>,
    mut resized: Option<Signal>,
) {
    // The size went with the request; it may have changed since.
    let mut message = resized.is_some().then(resize).flatten();
    loop {
        if let Some(bytes) = message.take()
            && sink.send(Message::Binary(bytes)).await.is_err()
        {
            return;
        }
        tokio::select! {
            bytes = next(input.as_mut()) => message = Some(match bytes {
                Some(bytes) => framed(STDIN, &bytes),
                None => {
                    input = None;
                    Bytes::from_static(&[CLOSE, STDIN])
                }
            }),
            () = changed(resized.as_mut()) => message = resize(),
        }
    }
}

async fn next(input: Option<&mut mpsc::Receiver<Bytes>>) -> Option<Bytes> {
    match input {
        Some(input) => input.recv().await,
        None => std::future::pending().await,
    }
}

async fn changed(resized: Option<&mut Signal>) {
    match resized {
        Some(resized) => {
            resized.recv().await;
        }
        None => std::future::pending().await,
    }
}

fn resize() -> Option<Bytes> {
    let (columns, rows) = terminal::size()?;
    Some(framed(RESIZE, format!("{{\"Width\":{columns},\"Height\":{rows}}}").as_bytes()))
}

fn framed(channel: u8, content: &[u8]) -> Bytes {
    [&[channel], content].concat().into()
}

/// Shows what the program writes, until it is known how it ended.
async fn receive(source: &mut SplitStream<Socket>) -> Result<u8, CliError> {
    while let Some(message) = source.next().await {
        let Message::Binary(message) = message.map_err(session_error)? else { continue };
        let Some((channel, content)) = message.split_first() else { continue };
        match *channel {
            STDOUT => write(&mut io::stdout().lock(), content)?,
            STDERR => write(&mut io::stderr().lock(), content)?,
            ERROR if !content.is_empty() => return ended(content),
            _ => {}
        }
    }
    Err(CliError::CutOff)
}

fn write(to: &mut impl Write, content: &[u8]) -> Result<(), CliError> {
    to.write_all(content).and_then(|()| to.flush()).map_err(|source| CliError::Output { source })
}

fn session_error(error: tokio_tungstenite::tungstenite::Error) -> CliError {
    CliError::Session { source: Box::new(error) }
}

/// A v1.Status, as far as it tells how a program ended.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Status {
    status: String,
    message: String,
    reason: String,
    details: Details,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Details {
    causes: Vec<Cause>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Cause {
    reason: String,
    message: String,
}

/// The exit code that the last message tells, or why there is none.
fn ended(content: &[u8]) -> Result<u8, CliError> {
    let status: Status = serde_json::from_slice(content)
        .map_err(|source| CliError::Decode { path: "the program's end".to_owned(), source })?;
    let code = status.details.causes.iter().find(|cause| cause.reason == "ExitCode");
    let code =
        code.and_then(|cause| cause.message.parse::<i32>().ok()).map(|code| u8::try_from(code & 0xff).unwrap_or(1));
    match (status.status.as_str(), status.reason.as_str(), code) {
        ("Success", ..) => Ok(0),
        (_, "NonZeroExitCode", Some(code)) => Ok(code),
        // 128 stands for "it never ran" in general: a shell has no such code.
        (_, _, code) => Err(CliError::Exec {
            code: code.filter(|code| matches!(code, 126 | 127)),
            message: without_layers(&status.message).to_owned(),
        }),
    }
}

/// The message without what each layer of a kubelet puts before it, which clients of the API match on and which tells
/// people nothing.
fn without_layers(message: &str) -> &str {
    let mut rest = message;
    let layers = ["Internal error occurred: ", "error executing command in container: "];
    while let Some(inner) = layers.iter().find_map(|layer| rest.strip_prefix(layer)) {
        rest = inner;
    }
    rest
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_message_tells_the_exit_code() {
        let code = |text: &str| ended(text.as_bytes()).map_err(|error| error.exit_code(true));
        assert_eq!(code(r#"{"metadata":{},"status":"Success"}"#), Ok(0));
        let failure = |reason: &str, causes: &str| {
            format!(
                r#"{{"metadata":{{}},"status":"Failure","message":"m","reason":"{reason}","details":{{"causes":[{causes}]}}}}"#
            )
        };
        assert_eq!(code(&failure("NonZeroExitCode", r#"{"reason":"ExitCode","message":"3"}"#)), Ok(3));
        assert_eq!(code(&failure("NonZeroExitCode", r#"{"reason":"ExitCode","message":"x"}"#)), Err(125));
        assert_eq!(
            code(&failure("InternalError", r#"{"message":"m"},{"reason":"ExitCode","message":"127"}"#)),
            Err(127)
        );
        assert_eq!(
            code(&failure("InternalError", r#"{"message":"m"},{"reason":"ExitCode","message":"128"}"#)),
            Err(125)
        );
        assert_eq!(code("garbage"), Err(125));
    }

    #[test]
    fn people_are_told_the_cause_alone() {
        let layers = "Internal error occurred: Internal error occurred: error executing command in container: ";
        assert_eq!(without_layers(&format!("{layers}failed to exec: no")), "failed to exec: no");
        assert_eq!(without_layers("container not found"), "container not found");
    }

    #[test]
    fn the_request_says_what_to_run() {
        let args = |tty| Exec {
            pod: "web".into(),
            container: None,
            namespace: None,
            stdin: true,
            tty,
            command: vec!["echo".into(), "a b".into()],
        };
        assert_eq!(
            query(&args(false), false, Some((80, 24))),
            "command=echo&command=a%20b&input=1&output=1&error=1&exitCode=1"
        );
        assert_eq!(
            query(&args(true), true, Some((80, 24))),
            "command=echo&command=a%20b&input=1&output=1&exitCode=1&tty=1&width=80&height=24"
        );
    }
}
