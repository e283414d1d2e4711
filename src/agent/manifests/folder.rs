//! One look at the folder, or at the one file, after another, each compared with the one before.

use super::names::{is_manifest, says_manifest};
use super::{DENIED, FileContent, ManifestEvent, SETTLE};
use crate::sys::files::{Settled, read_settled};
use std::collections::{BTreeMap, BTreeSet};
use std::fs::{FileType, Metadata};
use std::io;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::time::Duration;

/// As upstream: `maxConfigLength` of `pkg/kubelet/config/common.go`.
const MAX_BYTES: u64 = 10 * 1024 * 1024;

/// What tells one content of a file from another without reading it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Stamp {
    device: u64,
    inode: u64,
    size: u64,
    modified: (i64, i64),
    changed: (i64, i64),
}

impl Stamp {
    fn of(metadata: &Metadata) -> Self {
        Self {
            device: metadata.dev(),
            inode: metadata.ino(),
            size: metadata.size(),
            modified: (metadata.mtime(), metadata.mtime_nsec()),
            changed: (metadata.ctime(), metadata.ctime_nsec()),
        }
    }
}

/// A file as it was last read.
#[derive(Debug)]
struct Known {
    /// Absent for a file that was not or could not be read: it is tried again at each look.
    stamp: Option<Stamp>,
    content: FileContent,
}

/// The folder as it was last seen.
#[derive(Debug)]
pub(super) struct Folder {
    path: PathBuf,
    files: BTreeMap<String, Known>,
    links: Vec<PathBuf>,
    /// Links that led nowhere at the last look, and files without a byte.
    unsure: BTreeSet<String>,
    /// Files that were not there at the last look, while it is not sure yet that they are removed.
    doubtful: BTreeSet<String>,
    /// Where the folder lay when it was last seen.
    device: Option<u64>,
    /// That there is no folder was told.
    missing: bool,
    /// What the folder holds was told.
    told: bool,
}

/// What a look found.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Look {
    /// The folder, if it is not as told before.
    pub(super) event: Option<ManifestEvent>,
    /// Something is not decided: look again after this time even if nothing is told.
    pub(super) again: Option<Duration>,
}

impl Folder {
    /// `before`: files that may be there and have not been read yet.
    pub(super) fn new(path: &Path, before: impl IntoIterator<Item = String>) -> Self {
        let unread = |path| (path, Known { stamp: None, content: FileContent::Unread });
        Self {
            path: path.to_owned(),
            files: before.into_iter().map(unread).collect(),
            links: Vec::new(),
            unsure: BTreeSet::new(),
            doubtful: BTreeSet::new(),
            device: None,
            missing: false,
            told: false,
        }
    }

    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    /// Links whose targets changes are not told by the folder.
    pub(super) fn links(&self) -> &[PathBuf] {
        &self.links
    }

    /// Looks at the folder. `settled`: enough time has gone since the last look to believe that what is away is removed.
    pub(super) fn look(&mut self, settled: bool) -> Look {
        let (entries, lost) = match self.list() {
            Ok(listed) => listed,
            Err(error) => {
                // Known files stay: an error tells nothing about them.
                tracing::warn!("list {}: {error}", self.path.display());
                return Look { event: None, again: Some(DENIED) };
            }
        };
        let Some(entries) = entries else {
            return self.folder_missing(settled, lost);
        };
        let mut changed = std::mem::take(&mut self.missing) || !self.told;
        let (mut busy, mut failed) = (false, false);
        self.links.clear();
        let before = std::mem::take(&mut self.unsure);
        let mut seen = BTreeSet::new();
        for Entry { path, is_link } in entries {
            let text = path.to_string_lossy().into_owned();
            if is_link {
                self.links.push(path.clone());
            }
            match self.read(&path, &text) {
                Read::Absent => continue,
                Read::Same => {}
                Read::Busy => busy = true,
                Read::New(known, again) => {
                    failed |= again;
                    changed |= self.put(&text, known);
                }
                // As long as it may be about to be replaced or written nothing is said of it.
                Read::Unsure(content) => {
                    let known = self.files.get(&text).is_some_and(|known| known.content == content);
                    if known || (settled && before.contains(&text)) {
                        changed |= self.put(&text, Known { stamp: None, content });
                    } else {
                        busy = true;
                    }
                    self.unsure.insert(text.clone());
                }
            }
            seen.insert(text);
        }
        let (removed, doubt) = self.removals(&seen, settled && !lost);
        changed |= removed;
        let again = if busy || (doubt && !lost) { Some(SETTLE) } else { failed.then_some(DENIED) };
        self.report(changed, again)
    }

    /// Takes over what was read. Whether it is another content than before.
    fn put(&mut self, path: &str, known: Known) -> bool {
        let same = self.files.get(path).is_some_and(|before| before.content == known.content);
        self.files.insert(path.to_owned(), known);
        !same
    }

    /// The files that can be manifests, none for a missing folder; and whether the folder's content was lost rather than
    /// removed.
    fn list(&mut self) -> io::Result<(Option<Vec<Entry>>, bool)> {
        let entries = match std::fs::read_dir(&self.path) {
            Ok(entries) => entries,
            // Whoever names one file means it, whatever its name.
            Err(e) if e.kind() == io::ErrorKind::NotADirectory && self.path.is_file() => {
                self.device = Some(self.path.symlink_metadata()?.dev());
                let is_link = self.path.is_symlink();
                return Ok((Some(vec![Entry { path: self.path.clone(), is_link }]), false));
            }
            Err(e) if matches!(e.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory) => {
                return Ok((None, self.is_elsewhere()));
            }
            Err(e) => return Err(e),
        };
        let mut files = Vec::new();
        for entry in entries {
            let entry = entry?;
            let name = entry.file_name();
            if is_manifest(&name.to_string_lossy()) {
                // One that is gone meanwhile is no link.
                let is_link = entry.file_type().is_ok_and(|kind| kind.is_symlink());
                files.push(Entry { path: self.path.join(name), is_link });
            }
        }
        files.sort_unstable();
        let device = self.path.metadata()?.dev();
        let lost = files.is_empty() && self.device.is_some_and(|before| before != device);
        if !lost {
            self.device = Some(device);
        }
        Ok((Some(files), lost))
    }

    /// Whether the nearest folder above is on another file system than the folder was: then that one went away.
    fn is_elsewhere(&self) -> bool {
        let above = self.path.ancestors().skip(1).find_map(|ancestor| ancestor.metadata().ok());
        self.device.is_some_and(|before| above.is_none_or(|above| above.dev() != before))
    }

    fn folder_missing(&mut self, settled: bool, lost: bool) -> Look {
        self.links.clear();
        if !self.told {
            let first = !std::mem::replace(&mut self.missing, true);
            return Look { event: first.then_some(ManifestEvent::FolderMissing), again: None };
        }
        let (removed, doubt) = self.removals(&BTreeSet::new(), settled && !lost);
        let again = (doubt && !lost).then_some(SETTLE);
        if self.files.is_empty() && !lost {
            let first = !std::mem::replace(&mut self.missing, true);
            return Look { event: first.then_some(ManifestEvent::FolderMissing), again };
        }
        self.report(removed, again)
    }

    /// Forgets files that are away for long enough. Whether any were forgotten, and whether others are in doubt.
    fn removals(&mut self, seen: &BTreeSet<String>, settled: bool) -> (bool, bool) {
        let away: BTreeSet<String> = self.files.keys().filter(|path| !seen.contains(*path)).cloned().collect();
        let (removed, doubtful): (BTreeSet<String>, BTreeSet<String>) =
            away.into_iter().partition(|path| settled && self.doubtful.contains(path));
        self.files.retain(|path, _| !removed.contains(path));
        self.doubtful = doubtful;
        (!removed.is_empty(), !self.doubtful.is_empty())
    }

    fn report(&mut self, changed: bool, again: Option<Duration>) -> Look {
        if !changed {
            return Look { event: None, again };
        }
        self.told = true;
        let files = self.files.iter().map(|(path, known)| (path.clone(), known.content.clone())).collect();
        Look { event: Some(ManifestEvent::Files(files)), again }
    }

    fn read(&self, path: &Path, text: &str) -> Read {
        let known = self.files.get(text);
        if path.to_str().is_none() {
            let content = FileContent::Unreadable("its name is not UTF-8".to_owned());
            return Read::New(Known { stamp: None, content }, false);
        }
        let unreadable =
            |why: String, again| Read::New(Known { stamp: None, content: FileContent::Unreadable(why) }, again);
        let failed = |error: io::Error| match error.kind() {
            io::ErrorKind::NotFound | io::ErrorKind::NotADirectory => match path.read_link() {
                Ok(target) => {
                    Read::Unsure(FileContent::Unreadable(format!("is a link to nothing: {}", target.display())))
                }
                Err(_) => Read::Absent,
            },
            _ => unreadable(reason(&error), may_pass(&error)),
        };
        let metadata = match path.metadata() {
            Ok(metadata) if metadata.is_file() => metadata,
            Ok(metadata) => {
                let name = path.file_name().unwrap_or_default().to_string_lossy();
                return match no_file(metadata.file_type(), &name) {
                    Some(what) => unreadable(format!("is {what}, not a file"), false),
                    None => Read::Absent,
                };
            }
            Err(error) => return failed(error),
        };
        if known.is_some_and(|known| known.stamp == Some(Stamp::of(&metadata))) {
            return Read::Same;
        }
        match read_settled(path, MAX_BYTES) {
            Ok(None) => Read::Busy,
            // Whoever makes a file counts as its writer a moment later.
            Ok(Some(Settled { bytes, .. })) if bytes.is_empty() => Read::Unsure(FileContent::Bytes(Vec::new().into())),
            Ok(Some(Settled { bytes, metadata })) => {
                let content = match known.map(|known| &known.content) {
                    Some(FileContent::Bytes(before)) if **before == *bytes => FileContent::Bytes(before.clone()),
                    _ => FileContent::Bytes(bytes.into()),
                };
                Read::New(Known { stamp: Some(Stamp::of(&metadata)), content }, false)
            }
            Err(error) => failed(error),
        }
    }
}

/// A file that can be a manifest, in lexical order.
#[derive(Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Entry {
    path: PathBuf,
    /// The folder itself says so: nothing is asked for each file.
    is_link: bool,
}

enum Read {
    /// Gone, or nothing that can be a manifest.
    Absent,
    /// As known.
    Same,
    /// Somebody is writing it.
    Busy,
    /// A link to nothing, or nothing in a file, and how that is told if it stays so.
    Unsure(FileContent),
    /// Read anew; true: it could not be, and nobody tells when it can.
    New(Known, bool),
}

/// What stands in a file's place, when that is worth saying. A folder may lie beside the manifests; one that is named like
/// a manifest was meant to be one.
fn no_file(kind: FileType, name: &str) -> Option<&'static str> {
    if kind.is_dir() {
        says_manifest(name).then_some("a folder")
    } else if kind.is_fifo() {
        Some("a pipe")
    } else if kind.is_socket() {
        Some("a socket")
    } else {
        Some("a device")
    }
}

/// Whether a read may go well later without any change of the folder: a card that answers again, a server that is back.
fn may_pass(error: &io::Error) -> bool {
    use io::ErrorKind::{FileTooLarge, InvalidFilename, InvalidInput};
    let lasting = matches!(error.kind(), FileTooLarge | InvalidFilename | InvalidInput);
    // The kind of a loop of links has no stable name yet.
    !lasting && rustix::io::Errno::from_io_error(error) != Some(rustix::io::Errno::LOOP)
}

fn reason(error: &io::Error) -> String {
    if error.kind() == io::ErrorKind::FileTooLarge {
        return format!("larger than {} MiB", MAX_BYTES >> 20);
    }
    format!("cannot be read: {error}")
}

#[cfg(test)]
mod tests;
