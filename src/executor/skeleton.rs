//! The lowest layer of every container: empty files and folders where things are mounted.
//!
//! What an image lacks of them would otherwise be made anew in each container's writable layer, which costs tens of KiB
//! on the data disk at each start. On the node's tmpfs they are made once. Whatever an image has at these places wins.

use std::fs;
use std::io;
use std::os::unix::fs::{DirBuilderExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};

const FOLDERS: [&str; 4] = ["proc", "sys", "dev", "etc"];
const FILES: [&str; 3] = ["etc/hosts", "etc/hostname", "etc/resolv.conf"];

/// Makes it below the run folder, if it is not there.
///
/// # Errors
/// Of the first call that failed.
pub(super) fn make(run: &Path) -> io::Result<PathBuf> {
    let root = run.join("skeleton");
    for folder in std::iter::once(root.clone()).chain(FOLDERS.map(|folder| root.join(folder))) {
        fs::DirBuilder::new().recursive(true).mode(0o755).create(&folder)?;
        fs::set_permissions(&folder, fs::Permissions::from_mode(0o755))?;
    }
    for file in FILES.map(|file| root.join(file)) {
        // An earlier agent's containers may have it mounted: it stays the same file.
        fs::OpenOptions::new().write(true).create(true).truncate(false).open(&file)?;
        fs::set_permissions(&file, fs::Permissions::from_mode(0o644))?;
    }
    Ok(root)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::MetadataExt as _;

    #[test]
    fn it_is_made_once_and_readable_for_all() {
        let run = tempfile::tempdir().unwrap();
        let root = make(run.path()).unwrap();
        let look = || {
            let stat =
                |name: &&str| fs::metadata(root.join(name)).map(|m| (m.ino(), m.mode() & 0o777, m.is_dir())).unwrap();
            [FOLDERS.as_slice(), FILES.as_slice()].concat().iter().map(stat).collect::<Vec<_>>()
        };
        let first = look();
        assert!(first.iter().all(|(_, mode, is_dir)| *mode == if *is_dir { 0o755 } else { 0o644 }), "{first:?}");
        assert_eq!(make(run.path()).unwrap(), root);
        assert_eq!(look(), first);
    }
}
