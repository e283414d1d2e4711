//! What the supervisor writes down on tmpfs: which containers live, and how each ended.

use crate::model::ContainerId;
use crate::model::supervise::{ContainerEntry, ContainerState};
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

/// The largest record that is read back.
const MAX_RECORD: u64 = 256 * 1024;

/// Two folders of one JSON file per container.
#[derive(Debug)]
pub(crate) struct Records {
    live: PathBuf,
    exits: PathBuf,
}

impl Records {
    /// Makes `containers` and `exits` below the run folder, mode 0700.
    pub(crate) fn open(run: &Path) -> io::Result<Self> {
        let records = Self { live: run.join("containers"), exits: run.join("exits") };
        for folder in [&records.live, &records.exits] {
            private_dir(folder)?;
        }
        Ok(records)
    }

    /// Writes down a container that lives.
    pub(crate) fn save(&self, entry: &ContainerEntry) -> io::Result<()> {
        write(&self.live, entry)
    }

    /// Writes down how a container ended.
    pub(crate) fn record(&self, entry: &ContainerEntry) -> io::Result<()> {
        write(&self.exits, entry)?;
        remove(&self.live, &entry.id)
    }

    /// Removes all that is written of a container.
    pub(crate) fn erase(&self, id: &ContainerId) -> io::Result<()> {
        remove(&self.exits, id)?;
        remove(&self.live, id)
    }

    /// What an earlier supervisor wrote down: the containers that had ended, and those that had not. Files that
    /// cannot be read are removed.
    pub(crate) fn load(&self) -> (Vec<ContainerEntry>, Vec<ContainerEntry>) {
        let ended = read_all(&self.exits, |state| {
            matches!(state, ContainerState::Exited(_) | ContainerState::StartFailed { .. })
        });
        let mut live =
            read_all(&self.live, |state| matches!(state, ContainerState::Creating | ContainerState::Running { .. }));
        live.retain(|l| !ended.iter().any(|e| e.id == l.id));
        (ended, live)
    }
}

fn file(folder: &Path, id: &ContainerId) -> PathBuf {
    folder.join(format!("{id}.json"))
}

fn write(folder: &Path, entry: &ContainerEntry) -> io::Result<()> {
    let temporary = folder.join(format!(".{}", entry.id));
    fs::write(&temporary, serde_json::to_vec(entry)?)?;
    fs::rename(&temporary, file(folder, &entry.id))
}

fn remove(folder: &Path, id: &ContainerId) -> io::Result<()> {
    match fs::remove_file(file(folder, id)) {
        Err(e) if e.kind() != io::ErrorKind::NotFound => Err(e),
        _ => Ok(()),
    }
}

fn read_all(folder: &Path, wanted: impl Fn(&ContainerState) -> bool) -> Vec<ContainerEntry> {
    let mut found = Vec::new();
    let Ok(entries) = fs::read_dir(folder) else { return found };
    for entry in entries.flatten() {
        match read(&entry.path()).filter(|e| wanted(&e.state) && entry.path() == file(folder, &e.id)) {
            Some(e) => found.push(e),
            None => {
                let _ = fs::remove_file(entry.path());
            }
        }
    }
    found
}

fn read(path: &Path) -> Option<ContainerEntry> {
    let size = fs::symlink_metadata(path).ok().filter(fs::Metadata::is_file)?.len();
    if size > MAX_RECORD {
        return None;
    }
    serde_json::from_slice(&fs::read(path).ok()?).ok()
}

/// Makes a folder that only root reads.
pub(crate) fn private_dir(path: &Path) -> io::Result<()> {
    use std::os::unix::fs::DirBuilderExt as _;
    fs::DirBuilder::new().recursive(true).mode(0o700).create(path)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::supervise::Exit;
    use crate::model::{BootTime, PodUid, WallTime};

    fn entry(id: &str, state: ContainerState) -> ContainerEntry {
        ContainerEntry {
            id: ContainerId::new(id).unwrap(),
            pod: PodUid::new("p").unwrap(),
            name: "c".into(),
            attempt: 0,
            log_path: "/l".into(),
            cgroup: "g".into(),
            state,
        }
    }

    fn exited() -> ContainerState {
        ContainerState::Exited(Exit {
            code: 0,
            signal: None,
            oom_killed: false,
            known: true,
            started_at: BootTime(1),
            started_wall: WallTime(1),
            finished_at: BootTime(2),
            finished_wall: WallTime(2),
        })
    }

    #[test]
    fn what_was_written_is_found_again_and_rubbish_is_cleared() {
        let run = tempfile::tempdir().unwrap();
        let records = Records::open(run.path()).unwrap();
        records.save(&entry("aa", ContainerState::Creating)).unwrap();
        records.save(&entry("bb", ContainerState::Creating)).unwrap();
        records.record(&entry("bb", exited())).unwrap();
        records.save(&entry("bb", ContainerState::Creating)).unwrap();
        fs::write(run.path().join("exits/cc.json"), "{").unwrap();
        fs::write(run.path().join("exits/dd.json"), serde_json::to_vec(&entry("ee", exited())).unwrap()).unwrap();
        fs::create_dir(run.path().join("exits/ff.json")).unwrap();
        let (ended, live) = records.load();
        assert_eq!(ended, [entry("bb", exited())]);
        assert_eq!(live, [entry("aa", ContainerState::Creating)]);
        assert!(!run.path().join("exits/cc.json").exists());
        assert!(!run.path().join("exits/dd.json").exists());
        let id = ContainerId::new("bb").unwrap();
        records.erase(&id).unwrap();
        records.erase(&id).unwrap();
        assert_eq!(records.load().0, []);
    }
}
