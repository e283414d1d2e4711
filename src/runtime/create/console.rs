//! A container's terminal: libcontainer wants a socket path to connect to, the supervisor gave a connected socket.

use super::error::CreateError;
use super::streams;
use crate::model::supervise::child_fd;
use crate::sys::{program, seqpacket};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::UnixListener;
use std::path::{Path, PathBuf};

/// The way of a terminal from the container's first process to the supervisor.
#[derive(Debug)]
pub(super) struct Console {
    listener: UnixListener,
    path: PathBuf,
    supervisor: OwnedFd,
    uid: u32,
}

impl Console {
    /// Opens it, with a socket in `folder`, for a terminal of the user `uid`.
    pub(super) fn open(folder: &Path, uid: u32) -> Result<Self, CreateError> {
        let supervisor = supervisor()?;
        let path = folder.join("console.sock");
        let listener = UnixListener::bind(&path).map_err(CreateError::file("bind", &path))?;
        Ok(Self { listener, path, supervisor, uid })
    }

    /// Where libcontainer is to connect.
    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    /// Passes the terminal on. libcontainer has sent it before it called the container created.
    pub(super) fn forward(self) -> Result<(), CreateError> {
        let (stream, _) = self.listener.accept().map_err(CreateError::file("accept on", &self.path))?;
        let mut text = [0; 64];
        let received =
            seqpacket::receive(stream.as_fd(), &mut text).map_err(CreateError::system("receive a terminal"))?;
        let master = received.and_then(|message| message.fds.into_iter().next());
        let master = master.ok_or(CreateError::Missing("terminal"))?;
        let other = streams::other_side(&master).map_err(CreateError::system("open the terminal"))?;
        streams::give_terminal(other, self.uid).map_err(CreateError::system("give the terminal to its user"))?;
        send(&self.supervisor, &master)
    }
}

/// The socket to the supervisor.
#[expect(unsafe_code, reason = "a descriptor given by number")]
pub(super) fn supervisor() -> Result<OwnedFd, CreateError> {
    // SAFETY: called once per process; the supervisor left the number open, so nothing else can have got it.
    unsafe { program::take_descriptor(child_fd::CONSOLE) }.map_err(CreateError::system("find the console socket"))
}

/// Sends a terminal's master to the supervisor.
pub(super) fn send(supervisor: &OwnedFd, master: &OwnedFd) -> Result<(), CreateError> {
    seqpacket::send(supervisor.as_fd(), b"t", &[master.as_fd()])
        .map_err(CreateError::system("hand over the terminal"))?;
    Ok(())
}
