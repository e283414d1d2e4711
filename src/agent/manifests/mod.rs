//! The folder of static pods, watched without polling, and what its files want, put together.
//!
//! inotify only says "look again". Each look lists the folder, reads what differs by its metadata, and tells the whole
//! picture if it changed, so that neither a lost event nor a crash loses a manifest.
//!
//! - A file that somebody is still writing is not read: the content before stays until it is closed. Editors' and
//!   packagers' files ([`names`]) are not manifests.
//! - A file that vanishes counts as removed only after half a second: editors and configuration tools replace a file by
//!   way of removing it.
//! - Links to files are followed, also out of the folder, and so are folders made of links as Kubernetes mounts them. One
//!   that leads nowhere is told after the same half second, and waited for where its target will be.
//! - What is no file and can never be a manifest (a pipe, a socket, a device, a folder named like a manifest) is told as a
//!   file that cannot be read; other folders may lie there.
//! - Instead of a folder there may be one file, whatever its name: it is followed in the folder that it lies in.
//! - What a new agent has not read yet, because somebody is writing it at that moment or because it is away for a moment,
//!   wants what it wanted before.
//! - A folder that is not there when the agent starts is waited for, and nothing is concluded from its absence. One that
//!   is removed or renamed later wants no pods any more, as upstream. But when its file system goes away (unmounted,
//!   unplugged), or another and empty one comes in its place, nothing was removed: the pods stay.

mod folder;
mod merge;
mod names;

pub use merge::{Clash, Desired, FilePods, merge};

use crate::sys::inotify::{Change, WatchId, Watcher};
use crate::sys::ready::Ready;
use folder::{Folder, Look};
use std::collections::BTreeMap;
use std::ffi::OsString;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::mpsc;
use tokio::time::sleep;

/// How long a file must be away to count as removed, and after how long a file that was being written is looked at
/// again even if its closing was not told (it has another name elsewhere).
const SETTLE: Duration = Duration::from_millis(500);
/// When the system denies a watch or a list, the folder is looked at so often.
const DENIED: Duration = Duration::from_secs(10);
/// How many links the kernel follows in one path (path_resolution(7)).
const MAX_LINKS: usize = 40;

/// The manifest folder as it is now.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ManifestEvent {
    /// All manifest files by path, in lexical order. A content that is the same `Arc` as before did not change.
    Files(BTreeMap<String, FileContent>),
    /// There is no folder; it is waited for. Told before any files, nothing is known of what it is to hold; later, all that
    /// was in it is removed.
    FolderMissing,
}

/// A manifest file's content.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum FileContent {
    /// Its bytes.
    Bytes(Arc<[u8]>),
    /// Why it cannot be read.
    Unreadable(String),
    /// This agent has not read it yet: somebody is writing it, or it may be about to come back. What it wanted before
    /// still holds.
    Unread,
}

/// The folder cannot be watched.
#[derive(Debug, thiserror::Error)]
#[error("watch {}", folder.display())]
pub struct WatchError {
    /// The folder.
    pub folder: PathBuf,
    /// Why.
    #[source]
    pub source: io::Error,
}

/// Watches a folder, or one file, until the receiver is dropped. The first event tells what is there now. `before` are the
/// files that an earlier agent knew: they are told, too, until it is sure that they are removed. Must be called in a
/// runtime with I/O and time.
///
/// # Errors
/// When inotify is not to be had at all. A missing folder is no error.
pub fn watch(
    folder: &Path,
    before: impl IntoIterator<Item = String>,
) -> Result<mpsc::Receiver<ManifestEvent>, WatchError> {
    let watcher = Watcher::new().and_then(Ready::new);
    let watcher = watcher.map_err(|source| WatchError { folder: folder.to_owned(), source })?;
    let (tell, events) = mpsc::channel(1);
    let watching = Watching { watcher, watches: Vec::new(), awaited: Vec::new(), denied: false };
    tokio::spawn(watching.run(Folder::new(folder, before), tell));
    Ok(events)
}

struct Watching {
    watcher: Ready<Watcher>,
    /// What is watched.
    watches: Vec<WatchId>,
    /// The folders where the targets of links to nothing will appear, each with the one name that counts there.
    awaited: Vec<(WatchId, OsString)>,
    /// The last attempt to watch was denied.
    denied: bool,
}

impl Watching {
    async fn run(mut self, mut folder: Folder, tell: mpsc::Sender<ManifestEvent>) {
        let mut settled = false;
        loop {
            self.watch_all(&folder);
            // A stalling card must not hold up the agent's only thread.
            let looking = tokio::task::spawn_blocking(move || {
                let look = folder.look(settled);
                (folder, look)
            });
            let Ok((looked, look)) = looking.await else {
                tracing::error!("reading the manifests panicked: no further changes are followed");
                return;
            };
            folder = looked;
            let Look { event, again } = look;
            if let Some(event) = event
                && tell.send(event).await.is_err()
            {
                return;
            }
            // A link may have appeared whose target is to be watched, or the folder itself.
            if self.watch_all(&folder) {
                settled = false;
                continue;
            }
            let wait = again.or(self.denied.then_some(DENIED));
            settled = tokio::select! {
                changed = self.changed() => match changed {
                    Ok(()) => false,
                    Err(error) => {
                        tracing::error!("inotify: {error}: manifests are looked at every {} s", DENIED.as_secs());
                        sleep(DENIED).await;
                        true
                    }
                },
                () = sleep(wait.unwrap_or_default()), if wait.is_some() => true,
                () = tell.closed() => return,
            };
        }
    }

    /// Watches the folder, or where it will appear, and what links in it lead to. Whether anything new is watched: what
    /// happened there before was not told.
    fn watch_all(&mut self, folder: &Folder) -> bool {
        let watcher = self.watcher.get_ref();
        let (mut watches, mut awaited) = (Vec::new(), Vec::new());
        let mut denied = None;
        for result in watch_folder(watcher, folder.path()) {
            keep(result, &mut watches, &mut denied);
        }
        for link in folder.links() {
            match watcher.file(link) {
                Err(e) if is_absent(&e) => {
                    watch_target(watcher, link).into_iter().for_each(|w| keep(w, &mut awaited, &mut denied));
                }
                result => keep(result, &mut watches, &mut denied),
            }
        }
        if let Some(error) = &denied
            && !self.denied
        {
            tracing::warn!("watch {}: {error}: looking every {} s", folder.path().display(), DENIED.as_secs());
        }
        self.denied = denied.is_some();
        watches.sort_unstable();
        watches.dedup();
        let new = watches.iter().any(|watch| !self.watches.contains(watch))
            || awaited.iter().any(|awaited| !self.awaited.contains(awaited));
        let kept = |watch: &WatchId| watches.contains(watch) || awaited.iter().any(|(at, _)| at == watch);
        let before = self.watches.iter().chain(self.awaited.iter().map(|(at, _)| at));
        before.filter(|watch| !kept(watch)).for_each(|watch| watcher.forget(*watch));
        (self.watches, self.awaited) = (watches, awaited);
        new
    }

    /// Waits for a change of what is watched.
    async fn changed(&self) -> io::Result<()> {
        loop {
            let changes = self.watcher.read(Watcher::take).await?;
            if changes.iter().any(|change| self.concerns(change)) {
                return Ok(());
            }
        }
    }

    /// Changes of watches that were given up meanwhile are told too, and others in the folders of what is awaited.
    fn concerns(&self, change: &Change) -> bool {
        let Some(watch) = change.watch else { return true };
        let is_awaited = |name: &OsString| change.name.as_ref().is_none_or(|changed| changed == name);
        self.watches.contains(&watch) || self.awaited.iter().any(|(at, name)| *at == watch && is_awaited(name))
    }
}

/// Keeps a watch. What is gone meanwhile was told by the watch on what is around it.
fn keep<T>(result: io::Result<T>, watches: &mut Vec<T>, denied: &mut Option<io::Error>) {
    match result {
        Ok(watch) => watches.push(watch),
        Err(e) if is_absent(&e) => {}
        Err(e) => *denied = Some(e),
    }
}

fn is_absent(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory)
}

/// Watches where the target of a link to nothing will appear: for the first name on the way that is not there, or no
/// folder, and for each link on the way, because it can be made to lead elsewhere.
fn watch_target(watcher: &Watcher, link: &Path) -> Vec<io::Result<(WatchId, OsString)>> {
    let mut watches = Vec::new();
    let mut await_at = |path: &Path| {
        if let (Some(folder), Some(name)) = (path.parent(), path.file_name()) {
            watches.push(watcher.folder(folder).map(|watch| (watch, name.to_owned())));
        }
    };
    let mut path = link.to_owned();
    for _ in 0..MAX_LINKS {
        let steps: Vec<&Path> = path.ancestors().collect();
        let stop = steps.into_iter().rev().find(|step| *step != path && !is_plain_folder(step)).unwrap_or(&path);
        await_at(stop);
        let Ok(target) = stop.read_link() else { break };
        let rest = path.strip_prefix(stop).unwrap_or(Path::new(""));
        path = stop.parent().unwrap_or(stop).join(target).join(rest);
    }
    watches
}

/// A folder itself, not a link to one.
fn is_plain_folder(path: &Path) -> bool {
    path.symlink_metadata().is_ok_and(|metadata| metadata.is_dir())
}

/// Watches the folder, and its parent while the folder is a link; when it is missing, the nearest folder above it that
/// is there.
fn watch_folder(watcher: &Watcher, path: &Path) -> Vec<io::Result<WatchId>> {
    let mut watches = Vec::new();
    for ancestor in path.ancestors() {
        match watcher.folder(ancestor) {
            Err(e) if matches!(e.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory) => {}
            watch => {
                watches.push(watch);
                if !ancestor.is_symlink() {
                    break;
                }
            }
        }
    }
    watches
}

#[cfg(test)]
mod tests;
