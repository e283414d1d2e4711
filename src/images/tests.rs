//! Whole imports: images in every form, from real clients too, and what a power cut or a liar leaves.

use super::*;
use crate::sys::testing::is_root;
use serde_json::{Value, json};
use std::io::Write;
use std::ops::ControlFlow;
use std::process::Command;

const NOW: WallTime = WallTime(1_700_000_000_000_000_000);

fn board() -> Host {
    Host { architecture: "arm64".to_owned(), runs_arm32: true }
}

fn open(root: &Path) -> ImageStore {
    let opened = ImageStore::open(root, board());
    assert!(opened.problems.is_empty(), "{:?}", opened.problems);
    opened.store
}

fn import(store: &ImageStore, path: &Path, name: Option<&str>) -> Result<Vec<Image>, ImportError> {
    store.import(path, name, NOW, &mut |_| ControlFlow::Continue(()))
}

/// A tar archive of these files.
fn tarball<P: AsRef<Path>>(files: &[(P, &[u8])]) -> Vec<u8> {
    let mut builder = tar::Builder::new(Vec::new());
    for (path, content) in files {
        let mut header = tar::Header::new_gnu();
        header.set_size(content.len() as u64);
        header.set_mode(0o644);
        header.set_uid(0);
        header.set_gid(0);
        header.set_mtime(0);
        builder.append_data(&mut header, path, *content).unwrap();
    }
    builder.into_inner().unwrap()
}

fn gzip(data: &[u8]) -> Vec<u8> {
    let mut packer = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
    packer.write_all(data).unwrap();
    packer.finish().unwrap()
}

fn zstd(data: &[u8]) -> Vec<u8> {
    ruzstd::encoding::compress_to_vec(data, ruzstd::encoding::CompressionLevel::Fastest)
}

fn sha(bytes: &[u8]) -> String {
    format!("sha256:{}", digest::of(bytes))
}

/// An OCI layout that grows in memory.
#[derive(Default)]
struct Layout {
    blobs: BTreeMap<String, Vec<u8>>,
    index: Vec<Value>,
}

impl Layout {
    fn blob(&mut self, media_type: &str, bytes: Vec<u8>) -> Value {
        let digest = sha(&bytes);
        let descriptor = json!({"mediaType": media_type, "digest": digest, "size": bytes.len()});
        self.blobs.insert(digest, bytes);
        descriptor
    }

    /// A manifest for this platform; `layers` are (packed, unpacked).
    fn manifest(&mut self, architecture: &str, variant: &str, layers: &[(Vec<u8>, Vec<u8>)]) -> Value {
        let diff_ids: Vec<String> = layers.iter().map(|(_, plain)| sha(plain)).collect();
        let config = json!({
            "os": "linux", "architecture": architecture, "variant": variant,
            "config": {
                "Entrypoint": ["/bin/app"], "Cmd": null, "Env": ["A=1", "PATH=/bin"], "WorkingDir": "/data",
                "User": "7:8",
                "StopSignal": "SIGQUIT", "ExposedPorts": {"80/tcp": {}}, "Volumes": {"/data": {}}, "Labels": {"k": "v"}
            },
            "rootfs": {"type": "layers", "diff_ids": diff_ids}
        });
        let config = self.blob("application/vnd.oci.image.config.v1+json", config.to_string().into_bytes());
        let layers: Vec<Value> = layers
            .iter()
            .map(|(packed, _)| self.blob("application/vnd.oci.image.layer.v1.tar", packed.clone()))
            .collect();
        let manifest = json!({"schemaVersion": 2, "config": config, "layers": layers});
        let mut descriptor = self.blob("application/vnd.oci.image.manifest.v1+json", manifest.to_string().into_bytes());
        descriptor["platform"] = json!({"os": "linux", "architecture": architecture, "variant": variant});
        descriptor
    }

    fn add(&mut self, mut descriptor: Value, name: Option<&str>) {
        if let Some(name) = name {
            descriptor["annotations"] = json!({"org.opencontainers.image.ref.name": name});
        }
        self.index.push(descriptor);
    }

    fn files(&self) -> Vec<(String, Vec<u8>)> {
        let index = json!({"schemaVersion": 2, "manifests": self.index}).to_string().into_bytes();
        let mut files = vec![
            ("oci-layout".to_owned(), b"{\"imageLayoutVersion\":\"1.0.0\"}".to_vec()),
            ("index.json".to_owned(), index),
        ];
        files.extend(self.blobs.iter().map(|(d, b)| (format!("blobs/{}", d.replace(':', "/")), b.clone())));
        files
    }

    fn write_folder(&self, path: &Path) {
        for (name, bytes) in self.files() {
            std::fs::create_dir_all(path.join(&name).parent().unwrap()).unwrap();
            std::fs::write(path.join(name), bytes).unwrap();
        }
    }

    fn archive(&self) -> Vec<u8> {
        let files = self.files();
        let files: Vec<_> = files.iter().map(|(name, bytes)| (name.as_str(), bytes.as_slice())).collect();
        tarball(&files)
    }
}

/// Three layers, one in each packing, of which the second hides a file of the first.
fn app_layers(marker: &str) -> Vec<(Vec<u8>, Vec<u8>)> {
    let base = tarball(&[("etc/os", b"base"), ("etc/gone", b"x")]);
    let middle = tarball(&[("etc/.wh.gone", b""), ("bin/app", b"#!")]);
    let top = tarball(&[("marker", marker.as_bytes())]);
    vec![(gzip(&base), base), (zstd(&middle), middle), (top.clone(), top)]
}

fn app(name: &str) -> Layout {
    let mut layout = Layout::default();
    let manifest = layout.manifest("arm64", "v8", &app_layers("app"));
    layout.add(manifest, Some(name));
    layout
}

fn assert_app(image: &Image) {
    assert_eq!(image.layers.len(), 3);
    let read = |layer: usize, name: &str| std::fs::read_to_string(image.layers[layer].join(name)).unwrap();
    assert_eq!((read(0, "etc/os"), read(2, "marker")), ("base".to_owned(), "app".to_owned()));
    assert!(std::os::unix::fs::FileTypeExt::is_char_device(
        &image.layers[1].join("etc/gone").symlink_metadata().unwrap().file_type()
    ));
    assert_eq!((image.architecture.as_str(), image.size_bytes), ("arm64", 4 + 1 + 2 + 3));
    assert_eq!(image.imported_at, NOW);
    assert_eq!(
        image.config,
        ImageConfig {
            entrypoint: vec!["/bin/app".to_owned()],
            cmd: vec![],
            env: vec!["A=1".to_owned(), "PATH=/bin".to_owned()],
            working_dir: "/data".to_owned(),
            user: "7:8".to_owned(),
            stop_signal: "SIGQUIT".to_owned(),
            exposed: vec!["80/tcp".to_owned()],
            volumes: vec!["/data".to_owned()],
            labels: [("k".to_owned(), "v".to_owned())].into(),
        }
    );
}

/// Names in a folder and below, for "nothing is left".
fn names(path: &Path) -> Vec<String> {
    let mut names: Vec<String> =
        std::fs::read_dir(path).unwrap().flatten().map(|e| e.file_name().to_string_lossy().into_owned()).collect();
    names.sort();
    names
}

fn assert_empty(root: &Path) {
    assert_eq!(names(root), ["layers"]);
    assert_eq!(names(&root.join("layers")), [""; 0]);
}

#[test]
fn an_image_is_the_same_from_every_form() {
    if !is_root() {
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let layout = app("example.org/app:1");
    layout.write_folder(&dir.path().join("folder"));
    let archive = layout.archive();
    for (name, bytes) in [("a.tar", archive.clone()), ("a.tar.gz", gzip(&archive)), ("a.tar.zst", zstd(&archive))] {
        std::fs::write(dir.path().join(name), bytes).unwrap();
    }
    let mut ids = Vec::new();
    for form in ["folder", "a.tar", "a.tar.gz", "a.tar.zst"] {
        let root = dir.path().join(format!("store-{form}"));
        let images = import(&open(&root), &dir.path().join(form), None).unwrap();
        assert_eq!(images.len(), 1, "{form}");
        // From a store that was opened again.
        let image = open(&root).resolve("example.org/app:1").unwrap();
        assert_app(&image);
        assert_eq!((&image, &image.digests.len()), (&images[0], &1));
        ids.push(image.id);
    }
    ids.dedup();
    assert_eq!(ids.len(), 1);
}

#[test]
fn archives_of_real_clients_are_understood() {
    if !is_root() {
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    app("example.org/app:1").write_folder(&dir.path().join("layout"));
    let target = |form: &str| format!("{form}:{}", dir.path().join(form).display());
    for (form, name) in [("docker-archive", "example.org/app:2"), ("oci-archive", "example.org/app:3"), ("oci", "4")] {
        let status = Command::new("skopeo")
            .args(["copy", "--insecure-policy", "--quiet"])
            .arg(format!("oci:{}:example.org/app:1", dir.path().join("layout").display()))
            .arg(format!("{}:{name}", target(form)))
            .status()
            .unwrap();
        assert!(status.success(), "{form}");
        let store = open(&dir.path().join(format!("store-{form}")));
        let images = import(&store, &dir.path().join(form), None).unwrap();
        assert_app(&images[0]);
        let name = if form == "oci" { "docker.io/library/oci:4" } else { name };
        assert_eq!(images[0].references, [name]);
        assert_eq!(images[0].digests.is_empty(), form == "docker-archive");
        // The same archive, compressed as a whole.
        if form == "docker-archive" {
            let packed = gzip(&std::fs::read(dir.path().join(form)).unwrap());
            std::fs::write(dir.path().join("packed.tar.gz"), packed).unwrap();
            let again = open(&dir.path().join("store-packed"));
            assert_eq!(import(&again, &dir.path().join("packed.tar.gz"), None).unwrap()[0].id, images[0].id);
        }
    }
}

#[test]
fn docker_save_shares_layers_by_links_and_may_hold_several_images() {
    if !is_root() {
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let layer = tarball(&[("x", b"x")]);
    let config = |cmd: &str| {
        json!({"os": "linux", "architecture": "arm64", "config": {"Cmd": [cmd]},
            "rootfs": {"diff_ids": [sha(&layer)]}})
        .to_string()
    };
    let (one, two) = (config("1"), config("2"));
    let manifest = json!([
        {"Config": "one.json", "RepoTags": ["one:v1", "localhost:5000/one:v1"], "Layers": ["a/layer.tar"]},
        {"Config": "two.json", "RepoTags": null, "Layers": ["b/layer.tar"]}
    ]);
    let mut builder = tar::Builder::new(tarball::<&str>(&[]));
    let mut put = |name: &str, content: &[u8]| {
        let mut header = tar::Header::new_gnu();
        header.set_size(content.len() as u64);
        header.set_mode(0o644);
        header.set_uid(0);
        header.set_gid(0);
        builder.append_data(&mut header, name, content).unwrap();
    };
    put("a/layer.tar", &layer);
    put("one.json", one.as_bytes());
    put("two.json", two.as_bytes());
    put("manifest.json", manifest.to_string().as_bytes());
    let mut link = tar::Header::new_gnu();
    link.set_entry_type(tar::EntryType::Symlink);
    link.set_size(0);
    link.set_mode(0o777);
    link.set_uid(0);
    link.set_gid(0);
    builder.append_link(&mut link, "b/layer.tar", "../a/layer.tar").unwrap();
    // The writer started with the end mark of an empty archive.
    let bytes = builder.into_inner().unwrap().split_off(1024);
    let path = dir.path().join("save.tar");
    std::fs::write(&path, bytes).unwrap();
    let store = open(&dir.path().join("store"));
    let images = import(&store, &path, None).unwrap();
    assert_eq!(images.len(), 2);
    assert_eq!(images[0].layers, images[1].layers);
    assert_eq!(store.resolve("one:v1"), store.resolve("localhost:5000/one:v1"));
    assert_eq!(store.resolve(&sha(two.as_bytes())).unwrap().config.cmd, ["2"]);
    assert!(matches!(import(&store, &path, Some("x")), Err(ImportError::Ambiguous { count: 2, .. })));
}

#[test]
fn the_build_for_this_machine_is_chosen_and_others_are_refused_by_name() {
    if !is_root() {
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let build = |platforms: &[(&str, &str)], nested: bool| {
        let mut layout = Layout::default();
        let mut builds = Vec::new();
        for (architecture, variant) in platforms {
            builds.push(layout.manifest(architecture, variant, &app_layers(&format!("{architecture}{variant}"))));
        }
        builds.push(json!({"digest": sha(b"attestation"), "platform": {"os": "unknown", "architecture": "unknown"}}));
        if nested {
            let index = json!({"schemaVersion": 2, "manifests": builds}).to_string().into_bytes();
            let index = layout.blob("application/vnd.oci.image.index.v1+json", index);
            layout.add(index, Some("app:1"));
        } else {
            builds.into_iter().for_each(|build| layout.add(build, Some("app:1")));
        }
        layout
    };
    for (n, (platforms, chosen)) in [
        (&[("amd64", ""), ("arm64", "v8"), ("arm", "v7")][..], "arm64v8"),
        (&[("arm", "v6"), ("arm", "v7"), ("arm64", "")], "arm64"),
        (&[("amd64", ""), ("arm", "v6"), ("arm", "v7")], "armv7"),
        (&[("arm", "v6")], "armv6"),
    ]
    .into_iter()
    .enumerate()
    {
        for nested in [false, true] {
            let path = dir.path().join(format!("{n}{nested}"));
            let layout = build(platforms, nested);
            layout.write_folder(&path);
            let store = open(&dir.path().join(format!("store{n}{nested}")));
            let image = import(&store, &path, None).unwrap().remove(0);
            assert_eq!(std::fs::read_to_string(image.layers[2].join("marker")).unwrap(), chosen);
            assert_eq!(image.digests.len(), if nested { 2 } else { 1 });
            for digest in &image.digests {
                assert_eq!(store.resolve(&format!("any/name@{digest}")).as_ref(), Some(&image));
            }
        }
    }
    let path = dir.path().join("foreign");
    build(&[("amd64", ""), ("arm64", "v9")], true).write_folder(&path);
    let error = import(&open(&dir.path().join("store")), &path, None).unwrap_err();
    let message = error.to_string();
    assert!(message.contains("docker.io/library/app:1"), "{message}");
    assert!(message.contains("is for linux/amd64, linux/arm64/v9, and this node runs arm64, arm/v7"), "{message}");
    assert!(error.is_permanent());
    assert_empty(&dir.path().join("store"));
}

#[test]
fn names_move_are_added_and_can_be_given() {
    if !is_root() {
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let root = dir.path().join("store");
    let store = open(&root);
    app("app:1").write_folder(&dir.path().join("one"));
    let mut other = Layout::default();
    let manifest = other.manifest("arm64", "", &app_layers("other"));
    other.add(manifest, Some("app:1"));
    other.write_folder(&dir.path().join("two"));
    let one = import(&store, &dir.path().join("one"), None).unwrap().remove(0);
    let before = std::fs::read(root.join(format!("{}.json", one.id))).unwrap();
    assert_eq!(import(&store, &dir.path().join("one"), None).unwrap().as_slice(), std::slice::from_ref(&one));
    assert_eq!(std::fs::read(root.join(format!("{}.json", one.id))).unwrap(), before);
    let named = import(&store, &dir.path().join("one"), Some("me/app")).unwrap().remove(0);
    assert_eq!(named.references, ["docker.io/library/app:1", "docker.io/me/app:latest"]);
    let two = import(&store, &dir.path().join("two"), None).unwrap().remove(0);
    for store in [store, open(&root)] {
        assert_eq!(store.resolve("app:1").unwrap().id, two.id);
        assert_eq!(store.resolve("me/app").unwrap().references, ["docker.io/me/app:latest"]);
        assert_eq!(store.list().len(), 2);
        assert_eq!(store.resolve("app"), None);
        assert_eq!(store.resolve("not//valid"), None);
    }
    // A name that is taken away is gone for good; the image stays, with the others.
    let store = open(&root);
    assert!(matches!(store.untag("docker.io/library/none:1"), Err(RemoveError::Unknown { .. })));
    store.untag("docker.io/me/app:latest").unwrap();
    for store in [store, open(&root)] {
        assert!(store.resolve("me/app").is_none() && store.get(&one.id).is_some());
    }
    // A cut between the two records leaves both with the name: the later import has it.
    std::fs::write(root.join(format!("{}.json", one.id)), before).unwrap();
    assert_eq!(open(&root).resolve("app:1").unwrap().id, two.id);
    for bad in ["UPPER", "a@sha256:0", ""] {
        assert!(matches!(import(&open(&root), &dir.path().join("one"), Some(bad)), Err(ImportError::Name(_))), "{bad}");
    }
}

#[test]
fn removing_keeps_what_others_share() {
    if !is_root() {
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let root = dir.path().join("store");
    let store = open(&root);
    let mut layout = app("app:1");
    let manifest = layout.manifest("arm64", "", &app_layers("other"));
    layout.add(manifest, Some("app:2"));
    layout.write_folder(&dir.path().join("both"));
    let images = import(&store, &dir.path().join("both"), None).unwrap();
    assert_eq!(names(&root.join("layers")).len(), 4);
    store.remove(&images[0].id).unwrap();
    assert!(matches!(store.remove(&images[0].id), Err(RemoveError::Unknown { .. })));
    assert_eq!(names(&root.join("layers")).len(), 3);
    let left = open(&root).list();
    assert_eq!(left, [images[1].clone()]);
    assert!(left[0].layers.iter().all(|layer| layer.is_dir()));
    store.remove(&images[1].id).unwrap();
    assert_empty(&root);
}

#[test]
fn lies_damage_and_hostile_layers_leave_nothing() {
    if !is_root() {
        return;
    }
    let evil = tarball(&[("fine", b"x")]);
    let mut hostile = evil.clone();
    let mut header = tar::Header::from_byte_slice(&hostile[..512]).clone();
    header.as_old_mut().name[..7].copy_from_slice(b"../evil");
    header.set_cksum();
    hostile[..512].copy_from_slice(header.as_bytes());
    let single = |packed: Vec<u8>, plain: Vec<u8>| {
        let mut layout = Layout::default();
        let good = tarball(&[("good", b"unpacked before the bad one")]);
        let manifest = layout.manifest("arm64", "", &[(gzip(&good), good), (packed, plain)]);
        layout.add(manifest, Some("app:1"));
        layout
    };
    let change = |layout: Layout, part: &str, with: &dyn Fn(&mut Vec<u8>)| {
        let mut layout = layout;
        let digest = layout.blobs.iter().find(|(_, b)| String::from_utf8_lossy(b).contains(part)).unwrap().0.clone();
        with(layout.blobs.get_mut(&digest).unwrap());
        layout
    };
    let cases: Vec<(&str, Layout)> = vec![
        ("member \"../evil\" is refused", single(gzip(&hostile), hostile.clone())),
        ("instead of", single(gzip(&evil), tarball(&[("other", b"diff id")]))),
        ("instead of", change(single(evil.clone(), evil.clone()), "fine", &|b| b[520] ^= 1)),
        ("instead of", change(single(gzip(&evil), evil.clone()), "Entrypoint", &|b| b.push(b' '))),
        ("instead of", change(single(gzip(&evil), evil.clone()), "schemaVersion", &|b| b.push(b' '))),
        ("only gzip and zstd", single(b"BZh91AY&SY".to_vec(), evil.clone())),
        ("checksum", single(vec![7; 2048], evil.clone())),
        ("cannot read the archive", single(gzip(&evil)[..30].to_vec(), evil.clone())),
    ];
    for (expect, layout) in cases {
        for packed in [None, Some(false), Some(true)] {
            let dir = tempfile::tempdir().unwrap();
            let path = dir.path().join("image.tar");
            match packed {
                None => layout.write_folder(&path),
                Some(false) => std::fs::write(&path, layout.archive()).unwrap(),
                Some(true) => std::fs::write(&path, gzip(&layout.archive())).unwrap(),
            }
            let root = dir.path().join("store");
            let error = import(&open(&root), &path, None).unwrap_err();
            assert!(chain(&error).contains(expect), "{expect}: {}", chain(&error));
            assert_empty(&root);
            assert_eq!(names(dir.path()), ["image.tar", "store"]);
        }
    }
}

fn chain(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(inner) = cause {
        text.push_str(&format!(": {inner}"));
        cause = inner.source();
    }
    text
}

#[test]
fn sources_that_are_no_images_are_refused_with_a_reason() {
    let dir = tempfile::tempdir().unwrap();
    let store = open(&dir.path().join("store"));
    let index = |manifests: Value| json!({"schemaVersion": 2, "manifests": manifests}).to_string();
    let deep = "[".repeat(5_000);
    for (expect, bytes) in [
        ("neither index.json", tarball(&[("README", b"x")])),
        ("holds no image", tarball(&[("index.json", index(json!([])).as_bytes())])),
        ("malformed", tarball(&[("index.json", b"{")])),
        ("malformed", tarball(&[("manifest.json", deep.as_bytes())])),
        ("malformed", tarball(&[("manifest.json", b"{\"a\":1}")])),
        ("missing", tarball(&[("manifest.json", b"[{\"Config\":\"c.json\",\"Layers\":[]}]")])),
        ("only sha256", tarball(&[("index.json", index(json!([{"digest": "sha512:00"}])).as_bytes())])),
        (
            "only sha256",
            tarball(&[("index.json", index(json!([{"digest": "sha256:../../../etc/passwd"}])).as_bytes())]),
        ),
        ("missing", tarball(&[("index.json", index(json!([{"digest": sha(b"x")}])).as_bytes())])),
        ("broken", b"just text, longer than a tar header would be ".repeat(20)),
        ("broken", vec![1; 100]),
        ("neither", Vec::new()),
        ("cannot read", vec![0x1f, 0x8b, 8, 0, 0, 0]),
    ] {
        let path = dir.path().join("image.tar");
        std::fs::write(&path, bytes).unwrap();
        let error = import(&store, &path, None).unwrap_err();
        assert!(chain(&error).contains(expect), "{expect}: {}", chain(&error));
    }
    assert!(matches!(import(&store, Path::new("/dev/null"), None), Err(ImportError::Form { .. })));
    assert!(matches!(import(&store, &dir.path().join("none"), None), Err(ImportError::Read { .. })));
    assert_empty(&dir.path().join("store"));
}

#[test]
fn a_cancelled_import_leaves_nothing() {
    if !is_root() {
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    app("app:1").write_folder(&dir.path().join("app"));
    let store = open(&dir.path().join("store"));
    let mut seen = Vec::new();
    let cancelled = store.import(&dir.path().join("app"), None, NOW, &mut |progress| {
        seen.push(progress);
        if progress.layers_done == 1 { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
    });
    assert!(matches!(cancelled, Err(ImportError::Layer { source: UnpackError::Cancelled, .. })));
    assert_empty(&dir.path().join("store"));
    assert!(seen.iter().all(|p| p.layers == 3) && seen.windows(2).all(|w| w[0].bytes <= w[1].bytes));
}

#[test]
fn what_a_power_cut_leaves_is_cleared_and_damage_heals() {
    if !is_root() {
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let root = dir.path().join("store");
    app("app:1").write_folder(&dir.path().join("app"));
    let image = import(&open(&root), &dir.path().join("app"), None).unwrap().remove(0);
    let record = root.join(format!("{}.json", image.id));
    let layers = root.join("layers");
    // While unpacking; after the rename and before the record; within the record.
    std::fs::create_dir_all(layers.join(".new-x/deep")).unwrap();
    std::fs::create_dir(layers.join("0".repeat(64))).unwrap();
    std::fs::write(root.join(format!(".{}.json.new", image.id)), "{").unwrap();
    assert_eq!(open(&root).list().as_slice(), std::slice::from_ref(&image));
    assert_eq!(names(&layers).len(), 3);
    // A record that is no longer readable: its layers stay, and importing again makes it whole.
    let good = std::fs::read(&record).unwrap();
    for bad in [b"".to_vec(), b"{}".to_vec(), good[..good.len() / 2].to_vec(), vec![0; good.len()]] {
        std::fs::write(&record, bad).unwrap();
        let opened = ImageStore::open(&root, board());
        assert!(matches!(opened.problems.as_slice(), [Problem::Damaged { .. }]), "{:?}", opened.problems);
        assert!(opened.store.list().is_empty() && !record.exists());
        assert_eq!(names(&layers).len(), 3);
        import(&opened.store, &dir.path().join("app"), None).unwrap();
        assert_app(&open(&root).resolve("app:1").unwrap());
    }
    // A lost layer: the image is not offered.
    std::fs::remove_dir_all(&image.layers[0]).unwrap();
    assert!(matches!(ImageStore::open(&root, board()).problems.as_slice(), [Problem::Damaged { .. }]));
    // A later version's record is left alone, and so are its layers.
    std::fs::write(&record, json!({"version": 2, "what": "else"}).to_string()).unwrap();
    let opened = ImageStore::open(&root, board());
    assert!(matches!(opened.problems.as_slice(), [Problem::Later { version: 2, .. }]), "{:?}", opened.problems);
    assert!(record.exists() && names(&layers).len() == 2);
}

#[test]
fn a_preload_folder_is_read_once_and_heals_what_is_gone() {
    if !is_root() {
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let (root, folder) = (dir.path().join("store"), dir.path().join("preload"));
    let preload = |store: &ImageStore| store.preload(&folder, NOW, &mut |_| ControlFlow::Continue(()));
    assert!(preload(&open(&root)).failed.is_empty());
    std::fs::create_dir(&folder).unwrap();
    app("app:1").write_folder(&folder.join("app"));
    let mut other = Layout::default();
    let manifest = other.manifest("arm64", "", &app_layers("other"));
    other.add(manifest, Some("other:1"));
    std::fs::write(folder.join("other.tar.gz"), gzip(&other.archive())).unwrap();
    std::fs::write(folder.join("broken.tar"), "x").unwrap();
    std::fs::write(folder.join("README"), "x").unwrap();
    std::fs::write(folder.join(".hidden.tar"), "x").unwrap();
    let first = preload(&open(&root));
    assert_eq!((first.imported.len(), first.failed.len()), (2, 1));
    assert!(first.failed[0].0.ends_with("broken.tar"));
    let store = open(&root);
    let again = preload(&store);
    assert_eq!((again.imported.len(), again.failed.len()), (0, 1));
    store.remove(&store.resolve("other:1").unwrap().id).unwrap();
    assert_eq!(preload(&store).imported.len(), 1);
    // Changed content under the same name.
    app("app:2").write_folder(&folder.join("app"));
    std::fs::remove_file(folder.join("broken.tar")).unwrap();
    let changed = preload(&store);
    assert_eq!((changed.imported.len(), changed.failed.len()), (1, 0));
    assert!(store.resolve("app:2").is_some() && store.resolve("app:1").is_some());
}

#[test]
fn names_of_members_take_a_bounded_part_of_memory() {
    // Each packs to next to nothing.
    let names: Vec<String> = (0..2200).map(|n| format!("{}{n}", "n/".repeat(2000))).collect();
    let names = tarball(&names.iter().map(|name| (name, b"x".as_slice())).collect::<Vec<_>>());
    let links = |count: usize, length: usize| {
        let mut builder = tar::Builder::new(Vec::new());
        for n in 0..count {
            let mut header = tar::Header::new_gnu();
            header.set_entry_type(tar::EntryType::Symlink);
            header.set_size(0);
            builder.append_link(&mut header, format!("l{n}"), "t/".repeat(length / 2)).unwrap();
        }
        builder.into_inner().unwrap()
    };
    let longest = tarball(&[("n/".repeat(2100), b"x".as_slice())]);
    for (why, archive) in [
        ("longer than 4095 bytes", longest),
        ("longer than 4095 bytes", links(1, 4200)),
        ("take more than 8 MiB", names),
        ("take more than 8 MiB", links(2200, 4000)),
    ] {
        for packed in [false, true] {
            let dir = tempfile::tempdir().unwrap();
            let path = dir.path().join("image.tar");
            std::fs::write(&path, if packed { gzip(&archive) } else { archive.clone() }).unwrap();
            let error = import(&open(&dir.path().join("store")), &path, None).unwrap_err();
            assert!(chain(&error).contains(why), "{why}: {}", chain(&error));
        }
    }
}

#[test]
fn a_small_disk_is_never_filled() {
    if !is_root() {
        return;
    }
    crate::sys::testing::on_small_disk(34 << 20, |dir| {
        // Two MiB may be used; an image of three, which packs to almost nothing, is refused before it is written.
        let layer = tarball(&[("zeros", &vec![0; 3 << 20])]);
        let mut layout = Layout::default();
        let manifest = layout.manifest("arm64", "", &[(gzip(&layer), layer)]);
        layout.add(manifest, Some("big:1"));
        layout.write_folder(&dir.join("big"));
        let error = import(&open(&dir.join("store")), &dir.join("big"), None).unwrap_err();
        assert!(chain(&error).contains("\"zeros\" is refused: the layer is larger"), "{}", chain(&error));
        assert_empty(&dir.join("store"));
        // Nor is it filled with files that hold nothing.
        let names: Vec<String> = (0..600).map(|n| format!("empty/{n}")).collect();
        let layer = tarball(&names.iter().map(|name| (name, b"".as_slice())).collect::<Vec<_>>());
        let mut layout = Layout::default();
        let manifest = layout.manifest("arm64", "", &[(gzip(&layer), layer)]);
        layout.add(manifest, Some("many:1"));
        layout.write_folder(&dir.join("many"));
        let error = import(&open(&dir.join("store")), &dir.join("many"), None).unwrap_err();
        assert!(chain(&error).contains("the layer is larger"), "{}", chain(&error));
        assert_empty(&dir.join("store"));
    });
}
