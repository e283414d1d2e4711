//! Standard streams: whose they are, and terminals.

use super::error::CreateError;
use rustix::fs::{FileType, Gid, Uid};
use rustix::pty::OpenptFlags;
use std::io;
use std::os::fd::{AsFd, OwnedFd};

/// Makes the pipes on 0, 1 and 2 the container user's, so that `/dev/stdout` can be opened by a program that is not
/// root (as containerd does).
pub(super) fn give_to(uid: u32, gid: u32) -> Result<(), CreateError> {
    let streams = (rustix::stdio::stdin(), rustix::stdio::stdout(), rustix::stdio::stderr());
    for stream in [streams.0.as_fd(), streams.1.as_fd(), streams.2.as_fd()] {
        let give = || -> io::Result<()> {
            let stat = rustix::fs::fstat(stream)?;
            if FileType::from_raw_mode(stat.st_mode) == FileType::Fifo {
                rustix::fs::fchown(stream, Some(Uid::from_raw(uid)), Some(Gid::from_raw(gid)))?;
            }
            Ok(())
        };
        give().map_err(CreateError::system("give the standard streams to the container's user"))?;
    }
    Ok(())
}

/// Makes a terminal the user's. Its group stays that of the devpts mount.
pub(super) fn give_terminal(side: impl AsFd, uid: u32) -> io::Result<()> {
    Ok(rustix::fs::fchown(side, Some(Uid::from_raw(uid)), None)?)
}

/// The program's side of a terminal. It opens although the terminal's filesystem is not mounted here.
pub(super) fn other_side(master: &OwnedFd) -> io::Result<OwnedFd> {
    Ok(rustix::pty::ioctl_tiocgptpeer(master, OpenptFlags::RDWR | OpenptFlags::NOCTTY | OpenptFlags::CLOEXEC)?)
}
