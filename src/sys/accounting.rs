//! What the kernel counts of a process.

use std::path::PathBuf;

/// Which process.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Process {
    /// This one, with the threads that have ended.
    Own,
    /// The thread that asks.
    OwnThread,
    /// Another one.
    Pid(u32),
}

impl Process {
    fn file(self, name: &str) -> PathBuf {
        match self {
            Self::Own => format!("/proc/self/{name}"),
            Self::OwnThread => format!("/proc/thread-self/{name}"),
            Self::Pid(pid) => format!("/proc/{pid}/{name}"),
        }
        .into()
    }
}

/// Bytes that a process has caused to be written to block devices: pages made dirty, without those that were thrown away
/// before they were written. None: it is gone, or the kernel does not count (`CONFIG_TASK_IO_ACCOUNTING`).
#[must_use]
pub fn bytes_written(process: Process) -> Option<u64> {
    written(&std::fs::read_to_string(process.file("io")).ok()?)
}

fn written(io: &str) -> Option<u64> {
    let number = |field: &str| io.lines().find_map(|line| line.strip_prefix(field)?.trim().parse::<u64>().ok());
    Some(number("write_bytes:")?.saturating_sub(number("cancelled_write_bytes:").unwrap_or(0)))
}

/// Proportional set size in bytes: a process's own memory, and its share of what it shares. None: it is gone.
#[must_use]
pub fn pss(process: Process) -> Option<u64> {
    let text = std::fs::read_to_string(process.file("smaps_rollup")).ok()?;
    let kib =
        text.lines().find_map(|line| line.strip_prefix("Pss:")?.split_whitespace().next()?.parse::<u64>().ok())?;
    Some(kib.saturating_mul(1024))
}

/// When a process began, in clock ticks since the boot: with its number it names one process of this boot.
#[must_use]
pub fn start_time(process: Process) -> Option<u64> {
    started(&std::fs::read_to_string(process.file("stat")).ok()?)
}

/// Field 22 of proc_pid_stat(5). The second is the program's name, which may hold spaces and brackets.
fn started(stat: &str) -> Option<u64> {
    let (_, rest) = stat.rsplit_once(')')?;
    rest.split_whitespace().nth(19)?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_thrown_away_is_not_written() {
        let io =
            "rchar: 1\nwchar: 2\nsyscr: 3\nsyscw: 4\nread_bytes: 5\nwrite_bytes: 8192\ncancelled_write_bytes: 4096\n";
        assert_eq!(written(io), Some(4096));
        assert_eq!(written("write_bytes: 1\ncancelled_write_bytes: 4096\n"), Some(0));
        assert_eq!(written("write_bytes: 7\n"), Some(7));
        assert_eq!(written(""), None);
    }

    #[test]
    fn a_program_may_have_any_name() {
        let stat = "4 (a) b (c)) S 1 4 4 0 -1 4194560 5 6 7 8 9 10 11 12 20 0 1 0 4711 1 2";
        assert_eq!(started(stat), Some(4711));
        assert_eq!(started("4 (a) S 1"), None);
        assert_eq!(started(""), None);
    }

    #[test]
    fn linux_tells_about_this_process() {
        assert!(pss(Process::Own).unwrap() > 0);
        assert_eq!(start_time(Process::Own), start_time(Process::Pid(std::process::id())));
        let dir = tempfile::tempdir().unwrap();
        let before = bytes_written(Process::OwnThread);
        std::fs::write(dir.path().join("f"), vec![1; 1 << 20]).unwrap();
        // It may lie on a file system without a device, where nothing counts.
        if let (Some(before), Some(after)) = (before, bytes_written(Process::OwnThread)) {
            assert!(after >= before);
        }
        assert_eq!(pss(Process::Pid(u32::MAX)), None);
    }
}
