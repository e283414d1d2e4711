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
const EXTENSION: &str = ".fact";
const PODS: &str = "pods";
const FOLDERS: [&str; 2] = [PODS, "meta"];

/// Everything that opening yields.
pub(super) struct FoundOnDisk {
    pub(super) memory: Memory,
    pub(super) disk: Disk,
    pub(super) problems: Vec<Problem>,
    pub(super) complete: bool,
}

/// A fact's file: one of its own for a fact of the node, any numbered one for a pod's. A new file costs fourteen times
/// what an update in place costs, so that the file of a pod that is gone is kept for the next.
#[derive(Debug)]
struct Home {
    /// Its name in the folder.
    file: String,
    /// Unknown after a failed write, and when the layout is not as it was written: the next write replaces the file.
    place: Option<Place>,
    /// The newest in it. A fact that is older would not be found there again.
    generation: u64,
}

/// What is open, and what is known of the files.
#[derive(Debug)]
pub(super) struct Disk {
    dir: PathBuf,
    homes: BTreeMap<Key, Home>,
    /// Files whose newest record says that its fact is gone.
    spares: Vec<Home>,
    /// No pod's file has this number or a higher one.
    next_number: u32,
    epoch: u64,
    tree: Option<Tree>,
    /// sled holds the epoch of the file, so that changes alone keep it right.
    tree_current: bool,
    /// sled has fallen behind, and the epoch file does not say so yet.
    epoch_owed: bool,
    /// Facts that their files have in a newer state than sled.
    owed: BTreeSet<Key>,
}

impl std::fmt::Debug for Tree {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Tree")
    }
}

/// One change: the key, its generation, and the fact or that it is gone.
pub(super) type Work = (Key, u64, Option<Fact>);

/// What a commit came to.
pub(super) struct Outcome {
    /// What is durable now, with its generation.
    pub(super) done: Vec<(Key, u64)>,
    pub(super) result: Result<(), CommitError>,
    /// What keeps the store from being whole.
    pub(super) condition: Option<String>,
}

/// The fact files as they were read.
#[derive(Default)]
struct Files {
    facts: BTreeMap<Key, (Fact, Home)>,
    /// Facts that were deleted, and in which generation.
    gone: BTreeMap<Key, u64>,
    spares: Vec<Home>,
    next_number: u32,
    damaged: BTreeSet<Key>,
    /// Files that held a pod's fact, and cannot tell whose.
    damaged_pods: usize,
}

impl Files {
    /// Whether each damaged file's fact is among those that only sled has.
    fn made_good_by(&self, tree: &BTreeMap<Key, Fact>) -> bool {
        let only_there = |key: &&Key| matches!(key, Key::Pod(_)) && !self.facts.contains_key(key);
        let pods = tree.keys().filter(only_there).count();
        self.damaged.iter().all(|key| tree.contains_key(key)) && self.damaged_pods <= pods
    }

    fn any_damaged(&self) -> bool {
        !self.damaged.is_empty() || self.damaged_pods > 0
    }

    /// Whether the fact may have been in a damaged file.
    fn may_have_lost(&self, key: &Key) -> bool {
        self.damaged.contains(key) || matches!(key, Key::Pod(_)) && self.damaged_pods > 0
    }
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
            files.made_good_by(&tree_facts)
        } else {
            !(files.any_damaged() || no_pods && epoch.is_some())
        };
        let mut memory = merge(&files, tree_facts, trusted);
        memory.condition = tree.is_none().then(|| problems.last().map(|p| chain(p))).flatten();
        let disk = Self {
            dir: dir.to_owned(),
            homes: files.facts.into_iter().map(|(key, (_, home))| (key, home)).collect(),
            spares: files.spares,
            next_number: files.next_number,
            epoch: epoch.or(found).unwrap_or(0),
            tree,
            tree_current: trusted && found == epoch,
            epoch_owed: false,
            owed: BTreeSet::new(),
        };
        FoundOnDisk { memory, disk, problems, complete }
    }

    /// sled must be written anew, so that a commit needs all facts.
    const fn wants_everything(&self) -> bool {
        self.tree.is_none() || !self.tree_current
    }

    /// sled lacks something that the files have.
    pub(super) fn lags(&self) -> bool {
        !self.owed.is_empty()
    }

    /// Writes the changes to their files, which is what a commit promises. sled follows when [`Disk::settle`] is called;
    /// at once when a fact is gone, since the file that says so may be taken over, and when sled must be mended.
    pub(super) fn commit(&mut self, work: Vec<Work>, all: &BTreeMap<Key, Fact>) -> Outcome {
        // A store that was never written has no epoch yet; it gets one together with its first fact.
        let mend = self.wants_everything() && (self.epoch > 0 || !work.is_empty() || !all.is_empty());
        if work.is_empty() && !mend {
            return Outcome { done: Vec::new(), result: Ok(()), condition: None };
        }
        let mut result = Ok(());
        let mut done = Vec::new();
        let mut any_gone = false;
        make_folders(&self.dir, &mut Vec::new());
        for (key, generation, fact) in work {
            let written = match &fact {
                Some(fact) => self.write_fact(&key, fact),
                None => self.write_gone(&key, generation),
            };
            match written {
                Ok(()) => {
                    any_gone |= fact.is_none();
                    self.owed.insert(key.clone());
                    done.push((key, generation));
                }
                Err(error) => result = Err(error),
            }
        }
        let tree = if any_gone || mend { self.write_tree(all) } else { Ok(()) };
        let condition = result.as_ref().err().map(|e| chain(e)).or_else(|| tree.err().map(|e| chain(&e)));
        Outcome { done, result, condition }
    }

    /// Gives sled what it lacks. Tells what keeps the store from being whole.
    pub(super) fn settle(&mut self, all: &BTreeMap<Key, Fact>) -> Option<String> {
        self.write_tree(all).err().map(|e| chain(&e))
    }

    fn write_fact(&mut self, key: &Key, fact: &Fact) -> Result<(), CommitError> {
        let name = key.name();
        let Some(encoded) = record::encode(&name, fact.generation, &fact.bytes) else {
            let source = io::ErrorKind::FileTooLarge.into();
            return Err(CommitError { operation: "encode", path: self.dir.join(name), source });
        };
        let mut home = self.homes.remove(key).unwrap_or_else(|| self.new_home(key, encoded.len(), fact.generation));
        let folder = self.dir.join(folder_of(key));
        let written = fact_file::write(&folder, &home.file, &encoded, home.place);
        let path = folder.join(&home.file);
        home.place = written.as_ref().ok().copied();
        home.generation = fact.generation;
        self.homes.insert(key.clone(), home);
        written.map(drop).map_err(|source| CommitError { operation: "write", path, source })
    }

    /// The smallest spare file that holds so much; else a new one.
    fn new_home(&mut self, key: &Key, len: usize, generation: u64) -> Home {
        if let Key::Meta(name) = key {
            return Home { file: format!("{name}{EXTENSION}"), place: None, generation };
        }
        let fits = |home: &Home| {
            let room = home.place.map(Place::room).filter(|room| *room >= len && home.generation < generation)?;
            Some(room)
        };
        let spares = self.spares.iter().enumerate().filter_map(|(at, home)| Some((fits(home)?, at)));
        if let Some((_, at)) = spares.min() {
            return self.spares.swap_remove(at);
        }
        let file = format!("{}{EXTENSION}", self.next_number);
        self.next_number = self.next_number.saturating_add(1);
        Home { file, place: None, generation }
    }

    /// Makes a fact's file say that it is gone. A file that cannot be told is removed.
    fn write_gone(&mut self, key: &Key, generation: u64) -> Result<(), CommitError> {
        let Some(mut home) = self.homes.remove(key) else { return Ok(()) };
        let folder = self.dir.join(folder_of(key));
        if let (Key::Pod(_), Some(place)) = (key, home.place)
            && let Some(encoded) = record::encode_gone(&key.name(), generation)
            && let Ok(place) = fact_file::write(&folder, &home.file, &encoded, Some(place))
        {
            (home.place, home.generation) = (Some(place), generation);
            self.spares.push(home);
            return Ok(());
        }
        let path = folder.join(&home.file);
        let removed = match std::fs::remove_file(&path) {
            Err(source) if source.kind() != io::ErrorKind::NotFound => {
                Err(CommitError { operation: "remove", path, source })
            }
            _ => durable::sync_dir(&folder).map_err(|source| CommitError { operation: "sync", path: folder, source }),
        };
        if removed.is_err() {
            // It stays pending, and nothing is known of the file any more.
            home.place = None;
            self.homes.insert(key.clone(), home);
        }
        removed
    }

    fn write_tree(&mut self, all: &BTreeMap<Key, Fact>) -> Result<(), TreeError> {
        let written = match &self.tree {
            Some(tree) if self.tree_current => tree.apply(None, &changes(&self.owed, all)),
            _ => self.refill_tree(all),
        };
        match &written {
            Ok(()) => self.owed.clear(),
            Err(_) => {
                // From here on sled lags behind: the file's epoch moves on, so that nobody takes it for the truth.
                self.epoch_owed |= self.tree_current;
                self.tree = None;
                self.tree_current = false;
            }
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
        let changes: Vec<Change> = gone.chain(changes(&all.keys().cloned().collect(), all)).collect();
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

/// The keys' facts as sled keeps them; what is no fact any more is removed there.
fn changes(keys: &BTreeSet<Key>, all: &BTreeMap<Key, Fact>) -> Vec<Change> {
    let change = |key: &Key| {
        let name = key.name();
        let Some(fact) = all.get(key) else { return Some((name, None)) };
        let encoded = record::encode(&name, fact.generation, &fact.bytes)?;
        Some((name, Some(encoded)))
    };
    keys.iter().filter_map(change).collect()
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
            // Other names are what was set aside, or left by a write that was cut.
            let Some(stem) = name.to_str().and_then(|name| name.strip_suffix(EXTENSION)) else { continue };
            let owner =
                if folder == PODS { stem.parse().ok().map(Owner::Pod) } else { Key::meta(stem).ok().map(Owner::Meta) };
            if let Some(owner) = owner {
                read_file(&entry.path(), &owner, &mut files, problems);
            }
        }
    }
    files
}

/// What a file's name says of its content.
enum Owner {
    /// Some pod's fact, or none any more.
    Pod(u32),
    Meta(Key),
}

impl Owner {
    fn admits(&self, key: &Key) -> bool {
        match self {
            Self::Pod(_) => matches!(key, Key::Pod(_)),
            Self::Meta(own) => own == key,
        }
    }
}

fn read_file(path: &Path, owner: &Owner, files: &mut Files, problems: &mut Vec<Problem>) {
    if let Owner::Pod(number) = owner {
        files.next_number = files.next_number.max(number.saturating_add(1));
    }
    match fact_file::read(path) {
        Ok(Found::Fact { record, place }) => {
            let file = path.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
            let home = Home { file, place, generation: record.generation };
            if take(record, home, owner, files) {
                return;
            }
            set_aside(path, problems);
        }
        Ok(Found::Unfinished) => {
            if let Err(source) = std::fs::remove_file(path) {
                problems.push(Problem::Io { operation: "remove", path: path.to_owned(), source });
            }
            return;
        }
        Ok(Found::Damaged) => set_aside(path, problems),
        Err(source) => problems.push(Problem::Io { operation: "read", path: path.to_owned(), source }),
    }
    match owner {
        Owner::Pod(_) => files.damaged_pods += 1,
        Owner::Meta(key) => {
            files.damaged.insert(key.clone());
        }
    }
}

/// Takes a whole record over. False: it does not belong in this file, or another file has the same fact.
fn take(record: Record, home: Home, owner: &Owner, files: &mut Files) -> bool {
    if let Some(key) = record.gone() {
        let Some(key) = Key::parse(key).filter(|key| owner.admits(key)) else { return false };
        let newest = files.gone.entry(key).or_default();
        *newest = record.generation.max(*newest);
        files.spares.push(home);
        return true;
    }
    let Some(key) = Key::parse(&record.key).filter(|key| owner.admits(key)) else { return false };
    if files.facts.contains_key(&key) {
        return false;
    }
    let fact = Fact { generation: record.generation, bytes: record.payload.into() };
    files.facts.insert(key, (fact, home));
    true
}

fn parse_facts(records: Vec<Record>) -> BTreeMap<Key, Fact> {
    let facts = records.into_iter().filter_map(|record| {
        let fact = Fact { generation: record.generation, bytes: record.payload.into() };
        Some((Key::parse(&record.key)?, fact))
    });
    facts.collect()
}

/// The higher generation wins. A fact that only sled has counts when sled is of the right epoch, or when the fact's
/// file may have been damaged; otherwise it may have been deleted long ago.
fn merge(files: &Files, tree: BTreeMap<Key, Fact>, trusted: bool) -> Memory {
    let mut memory = Memory::default();
    for (key, (fact, home)) in &files.facts {
        // An untrusted database is filled as a whole by the next commit.
        let behind = trusted && tree.get(key).is_none_or(|other| other.generation < fact.generation);
        if behind || home.place.is_none() {
            memory.pending.insert(key.clone(), fact.generation);
        }
        memory.facts.insert(key.clone(), fact.clone());
    }
    for (key, fact) in tree {
        let gone = files.gone.get(&key).copied().filter(|gone| *gone > fact.generation);
        let newer = match (memory.facts.get(&key), gone) {
            (Some(file), _) => file.generation < fact.generation,
            (None, Some(_)) => false,
            (None, None) => trusted || files.may_have_lost(&key),
        };
        if newer {
            memory.pending.insert(key.clone(), fact.generation);
            memory.facts.insert(key, fact);
        } else if let Some(gone) = gone.filter(|_| !memory.facts.contains_key(&key)) {
            memory.pending.insert(key, gone);
        }
    }
    let facts = memory.facts.values().map(|fact| fact.generation);
    memory.generation = facts.chain(files.gone.values().copied()).max().unwrap_or(0);
    memory
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
