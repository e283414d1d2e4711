//! What ended a process, kept over a reboot: a few small files in `panics/` of the data folder.
//!
//! A file is named by a number that grows (a clock may stand still between two boots), the role, and whether it was
//! shown: `0007-agent.new` becomes `0007-agent.log`. Its lines are those of the log.

use super::{SINK, shown};
use crate::model::WallTime;
use crate::model::log::time_of;
use crate::sys::{children, clock, durable, files};
use std::backtrace::Backtrace;
use std::ffi::OsStr;
use std::fmt::Write as _;
use std::io;
use std::panic::PanicHookInfo;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// The folder's name in the data folder.
pub const FOLDER: &str = "panics";
/// So many are kept; the oldest goes.
const MOST: usize = 8;
/// Bytes of one file.
const LONGEST: usize = 16 * 1024;
/// Nanoseconds in which the same panic is kept once.
const AGAIN: i64 = 600 * 1_000_000_000;
/// Lines of a backtrace.
const FRAMES: usize = 64;
/// How long a process that must not hang waits for its card, in steps of [`STEP`].
const STEPS: u32 = 500;
const STEP: Duration = Duration::from_millis(10);

/// Who writes the file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Writer {
    /// The process that panics.
    Itself,
    /// A child that is not waited for longer than some seconds: process 1 that hangs on its card would not even start
    /// again. Only for processes of one thread.
    Child,
}

/// A panic that was kept.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Kept {
    /// Grows with each panic.
    pub number: u32,
    /// The process' role.
    pub role: String,
    /// It was not shown yet.
    pub new: bool,
    /// Lines of the log.
    pub text: String,
    file: PathBuf,
}

/// Has each panic of this process said in its log and kept in this folder, which is made when its parent is there.
/// `told` gets the first line.
pub fn keep_all(role: &'static str, folder: PathBuf, writer: Writer, told: impl Fn(String) + Send + Sync + 'static) {
    std::panic::set_hook(Box::new(move |info| {
        let time = clock::now().wall;
        let text = first_line(info);
        if let Some(sink) = SINK.get() {
            sink.last_words(time, &text);
        }
        let lines = render(role, time, &text, &Backtrace::force_capture().to_string());
        // There is nobody left to tell that it could not be kept, but the log above.
        match writer {
            Writer::Itself => drop(keep(&folder, role, &lines)),
            Writer::Child => in_a_child(|| u8::from(keep(&folder, role, &lines).is_err())),
        }
        told(text);
    }));
}

fn first_line(info: &PanicHookInfo<'_>) -> String {
    let payload = info.payload();
    let message =
        payload.downcast_ref::<&str>().copied().or_else(|| payload.downcast_ref::<String>().map(String::as_str));
    let place = info.location().map_or_else(String::new, |place| format!(" at {}:{}", place.file(), place.line()));
    let thread = std::thread::current();
    let text = format!(
        "panicked{place}: {} version={} thread={}",
        message.unwrap_or("(no message)"),
        env!("CARGO_PKG_VERSION"),
        thread.name().unwrap_or("unnamed")
    );
    text.chars().flat_map(|c| if c.is_control() { c.escape_default().collect() } else { vec![c] }).collect()
}

/// The lines of the file: what happened, then where, each in the form of the log.
fn render(role: &str, time: WallTime, first: &str, backtrace: &str) -> String {
    let mut text = String::new();
    let frames = backtrace.lines().take(FRAMES).map(|line| format!("  {}", line.trim()));
    for line in std::iter::once(first.to_owned()).chain(frames) {
        if text.len().saturating_add(line.len()).saturating_add(64) > LONGEST {
            break;
        }
        let _ = writeln!(text, "{}", shown(role, time, 'F', &line));
    }
    text
}

/// Writes one file and drops the oldest beyond [`MOST`].
fn keep(folder: &Path, role: &str, text: &str) -> io::Result<()> {
    match std::fs::create_dir(folder) {
        Err(error) if error.kind() != io::ErrorKind::AlreadyExists => return Err(error),
        _ => {}
    }
    let there = names(folder);
    let newest = there.last().and_then(|(.., file)| std::fs::read_to_string(file).ok()).unwrap_or_default();
    if repeats(&newest, text) {
        return Ok(());
    }
    let number = there.iter().map(|(number, ..)| *number).max().unwrap_or(0).saturating_add(1);
    durable::replace_file(folder, &format!("{number:04}-{role}.new"), text.as_bytes())?;
    for (.., file) in there.iter().rev().skip(MOST.saturating_sub(1)) {
        std::fs::remove_file(file)?;
    }
    Ok(())
}

/// Whether a panic is the newest that is kept, a little later: a role that panics at each of its starts must not wear the
/// card.
fn repeats(newest: &str, text: &str) -> bool {
    fn first(text: &str) -> Option<(WallTime, &str)> {
        let line = text.lines().next()?;
        let time = time_of(line);
        Some((WallTime::parse_rfc3339(time)?, line.get(time.len()..)?))
    }
    let (Some((then, before)), Some((now, after))) = (first(newest), first(text)) else { return false };
    before == after && (0..AGAIN).contains(&now.0.saturating_sub(then.0))
}

/// Runs it in a child and waits for that for a while.
fn in_a_child(work: impl FnOnce() -> u8) {
    let Ok(pid) = children::fork(work) else { return };
    for _ in 0..STEPS {
        if !matches!(children::reap(pid), Ok(None)) {
            return;
        }
        std::thread::sleep(STEP);
    }
}

/// The files: number, role, whether new, path; in the order of their numbers.
fn names(folder: &Path) -> Vec<(u32, String, bool, PathBuf)> {
    let parse = |path: PathBuf| {
        let (number, role) = path.file_stem()?.to_str()?.split_once('-')?;
        let new = match path.extension().and_then(OsStr::to_str) {
            Some("new") => true,
            Some("log") => false,
            _ => return None,
        };
        Some((number.parse().ok()?, role.to_owned(), new, path))
    };
    let entries = std::fs::read_dir(folder).into_iter().flatten().flatten();
    let mut names: Vec<_> = entries.filter_map(|entry| parse(entry.path())).collect();
    names.sort();
    names
}

/// The panics that are kept, oldest first. What cannot be read is left out.
#[must_use]
pub fn list(folder: &Path) -> Vec<Kept> {
    let read = |(number, role, new, file): (u32, String, bool, PathBuf)| {
        let bytes = files::read_small(&file, LONGEST as u64).ok()?;
        Some(Kept { number, role, new, text: String::from_utf8_lossy(&bytes).into_owned(), file })
    };
    names(folder).into_iter().filter_map(read).collect()
}

/// Notes that a panic was shown.
///
/// # Errors
/// Of the rename: it will be shown again.
pub fn seen(kept: &Kept) -> io::Result<()> {
    std::fs::rename(&kept.file, kept.file.with_extension("log"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write as _;

    #[test]
    fn the_newest_are_kept_whatever_the_clock_says() {
        let data = tempfile::tempdir().unwrap();
        let folder = data.path().join(FOLDER);
        assert_eq!(list(&folder), []);
        for n in 1..=MOST + 3 {
            keep(&folder, "agent", &format!("{n}\n")).unwrap();
            std::fs::write(folder.join("other"), "x").unwrap();
        }
        let kept = list(&folder);
        let numbers: Vec<u32> = kept.iter().map(|kept| kept.number).collect();
        assert_eq!(numbers, (4..=11).collect::<Vec<u32>>());
        assert!(kept.iter().all(|kept| kept.new && kept.role == "agent" && kept.text == format!("{}\n", kept.number)));
        seen(&kept[7]).unwrap();
        assert!(!list(&folder)[7].new);
        keep(&folder, "supervisor", "x\n").unwrap();
        let last = list(&folder);
        assert_eq!((last.len(), last[7].number, last[7].role.as_str()), (MOST, 12, "supervisor"));
        assert!(keep(&data.path().join("no/panics"), "agent", "x").is_err(), "no folder, no data disk");
    }

    #[test]
    fn the_same_again_is_kept_once_in_a_while() {
        let at = |secs: i64, what: &str| render("agent", WallTime(secs * 1_000_000_000), what, "0: f");
        for (newest, text, again) in [
            (at(0, "a"), at(0, "a"), true),
            (at(0, "a"), at(599, "a"), true),
            (at(0, "a"), at(600, "a"), false),
            (at(0, "a"), at(1, "b"), false),
            // The clock was set back.
            (at(10, "a"), at(9, "a"), false),
            (String::new(), at(0, "a"), false),
            (at(0, "a"), String::new(), false),
        ] {
            assert_eq!(repeats(&newest, &text), again, "{newest}{text}");
        }
        let data = tempfile::tempdir().unwrap();
        for secs in [0, 1, 700] {
            keep(&data.path().join(FOLDER), "agent", &at(secs, "a")).unwrap();
        }
        assert_eq!(list(&data.path().join(FOLDER)).len(), 2);
    }

    #[test]
    fn each_line_says_when_and_who() {
        let text = render("agent", WallTime(0), "panicked at a.rs:1: b", &"   0: f\n".repeat(10_000));
        assert!(text.len() <= LONGEST);
        assert_eq!(text.lines().count(), FRAMES + 1);
        let mut lines = text.lines();
        assert_eq!(lines.next(), Some("1970-01-01T00:00:00.000000000Z F agent: panicked at a.rs:1: b"));
        assert_eq!(lines.next(), Some("1970-01-01T00:00:00.000000000Z F agent:   0: f"));
        assert!(render("agent", WallTime(0), "x", &"y".repeat(2 * LONGEST)).len() < LONGEST);
    }

    /// Set in the children of the test below: the folder to keep a panic in.
    const CHILD: &str = "ARMLET_TEST_PANICS";

    #[test]
    fn a_panic_is_kept_by_the_process_itself_or_by_its_child() {
        if let Ok(folder) = std::env::var(CHILD) {
            let (folder, writer) = match folder.strip_suffix("#child") {
                Some(folder) => (folder, Writer::Child),
                None => (folder.as_str(), Writer::Itself),
            };
            super::super::init("agent", 1024);
            keep_all("agent", folder.into(), writer, |told| drop(writeln!(io::stdout(), "told {told}")));
            panic!("two\nlines");
        }
        for suffix in ["", "#child"] {
            let data = tempfile::tempdir().unwrap();
            let folder = data.path().join(FOLDER);
            let mut again = std::process::Command::new(std::env::current_exe().unwrap());
            let name = "sys::log::panics::tests::a_panic_is_kept_by_the_process_itself_or_by_its_child";
            again.args(["--exact", "--nocapture", "--test-threads=1", name]);
            let out = again.env(CHILD, format!("{}{suffix}", folder.display())).output().unwrap();
            assert!(!out.status.success());
            let kept = list(&folder);
            assert_eq!(kept.len(), 1, "{suffix}: {out:?}");
            let first = kept[0].text.lines().next().unwrap();
            assert!(first.contains(" F agent: panicked at src/sys/log/panics.rs:"), "{first}");
            assert!(first.contains(r": two\nlines version=") && kept[0].text.lines().count() > 2, "{}", kept[0].text);
            let out = (String::from_utf8_lossy(&out.stdout), String::from_utf8_lossy(&out.stderr));
            assert!(out.0.contains("told panicked at ") && out.1.contains(" F agent: panicked at "), "{out:?}");
        }
    }
}
