//! armlet's own log in a file, where one is asked for: a reader of the log like any other. A card that stalls holds up
//! only this.

use super::node_log::NodeLog;
use crate::executor::Rooms;
use crate::model::log::merge;
use crate::server::LogMark;
use std::fs::File;
use std::io::{self, Write as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

/// Lines are gathered so long before they are written: each write wears the card.
const PAUSE: Duration = Duration::from_secs(1);
/// Before a file that could not be written is tried again.
const RETRY: Duration = Duration::from_secs(60);

/// Follows the log into the file that the configuration names, if it does.
pub(super) fn follow(rooms: &Arc<Rooms>, log: &Arc<NodeLog>) {
    let Some(path) = rooms.config.log_file.clone() else { return };
    let (rooms, log) = (Arc::clone(rooms), Arc::clone(log));
    tokio::spawn(async move {
        // The panics have their own files.
        let mut mark = LogMark { panics: true, ..LogMark::default() };
        loop {
            let part = log.read(&rooms.supervisor, mark, true).await;
            let text: String = merge(&part.parts).into_iter().flat_map(|line| [line, "\n"]).collect();
            let (path, most) = (path.clone(), rooms.config.log_file_max_bytes);
            let written = tokio::task::spawn_blocking(move || append(Path::new(&path), text.as_bytes(), most)).await;
            match written.map_err(io::Error::other).flatten() {
                Ok(()) => {
                    mark = part.mark;
                    tokio::time::sleep(PAUSE).await;
                }
                Err(error) => {
                    tracing::warn!(path = rooms.config.log_file, %error, "the log file cannot be written");
                    tokio::time::sleep(RETRY).await;
                }
            }
        }
    });
}

/// Appends to the file. One that would become larger than `most` bytes becomes `PATH.1` first, which replaces what was
/// there.
fn append(path: &Path, text: &[u8], most: u64) -> io::Result<()> {
    let open = || File::options().append(true).create(true).mode(0o600).open(path);
    let mut file = open()?;
    let length = file.metadata()?.len();
    if length > 0 && length.saturating_add(text.len() as u64) > most {
        let mut before = path.as_os_str().to_owned();
        before.push(".1");
        std::fs::rename(path, before)?;
        file = open()?;
    }
    // What is more than a file may have is not worth its beginning.
    let most = usize::try_from(most).unwrap_or(usize::MAX);
    let from = text.len().saturating_sub(most);
    file.write_all(text.get(from..).unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_file_and_the_one_before_stay_within_their_size() {
        let folder = tempfile::tempdir().unwrap();
        let (path, before) = (folder.path().join("log"), folder.path().join("log.1"));
        let read = |path: &Path| std::fs::read_to_string(path).unwrap_or_default();
        for (text, now, then) in [
            ("12345\n", "12345\n", ""),
            ("678\n", "12345\n678\n", ""),
            ("9\n", "9\n", "12345\n678\n"),
            ("0123456789abcdef\n", "789abcdef\n", "9\n"),
            ("x\n", "x\n", "789abcdef\n"),
        ] {
            append(&path, text.as_bytes(), 10).unwrap();
            assert_eq!((read(&path).as_str(), read(&before).as_str()), (now, then), "{text}");
        }
        assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 2);
        assert!(append(&folder.path().join("no/log"), b"x", 10).is_err());
    }
}
