//! The sub-protocols `v4.channel.k8s.io` and `v5.channel.k8s.io`: several streams in one WebSocket. Pure.
//!
//! Each binary message begins with a byte that names its channel
//! (`k8s.io/apimachinery/pkg/util/remotecommand/constants.go`).

use crate::model::supervise::ExecExit;
use hyper::body::Bytes;
use serde::{Deserialize, Serialize};

const STDIN: u8 = 0;
const STDOUT: u8 = 1;
const STDERR: u8 = 2;
const ERROR: u8 = 3;
const RESIZE: u8 = 4;
const CLOSE: u8 = 255;

/// A version of the protocol.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Version {
    /// Streams end with the connection.
    V4,
    /// A stream can be ended alone.
    V5,
}

impl Version {
    /// The name that client and server agree on.
    pub(super) const fn name(self) -> &'static str {
        match self {
            Self::V4 => "v4.channel.k8s.io",
            Self::V5 => "v5.channel.k8s.io",
        }
    }

    /// The first one that the client offers and we speak.
    pub(super) fn choose<'a>(offered: impl IntoIterator<Item = &'a str>) -> Option<Self> {
        offered.into_iter().find_map(|name| [Self::V5, Self::V4].into_iter().find(|v| v.name() == name.trim()))
    }
}

/// How a client wants to be spoken to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Dialect {
    pub(super) version: Version,
    /// armlet's own addition: a program that could not be run ends with the exit code that a shell would give, beside the
    /// message.
    pub(super) exit_codes: bool,
}

/// What a client's message says.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Input {
    /// Bytes for standard input.
    Stdin(Bytes),
    /// Standard input ends here.
    EndStdin,
    /// The terminal's window has another size: columns, rows.
    Resize(u16, u16),
    /// Nothing that concerns us: an unknown channel, an empty message, a size that is none. Ignored, as upstream does.
    Nothing,
}

#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
struct Size {
    width: u16,
    height: u16,
}

/// Reads a client's binary message.
pub(super) fn read(message: &Bytes, version: Version) -> Input {
    match (message.first().copied(), message.get(1..).unwrap_or_default()) {
        (Some(STDIN), content) if !content.is_empty() => Input::Stdin(message.slice(1..)),
        (Some(RESIZE), content) => {
            serde_json::from_slice::<Size>(content).map_or(Input::Nothing, |s| Input::Resize(s.width, s.height))
        }
        (Some(CLOSE), [STDIN]) if version == Version::V5 => Input::EndStdin,
        _ => Input::Nothing,
    }
}

/// A stream from the server to the client.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Output {
    Stdout,
    Stderr,
}

/// A message with what the program wrote.
pub(super) fn output(stream: Output, content: &[u8]) -> Bytes {
    let channel = match stream {
        Output::Stdout => STDOUT,
        Output::Stderr => STDERR,
    };
    let mut message = Vec::with_capacity(content.len() + 1);
    message.push(channel);
    message.extend_from_slice(content);
    message.into()
}

/// The empty message that a session begins with, on the lowest channel that the client reads.
pub(super) fn hello(stdout: bool, stderr: bool) -> Bytes {
    Bytes::from_static(match (stdout, stderr) {
        (true, _) => &[STDOUT],
        (false, true) => &[STDERR],
        (false, false) => &[ERROR],
    })
}

/// The last message: how the program ended, as a v1.Status.
pub(super) fn end(exit: &ExecExit, dialect: Dialect) -> Bytes {
    let mut message = vec![ERROR];
    message.extend(serde_json::to_vec(&Status::of(exit, dialect)).unwrap_or_default());
    message.into()
}

/// A v1.Status with its fields in upstream's order, so that the bytes are the same.
#[derive(Serialize)]
struct Status {
    metadata: Empty,
    status: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    message: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    reason: Option<&'static str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    details: Option<Details>,
    #[serde(skip_serializing_if = "Option::is_none")]
    code: Option<u16>,
}

#[derive(Serialize)]
struct Empty {}

#[derive(Serialize)]
struct Details {
    causes: Vec<Cause>,
}

#[derive(Serialize)]
struct Cause {
    #[serde(skip_serializing_if = "Option::is_none")]
    reason: Option<&'static str>,
    message: String,
}

impl Status {
    fn of(exit: &ExecExit, dialect: Dialect) -> Self {
        match exit {
            ExecExit::Exited { code: 0 } => {
                Self { metadata: Empty {}, status: "Success", message: None, reason: None, details: None, code: None }
            }
            ExecExit::Exited { code } => Self {
                metadata: Empty {},
                status: "Failure",
                message: Some(format!(
                    "command terminated with non-zero exit code: command terminated with exit code {code}"
                )),
                reason: Some("NonZeroExitCode"),
                details: Some(Details { causes: vec![Cause::code(*code)] }),
                code: None,
            },
            ExecExit::Failed { code, message } => Self::internal(message, dialect.exit_codes.then_some(*code)),
            ExecExit::TimedOut => Self::internal("it took longer than it was given", None),
        }
    }

    /// The program never ran, or it is not known how it ended. Upstream words it twice: the runtime's error is an internal
    /// one by the time it reaches the kubelet's translator from WebSocket, which makes an internal error of it again.
    fn internal(why: &str, code: Option<i32>) -> Self {
        let cause = format!("Internal error occurred: error executing command in container: {why}");
        Self {
            metadata: Empty {},
            status: "Failure",
            message: Some(format!("Internal error occurred: {cause}")),
            reason: Some("InternalError"),
            details: Some(Details {
                causes: [Cause { reason: None, message: cause }].into_iter().chain(code.map(Cause::code)).collect(),
            }),
            code: Some(500),
        }
    }
}

impl Cause {
    fn code(code: i32) -> Self {
        Self { reason: Some("ExitCode"), message: code.to_string() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_client_chooses_among_what_we_speak() {
        assert_eq!(Version::choose(["v5.channel.k8s.io", "v4.channel.k8s.io"]), Some(Version::V5));
        assert_eq!(Version::choose(["v9.channel.k8s.io", " v4.channel.k8s.io"]), Some(Version::V4));
        assert_eq!(Version::choose(["v9.channel.k8s.io", "channel.k8s.io", ""]), None);
    }

    #[test]
    fn messages_are_read() {
        for (bytes, want) in [
            (&b"\x00hello\n"[..], Input::Stdin(Bytes::from_static(b"hello\n"))),
            (b"\xff\x00", Input::EndStdin),
            (b"\x04{\"Width\":100,\"Height\":40}", Input::Resize(100, 40)),
            (b"\x04{\"Width\":100,\"Height\":40,\"X\":1}\n", Input::Resize(100, 40)),
            (b"", Input::Nothing),
            (b"\x00", Input::Nothing),
            (b"\x01out", Input::Nothing),
            (b"\xff\x01", Input::Nothing),
            (b"\xff", Input::Nothing),
            (b"\x04{\"Width\":100000,\"Height\":40}", Input::Nothing),
            (b"\x04{\"Width\":-1,\"Height\":40}", Input::Nothing),
            (b"\x04\xff", Input::Nothing),
            (b"\x09x", Input::Nothing),
        ] {
            assert_eq!(read(&Bytes::from_static(bytes), Version::V5), want, "{}", bytes.escape_ascii());
        }
        assert_eq!(read(&Bytes::from_static(b"\xff\x00"), Version::V4), Input::Nothing);
    }

    #[test]
    fn the_end_is_written_as_upstream_writes_it() {
        let dialect = |exit_codes| Dialect { version: Version::V5, exit_codes };
        let text = |exit: ExecExit, codes| String::from_utf8(end(&exit, dialect(codes)).to_vec()).unwrap();
        for codes in [false, true] {
            assert_eq!(text(ExecExit::Exited { code: 0 }, codes), "\u{3}{\"metadata\":{},\"status\":\"Success\"}");
            assert_eq!(
                text(ExecExit::Exited { code: 3 }, codes),
                "\u{3}{\"metadata\":{},\"status\":\"Failure\",\"message\":\"command terminated with non-zero exit code: \
                 command terminated with exit code 3\",\"reason\":\"NonZeroExitCode\",\"details\":{\"causes\":[{\"reason\":\
                 \"ExitCode\",\"message\":\"3\"}]}}"
            );
        }
        // What a kubelet 1.36 sent over a WebSocket for a program that is not there, the runtime's words included.
        let missing = || ExecExit::Failed {
            code: 127,
            message:
                "failed to exec in container: failed to start exec \"b17f\": OCI runtime exec failed: exec failed: \
                unable to start container process: exec: \"/nope\": stat /nope: no such file or directory: unknown"
                    .into(),
        };
        let recorded = "\u{3}{\"metadata\":{},\"status\":\"Failure\",\"message\":\"Internal error occurred: Internal error \
            occurred: error executing command in container: failed to exec in container: failed to start exec \
            \\\"b17f\\\": OCI runtime exec failed: exec failed: unable to start container process: exec: \\\"/nope\\\": \
            stat /nope: no such file or directory: unknown\",\"reason\":\"InternalError\",\"details\":{\"causes\":[{\"message\
            \":\"Internal error occurred: error executing command in container: failed to exec in container: failed to \
            start exec \\\"b17f\\\": OCI runtime exec failed: exec failed: unable to start container process: exec: \
            \\\"/nope\\\": stat /nope: no such file or directory: unknown\"}]},\"code\":500}";
        assert_eq!(text(missing(), false), recorded);
        let with_code = recorded.replace("\"}]}", "\"},{\"reason\":\"ExitCode\",\"message\":\"127\"}]}");
        assert_eq!(text(missing(), true), with_code);
    }

    #[test]
    fn a_session_begins_on_the_lowest_channel() {
        assert_eq!(hello(true, true), &b"\x01"[..]);
        assert_eq!(hello(false, true), &b"\x02"[..]);
        assert_eq!(hello(false, false), &b"\x03"[..]);
        assert_eq!(output(Output::Stderr, b"err\n"), &b"\x02err\n"[..]);
    }

    proptest::proptest! {
        #[test]
        fn any_message_is_read(bytes: Vec<u8>) {
            let _ = read(&bytes.into(), Version::V5);
        }
    }
}
