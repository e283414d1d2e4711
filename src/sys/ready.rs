//! Descriptors that an async task waits for.
#![expect(unsafe_code, reason = "tokio wants a promise about the descriptor, which this module keeps")]

use super::inotify::Watcher;
use super::netlink::Changes;
use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
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

#[cfg(test)]
mod tests {
    use super::*;

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
}
