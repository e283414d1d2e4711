//! What all files together want. A file that cannot be read any more goes on wanting what it wanted before: a parse
//! error never ends a running pod.

use crate::model::pod::Pod;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// What was read from one file.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct FilePods {
    /// The pods of the documents without errors.
    pub pods: Vec<Arc<Pod>>,
    /// That is not all: the file is refused, or one of its documents, or it could not be read yet.
    pub incomplete: bool,
}

/// What is wanted, by file and in lexical order of the files.
pub type Desired = BTreeMap<String, Vec<Arc<Pod>>>;

/// A pod that another file wants already under the same namespace and name.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("pod {namespace}/{name} is already defined in {first}")]
pub struct Clash {
    /// The file whose pod is refused.
    pub file: String,
    /// The file whose pod is taken.
    pub first: String,
    /// The pod's namespace.
    pub namespace: String,
    /// The pod's full name.
    pub name: String,
}

/// Puts together what the files want now. `files` holds every file that is there; one that is not is removed, and its
/// pods with it. Of an incomplete file those former pods stay that its good documents do not replace. Of pods with the same
/// namespace and name in several files that one's is taken which had the name before, so that a copy never takes a running
/// pod's place; where none had it, the first one's by lexical order, as upstream. The others are told.
#[must_use]
pub fn merge(previous: &Desired, files: &BTreeMap<String, FilePods>) -> (Desired, Vec<Clash>) {
    let wanted: Desired = files.iter().map(|(file, read)| (file.clone(), wanted(read, previous.get(file)))).collect();
    let before = holders(previous);
    let mut holders = holders(&wanted);
    for (file, pods) in &wanted {
        holders.extend(pods.iter().map(|pod| (key(pod), file)).filter(|(key, _)| before.get(key) == Some(&file)));
    }
    let mut desired = Desired::new();
    let mut clashes = Vec::new();
    for (file, pods) in &wanted {
        let kept = desired.entry(file.clone()).or_default();
        for pod in pods {
            match holders.get(&key(pod)) {
                Some(holder) if *holder != file => clashes.push(Clash {
                    file: file.clone(),
                    first: (*holder).clone(),
                    namespace: pod.namespace.clone(),
                    name: pod.name.clone(),
                }),
                _ => kept.push(Arc::clone(pod)),
            }
        }
    }
    (desired, clashes)
}

/// By what a pod is known: its namespace and name.
fn key(pod: &Pod) -> (&str, &str) {
    (&pod.namespace, &pod.name)
}

/// The first file that wants each pod.
fn holders(desired: &Desired) -> BTreeMap<(&str, &str), &String> {
    // A later entry of the same key replaces an earlier one: the last files first.
    let files = desired.iter().rev();
    files.flat_map(|(file, pods)| pods.iter().map(move |pod| (key(pod), file))).collect()
}

fn wanted(read: &FilePods, before: Option<&Vec<Arc<Pod>>>) -> Vec<Arc<Pod>> {
    let mut pods = read.pods.clone();
    if read.incomplete {
        let named: BTreeSet<_> = read.pods.iter().map(|pod| (&pod.namespace, &pod.name)).collect();
        let kept = before.into_iter().flatten().filter(|pod| !named.contains(&(&pod.namespace, &pod.name)));
        pods.extend(kept.cloned());
    }
    pods
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::PodUid;
    use crate::model::pod::{DnsConfig, DnsPolicy, PodSpec, Resources, RestartPolicy, Source};

    /// A pod given as `name:version`.
    fn pod(text: &str) -> Arc<Pod> {
        let (name, version) = text.split_once(':').unwrap();
        Arc::new(Pod {
            uid: PodUid::new(format!("{name}-{version}")).unwrap(),
            name: name.to_owned(),
            namespace: "default".to_owned(),
            labels: BTreeMap::new(),
            annotations: BTreeMap::new(),
            source: Source::File { path: String::new(), document: 0 },
            manifest: (&serde_json::Value::Null).into(),
            spec: PodSpec {
                init_containers: Vec::new(),
                containers: Vec::new(),
                volumes: Vec::new(),
                restart_policy: RestartPolicy::Always,
                termination_grace_secs: 30,
                host_network: false,
                hostname: None,
                subdomain: None,
                dns_policy: DnsPolicy::Default,
                dns: DnsConfig::default(),
                host_aliases: Vec::new(),
                fs_group: None,
                sysctls: BTreeMap::new(),
                priority_class_name: None,
                priority: 0,
                overhead: Resources::default(),
            },
        })
    }

    /// Files given as `file: pod pod` with a `!` behind a refused file's name.
    fn check(previous: &[&str], files: &[&str], expected: &[&str], expected_clashes: &[&str]) {
        let read = |lines: &[&str]| -> BTreeMap<String, FilePods> {
            let lines = lines.iter().map(|line| {
                let (file, pods) = line.split_once(' ').unwrap_or((line, ""));
                let incomplete = file.ends_with('!');
                let pods = pods.split_whitespace().map(pod).collect();
                (file.trim_end_matches('!').to_owned(), FilePods { pods, incomplete })
            });
            lines.collect()
        };
        let previous: Desired = read(previous).into_iter().map(|(file, read)| (file, read.pods)).collect();
        let (desired, clashes) = merge(&previous, &read(files));
        let show = |(file, pods): (&String, &Vec<Arc<Pod>>)| {
            pods.iter().fold(file.clone(), |line, pod| format!("{line} {}", pod.uid.as_str().replace('-', ":")))
        };
        assert_eq!(desired.iter().map(show).collect::<Vec<_>>(), expected);
        let clashes: Vec<String> = clashes.iter().map(|clash| format!("{}: {clash}", clash.file)).collect();
        assert_eq!(clashes, expected_clashes);
    }

    #[test]
    fn good_files_replace_and_missing_files_remove() {
        check(&[], &["a x:1", "b y:1 z:1"], &["a x:1", "b y:1 z:1"], &[]);
        check(&["a x:1", "b y:1"], &["a x:2"], &["a x:2"], &[]);
        check(&["a x:1"], &[], &[], &[]);
        check(&["a x:1"], &["a"], &["a"], &[]);
        check(&["a x:1"], &["b x:1"], &["b x:1"], &[]);
    }

    #[test]
    fn a_refused_file_keeps_its_pods() {
        check(&["a x:1", "b y:1"], &["a!", "b y:2"], &["a x:1", "b y:2"], &[]);
        check(&["a x:1 y:1"], &["a! x:2"], &["a x:2 y:1"], &[]);
        check(&[], &["a!", "b! y:1"], &["a", "b y:1"], &[]);
        // Renamed and broken at once: the new name wants nothing yet, the old one is gone.
        check(&["a x:1"], &["b!"], &["b"], &[]);
    }

    #[test]
    fn the_first_file_has_a_name_that_nobody_had() {
        let clash = "b: pod default/x is already defined in a";
        check(&[], &["a x:1", "b x:2 y:1"], &["a x:1", "b y:1"], &[clash]);
        check(&["c x:1"], &["a x:2", "b x:2"], &["a x:2", "b"], &[clash]);
        // What had it wants it no more.
        check(
            &["b x:1"],
            &["a x:2", "b y:1", "c x:3"],
            &["a x:2", "b y:1", "c"],
            &["c: pod default/x is already defined in a"],
        );
    }

    #[test]
    fn a_copy_does_not_take_a_running_pods_name() {
        let clash = "a: pod default/x is already defined in b";
        check(&["b x:1"], &["a x:2", "b x:1"], &["a", "b x:1"], &[clash]);
        // Edited at the same time, broken, or not read yet.
        check(&["b x:1"], &["a x:2", "b x:3"], &["a", "b x:3"], &[clash]);
        check(&["b x:1"], &["a x:2 y:1", "b!"], &["a y:1", "b x:1"], &[clash]);
        check(&["a x:1"], &["a!", "b x:2"], &["a x:1", "b"], &["b: pod default/x is already defined in a"]);
        // The copy stays refused at each further look, and has its turn when the other is gone.
        check(&["a", "b x:1"], &["a x:2", "b x:1"], &["a", "b x:1"], &[clash]);
        check(&["a", "b x:1"], &["a x:2"], &["a x:2"], &[]);
        // Two files exchange their pods.
        check(&["a x:1", "b y:1"], &["a y:2", "b x:2"], &["a y:2", "b x:2"], &[]);
    }
}
