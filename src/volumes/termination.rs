//! The termination log: a file of each attempt, in which a container leaves its last words.

use super::dirs::make_dirs;
use super::{Result, VolumeError};
use crate::model::pod::TerminationMessagePolicy;
use rustix::fs::{Mode, OFlags};
use std::fs::File;
use std::io::{self, Read, Seek, SeekFrom};
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::Path;

/// `MaxContainerTerminationMessageLength` of the kubelet.
const MESSAGE_BYTES: u64 = 4096;
/// `MaxContainerTerminationMessageLogLength`.
const LOG_BYTES: usize = 2048;
/// `MaxContainerTerminationMessageLogLines`.
const LOG_LINES: usize = 80;
/// Holds the last [`LOG_LINES`] lines, or more than [`LOG_BYTES`] of text: a log line is at most 16 KiB and 64 bytes.
const LOG_TAIL: u64 = 64 * 1024;
/// Anyone in the container may write.
const MODE: u32 = 0o666;

/// Makes the file of an attempt, empty. One that is there stays.
///
/// # Errors
/// [`VolumeError::Io`].
pub fn create(path: &Path) -> Result<()> {
    let failed = |source: io::Error| VolumeError::Io { operation: "make file", path: path.to_owned(), source };
    path.parent().map_or(Ok(()), make_dirs)?;
    let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::NOFOLLOW | OFlags::CLOEXEC | OFlags::NONBLOCK;
    let file = File::from(rustix::fs::open(path, flags, Mode::from_raw_mode(MODE)).map_err(|e| failed(e.into()))?);
    if file.metadata().map_err(failed)?.mode() & 0o7777 != MODE {
        file.set_permissions(std::fs::Permissions::from_mode(MODE)).map_err(failed)?;
    }
    Ok(())
}

/// The message of an ended attempt: what it wrote into its file, and if that is nothing, the log's tail when the policy
/// says so and the attempt failed. What cannot be read becomes the message, as upstream does it: a person looks there.
#[must_use]
pub fn message(file: &Path, policy: TerminationMessagePolicy, failed: bool, log: &Path) -> String {
    let fallback = failed && policy == TerminationMessagePolicy::FallbackToLogsOnError;
    match tail(file, MESSAGE_BYTES) {
        Ok((_, bytes)) if !bytes.is_empty() || !fallback => String::from_utf8_lossy(&bytes).into_owned(),
        Err(e) if e.kind() != io::ErrorKind::NotFound => {
            format!("Error on reading termination log {}: {e}", file.display())
        }
        _ if !fallback => String::new(),
        _ => match tail(log, LOG_TAIL) {
            Ok((cut, bytes)) => log_message(&bytes, cut),
            Err(e) => format!("Error on reading termination message from logs: {e}"),
        },
    }
}

/// The last bytes of a file, and whether there are more before them.
fn tail(path: &Path, max: u64) -> io::Result<(bool, Vec<u8>)> {
    let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::CLOEXEC | OFlags::NONBLOCK;
    let mut file = File::from(rustix::fs::open(path, flags, Mode::empty())?);
    let length = file.metadata()?.len();
    let from = length.saturating_sub(max);
    file.seek(SeekFrom::Start(from))?;
    let mut bytes = Vec::new();
    file.take(max).read_to_end(&mut bytes)?;
    Ok((from > 0, bytes))
}

/// The text of the last lines of a CRI log: `<time> <stream> <tag> <text>`, where the tag `P` says that the line goes
/// on in the next one.
fn log_message(bytes: &[u8], cut: bool) -> String {
    let whole = if cut { bytes.iter().position(|b| *b == b'\n').map_or(&[][..], |at| &bytes[at + 1..]) } else { bytes };
    let lines: Vec<&[u8]> = whole.split_inclusive(|b| *b == b'\n').collect();
    let mut text = Vec::new();
    for line in &lines[lines.len().saturating_sub(LOG_LINES)..] {
        let mut fields = line.splitn(4, |b| *b == b' ').skip(2);
        let (Some(tag), Some(content)) = (fields.next(), fields.next()) else { continue };
        let partial = tag.split(|b| *b == b':').next() == Some(b"P");
        let content = if partial { content.strip_suffix(b"\n").unwrap_or(content) } else { content };
        text.extend_from_slice(content);
    }
    String::from_utf8_lossy(&text[text.len().saturating_sub(LOG_BYTES)..]).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;
    use TerminationMessagePolicy::{FallbackToLogsOnError, File as OnlyFile};
    use std::fs;

    fn line(text: &str) -> String {
        format!("2026-01-01T00:00:00.000000000Z stdout F {text}\n")
    }

    #[test]
    fn anyone_may_write_the_file_and_a_second_call_keeps_it() {
        let base = tempfile::tempdir().unwrap();
        let path = base.path().join("containers/web/0a");
        create(&path).unwrap();
        assert_eq!(fs::metadata(&path).unwrap().mode() & 0o7777, 0o666);
        fs::write(&path, "bye").unwrap();
        create(&path).unwrap();
        assert_eq!(message(&path, OnlyFile, true, Path::new("/none")), "bye");
    }

    #[test]
    fn the_file_comes_first_and_the_log_only_after_a_failure() {
        let base = tempfile::tempdir().unwrap();
        let (file, log) = (base.path().join("f"), base.path().join("log"));
        fs::write(&log, line("from the log")).unwrap();
        let read = |policy, failed| message(&file, policy, failed, &log);
        assert_eq!(read(OnlyFile, true), "");
        assert_eq!(read(FallbackToLogsOnError, false), "");
        assert_eq!(read(FallbackToLogsOnError, true), "from the log\n");
        create(&file).unwrap();
        assert_eq!(read(OnlyFile, true), "");
        assert_eq!(read(FallbackToLogsOnError, true), "from the log\n");
        fs::write(&file, "said so").unwrap();
        assert_eq!(read(FallbackToLogsOnError, true), "said so");
        fs::write(&file, [b"x".repeat(10), b"y".repeat(4096)].concat()).unwrap();
        assert_eq!(read(OnlyFile, false), "y".repeat(4096));
        fs::write(&file, b"\xff!").unwrap();
        assert_eq!(read(OnlyFile, false), "\u{fffd}!");
        fs::remove_file(&log).unwrap();
        fs::write(&file, "").unwrap();
        assert!(read(FallbackToLogsOnError, true).starts_with("Error on reading termination message from logs: "));
        fs::remove_file(&file).unwrap();
        std::os::unix::fs::symlink("/etc/passwd", &file).unwrap();
        assert!(read(OnlyFile, true).starts_with("Error on reading termination log "));
    }

    #[test]
    fn the_logs_tail_is_cut_by_lines_and_bytes() {
        let lines: String = (0..100).map(|n| line(&n.to_string())).collect();
        let expected: String = (20..100).map(|n| format!("{n}\n")).collect();
        assert_eq!(log_message(lines.as_bytes(), false), expected);
        assert_eq!(log_message(format!("cut here\n{}", line("x")).as_bytes(), true), "x\n");
        let long = line(&"z".repeat(5000));
        assert_eq!(log_message(long.as_bytes(), false).len(), LOG_BYTES);
        let parts = "t stdout P one, \nt stderr P:x two\nt stdout F , three\n";
        assert_eq!(log_message(parts.as_bytes(), false), "one, two, three\n");
        assert_eq!(log_message(b"garbage\n\n \nt stdout F ok", false), "ok");
        assert_eq!(log_message(b"", true), "");
        assert_eq!(log_message(b"no newline", true), "");
    }
}
