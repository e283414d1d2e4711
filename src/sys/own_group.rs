//! armlet's own cgroup, in which its roles live wherever they were started, but for an agent that is a unit of systemd
//! (`agent/boot.rs` says why).
//!
//! `memory.min` is worth what the groups above grant: the kernel hands protection down from the root, and a group whose
//! parent has none has none either (cgroup-v2.rst, "memory.min"). Hence the group lies right below the root, whatever
//! slice a service manager had put a role into, and no controller is on below it: what it guards is all that its roles
//! use together. What starts containers is in it for a moment only, and containers are born elsewhere.

use std::fs;
use std::io;
use std::path::Path;

/// Its name, below the root.
pub const NAME: &str = crate::model::action::OWN_GROUP;

/// Bytes of its roles' memory that are never reclaimed for a pod's sake.
pub const MEMORY_MIN: u64 = 32 << 20;

/// Moves this process into the role's group below armlet's and guards its memory. Where there is no memory controller
/// that part is left out.
///
/// # Errors
/// There is no cgroup v2 at `root`, or it does not take the process.
pub fn enter(root: &Path, role: &str) -> io::Result<()> {
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
    fn a_folder_that_is_no_cgroup_is_left_alone() {
        let folder = tempfile::tempdir().unwrap();
        assert_eq!(enter(folder.path(), "agent").unwrap_err().kind(), io::ErrorKind::NotFound);
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 0);
    }

    #[test]
    fn a_role_is_in_a_group_of_its_own_below_the_guarded_one() {
        let folder = tempfile::tempdir().unwrap();
        fs::write(folder.path().join("cgroup.controllers"), "cpu memory\n").unwrap();
        for _ in 0..2 {
            enter(folder.path(), "agent").unwrap();
        }
        let read = |path: &str| fs::read_to_string(folder.path().join(path)).unwrap();
        assert_eq!(read("armlet/agent/cgroup.procs"), "0");
        assert_eq!(read("armlet/memory.min"), MEMORY_MIN.to_string());
        assert!(!folder.path().join("armlet/cgroup.subtree_control").exists());
    }
}
