//! What the manifests want, and what is wrong with them.

use super::manifests::{self, Clash, FileContent, FilePods, ManifestEvent};
use super::slot;
use crate::model::pod::{Pod, Source};
use crate::model::view::RefusedManifest;
use crate::wire::{self, NodeIdentity};
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
    /// The folder was there.
    read: bool,
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
        Self { node, files: BTreeMap::new(), wanted, clashes: Vec::new(), ready: false, read: false }
    }

    /// Whether the folder was looked at: before that nobody is unwanted.
    pub(super) const fn ready(&self) -> bool {
        self.ready
    }

    /// Whether all files were read and say what they want: a pod that none wants is wanted no more.
    pub(super) fn is_complete(&self) -> bool {
        self.read && self.files.values().all(|file| !file.pods.incomplete)
    }

    /// Takes over what the folder holds now. Only files whose content changed are parsed.
    pub(super) fn take(&mut self, event: ManifestEvent) {
        let contents = match event {
            ManifestEvent::Files(contents) => contents,
            ManifestEvent::FolderMissing if self.read => {
                tracing::warn!("the manifest folder is gone, and with it what its pods were wanted by");
                BTreeMap::new()
            }
            ManifestEvent::FolderMissing => {
                tracing::warn!("the manifest folder is not there; it is waited for, and the pods from before go on");
                self.ready = true;
                return;
            }
        };
        let mut before = std::mem::take(&mut self.files);
        for (path, content) in contents {
            let same = before.remove(&path).filter(|read| read.content == content);
            let read = same.unwrap_or_else(|| self.read(&path, content));
            self.files.insert(path, read);
        }
        let pods = self.files.iter().map(|(path, read)| (path.clone(), read.pods.clone())).collect();
        (self.wanted, self.clashes) = manifests::merge(&self.wanted, &pods);
        (self.ready, self.read) = (true, true);
    }

    fn read(&self, path: &str, content: FileContent) -> Read {
        let bytes = match &content {
            // What an editor, a full disk or a power cut left: it tells nothing of what is wanted.
            FileContent::Bytes(bytes) if bytes.trim_ascii().is_empty() => return refused(path, "is empty", content),
            FileContent::Bytes(bytes) => Arc::clone(bytes),
            FileContent::Unreadable(why) => return refused(path, &why.clone(), content),
            FileContent::Unread => {
                return Read { content, pods: FilePods { pods: Vec::new(), incomplete: true }, problems: Vec::new() };
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
        let mut problems: Vec<String> =
            parsed.problems.iter().filter(|p| p.is_error()).map(ToString::to_string).collect();
        let mut pods = Vec::new();
        for pod in parsed.pods {
            match slot::too_large(&pod) {
                None => pods.push(Arc::new(pod)),
                Some((most, size)) => {
                    let why = format!("{size} bytes are to be remembered of it, at most {most} can be");
                    let problem = format!("{path}: pod {}/{} is too large: {why}", pod.namespace, pod.name);
                    tracing::error!("{problem}");
                    problems.push(problem);
                }
            }
        }
        let incomplete = !problems.is_empty();
        Read { content, pods: FilePods { pods, incomplete }, problems }
    }

    /// The files that want pods.
    pub(super) fn files(&self) -> Vec<String> {
        self.wanted.keys().cloned().collect()
    }

    /// The pods that are wanted, in lexical order of their files.
    pub(super) fn pods(&self) -> Vec<Arc<Pod>> {
        self.wanted.values().flatten().cloned().collect()
    }

    /// The files that are refused, as a whole or in part.
    pub(super) fn refused(&self) -> Vec<RefusedManifest> {
        let mut refused: BTreeMap<&str, Vec<String>> = BTreeMap::new();
        for (path, read) in &self.files {
            if !read.problems.is_empty() {
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

/// A file that tells nothing: the pods that it wanted before stay.
fn refused(path: &str, why: &str, content: FileContent) -> Read {
    let problem = format!("{path}: {why}");
    tracing::error!("{problem}");
    Read { content, pods: FilePods { pods: Vec::new(), incomplete: true }, problems: vec![problem] }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A pod that the store could not take would be forgotten with the agent.
    #[test]
    fn a_pod_that_cannot_be_remembered_is_refused() {
        let mut desired = Desired::new(NodeIdentity::new("edge1"), std::iter::empty());
        let manifest = |name: &str, variables: usize| {
            let value = "x".repeat(100_000);
            let env: String = (0..variables).map(|n| format!("    - {{name: A{n}, value: {value}}}\n")).collect();
            format!(
                "apiVersion: v1\nkind: Pod\nmetadata: {{name: {name}}}\nspec:\n  containers:\n  - name: c\n    image: i\n    \
                 env:\n{env}"
            )
        };
        // What it is to be is kept twice, as it was written and as it is run.
        let text = format!("{}---\n{}", manifest("small", 15), manifest("large", 25));
        let content = FileContent::Bytes(text.into_bytes().into());
        desired.take(ManifestEvent::Files([("/m/a.yaml".to_owned(), content)].into()));
        let names: Vec<String> = desired.pods().iter().map(|pod| pod.name.clone()).collect();
        assert_eq!(names, ["small-edge1"], "{:?}", desired.refused());
        let refused = desired.refused();
        let problem = &refused[0].problems[0];
        assert!(problem.starts_with("/m/a.yaml: pod default/large-edge1 is too large: "), "{problem}");
    }

    const POD: &[u8] = b"{apiVersion: v1, kind: Pod, metadata: {name: web}, spec: {containers: [{name: a, image: b}]}}";
    const FILE: &str = "/m/web.yaml";

    fn files(content: FileContent) -> ManifestEvent {
        ManifestEvent::Files([(FILE.to_owned(), content)].into())
    }

    /// What an agent knows that begins while pod `web` runs.
    fn adopted() -> Desired {
        let node = || NodeIdentity::new("node".to_owned());
        let mut before = Desired::new(node(), std::iter::empty());
        before.take(files(FileContent::Bytes(POD.into())));
        assert_eq!(before.pods().len(), 1, "{:?}", before.refused());
        Desired::new(node(), before.pods().into_iter())
    }

    #[test]
    fn a_missing_folder_lets_the_pods_from_before_go_on() {
        let mut desired = adopted();
        assert!(!desired.ready());
        desired.take(ManifestEvent::FolderMissing);
        assert!(desired.ready());
        assert_eq!(desired.pods().len(), 1);
        assert!(!desired.is_complete());
        desired.take(ManifestEvent::Files(BTreeMap::new()));
        assert!(desired.pods().is_empty() && desired.is_complete());
    }

    #[test]
    fn a_folder_that_was_read_and_goes_takes_its_pods_with_it() {
        let mut desired = adopted();
        desired.take(files(FileContent::Bytes(POD.into())));
        assert_eq!(desired.pods().len(), 1);
        desired.take(ManifestEvent::FolderMissing);
        assert!(desired.pods().is_empty() && desired.is_complete());
    }

    /// A copy under an earlier name, made while no agent looks, does not take over what runs.
    #[test]
    fn a_copy_is_refused_by_a_new_agent_too() {
        let mut desired = adopted();
        let uid = desired.pods()[0].uid.clone();
        let content = || FileContent::Bytes(POD.into());
        let both = |held| ManifestEvent::Files([("/m/a.yaml".to_owned(), content()), (FILE.to_owned(), held)].into());
        for held in [FileContent::Unread, content()] {
            desired.take(both(held));
            assert_eq!(desired.pods().iter().map(|pod| &pod.uid).collect::<Vec<_>>(), [&uid]);
            let refused = desired.refused();
            assert_eq!(refused[0].problems, ["/m/a.yaml: pod default/web-node is already defined in /m/web.yaml"]);
        }
        desired.take(ManifestEvent::Files([("/m/a.yaml".to_owned(), content())].into()));
        assert!(desired.refused().is_empty() && desired.pods().len() == 1 && desired.pods()[0].uid != uid);
    }

    #[test]
    fn a_file_that_is_not_read_yet_keeps_its_pods_and_is_not_refused() {
        let mut desired = adopted();
        assert_eq!(desired.files(), [FILE]);
        desired.take(files(FileContent::Unread));
        assert_eq!(desired.pods().len(), 1);
        assert!(desired.refused().is_empty());
        desired.take(files(FileContent::Unreadable("no".to_owned())));
        assert_eq!((desired.pods().len(), desired.refused().len()), (1, 1));
        assert!(!desired.is_complete());
        desired.take(files(FileContent::Bytes(b" \n".as_slice().into())));
        assert_eq!((desired.pods().len(), desired.refused().len()), (1, 1), "an empty file tells nothing");
        desired.take(files(FileContent::Bytes(b"# nothing any more\n".as_slice().into())));
        assert!(desired.pods().is_empty() && desired.refused().is_empty());
    }
}
