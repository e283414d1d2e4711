//! Image archives made by hand: good ones in several forms, and such as nobody should trust.

use armlet_vm::{Arch, vm};
use ring::digest::{SHA256, digest};
use serde_json::{Value, json};
use std::io::Write;
use std::path::Path;
use tar::{EntryType, Header};

/// Files of a layer, in order.
pub(crate) struct Layer(tar::Builder<Vec<u8>>);

impl Layer {
    pub(crate) fn new() -> Self {
        Self(tar::Builder::new(Vec::new()))
    }

    fn entry(self, kind: EntryType, path: &str, link: &str, mode: u32, contents: &[u8]) -> Self {
        self.put(kind, path, link, mode, contents, 0)
    }

    fn put(mut self, kind: EntryType, path: &str, link: &str, mode: u32, contents: &[u8], owner: u64) -> Self {
        let mut header = Header::new_gnu();
        header.set_entry_type(kind);
        // The crate refuses names that leave the archive: here they are wanted.
        fill(&mut header.as_old_mut().name, path);
        fill(&mut header.as_old_mut().linkname, link);
        header.set_mode(mode);
        header.set_size(contents.len() as u64);
        header.set_uid(owner);
        header.set_gid(owner);
        header.set_mtime(1_735_689_600);
        if kind == EntryType::Char {
            header.set_device_major(1).unwrap();
            header.set_device_minor(3).unwrap();
        }
        header.set_cksum();
        self.0.append(&header, contents).unwrap();
        self
    }

    pub(crate) fn folder(self, path: &str) -> Self {
        self.entry(EntryType::Directory, path, "", 0o755, b"")
    }

    pub(crate) fn file(self, path: &str, mode: u32, contents: &[u8]) -> Self {
        self.entry(EntryType::Regular, path, "", mode, contents)
    }

    pub(crate) fn symlink(self, path: &str, to: &str) -> Self {
        self.entry(EntryType::Symlink, path, to, 0o777, b"")
    }

    pub(crate) fn hard_link(self, path: &str, to: &str) -> Self {
        self.entry(EntryType::Link, path, to, 0o644, b"")
    }

    pub(crate) fn device(self, path: &str) -> Self {
        self.entry(EntryType::Char, path, "", 0o600, b"")
    }

    /// A file that says to be larger than what follows.
    pub(crate) fn claims(mut self, path: &str, size: u64) -> Self {
        let mut header = Header::new_gnu();
        fill(&mut header.as_old_mut().name, path);
        header.set_mode(0o644);
        header.set_uid(0);
        header.set_gid(0);
        header.set_size(size);
        header.set_cksum();
        self.0.append(&header, &b""[..]).unwrap();
        self
    }

    pub(crate) fn owned(self, path: &str, owner: u64, contents: &[u8]) -> Self {
        self.put(EntryType::Regular, path, "", 0o640, contents, owner)
    }

    pub(crate) fn tar(self) -> Vec<u8> {
        self.0.into_inner().unwrap()
    }
}

fn fill(field: &mut [u8], text: &str) {
    field[..text.len()].copy_from_slice(text.as_bytes());
}

/// How a layer is packed.
#[derive(Clone, Copy)]
pub(crate) enum Packing {
    Gzip,
    Zstd,
}

/// An OCI archive of one image.
pub(crate) struct Archive {
    pub(crate) name: &'static str,
    pub(crate) architecture: &'static str,
    pub(crate) packing: Packing,
    pub(crate) layers: Vec<Vec<u8>>,
    /// The manifest names this digest for the last layer instead of the right one.
    pub(crate) digest_lie: bool,
    /// The same for the digest of its unpacked content.
    pub(crate) diff_id_lie: bool,
}

impl Archive {
    pub(crate) fn new(name: &'static str, layers: Vec<Vec<u8>>) -> Self {
        let (architecture, packing) = (Arch::current().image(), Packing::Gzip);
        Self { name, architecture, packing, layers, digest_lie: false, diff_id_lie: false }
    }

    pub(crate) fn write(self, folder: &Path, file: &str) {
        let mut out = tar::Builder::new(std::fs::File::create(folder.join(file)).unwrap());
        let mut add = |path: String, bytes: &[u8]| {
            let mut header = Header::new_ustar();
            header.set_mode(0o644);
            header.set_uid(0);
            header.set_gid(0);
            header.set_size(bytes.len() as u64);
            out.append_data(&mut header, path, bytes).unwrap();
        };
        let wrong = sha256(b"something else");
        let (mut descriptors, mut diff_ids) = (Vec::new(), Vec::new());
        let last = self.layers.len().saturating_sub(1);
        for (at, layer) in self.layers.iter().enumerate() {
            let (bytes, kind) = match self.packing {
                Packing::Gzip => (gzip(layer), "application/vnd.oci.image.layer.v1.tar+gzip"),
                Packing::Zstd => (zstd(layer), "application/vnd.oci.image.layer.v1.tar+zstd"),
            };
            let named = if self.digest_lie && at == last { wrong.clone() } else { sha256(&bytes) };
            add(format!("blobs/sha256/{named}"), &bytes);
            descriptors.push(json!({"mediaType": kind, "digest": format!("sha256:{named}"), "size": bytes.len()}));
            let diff_id = if self.diff_id_lie && at == last { wrong.clone() } else { sha256(layer) };
            diff_ids.push(format!("sha256:{diff_id}"));
        }
        let config = json!({"architecture": self.architecture, "os": "linux",
            "config": {"Env": ["PATH=/bin"], "Cmd": ["sh"]}, "rootfs": {"type": "layers", "diff_ids": diff_ids}});
        let mut blob = |value: &Value, kind: &str| {
            let bytes = value.to_string().into_bytes();
            let name = sha256(&bytes);
            add(format!("blobs/sha256/{name}"), &bytes);
            json!({"mediaType": kind, "digest": format!("sha256:{name}"), "size": bytes.len()})
        };
        let config = blob(&config, "application/vnd.oci.image.config.v1+json");
        let kind = "application/vnd.oci.image.manifest.v1+json";
        let manifest = json!({"schemaVersion": 2, "mediaType": kind, "config": config, "layers": descriptors});
        let mut manifest = blob(&manifest, kind);
        manifest["annotations"] = json!({"org.opencontainers.image.ref.name": self.name});
        let index = json!({"schemaVersion": 2, "manifests": [manifest]});
        add("index.json".to_owned(), index.to_string().as_bytes());
        add("oci-layout".to_owned(), br#"{"imageLayoutVersion":"1.0.0"}"#);
        out.finish().unwrap();
    }
}

/// A root file system with busybox and one of everything that archives can hold, changed by a second layer.
pub(crate) fn layers() -> Vec<Vec<u8>> {
    let busybox = std::fs::read(vm().join("busybox/usr/bin/busybox")).unwrap();
    let base = Layer::new()
        .folder("bin/")
        .file("bin/busybox", 0o755, &busybox)
        .folder("etc/")
        .folder("tmp/")
        .folder("data/")
        .file("data/removed", 0o644, b"x")
        .file("data/kept", 0o644, b"kept")
        .folder("opaque/")
        .file("opaque/below", 0o644, b"x");
    let base = ["sh", "cat", "ls", "stat", "sleep", "id", "echo", "test"]
        .iter()
        .fold(base, |layer, applet| layer.symlink(&format!("bin/{applet}"), "busybox"));
    let top = Layer::new()
        .folder("data/")
        .file("data/.wh.removed", 0o644, b"")
        .file("data/one", 0o644, b"same inode")
        .hard_link("data/two", "data/one")
        .folder("opaque/")
        .file("opaque/.wh..wh..opq", 0o644, b"")
        .file("opaque/above", 0o644, b"x")
        .file("setuid", 0o4755, b"x")
        .device("null")
        .owned("owned", 1234, b"x");
    vec![base.tar(), top.tar()]
}

fn sha256(bytes: &[u8]) -> String {
    digest(&SHA256, bytes).as_ref().iter().map(|byte| format!("{byte:02x}")).collect()
}

pub(crate) fn gzip(bytes: &[u8]) -> Vec<u8> {
    let mut writer = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
    writer.write_all(bytes).unwrap();
    writer.finish().unwrap()
}

fn zstd(bytes: &[u8]) -> Vec<u8> {
    ruzstd::encoding::compress_to_vec(bytes, ruzstd::encoding::CompressionLevel::Fastest)
}
