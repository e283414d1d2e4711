//! Taking a group away.

use super::CgroupError;
use crate::sys::clock;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use std::io;
use std::path::Path;

/// How long killed processes may take to go. Nothing but a hanging device or filesystem makes it last.
const PATIENCE_MS: u64 = 10_000;

pub(super) fn remove(cgroup: &str, folder: &Path) -> Result<(), CgroupError> {
    let deadline = clock::now().boot.0 + PATIENCE_MS;
    let failed = |operation| move |source| CgroupError::File { operation, cgroup: cgroup.to_owned(), source };
    loop {
        match std::fs::write(folder.join("cgroup.kill"), "1") {
            Err(error) if is_gone(&error) => return Ok(()),
            other => other.map_err(failed("kill"))?,
        }
        // Opened before the attempt: an end that comes after it is then seen as a change.
        let events = std::fs::File::open(folder.join("cgroup.events"));
        match remove_tree(folder) {
            Ok(()) => return Ok(()),
            Err(error) if is_gone(&error) => return Ok(()),
            Err(error) if error.raw_os_error() != Some(libc::EBUSY) => return Err(failed("remove")(error)),
            Err(_) => {}
        }
        let left = deadline.saturating_sub(clock::now().boot.0);
        if left == 0 {
            return Err(CgroupError::StillBusy { cgroup: cgroup.to_owned() });
        }
        if let Ok(events) = events {
            wait_for_change(&events, left.min(100)).map_err(failed("watch"))?;
        }
    }
}

fn is_gone(error: &io::Error) -> bool {
    matches!(error.raw_os_error(), Some(libc::ENOENT | libc::ENODEV))
}

/// Removes the groups below, then the group.
fn remove_tree(folder: &Path) -> io::Result<()> {
    for entry in std::fs::read_dir(folder)? {
        let entry = entry?;
        if entry.file_type()?.is_dir() {
            match remove_tree(&entry.path()) {
                Err(error) if !is_gone(&error) => return Err(error),
                _ => {}
            }
        }
    }
    std::fs::remove_dir(folder)
}

/// Waits until the group says that it has changed, `millis` at most: a process may have left the group's own list a
/// moment before the kernel lets the group go.
fn wait_for_change(events: &std::fs::File, millis: u64) -> io::Result<()> {
    let timeout = Timespec { tv_sec: 0, tv_nsec: i64::try_from(millis.min(999) * 1_000_000).unwrap_or_default() };
    match poll(&mut [PollFd::new(events, PollFlags::PRI)], Some(&timeout)) {
        Ok(_) | Err(rustix::io::Errno::INTR) => Ok(()),
        Err(error) => Err(error.into()),
    }
}
