//! A pipe's end or a terminal, read and written without waiting in the kernel.

use crate::sys::ready::Ready;
use rustix::fs::OFlags;
use rustix::io::Errno;
use std::io;
use std::os::fd::OwnedFd;

/// A descriptor that tokio watches.
#[derive(Debug)]
pub(super) struct Descriptor(Ready<OwnedFd>);

impl Descriptor {
    /// # Errors
    /// When the descriptor is none that can be waited for: a file, for instance.
    pub(super) fn new(fd: OwnedFd) -> io::Result<Self> {
        let flags = rustix::fs::fcntl_getfl(&fd)?;
        rustix::fs::fcntl_setfl(&fd, flags | OFlags::NONBLOCK)?;
        Ready::new(fd).map(Self)
    }

    /// Reads what is there, waiting until there is something. 0 is the end, a terminal without programs included.
    ///
    /// # Errors
    /// When reading fails.
    pub(super) async fn read(&self, buffer: &mut [u8]) -> io::Result<usize> {
        let read = |fd: &OwnedFd| match rustix::io::read(fd, &mut *buffer) {
            // What a terminal's master gives once the last program has closed the other side.
            Err(Errno::IO) => Ok(0),
            other => other.map_err(io::Error::from),
        };
        self.0.read(read).await
    }

    /// Writes everything.
    ///
    /// # Errors
    /// `BrokenPipe` when nobody reads any more.
    pub(super) async fn write_all(&self, mut bytes: &[u8]) -> io::Result<()> {
        while !bytes.is_empty() {
            let write = |fd: &OwnedFd| rustix::io::write(fd, bytes).map_err(io::Error::from);
            let written = self.0.write(write).await?;
            bytes = bytes.get(written..).unwrap_or_default();
        }
        Ok(())
    }
}
