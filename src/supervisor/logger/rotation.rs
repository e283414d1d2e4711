//! Names of rotated files, and which files go when there are too many or too much. Pure.

use crate::model::WallTime;
use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::path::PathBuf;

/// The suffix of a file rotated at `now`, as the kubelet writes it (`YYYYMMDD-HHMMSS`, here in UTC), later than that
/// of the newest rotated file there is: a name is never used twice, and names sort by age, whatever the clock does.
pub(crate) fn suffix(now: WallTime, newest: Option<&str>) -> String {
    let mut at = now;
    if let Some(after) = newest.and_then(parse) {
        at = at.max(WallTime(after.0.saturating_add(1_000_000_000)));
    }
    format(at)
}

fn format(at: WallTime) -> String {
    let (y, mo, d, h, mi, s, _) = at.civil();
    format!("{y:04}{mo:02}{d:02}-{h:02}{mi:02}{s:02}")
}

/// The moment that a suffix names; `None` for anything that is no suffix.
pub(crate) fn parse(suffix: &str) -> Option<WallTime> {
    let number = |range: std::ops::Range<usize>| -> Option<i64> {
        let digits = suffix.get(range)?;
        digits.bytes().all(|b| b.is_ascii_digit()).then(|| digits.parse().ok())?
    };
    if suffix.len() != 15 || suffix.get(8..9) != Some("-") {
        return None;
    }
    let (y, mo, d) = (number(0..4)?, number(4..6)?, number(6..8)?);
    let (h, mi, s) = (number(9..11)?, number(11..13)?, number(13..15)?);
    // Days from the civil calendar, the reverse of `WallTime::civil`.
    let (y, mo) = if mo <= 2 { (y - 1, mo + 9) } else { (y, mo - 3) };
    let era = y.div_euclid(400);
    let yoe = y.rem_euclid(400);
    let doe = yoe * 365 + yoe / 4 - yoe / 100 + (153 * mo + 2) / 5 + d - 1;
    let days = era * 146_097 + doe - 719_468;
    let at = WallTime((days * 86_400 + h * 3600 + mi * 60 + s).checked_mul(1_000_000_000)?);
    (format(at) == suffix).then_some(at)
}

/// Which rotated files (their suffixes) go so that at most `max_files` remain, the one being written included.
pub(crate) fn surplus(mut suffixes: Vec<String>, max_files: u32) -> Vec<String> {
    suffixes.sort();
    let keep = usize::try_from(max_files.max(2)).unwrap_or(2).saturating_sub(1);
    suffixes.truncate(suffixes.len().saturating_sub(keep));
    suffixes
}

/// A log file on the node.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Seen {
    /// Where.
    pub(crate) path: PathBuf,
    /// Bytes.
    pub(crate) size: u64,
    /// When it was last written, nanoseconds.
    pub(crate) written: i128,
    /// A container is writing it.
    pub(crate) live: bool,
}

/// Which files go so that all together hold at most `target` bytes: time and again the oldest of the noisiest pod.
/// A file that is being written goes only when no other is left.
pub(crate) fn victims(files: &[Seen], target: u64) -> Vec<&Seen> {
    let mut total = files.iter().fold(0_u64, |sum, f| sum.saturating_add(f.size));
    let mut pods: BTreeMap<Option<PathBuf>, Vec<&Seen>> = BTreeMap::new();
    for file in files {
        pods.entry(pod_folder(file)).or_default().push(file);
    }
    for list in pods.values_mut() {
        // The next to go is last; those being written come first.
        list.sort_by_key(|f| (Reverse(f.live), Reverse(f.written), f.path.clone()));
    }
    let mut gone = Vec::new();
    for live in [false, true] {
        while total > target {
            let noisiest = pods
                .values_mut()
                .filter(|list| list.last().is_some_and(|f| f.live == live && f.size > 0))
                .max_by_key(|list| list.iter().fold(0_u64, |sum, f| sum.saturating_add(f.size)));
            let Some(file) = noisiest.and_then(Vec::pop) else { break };
            total = total.saturating_sub(file.size);
            gone.push(file);
        }
    }
    gone
}

/// `<root>/<pod>/<container>/<file>`: the pod's folder.
fn pod_folder(file: &Seen) -> Option<PathBuf> {
    file.path.parent()?.parent().map(PathBuf::from)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn names_follow_each_other_whatever_the_clock_does() {
        let at = WallTime(951_827_696_000_000_000);
        assert_eq!(suffix(at, None), "20000229-123456");
        assert_eq!(suffix(at, Some("20000229-123456")), "20000229-123457");
        assert_eq!(suffix(at, Some("20001231-235959")), "20010101-000000");
        assert_eq!(suffix(at, Some("rubbish")), "20000229-123456");
        for bad in ["", "20000230-123456", "2000022-1234567", "20000229x123456", "+0000229-123456", "20000229-126056"] {
            assert_eq!(parse(bad), None, "{bad:?}");
        }
    }

    #[test]
    fn the_oldest_are_surplus() {
        let names = |list: &[&str]| list.iter().map(ToString::to_string).collect::<Vec<_>>();
        assert_eq!(surplus(names(&["c", "a", "b"]), 3), names(&["a"]));
        assert_eq!(surplus(names(&["c", "a", "b"]), 0), names(&["a", "b"]));
        assert_eq!(surplus(names(&["a"]), 5), names(&[]));
    }

    fn seen(path: &str, size: u64, written: i128, live: bool) -> Seen {
        Seen { path: path.into(), size, written, live }
    }

    #[test]
    fn the_noisiest_pays_first_and_a_live_file_last() {
        let files = [
            seen("/l/quiet/c/0.log.1", 10, 1, false),
            seen("/l/quiet/c/0.log", 10, 9, true),
            seen("/l/noisy/c/0.log.2", 100, 3, false),
            seen("/l/noisy/c/0.log.1", 100, 2, false),
            seen("/l/noisy/d/0.log", 100, 9, true),
        ];
        let gone = |target| victims(&files, target).iter().map(|f| f.path.to_str().unwrap()).collect::<Vec<_>>();
        assert!(gone(320).is_empty());
        assert_eq!(gone(319), ["/l/noisy/c/0.log.1"]);
        assert_eq!(gone(150), ["/l/noisy/c/0.log.1", "/l/noisy/c/0.log.2"]);
        assert_eq!(gone(115), ["/l/noisy/c/0.log.1", "/l/noisy/c/0.log.2", "/l/quiet/c/0.log.1"]);
        assert_eq!(gone(50).last(), Some(&"/l/noisy/d/0.log"));
        assert_eq!(gone(0).len(), 5);
    }

    proptest! {
        #[test]
        fn a_suffix_reads_back(secs in 0..253_402_300_799_i64) {
            let text = suffix(WallTime(secs.min(9_000_000_000) * 1_000_000_000), None);
            prop_assert!(parse(&text).is_some());
        }

        #[test]
        fn reading_a_suffix_never_panics(text in "\\PC{0,20}") {
            let _ = parse(&text);
        }
    }
}
