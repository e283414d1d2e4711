//! One build hands over to another in place: what is written down for it, and how it is read. Pure but for
//! [`claims`], which takes the descriptors over, and [`look_over`], the role that only reads.
//!
//! The way of an upgrade, and of its roll-back:
//! 1. Somebody offers a program (`Ask::HandOver`). It is started as a child that gets the [`Document`] of that moment,
//!    reads and checks all of it, and answers with its build. Whatever else happens is a refusal.
//! 2. The supervisor writes the document anew and executes the program: same process, same children, same descriptors.
//! 3. The new program takes the descriptors over and goes on. If it cannot, it executes the program that the document
//!    came from, with the very same document and the reason as an argument.
//!
//! The document is JSON. Fields are only added, with defaults, and unknown ones are ignored, so that neighbouring
//! versions read each other's; what cannot be said that way raises [`FORMAT`]. A document of `v1.json` has to be read
//! for as long as there are nodes to be upgraded from it.

pub(crate) mod claims;
pub(crate) mod look_over;

use super::init::Node;
use super::link::HandedLinks;
use super::logs::HandedLogs;
use super::sandbox::HandedNamespaces;
use super::streams::HandedReport;
use super::table::{Asker, Table};
use crate::model::supervise::SandboxSpec;
use crate::model::{BootTime, ContainerId, PodUid};
use rustix::fd::{AsRawFd, RawFd};
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};
use std::io::{self, Read as _};
use std::path::PathBuf;

/// The version of the document.
pub(crate) const FORMAT: u32 = if cfg!(feature = "other-build") { 2 } else { 1 };
/// The largest document that is read: a thousand containers and as many unsent answers take a few MiB.
const MAX_DOCUMENT: u64 = 64 << 20;
/// Descriptors below are the standard streams, which stay without being handed.
const FIRST: i32 = 3;

/// A descriptor by its number, which it keeps.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(transparent)]
pub(crate) struct Number(pub(crate) RawFd);

impl Number {
    pub(crate) fn of(fd: &impl AsRawFd) -> Self {
        Self(fd.as_raw_fd())
    }
}

/// Why a document is not taken.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Why {
    /// It could not be read.
    #[error("read the hand-over document")]
    Read(#[source] io::Error),
    /// It is too large.
    #[error("the hand-over document has more than {MAX_DOCUMENT} bytes")]
    TooLarge,
    /// It is no document.
    #[error("understand the hand-over document")]
    Parse(#[source] serde_json::Error),
    /// It is from a version too far away.
    #[error("the hand-over document has format {0}, and this build reads {least} to {most}", least = FORMAT - 1, most = FORMAT + 1)]
    Format(u32),
    /// A descriptor has two owners, or one that is not among those that are handed.
    #[error("descriptor {} in the hand-over document is not one that is handed once", .0.0)]
    Descriptor(Number),
    /// A descriptor is not there.
    #[error("descriptor {} is not open", .0.0)]
    Closed(Number),
    /// The table cannot be one.
    #[error("the handed table has {0}")]
    Table(&'static str),
    /// It is process 1's, or not, and this process is the other.
    #[error("the hand-over document is another process'")]
    Process,
    /// The program that is to go on is not whole.
    #[error("this program's file is cut short")]
    CutShort,
    /// A system call failed.
    #[error("{0}")]
    System(&'static str, #[source] io::Error),
    /// Asked for by a test.
    #[cfg(feature = "other-build")]
    #[error("made to fail")]
    Made,
}

/// The part of a document that leads back to the program that wrote it. Never changed.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct Back {
    /// The program that wrote this.
    pub(crate) from: Number,
    /// Every descriptor that is handed.
    pub(crate) numbers: BTreeSet<Number>,
}

/// Everything that one build hands to another.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Document {
    /// [`FORMAT`] of the build that wrote it.
    pub(crate) format: u32,
    /// That build.
    pub(crate) build: String,
    #[serde(flatten)]
    pub(crate) back: Back,
    /// The program that is to go on.
    pub(crate) to: Number,
    /// The build that is to go on, as far as it is known.
    #[serde(default)]
    pub(crate) offered: String,
    /// Who asked for it.
    #[serde(default)]
    pub(crate) asker: Option<Asker>,
    /// How often it came to this before.
    #[serde(default)]
    pub(crate) hand_overs: u64,
    /// The run folder.
    pub(crate) run: PathBuf,
    /// Where cgroup v2 is mounted.
    pub(crate) cgroup: PathBuf,
    /// The data folder.
    #[serde(default = "crate::supervisor::data_folder")]
    pub(crate) data: PathBuf,
    /// The lock against a second supervisor.
    pub(crate) lock: Number,
    /// The socket on which agents connect.
    pub(crate) listener: Number,
    #[serde(default)]
    pub(crate) table: Table,
    #[serde(default)]
    pub(crate) links: HandedLinks,
    #[serde(default)]
    pub(crate) logs: HandedLogs,
    #[serde(default)]
    pub(crate) namespaces: BTreeMap<PodUid, HandedNamespaces>,
    #[serde(default)]
    pub(crate) helpers: BTreeMap<PodUid, HandedHelper>,
    #[serde(default)]
    pub(crate) starting: BTreeMap<ContainerId, HandedStarting>,
    #[serde(default)]
    pub(crate) stdins: BTreeMap<ContainerId, Number>,
    #[serde(default)]
    pub(crate) emptying: BTreeMap<ContainerId, Number>,
    #[serde(default)]
    pub(crate) sessions: BTreeMap<u64, HandedStreams>,
    #[serde(default)]
    pub(crate) left_groups: BTreeMap<u64, HandedGroup>,
    #[serde(default)]
    pub(crate) stale_groups: BTreeSet<String>,
    #[serde(default)]
    pub(crate) stale_at: Option<BootTime>,
    #[serde(default)]
    pub(crate) changed: BTreeSet<ContainerId>,
    #[serde(default)]
    pub(crate) creates: u64,
    #[serde(default)]
    pub(crate) orphans: u64,
    /// Children that looked a document over, and their cgroups.
    #[serde(default)]
    pub(crate) lookers: BTreeMap<u32, String>,
    #[serde(default)]
    pub(crate) node: Node,
    /// The last lines of the own log.
    #[serde(default)]
    pub(crate) log: HandedLog,
    /// What no other build knows of.
    #[cfg(feature = "other-build")]
    #[serde(default)]
    pub(crate) unheard_of: BTreeMap<String, Vec<u64>>,
}

/// The own log, from memory.
#[derive(Debug, Default, Serialize, Deserialize)]
pub(crate) struct HandedLog {
    /// Whole lines.
    pub(crate) text: String,
    /// The number of the last one.
    pub(crate) next: u64,
}

/// A helper that makes a pod's namespaces.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct HandedHelper {
    pub(crate) socket: Number,
    pub(crate) spec: SandboxSpec,
}

/// A container that is being created.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct HandedStarting {
    pub(crate) report: HandedReport,
    #[serde(default)]
    pub(crate) console: Option<Number>,
}

/// An exec session.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct HandedStreams {
    pub(crate) cgroup: String,
    #[serde(default)]
    pub(crate) report: Option<HandedReport>,
    #[serde(default)]
    pub(crate) console: Option<Number>,
    #[serde(default)]
    pub(crate) stdin: Option<Number>,
    #[serde(default)]
    pub(crate) outputs: Vec<Number>,
    #[serde(default)]
    pub(crate) terminal: bool,
    #[serde(default)]
    pub(crate) size: Option<(u16, u16)>,
}

/// The cgroup of a session that is over.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct HandedGroup {
    pub(crate) cgroup: String,
    pub(crate) events: Number,
}

impl Document {
    /// Reads a document and checks all that can be checked without a descriptor.
    ///
    /// # Errors
    /// [`Why`] not.
    pub(crate) fn read(text: &[u8]) -> Result<Self, Why> {
        #[derive(Deserialize)]
        struct Format {
            format: u32,
        }
        // Before the rest: of a version too far away nothing else is sure to be understood.
        let Format { format } = serde_json::from_slice(text).map_err(Why::Parse)?;
        if format.abs_diff(FORMAT) > 1 {
            return Err(Why::Format(format));
        }
        let mut document: Self = serde_json::from_slice(text).map_err(Why::Parse)?;
        let mut seen = BTreeSet::new();
        for number in document.owned() {
            if number.0 < FIRST || !document.back.numbers.contains(&number) || !seen.insert(number) {
                return Err(Why::Descriptor(number));
            }
        }
        document.table.settle_in().map_err(Why::Table)?;
        Ok(document)
    }

    /// Names all descriptors as handed, and writes the document down.
    ///
    /// # Errors
    /// Of serde, which has no reason for one.
    pub(crate) fn write(mut self) -> serde_json::Result<(Vec<u8>, BTreeSet<Number>)> {
        self.back.numbers = self.owned().into_iter().collect();
        Ok((serde_json::to_vec(&self)?, self.back.numbers))
    }

    /// Every descriptor that somebody in the document has.
    fn owned(&self) -> Vec<Number> {
        let mut all = vec![self.back.from, self.to, self.lock, self.listener];
        all.extend(self.links.numbers());
        all.extend(self.logs.numbers());
        all.extend(self.namespaces.values().flat_map(HandedNamespaces::numbers));
        all.extend(self.helpers.values().map(|h| h.socket));
        for s in self.starting.values() {
            all.push(s.report.pipe);
            all.extend(s.console);
        }
        all.extend(self.stdins.values().chain(self.emptying.values()));
        for s in self.sessions.values() {
            all.extend(s.report.iter().map(|r| r.pipe).chain(s.console).chain(s.stdin));
            all.extend(&s.outputs);
        }
        all.extend(self.left_groups.values().map(|g| g.events));
        all
    }
}

/// The whole text of a document.
///
/// # Errors
/// [`Why::Read`], [`Why::TooLarge`].
pub(crate) fn text_of(file: &std::fs::File) -> Result<Vec<u8>, Why> {
    use std::io::Seek as _;
    let mut text = Vec::new();
    let mut file = file;
    file.rewind().and_then(|()| file.take(MAX_DOCUMENT + 1).read_to_end(&mut text)).map_err(Why::Read)?;
    if u64::try_from(text.len()).is_ok_and(|len| len <= MAX_DOCUMENT) { Ok(text) } else { Err(Why::TooLarge) }
}

/// What the feature `other-build` lets a test ask for by a file in the run folder; nothing in other builds.
#[cfg(feature = "other-build")]
pub(crate) fn made_to(what: &str, run: &std::path::Path) -> bool {
    std::fs::read_to_string(run.join("hand-over-test")).is_ok_and(|text| text.trim() == what)
}

#[cfg(test)]
mod tests;
