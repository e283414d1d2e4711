//! hostPath: a path of the node, checked or made.

use super::{Result, VolumeError};
use crate::model::pod::HostPathType;
use crate::sys::mounts::is_plain_absolute;
use std::fs::{DirBuilder, FileType, OpenOptions};
use std::io;
use std::os::unix::fs::{DirBuilderExt, FileTypeExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

pub(super) fn check_form(path: &Path) -> Result<PathBuf> {
    if is_plain_absolute(path) {
        return Ok(path.to_owned());
    }
    Err(VolumeError::HostPathForm { path: path.to_owned() })
}

/// Checks a path by `hostPath.type`, and makes what the type says is made. Links are followed, as upstream does.
pub(super) fn prepare(path: &Path, check: HostPathType) -> Result<()> {
    let found = match path.metadata() {
        Ok(metadata) => Some(metadata.file_type()),
        // A broken link is a missing target; one that leads through a file cannot be right.
        Err(e) if matches!(e.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory) => None,
        Err(source) => return Err(VolumeError::Io { operation: "look at", path: path.to_owned(), source }),
    };
    match (check, found) {
        (HostPathType::Unset, Some(_)) => Ok(()),
        (HostPathType::Unset | HostPathType::DirectoryOrCreate, None) => {
            let made = DirBuilder::new().recursive(true).mode(0o755).create(path);
            made.map_err(|source| VolumeError::Io { operation: "make folder", path: path.to_owned(), source })
        }
        (HostPathType::FileOrCreate, None) => {
            let made = OpenOptions::new().write(true).create(true).truncate(false).mode(0o644).open(path);
            made.map(drop).map_err(|source| VolumeError::Io { operation: "make file", path: path.to_owned(), source })
        }
        (_, Some(found)) if matches(check, found) => Ok(()),
        _ => Err(VolumeError::HostPathType { path: path.to_owned(), expected: check }),
    }
}

fn matches(check: HostPathType, found: FileType) -> bool {
    match check {
        HostPathType::Unset => true,
        HostPathType::DirectoryOrCreate | HostPathType::Directory => found.is_dir(),
        HostPathType::FileOrCreate | HostPathType::File => found.is_file(),
        HostPathType::Socket => found.is_socket(),
        HostPathType::CharDevice => found.is_char_device(),
        HostPathType::BlockDevice => found.is_block_device(),
    }
}

/// The kubelet's word for what a type asks for.
pub(super) const fn noun(check: HostPathType) -> &'static str {
    match check {
        HostPathType::Unset => "path",
        HostPathType::DirectoryOrCreate | HostPathType::Directory => "directory",
        HostPathType::FileOrCreate | HostPathType::File => "file",
        HostPathType::Socket => "socket file",
        HostPathType::CharDevice => "character device",
        HostPathType::BlockDevice => "block device",
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;
    use std::os::unix::fs::{PermissionsExt, symlink};
    use std::os::unix::net::UnixListener;

    const ALL: [HostPathType; 8] = [
        HostPathType::Unset,
        HostPathType::DirectoryOrCreate,
        HostPathType::Directory,
        HostPathType::FileOrCreate,
        HostPathType::File,
        HostPathType::Socket,
        HostPathType::CharDevice,
        HostPathType::BlockDevice,
    ];

    #[test]
    fn each_type_takes_only_its_own() {
        let base = tempfile::tempdir().unwrap();
        let at = |name: &str| base.path().join(name);
        fs::create_dir(at("dir")).unwrap();
        fs::write(at("file"), b"").unwrap();
        let _listener = UnixListener::bind(at("socket")).unwrap();
        symlink(at("dir"), at("link")).unwrap();
        let table = [
            (at("dir"), "Unset DirectoryOrCreate Directory"),
            (at("link"), "Unset DirectoryOrCreate Directory"),
            (at("file"), "Unset FileOrCreate File"),
            (at("socket"), "Unset Socket"),
            (PathBuf::from("/dev/null"), "Unset CharDevice"),
        ];
        for (path, good) in table {
            for check in ALL {
                let expect = good.split(' ').any(|name| name == format!("{check:?}"));
                assert_eq!(prepare(&path, check).is_ok(), expect, "{} {check:?}", path.display());
            }
        }
    }

    #[test]
    fn the_texts_are_upstreams() {
        let base = tempfile::tempdir().unwrap();
        let missing = base.path().join("no").join("where");
        let table = [
            (HostPathType::Directory, "directory"),
            (HostPathType::File, "file"),
            (HostPathType::Socket, "socket file"),
            (HostPathType::CharDevice, "character device"),
            (HostPathType::BlockDevice, "block device"),
        ];
        for (check, noun) in table {
            let text = prepare(&missing, check).unwrap_err().to_string();
            assert_eq!(text, format!("hostPath type check failed: {} is not a {noun}", missing.display()));
        }
        let text = prepare(Path::new("/dev/null"), HostPathType::FileOrCreate).unwrap_err().to_string();
        assert_eq!(text, "hostPath type check failed: /dev/null is not a file");
    }

    #[test]
    fn what_may_be_made_is_made_once() {
        let base = tempfile::tempdir().unwrap();
        let deep = base.path().join("a/b");
        for check in [HostPathType::DirectoryOrCreate, HostPathType::DirectoryOrCreate] {
            prepare(&deep, check).unwrap();
        }
        assert_eq!(fs::metadata(&deep).unwrap().permissions().mode() & 0o7777, 0o755);
        prepare(&base.path().join("unset"), HostPathType::Unset).unwrap();
        assert!(base.path().join("unset").is_dir());
        let file = deep.join("f");
        prepare(&file, HostPathType::FileOrCreate).unwrap();
        assert_eq!(fs::metadata(&file).unwrap().permissions().mode() & 0o7777, 0o644);
        fs::write(&file, b"kept").unwrap();
        prepare(&file, HostPathType::FileOrCreate).unwrap();
        assert_eq!(fs::read(&file).unwrap(), b"kept");
        let orphan = base.path().join("no/f");
        assert!(matches!(prepare(&orphan, HostPathType::FileOrCreate), Err(VolumeError::Io { .. })));
    }
}
