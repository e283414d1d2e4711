//! The supervisor: the parent of every container, tiny, single-threaded, one loop that never waits for a disk.
//! Beside it the roles that live close to it: the logger, and what process 1 does on a flashed node.
//!
//! It must not be able to fail: there is no panicking path, tables and buffers are bounded, and input is expected to
//! be hostile. What it decides is in [`table`], which is pure; [`driver`] waits and performs.
//!
//! Never here: tokio, any other room but `model` and `sys`, a wait for a disk (that is the logger's to do), policy.

mod again;
pub mod dhcp;
mod driver;
mod groups;
mod hand_over;
mod init;
mod link;
pub mod logger;
mod logs;
mod poller;
mod records;
mod replace;
mod roles;
mod sandbox;
mod streams;
mod table;

use crate::sys::log::{self, panics};
use init::Node;
use std::ffi::OsString;
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

pub use hand_over::look_over::run as look_over;

/// Where the supervisor works.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Options {
    /// Holds the socket, the lock and the records; on tmpfs.
    run: PathBuf,
    /// Where cgroup v2 is mounted.
    cgroup: PathBuf,
    /// The data folder: only for what is to be known of a panic after the next boot.
    data: PathBuf,
}

/// What is asked on the command line.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Wish {
    /// Be the supervisor.
    Run(Options),
    /// Have the one that runs become the program in this file.
    Replace {
        /// Its run folder.
        run: PathBuf,
        /// The program.
        with: PathBuf,
    },
}

/// Where durable data is when nobody says otherwise.
const DATA: &str = "/var/lib/armlet";

/// The data folder of a supervisor that was told of none.
fn data_folder() -> PathBuf {
    PathBuf::from(DATA)
}

impl Default for Options {
    fn default() -> Self {
        Self { run: PathBuf::from("/run/armlet"), cgroup: groups::default_root().to_owned(), data: data_folder() }
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
        source: io::Error,
    },
    /// What another build handed over could not be gone on with, and there is no way back.
    #[error("go on with what another build handed over")]
    Adopt(#[from] hand_over::Why),
    /// The supervisor that runs was not replaced.
    #[error(transparent)]
    Replace(#[from] replace::ReplaceError),
}

const HELP: &str = "\
Start and watch this node's containers, and read their output. It runs beside `armlet agent`, which tells it what to do.

Usage: armlet supervisor [--run-dir DIR] [--root-dir DIR] [--cgroup-root DIR]
       armlet supervisor --replace-with FILE [--run-dir DIR]

Options:
      --run-dir DIR        sockets, records and bundles; as the agent's runDir [default: /run/armlet]
      --root-dir DIR       what is kept; as the agent's --root-dir [default: /var/lib/armlet]
      --cgroup-root DIR    where cgroup v2 is mounted [default: /sys/fs/cgroup]
      --replace-with FILE  have the supervisor that runs become this program, with all its containers
  -h, --help               print this

Examples:
  armlet supervisor
  armlet supervisor --replace-with /usr/local/bin/armlet.new

Told to stop (SIGTERM), it has the agent stop all pods in order, and ends.
";

/// The role `armlet supervisor [--run-dir DIR] [--root-dir DIR] [--cgroup-root DIR]`: runs until it is told to stop
/// (SIGTERM), and ends the containers then. With `--replace-with FILE` it is the client that has a running one become that
/// program in place. As process 1 it first makes a Linux system out of the kernel, ignores the arguments (they are
/// the kernel's), and ends only with the machine.
#[must_use]
pub fn run(args: &[OsString]) -> ExitCode {
    log::init("supervisor", log::SUPERVISOR_RING);
    let process_one = std::process::id() == 1;
    let begin = |options: Options, node: fn(&[OsString]) -> Node| {
        // There is no panicking path. Should there be one all the same, its whereabouts must outlive the boot.
        keep_panics("supervisor", &options.data, panics::Writer::Child);
        driver::Supervisor::start(&options, node(args)).map(Some)
    };
    let started = if let Some(call) = again::call(args) {
        again::go_on(&call).map(|supervisor| {
            keep_panics("supervisor", supervisor.data(), panics::Writer::Child);
            Some(supervisor)
        })
    } else if process_one {
        begin(Options::default(), Node::boot)
    } else if args.iter().any(|argument| argument == "--help" || argument == "-h") {
        // A closed output is no failure of what was asked for.
        let _ = io::stdout().write_all(HELP.as_bytes());
        return ExitCode::SUCCESS;
    } else {
        wish(args).and_then(|wish| match wish {
            Wish::Run(options) => begin(options, |_| Node::guest()),
            Wish::Replace { run, with } => Ok(replace::replace(&run, &with).map(|()| None)?),
        })
    };
    match started {
        Ok(Some(supervisor)) => {
            supervisor.run();
            ExitCode::SUCCESS
        }
        Ok(None) => ExitCode::SUCCESS,
        // Whoever typed this reads no log.
        Err(e @ (StartError::Argument { .. } | StartError::Replace(_))) => {
            let more = if matches!(e, StartError::Argument { .. }) { "; see armlet supervisor --help" } else { "" };
            let _ = writeln!(io::stderr(), "armlet supervisor: {}{more}", log::chain(&e));
            ExitCode::FAILURE
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

/// Has a panic of this process kept on the disk.
fn keep_panics(role: &'static str, data: &Path, writer: panics::Writer) {
    panics::keep_all(role, data.join(panics::FOLDER), writer, |_| {});
}

fn wish(args: &[OsString]) -> Result<Wish, StartError> {
    let (mut options, mut replace) = (Options::default(), None);
    let mut args = args.iter();
    while let Some(argument) = args.next() {
        let wrong = |why| StartError::Argument { argument: argument.clone(), why };
        let target = match argument.to_str() {
            Some("--run-dir") => &mut options.run,
            Some("--cgroup-root") => &mut options.cgroup,
            Some("--replace-with") => {
                replace = Some(args.next().map(PathBuf::from).ok_or_else(|| wrong("a file has to follow"))?);
                continue;
            }
            Some("--root-dir") => &mut options.data,
            _ => return Err(wrong("not known")),
        };
        let value = args.next().map(PathBuf::from).ok_or_else(|| wrong("a folder has to follow"))?;
        if !value.is_absolute() {
            return Err(wrong("the folder has to be an absolute path"));
        }
        *target = value;
    }
    Ok(match replace {
        Some(with) => Wish::Replace { run: options.run, with },
        None => Wish::Run(options),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn arguments_are_checked() {
        let parse = |list: &[&str]| wish(&list.iter().map(OsString::from).collect::<Vec<_>>());
        let run = |run: &str| Options { run: run.into(), ..Options::default() };
        assert_eq!(parse(&["--run-dir", "/r"]).unwrap(), Wish::Run(run("/r")));
        assert_eq!(parse(&[]).unwrap(), Wish::Run(run("/run/armlet")));
        let replace = Wish::Replace { run: "/r".into(), with: "x".into() };
        assert_eq!(parse(&["--replace-with", "x", "--run-dir", "/r"]).unwrap(), replace);
        for bad in [&["--run-dir"][..], &["--run-dir", "r"], &["--else"], &["x"], &["--replace-with"]] {
            assert!(parse(bad).is_err(), "{bad:?}");
        }
    }
}
