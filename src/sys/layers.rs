//! Reading one file of an image without mounting it: the overlay rules, followed in user space.

use rustix::fs::{CWD, FileType, Mode, OFlags};
use std::collections::VecDeque;
use std::ffi::{OsStr, OsString};
use std::io::{self, Read};
use std::os::unix::ffi::OsStrExt;
use std::path::{Component, Path, PathBuf};

/// How many symbolic links are followed, as in the kernel.
const MAX_LINKS: u32 = 40;

/// Reads the file at `path` in the stack of `layers` (the topmost first), at most `limit` bytes of it. Absent, hidden
/// by a whiteout or not a regular file: `None`.
///
/// # Errors
/// What the system says about a file that is there, and ELOOP for links without end.
pub fn read_file(layers: &[PathBuf], path: &Path, limit: u64) -> io::Result<Option<Vec<u8>>> {
    let mut rest = parts(path);
    let mut links = 0;
    // The merged folder reached so far: its place in each layer that takes part, the topmost first; and its path.
    let mut folder = layers.to_vec();
    let mut walked: Vec<(OsString, Vec<PathBuf>)> = Vec::new();
    while let Some(part) = rest.pop_front() {
        if part == ".." {
            folder = walked.pop().map_or_else(|| layers.to_vec(), |(_, before)| before);
            continue;
        }
        match look_up(&folder, &part)? {
            Found::Nothing => return Ok(None),
            Found::Folder(next) => walked.push((part, std::mem::replace(&mut folder, next))),
            Found::File(file) if rest.is_empty() => return read_up_to(&file, limit).map(Some),
            Found::File(_) => return Ok(None),
            Found::Link(target) => {
                links += 1;
                if links > MAX_LINKS {
                    return Err(io::Error::from_raw_os_error(libc::ELOOP));
                }
                if target.is_absolute() {
                    folder = layers.to_vec();
                    walked.clear();
                }
                for part in parts(&target).into_iter().rev() {
                    rest.push_front(part);
                }
            }
        }
    }
    Ok(None)
}

fn parts(path: &Path) -> VecDeque<OsString> {
    path.components()
        .filter_map(|part| match part {
            Component::Normal(name) => Some(name.to_owned()),
            Component::ParentDir => Some("..".into()),
            _ => None,
        })
        .collect()
}

enum Found {
    Nothing,
    File(PathBuf),
    Link(PathBuf),
    Folder(Vec<PathBuf>),
}

fn look_up(folder: &[PathBuf], name: &OsStr) -> io::Result<Found> {
    let mut merged = Vec::new();
    for place in folder {
        let path = place.join(name);
        let stat = match rustix::fs::lstat(&path) {
            Ok(stat) => stat,
            Err(rustix::io::Errno::NOENT | rustix::io::Errno::NOTDIR) => continue,
            Err(error) => return Err(error.into()),
        };
        let kind = FileType::from_raw_mode(stat.st_mode);
        if kind != FileType::Directory {
            // What lies below a folder of the same name is hidden by it; a whiteout hides all the same.
            if !merged.is_empty() {
                break;
            }
            return Ok(match kind {
                FileType::RegularFile => Found::File(path),
                FileType::Symlink => Found::Link(std::fs::read_link(&path)?),
                _ => Found::Nothing,
            });
        }
        let opaque = is_opaque(&path);
        merged.push(path);
        if opaque {
            break;
        }
    }
    Ok(if merged.is_empty() { Found::Nothing } else { Found::Folder(merged) })
}

fn is_opaque(path: &Path) -> bool {
    let mut value = [0_u8; 1];
    matches!(rustix::fs::lgetxattr(path, "trusted.overlay.opaque", &mut value), Ok(1)) && value == *b"y"
}

fn read_up_to(path: &Path, limit: u64) -> io::Result<Vec<u8>> {
    let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
    let file = rustix::fs::openat(CWD, path.as_os_str().as_bytes(), flags, Mode::empty())?;
    let mut bytes = Vec::new();
    std::fs::File::from(file).take(limit).read_to_end(&mut bytes)?;
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;
    use std::os::unix::fs::symlink;

    fn read(layers: &[PathBuf], path: &str) -> Option<String> {
        read_file(layers, Path::new(path), 100).unwrap().map(|bytes| String::from_utf8(bytes).unwrap())
    }

    #[test]
    fn the_topmost_layer_wins_and_links_stay_inside() {
        let dir = tempfile::tempdir().unwrap();
        let (top, low) = (dir.path().join("top"), dir.path().join("low"));
        for (layer, file, text) in
            [(&low, "etc/passwd", "low"), (&low, "etc/group", "low"), (&top, "etc/passwd", "top")]
        {
            fs::create_dir_all(layer.join("etc")).unwrap();
            fs::write(layer.join(file), text).unwrap();
        }
        fs::write(dir.path().join("secret"), "secret").unwrap();
        symlink("../../../../secret", top.join("etc/out")).unwrap();
        symlink("/etc/passwd", top.join("etc/absolute")).unwrap();
        symlink("group", top.join("etc/relative")).unwrap();
        symlink("loop", top.join("etc/loop")).unwrap();
        symlink("etc", top.join("folder")).unwrap();
        let layers = [top, low];
        for (path, want) in [
            ("/etc/passwd", Some("top")),
            ("etc/group", Some("low")),
            ("/etc/absolute", Some("top")),
            ("/etc/relative", Some("low")),
            ("/folder/../etc/passwd", Some("top")),
            ("/folder/group", Some("low")),
            ("/etc/out", None),
            ("/etc", None),
            ("/etc/passwd/x", None),
            ("/absent", None),
        ] {
            assert_eq!(read(&layers, path).as_deref(), want, "{path}");
        }
        assert!(read_file(&layers, Path::new("/etc/loop"), 100).is_err());
    }

    #[test]
    fn a_file_in_an_upper_layer_hides_a_folder_below() {
        let dir = tempfile::tempdir().unwrap();
        let (top, low) = (dir.path().join("top"), dir.path().join("low"));
        fs::create_dir_all(low.join("etc")).unwrap();
        fs::write(low.join("etc/passwd"), "low").unwrap();
        fs::create_dir_all(&top).unwrap();
        fs::write(top.join("etc"), "now a file").unwrap();
        assert_eq!(read(&[top, low], "/etc/passwd"), None);
    }

    #[test]
    fn no_more_than_the_limit_is_read() {
        let dir = tempfile::tempdir().unwrap();
        fs::write(dir.path().join("long"), "x".repeat(1000)).unwrap();
        assert_eq!(read_file(&[dir.path().to_owned()], Path::new("long"), 10).unwrap().unwrap().len(), 10);
    }
}
