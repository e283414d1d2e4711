//! Looks at folders of this machine, one after another.

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
    assert_eq!(folder.look(true).event, Some(ManifestEvent::FolderMissing));
    assert_eq!(folder.look(true).event, None);
    // It is there again, which is told though there is nothing in it.
    fs::create_dir(&path).unwrap();
    assert_eq!(names(&folder.look(false)).unwrap(), Vec::<String>::new());
    fs::remove_dir(&path).unwrap();
    assert_eq!(folder.look(true).event, Some(ManifestEvent::FolderMissing));
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
    assert_eq!(folder.look(true).event, Some(ManifestEvent::FolderMissing));
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

/// Between the making of a file and its first byte nobody counts as its writer.
#[test]
fn a_file_without_a_byte_is_told_when_it_stays_so() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("a.yaml");
    fs::write(&path, "").unwrap();
    let mut folder = Folder::new(dir.path(), []);
    let look = folder.look(true);
    assert_eq!((names(&look).unwrap(), look.again), (Vec::new(), Some(SETTLE)), "no time has gone");
    assert!(folder.look(false).event.is_none());
    assert_eq!(names(&folder.look(true)).unwrap(), ["a.yaml"]);
    assert!(folder.look(true).event.is_none());
    fs::write(&path, "1").unwrap();
    assert_eq!(names(&folder.look(false)).unwrap(), ["a.yaml"]);
    // What it said before holds until it is sure that it says nothing.
    fs::write(&path, "").unwrap();
    let look = folder.look(true);
    assert!(look.event.is_none() && look.again == Some(SETTLE), "{look:?}");
    let Some(ManifestEvent::Files(files)) = folder.look(true).event else { panic!() };
    assert!(files.values().all(|content| *content == FileContent::Bytes(Vec::new().into())), "{files:?}");
}
