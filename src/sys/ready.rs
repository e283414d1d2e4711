//! Descriptors that an async task waits for.
#![expect(unsafe_code, reason = "tokio wants a promise about the descriptor, which this module keeps")]

use super::inotify::Watcher;
use super::netlink::Changes;
use std::io;
use std::os::fd::{AsRawFd, BorrowedFd, OwnedFd};
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;

/// What always refers to one and the same open descriptor.
///
/// # Safety
/// `as_raw_fd` must return the same descriptor at every call, and it must stay open as long as the value lives.
pub unsafe trait Steady: AsRawFd {}

// SAFETY: it owns its descriptor, and nothing replaces it without `&mut`.
unsafe impl Steady for OwnedFd {}

// SAFETY: it owns its descriptor in a private field that is never replaced.
unsafe impl Steady for Watcher {}

// SAFETY: it owns its socket in a private field that is never replaced.
unsafe impl Steady for Changes {}

/// A descriptor in non-blocking mode that tokio watches. The value inside is only lent out shared.
#[derive(Debug)]
pub struct Ready<T: Steady>(AsyncFd<T>);

impl<T: Steady> Ready<T> {
    /// Watches a descriptor, which must not block. Needs a tokio runtime.
    ///
    /// # Errors
    /// When it is none that can be waited for: a file on disk, for instance.
    pub fn new(inner: T) -> io::Result<Self> {
        // SAFETY: `T` keeps its descriptor (`Steady`), and no `&mut T` ever leaves this type.
        let watched = unsafe { AsyncFd::register(inner) };
        watched.map(Self).map_err(|error| error.into_parts().1)
    }

    /// What is watched.
    #[must_use]
    pub fn get_ref(&self) -> &T {
        self.0.get_ref()
    }

    /// Does `read`, waiting while it says `WouldBlock`.
    ///
    /// # Errors
    /// Those of `read`.
    pub async fn read<R>(&self, mut read: impl FnMut(&T) -> io::Result<R>) -> io::Result<R> {
        self.0.async_io(Interest::READABLE, |inner| read(inner)).await
    }

    /// Does `write`, waiting while it says `WouldBlock`.
    ///
    /// # Errors
    /// Those of `write`.
    pub async fn write<R>(&self, mut write: impl FnMut(&T) -> io::Result<R>) -> io::Result<R> {
        self.0.async_io(Interest::WRITABLE, |inner| write(inner)).await
    }
}

/// Tells when the other end of a connection is gone, without reading: what it sent may lie unread before the end.
#[derive(Debug)]
pub struct Hangup(AsyncFd<OwnedFd>);

impl Hangup {
    /// Watches a connection. Needs a tokio runtime.
    ///
    /// # Errors
    /// When there is no descriptor left for it.
    pub fn of(connection: BorrowedFd<'_>) -> io::Result<Self> {
        // A descriptor of its own: the connection's may be watched for other things already.
        let own = connection.try_clone_to_owned()?;
        // The kernel tells of the end whatever is asked for; urgent data is what nobody sends.
        // SAFETY: an `OwnedFd` is `Steady`, and no `&mut` of it ever leaves this type.
        let watched = unsafe { AsyncFd::register_with_interest(own, Interest::PRIORITY) };
        watched.map(Self).map_err(|error| error.into_parts().1)
    }

    /// Waits until the other end is closed altogether: one that only sends no more is still there.
    ///
    /// # Errors
    /// When the runtime ends.
    pub async fn wait(&self) -> io::Result<()> {
        loop {
            let mut guard = self.0.ready(Interest::PRIORITY).await?;
            if guard.ready().is_read_closed() {
                return Ok(());
            }
            guard.clear_ready();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;
    use std::os::fd::AsFd;

    #[test]
    fn a_reader_waits_for_a_writer() {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_io().build().unwrap();
        runtime.block_on(async {
            let (read, write) = rustix::pipe::pipe_with(rustix::pipe::PipeFlags::NONBLOCK).unwrap();
            let (read, write) = (Ready::new(read).unwrap(), Ready::new(write).unwrap());
            let mut buffer = [0; 8];
            let (got, put) = tokio::join!(
                read.read(|fd| Ok(rustix::io::read(fd, &mut buffer)?)),
                write.write(|fd| Ok(rustix::io::write(fd, b"hi")?)),
            );
            assert_eq!((got.unwrap(), put.unwrap()), (2, 2));
            assert!(Ready::new(OwnedFd::from(tempfile::tempfile().unwrap())).is_err(), "a file is always ready");
        });
    }
    #[test]
    fn a_hang_up_is_seen_before_what_is_unread() {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async {
            let (ours, mut theirs) = std::os::unix::net::UnixStream::pair().unwrap();
            let hangup = Hangup::of(ours.as_fd()).unwrap();
            theirs.write_all(b"unread").unwrap();
            theirs.shutdown(std::net::Shutdown::Write).unwrap();
            let soon = std::time::Duration::from_millis(50);
            assert!(tokio::time::timeout(soon, hangup.wait()).await.is_err(), "it can still be answered");
            drop(theirs);
            let in_time = std::time::Duration::from_secs(10);
            tokio::time::timeout(in_time, hangup.wait()).await.unwrap().unwrap();
        });
    }
}
