//! Layers as builders write them, and as attackers do.

use super::*;
use crate::sys::testing::is_root;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::Path;

const ROOMY: Limits = Limits { bytes: 1 << 20, entries: 1000 };

/// Writes members as they are told, whatever they are.
#[derive(Default)]
struct Layer {
    bytes: Vec<u8>,
}

impl Layer {
    fn add(mut self, kind: u8, path: &str, link: &str, content: &[u8], change: impl FnOnce(&mut tar::Header)) -> Self {
        for (extension, name) in [(b'L', path), (b'K', link)] {
            // The header's fields hold 100 bytes; GNU writes longer ones before it.
            if name.len() > 99 {
                let mut header = header(extension, "././@LongLink", "", name.len() as u64 + 1);
                header.set_cksum();
                self.put(&header, format!("{name}\0").as_bytes());
            }
        }
        let cut = |name: &str| name.chars().take(99).collect::<String>();
        let mut header = header(kind, &cut(path), &cut(link), content.len() as u64);
        change(&mut header);
        header.set_cksum();
        self.put(&header, content);
        self
    }

    fn put(&mut self, header: &tar::Header, content: &[u8]) {
        self.bytes.extend_from_slice(header.as_bytes());
        self.bytes.extend_from_slice(content);
        self.bytes.resize(self.bytes.len().next_multiple_of(512), 0);
    }

    fn pax(mut self, key: &str, value: &[u8]) -> Self {
        let body = key.len() + value.len() + 3;
        let len = (1..6).map(|d| body + d).find(|len| len.to_string().len() + body == *len).unwrap();
        let record = [format!("{len} {key}=").as_bytes(), value, b"\n"].concat();
        let mut header = header(b'x', "pax", "", record.len() as u64);
        header.set_cksum();
        self.put(&header, &record);
        self
    }

    fn file(self, path: &str, content: &str) -> Self {
        self.add(b'0', path, "", content.as_bytes(), |_| ())
    }

    fn folder(self, path: &str, mode: u32) -> Self {
        self.add(b'5', path, "", b"", |h| h.set_mode(mode))
    }

    fn symlink(self, path: &str, target: &str) -> Self {
        self.add(b'2', path, target, b"", |_| ())
    }

    fn hard_link(self, path: &str, target: &str) -> Self {
        self.add(b'1', path, target, b"", |_| ())
    }

    fn unpack_with(self, root: &Path, limits: Limits) -> Result<u64, UnpackError> {
        let bytes = self.bytes;
        let input: Box<dyn Read + '_> = Box::new(bytes.as_slice());
        unpack(&Beneath::open(root).unwrap(), input, limits, &mut |_| ControlFlow::Continue(()))
    }

    fn unpack(self, root: &Path) -> Result<u64, UnpackError> {
        self.unpack_with(root, ROOMY)
    }
}

fn header(kind: u8, path: &str, link: &str, size: u64) -> tar::Header {
    let mut header = tar::Header::new_gnu();
    header.as_old_mut().name[..path.len()].copy_from_slice(path.as_bytes());
    header.as_old_mut().linkname[..link.len()].copy_from_slice(link.as_bytes());
    header.set_entry_type(tar::EntryType::new(kind));
    header.set_size(size);
    header.set_mode(0o644);
    header.set_uid(0);
    header.set_gid(0);
    header.set_mtime(1_000_000_000);
    header
}

fn text(path: &Path) -> String {
    std::fs::read_to_string(path).unwrap()
}

fn xattr(path: &Path, name: &str) -> Option<Vec<u8>> {
    let mut value = vec![0; 256];
    let n = rustix::fs::lgetxattr(path, name, value.as_mut_slice()).ok()?;
    value.truncate(n);
    Some(value)
}

fn is_whiteout(path: &Path) -> bool {
    let meta = path.symlink_metadata().unwrap();
    meta.file_type().is_char_device() && meta.rdev() == 0
}

#[test]
fn owners_modes_times_links_devices_and_attributes_are_kept() {
    if !is_root() {
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let capability = [1, 0, 0, 2, 0, 0x20, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0];
    let bytes = Layer::default()
        .folder("./", 0o711)
        .folder("bin", 0o755)
        .add(b'0', "bin/su", "", b"su", |h| {
            h.set_mode(0o4755);
            h.set_uid(12);
            h.set_gid(34);
        })
        .pax("SCHILY.xattr.security.capability", &capability)
        .file("bin/ping", "ping")
        .pax("SCHILY.xattr.user.note", b"a\nb=c")
        .pax("mtime", b"1.5")
        .file("bin/noted", "n")
        .folder("tmp", 0o1777)
        .hard_link("bin/ping6", "/bin/ping")
        .symlink("etc-alternative", "/usr/bin/absolute/is/fine")
        .symlink("up", "../../as/well")
        .hard_link("up2", "up")
        .add(b'3', "null", "", b"", |h| {
            h.set_mode(0o666);
            h.set_device_major(1).unwrap();
            h.set_device_minor(3).unwrap();
        })
        .add(b'6', "fifo", "", b"", |h| h.set_mode(0o600))
        .file("/absolute", "a")
        .file("missing/parents/file", "f")
        .unpack(dir.path())
        .unwrap();
    assert_eq!(bytes, 2 + 4 + 1 + 1 + 1);
    let meta = |name: &str| dir.path().join(name).symlink_metadata().unwrap();
    let su = meta("bin/su");
    assert_eq!((su.mode() & 0o7777, su.uid(), su.gid(), su.mtime()), (0o4755, 12, 34, 1_000_000_000));
    assert_eq!((meta("tmp").mode() & 0o7777, meta("").mode() & 0o7777), (0o1777, 0o711));
    assert_eq!((meta("bin").mtime(), meta("").mtime()), (1_000_000_000, 1_000_000_000));
    assert_eq!((meta("bin/noted").mtime(), meta("bin/noted").mtime_nsec()), (1, 500_000_000));
    assert_eq!(meta("bin/ping").ino(), meta("bin/ping6").ino());
    assert_eq!(xattr(&dir.path().join("bin/ping"), "security.capability"), Some(capability.to_vec()));
    assert_eq!(xattr(&dir.path().join("bin/noted"), "user.note"), Some(b"a\nb=c".to_vec()));
    assert_eq!(std::fs::read_link(dir.path().join("up2")).unwrap(), Path::new("../../as/well"));
    assert_eq!((meta("null").rdev(), meta("null").mode() & 0o7777), (rustix::fs::makedev(1, 3), 0o666));
    assert!(meta("fifo").file_type().is_fifo());
    assert_eq!(text(&dir.path().join("absolute")), "a");
    assert_eq!(meta("missing/parents").mode() & 0o7777, 0o755);
}

#[test]
fn whiteouts_become_those_of_overlayfs_in_any_order() {
    if !is_root() {
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    Layer::default()
        .file("a/.wh.gone", "")
        .file("b/.wh..wh..opq", "")
        .file("b/new", "n")
        .file(".wh.first", "")
        .folder("first", 0o755)
        .folder("second", 0o755)
        .file(".wh.second", "")
        .file(".wh.file", "")
        .file("file", "stays")
        .file("file2", "stays")
        .file(".wh.file2", "")
        .file(".wh..wh.plnk", "")
        .unpack(dir.path())
        .unwrap();
    let path = |name: &str| dir.path().join(name);
    assert!(is_whiteout(&path("a/gone")));
    for folder in ["b", "first", "second"] {
        assert_eq!(xattr(&path(folder), OPAQUE), Some(b"y".to_vec()), "{folder}");
    }
    assert_eq!(xattr(&path("a"), OPAQUE), None);
    assert_eq!((text(&path("file")), text(&path("file2"))), ("stays".to_owned(), "stays".to_owned()));
    assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 6);
}

#[test]
fn a_later_member_replaces_an_earlier_one() {
    if !is_root() {
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    std::fs::write(dir.path().join("outside"), "kept").unwrap();
    let root = dir.path().join("root");
    std::fs::create_dir(&root).unwrap();
    Layer::default()
        .file("file", "old")
        .file("file", "new")
        .file("tree/deep/x", "x")
        .file("tree", "now a file")
        .file("was-file", "x")
        .folder("was-file", 0o755)
        .symlink("link", "../outside")
        .file("link", "the link itself is replaced")
        .folder("folder", 0o700)
        .file("folder/kept", "k")
        .folder("folder", 0o750)
        .file("one", "1")
        .hard_link("two", "one")
        .file("one", "first of a pair is new")
        .hard_link("two", "two")
        .unpack(&root)
        .unwrap();
    assert_eq!(text(&root.join("file")), "new");
    assert_eq!(text(&root.join("tree")), "now a file");
    assert!(root.join("was-file").is_dir());
    assert_eq!(text(&root.join("link")), "the link itself is replaced");
    assert_eq!(text(&root.join("folder/kept")), "k");
    assert_eq!(root.join("folder").metadata().unwrap().mode() & 0o777, 0o750);
    assert_eq!(text(&root.join("two")), "1");
    assert_eq!(text(&dir.path().join("outside")), "kept");
}

#[test]
fn a_relative_link_inside_the_layer_may_be_a_parent() {
    if !is_root() {
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let layer = Layer::default().folder("usr/lib", 0o755).symlink("lib", "usr/lib").file("lib/x", "x");
    layer.hard_link("y", "lib/x").unpack(dir.path()).unwrap();
    assert_eq!(text(&dir.path().join("usr/lib/x")), "x");
    assert_eq!(text(&dir.path().join("y")), "x");
}

#[test]
fn hostile_members_are_refused_by_name_and_touch_nothing_outside() {
    if !is_root() {
        return;
    }
    let long = "n".repeat(256);
    let deep = "d/".repeat(300);
    let wide = "x/".repeat(2100);
    let layer = Layer::default;
    for (name, layer, why) in [
        ("../evil", layer().file("../evil", "x"), "'..'"),
        ("a/../../evil", layer().file("a/../../evil", "x"), "'..'"),
        ("/../evil", layer().file("/../evil", "x"), "'..'"),
        ("..", layer().folder("..", 0o777), "'..'"),
        ("abs/evil", layer().symlink("abs", "/").file("abs/evil", "x"), "leads out"),
        ("up/evil", layer().symlink("up", "..").file("up/evil", "x"), "leads out"),
        (
            "up/evil",
            layer().folder("a", 0o755).symlink("a/b", "../..").symlink("up", "a/b").file("up/evil", "x"),
            "leads out",
        ),
        ("up/evil/deep", layer().symlink("up", "../outside").folder("up/evil/deep", 0o755), "leads out"),
        ("loop/x", layer().symlink("loop", "loop").file("loop/x", "x"), "leads nowhere"),
        ("to/x", layer().symlink("to", "missing").file("to/x", "x"), "leads nowhere"),
        ("file/x", layer().file("file", "f").file("file/x", "x"), "not a folder"),
        ("hard", layer().hard_link("hard", "../outside/secret"), "'..'"),
        ("hard", layer().symlink("up", "../outside").hard_link("hard", "up/secret"), "out of the layer"),
        ("hard", layer().hard_link("hard", "missing"), "nothing in this layer"),
        ("hard", layer().hard_link("hard", "no/such"), "nothing in this layer"),
        ("hard", layer().hard_link("hard", "/"), "nothing in this layer"),
        ("hard", layer().folder("d", 0o755).hard_link("hard", "d"), "link to a folder"),
        ("./", layer().symlink("./", "/"), "path of the root"),
        ("/", layer().file("/x/..", ""), "'..'"),
        (".wh.", layer().file(".wh.", ""), "no name"),
        (".wh...", layer().file(".wh...", ""), "no name"),
        ("up/.wh.secret", layer().symlink("up", "../outside").file("up/.wh.secret", ""), "leads out"),
        ("up/.wh..wh..opq", layer().symlink("up", "../outside").file("up/.wh..wh..opq", ""), "leads out"),
        (&long, layer().file(&long, "x"), "longer than 255"),
        (&deep, layer().file(&format!("{deep}x"), "x"), "deeper than 255"),
        (&wide, layer().file(&format!("{wide}x"), "x"), "longer than 4095"),
        ("link", layer().symlink("link", ""), "target is empty"),
        ("nul", layer().pax("path", b"nul\0x").file("y", ""), "zero byte"),
    ] {
        let dir = tempfile::tempdir().unwrap();
        std::fs::create_dir(dir.path().join("outside")).unwrap();
        std::fs::write(dir.path().join("outside/secret"), "kept").unwrap();
        std::fs::create_dir(dir.path().join("root")).unwrap();
        let error = layer.unpack(&dir.path().join("root")).unwrap_err();
        let message = error.to_string();
        assert!(matches!(error, UnpackError::Refused { .. }), "{name}: {message}");
        assert!(message.contains(why), "{name}: {message}");
        let shown: String = name.chars().take(20).collect();
        assert!(message.contains(shown.trim_end_matches("/")), "{name}: {message}");
        assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 2, "{name}");
        assert_eq!(std::fs::read_dir(dir.path().join("outside")).unwrap().count(), 1, "{name}");
        assert_eq!(dir.path().join("outside/secret").metadata().unwrap().nlink(), 1, "{name}");
        assert_eq!(text(&dir.path().join("outside/secret")), "kept");
    }
}

#[test]
fn a_set_attribute_of_overlayfs_itself_is_dropped() {
    if !is_root() {
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    Layer::default()
        .pax("SCHILY.xattr.trusted.overlay.redirect", b"/etc")
        .pax("SCHILY.xattr.user.overlay.opaque", b"y")
        .folder("d", 0o755)
        .unpack(dir.path())
        .unwrap();
    assert_eq!(xattr(&dir.path().join("d"), "trusted.overlay.redirect"), None);
    assert_eq!(xattr(&dir.path().join("d"), "user.overlay.opaque"), None);
}

#[test]
fn limits_are_kept_before_they_are_reached() {
    if !is_root() {
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let layer = || Layer::default().file("a", "12345").file("b", "12345");
    // A block for each and one for its content.
    let error = layer().unpack_with(dir.path(), Limits { bytes: 4 * 4096 - 1, ..ROOMY }).unwrap_err();
    assert!(error.to_string().contains("\"b\" is refused: the layer is larger"), "{error}");
    assert!(!dir.path().join("b").exists());
    assert_eq!(layer().unpack_with(dir.path(), Limits { bytes: 4 * 4096, ..ROOMY }).unwrap(), 10);
    let error = layer().unpack_with(dir.path(), Limits { entries: 1, ..ROOMY }).unwrap_err();
    assert!(error.to_string().contains("more entries"), "{error}");
    // A size that is told but not there is refused for what it tells.
    let huge = Layer::default().add(b'0', "huge", "", b"", |h| h.set_size(1 << 50));
    assert!(huge.unpack(dir.path()).unwrap_err().to_string().contains("larger"));
}

#[test]
fn what_has_no_content_takes_room_too() {
    if !is_root() {
        return;
    }
    let layer = Layer::default;
    let long = "x".repeat(4000);
    // Each with the blocks and the objects that it takes.
    for (name, layer, blocks, entries) in [
        ("folders", layer().folder("a", 0o755).folder("b", 0o755), 2, 2),
        ("implied folders", layer().file("a/b/c/d", "").file("a/b/e", ""), 5, 5),
        ("links", layer().symlink("a", &long).hard_link("b", "a"), 3, 2),
        ("devices and whiteouts", layer().add(b'6', "fifo", "", b"", |_| ()).file(".wh.gone", ""), 2, 2),
        ("attributes", layer().pax("SCHILY.xattr.trusted.dropped", &[b'v'; 5000]).file("a", "1"), 3, 1),
    ] {
        let unpack = |limits| {
            let dir = tempfile::tempdir().unwrap();
            Layer { bytes: layer.bytes.clone() }.unpack_with(dir.path(), limits).map_err(|error| error.to_string())
        };
        unpack(Limits { bytes: blocks * 4096, entries }).unwrap();
        let error = unpack(Limits { bytes: blocks * 4096 - 1, entries }).unwrap_err();
        assert!(error.contains("larger"), "{name}: {error}");
        let error = unpack(Limits { entries: entries - 1, ..ROOMY }).unwrap_err();
        assert!(error.contains("more entries"), "{name}: {error}");
    }
}

#[test]
fn times_of_any_number_of_folders_take_little_memory() {
    let mut times = FolderTimes::new(100_000);
    let parent = "p/".repeat(100);
    let mut set = BTreeMap::new();
    let mut keep = |times: &mut FolderTimes, path: String| set.extend(times.keep(path.into(), (7, 0)));
    keep(&mut times, String::new());
    for depth in 1..=100 {
        keep(&mut times, parent[..depth * 2 - 1].to_owned());
    }
    for number in 0..2000 {
        keep(&mut times, format!("{parent}{number}{}", "n".repeat(250)));
        assert!(times.bytes <= times.most, "{}", times.bytes);
        assert_eq!(times.bytes, times.times.keys().map(|path| FolderTimes::cost(path)).sum::<usize>());
    }
    // Those that something is still put into are set last.
    assert!(set.len() > 1500 && times.times.len() + set.len() == 2101);
    assert!((1..=100).all(|depth| times.times.contains_key(OsStr::new(&parent[..depth * 2 - 1]))));
    assert!(times.times.contains_key(OsStr::new("")));
}

#[test]
fn folders_have_their_times_however_many_there_are() {
    if !is_root() {
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let parent = vec!["p".repeat(250); 15].join("/");
    let mut layer = Layer::default().folder("./", 0o755).folder(&parent, 0o755);
    // Their names are more than what is kept.
    for number in 0..1300 {
        layer = layer.folder(&format!("{parent}/{number}"), 0o755);
    }
    layer.unpack_with(dir.path(), Limits { bytes: 1 << 30, entries: 1 << 20 }).unwrap();
    let mtime = |path: &str| dir.path().join(path).symlink_metadata().unwrap().mtime();
    assert_eq!((mtime(""), mtime(&parent)), (1_000_000_000, 1_000_000_000));
    for number in 0..1300 {
        assert_eq!(mtime(&format!("{parent}/{number}")), 1_000_000_000, "{number}");
    }
}

#[test]
fn a_cut_layer_and_a_cancelled_one_are_errors() {
    if !is_root() {
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let mut layer = Layer::default().file("a", "12345");
    layer.bytes.truncate(514);
    assert!(matches!(layer.unpack(dir.path()), Err(UnpackError::Archive(TarError::Read(_)))));
    let bytes = Layer::default().file("b", "12345").bytes;
    let input: Box<dyn Read + '_> = Box::new(bytes.as_slice());
    let root = Beneath::open(dir.path()).unwrap();
    let cancelled =
        unpack(&root, input, ROOMY, &mut |n| if n > 0 { ControlFlow::Break(()) } else { ControlFlow::Continue(()) });
    assert!(matches!(cancelled, Err(UnpackError::Cancelled)));
}
