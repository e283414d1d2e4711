//! The last steps before a program runs: finding it, privileges, the system call filter, execve. Create and exec
//! children share them.

use super::error::CreateError;
use crate::model::supervise::ChildReport;
use crate::runtime::capability;
use crate::runtime::request::FilterProgram;
use crate::sys::privileges::{self, Capabilities, FiveSets};
use crate::sys::seccomp::{Filter, load};
use crate::sys::{program, signals};
use oci_spec::runtime::{Capabilities as OciCapabilities, Process};
use rustix::fs::{Access, AtFlags, CWD, FileType};
use std::ffi::{CStr, CString};
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

/// What is needed to become the container's program, laid out before anything irrevocable is done.
#[derive(Debug)]
pub(super) struct Launch {
    args: Vec<CString>,
    env: Vec<CString>,
    search_path: Option<String>,
    capabilities: FiveSets,
    no_new_privs: bool,
    filter: Option<(Vec<Filter>, u32)>,
}

impl Launch {
    /// Reads it from a spec's process and the prepared filter.
    ///
    /// # Errors
    /// When something cannot be understood: nothing is left out.
    pub(super) fn new(process: &Process, filter: Option<&FilterProgram>) -> Result<Self, CreateError> {
        let args = process.args().as_deref().unwrap_or_default();
        if args.is_empty() {
            return Err(CreateError::Missing("process.args"));
        }
        let env = process.env().as_deref().unwrap_or_default();
        let filter = match filter {
            Some(filter) => Some((filter.program().map_err(CreateError::Filter)?, filter.flags)),
            None => None,
        };
        Ok(Self {
            args: c_strings(args, "process.args")?,
            env: c_strings(env, "process.env")?,
            search_path: env.iter().find_map(|variable| variable.strip_prefix("PATH=")).map(str::to_owned),
            capabilities: five_sets(process)?,
            no_new_privs: process.no_new_privileges() == Some(true),
            filter,
        })
    }

    /// Leaves in the effective set what the program will have, and what the steps before it need.
    ///
    /// # Errors
    /// [`NotRunnable::Confinement`].
    pub(super) fn limit_effective(&self) -> Result<(), NotRunnable> {
        let kept = self.capabilities.effective.union(capability::SYS_ADMIN).union(capability::SETPCAP);
        let operation = "set the effective capabilities";
        privileges::limit_effective(kept).map_err(|source| NotRunnable::Confinement { operation, source })
    }

    /// The file to execute, looked for as the container's user, in the container's root.
    ///
    /// # Errors
    /// With the texts and codes that people know from other runtimes.
    pub(super) fn find(&self) -> Result<CString, NotRunnable> {
        let name = self.args.first().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
        if name.contains('/') {
            let path = Path::new(&name);
            return match executable(path) {
                Ok(()) => c_path(path, &name),
                Err(source) if source.raw_os_error() == Some(libc::ENOENT) => Err(NotRunnable::NoSuchFile { name }),
                Err(source) => Err(NotRunnable::NotExecutable { name, source }),
            };
        }
        let folders = self.search_path.as_deref().unwrap_or_default().split(':').filter(|_| !name.is_empty());
        let found = folders.map(|folder| match folder {
            "" => PathBuf::from(format!("./{name}")),
            folder => Path::new(folder).join(&name),
        });
        match found.into_iter().find(|path| executable(path).is_ok()) {
            Some(path) => c_path(&path, &name),
            None => Err(NotRunnable::NotFound { name }),
        }
    }

    /// Becomes the program at `path`. Returns only when that failed.
    ///
    /// Without no_new_privs the filter needs CAP_SYS_ADMIN, so it is loaded before the capabilities are set; with it
    /// as the very last step.
    pub(super) fn become_program(&self, path: &CStr) -> NotRunnable {
        match self.confine() {
            Ok(()) => {
                let source = program::execve(path, &self.args, &self.env);
                NotRunnable::Execution { path: path.to_string_lossy().into_owned(), source }
            }
            Err(failure) => failure,
        }
    }

    fn confine(&self) -> Result<(), NotRunnable> {
        let step = |operation| move |source| NotRunnable::Confinement { operation, source };
        signals::reset_own();
        let load_filter = || match &self.filter {
            Some((filter, flags)) => load(filter, *flags).map_err(step("load the seccomp filter")),
            None => Ok(()),
        };
        let set_capabilities = || privileges::set_capabilities(self.capabilities).map_err(step("set the capabilities"));
        if self.no_new_privs {
            privileges::set_no_new_privs().map_err(step("set no_new_privs"))?;
            set_capabilities()?;
            load_filter()
        } else {
            load_filter()?;
            set_capabilities()
        }
    }
}

fn executable(path: &Path) -> io::Result<()> {
    let stat = rustix::fs::stat(path)?;
    if FileType::from_raw_mode(stat.st_mode) == FileType::Directory {
        return Err(io::Error::from_raw_os_error(libc::EISDIR));
    }
    rustix::fs::accessat(CWD, path, Access::EXEC_OK, AtFlags::EACCESS)?;
    if stat.st_mode & 0o111 == 0 {
        return Err(io::Error::from_raw_os_error(libc::EACCES));
    }
    Ok(())
}

fn c_path(path: &Path, name: &str) -> Result<CString, NotRunnable> {
    CString::new(path.as_os_str().as_bytes()).map_err(|_| NotRunnable::NotFound { name: name.to_owned() })
}

fn c_strings(texts: &[String], what: &'static str) -> Result<Vec<CString>, CreateError> {
    texts.iter().map(|text| CString::new(text.as_str()).map_err(|_| CreateError::Nul(what))).collect()
}

fn five_sets(process: &Process) -> Result<FiveSets, CreateError> {
    let Some(wanted) = process.capabilities() else { return Ok(FiveSets::default()) };
    let set = |names: &Option<OciCapabilities>| -> Result<Capabilities, CreateError> {
        let names = names.iter().flatten().map(ToString::to_string);
        capability::parse_all(names).map_err(CreateError::Capability)
    };
    Ok(FiveSets {
        bounding: set(wanted.bounding())?,
        effective: set(wanted.effective())?,
        permitted: set(wanted.permitted())?,
        inheritable: set(wanted.inheritable())?,
        ambient: set(wanted.ambient())?,
    })
}

/// Why a program does not run although its container could be made. The texts are those that other runtimes give.
#[derive(Debug, thiserror::Error)]
pub(super) enum NotRunnable {
    /// Not in any folder of PATH.
    #[error("exec: {name:?}: executable file not found in $PATH")]
    NotFound { name: String },
    /// No file at the path given.
    #[error("exec: {name:?}: stat {name}: no such file or directory")]
    NoSuchFile { name: String },
    /// A file that may not be executed, or no file.
    #[error("exec: {name:?}: {}", plain(source))]
    NotExecutable { name: String, source: io::Error },
    /// The kernel cannot run it: a script without its interpreter, another machine's program.
    #[error("exec {path}: {}", plain(source))]
    Execution { path: String, source: io::Error },
    /// A step before it.
    #[error("failed to {operation}: {}", plain(source))]
    Confinement { operation: &'static str, source: io::Error },
}

/// The system's text for an error, in lower case and without its number, as clients know it from other runtimes.
fn plain(error: &io::Error) -> String {
    let text = error.to_string();
    let text = text.split(" (os error").next().unwrap_or_default();
    let mut letters = text.chars();
    letters.next().map(|first| first.to_lowercase().chain(letters).collect()).unwrap_or_default()
}

impl NotRunnable {
    /// What the supervisor is told: 127 for not found and 126 for not executable, as shells do.
    pub(super) fn report(&self) -> ChildReport {
        let code = match self {
            Self::NotFound { .. } | Self::NoSuchFile { .. } => 127,
            Self::Execution { source, .. } if source.raw_os_error() == Some(libc::ENOENT) => 127,
            Self::NotExecutable { .. } | Self::Execution { .. } => 126,
            Self::Confinement { .. } => 128,
        };
        let reason = if code == 128 { "StartError" } else { "ContainerCannotRun" };
        let message = format!("unable to start container process: {self}");
        ChildReport::Failed { code, reason: reason.to_owned(), message }
    }
}
