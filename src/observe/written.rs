//! Bytes written to disks over armlet's lifetime, by part.
//!
//! The kernel counts: for the agent's process what it has written itself, for the thread of an import what that has, for
//! the logger's process, and for the group of all pods what their containers have. Each counter begins at nothing with
//! its process or with a boot; a ledger adds up what each has grown by. It is kept when something else was written
//! anyway, so that counting writes nothing while the node is quiet: what was counted since then is lost with the power.

use crate::model::api::Written;
use crate::sys::accounting::{self, Process};
use crate::sys::log::chain;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Mutex, PoisonError};

/// The fact's name in the store.
pub const FACT: &str = "bytes-written";

/// The file in which the kernel counts for the group of all pods, ended ones included.
const PODS: &str = "/sys/fs/cgroup/kubepods/io.stat";

/// The kernel's major number of loop devices: what is written to one is written to the disk below it, too.
const LOOP: &str = "7";

/// A part of armlet.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
enum Part {
    Store,
    Images,
    Logs,
    Volumes,
}

/// A counter as it was read.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
struct Counter {
    /// With another one the counter has begun anew.
    epoch: String,
    bytes: u64,
}

/// What has been added up.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default)]
struct Ledger {
    total: Written,
    last: BTreeMap<Part, Counter>,
}

impl Ledger {
    /// Adds what the counters have grown by.
    fn take(&mut self, read: BTreeMap<Part, Counter>) {
        for (part, now) in read {
            let before = self.last.get(&part).filter(|last| last.epoch == now.epoch && last.bytes <= now.bytes);
            let grown = now.bytes.saturating_sub(before.map_or(0, |last| last.bytes));
            let total = match part {
                Part::Store => &mut self.total.store,
                Part::Images => &mut self.total.images,
                Part::Logs => &mut self.total.logs,
                Part::Volumes => &mut self.total.volumes,
            };
            *total = total.saturating_add(grown);
            self.last.insert(part, now);
        }
    }
}

/// The ledger of this node.
#[derive(Debug)]
pub struct Ledgers {
    boot_id: String,
    ledger: Mutex<Ledger>,
    /// 0: not known.
    logger: AtomicU32,
}

impl Ledgers {
    /// Goes on with what was kept, if it is there and can be understood.
    #[must_use]
    pub fn new(boot_id: String, kept: Option<&[u8]>) -> Self {
        let ledger = kept.map(serde_json::from_slice).transpose().unwrap_or_else(|error| {
            tracing::warn!("what was written before is not known: {}", chain(&error));
            None
        });
        Self { boot_id, ledger: Mutex::new(ledger.unwrap_or_default()), logger: AtomicU32::new(0) }
    }

    /// Tells which process is the logger.
    pub fn logger_is(&self, pid: Option<u32>) {
        self.logger.store(pid.unwrap_or(0), Ordering::Relaxed);
    }

    /// Reads the counters. `images` is what this process's imports have written.
    pub fn count(&self, images: u64) -> Written {
        let read = self.read(images);
        let mut ledger = self.ledger.lock().unwrap_or_else(PoisonError::into_inner);
        ledger.take(read);
        ledger.total
    }

    /// The ledger as it is to be kept, with what was counted last.
    #[must_use]
    pub fn to_keep(&self) -> Vec<u8> {
        let ledger = self.ledger.lock().unwrap_or_else(PoisonError::into_inner);
        // Plain numbers and texts: there is nothing that serde_json could refuse.
        serde_json::to_vec(&*ledger).unwrap_or_default()
    }

    fn read(&self, images: u64) -> BTreeMap<Part, Counter> {
        let process = |of: Process| Some(format!("{} {}", self.boot_id, accounting::start_time(of)?));
        let own = process(Process::Own);
        let mut read = BTreeMap::new();
        if let (Some(epoch), Some(bytes)) = (own, accounting::bytes_written(Process::Own)) {
            read.insert(Part::Store, Counter { epoch: epoch.clone(), bytes: bytes.saturating_sub(images) });
            read.insert(Part::Images, Counter { epoch, bytes: images });
        }
        let logger = Some(self.logger.load(Ordering::Relaxed)).filter(|pid| *pid != 0).map(Process::Pid);
        if let Some(logger) = logger
            && let (Some(epoch), Some(bytes)) = (process(logger), accounting::bytes_written(logger))
        {
            read.insert(Part::Logs, Counter { epoch, bytes });
        }
        if let Ok(text) = std::fs::read_to_string(PODS) {
            read.insert(Part::Volumes, Counter { epoch: self.boot_id.clone(), bytes: group_written(&text) });
        }
        read
    }
}

/// What all devices of an `io.stat` were written.
fn group_written(text: &str) -> u64 {
    let device = |line: &str| {
        let (device, rest) = line.split_once(' ')?;
        let counts = device.split_once(':').is_some_and(|(major, _)| major != LOOP);
        let bytes = rest.split(' ').find_map(|word| word.strip_prefix("wbytes=")?.parse::<u64>().ok())?;
        counts.then_some(bytes)
    };
    text.lines().filter_map(device).fold(0, u64::saturating_add)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn counter(epoch: &str, bytes: u64) -> Counter {
        Counter { epoch: epoch.to_owned(), bytes }
    }

    #[test]
    fn what_counters_grow_by_is_added_up() {
        let mut ledger = Ledger::default();
        for (epoch, bytes, total) in [
            ("a", 100, 100),
            ("a", 100, 100),
            ("a", 130, 130),
            // Another process, or another boot.
            ("b", 20, 150),
            ("b", 25, 155),
            // A counter that has gone back has begun anew, whatever its epoch says.
            ("b", 5, 160),
            ("b", u64::MAX, u64::MAX),
        ] {
            ledger.take([(Part::Logs, counter(epoch, bytes))].into());
            assert_eq!(ledger.total.logs, total, "{epoch} {bytes}");
        }
        assert_eq!(Written { logs: 0, ..ledger.total }, Written::default());
    }

    #[test]
    fn a_counter_that_cannot_be_read_now_goes_on_later() {
        let mut ledger = Ledger::default();
        ledger.take([(Part::Store, counter("a", 10)), (Part::Volumes, counter("v", 7))].into());
        ledger.take([(Part::Store, counter("a", 12))].into());
        ledger.take([(Part::Store, counter("a", 12)), (Part::Volumes, counter("v", 9))].into());
        assert_eq!((ledger.total.store, ledger.total.volumes), (12, 9));
    }

    #[test]
    fn what_is_kept_is_gone_on_with() {
        let first = Ledgers::new("boot".to_owned(), None);
        let before = first.count(0);
        let second = Ledgers::new("boot".to_owned(), Some(&first.to_keep()));
        let after = second.count(0);
        // The same process, the same boot: nothing is counted twice.
        assert!(after.store >= before.store && after.store <= before.store + (64 << 20), "{before:?} {after:?}");
        assert_eq!(
            Ledgers::new("boot".to_owned(), Some(b"noise")).to_keep(),
            Ledgers::new(String::new(), None).to_keep()
        );
    }

    #[test]
    fn all_disks_are_counted_once() {
        let text = "254:0 rbytes=1 wbytes=4096 rios=1 wios=1 dbytes=0 dios=0\n7:0 rbytes=0 wbytes=512 rios=0 wios=1\n\
                    8:16 rbytes=0 wbytes=1000\n9:0\nnoise\n";
        assert_eq!(group_written(text), 5096);
        assert_eq!(group_written(""), 0);
    }
}
