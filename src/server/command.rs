//! What the server asks of the agent. Each command carries the way back for its answer; a dropped answer channel
//! means that nobody waits for it any more.

use crate::model::api::{GroupUsage, Image, ImportProgress, LogLevels, PodVerb, Removed, Stats};
use crate::model::log::LogLevel;
use crate::model::supervise::{ExecExit, ExecSpec, RefusalCode};
use std::os::fd::OwnedFd;
use std::path::PathBuf;
use tokio::sync::{mpsc, oneshot};

/// One thing to do.
#[derive(Debug)]
pub enum Command {
    /// Run a program in a running container.
    Exec {
        /// What and where.
        spec: ExecSpec,
        /// The session, or why there is none.
        reply: oneshot::Sender<Result<ExecSession, Refusal>>,
    },
    /// Set the window size of a session's terminal. Unknown sessions are ignored: it may just have ended.
    ResizeExec {
        /// Which session.
        session: u64,
        /// Columns.
        width: u16,
        /// Rows.
        height: u16,
    },
    /// Kill a session's processes: its client is gone. Unknown sessions are ignored.
    KillExec {
        /// Which session.
        session: u64,
    },
    /// List the images.
    Images {
        /// They, in any order.
        reply: oneshot::Sender<Result<Vec<Image>, Refusal>>,
    },
    /// Import images. The last message is `Done` or `Failed`. A closed channel does not stop the import.
    Import {
        /// Absolute path of an archive or an OCI layout folder.
        path: PathBuf,
        /// How it goes.
        progress: mpsc::Sender<ImportProgress>,
    },
    /// armlet's own log.
    Log {
        /// What was read before.
        after: LogMark,
        /// Wait until there is something.
        wait: bool,
        /// What there is.
        reply: oneshot::Sender<LogPart>,
    },
    /// What armlet logs about itself.
    LogLevel {
        /// From now on; none: it stays.
        set: Option<LogLevel>,
        /// As it is then.
        reply: oneshot::Sender<LogLevels>,
    },
    /// Figures about armlet itself.
    Stats {
        /// They.
        reply: oneshot::Sender<Result<Stats, Refusal>>,
    },
    /// What control groups use.
    Usage {
        /// Their names below the mount.
        groups: Vec<String>,
        /// In the same order; nothing for one that is gone.
        reply: oneshot::Sender<Result<Vec<Option<GroupUsage>>, Refusal>>,
    },
    /// Take an image's name away, and the image with its last one; without a name all images that no pod needs.
    RemoveImages {
        /// A reference or an id.
        name: Option<String>,
        /// What was removed.
        reply: oneshot::Sender<Result<Removed, Refusal>>,
    },
    /// Stop a pod, or start it anew.
    Pod {
        /// Its namespace.
        namespace: String,
        /// Its full name.
        name: String,
        /// Which of both.
        verb: PodVerb,
        /// Answered once it has ended.
        reply: oneshot::Sender<Result<(), Refusal>>,
    },
}

/// How far armlet's own log was read.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct LogMark {
    /// The number of the agent's last line.
    pub agent: u64,
    /// The number of the supervisor's last line.
    pub supervisor: u64,
    /// Which supervisor counted so.
    pub supervisor_pid: u32,
    /// The kept panics were read.
    pub panics: bool,
}

/// A part of armlet's own log.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct LogPart {
    /// The lines of each role and of each kept panic, as [`crate::model::log`] tells.
    pub parts: Vec<String>,
    /// How far they go.
    pub mark: LogMark,
}

/// A running exec session.
#[derive(Debug)]
pub struct ExecSession {
    /// The session's number.
    pub session: u64,
    /// With a terminal its master; else the write end of standard input if it was asked for, then the read ends of
    /// standard output and standard error.
    pub fds: Vec<OwnedFd>,
    /// How it ends. A dropped sender means that it is not known.
    pub exit: oneshot::Receiver<ExecExit>,
}

/// Why something was not done.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct Refusal {
    /// Machine-readable cause.
    pub code: RefusalCode,
    /// For people: operation, object, cause.
    pub message: String,
}

impl Refusal {
    /// The agent does not answer.
    pub(super) fn gone() -> Self {
        Self { code: RefusalCode::System, message: "the agent is stopping and did not answer".to_owned() }
    }
}
