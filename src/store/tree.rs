//! sled, and how it breaks.
//!
//! What was seen with sled 0.34.7, and what is done about it (each has a test in `tests.rs`):
//! - a short or empty `snap.*`, a damaged `conf`: open returns an error -> the folder is set aside, a new one is filled
//!   from the fact files;
//! - a left-over `snap.*.generating`: the same error, though nothing is wrong -> the file is moved out first;
//! - a missing `snap.*`: opens without any key -> noticed by the epoch;
//! - a truncated `db`: panics -> it is opened on a thread of its own, where a panic ends only the thread;
//! - `flush` does not flush: on Linux it calls sync_file_range, which neither makes a grown file's size durable nor
//!   empties the disk's cache -> the fact files, synced before, are what is promised; sled may lag behind them.
//!
//! - every open writes over all its free segments -> segments of 256 KiB instead of 512. Smaller ones do not do: a node
//!   holds up to 16 facts, and above a quarter of a segment it becomes a file of its own.
//!
//! A child process for the first open would cost its start-up at every boot. So it is used only when it can tell more:
//! a marker beside sled says that an earlier open did not come back (killed for its memory, or stuck), and only then
//! the next one is tried in a child first.

use super::record;
use crate::sys::timers::with_lazy_timers;
use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};
use std::sync::mpsc;
use std::time::Duration;

/// How long an open may take on a slow card before it counts as stuck.
const OPEN_LIMIT: Duration = Duration::from_secs(20);
/// A database that was just closed in this process gives its lock back a moment later.
const LOCK_TRIES: u32 = 25;
const LOCK_PAUSE: Duration = Duration::from_millis(20);

const EPOCH_KEY: &[u8] = b"epoch";
const FACT_PREFIX: &str = "fact/";

/// Why sled does not serve.
#[derive(Debug, thiserror::Error)]
pub enum TreeError {
    /// sled returned an error.
    #[error("sled cannot {operation} in {}", path.display())]
    Sled {
        /// What was tried.
        operation: &'static str,
        /// sled's folder.
        path: PathBuf,
        /// sled's own account.
        #[source]
        source: sled::Error,
    },
    /// sled panicked, which it does on some damaged files.
    #[error("sled panicked on {operation} in {}", path.display())]
    Panicked {
        /// What was tried.
        operation: &'static str,
        /// sled's folder.
        path: PathBuf,
    },
    /// Opening did not end in time, or the child that tried it died.
    #[error("sled did not open in {}", path.display())]
    Stuck {
        /// sled's folder.
        path: PathBuf,
    },
    /// A call around sled failed.
    #[error("{operation} {}", path.display())]
    Io {
        /// What was tried.
        operation: &'static str,
        /// On which path.
        path: PathBuf,
        /// The kernel's answer.
        #[source]
        source: io::Error,
    },
}

impl TreeError {
    /// The files are damaged, so that trying again gives the same; otherwise the disk or the moment is to blame.
    #[must_use]
    pub fn is_damage(&self) -> bool {
        match self {
            Self::Sled { source: sled::Error::Io(_), .. } | Self::Io { .. } => false,
            Self::Sled { .. } | Self::Panicked { .. } | Self::Stuck { .. } => true,
        }
    }
}

/// An open sled database. Dropping it after an error must not take the agent along, so it is dropped guarded.
pub(super) struct Tree {
    db: Option<sled::Db>,
    path: PathBuf,
}

/// Everything in the database.
pub(super) struct Contents {
    pub(super) epoch: Option<u64>,
    /// Values that are not whole records are left out: the fact's file has it.
    pub(super) facts: Vec<record::Record>,
}

/// One change of one commit: the encoded record, or `None` to remove.
pub(super) type Change = (String, Option<Vec<u8>>);

/// Opens the database in this process, with every setting that matters.
///
/// # Errors
/// sled's own.
fn open_plain(path: &Path) -> sled::Result<sled::Db> {
    let config = sled::Config::new()
        .path(path)
        // The defaults are 1 GiB of cache and a flush every half second.
        .cache_capacity(1 << 20)
        .mode(sled::Mode::LowSpace)
        .flush_every_ms(None)
        .segment_size(256 << 10);
    // Opening may start the seven threads that sled keeps, which would wake every second for nothing.
    with_lazy_timers(|| config.open())
}

/// Runs one sled call so that neither its error nor its panic leaves this function as anything but a value.
fn guarded<T>(operation: &'static str, path: &Path, call: impl FnOnce() -> sled::Result<T>) -> Result<T, TreeError> {
    match catch_unwind(AssertUnwindSafe(call)) {
        Ok(Ok(value)) => Ok(value),
        Ok(Err(source)) => Err(TreeError::Sled { operation, path: path.to_owned(), source }),
        Err(_panic) => Err(TreeError::Panicked { operation, path: path.to_owned() }),
    }
}

impl Tree {
    /// Opens the database, on a thread of its own and for a bounded time.
    pub(super) fn open(path: &Path) -> Result<Self, TreeError> {
        move_unfinished_snapshots(path)?;
        let (sender, receiver) = mpsc::sync_channel(1);
        let owned = path.to_owned();
        let spawned = std::thread::Builder::new().name("store-open".to_owned()).spawn(move || {
            let opened = guarded("open", &owned, || open_locked(&owned));
            // Nobody listens any more when it took too long: then the database closes here.
            let _late = sender.send(opened);
        });
        if let Err(source) = spawned {
            return Err(TreeError::Io { operation: "start a thread for", path: path.to_owned(), source });
        }
        match receiver.recv_timeout(OPEN_LIMIT) {
            Ok(opened) => Ok(Self { db: Some(opened?), path: path.to_owned() }),
            Err(_timeout) => Err(TreeError::Stuck { path: path.to_owned() }),
        }
    }

    /// Reads everything.
    pub(super) fn contents(&self) -> Result<Contents, TreeError> {
        self.call("read", |db| {
            let mut contents = Contents { epoch: None, facts: Vec::new() };
            if let Some(epoch) = db.get(EPOCH_KEY)? {
                contents.epoch = epoch.as_ref().try_into().ok().map(u64::from_le_bytes);
            }
            for item in db.scan_prefix(FACT_PREFIX) {
                let (_, value) = item?;
                contents.facts.extend(record::decode(&value));
            }
            Ok(contents)
        })
    }

    /// Applies the changes as one batch and hands them to the disk. Removals are on it when this returns: a fact that
    /// came back from sled after its file was deleted could not be told from one whose file was lost.
    pub(super) fn apply(&self, epoch: Option<u64>, changes: &[Change]) -> Result<(), TreeError> {
        self.call("write", |db| {
            let mut batch = sled::Batch::default();
            if let Some(epoch) = epoch {
                batch.insert(EPOCH_KEY, epoch.to_le_bytes().as_slice());
            }
            for (key, value) in changes {
                let key = format!("{FACT_PREFIX}{key}");
                match value {
                    Some(value) => batch.insert(key.as_bytes(), value.as_slice()),
                    None => batch.remove(key.as_bytes()),
                }
            }
            db.apply_batch(batch)?;
            db.flush()?;
            if changes.iter().any(|(_, value)| value.is_none()) {
                std::fs::File::open(self.path.join("db"))?.sync_data()?;
            }
            Ok(())
        })
    }

    fn call<T>(
        &self,
        operation: &'static str,
        call: impl FnOnce(&sled::Db) -> sled::Result<T>,
    ) -> Result<T, TreeError> {
        match &self.db {
            // Here, too: they are started by whoever has the first work for them.
            Some(db) => guarded(operation, &self.path, || with_lazy_timers(|| call(db))),
            None => Err(TreeError::Stuck { path: self.path.clone() }),
        }
    }
}

impl Drop for Tree {
    fn drop(&mut self) {
        if let Some(db) = self.db.take() {
            let _closed = catch_unwind(AssertUnwindSafe(|| drop(db)));
        }
    }
}

/// Opens the database, and waits a moment for the lock of one that was just closed.
pub(super) fn open_locked(path: &Path) -> sled::Result<sled::Db> {
    let mut tries = 1;
    loop {
        match open_plain(path) {
            Err(sled::Error::Io(error)) if is_lock(&error) && tries < LOCK_TRIES => {
                tries += 1;
                std::thread::sleep(LOCK_PAUSE);
            }
            other => return other,
        }
    }
}

/// sled wraps the lock's error in a text of its own; only that text tells it from other I/O errors.
fn is_lock(error: &io::Error) -> bool {
    error.kind() == io::ErrorKind::WouldBlock || error.to_string().contains("could not acquire lock")
}

/// Where an unfinished snapshot is kept, beside the database.
const UNFINISHED: &str = "sled-unfinished-snapshot";

/// A snapshot that was being written when the power went. sled takes the file for corruption; the log has it all. The last
/// one is kept outside: it is nothing that was lost, and must not pile up.
fn move_unfinished_snapshots(path: &Path) -> Result<(), TreeError> {
    let failed = |operation, source| TreeError::Io { operation, path: path.to_owned(), source };
    let entries = match std::fs::read_dir(path) {
        Ok(entries) => entries,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        Err(error) => return Err(failed("list", error)),
    };
    for entry in entries {
        let name = entry.map_err(|e| failed("list", e))?.file_name();
        let text = name.to_string_lossy();
        if text.starts_with("snap.") && text.ends_with(".generating") {
            std::fs::rename(path.join(&name), path.with_file_name(UNFINISHED))
                .map_err(|e| failed("move an unfinished snapshot out of", e))?;
        }
    }
    Ok(())
}
