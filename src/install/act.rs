//! Doing it.

use super::leave;
use super::steps::{Facts, Step};
use crate::sys::netlink::{Netlink, NetlinkError};
use crate::sys::{durable, mounts, tree};
use std::fs;
use std::io;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

/// How long the agent may take until it answers, in tenths of a second.
const PATIENCE: u32 = 300;

/// The cgroups of pods.
const GROUPS: &str = "/sys/fs/cgroup/kubepods";
/// Where pods' logs are unless the configuration says otherwise, and the links to those of containers.
const LOGS: [&str; 2] = ["/var/log/pods", "/var/log/containers"];
/// Folders of logs that belong to pods of ours: one a line. The package's script reads it too.
const NOTE: &str = "/var/lib/armlet/logs";

/// Why a step was not done.
#[derive(Debug, thiserror::Error)]
pub enum StepError {
    /// A file or folder.
    #[error("failed to {operation} {}", path.display())]
    File {
        /// What was tried.
        operation: &'static str,
        /// Where.
        path: PathBuf,
        /// Why not.
        source: io::Error,
    },
    /// systemd refused.
    #[error("systemctl {arguments} failed: {said}")]
    Systemctl {
        /// What it was told.
        arguments: String,
        /// What it said.
        said: String,
    },
    /// Pods run where they should have ended.
    #[error("these pods still run: {}", pods.join(", "))]
    PodsRun {
        /// Their UIDs.
        pods: Vec<String>,
    },
    /// A network link could not be taken away.
    #[error("failed to remove link {link}")]
    Link {
        /// Its name.
        link: String,
        /// Why not.
        source: NetlinkError,
    },
    /// Something is mounted in a folder that is to go.
    #[error("{} still has mounts in it: pods have not been stopped", path.display())]
    Mounted {
        /// Which folder.
        path: PathBuf,
    },
    /// Two installations would have the same units.
    #[error("armlet is here as a package of the system, which puts it there and takes it away")]
    Packaged,
    /// The agent does not answer.
    #[error("the agent does not answer: see journalctl -u armlet -u armlet-supervisor")]
    Silent,
}

/// What can be read of a machine.
#[derive(Debug)]
pub struct Machine;

impl Machine {
    /// What [`super::install`] needs to know.
    #[must_use]
    pub fn facts(binary: Option<PathBuf>) -> Facts {
        let default = Facts::default();
        let swaps = fs::read_to_string("/proc/swaps").unwrap_or_default();
        Facts {
            systemd: Path::new("/run/systemd/system").is_dir(),
            swap: swaps.lines().count() > 1,
            exe: fs::read_link("/proc/self/exe").unwrap_or(default.exe),
            binary: binary.unwrap_or(default.binary),
            configured: Path::new("/etc/armlet/config.yaml").exists(),
            packaged: Path::new("/usr/lib/systemd/system/armlet.service").exists(),
        }
    }
}

/// Performs one step and tells what it did, in a line.
///
/// # Errors
/// [`StepError`]; the steps before it stay done.
pub fn perform(step: &Step, socket: &Path) -> Result<String, StepError> {
    let failed = |operation, path: &Path| {
        let path = path.to_owned();
        move |source| StepError::File { operation, path, source }
    };
    match step {
        Step::Folder { path, mode } => {
            if path.is_dir() {
                return Ok(format!("{} is there", path.display()));
            }
            fs::create_dir_all(path)
                .and_then(|()| fs::set_permissions(path, fs::Permissions::from_mode(*mode)))
                .map_err(failed("make", path))?;
            Ok(format!("made {}", path.display()))
        }
        Step::File { path, text } => {
            replace(path, text.as_bytes(), 0o644).map_err(failed("write", path))?;
            Ok(format!("wrote {}", path.display()))
        }
        Step::Copy { from, to } => {
            let bytes = fs::read(from).map_err(failed("read", from))?;
            if let Some(folder) = to.parent() {
                fs::create_dir_all(folder).map_err(failed("make", folder))?;
            }
            replace(to, &bytes, 0o755).map_err(failed("write", to))?;
            Ok(format!("copied {} to {}", from.display(), to.display()))
        }
        Step::Systemctl(arguments) => systemctl(arguments).map(|()| format!("systemctl {}", arguments.join(" "))),
        Step::TrySystemctl(arguments) => Ok(match systemctl(arguments) {
            Ok(()) => format!("systemctl {}", arguments.join(" ")),
            Err(error) => error.to_string(),
        }),
        Step::AwaitAgent => {
            for _ in 0..PATIENCE {
                if UnixStream::connect(socket).is_ok() {
                    return Ok("the agent answers".to_owned());
                }
                std::thread::sleep(Duration::from_millis(100));
            }
            Err(StepError::Silent)
        }
        Step::PodsHaveEnded(pods) => {
            let known = leave::pods(pods).map_err(failed("read", pods))?;
            let alive = leave::alive(Path::new(GROUPS), &known).map_err(failed("read", Path::new(GROUPS)))?;
            if alive.is_empty() { Ok("no pod runs".to_owned()) } else { Err(StepError::PodsRun { pods: alive }) }
        }
        Step::Unmount(path) => {
            let mounted = mounts::mounts_below(path).map_err(failed("look for mounts in", path))?;
            // The folder itself may be a disk of its owner's.
            for mount in mounted.iter().filter(|mount| *mount != path) {
                mounts::unmount_all(mount).map_err(failed("unmount", mount))?;
            }
            Ok(format!("nothing is mounted in {}", path.display()))
        }
        Step::RemoveLink(link) => remove_link(link).map_err(|source| StepError::Link { link: link.clone(), source }),
        Step::RemoveGroups(path) => match leave::remove_groups(path).map_err(failed("remove", path))? {
            true => Ok(format!("removed {}", path.display())),
            false => Ok(format!("{} holds something of others and stays", path.display())),
        },
        Step::NoteLogs(pods) => {
            let logs = Path::new(LOGS[0]);
            let known = leave::pods(pods).map_err(failed("read", pods))?;
            let mut folders = leave::noted(Path::new(NOTE), logs).map_err(failed("read", Path::new(NOTE)))?;
            folders.extend(leave::logs(logs, &known).map_err(failed("read", logs))?);
            let text: String = folders.iter().map(|folder| format!("{}\n", folder.display())).collect();
            if Path::new(NOTE).parent().is_some_and(Path::is_dir) {
                replace(Path::new(NOTE), text.as_bytes(), 0o600).map_err(failed("write", Path::new(NOTE)))?;
            }
            Ok(format!("{} pods have logs in {}", folders.len(), logs.display()))
        }
        Step::RemoveLogs => {
            let folders = leave::noted(Path::new(NOTE), Path::new(LOGS[0])).map_err(failed("read", Path::new(NOTE)))?;
            let links = leave::links_into(Path::new(LOGS[1]), &folders).map_err(failed("read", Path::new(LOGS[1])))?;
            for link in &links {
                fs::remove_file(link).map_err(failed("remove", link))?;
            }
            for folder in &folders {
                tree::remove_tree(folder).map_err(|error| failed("remove", folder)(io::Error::other(error)))?;
            }
            for folder in LOGS {
                // What is not empty is not ours alone.
                let _ = fs::remove_dir(folder);
            }
            Ok(format!("removed the logs of {} pods", folders.len()))
        }
        Step::Remove(path) => match fs::remove_file(path) {
            Ok(()) => Ok(format!("removed {}", path.display())),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(format!("{} was not there", path.display())),
            Err(error) => Err(failed("remove", path)(error)),
        },
        Step::RemoveTree(path) => {
            let mounted = mounts::mounts_below(path).map_err(failed("look for mounts in", path))?;
            if !mounted.is_empty() {
                return Err(StepError::Mounted { path: path.clone() });
            }
            match tree::remove_tree(path) {
                Ok(()) => Ok(format!("removed {}", path.display())),
                Err(error) => Err(failed("remove", path)(io::Error::other(error))),
            }
        }
    }
}

fn replace(path: &Path, bytes: &[u8], mode: u32) -> io::Result<()> {
    match (path.parent(), path.file_name().and_then(|name| name.to_str())) {
        (Some(folder), Some(name)) => durable::replace_file_with(folder, name, bytes, mode),
        _ => Err(io::ErrorKind::InvalidInput.into()),
    }
}

fn remove_link(name: &str) -> Result<String, NetlinkError> {
    let mut netlink = Netlink::open()?;
    match netlink.link(name)? {
        Some(link) => netlink.delete_link(link.index).map(|()| format!("removed link {name}")),
        None => Ok(format!("there is no link {name}")),
    }
}

fn systemctl(arguments: &[String]) -> Result<(), StepError> {
    let failed = |said: String| StepError::Systemctl { arguments: arguments.join(" "), said };
    let output = Command::new("systemctl").args(arguments).output().map_err(|error| failed(error.to_string()))?;
    if output.status.success() {
        return Ok(());
    }
    Err(failed(String::from_utf8_lossy(&output.stderr).trim().to_owned()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_are_replaced_and_taken_away() {
        let folder = tempfile::tempdir().unwrap();
        let socket = folder.path().join("socket");
        let path = |name: &str| folder.path().join(name);
        let mode = |name: &str| fs::metadata(path(name)).unwrap().permissions().mode() & 0o777;
        let does = |step: Step| perform(&step, &socket).unwrap();
        does(Step::Folder { path: path("a/b"), mode: 0o700 });
        assert_eq!(mode("a/b"), 0o700);
        does(Step::File { path: path("a/file"), text: "one".to_owned() });
        does(Step::File { path: path("a/file"), text: "two".to_owned() });
        assert_eq!((fs::read_to_string(path("a/file")).unwrap().as_str(), mode("a/file")), ("two", 0o644));
        does(Step::Copy { from: path("a/file"), to: path("bin/program") });
        assert_eq!((fs::read_to_string(path("bin/program")).unwrap().as_str(), mode("bin/program")), ("two", 0o755));
        assert_eq!(fs::read_dir(path("bin")).unwrap().count(), 1, "nothing is left beside it");
        for _ in 0..2 {
            does(Step::Remove(path("bin/program")));
            does(Step::RemoveTree(path("a")));
        }
        assert!(!path("a").exists() && !path("bin/program").exists());
        let error =
            perform(&Step::File { path: path("no/such/folder/file"), text: String::new() }, &socket).unwrap_err();
        assert!(error.to_string().starts_with("failed to write "), "{error}");
    }
}
