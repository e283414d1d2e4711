//! A static pod file, read: several documents, YAML or JSON, each a v1.Pod.

use super::document::{self, Document};
use super::problem::{Path, Problem, by_line};
use super::report::Report;
use super::tree::{Data, Node};
use super::{convert, defaults, identity, schema, support, validate};
use crate::model::PodUid;
use crate::model::pod::{Pod, Source};
use k8s_openapi::api::core::v1 as api;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use serde_json::Value;
use std::collections::{BTreeMap, HashSet};

/// What a manifest needs to know about the node it is read for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NodeIdentity {
    /// The node's name. It becomes part of a static pod's name and UID.
    pub name: String,
    /// The node's labels, for `nodeSelector`.
    pub labels: BTreeMap<String, String>,
    /// Sysctls that pods may set beside the safe ones: names, or prefixes that end in `*`.
    pub allowed_unsafe_sysctls: Vec<String>,
}

impl NodeIdentity {
    /// A node with the labels that every Kubernetes node has: host name, operating system, architecture.
    #[must_use]
    pub fn new(name: impl Into<String>) -> Self {
        let name = name.into();
        let arch = match std::env::consts::ARCH {
            "aarch64" => "arm64",
            "x86_64" => "amd64",
            other => other,
        };
        let labels = [
            ("kubernetes.io/hostname", name.as_str()),
            ("kubernetes.io/os", "linux"),
            ("kubernetes.io/arch", arch),
            ("beta.kubernetes.io/os", "linux"),
            ("beta.kubernetes.io/arch", arch),
        ];
        let labels = labels.map(|(k, v)| (k.to_owned(), v.to_owned())).into();
        Self { name, labels, allowed_unsafe_sysctls: Vec::new() }
    }

    /// What the name of a static pod ends with here.
    pub(crate) fn suffix(&self) -> String {
        format!("-{}", self.name.to_lowercase())
    }

    /// The name of a static pod of this node as its manifest has it.
    pub(crate) fn written_name<'n>(&self, name: &'n str) -> &'n str {
        name.strip_suffix(self.suffix().as_str()).unwrap_or(name)
    }

    pub(crate) fn allows_sysctl(&self, name: &str) -> bool {
        self.allowed_unsafe_sysctls.iter().any(|pattern| match pattern.strip_suffix('*') {
            Some(prefix) => name.starts_with(prefix),
            None => name == pattern,
        })
    }
}

/// What was read from a file.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Parsed {
    /// The pods without an error, in file order.
    pub pods: Vec<Pod>,
    /// Everything that is wrong or has no effect, in the order of the lines.
    pub problems: Vec<Problem>,
}

/// Reads a manifest file: defaulted and checked pods, and every problem of the file at once.
///
/// `file` is the path under which the file is watched: it goes into the pods' UIDs and into the problems. A document
/// is a v1.Pod, or a v1.List or v1.PodList of them; one that is wrong leaves the others alone.
#[must_use]
pub fn parse(bytes: &[u8], file: &str, node: &NodeIdentity) -> Parsed {
    let mut reader = Reader { file, node, parsed: Parsed::default(), names: HashSet::new() };
    for document in document::read(bytes) {
        reader.text(&document);
    }
    reader.parsed
}

struct Reader<'a> {
    file: &'a str,
    node: &'a NodeIdentity,
    parsed: Parsed,
    /// The pods of the file so far, by namespace and name.
    names: HashSet<String>,
}

impl Reader<'_> {
    fn text(&mut self, document: &Document) {
        let (pods, problems) = (self.parsed.pods.len(), self.parsed.problems.len());
        self.parsed.problems.extend(document.problems(self.file));
        let refused = self.parsed.problems.len() > problems;
        if let Ok(tree) = &document.tree {
            self.document(document.index, tree);
        }
        if refused {
            self.parsed.pods.truncate(pods);
        }
        by_line(self.parsed.problems.get_mut(problems..).unwrap_or_default());
    }

    fn document(&mut self, index: usize, tree: &Node) {
        let kind = tree.text_of("kind").unwrap_or("");
        if !matches!(kind, "List" | "PodList") {
            return self.object(index, tree, Path::root(), "");
        }
        let mut report = Report::new(self.file, index, tree, Path::root());
        let element = if kind == "PodList" { "Pod" } else { "" };
        let empty = Node { line: tree.line, data: Data::List(Vec::new()) };
        let items = tree.get("items").unwrap_or(&empty);
        schema::object(tree, support::LIST, &Path::root(), &mut report);
        self.parsed.problems.extend(report.into_problems());
        if let Data::List(items) = &items.data {
            for (i, item) in items.iter().enumerate() {
                self.object(index, item, Path::root().field("items").index(i), element);
            }
        }
    }

    /// Reads one pod. `implied`: the kind that it has when it does not say.
    fn object(&mut self, document: usize, tree: &Node, base: Path, implied: &str) {
        let mut report = Report::new(self.file, document, tree, base);
        let pod = self.pod(document, tree, implied, &mut report);
        let refused = report.refused();
        self.parsed.problems.extend(report.into_problems());
        if let Some(pod) = pod.filter(|_| !refused) {
            self.parsed.pods.push(pod);
        }
    }

    fn pod(&mut self, document: usize, tree: &Node, implied: &str, report: &mut Report<'_>) -> Option<Pod> {
        if !is_pod(tree, implied, report) {
            return None;
        }
        let mut value = schema::object(tree, support::POD, &Path::root(), report);
        value.insert("kind".to_owned(), "Pod".into());
        value.insert("apiVersion".to_owned(), "v1".into());
        report.seal();
        let mut typed: api::Pod = match serde_json::from_value(Value::Object(value)) {
            Ok(typed) => typed,
            Err(error) => {
                report.error(&Path::root(), format!("cannot be decoded: {error}"));
                return None;
            }
        };
        defaults::pod(&mut typed);
        let spec = typed.spec.take().unwrap_or_default();
        self.identify(&mut typed.metadata, tree, report);
        validate::pod(&typed.metadata, &spec, self.node, report);
        self.unique(&typed.metadata, report);
        typed.spec = Some(spec);
        let source = Source::File { path: self.file.to_owned(), document };
        self.finish(typed, source, report)
    }

    /// A static pod carries the name of its node, so that the same manifest on two nodes is two pods. Its UID follows
    /// from the document: one that is written there would let a file take another's pod over, and make of a change what
    /// the pod that runs cannot become.
    fn identify(&self, metadata: &mut ObjectMeta, tree: &Node, report: &mut Report<'_>) {
        if metadata.uid.as_ref().is_some_and(|uid| !uid.is_empty()) {
            let text = "is not the pod's UID, which follows from the whole document and this only with it";
            report.warning(&Path::root().field("metadata").field("uid"), text);
        }
        metadata.uid = Some(identity::static_uid(&self.node.name, self.file, tree));
        match &mut metadata.name {
            Some(name) if !name.is_empty() => name.push_str(&self.node.suffix()),
            _ => report.required(&Path::root().field("metadata").field("name"), ""),
        }
    }

    fn unique(&mut self, metadata: &ObjectMeta, report: &mut Report<'_>) {
        let Some(name) = metadata.name.as_deref() else { return };
        let namespace = metadata.namespace.as_deref().unwrap_or("");
        if !self.names.insert(format!("{namespace}/{name}")) {
            let written = self.node.written_name(name);
            report.duplicate(&Path::root().field("metadata").field("name"), format!("{namespace}/{written}"));
        }
    }

    /// What upstream's kubelet adds to a pod from a file (`pkg/kubelet/config/common.go`), and the typed pod.
    fn finish(&self, mut typed: api::Pod, source: Source, report: &mut Report<'_>) -> Option<Pod> {
        let uid = typed.metadata.uid.clone().unwrap_or_default();
        let annotations = typed.metadata.annotations.get_or_insert_default();
        annotations.insert("kubernetes.io/config.hash".to_owned(), uid.clone());
        annotations.insert("kubernetes.io/config.source".to_owned(), "file".to_owned());
        let spec = typed.spec.get_or_insert_default();
        spec.node_name = Some(self.node.name.clone());
        let tolerates_all =
            api::Toleration { operator: Some("Exists".into()), effect: Some("NoExecute".into()), ..Default::default() };
        let tolerations = spec.tolerations.get_or_insert_default();
        if !tolerations.contains(&tolerates_all) {
            tolerations.push(tolerates_all);
        }
        if report.refused() {
            return None;
        }
        let manifest = match serde_json::to_value(&typed) {
            Ok(manifest) => manifest,
            Err(error) => {
                report.error(&Path::root(), format!("cannot be written as JSON: {error}"));
                return None;
            }
        };
        Some(Pod {
            uid: PodUid::new(uid).ok()?,
            name: typed.metadata.name.unwrap_or_default(),
            namespace: typed.metadata.namespace.unwrap_or_default(),
            labels: typed.metadata.labels.unwrap_or_default(),
            annotations: typed.metadata.annotations.unwrap_or_default(),
            source,
            manifest: (&manifest).into(),
            spec: convert::pod_spec(&typed.spec.unwrap_or_default()),
        })
    }
}

/// Whether the document says that it is a v1.Pod.
fn is_pod(tree: &Node, implied: &str, report: &mut Report<'_>) -> bool {
    if !matches!(tree.data, Data::Map(_)) {
        let message = format!("Invalid value: {}: must be an object, a v1.Pod", tree.kind());
        report.error(&Path::root(), message);
        return false;
    }
    let wanted = [("apiVersion", "v1"), ("kind", "Pod")];
    for (field, expected) in wanted {
        let at = Path::root().field(field);
        match tree.get(field).map(|n| (&n.data, n.kind())) {
            None | Some((Data::Null, _)) if implied.is_empty() => report.required(&at, ""),
            None | Some((Data::Null, _)) => {}
            Some((Data::Text(text), _)) => report.one_of(&at, text, &[expected]),
            Some((_, kind)) => report.error(&at, format!("Invalid value: {kind}: must be a string")),
        }
    }
    !report.refused()
}
