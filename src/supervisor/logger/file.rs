//! One log file: appended, rotated, never left with half a line.

use super::rotation;
use crate::model::WallTime;
use crate::model::supervise::LogLimits;
use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::unix::fs::{FileExt as _, MetadataExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};

/// A container attempt's log.
#[derive(Debug)]
pub(crate) struct LogFile {
    path: PathBuf,
    file: Option<File>,
    size: u64,
}

impl LogFile {
    /// Opens the file, or leaves that to the first write if it cannot be opened now.
    pub(crate) fn open(path: PathBuf) -> Self {
        let mut log = Self { path, file: None, size: 0 };
        if let Err(e) = log.reopen() {
            tracing::warn!(path = %log.path.display(), error = %e, "a log file cannot be opened");
        }
        log
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    fn reopen(&mut self) -> io::Result<()> {
        self.file = None;
        let file = OpenOptions::new().read(true).append(true).create(true).mode(0o640).open(&self.path)?;
        self.size = file.metadata()?.len();
        let mut last = [b'\n'];
        if let Some(at) = self.size.checked_sub(1) {
            file.read_exact_at(&mut last, at)?;
        }
        if last != [b'\n'] {
            // A logger was killed in the middle of a line: what follows gets its own.
            self.size = self.size.saturating_add(write_all(&file, b"\n", self.size)?);
        }
        self.file = Some(file);
        Ok(())
    }

    /// Appends whole lines, in a new file if the present one would grow too large.
    ///
    /// # Errors
    /// Of open, rename and write; nothing of `lines` is in the file then.
    pub(crate) fn append(&mut self, lines: &[u8], limits: &LogLimits, now: WallTime) -> io::Result<()> {
        let length = u64::try_from(lines.len()).unwrap_or(u64::MAX);
        let gone = self.file.as_ref().is_none_or(|f| f.metadata().is_ok_and(|m| m.nlink() == 0));
        if gone {
            self.reopen()?;
        }
        if self.size > 0 && self.size.saturating_add(length) > limits.max_size {
            self.rotate(limits, now)?;
        }
        let Some(file) = &self.file else { return Err(io::ErrorKind::NotFound.into()) };
        self.size = self.size.saturating_add(write_all(file, lines, self.size)?);
        Ok(())
    }

    /// Gives the file a dated name, begins a new one, and removes what is too much.
    pub(crate) fn rotate(&mut self, limits: &LogLimits, now: WallTime) -> io::Result<()> {
        let suffixes = self.suffixes();
        let newest = suffixes.iter().max().map(String::as_str);
        let suffix = rotation::suffix(now, newest);
        fs::rename(&self.path, self.rotated(&suffix))?;
        self.reopen()?;
        let mut all = suffixes;
        all.push(suffix);
        for old in rotation::surplus(all, limits.max_files) {
            remove(&self.rotated(&old));
        }
        Ok(())
    }

    /// Empties the file, so that what it takes is free at once. Whoever reads it sees that it became shorter; the name
    /// stays. Gives how much that was.
    pub(crate) fn empty(&mut self) -> io::Result<u64> {
        let file = match &self.file {
            Some(file) => file,
            None => &OpenOptions::new().append(true).open(&self.path)?,
        };
        let size = file.metadata()?.len();
        file.set_len(0)?;
        self.size = 0;
        Ok(size)
    }

    fn rotated(&self, suffix: &str) -> PathBuf {
        let mut name = self.path.clone().into_os_string();
        name.push(".");
        name.push(suffix);
        name.into()
    }

    fn suffixes(&self) -> Vec<String> {
        let (Some(folder), Some(name)) = (self.path.parent(), self.path.file_name().and_then(|n| n.to_str())) else {
            return Vec::new();
        };
        let of = |file: &str| Some(file.strip_prefix(name)?.strip_prefix('.')?.to_owned());
        let entries = fs::read_dir(folder).into_iter().flatten().flatten();
        let found = entries.filter_map(|e| of(e.file_name().to_str()?));
        found.filter(|s| rotation::parse(s).is_some()).collect()
    }
}

/// Removes a log file; one that cannot be removed is said and left. Whether it is gone.
pub(crate) fn remove(path: &Path) -> bool {
    match fs::remove_file(path) {
        Err(e) if e.kind() != io::ErrorKind::NotFound => {
            tracing::warn!(path = %path.display(), error = %e, "an old log file cannot be removed");
            false
        }
        _ => true,
    }
}

/// Writes all or nothing: after a failure the file ends where it ended before. Gives the length.
fn write_all(file: &File, bytes: &[u8], size: u64) -> io::Result<u64> {
    match io::Write::write_all(&mut &*file, bytes) {
        Ok(()) => Ok(u64::try_from(bytes.len()).unwrap_or(u64::MAX)),
        Err(e) => {
            // If even this fails the next open ends the half line.
            let _ = file.set_len(size);
            Err(e)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: WallTime = WallTime(951_827_696_000_000_000);

    fn limits(max_size: u64, max_files: u32) -> LogLimits {
        LogLimits { max_size, max_files, node_budget: 1 << 30 }
    }

    fn names(folder: &Path) -> Vec<String> {
        let mut names: Vec<String> =
            fs::read_dir(folder).unwrap().map(|e| e.unwrap().file_name().into_string().unwrap()).collect();
        names.sort();
        names
    }

    #[test]
    fn files_are_rotated_by_size_and_count() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("0.log");
        fs::write(folder.path().join("0.log.notes"), "kept: not ours").unwrap();
        let mut log = LogFile::open(path.clone());
        for n in 0..5 {
            log.append(format!("line {n}\n").as_bytes(), &limits(10, 3), NOW).unwrap();
        }
        assert_eq!(names(folder.path()), ["0.log", "0.log.20000229-123458", "0.log.20000229-123459", "0.log.notes"]);
        assert_eq!(fs::read_to_string(&path).unwrap(), "line 4\n");
        assert_eq!(fs::read_to_string(folder.path().join("0.log.20000229-123459")).unwrap(), "line 3\n");
    }

    #[test]
    fn a_removed_file_is_begun_anew_and_a_torn_line_is_ended() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("0.log");
        fs::write(&path, "torn").unwrap();
        let mut log = LogFile::open(path.clone());
        log.append(b"a\n", &limits(100, 2), NOW).unwrap();
        assert_eq!(fs::read_to_string(&path).unwrap(), "torn\na\n");
        fs::remove_file(&path).unwrap();
        log.append(b"b\n", &limits(100, 2), NOW).unwrap();
        assert_eq!(fs::read_to_string(&path).unwrap(), "b\n");
    }

    #[test]
    fn a_file_that_cannot_be_written_says_so_each_time() {
        let mut log = LogFile::open(PathBuf::from("/dev/full"));
        log.file = OpenOptions::new().append(true).open("/dev/full").ok();
        assert!(log.append(b"a\n", &limits(100, 2), NOW).is_err());
        let mut log = LogFile::open(PathBuf::from("/nonexistent/0.log"));
        assert!(log.append(b"a\n", &limits(100, 2), NOW).is_err());
    }
}
