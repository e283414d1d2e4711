//! What can go wrong in a create or exec child, and how the supervisor is told.

use super::launch::NotRunnable;
use crate::model::supervise::ChildReport;
use crate::runtime::devices::BadRule;
use crate::runtime::request::BadFilter;
use libcontainer::error::LibcontainerError;
use libcontainer::notify_socket::NotifyListenerError;
use std::io;
use std::path::PathBuf;

/// Why a container or a program in one does not run.
#[derive(Debug, thiserror::Error)]
pub(super) enum CreateError {
    /// A file of the bundle.
    #[error("failed to {operation} {}", path.display())]
    File { operation: &'static str, path: PathBuf, source: io::Error },
    /// A volume, or another file of the node.
    #[error("failed to mount {} at {}", path.display(), at.display())]
    Bind { path: PathBuf, at: PathBuf, source: io::Error },
    /// A file of the bundle that is not what it should be.
    #[error("failed to understand {}", path.display())]
    Json { path: PathBuf, source: serde_json::Error },
    /// A spec without a part that is needed.
    #[error("OCI spec has no {0}")]
    Missing(&'static str),
    /// Text that cannot be an argument or a variable.
    #[error("OCI spec has a NUL character in {0}")]
    Nul(&'static str),
    /// A system call that is not about a file.
    #[error("failed to {operation}")]
    System { operation: &'static str, source: io::Error },
    /// A cgroup file.
    #[error("failed to write {value:?} to {} of cgroup {cgroup}", file)]
    Limit { cgroup: String, file: String, value: String, source: io::Error },
    /// The system call filter.
    #[error("the program cannot be filtered")]
    Filter(#[source] BadFilter),
    /// The device rules.
    #[error("device rules cannot be enforced")]
    Devices(#[source] BadRule),
    /// A capability's name.
    #[error("capabilities cannot be set")]
    Capability(#[source] crate::runtime::capability::UnknownCapability),
    /// libcontainer.
    #[error("failed to create container")]
    Libcontainer(#[source] Box<LibcontainerError>),
    /// libcontainer's first process does not answer.
    #[error("failed to start the container's first process")]
    Start(#[source] NotifyListenerError),
    /// The first process was killed before its program ran, for want of memory.
    #[error("container's first process was OOM-killed during set-up: the memory limit of {limit} bytes is too low")]
    OutOfMemory { limit: i64 },
    /// Said by the first process.
    #[error("the program was not executed")]
    Program(ChildReport),
    /// Said by the process itself.
    #[error(transparent)]
    NotRunnable(#[from] NotRunnable),
    /// Something killed the process that was making the container.
    #[error("the process that was making the container was killed")]
    Killed,
    /// A bug.
    #[error("internal error")]
    Panicked,
}

impl CreateError {
    pub(super) fn file(operation: &'static str, path: impl Into<PathBuf>) -> impl FnOnce(io::Error) -> Self {
        let path = path.into();
        move |source| Self::File { operation, path, source }
    }

    pub(super) fn system(operation: &'static str) -> impl FnOnce(io::Error) -> Self {
        move |source| Self::System { operation, source }
    }

    /// What the supervisor is told.
    pub(super) fn report(&self) -> ChildReport {
        match self {
            Self::Program(report) => report.clone(),
            Self::NotRunnable(error) => error.report(),
            other => ChildReport::Failed { code: 128, reason: "StartError".to_owned(), message: chain(other) },
        }
    }
}

/// The whole chain of causes in one line.
pub(super) fn chain(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        let message = error.to_string();
        // Some of libcontainer's errors already print their cause.
        if !text.ends_with(&message) {
            text.push_str(": ");
            text.push_str(&message);
        }
        cause = error.source();
    }
    text
}
