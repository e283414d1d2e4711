//! The supervisor: the parent of every container, tiny, single-threaded, one loop that never waits for a disk.
//! Beside it the roles that live close to it: the logger, and what process 1 does on a flashed node.
//!
//! It must not be able to fail: there is no panicking path, tables and buffers are bounded, and input is expected to
//! be hostile. What it decides is in [`table`], which is pure; [`driver`] waits and performs.
//!
//! Never here: tokio, any other room but `model` and `sys`, a wait for a disk (that is the logger's to do), policy.

pub mod dhcp;
mod driver;
mod groups;
mod init;
mod link;
pub mod logger;
mod logs;
mod poller;
mod records;
mod roles;
mod sandbox;
mod streams;
mod table;

use init::Node;
use std::ffi::OsString;
use std::path::PathBuf;
use std::process::ExitCode;

/// Where the supervisor works.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Options {
    /// Holds the socket, the lock and the records; on tmpfs.
    run: PathBuf,
    /// Where cgroup v2 is mounted.
    cgroup: PathBuf,
}

impl Default for Options {
    fn default() -> Self {
        Self { run: PathBuf::from("/run/armlet"), cgroup: groups::default_root().to_owned() }
    }
}

/// Why the supervisor does not start.
#[derive(Debug, thiserror::Error)]
enum StartError {
    /// The arguments are wrong.
    #[error("argument {argument:?}: {why}")]
    Argument {
        /// Which.
        argument: OsString,
        /// What is wrong.
        why: &'static str,
    },
    /// Another supervisor has this run folder.
    #[error("another supervisor holds {}", path.display())]
    Locked {
        /// The lock file.
        path: PathBuf,
    },
    /// A system call failed.
    #[error("{operation}")]
    System {
        /// What was tried.
        operation: &'static str,
        /// Why it failed.
        #[source]
        source: std::io::Error,
    },
}

/// The role `armlet supervisor [--run-dir DIR] [--cgroup-root DIR]`: runs until it is told to stop (SIGTERM), and ends
/// the containers then. As process 1 it first makes a Linux system out of the kernel, ignores the arguments (they are
/// the kernel's), and ends only with the machine.
#[must_use]
pub fn run(args: &[OsString]) -> ExitCode {
    crate::sys::log::init("supervisor");
    let process_one = std::process::id() == 1;
    let started = if process_one {
        driver::Supervisor::start(&Options::default(), Node::boot(args))
    } else {
        options(args).and_then(|o| driver::Supervisor::start(&o, Node::guest()))
    };
    match started {
        Ok(supervisor) => {
            supervisor.run();
            ExitCode::SUCCESS
        }
        Err(e) => {
            tracing::error!(error = &e as &dyn std::error::Error, "the supervisor does not start");
            if process_one {
                init::give_up();
            }
            ExitCode::FAILURE
        }
    }
}

fn options(args: &[OsString]) -> Result<Options, StartError> {
    let mut options = Options::default();
    let mut args = args.iter();
    while let Some(argument) = args.next() {
        let wrong = |why| StartError::Argument { argument: argument.clone(), why };
        let target = match argument.to_str() {
            Some("--run-dir") => &mut options.run,
            Some("--cgroup-root") => &mut options.cgroup,
            _ => return Err(wrong("not known")),
        };
        let value = args.next().map(PathBuf::from).ok_or_else(|| wrong("a folder has to follow"))?;
        if !value.is_absolute() {
            return Err(wrong("the folder has to be an absolute path"));
        }
        *target = value;
    }
    Ok(options)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn arguments_are_checked() {
        let parse = |list: &[&str]| options(&list.iter().map(OsString::from).collect::<Vec<_>>());
        assert_eq!(parse(&["--run-dir", "/r"]).unwrap().run, PathBuf::from("/r"));
        assert_eq!(parse(&[]).unwrap().cgroup, PathBuf::from("/sys/fs/cgroup"));
        for bad in [&["--run-dir"][..], &["--run-dir", "r"], &["--else"], &["x"]] {
            assert!(parse(bad).is_err(), "{bad:?}");
        }
    }
}
