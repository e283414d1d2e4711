//! How the supervisor starts its own binary in another role.

use super::groups::Groups;
use super::hand_over::look_over;
use super::streams::{self, ChildEnds};
use crate::model::supervise::{child_fd, role};
use crate::sys::children::{self, Program};
use rustix::fd::{AsFd as _, OwnedFd};
use std::ffi::{CStr, CString};
use std::io;

/// What systemd gives a service, and what programs are used to find: more than 1024 only for those that ask for it
/// (`select` cannot count further).
const OPEN_FILES: (u64, u64) = (1024, 524_288);

const PATH: &CStr = c"PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";

/// Spawns `armlet @create <bundle>` in a group of its own.
///
/// # Errors
/// Of making the group and of clone3.
pub(crate) fn create(exe: &OwnedFd, groups: &Groups, group: &str, bundle: &str, ends: &ChildEnds) -> io::Result<u32> {
    let folder = groups.make(group)?;
    children::spawn(&Program {
        exe: exe.as_fd(),
        rather: None,
        args: vec![c"armlet".to_owned(), CString::new(role::CREATE)?, CString::new(bundle)?],
        env: vec![PATH.to_owned()],
        fds: child_fds(ends),
        cgroup: Some(folder.as_fd()),
        oom_score_adj: 0,
        open_files: OPEN_FILES,
        die_with_parent: false,
    })
}

/// Spawns `armlet @exec`, its order in `order`.
///
/// # Errors
/// Of making the group and of clone3.
pub(crate) fn exec(exe: &OwnedFd, groups: &Groups, ends: &ChildEnds, order: &OwnedFd) -> io::Result<u32> {
    let folder = groups.make(&groups.own("exec"))?;
    let mut fds = child_fds(ends);
    fds.push((order.as_fd(), child_fd::ORDER));
    children::spawn(&Program {
        exe: exe.as_fd(),
        rather: None,
        args: vec![c"armlet".to_owned(), CString::new(role::EXEC)?],
        env: vec![PATH.to_owned()],
        fds,
        cgroup: Some(folder.as_fd()),
        oom_score_adj: 0,
        open_files: OPEN_FILES,
        die_with_parent: false,
    })
}

/// Spawns an offered program as `armlet @look-over`, in a group of its own. Its output goes nowhere: it may be anything.
///
/// # Errors
/// Of making the group, of opening /dev/null and of clone3.
pub(crate) fn look_over(
    exe: &OwnedFd,
    groups: &Groups,
    group: &str,
    document: &OwnedFd,
    answer: &OwnedFd,
) -> io::Result<u32> {
    let folder = groups.make(group)?;
    let null = streams::null()?;
    children::spawn(&Program {
        exe: exe.as_fd(),
        rather: None,
        args: vec![c"armlet".to_owned(), CString::new(role::LOOK_OVER)?],
        env: vec![PATH.to_owned()],
        fds: vec![
            (null.as_fd(), 0),
            (null.as_fd(), 1),
            (null.as_fd(), 2),
            (document.as_fd(), look_over::DOCUMENT),
            (answer.as_fd(), look_over::ANSWER),
        ],
        cgroup: Some(folder.as_fd()),
        oom_score_adj: 0,
        open_files: OPEN_FILES,
        die_with_parent: false,
    })
}

/// Spawns `armlet <role> <args>` with this process' standard streams, and `socket` as descriptor 3 if one is given.
///
/// # Errors
/// Of making the group and of clone3.
pub(crate) fn own(exe: &OwnedFd, groups: &Groups, child: &Role<'_>, socket: Option<&OwnedFd>) -> io::Result<u32> {
    let folder = groups.make(&groups.own(child.group))?;
    let (stdin, stdout, stderr) = (rustix::stdio::stdin(), rustix::stdio::stdout(), rustix::stdio::stderr());
    let mut fds = vec![(stdin, 0), (stdout, 1), (stderr, 2)];
    fds.extend(socket.map(|s| (s.as_fd(), LOGGER_SOCKET)));
    let args = child.args.iter().map(|a| CString::new(a.as_bytes()));
    let args = [Ok(c"armlet".to_owned())].into_iter().chain(args).collect::<Result<_, _>>()?;
    children::spawn(&Program {
        exe: exe.as_fd(),
        rather: child.rather,
        args,
        env: [PATH.to_owned()].into_iter().chain(journal()).collect(),
        fds,
        cgroup: Some(folder.as_fd()),
        oom_score_adj: child.oom_score_adj,
        open_files: (OPEN_FILES.1, OPEN_FILES.1),
        die_with_parent: child.die_with_parent,
    })
}

/// By which a child knows that the standard error that it has from its parent is the journal.
fn journal() -> Option<CString> {
    CString::new(format!("JOURNAL_STREAM={}", std::env::var("JOURNAL_STREAM").ok()?)).ok()
}

/// A long-lived child of the supervisor.
#[derive(Debug)]
pub(crate) struct Role<'a> {
    /// The role and its arguments.
    pub(crate) args: &'a [String],
    /// A file that is executed rather than this program, if it is there and can be.
    pub(crate) rather: Option<&'a CStr>,
    /// Its group below armlet's.
    pub(crate) group: &'a str,
    /// The lower, the later the OOM killer takes it.
    pub(crate) oom_score_adj: i16,
    /// It ends when the supervisor ends.
    pub(crate) die_with_parent: bool,
}

/// The descriptor on which the logger finds its socket.
pub(crate) const LOGGER_SOCKET: i32 = 3;

fn child_fds(ends: &ChildEnds) -> Vec<(rustix::fd::BorrowedFd<'_>, i32)> {
    let mut fds = vec![
        (ends.stdin.as_fd(), 0),
        (ends.stdout.as_fd(), 1),
        (ends.stderr.as_fd(), 2),
        (ends.report.as_fd(), child_fd::REPORT),
    ];
    fds.extend(ends.console.as_ref().map(|c| (c.as_fd(), child_fd::CONSOLE)));
    fds
}
