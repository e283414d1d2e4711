//! Everything that can wake the loop.

use super::manifests::ManifestEvent;
use crate::model::action::{ActionKey, Outcome};
use crate::model::{ContainerId, PodUid};
use crate::runtime::client::Heard;
use crate::server::Command;
use std::net::IpAddr;

/// One thing that wakes the loop.
#[derive(Debug)]
pub(super) enum Input {
    /// The manifest folder was read again.
    Manifests(ManifestEvent),
    /// The supervisor says something.
    Heard(Heard),
    /// An ended attempt's termination message was read.
    Message {
        /// Whose.
        pod: PodUid,
        /// Which attempt.
        id: ContainerId,
        /// The message.
        message: Option<String>,
    },
    /// An action ended.
    Ended(Ended),
    /// The journal has committed.
    Committed {
        /// Everything up to this number.
        number: u64,
        /// Why the store is not whole, if it is not.
        degraded: Option<String>,
    },
    /// A deadline has come.
    LookAtDue,
    /// The set of images may have changed.
    LookAtAll,
    /// The node's addresses as they are now, the primary one first.
    Addresses(Vec<IpAddr>),
    /// What the machine lacks, as conditions of the node: a word and a sentence.
    Machine(Vec<(String, String)>),
    /// Somebody asks for something over the API.
    Command(Command),
    /// A process of armlet panicked: one of this agent's threads or tasks, or one before it whose panic was kept.
    Panicked(String),
    /// The agent itself is to end; containers go on.
    Stop,
}

/// An action that ended.
#[derive(Debug)]
pub(super) struct Ended {
    /// Whose.
    pub(super) uid: PodUid,
    /// Which.
    pub(super) key: ActionKey,
    /// How.
    pub(super) outcome: Outcome,
}
