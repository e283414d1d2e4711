//! Unix sockets that keep message boundaries and carry descriptors.

use rustix::fd::{AsFd, BorrowedFd, OwnedFd};
use rustix::io::Errno;
use rustix::net::{
    AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, ReturnFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags, SocketAddrUnix, SocketFlags, SocketType,
};
use std::io::{self, IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::path::Path;

/// The most descriptors beside one message.
pub const MAX_FDS: usize = 4;

/// A message as received.
#[derive(Debug)]
pub struct Received {
    /// Length of the message in the buffer; 0 when the peer has gone.
    pub len: usize,
    /// The message or its descriptors did not fit: what was cut off is lost.
    pub truncated: bool,
    /// The descriptors beside it, close-on-exec.
    pub fds: Vec<OwnedFd>,
}

/// A listening socket at `path`, mode 0600. Removes what lies there first: the caller holds a lock.
///
/// # Errors
/// Of unlink, socket, bind, chmod and listen.
pub fn listen(path: &Path) -> io::Result<OwnedFd> {
    match std::fs::remove_file(path) {
        Err(e) if e.kind() != io::ErrorKind::NotFound => return Err(e),
        _ => {}
    }
    let socket = rustix::net::socket_with(AddressFamily::UNIX, SocketType::SEQPACKET, flags(), None)?;
    rustix::net::bind(&socket, &SocketAddrUnix::new(path)?)?;
    rustix::fs::chmod(path, rustix::fs::Mode::RUSR | rustix::fs::Mode::WUSR)?;
    rustix::net::listen(&socket, 8)?;
    Ok(socket)
}

/// Connects to the listening socket at `path`; the result does not block.
///
/// # Errors
/// Of socket and connect.
pub fn connect(path: &Path) -> io::Result<OwnedFd> {
    let socket = rustix::net::socket_with(AddressFamily::UNIX, SocketType::SEQPACKET, flags(), None)?;
    rustix::net::connect(&socket, &SocketAddrUnix::new(path)?)?;
    Ok(socket)
}

/// Takes the next connection, or `None` when there is none.
///
/// # Errors
/// Of accept.
pub fn accept(listener: BorrowedFd<'_>) -> io::Result<Option<OwnedFd>> {
    match rustix::net::accept_with(listener, flags()) {
        Ok(fd) => Ok(Some(fd)),
        Err(Errno::AGAIN | Errno::INTR | Errno::CONNABORTED) => Ok(None),
        Err(e) => Err(e.into()),
    }
}

/// The user id of the process that opened the other end.
///
/// # Errors
/// Of getsockopt.
pub fn peer_uid(socket: BorrowedFd<'_>) -> io::Result<u32> {
    Ok(rustix::net::sockopt::socket_peercred(socket)?.uid.as_raw())
}

/// Two connected sockets that keep message boundaries and do not block.
///
/// # Errors
/// Of socketpair.
pub fn pair() -> io::Result<(OwnedFd, OwnedFd)> {
    Ok(rustix::net::socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, flags(), None)?)
}

/// Two connected stream sockets; the first does not block.
///
/// # Errors
/// Of socketpair and fcntl.
pub fn stream_pair() -> io::Result<(OwnedFd, OwnedFd)> {
    let (ours, theirs) = rustix::net::socketpair(AddressFamily::UNIX, SocketType::STREAM, SocketFlags::CLOEXEC, None)?;
    rustix::io::ioctl_fionbio(&ours, true)?;
    Ok((ours, theirs))
}

fn flags() -> SocketFlags {
    SocketFlags::CLOEXEC | SocketFlags::NONBLOCK
}

/// Sends one message whole. `Ok(false)`: the socket is full, try again when it is writable.
///
/// # Errors
/// Of sendmsg; `InvalidInput` for more than [`MAX_FDS`] descriptors.
pub fn send(socket: BorrowedFd<'_>, message: &[u8], fds: &[BorrowedFd<'_>]) -> io::Result<bool> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(MAX_FDS))];
    let mut control = SendAncillaryBuffer::new(&mut space);
    if !fds.is_empty() && !control.push(SendAncillaryMessage::ScmRights(fds)) {
        return Err(io::ErrorKind::InvalidInput.into());
    }
    loop {
        let sent = rustix::net::sendmsg(socket, &[IoSlice::new(message)], &mut control, SendFlags::NOSIGNAL);
        match sent {
            Ok(_) => return Ok(true),
            Err(Errno::INTR) => {}
            Err(Errno::AGAIN | Errno::NOBUFS) => return Ok(false),
            Err(e) => return Err(e.into()),
        }
    }
}

/// Receives one message into `buffer`, or `None` when there is none yet.
///
/// # Errors
/// Of recvmsg.
pub fn receive(socket: BorrowedFd<'_>, buffer: &mut [u8]) -> io::Result<Option<Received>> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(MAX_FDS))];
    let mut control = RecvAncillaryBuffer::new(&mut space);
    let got = loop {
        let mut parts = [IoSliceMut::new(buffer)];
        match rustix::net::recvmsg(socket, &mut parts, &mut control, RecvFlags::CMSG_CLOEXEC) {
            Ok(got) => break got,
            Err(Errno::INTR) => {}
            Err(Errno::AGAIN) => return Ok(None),
            Err(e) => return Err(e.into()),
        }
    };
    let mut fds = Vec::new();
    for message in control.drain() {
        if let RecvAncillaryMessage::ScmRights(rights) = message {
            fds.extend(rights);
        }
    }
    let truncated = got.flags.intersects(ReturnFlags::TRUNC | ReturnFlags::CTRUNC);
    Ok(Some(Received { len: got.bytes.min(buffer.len()), truncated, fds }))
}

/// The descriptors as [`send`] takes them.
#[must_use]
pub fn borrow(fds: &[OwnedFd]) -> Vec<BorrowedFd<'_>> {
    fds.iter().map(AsFd::as_fd).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_message_arrives_whole_with_its_descriptors_or_says_that_it_does_not() {
        let (a, b) = pair().unwrap();
        let (read, write) = rustix::pipe::pipe().unwrap();
        assert!(send(a.as_fd(), b"hello", &[write.as_fd()]).unwrap());
        assert!(send(a.as_fd(), &[7; 100], &[]).unwrap());
        let mut buffer = [0; 50];
        let got = receive(b.as_fd(), &mut buffer).unwrap().unwrap();
        assert_eq!((&buffer[..got.len], got.fds.len(), got.truncated), (&b"hello"[..], 1, false));
        drop(write);
        rustix::io::write(&got.fds[0], b"x").unwrap();
        assert_eq!(rustix::io::read(&read, &mut [0; 4][..]).unwrap(), 1);
        let got = receive(b.as_fd(), &mut buffer).unwrap().unwrap();
        assert_eq!((got.len, got.truncated), (50, true));
        assert!(receive(b.as_fd(), &mut buffer).unwrap().is_none());
        drop(a);
        assert_eq!(receive(b.as_fd(), &mut buffer).unwrap().unwrap().len, 0);
    }

    #[test]
    fn a_full_socket_says_so_instead_of_waiting() {
        let (a, _b) = pair().unwrap();
        let full = (0..10_000).any(|_| !send(a.as_fd(), &[0; 1000], &[]).unwrap());
        assert!(full);
    }

    #[test]
    fn only_the_owner_may_connect() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("s");
        let listener = listen(&path).unwrap();
        let client = connect(&path).unwrap();
        let served = accept(listener.as_fd()).unwrap().unwrap();
        assert_eq!(peer_uid(served.as_fd()).unwrap(), rustix::process::getuid().as_raw());
        assert!(accept(listener.as_fd()).unwrap().is_none());
        drop(client);
        let listener = listen(&path).unwrap();
        drop(listener);
        use std::os::unix::fs::PermissionsExt as _;
        assert_eq!(std::fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
    }
}
