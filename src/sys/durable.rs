//! Writing files so that a power cut leaves the old content or the new one, and never half of either.

use std::fs::{File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::{OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};

/// Replaces `dir/name` in one step: written beside it, synced, renamed, folder synced.
///
/// The name of the temporary file is fixed (`.name.new`), so that a crash leaves at most one, which the next write
/// takes over. Two writers of one file must exclude each other.
///
/// # Errors
/// The first call that failed; the old content is then still in place.
pub fn replace_file(dir: &Path, name: &str, content: &[u8]) -> io::Result<()> {
    replace_file_with(dir, name, content, 0o600)
}

/// The same with other permissions, which the file has before it has its name.
///
/// # Errors
/// As [`replace_file`].
pub fn replace_file_with(dir: &Path, name: &str, content: &[u8], mode: u32) -> io::Result<()> {
    let beside = dir.join(format!(".{name}.new"));
    let written = write_synced(&beside, content)
        .and_then(|()| std::fs::set_permissions(&beside, std::fs::Permissions::from_mode(mode)))
        .and_then(|()| std::fs::rename(&beside, dir.join(name)));
    if let Err(error) = written {
        // On a full disk the half-written copy would keep its space.
        let _gone = std::fs::remove_file(&beside);
        return Err(error);
    }
    sync_dir(dir)
}

/// Creates or truncates a file of mode 0600, writes it and waits until it is on the disk. Its name is durable only
/// after [`sync_dir`].
///
/// # Errors
/// The first call that failed; the file may then exist in part.
pub fn write_synced(path: &Path, content: &[u8]) -> io::Result<()> {
    let mut file = OpenOptions::new().write(true).create(true).truncate(true).mode(0o600).open(path)?;
    file.write_all(content)?;
    file.sync_all()
}

/// Makes the names in a folder durable.
///
/// # Errors
/// The folder cannot be opened or synced.
pub fn sync_dir(dir: &Path) -> io::Result<()> {
    File::open(dir)?.sync_all()
}

/// Makes everything on the file system that holds `path` durable: cheaper than one sync a file after many.
///
/// # Errors
/// The path cannot be opened, or the kernel reports a write that failed.
pub fn sync_filesystem(path: &Path) -> io::Result<()> {
    Ok(rustix::fs::syncfs(File::open(path)?)?)
}

/// Moves what cannot be read out of the way, to `<path>.damaged-<n>` with the first free `n`. Nothing is lost.
///
/// # Errors
/// The rename failed: the damaged object is still where it was.
pub fn set_aside(path: &Path) -> io::Result<PathBuf> {
    let mut n = 1_u32;
    loop {
        let mut name = path.as_os_str().to_owned();
        name.push(format!(".damaged-{n}"));
        let target = PathBuf::from(name);
        // Not `exists()`: a dangling link is a taken name too.
        if target.symlink_metadata().is_err() {
            std::fs::rename(path, &target)?;
            return Ok(target);
        }
        n = n.saturating_add(1);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_replaced_file_is_whole_and_leaves_nothing_beside() {
        let dir = tempfile::tempdir().unwrap();
        std::fs::write(dir.path().join(".a.new"), "left by a crash, longer than the new content").unwrap();
        replace_file(dir.path(), "a", b"one").unwrap();
        replace_file(dir.path(), "a", b"two").unwrap();
        assert_eq!(std::fs::read(dir.path().join("a")).unwrap(), b"two");
        assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 1);
    }

    #[test]
    fn a_failed_replacement_keeps_the_old_content() {
        let dir = tempfile::tempdir().unwrap();
        std::fs::create_dir(dir.path().join("a")).unwrap();
        std::fs::write(dir.path().join("a/kept"), "x").unwrap();
        assert!(replace_file(dir.path(), "a", b"one").is_err());
        assert!(dir.path().join("a/kept").exists());
        assert!(!dir.path().join(".a.new").exists());
    }

    #[test]
    fn what_is_set_aside_never_takes_a_name_in_use() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("x");
        for n in 1..=3 {
            std::fs::write(&path, n.to_string()).unwrap();
            assert_eq!(set_aside(&path).unwrap(), dir.path().join(format!("x.damaged-{n}")));
        }
        assert_eq!(std::fs::read_to_string(dir.path().join("x.damaged-2")).unwrap(), "2");
        assert!(set_aside(&path).is_err());
    }
}
