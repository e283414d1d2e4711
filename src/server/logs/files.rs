//! The files of one container attempt: `<n>.log.<stamp>` for what was rotated away, oldest first, then `<n>.log`.

use std::ffi::OsStr;
use std::fs::{File, Metadata};
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

/// How often to look again when files move while they are looked at.
const TRIES: u32 = 8;

/// The files of one attempt, by the path of the one that is written.
#[derive(Debug, Clone)]
pub(super) struct LogFiles {
    newest: PathBuf,
}

/// An open file and what tells it from others while it is open.
#[derive(Debug)]
pub(super) struct LogFile {
    pub(super) file: File,
    id: FileId,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct FileId {
    device: u64,
    inode: u64,
}

impl FileId {
    fn of(meta: &Metadata) -> Self {
        Self { device: meta.dev(), inode: meta.ino() }
    }
}

impl LogFile {
    fn open(path: &Path) -> io::Result<Option<Self>> {
        let file = match File::open(path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            other => other?,
        };
        let id = FileId::of(&file.metadata()?);
        Ok(Some(Self { file, id }))
    }
}

impl LogFiles {
    pub(super) fn new(newest: impl Into<PathBuf>) -> Self {
        Self { newest: newest.into() }
    }

    /// Opens all, oldest first, as they are at one moment.
    ///
    /// # Errors
    /// When the folder or a file cannot be read.
    pub(super) fn open_all(&self) -> io::Result<Vec<LogFile>> {
        let mut paths = self.paths()?;
        for _ in 0..TRIES {
            let opened = paths.iter().map(|path| LogFile::open(path)).collect::<io::Result<Vec<_>>>()?;
            let after = self.paths()?;
            if after == paths {
                return Ok(opened.into_iter().flatten().collect());
            }
            paths = after;
        }
        Err(moving(&self.newest))
    }

    /// The file that was begun after `current`; none while `current` is the newest.
    ///
    /// # Errors
    /// When the folder or a file cannot be read.
    pub(super) fn after(&self, current: &LogFile) -> io::Result<Option<LogFile>> {
        if std::fs::metadata(&self.newest).is_ok_and(|meta| FileId::of(&meta) == current.id) {
            return Ok(None);
        }
        for _ in 0..TRIES {
            // Where `current` was removed, all that are left are younger.
            let mut all = self.open_all()?;
            let next = all.iter().position(|file| file.id == current.id).map_or(0, |at| at + 1);
            if next < all.len() {
                return Ok(Some(all.swap_remove(next)));
            }
            if !std::fs::exists(&self.newest)? {
                return Ok(None);
            }
        }
        Err(moving(&self.newest))
    }

    fn paths(&self) -> io::Result<Vec<PathBuf>> {
        let folder = self.newest.parent().unwrap_or(Path::new("/"));
        let name = self.newest.file_name().unwrap_or_default();
        let mut paths = Vec::new();
        for entry in std::fs::read_dir(folder)? {
            let entry = entry?.file_name();
            if is_rotated(&entry, name) {
                paths.push(folder.join(entry));
            }
        }
        // The stamps are written so that their order as text is their order in time.
        paths.sort_unstable();
        paths.push(self.newest.clone());
        Ok(paths)
    }
}

fn is_rotated(entry: &OsStr, name: &OsStr) -> bool {
    let stamp = entry.as_bytes().strip_prefix(name.as_bytes()).and_then(|rest| rest.strip_prefix(b"."));
    stamp.is_some_and(|stamp| !stamp.is_empty() && !stamp.ends_with(b".tmp") && !stamp.ends_with(b".gz"))
}

fn moving(path: &Path) -> io::Error {
    io::Error::new(
        io::ErrorKind::ResourceBusy,
        format!("the files of {} are rotated too fast to follow", path.display()),
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Read;

    fn text(mut file: LogFile) -> String {
        let mut text = String::new();
        file.file.read_to_string(&mut text).unwrap();
        text
    }

    #[test]
    fn files_come_in_the_order_of_time() {
        let folder = tempfile::tempdir().unwrap();
        let put = |name: &str| std::fs::write(folder.path().join(name), name).unwrap();
        let files = LogFiles::new(folder.path().join("1.log"));
        assert!(files.open_all().unwrap().is_empty());
        for name in [
            "1.log",
            "1.log.20260102-000000",
            "1.log.20260101-235959",
            "11.log",
            "0.log",
            "1.log.x.tmp",
            "1.log.",
            "1.log.x.gz",
        ] {
            put(name);
        }
        let all: Vec<String> = files.open_all().unwrap().into_iter().map(text).collect();
        assert_eq!(all, ["1.log.20260101-235959", "1.log.20260102-000000", "1.log"]);
    }

    #[test]
    fn the_next_file_is_found_after_rotation() {
        let folder = tempfile::tempdir().unwrap();
        let path = |name: &str| folder.path().join(name);
        let files = LogFiles::new(path("0.log"));
        std::fs::write(path("0.log"), "a").unwrap();
        let a = files.open_all().unwrap().pop().unwrap();
        assert!(files.after(&a).unwrap().is_none());
        std::fs::rename(path("0.log"), path("0.log.1")).unwrap();
        assert!(files.after(&a).unwrap().is_none(), "between the two steps of a rotation");
        std::fs::write(path("0.log"), "b").unwrap();
        std::fs::rename(path("0.log"), path("0.log.2")).unwrap();
        std::fs::write(path("0.log"), "c").unwrap();
        let b = files.after(&a).unwrap().unwrap();
        std::fs::remove_file(path("0.log.1")).unwrap();
        assert_eq!(text(files.after(&a).unwrap().unwrap()), "b", "the removed file is older than all others");
        assert_eq!(text(files.after(&b).unwrap().unwrap()), "c");
        assert_eq!(text(b), "b");
    }
}
