//! One pod as the loop holds it.

use super::words::LastWords;
use crate::model::BootTime;
use crate::model::action::{Action, ActionKey};
use crate::model::observed::{Durable, Facts, InFlight};
use crate::model::pod::Pod;
use crate::store::MAX_FACT;
use serde::{Deserialize, Serialize};
use serde_json::Value;
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

/// What the store keeps of a pod, as it was read. A neighbouring version may have written it: a part that this one does
/// not understand does not cost the other.
#[derive(Debug, Default)]
pub(super) struct Saved {
    /// Counts pods in order of arrival; 0 if that is not known.
    pub(super) arrival: u64,
    /// What it is to be.
    pub(super) pod: Option<Pod>,
    /// What a reboot keeps.
    pub(super) durable: Option<Durable>,
    /// What could not be understood.
    pub(super) faults: Vec<serde_json::Error>,
}

impl Saved {
    /// Reads what [`Slot::saved`] wrote.
    pub(super) fn read(bytes: &[u8]) -> Self {
        #[derive(Deserialize)]
        #[serde(default)]
        #[derive(Default)]
        struct Parts {
            arrival: Value,
            pod: Value,
            durable: Value,
        }
        let mut saved = Self::default();
        let parts = serde_json::from_slice(bytes).map_err(|error| saved.faults.push(error));
        let Parts { arrival, pod, durable } = parts.unwrap_or_default();
        if saved.faults.is_empty() {
            saved.arrival = arrival.as_u64().unwrap_or(0);
            saved.pod = serde_json::from_value(pod).map_err(|error| saved.faults.push(error)).ok();
            saved.durable = serde_json::from_value(durable).map_err(|error| saved.faults.push(error)).ok();
        }
        saved
    }
}

/// The same, to be written.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct Saving<'a> {
    arrival: u64,
    pod: &'a Pod,
    durable: &'a Durable,
    #[cfg(feature = "other-build")]
    unheard_of: u32,
}

/// Bytes that what is remembered of a pod may take beside the pod itself: its last status with all messages, and of each
/// container two ends. A pod whose containers say more than that in escaped characters is told as a condition of the
/// node when it comes to that.
const MEMORY: usize = 256 << 10;
const MEMORY_OF_A_CONTAINER: usize = 16 << 10;

/// Whether a pod is too large to be remembered: how many bytes it may have, and how many it has.
pub(super) fn too_large(pod: &Pod) -> Option<(usize, usize)> {
    let containers = pod.spec.init_containers.len().saturating_add(pod.spec.containers.len());
    let memory = containers.saturating_mul(MEMORY_OF_A_CONTAINER).saturating_add(MEMORY);
    let most = MAX_FACT.saturating_sub(memory);
    let saving = Saving {
        arrival: u64::MAX,
        pod,
        durable: &Durable::default(),
        #[cfg(feature = "other-build")]
        unheard_of: 0,
    };
    let size = serde_json::to_vec(&saving).map_or(0, |bytes| bytes.len());
    (size > most).then_some((most, size))
}

impl Slot {
    /// The bytes that the store keeps; none for found remains, of which nothing is known.
    pub(super) fn saved(&self) -> Option<Vec<u8>> {
        let pod = self.pod.as_deref()?;
        let saving = Saving {
            arrival: self.arrival,
            pod,
            durable: &self.facts.durable,
            #[cfg(feature = "other-build")]
            unheard_of: 1,
        };
        // Maps with text keys and plain numbers: there is nothing that serde_json could refuse.
        serde_json::to_vec(&saving).ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::observed::Record;
    use crate::wire::{self, NodeIdentity};

    fn slot() -> Slot {
        let manifest = "apiVersion: v1\nkind: Pod\nmetadata: {name: web}\nspec: {containers: [{name: c, image: i}]}\n";
        let pod = wire::parse(manifest.as_bytes(), "/m/web.yaml", &NodeIdentity::new("edge1")).pods.remove(0);
        let mut slot = Slot { pod: Some(Arc::new(pod)), arrival: 7, ..Slot::default() };
        let durable = &mut slot.facts.durable;
        (durable.nonce, durable.sandbox) = (9, Some(3));
        let record = Record {
            attempt: 4,
            id: crate::model::ContainerId::from_bits(1),
            sandbox: 3,
            started_at: None,
            image: "i".into(),
            image_id: "sha256:i".into(),
            ended: None,
            interrupted: true,
            before: None,
        };
        durable.containers.insert("c".into(), Box::new(record));
        slot
    }

    fn saved(change: impl FnOnce(&mut Value)) -> Saved {
        let mut value = serde_json::from_slice(&slot().saved().unwrap()).unwrap();
        change(&mut value);
        Saved::read(&serde_json::to_vec(&value).unwrap())
    }

    #[test]
    fn what_was_saved_is_read() {
        let read = saved(|_| {});
        assert!(read.faults.is_empty(), "{:?}", read.faults);
        assert_eq!(
            (read.arrival, read.pod.as_ref(), read.durable),
            (7, slot().pod.as_deref(), Some(slot().facts.durable))
        );
    }

    /// The next version adds a field; the one before did not have it.
    #[test]
    fn neighbouring_versions_understand_each_other() {
        let newer = saved(|value| {
            for at in ["", "/pod", "/pod/spec", "/pod/spec/containers/0", "/durable", "/durable/containers/c"] {
                value.pointer_mut(at).unwrap()["ofTomorrow"] = serde_json::json!({"any": [1]});
            }
        });
        assert!(newer.faults.is_empty(), "{:?}", newer.faults);
        assert_eq!((newer.pod.as_ref(), newer.durable), (slot().pod.as_deref(), Some(slot().facts.durable)));
        let older = saved(|value| {
            let gone = |value: &mut Value, at: &str, names: &[&str]| {
                let object = value.pointer_mut(at).unwrap().as_object_mut().unwrap();
                names.iter().for_each(|name| assert!(object.remove(*name).is_some(), "{name}"));
            };
            gone(value, "", &["arrival"]);
            gone(value, "/durable", &["nonce", "address"]);
            gone(value, "/durable/containers/c", &["interrupted", "before"]);
            gone(value, "/pod", &["labels", "annotations", "manifest"]);
            gone(value, "/pod/spec", &["sysctls", "host_aliases", "overhead", "priority", "host_network", "dns"]);
            gone(value, "/pod/spec/containers/0", &["env", "tty", "security", "resources", "stdin_once"]);
        });
        assert!(older.faults.is_empty(), "{:?}", older.faults);
        let record = &older.durable.as_ref().unwrap().containers["c"];
        assert_eq!((record.attempt, record.interrupted), (4, false));
        assert_eq!(older.pod.unwrap().spec.containers[0].env, []);
    }

    #[test]
    fn what_is_not_understood_does_not_cost_the_rest() {
        let read = saved(|value| value["pod"]["spec"]["restart_policy"] = "Sometimes".into());
        assert_eq!((read.faults.len(), read.pod, read.durable), (1, None, Some(slot().facts.durable)));
        let read = saved(|value| value["durable"]["sandbox"] = "three".into());
        assert_eq!((read.faults.len(), read.pod.as_ref(), read.durable), (1, slot().pod.as_deref(), None));
        let read = saved(|value| *value = serde_json::json!({"durable": {}}));
        assert_eq!((read.faults.len(), read.pod, read.durable), (1, None, Some(Durable::default())));
        for bytes in [&b""[..], b"[]", b"{\"pod\":", b"\xff"] {
            let read = Saved::read(bytes);
            assert!(!read.faults.is_empty() && read.pod.is_none() && read.durable.is_none(), "{bytes:?}");
        }
    }
}
