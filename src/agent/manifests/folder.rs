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
    /// Links that led nowhere at the last look.
    dangling: BTreeSet<String>,
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
            dangling: BTreeSet::new(),
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
        let mut changed = !self.told;
        let (mut busy, mut failed) = (false, false);
        self.links.clear();
        let dangled = std::mem::take(&mut self.dangling);
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
                // As long as it may be about to be replaced nothing is said of it.
                Read::Dangling(content) => {
                    let known = self.files.get(&text).is_some_and(|known| known.content == content);
                    if known || (settled && dangled.contains(&text)) {
                        changed |= self.put(&text, Known { stamp: None, content });
                    } else {
                        busy = true;
                    }
                    self.dangling.insert(text.clone());
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
        self.report(removed, (doubt && !lost).then_some(SETTLE))
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
                    Read::Dangling(FileContent::Unreadable(format!("is a link to nothing: {}", target.display())))
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
    /// A link to nothing, and how that is told.
    Dangling(FileContent),
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
mod tests {
    use super::*;
    use crate::sys::mounts::{Tmpfs, mount_tmpfs, unmount_all};
    use crate::sys::testing::is_root;
    use rustix::mount::MountFlags;
    use std::ffi::OsStr;
    use std::fs;
    use std::os::unix::ffi::OsStrExt;
    use std::os::unix::fs::symlink;

    fn names(look: &Look) -> Option<Vec<String>> {
        match &look.event {
            Some(ManifestEvent::Files(files)) => {
                Some(files.keys().map(|path| path.rsplit('/').next().unwrap().to_owned()).collect())
            }
            _ => None,
        }
    }

    fn content(look: &Look, name: &str) -> Option<FileContent> {
        let Some(ManifestEvent::Files(files)) = &look.event else { panic!("{look:?}") };
        files.iter().find(|(path, _)| path.rsplit('/').next() == Some(name)).map(|(_, content)| content.clone())
    }

    fn why(look: &Look, name: &str) -> Option<String> {
        match content(look, name)? {
            FileContent::Unreadable(why) => Some(why),
            other => panic!("{name}: {other:?}"),
        }
    }

    #[test]
    fn only_files_are_manifests() {
        let dir = tempfile::tempdir().unwrap();
        let at = |name: &str| dir.path().join(name);
        fs::write(at("a.yaml"), "1").unwrap();
        fs::write(at("a.yaml~"), "1").unwrap();
        for folder in ["folder", "folder.yaml", "folder.json~"] {
            fs::create_dir(at(folder)).unwrap();
        }
        symlink("folder", at("linked")).unwrap();
        symlink("folder", at("linked.yml")).unwrap();
        let _socket = std::os::unix::net::UnixListener::bind(at("socket")).unwrap();
        symlink("a.yaml", at("link.yaml")).unwrap();
        symlink("loop.yaml", at("loop.yaml")).unwrap();
        fs::write(dir.path().join(OsStr::from_bytes(b"name\xff")), "1").unwrap();
        rustix::fs::mkfifoat(rustix::fs::CWD, at("fifo.yaml"), rustix::fs::Mode::RWXU).unwrap();
        symlink("/dev/zero", at("zero.yaml")).unwrap();
        let file = fs::File::create(at("huge.yaml")).unwrap();
        file.set_len(MAX_BYTES + 1).unwrap();
        drop(file);
        let mut folder = Folder::new(dir.path(), []);
        let look = folder.look(false);
        for (name, told) in [
            ("huge.yaml", Some("larger than 10 MiB")),
            ("folder.yaml", Some("is a folder, not a file")),
            ("linked.yml", Some("is a folder, not a file")),
            ("fifo.yaml", Some("is a pipe, not a file")),
            ("socket", Some("is a socket, not a file")),
            ("zero.yaml", Some("is a device, not a file")),
            ("folder", None),
            ("folder.json~", None),
            ("linked", None),
        ] {
            assert_eq!(why(&look, name).as_deref(), told, "{name}");
        }
        assert!(why(&look, "loop.yaml").is_some() && why(&look, "name\u{fffd}").is_some());
        for name in ["a.yaml", "link.yaml"] {
            assert_eq!(content(&look, name), Some(FileContent::Bytes(b"1".to_vec().into())));
        }
        assert_eq!(names(&look).unwrap().len(), 10, "{look:?}");
        assert!(look.again.is_none() && folder.look(false).event.is_none());
        // What takes such a thing's place is read.
        fs::remove_dir(at("folder.yaml")).unwrap();
        fs::write(at("folder.yaml"), "2").unwrap();
        assert_eq!(content(&folder.look(false), "folder.yaml"), Some(FileContent::Bytes(b"2".to_vec().into())));
    }

    /// The target may be about to be replaced: a link to nothing is told as late as a removal, and wants what it wanted.
    #[test]
    fn a_link_to_nothing_is_told_at_the_second_look() {
        let dir = tempfile::tempdir().unwrap();
        let at = |name: &str| dir.path().join(name);
        fs::write(at(".target"), "1").unwrap();
        fs::write(at(".file"), "1").unwrap();
        for (link, target) in [("a.yaml", ".target"), ("new", "nothere"), ("below.yaml", ".file/x")] {
            symlink(target, at(link)).unwrap();
        }
        let mut folder = Folder::new(dir.path(), [at("before.yaml").to_str().unwrap().to_owned()]);
        symlink("nowhere", at("before.yaml")).unwrap();
        let look = folder.look(true);
        assert_eq!(
            (names(&look).unwrap(), look.again),
            (["a.yaml", "before.yaml"].map(str::to_owned).to_vec(), Some(SETTLE))
        );
        assert_eq!(content(&look, "before.yaml"), Some(FileContent::Unread));
        // Woken by another file: no time has gone.
        let look = folder.look(false);
        assert!(look.event.is_none() && look.again == Some(SETTLE), "{look:?}");
        let look = folder.look(true);
        assert_eq!(why(&look, "new").unwrap(), "is a link to nothing: nothere");
        assert_eq!(why(&look, "below.yaml").unwrap(), "is a link to nothing: .file/x");
        assert_eq!(why(&look, "before.yaml").unwrap(), "is a link to nothing: nowhere");
        assert!(look.again.is_none() && folder.look(false) == Look { event: None, again: None });

        fs::remove_file(at(".target")).unwrap();
        let gone = folder.look(true);
        assert!(gone.event.is_none() && gone.again == Some(SETTLE), "{gone:?}");
        fs::write(at(".target"), "1").unwrap();
        assert!(folder.look(true) == Look { event: None, again: None });
        fs::remove_file(at(".target")).unwrap();
        folder.look(false);
        assert_eq!(why(&folder.look(true), "a.yaml").unwrap(), "is a link to nothing: .target");
        fs::write(at(".target"), "2").unwrap();
        assert_eq!(content(&folder.look(false), "a.yaml"), Some(FileContent::Bytes(b"2".to_vec().into())));
        fs::remove_file(at("a.yaml")).unwrap();
        folder.look(false);
        assert_eq!(content(&folder.look(true), "a.yaml"), None);
    }

    #[test]
    fn a_removal_is_believed_at_the_second_look() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("a.yaml");
        fs::write(&path, "1").unwrap();
        let mut folder = Folder::new(dir.path(), []);
        folder.look(false);
        fs::remove_file(&path).unwrap();
        // The time that has gone belongs to something else.
        let first = folder.look(true);
        assert!(first.event.is_none() && first.again.is_some());
        // Woken by another file: no time has gone.
        let second = folder.look(false);
        assert!(second.event.is_none() && second.again.is_some());
        fs::write(&path, "1").unwrap();
        let back = folder.look(true);
        assert!(back.event.is_none() && back.again.is_none());
        fs::remove_file(&path).unwrap();
        folder.look(false);
        assert_eq!(names(&folder.look(true)).unwrap(), Vec::<String>::new());
    }

    #[test]
    fn the_same_bytes_are_the_same_content() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("a.yaml");
        fs::write(&path, "1").unwrap();
        let mut folder = Folder::new(dir.path(), []);
        folder.look(false);
        fs::write(dir.path().join(".new"), "1").unwrap();
        fs::rename(dir.path().join(".new"), &path).unwrap();
        assert!(folder.look(false).event.is_none());
    }

    #[test]
    fn linux_a_lost_file_system_removes_nothing() {
        if !is_root() {
            return;
        }
        let dir = tempfile::tempdir().unwrap();
        let at = dir.path().canonicalize().unwrap().join("mnt");
        fs::create_dir(&at).unwrap();
        let tmpfs = Tmpfs { size: None, mode: 0o700, gid: 0, noswap: false, flags: MountFlags::empty() };
        // The folder is the mount point, or lies below it.
        for below in ["", "manifests"] {
            mount_tmpfs(&at, &tmpfs).unwrap();
            let path = at.join(below);
            fs::create_dir_all(&path).unwrap();
            fs::write(path.join("a.yaml"), "1").unwrap();
            let mut folder = Folder::new(&path, []);
            assert_eq!(names(&folder.look(false)).unwrap(), ["a.yaml"]);
            unmount_all(&at).unwrap();
            for settled in [false, true, true] {
                let look = folder.look(settled);
                assert!(look.event.is_none() && look.again.is_none(), "{below:?} {look:?}");
            }
            // It comes back with other content.
            mount_tmpfs(&at, &tmpfs).unwrap();
            fs::create_dir_all(&path).unwrap();
            fs::write(path.join("b.yaml"), "1").unwrap();
            folder.look(false);
            assert_eq!(names(&folder.look(true)).unwrap(), ["b.yaml"]);
            unmount_all(&at).unwrap();
        }
    }

    #[test]
    fn a_missing_folder_is_told_once() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("manifests");
        let mut folder = Folder::new(&path, []);
        assert_eq!(folder.look(false).event, Some(ManifestEvent::FolderMissing));
        assert_eq!(folder.look(true).event, None);
        // It wants nothing, which is more than not being there.
        fs::create_dir(&path).unwrap();
        assert_eq!(names(&folder.look(false)).unwrap(), Vec::<String>::new());
        fs::write(path.join("a.yaml"), "1").unwrap();
        assert_eq!(names(&folder.look(false)).unwrap(), ["a.yaml"]);
        fs::remove_dir_all(&path).unwrap();
        assert!(folder.look(false).again.is_some());
        assert_eq!(names(&folder.look(true)).unwrap(), Vec::<String>::new());
        assert_eq!(folder.look(true).event, None);
    }

    #[test]
    fn what_was_there_before_is_unread_until_it_is_read_or_believed_removed() {
        let dir = tempfile::tempdir().unwrap();
        let at = |name: &str| dir.path().join(name).to_str().unwrap().to_owned();
        fs::write(at("whole.yaml"), "1").unwrap();
        let mut writer = fs::File::create(at("busy.yaml")).unwrap();
        let mut folder = Folder::new(dir.path(), ["whole.yaml", "busy.yaml", "away.yaml"].map(at));
        let look = folder.look(false);
        assert_eq!(content(&look, "whole.yaml"), Some(FileContent::Bytes(b"1".to_vec().into())));
        assert_eq!(content(&look, "busy.yaml"), Some(FileContent::Unread));
        assert_eq!(content(&look, "away.yaml"), Some(FileContent::Unread));
        assert_eq!(look.again, Some(SETTLE));
        let look = folder.look(true);
        assert_eq!(content(&look, "busy.yaml"), Some(FileContent::Unread));
        assert_eq!(content(&look, "away.yaml"), None);
        io::Write::write_all(&mut writer, b"2").unwrap();
        drop(writer);
        assert_eq!(content(&folder.look(false), "busy.yaml"), Some(FileContent::Bytes(b"2".to_vec().into())));
    }

    #[test]
    fn one_file_is_a_folder_of_itself() {
        let dir = tempfile::tempdir().unwrap();
        // Nobody would take this name for a manifest's in a folder.
        let path = dir.path().join(".pod");
        fs::write(&path, "1").unwrap();
        fs::write(dir.path().join("other.yaml"), "1").unwrap();
        let mut folder = Folder::new(&path, []);
        assert_eq!(names(&folder.look(false)).unwrap(), [".pod"]);
        assert!(folder.look(false).event.is_none());
        fs::remove_file(&path).unwrap();
        assert_eq!(folder.look(false).again, Some(SETTLE));
        assert_eq!(names(&folder.look(true)).unwrap(), Vec::<String>::new());
        fs::create_dir(&path).unwrap();
        fs::write(path.join("in.yaml"), "1").unwrap();
        assert_eq!(names(&folder.look(false)).unwrap(), ["in.yaml"]);
    }

    #[test]
    fn linux_what_cannot_be_read_now_is_tried_again() {
        let dir = tempfile::tempdir().unwrap();
        // Reading the memory at address 0 gives EIO, as a card does that does not answer.
        symlink("/proc/self/mem", dir.path().join("a.yaml")).unwrap();
        let mut folder = Folder::new(dir.path(), []);
        let look = folder.look(false);
        assert_eq!(look.again, Some(DENIED), "{look:?}");
        assert_eq!(names(&look).unwrap(), ["a.yaml"]);
        let look = folder.look(true);
        assert!(look.event.is_none() && look.again == Some(DENIED), "{look:?}");
        fs::remove_file(dir.path().join("a.yaml")).unwrap();
        fs::write(dir.path().join("a.yaml"), "1").unwrap();
        assert!(folder.look(true).again.is_none());
    }
}
