//! Putting armlet on a Linux that people have, and taking it away again.
//!
//! The Debian package that cross/deb.sh builds carries the same units; [`prepare`] and
//! [`leave`] are what it leaves to armlet.
//!
//! [`steps`] decides, purely, what has to be done on a machine; [`perform`] does it and says so. On a machine without
//! systemd the files are put in place, and what starts the two roles is the owner's to write.

mod act;
mod leave;
mod steps;

pub use act::{Machine, StepError, perform};
pub use steps::{Facts, Step, install, leave, prepare, uninstall};
