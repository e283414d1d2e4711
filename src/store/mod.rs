//! Durable facts: small opaque values, one per pod and a few for the node. The only importer of sled; knows no
//! Kubernetes rules and not what the bytes mean.
//!
//! All facts live in memory; [`Store::put_pod`] and its like change only memory, [`Store::commit`] makes every change
//! since the last one durable. Each fact lies twice on the disk:
//! - in a checked file (`fact_file.rs`), synced first: this is what a commit promises;
//! - in sled (`tree.rs`), which follows when [`Store::settle`] is called, and may lag behind after a power cut.
//!
//! Each fact of the node has a file by its name. A pod's fact lies in any of the numbered files: when the pod goes, a
//! newer record says so, and the next pod takes the file over. The newest whole record of a file is what it holds.
//!
//! When both are read, the higher whole generation wins. An epoch, kept in a file and in sled, tells an empty database
//! from a lost or an outdated one. What cannot be read is renamed to `*.damaged-<n>`, never deleted, and the store
//! opens whatever it finds. A full or failing disk leaves the facts in memory; each later commit tries again.
//!
//! Nothing is written unless a commit has something to write.

mod disk;
mod fact_file;
mod record;
#[cfg(test)]
mod tests;
mod tree;

use crate::model::ids::PodUid;
use disk::Disk;
use std::collections::BTreeMap;
use std::ffi::OsString;
use std::io;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

pub use tree::TreeError;

/// The greatest fact in bytes.
pub const MAX_FACT: usize = record::MAX_PAYLOAD;

/// A stored value.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Fact {
    /// Grows with every change of any fact; tells which of two copies is newer.
    pub generation: u64,
    /// As it was put.
    pub bytes: Arc<[u8]>,
}

/// Why a fact was not taken.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub enum PutError {
    /// Longer than [`MAX_FACT`].
    #[error("fact {name} has {len} bytes, more than {MAX_FACT}")]
    TooLarge {
        /// Which fact.
        name: String,
        /// Its length.
        len: usize,
    },
    /// Names of node facts are 1 to 64 of a-z, 0-9 and '-'.
    #[error("fact name {name:?} is not 1 to 64 of a-z, 0-9 and '-'")]
    Name {
        /// As given.
        name: String,
    },
}

/// Why a commit did not make every fact durable. They stay in memory, and the next commit tries again.
#[derive(Debug, thiserror::Error)]
#[error("cannot {operation} {}", path.display())]
pub struct CommitError {
    /// What was tried.
    pub operation: &'static str,
    /// On which path.
    pub path: PathBuf,
    /// The kernel's answer.
    #[source]
    pub source: io::Error,
}

/// What was wrong when the store was opened, and what was done about it.
#[derive(Debug, thiserror::Error)]
pub enum Problem {
    /// A folder or file could not be reached; the store works from what else there is.
    #[error("cannot {operation} {}", path.display())]
    Io {
        /// What was tried.
        operation: &'static str,
        /// On which path.
        path: PathBuf,
        /// The kernel's answer.
        #[source]
        source: io::Error,
    },
    /// A file held no whole record, or another fact's.
    #[error("{} is damaged and was set aside", path.display())]
    DamagedFile {
        /// Where it was.
        path: PathBuf,
    },
    /// sled could not be opened; a new database is filled from the fact files.
    #[error("the database in {} is damaged and was set aside", path.display())]
    DamagedTree {
        /// Where it was.
        path: PathBuf,
        /// What sled said.
        #[source]
        source: TreeError,
    },
    /// sled opened, but without what was stored, or with an older state: it is filled from the fact files.
    #[error("the database in {} has epoch {found:?} instead of {expected}: it is filled again", path.display())]
    LostTree {
        /// sled's folder.
        path: PathBuf,
        /// What sled held.
        found: Option<u64>,
        /// What the epoch file says.
        expected: u64,
    },
    /// sled cannot be used for now; the fact files serve alone.
    #[error("the database in {} is not in use", path.display())]
    NoTree {
        /// sled's folder.
        path: PathBuf,
        /// Why.
        #[source]
        source: TreeError,
    },
}

/// An open store and what was found on the way.
#[derive(Debug)]
pub struct Opened {
    /// Always usable, in memory at least.
    pub store: Store,
    /// For the log and a node condition. Empty when all is well.
    pub problems: Vec<Problem>,
    /// False when facts may be missing: something was damaged in both copies. Then a pod that is found running without
    /// a fact is not an orphan.
    pub complete: bool,
}

/// Tells whether the database in this folder can be opened: by running [`check_role`] in a child with a time limit.
/// `Ok(false)` when the child failed, died or took too long; an error when no child could be started.
pub type Probe<'a> = dyn Fn(&Path) -> io::Result<bool> + 'a;

/// The facts in memory, and what the disk does not have yet.
#[derive(Debug, Default)]
struct Memory {
    facts: BTreeMap<Key, Fact>,
    /// What the disk does not have yet, in which generation.
    pending: BTreeMap<Key, u64>,
    /// sled does not have yet what the files have.
    lags: bool,
    generation: u64,
    condition: Option<String>,
}

/// Which fact.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
enum Key {
    Pod(PodUid),
    Meta(String),
}

impl Key {
    /// Path below the store's folder, without the extension; also the name in sled.
    fn name(&self) -> String {
        match self {
            Self::Pod(uid) => format!("pods/{uid}"),
            Self::Meta(name) => format!("meta/{name}"),
        }
    }

    fn parse(name: &str) -> Option<Self> {
        match name.split_once('/')? {
            ("pods", uid) => PodUid::new(uid).ok().map(Self::Pod),
            ("meta", name) => Self::meta(name).ok(),
            _ => None,
        }
    }

    fn meta(name: &str) -> Result<Self, PutError> {
        let plain = |b: u8| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'-';
        if (1..=64).contains(&name.len()) && name.bytes().all(plain) {
            return Ok(Self::Meta(name.to_owned()));
        }
        Err(PutError::Name { name: name.to_owned() })
    }
}

/// Durable facts. Reads and puts never wait for the disk, only for each other; one commit runs at a time.
#[derive(Debug)]
pub struct Store {
    memory: Mutex<Memory>,
    disk: Mutex<Disk>,
}

impl Store {
    /// Opens the store in `dir`, which is made if it is not there. Never fails: see [`Opened::problems`].
    #[must_use]
    pub fn open(dir: &Path, probe: &Probe<'_>) -> Opened {
        let found = Disk::open(dir, probe);
        let store = Self { memory: Mutex::new(found.memory), disk: Mutex::new(found.disk) };
        Opened { store, problems: found.problems, complete: found.complete }
    }

    /// The fact of one pod.
    #[must_use]
    pub fn pod(&self, uid: &PodUid) -> Option<Fact> {
        self.get(&Key::Pod(uid.clone()))
    }

    /// The facts of all pods, by UID.
    #[must_use]
    pub fn pods(&self) -> Vec<(PodUid, Fact)> {
        let memory = self.memory();
        let pods = memory.facts.iter().filter_map(|(key, fact)| match key {
            Key::Pod(uid) => Some((uid.clone(), fact.clone())),
            Key::Meta(_) => None,
        });
        pods.collect()
    }

    /// Sets the fact of one pod, in memory until the next commit. The same bytes again change nothing.
    ///
    /// # Errors
    /// [`PutError::TooLarge`].
    pub fn put_pod(&self, uid: &PodUid, bytes: Vec<u8>) -> Result<u64, PutError> {
        self.put(Key::Pod(uid.clone()), bytes)
    }

    /// Forgets one pod, in memory until the next commit. Tells whether there was a fact.
    pub fn delete_pod(&self, uid: &PodUid) -> bool {
        self.delete(Key::Pod(uid.clone()))
    }

    /// One of the node's own facts, such as its name.
    #[must_use]
    pub fn meta(&self, name: &str) -> Option<Fact> {
        self.get(&Key::meta(name).ok()?)
    }

    /// Sets one of the node's own facts, in memory until the next commit.
    ///
    /// # Errors
    /// The name or the length is not allowed.
    pub fn put_meta(&self, name: &str, bytes: Vec<u8>) -> Result<u64, PutError> {
        self.put(Key::meta(name)?, bytes)
    }

    /// Forgets one of the node's own facts, in memory until the next commit. Tells whether there was one.
    pub fn delete_meta(&self, name: &str) -> bool {
        Key::meta(name).is_ok_and(|key| self.delete(key))
    }

    /// Makes all changes durable. Blocks on the disk: an async caller runs it on a thread for blocking work. Writes
    /// nothing when nothing changed, unless the store is degraded: then it also tries to mend that.
    ///
    /// # Errors
    /// A fact could not be written (disk full, I/O error). All facts that could be were, the rest is tried by the next
    /// commit. That only sled does not work is no error but a condition: see [`Store::degraded`].
    pub fn commit(&self) -> Result<(), CommitError> {
        let mut disk = self.disk.lock().unwrap_or_else(PoisonError::into_inner);
        let (work, all) = {
            let memory = self.memory();
            let work = |(key, generation): (&Key, &u64)| (key.clone(), *generation, memory.facts.get(key).cloned());
            (memory.pending.iter().map(work).collect(), memory.facts.clone())
        };
        let outcome = disk.commit(work, &all);
        let mut memory = self.memory();
        memory.condition = outcome.condition;
        memory.lags = disk.lags();
        for (key, written) in outcome.done {
            // A change made while this commit ran stays pending.
            if memory.pending.get(&key) == Some(&written) {
                memory.pending.remove(&key);
            }
        }
        outcome.result
    }

    /// Gives sled what the files have and it has not. Blocks on the disk. A start commits several times within a second:
    /// whoever commits calls this once they are over, and so sled writes once. What fails is a condition.
    pub fn settle(&self) {
        let mut disk = self.disk.lock().unwrap_or_else(PoisonError::into_inner);
        if !disk.lags() {
            return;
        }
        let all = self.memory().facts.clone();
        let condition = disk.settle(&all);
        let mut memory = self.memory();
        memory.lags = disk.lags();
        memory.condition = condition;
    }

    /// Whether sled lacks what the files have.
    #[must_use]
    pub fn lags(&self) -> bool {
        self.memory().lags
    }

    /// Whether a change waits for a commit.
    #[must_use]
    pub fn is_dirty(&self) -> bool {
        !self.memory().pending.is_empty()
    }

    /// What keeps the store from being whole, for a node condition. A caller that sees one commits again later, even
    /// without a change: that is how the store mends itself.
    #[must_use]
    pub fn degraded(&self) -> Option<String> {
        self.memory().condition.clone()
    }

    fn get(&self, key: &Key) -> Option<Fact> {
        self.memory().facts.get(key).cloned()
    }

    fn put(&self, key: Key, bytes: Vec<u8>) -> Result<u64, PutError> {
        if bytes.len() > MAX_FACT {
            return Err(PutError::TooLarge { name: key.name(), len: bytes.len() });
        }
        let mut memory = self.memory();
        if let Some(same) = memory.facts.get(&key).filter(|fact| *fact.bytes == *bytes) {
            return Ok(same.generation);
        }
        memory.generation = memory.generation.saturating_add(1);
        let fact = Fact { generation: memory.generation, bytes: bytes.into() };
        memory.facts.insert(key.clone(), fact);
        let generation = memory.generation;
        memory.pending.insert(key, generation);
        Ok(generation)
    }

    fn delete(&self, key: Key) -> bool {
        let mut memory = self.memory();
        let was = memory.facts.remove(&key).is_some();
        if was {
            memory.generation = memory.generation.saturating_add(1);
            let generation = memory.generation;
            memory.pending.insert(key, generation);
        }
        was
    }

    /// No call panics while it holds the lock, so that a poisoned one still guards sound data.
    fn memory(&self) -> MutexGuard<'_, Memory> {
        self.memory.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The role `store-check <folder>`: opens the database and reads all of it. The caller bounds its time and kills it.
#[must_use]
pub fn check_role(args: &[OsString]) -> ExitCode {
    let [path] = args else {
        return ExitCode::from(2);
    };
    // A damaged database can ask for all memory there is: then this goes, and not the agent that it was started by.
    let _ = crate::sys::memory::set_oom_score_adj(0);
    let read = std::panic::catch_unwind(|| {
        let db = tree::open_locked(Path::new(path))?;
        db.iter().try_for_each(|item| item.map(|_| ()))
    });
    if matches!(read, Ok(Ok(()))) { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}
