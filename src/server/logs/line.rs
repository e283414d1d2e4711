//! One line of a CRI log file: `<RFC 3339 time> <stdout or stderr> <tags> <content>`
//! (`k8s.io/cri-api/pkg/apis/runtime/v1/constants.go`).

use crate::model::WallTime;

/// One of a container's two outputs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::server) enum Output {
    Stdout,
    Stderr,
}

/// A line of the file: a whole line of the container or a piece of one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Line<'a> {
    /// When the container wrote it.
    pub(super) time: WallTime,
    /// Where it wrote it.
    pub(super) output: Output,
    /// Whether the container's line ends here (tag `F`); else (tag `P`) the next line of the same output goes on.
    pub(super) ends: bool,
    /// The text, without a line break.
    pub(super) content: &'a [u8],
}

/// The bytes that hold everything before the content.
pub(super) const MAX_HEADER: usize = 64;

/// Reads one line without its line break; none where it is not one: what a power cut left, or another format.
pub(super) fn parse(line: &[u8]) -> Option<Line<'_>> {
    let mut parts = line.splitn(4, |b| *b == b' ');
    let time = parts.next().and_then(|t| str::from_utf8(t).ok()).and_then(WallTime::parse_rfc3339)?;
    let output = match parts.next()? {
        b"stdout" => Output::Stdout,
        b"stderr" => Output::Stderr,
        _ => return None,
    };
    // Tags are separated by colons; those after the first are for later versions.
    let ends = match parts.next()?.split(|b| *b == b':').next()? {
        b"F" => true,
        b"P" => false,
        _ => return None,
    };
    Some(Line { time, output, ends, content: parts.next().unwrap_or_default() })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_read() {
        let line = parse(b"2026-11-29T18:15:45.355337120Z stdout F tick tock ").unwrap();
        assert_eq!(line.time.rfc3339_nanos(), "2026-11-29T18:15:45.355337120Z");
        assert_eq!((line.output, line.ends, line.content), (Output::Stdout, true, &b"tick tock "[..]));
        let line = parse(b"2026-11-29T18:15:45+01:00 stderr P:x:y \xff\0").unwrap();
        assert_eq!(line.time.rfc3339(), "2026-11-29T17:15:45Z");
        assert_eq!((line.output, line.ends, line.content), (Output::Stderr, false, &b"\xff\0"[..]));
        assert_eq!(parse(b"2026-11-29T18:15:45Z stdout F").unwrap().content, b"");
        assert_eq!(parse(b"2026-11-29T18:15:45Z stdout F ").unwrap().content, b"");
    }

    #[test]
    fn what_is_no_line_is_not_read() {
        for bad in [
            &b""[..],
            b"\0\0\0\0",
            b"tick",
            b"2026-11-29T18:15:45Z",
            b"2026-11-29T18:15:45Z stdout",
            b"2026-11-29T18:15:45Z stdlog F x",
            b"2026-11-29T18:15:45Z stdout X x",
            b"2026-11-29T18:15:45Z stdout  x",
            b" 2026-11-29T18:15:45Z stdout F x",
            b"\xff26-11-29T18:15:45Z stdout F x",
            b"{\"log\":\"x\\n\",\"stream\":\"stdout\",\"time\":\"2026-11-29T18:15:45Z\"}",
        ] {
            assert_eq!(parse(bad), None, "{}", bad.escape_ascii());
        }
    }

    proptest::proptest! {
        #[test]
        fn any_bytes_are_read_or_refused(bytes: Vec<u8>) {
            let _ = parse(&bytes);
        }
    }
}
