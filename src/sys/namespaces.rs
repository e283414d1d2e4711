//! Leaving namespaces, and naming them.
#![expect(unsafe_code, reason = "unshare is unsafe for descriptor tables, which are not unshared here")]

use rustix::fd::OwnedFd;
use rustix::fs::{Mode, OFlags};
use rustix::io::Result;
use rustix::thread::UnshareFlags;
use std::os::fd::AsFd as _;
use std::path::Path;

/// A kind of namespace that a pod's containers share.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Namespace {
    /// System V IPC and POSIX message queues.
    Ipc,
    /// Network.
    Net,
    /// Host name.
    Uts,
}

/// Moves this process into new namespaces. Only for single-threaded processes: other threads stay behind.
///
/// # Errors
/// Of unshare.
pub fn unshare(kinds: &[Namespace]) -> Result<()> {
    let flags = kinds.iter().fold(UnshareFlags::empty(), |flags, kind| {
        flags
            | match kind {
                Namespace::Ipc => UnshareFlags::NEWIPC,
                Namespace::Net => UnshareFlags::NEWNET,
                Namespace::Uts => UnshareFlags::NEWUTS,
            }
    });
    // SAFETY: no flag here touches the descriptor table.
    unsafe { rustix::thread::unshare_unsafe(flags) }
}

/// Moves this process into a cgroup namespace that begins at the group that it is in.
///
/// # Errors
/// Of unshare.
pub fn leave_cgroup_namespace() -> Result<()> {
    // SAFETY: does not touch the descriptor table.
    unsafe { rustix::thread::unshare_unsafe(UnshareFlags::NEWCGROUP) }
}

/// Moves the calling thread into the namespace of any kind at `path`.
///
/// # Errors
/// Of open and setns.
pub fn enter(path: &Path) -> std::io::Result<()> {
    let namespace = rustix::fs::open(path, OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty())?;
    Ok(rustix::thread::move_into_link_name_space(namespace.as_fd(), None)?)
}

/// Opens the namespace that this process is in.
///
/// # Errors
/// Of open.
pub fn open_own(kind: Namespace) -> Result<OwnedFd> {
    let path = match kind {
        Namespace::Ipc => c"/proc/self/ns/ipc",
        Namespace::Net => c"/proc/self/ns/net",
        Namespace::Uts => c"/proc/self/ns/uts",
    };
    rustix::fs::open(path, OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty())
}
