//! What the manifests want, and what is wrong with them.

use super::manifests::{self, Clash, FileContent, FilePods, ManifestEvent};
use crate::model::pod::{Pod, Source};
use crate::model::view::RefusedManifest;
use crate::wire::{self, NodeIdentity, Problem};
use std::collections::BTreeMap;
use std::sync::Arc;

/// The files as they were last read.
#[derive(Debug)]
pub(super) struct Desired {
    node: NodeIdentity,
    files: BTreeMap<String, Read>,
    wanted: manifests::Desired,
    clashes: Vec<Clash>,
    ready: bool,
}

/// One file, read.
#[derive(Debug)]
struct Read {
    content: FileContent,
    pods: FilePods,
    problems: Vec<String>,
}

impl Desired {
    /// Nothing is known yet of the files; `before` are the pods that an earlier agent was given and did not stop, so
    /// that a file which has become unreadable meanwhile keeps its pods.
    pub(super) fn new(node: NodeIdentity, before: impl Iterator<Item = Arc<Pod>>) -> Self {
        let mut wanted = manifests::Desired::new();
        for pod in before {
            let Source::File { path, .. } = &pod.source;
            wanted.entry(path.clone()).or_default().push(pod);
        }
        Self { node, files: BTreeMap::new(), wanted, clashes: Vec::new(), ready: false }
    }

    /// Whether the folder was read at least once: before that nobody is unwanted.
    pub(super) const fn ready(&self) -> bool {
        self.ready
    }

    /// Takes over what the folder holds now. Only files whose content changed are parsed.
    pub(super) fn take(&mut self, event: ManifestEvent) {
        let ManifestEvent::Files(contents) = event else {
            tracing::warn!("the manifest folder is not there; it is waited for");
            return;
        };
        let mut before = std::mem::take(&mut self.files);
        for (path, content) in contents {
            let same = before.remove(&path).filter(|read| read.content == content);
            let read = same.unwrap_or_else(|| self.read(&path, content));
            self.files.insert(path, read);
        }
        let pods = self.files.iter().map(|(path, read)| (path.clone(), read.pods.clone())).collect();
        (self.wanted, self.clashes) = manifests::merge(&self.wanted, &pods);
        self.ready = true;
    }

    fn read(&self, path: &str, content: FileContent) -> Read {
        let bytes = match &content {
            FileContent::Bytes(bytes) => Arc::clone(bytes),
            FileContent::Unreadable(why) => {
                tracing::error!("{path}: {why}");
                let problems = vec![format!("{path}: {why}")];
                return Read { content, pods: FilePods { pods: Vec::new(), refused: true }, problems };
            }
        };
        let parsed = wire::parse(&bytes, path, &self.node);
        for problem in &parsed.problems {
            if problem.is_error() {
                tracing::error!("{problem}");
            } else {
                tracing::warn!("{problem}");
            }
        }
        let refused = parsed.problems.iter().any(Problem::is_error);
        let problems = parsed.problems.iter().filter(|p| p.is_error()).map(ToString::to_string).collect();
        let pods = parsed.pods.into_iter().map(Arc::new).collect();
        Read { content, pods: FilePods { pods, refused }, problems }
    }

    /// The pods that are wanted, in lexical order of their files.
    pub(super) fn pods(&self) -> Vec<Arc<Pod>> {
        self.wanted.values().flatten().cloned().collect()
    }

    /// The files that are refused, as a whole or in part.
    pub(super) fn refused(&self) -> Vec<RefusedManifest> {
        let mut refused: BTreeMap<&str, Vec<String>> = BTreeMap::new();
        for (path, read) in &self.files {
            if read.pods.refused {
                refused.entry(path).or_default().extend(read.problems.iter().cloned());
            }
        }
        for clash in &self.clashes {
            refused.entry(&clash.file).or_default().push(format!("{}: {clash}", clash.file));
        }
        let refused = refused.into_iter();
        refused.map(|(path, problems)| RefusedManifest { path: path.to_owned(), problems }).collect()
    }
}
