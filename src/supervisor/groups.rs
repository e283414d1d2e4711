//! The cgroup files that the supervisor reads and writes. None of them waits for a disk.

use crate::sys::own_group;
use rustix::fd::OwnedFd;
use rustix::fs::{Mode, OFlags};
use std::fs;
use std::io::{self, Read as _, Seek as _};
use std::path::{Path, PathBuf};

/// The pods' group, below the root.
pub(crate) const PODS: &str = "kubepods";

/// A cgroup v2 tree, by paths below its root.
#[derive(Debug)]
pub(crate) struct Groups {
    root: PathBuf,
    own: String,
}

impl Groups {
    /// `own` is the group, below the root, of what the supervisor starts for itself.
    pub(crate) fn new(root: PathBuf, own: String) -> Self {
        Self { root, own }
    }

    /// A group below armlet's own.
    pub(crate) fn own(&self, name: &str) -> String {
        format!("{}/{name}", self.own)
    }

    fn path(&self, group: &str) -> PathBuf {
        self.root.join(group)
    }

    /// Makes a group that may exist already, and opens its folder.
    pub(crate) fn make(&self, group: &str) -> io::Result<OwnedFd> {
        let path = self.path(group);
        fs::create_dir(&path).or_else(|e| if e.kind() == io::ErrorKind::AlreadyExists { Ok(()) } else { Err(e) })?;
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        Ok(rustix::fs::open(&path, flags, Mode::empty())?)
    }

    /// Kills all in the group and below. A group that is gone holds nothing.
    pub(crate) fn kill(&self, group: &str) -> io::Result<()> {
        match fs::write(self.path(group).join("cgroup.kill"), "1") {
            Err(e) if !gone(&e) => Err(e),
            _ => Ok(()),
        }
    }

    /// Opens the group's events file, to watch when it gets empty; `None` when the group is gone.
    pub(crate) fn events(&self, group: &str) -> io::Result<Option<OwnedFd>> {
        let flags = OFlags::RDONLY | OFlags::CLOEXEC;
        match rustix::fs::open(self.path(group).join("cgroup.events"), flags, Mode::empty()) {
            Ok(fd) => Ok(Some(fd)),
            Err(e) if gone(&e.into()) => Ok(None),
            Err(e) => Err(e.into()),
        }
    }

    /// How many processes the OOM killer has ended in the group and below.
    pub(crate) fn oom_kills(&self, group: &str) -> u64 {
        let text = fs::read_to_string(self.path(group).join("memory.events")).unwrap_or_default();
        field(&text, "oom_kill").unwrap_or(0)
    }

    /// Removes an empty group. A group that is gone is removed.
    pub(crate) fn remove(&self, group: &str) -> io::Result<()> {
        match fs::remove_dir(self.path(group)) {
            Err(e) if !gone(&e) => Err(e),
            _ => Ok(()),
        }
    }

    /// Removes the empty groups of exec sessions below a container's.
    pub(crate) fn remove_sessions(&self, group: &str) {
        let Ok(entries) = fs::read_dir(self.path(group)) else { return };
        for entry in entries.flatten() {
            if entry.file_name().as_encoded_bytes().starts_with(b"exec-") {
                // One that does not go is left to whoever removes the whole tree.
                let _ = fs::remove_dir(entry.path());
            }
        }
    }

    /// Removes what an earlier supervisor left in armlet's own group, killing what is in it. Its logger dies with it, and
    /// is not killed by its group: some kernels go on killing whatever is born in a group that was killed once, and the
    /// next logger is born there.
    pub(crate) fn clear_own(&self) {
        let Ok(entries) = fs::read_dir(self.path(&self.own)) else { return };
        for entry in entries.flatten() {
            if entry.file_name().as_encoded_bytes().starts_with(b"create-") {
                let _ = fs::write(entry.path().join("cgroup.kill"), "1");
                let _ = fs::remove_dir(entry.path());
            }
        }
    }

    /// Moves this process into a group below armlet's.
    pub(crate) fn enter_own(&self, name: &str) -> io::Result<()> {
        own_group::enter(&self.root, name)
    }

    /// The groups of containers that exist below the pods' group, by a test of their folder's name.
    pub(crate) fn containers(&self, is_container: impl Fn(&str) -> bool) -> Vec<String> {
        let mut found = Vec::new();
        self.search(PODS, 3, &is_container, &mut found);
        found
    }

    fn search(&self, group: &str, depth: usize, is_container: &dyn Fn(&str) -> bool, found: &mut Vec<String>) {
        let Ok(entries) = fs::read_dir(self.path(group)) else { return };
        for entry in entries.flatten().filter(|e| e.file_type().is_ok_and(|t| t.is_dir())) {
            let Ok(name) = entry.file_name().into_string() else { continue };
            let path = format!("{group}/{name}");
            if is_container(&name) {
                found.push(path);
            } else if depth > 0 {
                self.search(&path, depth.saturating_sub(1), is_container, found);
            }
        }
    }
}

/// Whether the group of this events file holds a process. A file that cannot be read belongs to a group that is gone.
pub(crate) fn populated(events: &OwnedFd) -> bool {
    let Ok(copy) = events.try_clone() else { return false };
    let mut file = fs::File::from(copy);
    let mut text = String::new();
    let read = file.rewind().and_then(|()| file.read_to_string(&mut text));
    read.is_ok() && field(&text, "populated") != Some(0)
}

fn field(text: &str, name: &str) -> Option<u64> {
    let value = |line: &str| line.strip_prefix(name)?.strip_prefix(' ')?.trim().parse().ok();
    text.lines().find_map(value)
}

fn gone(e: &io::Error) -> bool {
    matches!(e.raw_os_error(), Some(libc::ENOENT | libc::ENODEV))
}

/// Where cgroup v2 is mounted.
pub(crate) fn default_root() -> &'static Path {
    Path::new("/sys/fs/cgroup")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_counter_is_found_by_its_whole_name() {
        let text = "low 0\noom 4\noom_kill 2\noom_group_kill 1\n";
        assert_eq!(field(text, "oom_kill"), Some(2));
        assert_eq!(field(text, "oom"), Some(4));
        assert_eq!(field(text, "kill"), None);
        assert_eq!(field("oom_kill x", "oom_kill"), None);
    }
}
