//! What a source holds: which images, under which names, of which layers. Reads only JSON; every blob is checked
//! against its digest before it is believed.

use super::archive::Source;
use super::platform::{self, Host};
use super::reference::{Reference, is_hex64};
use super::{ImageConfig, ImportError, digest};
use serde::Deserialize;
use serde::de::DeserializeOwned;
use std::collections::BTreeMap;

/// An index may point to indexes; builders use one level.
const MAX_DEPTH: u8 = 3;
/// overlayfs mounts up to 500 lower layers; Docker builds up to 127.
const MAX_LAYERS: usize = 127;

/// An image that can be imported: nothing but its layers' content is still unchecked.
#[derive(Debug)]
pub(super) struct Planned {
    pub(super) id: String,
    pub(super) names: Vec<String>,
    pub(super) digests: Vec<String>,
    pub(super) layers: Vec<PlannedLayer>,
    pub(super) config: ImageConfig,
    pub(super) architecture: String,
}

/// One layer of it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct PlannedLayer {
    /// The source's member that holds the packed layer.
    pub(super) member: String,
    /// Hexadecimal sha256 of the packed layer, where the source tells it.
    pub(super) packed: Option<String>,
    /// Hexadecimal sha256 of the unpacked layer.
    pub(super) diff_id: String,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct Descriptor {
    media_type: String,
    digest: String,
    platform: Option<Platform>,
    annotations: Option<BTreeMap<String, String>>,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default)]
struct Platform {
    os: String,
    architecture: String,
    variant: String,
}

/// An index or a manifest: media types are not reliable, what is in it is.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Document {
    manifests: Option<Vec<Descriptor>>,
    config: Option<Descriptor>,
    layers: Option<Vec<Descriptor>>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Config {
    os: String,
    architecture: String,
    variant: Option<String>,
    config: Option<RunConfig>,
    rootfs: RootFs,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct RootFs {
    diff_ids: Option<Vec<String>>,
}

/// Docker writes null for what is empty.
#[derive(Debug, Default, Deserialize)]
#[serde(default, rename_all = "PascalCase")]
struct RunConfig {
    entrypoint: Option<Vec<String>>,
    cmd: Option<Vec<String>>,
    env: Option<Vec<String>>,
    working_dir: Option<String>,
    user: Option<String>,
    stop_signal: Option<String>,
    exposed_ports: Option<BTreeMap<String, serde_json::Value>>,
    volumes: Option<BTreeMap<String, serde_json::Value>>,
    labels: Option<BTreeMap<String, String>>,
}

impl From<RunConfig> for ImageConfig {
    fn from(run: RunConfig) -> Self {
        Self {
            entrypoint: run.entrypoint.unwrap_or_default(),
            cmd: run.cmd.unwrap_or_default(),
            env: run.env.unwrap_or_default(),
            working_dir: run.working_dir.unwrap_or_default(),
            user: run.user.unwrap_or_default(),
            stop_signal: run.stop_signal.unwrap_or_default(),
            exposed: run.exposed_ports.unwrap_or_default().into_keys().collect(),
            volumes: run.volumes.unwrap_or_default().into_keys().collect(),
            labels: run.labels.unwrap_or_default(),
        }
    }
}

/// One entry of docker-save's `manifest.json`.
#[derive(Debug, Default, Deserialize)]
#[serde(default, rename_all = "PascalCase")]
struct Saved {
    config: String,
    repo_tags: Option<Vec<String>>,
    layers: Vec<String>,
}

/// A build that an index offers.
struct Candidate {
    descriptor: Descriptor,
    /// Digests of the indexes that lead to it.
    through: Vec<String>,
}

/// Lists the images of a source that are for this host. An image that is not for it is an error, not left out.
pub(super) fn plan(source: &Source, host: &Host) -> Result<Vec<Planned>, ImportError> {
    let reader = Reader { source, host };
    // Newer `docker save` writes both forms at once; the OCI one carries digests.
    let planned = if source.has("index.json") && (source.has("oci-layout") || !source.has("manifest.json")) {
        reader.oci()?
    } else if source.has("manifest.json") {
        reader.saved()?
    } else {
        return Err(reader.form("it holds neither index.json (OCI layout) nor manifest.json (docker save)"));
    };
    if planned.is_empty() { Err(reader.form("it holds no image")) } else { Ok(planned) }
}

struct Reader<'a> {
    source: &'a Source,
    host: &'a Host,
}

impl Reader<'_> {
    fn form(&self, why: &'static str) -> ImportError {
        ImportError::Form { path: self.source.path().to_owned(), why }
    }

    fn member(&self, member: &str, why: &'static str) -> ImportError {
        ImportError::Member { path: self.source.path().to_owned(), member: member.to_owned(), why }
    }

    fn parse<T: DeserializeOwned>(&self, member: &str, bytes: &[u8]) -> Result<T, ImportError> {
        serde_json::from_slice(bytes).map_err(|source| ImportError::Json {
            path: self.source.path().to_owned(),
            member: member.to_owned(),
            source,
        })
    }

    fn required(&self, member: &str) -> Result<Vec<u8>, ImportError> {
        self.source.json(member)?.ok_or_else(|| self.member(member, "it is missing"))
    }

    /// A JSON blob, checked against its digest.
    fn blob(&self, digest: &str) -> Result<(String, Vec<u8>), ImportError> {
        let member = self.blob_member(digest)?;
        let bytes = self.required(&member)?;
        self.check(&member, digest, &digest::of(&bytes))?;
        Ok((member, bytes))
    }

    fn blob_member(&self, digest: &str) -> Result<String, ImportError> {
        let hex = digest.strip_prefix("sha256:").filter(|hex| is_hex64(hex));
        let hex = hex.ok_or_else(|| self.member(&cut(digest), "only sha256 digests are supported"))?;
        Ok(format!("blobs/sha256/{hex}"))
    }

    fn check(&self, member: &str, expected: &str, found_hex: &str) -> Result<(), ImportError> {
        let expected_hex = expected.strip_prefix("sha256:").unwrap_or(expected);
        if expected_hex == found_hex {
            return Ok(());
        }
        Err(ImportError::Digest {
            path: self.source.path().to_owned(),
            member: member.to_owned(),
            expected: format!("sha256:{expected_hex}"),
            found: format!("sha256:{found_hex}"),
        })
    }

    fn oci(&self) -> Result<Vec<Planned>, ImportError> {
        let index: Document = self.parse("index.json", &self.required("index.json")?)?;
        // Entries of one name are builds of one image. So are those without a name that tell their platform; each
        // other one is an image of its own.
        let mut groups: BTreeMap<(Vec<String>, usize), Vec<Candidate>> = BTreeMap::new();
        for (n, descriptor) in index.manifests.unwrap_or_default().into_iter().enumerate() {
            let names = self.names(&descriptor)?;
            let alone = if names.is_empty() && descriptor.platform.is_none() { n + 1 } else { 0 };
            self.collect(descriptor, Vec::new(), groups.entry((names, alone)).or_default())?;
        }
        let mut planned: Vec<Planned> = Vec::new();
        for ((names, _), candidates) in groups.into_iter().filter(|(_, candidates)| !candidates.is_empty()) {
            let image = self.choose(names, candidates)?;
            match planned.iter_mut().find(|other| other.id == image.id) {
                Some(same) => merge_into(same, image),
                None => planned.push(image),
            }
        }
        Ok(planned)
    }

    /// Follows indexes down to the builds.
    fn collect(
        &self,
        descriptor: Descriptor,
        through: Vec<String>,
        out: &mut Vec<Candidate>,
    ) -> Result<(), ImportError> {
        if is_attestation(&descriptor) {
            return Ok(());
        }
        if !descriptor.media_type.contains("index") && !descriptor.media_type.contains("manifest.list") {
            out.push(Candidate { descriptor, through });
            return Ok(());
        }
        if through.len() >= usize::from(MAX_DEPTH) {
            return Err(self.member(&cut(&descriptor.digest), "indexes are nested too deeply"));
        }
        let (member, bytes) = self.blob(&descriptor.digest)?;
        let index: Document = self.parse(&member, &bytes)?;
        let mut below = through;
        below.push(descriptor.digest);
        for child in index.manifests.unwrap_or_default() {
            self.collect(child, below.clone(), out)?;
        }
        Ok(())
    }

    /// The build that fits this host best. Others may lack their blobs: exports of one platform keep the whole index.
    fn choose(&self, names: Vec<String>, candidates: Vec<Candidate>) -> Result<Planned, ImportError> {
        let mut offered = Vec::new();
        let mut best: Option<(u8, Candidate)> = None;
        for mut candidate in candidates {
            let platform = match candidate.descriptor.platform.take() {
                Some(platform) if !platform.architecture.is_empty() => platform,
                _ => self.platform_of(&candidate.descriptor.digest)?,
            };
            let rank = self.host.rank(&platform.os, &platform.architecture, &platform.variant);
            offered.push(format!("{}/{}", platform.os, platform::join(&platform.architecture, &platform.variant)));
            if let Some(rank) = rank
                && best.as_ref().is_none_or(|(other, _)| rank < *other)
            {
                best = Some((rank, candidate));
            }
        }
        match best {
            Some((_, candidate)) => self.image(names, &candidate),
            None => Err(self.foreign(&names, offered)),
        }
    }

    fn foreign(&self, names: &[String], offered: Vec<String>) -> ImportError {
        ImportError::Platform {
            path: self.source.path().to_owned(),
            image: names.first().cloned().unwrap_or_else(|| "the image".to_owned()),
            offered,
            host: self.host.describe(),
        }
    }

    fn platform_of(&self, digest: &str) -> Result<Platform, ImportError> {
        let (member, bytes) = self.blob(digest)?;
        let manifest: Document = self.parse(&member, &bytes)?;
        let config = manifest.config.ok_or_else(|| self.member(&member, "it is no image manifest"))?;
        let (member, bytes) = self.blob(&config.digest)?;
        let config: Config = self.parse(&member, &bytes)?;
        Ok(Platform { os: config.os, architecture: config.architecture, variant: config.variant.unwrap_or_default() })
    }

    fn image(&self, names: Vec<String>, candidate: &Candidate) -> Result<Planned, ImportError> {
        let (member, bytes) = self.blob(&candidate.descriptor.digest)?;
        let manifest: Document = self.parse(&member, &bytes)?;
        let (Some(config), Some(layers)) = (manifest.config, manifest.layers) else {
            return Err(self.member(&member, "it is no image manifest"));
        };
        let (config_member, config_bytes) = self.blob(&config.digest)?;
        let mut packed = Vec::new();
        for layer in layers {
            if layer.media_type.contains("encrypted") {
                return Err(self.member(&member, "it has encrypted layers"));
            }
            let member = self.blob_member(&layer.digest)?;
            packed.push((member, layer.digest.strip_prefix("sha256:").map(str::to_owned)));
        }
        let mut digests = vec![candidate.descriptor.digest.clone()];
        digests.extend(candidate.through.iter().rev().cloned());
        self.finish(names, digests, &config_member, &config_bytes, packed)
    }

    fn saved(&self) -> Result<Vec<Planned>, ImportError> {
        let entries: Vec<Saved> = self.parse("manifest.json", &self.required("manifest.json")?)?;
        let mut planned: Vec<Planned> = Vec::new();
        for saved in entries {
            let mut names = Vec::new();
            for tag in saved.repo_tags.unwrap_or_default() {
                names.push(Reference::parse(&tag)?.to_string());
            }
            let config = self.required(&saved.config)?;
            // Every writer names the configuration after its digest.
            let stem = saved.config.rsplit('/').next().unwrap_or_default();
            let hex = stem.strip_suffix(".json").unwrap_or(stem);
            if is_hex64(hex) {
                self.check(&saved.config, hex, &digest::of(&config))?;
            }
            let layers = saved.layers.into_iter().map(|member| {
                let packed = member.strip_prefix("blobs/sha256/").filter(|hex| is_hex64(hex)).map(str::to_owned);
                (member, packed)
            });
            let image = self.finish(names, Vec::new(), &saved.config, &config, layers.collect())?;
            match planned.iter_mut().find(|other| other.id == image.id) {
                Some(same) => merge_into(same, image),
                None => planned.push(image),
            }
        }
        Ok(planned)
    }

    fn finish(
        &self,
        names: Vec<String>,
        digests: Vec<String>,
        config_member: &str,
        config_bytes: &[u8],
        packed: Vec<(String, Option<String>)>,
    ) -> Result<Planned, ImportError> {
        let config: Config = self.parse(config_member, config_bytes)?;
        let variant = config.variant.unwrap_or_default();
        if self.host.rank(&config.os, &config.architecture, &variant).is_none() {
            let offered = format!("{}/{}", config.os, platform::join(&config.architecture, &variant));
            return Err(self.foreign(&names, vec![offered]));
        }
        let diff_ids = config.rootfs.diff_ids.unwrap_or_default();
        if diff_ids.len() != packed.len() || diff_ids.len() > MAX_LAYERS {
            return Err(self.member(config_member, "its diff ids are not as many as the layers, or more than 127"));
        }
        let mut layers = Vec::new();
        for (diff_id, (member, packed)) in diff_ids.into_iter().zip(packed) {
            let hex = diff_id.strip_prefix("sha256:").filter(|hex| is_hex64(hex));
            let diff_id = hex.ok_or_else(|| self.member(config_member, "a diff id is not sha256"))?.to_owned();
            layers.push(PlannedLayer { member, packed, diff_id });
        }
        Ok(Planned {
            id: digest::of(config_bytes),
            names,
            digests,
            layers,
            config: config.config.unwrap_or_default().into(),
            architecture: platform::join(&config.architecture, &variant),
        })
    }

    /// Names from annotations: containerd's full name, else the OCI one, which may be a full name or only a tag. A tag
    /// alone goes with the name of the file or folder, as `skopeo copy ... oci:nginx:1.27` means it.
    fn names(&self, descriptor: &Descriptor) -> Result<Vec<String>, ImportError> {
        let none = BTreeMap::new();
        let annotations = descriptor.annotations.as_ref().unwrap_or(&none);
        if let Some(full) = annotations.get("io.containerd.image.name") {
            return Ok(named(Reference::parse(full)?));
        }
        let Some(name) = annotations.get("org.opencontainers.image.ref.name") else {
            return Ok(Vec::new());
        };
        if name.contains(['/', ':']) {
            return Ok(named(Reference::parse(name)?));
        }
        let file = self.source.path().file_name().map(|f| f.to_string_lossy().into_owned()).unwrap_or_default();
        let stem = file.split(".tar").next().unwrap_or_default();
        let stem = stem.trim_end_matches(".tgz").trim_end_matches(".oci");
        // A file name that cannot be a repository leaves the image without a name: it has its id, or gets one by hand.
        Ok(Reference::parse(&format!("{stem}:{name}")).map(named).unwrap_or_default())
    }
}

/// A name by digest needs no entry: the digest itself leads to the image.
fn named(reference: Reference) -> Vec<String> {
    match reference {
        Reference::Tag { .. } => vec![reference.to_string()],
        Reference::Digest { .. } | Reference::Id(_) => Vec::new(),
    }
}

fn merge_into(same: &mut Planned, image: Planned) {
    same.names.extend(image.names);
    for digest in image.digests {
        if !same.digests.contains(&digest) {
            same.digests.push(digest);
        }
    }
}

/// BuildKit stores provenance beside the builds, as manifests for no platform.
fn is_attestation(descriptor: &Descriptor) -> bool {
    let marked = descriptor.annotations.as_ref().is_some_and(|a| a.contains_key("vnd.docker.reference.type"));
    marked || descriptor.platform.as_ref().is_some_and(|p| p.os == "unknown" && p.architecture == "unknown")
}

fn cut(text: &str) -> String {
    text.chars().take(100).collect()
}
