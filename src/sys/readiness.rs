//! A descriptor that an async task waits for.
#![expect(unsafe_code, reason = "tokio asks for a promise that the descriptor stays the same")]

use std::io;
use std::os::fd::OwnedFd;
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;

/// Lets tasks wait until a descriptor is readable. It should be non-blocking. Must be called in a runtime with I/O.
///
/// # Errors
/// EPERM for what cannot be polled: a regular file, a folder.
pub fn readable(fd: OwnedFd) -> io::Result<AsyncFd<OwnedFd>> {
    // SAFETY: an OwnedFd is open, names the same description until it is dropped, and is owned by the AsyncFd.
    let registered = unsafe { AsyncFd::register_with_interest(fd, Interest::READABLE) };
    registered.map_err(|error| error.into_parts().1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_readable_descriptor_wakes_and_a_file_is_refused() {
        let (reader, writer) = rustix::pipe::pipe().unwrap();
        let reader = readable(reader).unwrap();
        rustix::io::write(&writer, b"x").unwrap();
        let _ready = reader.readable().await.unwrap();
        let folder = std::fs::File::open("/").unwrap();
        assert_eq!(readable(folder.into()).unwrap_err().kind(), io::ErrorKind::PermissionDenied);
    }
}
