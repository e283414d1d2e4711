//! The disk side of the store: which copy is right when it is opened, and one commit.

use super::fact_file::{self, Found, Place};
use super::record::{self, Record};
use super::tree::{Change, Contents, Tree, TreeError};
use super::{CommitError, Fact, Key, Memory, Probe, Problem};
use crate::sys::durable;
use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};

const EPOCH: &str = "epoch";
const FOLDERS: [&str; 2] = ["pods", "meta"];

/// Everything that opening yields.
pub(super) struct FoundOnDisk {
    pub(super) memory: Memory,
    pub(super) disk: Disk,
    pub(super) problems: Vec<Problem>,
    pub(super) complete: bool,
}

/// What is open, and what is known of the files.
#[derive(Debug)]
pub(super) struct Disk {
    dir: PathBuf,
    places: BTreeMap<Key, Place>,
    epoch: u64,
    tree: Option<Tree>,
    /// sled holds the epoch of the file, so that changes alone keep it right.
    tree_current: bool,
    /// sled has fallen behind, and the epoch file does not say so yet.
    epoch_owed: bool,
}

impl std::fmt::Debug for Tree {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Tree")
    }
}

/// What a commit came to.
pub(super) struct Outcome {
    /// What is durable now: the key, and the generation or that it is gone.
    pub(super) done: Vec<(Key, Option<u64>)>,
    pub(super) result: Result<(), CommitError>,
    /// What keeps the store from being whole.
    pub(super) condition: Option<String>,
}

/// The fact files as they were read.
#[derive(Default)]
struct Files {
    facts: BTreeMap<Key, (Fact, Option<Place>)>,
    damaged: BTreeSet<Key>,
}

impl Disk {
    /// Reads both copies and decides. Writes nothing but what is set aside and the marker around sled's open.
    pub(super) fn open(dir: &Path, probe: &Probe<'_>) -> FoundOnDisk {
        let mut problems = Vec::new();
        let no_pods = !dir.join("pods").exists();
        make_folders(dir, &mut problems);
        let epoch = read_epoch(dir, &mut problems);
        let files = read_files(dir, &mut problems);
        let (tree, contents) = match open_tree(&dir.join("sled"), Some(probe), &mut problems) {
            Ok((tree, contents)) => (Some(tree), Some(contents)),
            Err(source) => {
                problems.push(Problem::NoTree { path: dir.join("sled"), source });
                (None, None)
            }
        };
        let found = contents.as_ref().and_then(|c| c.epoch);
        if let (Some(expected), Some(_)) = (epoch, &contents)
            && found != epoch
        {
            problems.push(Problem::LostTree { path: dir.join("sled"), found, expected });
        }
        // With the epoch file itself damaged there is nothing against sled.
        let trusted = found.is_some() && (found == epoch || epoch.is_none());
        let tree_facts = contents.map(|c| parse_facts(c.facts)).unwrap_or_default();
        let complete = if trusted {
            files.damaged.iter().all(|key| tree_facts.contains_key(key))
        } else {
            files.damaged.is_empty() && !(no_pods && epoch.is_some())
        };
        let (mut memory, places) = merge(files, tree_facts, trusted);
        memory.condition = tree.is_none().then(|| problems.last().map(|p| chain(p))).flatten();
        let disk = Self {
            dir: dir.to_owned(),
            places,
            epoch: epoch.or(found).unwrap_or(0),
            tree,
            tree_current: trusted && found == epoch,
            epoch_owed: false,
        };
        FoundOnDisk { memory, disk, problems, complete }
    }

    /// sled must be written anew, so that a commit needs all facts.
    pub(super) const fn wants_everything(&self) -> bool {
        self.tree.is_none() || !self.tree_current
    }

    /// Writes the changes to their files, then to sled.
    pub(super) fn commit(&mut self, work: Vec<(Key, Option<Fact>)>, all: &BTreeMap<Key, Fact>) -> Outcome {
        // A store that was never written has no epoch yet; it gets one together with its first fact.
        let mend = self.wants_everything() && (self.epoch > 0 || !work.is_empty() || !all.is_empty());
        if work.is_empty() && !mend {
            return Outcome { done: Vec::new(), result: Ok(()), condition: None };
        }
        let mut result = Ok(());
        let mut done = Vec::new();
        let mut changes = Vec::new();
        let mut removed_from = BTreeSet::new();
        make_folders(&self.dir, &mut Vec::new());
        for (key, fact) in work {
            match self.write_file(&key, fact.as_ref()) {
                Ok(change) => {
                    if fact.is_none() {
                        removed_from.insert(folder_of(&key));
                    }
                    changes.push(change);
                    done.push((key, fact.map(|f| f.generation)));
                }
                Err(error) => result = Err(error),
            }
        }
        for folder in removed_from {
            let path = self.dir.join(folder);
            if let Err(source) = durable::sync_dir(&path) {
                // Without it no removal in there is promised: they stay pending.
                done.retain(|(key, written)| written.is_some() || folder_of(key) != folder);
                result = Err(CommitError { operation: "sync", path, source });
            }
        }
        let tree = self.write_tree(&changes, all);
        let condition = result.as_ref().err().map(|e| chain(e)).or_else(|| tree.err().map(|e| chain(&e)));
        Outcome { done, result, condition }
    }

    fn write_file(&mut self, key: &Key, fact: Option<&Fact>) -> Result<Change, CommitError> {
        let name = key.name();
        let path = self.dir.join(format!("{name}.fact"));
        let failed = |operation, source| CommitError { operation, path: path.clone(), source };
        let Some(fact) = fact else {
            self.places.remove(key);
            return match std::fs::remove_file(&path) {
                Err(source) if source.kind() != io::ErrorKind::NotFound => Err(failed("remove", source)),
                _ => Ok((name, None)),
            };
        };
        let Some(encoded) = record::encode(&name, fact.generation, &fact.bytes) else {
            return Err(failed("encode", io::ErrorKind::FileTooLarge.into()));
        };
        let (Some(folder), Some(file)) = (path.parent(), path.file_name().and_then(|f| f.to_str())) else {
            return Err(failed("name", io::ErrorKind::InvalidFilename.into()));
        };
        // After a failed write nothing is known of the file any more: the next one makes a new file.
        let place =
            fact_file::write(folder, file, &encoded, self.places.remove(key)).map_err(|e| failed("write", e))?;
        self.places.insert(key.clone(), place);
        Ok((name, Some(encoded)))
    }

    fn write_tree(&mut self, changes: &[Change], all: &BTreeMap<Key, Fact>) -> Result<(), TreeError> {
        let written = match &self.tree {
            Some(tree) if self.tree_current => tree.apply(None, changes),
            _ => self.refill_tree(all),
        };
        if written.is_err() {
            // From here on sled lags behind: the file's epoch moves on, so that nobody takes it for the truth.
            self.epoch_owed |= self.tree_current;
            self.tree = None;
            self.tree_current = false;
        }
        if self.epoch_owed {
            self.next_epoch()?;
        }
        written
    }

    /// Opens sled if it is not, and makes it hold exactly these facts under a new epoch.
    fn refill_tree(&mut self, all: &BTreeMap<Key, Fact>) -> Result<(), TreeError> {
        let path = self.dir.join("sled");
        let tree = match self.tree.take() {
            Some(tree) => tree,
            None => open_tree(&path, None, &mut Vec::new())?.0,
        };
        self.next_epoch()?;
        let stored = tree.contents()?;
        let kept: BTreeSet<String> = all.keys().map(Key::name).collect();
        let gone = stored.facts.into_iter().filter(|r| !kept.contains(&r.key)).map(|r| (r.key, None));
        let facts = all.iter().filter_map(|(key, fact)| {
            let encoded = record::encode(&key.name(), fact.generation, &fact.bytes)?;
            Some((key.name(), Some(encoded)))
        });
        let changes: Vec<Change> = gone.chain(facts).collect();
        tree.apply(Some(self.epoch), &changes)?;
        self.tree = Some(tree);
        self.tree_current = true;
        Ok(())
    }

    fn next_epoch(&mut self) -> Result<(), TreeError> {
        let epoch = self.epoch.saturating_add(1);
        let encoded = record::encode(EPOCH, epoch, &[]).unwrap_or_default();
        durable::replace_file(&self.dir, EPOCH, &encoded).map_err(|source| TreeError::Io {
            operation: "write",
            path: self.dir.join(EPOCH),
            source,
        })?;
        self.epoch = epoch;
        self.epoch_owed = false;
        Ok(())
    }
}

const fn folder_of(key: &Key) -> &'static str {
    match key {
        Key::Pod(_) => "pods",
        Key::Meta(_) => "meta",
    }
}

fn make_folders(dir: &Path, problems: &mut Vec<Problem>) {
    for folder in FOLDERS {
        let path = dir.join(folder);
        if path.is_dir() {
            continue;
        }
        if path.symlink_metadata().is_ok() {
            set_aside(&path, problems);
        }
        if let Err(source) = std::fs::DirBuilder::new().recursive(true).mode(0o700).create(&path) {
            problems.push(Problem::Io { operation: "create", path, source });
        }
    }
}

fn set_aside(path: &Path, problems: &mut Vec<Problem>) {
    problems.push(match durable::set_aside(path) {
        Ok(_) => Problem::DamagedFile { path: path.to_owned() },
        Err(source) => Problem::Io { operation: "set aside", path: path.to_owned(), source },
    });
}

fn read_epoch(dir: &Path, problems: &mut Vec<Problem>) -> Option<u64> {
    let path = dir.join(EPOCH);
    match std::fs::read(&path) {
        Ok(bytes) => match record::decode(&bytes) {
            Some(record) if record.key == EPOCH => Some(record.generation),
            _ => {
                set_aside(&path, problems);
                None
            }
        },
        Err(source) if source.kind() == io::ErrorKind::NotFound => None,
        Err(source) => {
            problems.push(Problem::Io { operation: "read", path, source });
            None
        }
    }
}

fn read_files(dir: &Path, problems: &mut Vec<Problem>) -> Files {
    let mut files = Files::default();
    for folder in FOLDERS {
        let entries = match std::fs::read_dir(dir.join(folder)) {
            Ok(entries) => entries,
            Err(source) => {
                problems.push(Problem::Io { operation: "list", path: dir.join(folder), source });
                continue;
            }
        };
        for entry in entries.flatten() {
            let name = entry.file_name();
            let key =
                name.to_str().and_then(|n| n.strip_suffix(".fact")).and_then(|n| Key::parse(&format!("{folder}/{n}")));
            // Other names are what was set aside, or left by a write that was cut.
            if let Some(key) = key {
                read_file(&entry.path(), key, &mut files, problems);
            }
        }
    }
    files
}

fn read_file(path: &Path, key: Key, files: &mut Files, problems: &mut Vec<Problem>) {
    match fact_file::read(path) {
        Ok(Found::Fact { record, place }) if record.key == key.name() => {
            let fact = Fact { generation: record.generation, bytes: record.payload.into() };
            files.facts.insert(key, (fact, place));
        }
        Ok(Found::Unfinished) => {
            if let Err(source) = std::fs::remove_file(path) {
                problems.push(Problem::Io { operation: "remove", path: path.to_owned(), source });
            }
        }
        Ok(_) => {
            set_aside(path, problems);
            files.damaged.insert(key);
        }
        Err(source) => {
            problems.push(Problem::Io { operation: "read", path: path.to_owned(), source });
            files.damaged.insert(key);
        }
    }
}

fn parse_facts(records: Vec<Record>) -> BTreeMap<Key, Fact> {
    let facts = records.into_iter().filter_map(|record| {
        let fact = Fact { generation: record.generation, bytes: record.payload.into() };
        Some((Key::parse(&record.key)?, fact))
    });
    facts.collect()
}

/// The higher generation wins. A fact that only sled has counts when sled is of the right epoch, or when the fact's
/// file was damaged; otherwise it may have been deleted long ago.
fn merge(files: Files, tree: BTreeMap<Key, Fact>, trusted: bool) -> (Memory, BTreeMap<Key, Place>) {
    let mut memory = Memory::default();
    let mut places = BTreeMap::new();
    for (key, (fact, place)) in files.facts {
        match place {
            Some(place) => {
                places.insert(key.clone(), place);
            }
            None => {
                memory.pending.insert(key.clone());
            }
        }
        // An untrusted database is filled as a whole by the next commit.
        if trusted && tree.get(&key).is_none_or(|other| other.generation < fact.generation) {
            memory.pending.insert(key.clone());
        }
        memory.facts.insert(key, fact);
    }
    for (key, fact) in tree {
        let newer = match memory.facts.get(&key) {
            Some(file) => file.generation < fact.generation,
            None => trusted || files.damaged.contains(&key),
        };
        if newer {
            memory.pending.insert(key.clone());
            memory.facts.insert(key, fact);
        }
    }
    memory.generation = memory.facts.values().map(|fact| fact.generation).max().unwrap_or(0);
    (memory, places)
}

/// Opens sled, sets a damaged one aside and opens a new one. `probe` is asked first when an earlier open did not end.
fn open_tree(
    path: &Path,
    probe: Option<&Probe<'_>>,
    problems: &mut Vec<Problem>,
) -> Result<(Tree, Contents), TreeError> {
    let marker = path.with_file_name("sled-opening");
    let unfinished = marker.exists();
    // The marker must outlive this process, not a power cut: it needs no sync.
    std::fs::write(&marker, b"").map_err(|source| TreeError::Io {
        operation: "create",
        path: marker.clone(),
        source,
    })?;
    let sound = !unfinished || probe.is_none_or(|probe| probe(path).unwrap_or(true));
    let first = if sound { open_and_read(path) } else { Err(TreeError::Stuck { path: path.to_owned() }) };
    let opened = match first {
        Err(error) if error.is_damage() => {
            durable::set_aside(path).map_err(|source| TreeError::Io {
                operation: "set aside",
                path: path.to_owned(),
                source,
            })?;
            problems.push(Problem::DamagedTree { path: path.to_owned(), source: error });
            open_and_read(path)
        }
        other => other,
    };
    // A stuck thread may still bring the process down: then the next start must know.
    if !matches!(opened, Err(TreeError::Stuck { .. })) {
        let _gone = std::fs::remove_file(&marker);
    }
    opened
}

fn open_and_read(path: &Path) -> Result<(Tree, Contents), TreeError> {
    let tree = Tree::open(path)?;
    let contents = tree.contents()?;
    Ok((tree, contents))
}

/// An error with its causes, for a condition's message.
fn chain(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(inner) = cause {
        text.push_str(": ");
        text.push_str(&inner.to_string());
        cause = inner.source();
    }
    text
}
