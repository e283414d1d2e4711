//! One pod as the loop holds it.

use super::words::LastWords;
use crate::model::BootTime;
use crate::model::action::{Action, ActionKey};
use crate::model::observed::{Durable, Facts, InFlight};
use crate::model::pod::Pod;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::sync::Arc;
use tokio::task::AbortHandle;

/// One pod: what it is to be, what is remembered of it, and what is being done for it.
#[derive(Debug, Default)]
pub(super) struct Slot {
    /// What it is to be; kept while it is being stopped. Absent: found remains.
    pub(super) pod: Option<Arc<Pod>>,
    /// Whether a source wants it now.
    pub(super) desired: bool,
    /// Counts pods in order of arrival.
    pub(super) arrival: u64,
    /// What is remembered.
    pub(super) facts: Facts,
    /// Actions under way.
    pub(super) flights: BTreeMap<ActionKey, Flight>,
    /// Termination messages of ended attempts.
    pub(super) words: LastWords,
    /// When to look again.
    pub(super) wake_at: Option<BootTime>,
    /// The journal's commit that holds all of `facts.durable`.
    pub(super) written: u64,
    /// The journal's commit that must be done before the status is shown.
    pub(super) hold_until: u64,
}

/// An action under way.
#[derive(Debug)]
pub(super) struct Flight {
    pub(super) action: Action,
    pub(super) since: BootTime,
    pub(super) cancelled: bool,
    pub(super) abort: AbortHandle,
}

impl Slot {
    /// The actions under way, as the plan wants to see them.
    pub(super) fn in_flight(&self) -> Vec<InFlight> {
        let seen = |(key, flight): (&ActionKey, &Flight)| InFlight {
            key: key.clone(),
            since: flight.since,
            cancelled: flight.cancelled,
        };
        self.flights.iter().map(seen).collect()
    }

    /// Takes an ended action out; none if it is not under way any more.
    pub(super) fn land(&mut self, key: &ActionKey) -> Option<Action> {
        self.flights.remove(key).map(|flight| flight.action)
    }
}

/// What the store keeps of a pod, to be read.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Saved {
    /// Counts pods in order of arrival.
    #[serde(default)]
    pub(super) arrival: u64,
    /// What it is to be.
    pub(super) pod: Pod,
    /// What a reboot keeps.
    pub(super) durable: Durable,
}

/// The same, to be written.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct Saving<'a> {
    arrival: u64,
    pod: &'a Pod,
    durable: &'a Durable,
}

impl Slot {
    /// The bytes that the store keeps; none for found remains, of which nothing is known.
    pub(super) fn saved(&self) -> Option<Vec<u8>> {
        let pod = self.pod.as_deref()?;
        let saving = Saving { arrival: self.arrival, pod, durable: &self.facts.durable };
        // Maps with text keys and plain numbers: there is nothing that serde_json could refuse.
        serde_json::to_vec(&saving).ok()
    }
}
