//! A guest in QEMU as a value: build its image, boot it, run scripts in it, cut its power.
//!
//! The shell scripts in `tests/vm/` make images and know QEMU's command line; this crate drives them. Scripts reach the
//! guest on a virtio-serial port, so they work whatever the network of the guest does, and side by side: the tests of one
//! program share one boot.

mod guest;
mod image;
mod shell;

pub use guest::{Boot, Guest};
pub use image::{
    Arch, Disk, Initramfs, Kind, binary, debian, images, other_binary, package, programs, root, target, vm,
};
pub use shell::Output;

use std::path::PathBuf;
use std::time::Duration;

/// What can go wrong between the test and its guest.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// A program of the host could not be run.
    #[error("run {program}")]
    Run {
        /// The program.
        program: PathBuf,
        /// What the system said.
        #[source]
        source: std::io::Error,
    },
    /// A program of the host failed; its messages went to the terminal.
    #[error("{program} ended with {status}")]
    Failed {
        /// The program.
        program: PathBuf,
        /// How it ended.
        status: std::process::ExitStatus,
    },
    /// A file or socket of the guest could not be used.
    #[error("{operation} {path}")]
    Io {
        /// What was tried.
        operation: &'static str,
        /// On which file.
        path: PathBuf,
        /// What the system said.
        #[source]
        source: std::io::Error,
    },
    /// The guest ended before it answered.
    #[error("the guest is gone")]
    Gone,
    /// The guest did not answer in time.
    #[error("no answer from the guest within {0:?}")]
    Timeout(Duration),
    /// QEMU or the guest answered with something else than agreed.
    #[error("unexpected answer: {0}")]
    Protocol(String),
}
