//! What the supervisor and its logger say to each other, one JSON message per datagram.

use crate::model::supervise::LogLimits;
use crate::model::{ContainerId, PodUid};
use crate::sys::log;
use serde::{Deserialize, Serialize};

/// From the supervisor to the logger.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", tag = "type")]
pub(crate) enum Order {
    /// How logs are kept from now on.
    Limits(LogLimits),
    /// Write what a container says. Descriptors beside it: its terminal, or its standard output and standard error.
    Open {
        /// The attempt's id.
        id: ContainerId,
        /// Its pod: pods get the same share of the logger's time.
        pod: PodUid,
        /// The file to append to.
        path: String,
        /// For each output, whether another descriptor follows behind all those: a memory file with the line that an
        /// earlier logger had begun to read.
        #[serde(default)]
        halves: [bool; 2],
    },
    /// The container has ended: write what is left and let go of it.
    Finish {
        /// Which container.
        id: ContainerId,
    },
    /// Give back what is not written and end: another build of the logger follows.
    Leave,
}

/// From the logger to the supervisor.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", tag = "type")]
pub(crate) enum Report {
    /// All of the container's output is written.
    Drained {
        /// Which container.
        id: ContainerId,
    },
    /// Output that could not be kept.
    Dropped {
        /// Which container.
        id: ContainerId,
        /// Bytes since this was last said.
        bytes: u64,
    },
    /// A line that has begun, of a logger that leaves: in the memory file beside it.
    Half {
        /// Which container.
        id: ContainerId,
        /// Which of its outputs, 0 or 1.
        index: usize,
    },
    /// The logger's own log: the supervisor keeps it with its own.
    Said {
        /// Whole lines.
        text: String,
    },
}

/// Bytes of the logger's own log that are kept until the supervisor has them.
pub(crate) const OWN_LOG: usize = 8 * 1024;

/// What the logger has logged since it last told.
pub(crate) fn said(told: &mut u64) -> Option<Report> {
    let log::Lines { text, next, .. } = log::lines_after(*told, OWN_LOG);
    *told = next;
    (!text.is_empty()).then_some(Report::Said { text })
}
