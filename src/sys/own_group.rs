//! The cgroup in which armlet's roles live: one of its own right below the root, or that of the unit of systemd by which
//! they were started.
//!
//! `memory.min` is worth what the groups above grant: the kernel hands protection down from the root, and a group whose
//! parent has none has none either (cgroup-v2.rst, "memory.min"). Hence armlet's group lies right below the root, and no
//! controller is on below it: what it guards is all that its roles use together. What starts containers is in it for a
//! moment only, and containers are born elsewhere.
//!
//! systemd's journal knows by the cgroup which unit a line is from (journald-context.c): what logs into it stays in its
//! unit's, and the units' slice (`armlet.slice`, `MemoryMin=`) guards them.

use super::log;
use std::fs;
use std::io;
use std::path::Path;

/// Its name, below the root.
pub const NAME: &str = crate::model::action::OWN_GROUP;

/// Bytes of its roles' memory that are never reclaimed for a pod's sake.
pub const MEMORY_MIN: u64 = 32 << 20;

/// The group, below the root, of this process and of those that it starts for itself.
#[must_use]
pub fn place() -> String {
    let own = fs::read_to_string("/proc/self/cgroup").unwrap_or_default();
    place_of(&own, log::is_journal())
}

/// `own` is what `/proc/self/cgroup` says, `journal` whether lines go to systemd's journal.
fn place_of(own: &str, journal: bool) -> String {
    let unit = own.lines().find_map(|line| line.strip_prefix("0::/")).map(|path| path.trim_matches('/'));
    match unit {
        Some(unit) if journal && !unit.is_empty() && unit.split('/').next() != Some(NAME) => unit.to_owned(),
        _ => NAME.to_owned(),
    }
}

/// Moves this process into the role's group below armlet's and guards its memory; a unit of systemd stays where it is.
/// Where there is no memory controller that part is left out.
///
/// # Errors
/// There is no cgroup v2 at `root`, or it does not take the process.
pub fn enter(root: &Path, role: &str) -> io::Result<()> {
    if place() == NAME { enter_own(root, role) } else { Ok(()) }
}

fn enter_own(root: &Path, role: &str) -> io::Result<()> {
    fs::metadata(root.join("cgroup.controllers"))?;
    let _ = fs::write(root.join("cgroup.subtree_control"), "+memory");
    let own = root.join(NAME);
    make(&own)?;
    let _ = fs::write(own.join("memory.min"), MEMORY_MIN.to_string());
    let group = own.join(role);
    make(&group)?;
    fs::write(group.join("cgroup.procs"), "0")
}

fn make(group: &Path) -> io::Result<()> {
    match fs::create_dir(group) {
        Err(error) if error.kind() != io::ErrorKind::AlreadyExists => Err(error),
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_unit_whose_lines_go_to_the_journal_stays_in_its_group() {
        let unit = "0::/armlet.slice/armlet.service\n";
        for (own, journal, place) in [
            (unit, true, "armlet.slice/armlet.service"),
            (unit, false, "armlet"),
            ("1:name=systemd:/other\n0::/system.slice/my.service\n", true, "system.slice/my.service"),
            // From a build that moved there, or from process 1.
            ("0::/armlet/supervisor\n", true, "armlet"),
            ("0::/\n", true, "armlet"),
            ("", true, "armlet"),
            ("0::/user.slice/user-0.slice/session-1.scope\n", false, "armlet"),
        ] {
            assert_eq!(place_of(own, journal), place, "{own} {journal}");
        }
    }

    #[test]
    fn a_folder_that_is_no_cgroup_is_left_alone() {
        let folder = tempfile::tempdir().unwrap();
        assert_eq!(enter_own(folder.path(), "agent").unwrap_err().kind(), io::ErrorKind::NotFound);
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 0);
    }

    #[test]
    fn a_role_is_in_a_group_of_its_own_below_the_guarded_one() {
        let folder = tempfile::tempdir().unwrap();
        fs::write(folder.path().join("cgroup.controllers"), "cpu memory\n").unwrap();
        for _ in 0..2 {
            enter_own(folder.path(), "agent").unwrap();
        }
        let read = |path: &str| fs::read_to_string(folder.path().join(path)).unwrap();
        assert_eq!(read("armlet/agent/cgroup.procs"), "0");
        assert_eq!(read("armlet/memory.min"), MEMORY_MIN.to_string());
        assert!(!folder.path().join("armlet/cgroup.subtree_control").exists());
    }
}
