//! Names as people type them, to pods and containers. Pure.

use super::pods::{Container, Pod};

/// Names a pod's default container, as kubectl does.
const DEFAULT_CONTAINER: &str = "kubectl.kubernetes.io/default-container";

/// Why a name leads nowhere. Each says what to type instead.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(super) enum LookupError {
    /// No such pod.
    #[error("there is no pod {name:?}{}", place(namespace.as_deref()))]
    NoPod {
        name: String,
        namespace: Option<String>,
        /// Names that look like it; where none does, all.
        near: Vec<String>,
    },
    /// Its namespace is given twice, and not the same.
    #[error("{text:?} names a pod of another namespace than {namespace:?}")]
    Namespaces { text: String, namespace: String },
    /// More than one.
    #[error("there is more than one pod {name:?}")]
    Ambiguous { name: String, candidates: Vec<String> },
    /// The pod has no such container.
    #[error("pod {pod:?} has no container {name:?}")]
    NoContainer { pod: String, name: String, containers: Vec<String> },
}

impl LookupError {
    /// What to do next.
    pub(super) fn hint(&self) -> String {
        match self {
            Self::NoPod { near, .. } if near.is_empty() => {
                "`armlet ps` lists the pods of this node, `armlet inspect` the manifests that cannot be run".to_owned()
            }
            Self::NoPod { near, .. } => format!("did you mean {}?", near.join(" or ")),
            Self::Namespaces { .. } => "give the namespace once: NAMESPACE/NAME, or NAME with -n".to_owned(),
            Self::Ambiguous { candidates, .. } => format!("name one of them: {}", candidates.join(", ")),
            Self::NoContainer { containers, .. } => format!("it has: {}", containers.join(", ")),
        }
    }
}

fn place(namespace: Option<&str>) -> String {
    namespace.map(|ns| format!(" in namespace {ns:?}")).unwrap_or_default()
}

/// Finds the pod that `text` names: `NAME` or `NAMESPACE/NAME`, with or without the node's name at its end.
pub(super) fn pod<'a>(pods: &'a [Pod], text: &str, namespace: Option<&str>) -> Result<&'a Pod, LookupError> {
    let (namespace, name) = match text.split_once('/') {
        Some((ns, _)) if namespace.is_some_and(|other| other != ns) => {
            let namespace = namespace.unwrap_or_default().to_owned();
            return Err(LookupError::Namespaces { text: text.to_owned(), namespace });
        }
        Some((ns, name)) => (Some(ns), name),
        None => (namespace, text),
    };
    let here: Vec<&Pod> = pods.iter().filter(|pod| namespace.is_none_or(|ns| pod.metadata.namespace == ns)).collect();
    let mut found: Vec<&Pod> = here.iter().copied().filter(|pod| pod.metadata.name == name).collect();
    if found.is_empty() {
        found = here.iter().copied().filter(|pod| plain_name(pod) == name).collect();
    }
    // While a pod is being replaced, two have one name: the one that stays is meant.
    if found.len() > 1 && found.iter().any(|pod| !pod.is_terminating()) {
        found.retain(|pod| !pod.is_terminating());
    }
    match found.as_slice() {
        [one] => Ok(one),
        [] => {
            let near = near(&here, pods, name);
            Err(LookupError::NoPod { name: name.to_owned(), namespace: namespace.map(str::to_owned), near })
        }
        [first, rest @ ..] if rest.iter().all(|pod| pod.full_name() == first.full_name()) => Ok(first),
        several => {
            let candidates = several.iter().map(|pod| pod.full_name()).collect();
            Err(LookupError::Ambiguous { name: name.to_owned(), candidates })
        }
    }
}

/// The name without the node's at its end: what the manifest says.
pub(super) fn plain_name(pod: &Pod) -> &str {
    let name = pod.metadata.name.as_str();
    name.strip_suffix(pod.spec.node_name.as_str()).and_then(|rest| rest.strip_suffix('-')).unwrap_or(name)
}

/// At most three names that `name` may have been meant for: those of the namespace first.
fn near(here: &[&Pod], all: &[Pod], name: &str) -> Vec<String> {
    let score = |pod: &Pod| {
        let plain = plain_name(pod);
        let distance = distance(plain, name).min(distance(&pod.metadata.name, name));
        let within = !name.is_empty() && (plain.contains(name) || (!plain.is_empty() && name.contains(plain)));
        (within || distance <= 1 + name.chars().count() / 4).then_some(distance)
    };
    let rank = |pods: &mut dyn Iterator<Item = &Pod>| {
        let mut ranked: Vec<(usize, String)> = pods.filter_map(|pod| Some((score(pod)?, pod.full_name()))).collect();
        ranked.sort_unstable();
        ranked.into_iter().take(3).map(|(_, name)| name).collect::<Vec<_>>()
    };
    let in_namespace = rank(&mut here.iter().copied());
    if in_namespace.is_empty() { rank(&mut all.iter()) } else { in_namespace }
}

/// How many characters have to be changed, put in or taken out to make `a` of `b` (Levenshtein).
fn distance(a: &str, b: &str) -> usize {
    let b: Vec<char> = b.chars().collect();
    let mut row: Vec<usize> = (0..=b.len()).collect();
    for (i, x) in a.chars().enumerate() {
        let mut before = i;
        let mut left = i + 1;
        for (cell, y) in row.iter_mut().skip(1).zip(&b) {
            let best = (before + usize::from(x != *y)).min(left + 1).min(*cell + 1);
            before = std::mem::replace(cell, best);
            left = best;
        }
        row[0] = i + 1;
    }
    row.last().copied().unwrap_or(0)
}

/// The container that is meant, and the others where the choice was ours.
pub(super) fn container<'a>(
    pod: &'a Pod,
    name: Option<&str>,
) -> Result<(&'a Container, Option<Vec<&'a str>>), LookupError> {
    let find = |name: &str| pod.all_containers().find(|c| c.name == name);
    let unknown = |name: &str| LookupError::NoContainer {
        pod: pod.full_name(),
        name: name.to_owned(),
        containers: pod.all_containers().map(|c| c.name.clone()).collect(),
    };
    if let Some(name) = name {
        return find(name).map(|c| (c, None)).ok_or_else(|| unknown(name));
    }
    let marked = pod.metadata.annotations.get(DEFAULT_CONTAINER).and_then(|name| find(name));
    if let Some(marked) = marked {
        return Ok((marked, None));
    }
    let first = pod.spec.containers.first().ok_or_else(|| unknown(""))?;
    let all: Vec<&str> = pod.spec.containers.iter().chain(&pod.spec.init_containers).map(|c| c.name.as_str()).collect();
    Ok((first, (all.len() > 1).then_some(all)))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pods(names: &[(&str, &str)]) -> Vec<Pod> {
        let pod = |(ns, name): &(&str, &str)| {
            serde_json::from_value(serde_json::json!({
                "metadata": {"namespace": ns, "name": name},
                "spec": {
                    "nodeName": "edge1",
                    "containers": [{"name": "main"}, {"name": "helper"}],
                    "initContainers": [{"name": "setup"}],
                },
            }))
            .unwrap()
        };
        names.iter().map(pod).collect()
    }

    #[test]
    fn pods_are_found_by_all_their_names() {
        let pods =
            pods(&[("shop", "web-edge1"), ("shop", "store-edge1"), ("default", "store-edge1"), ("default", "x")]);
        for (text, ns, want) in [
            ("web-edge1", None, "shop/web-edge1"),
            ("web", None, "shop/web-edge1"),
            ("shop/web", None, "shop/web-edge1"),
            ("shop/web", Some("shop"), "shop/web-edge1"),
            ("store", Some("default"), "default/store-edge1"),
            ("shop/store-edge1", None, "shop/store-edge1"),
            ("x", None, "default/x"),
        ] {
            assert_eq!(pod(&pods, text, ns).map(Pod::full_name), Ok(want.to_owned()), "{text} {ns:?}");
        }
    }

    #[test]
    fn two_namespaces_are_one_too_many() {
        let pods = pods(&[("shop", "web-edge1"), ("default", "web-edge1")]);
        let error = pod(&pods, "shop/web", Some("default")).unwrap_err();
        assert_eq!(error.to_string(), "\"shop/web\" names a pod of another namespace than \"default\"");
    }

    #[test]
    fn a_wrong_name_is_answered_with_near_ones() {
        let pods = pods(&[("shop", "web-edge1"), ("shop", "store-edge1"), ("default", "store-edge1")]);
        let hint = |text: &str, ns| pod(&pods, text, ns).unwrap_err().hint();
        assert_eq!(
            hint("wbe", None),
            "`armlet ps` lists the pods of this node, `armlet inspect` the manifests that cannot be run"
        );
        assert_eq!(hint("weba", None), "did you mean shop/web-edge1?");
        assert_eq!(hint("web", Some("default")), "did you mean shop/web-edge1?");
        assert_eq!(hint("shop/stor", None), "did you mean shop/store-edge1?");
        assert_eq!(hint("store", None), "name one of them: shop/store-edge1, default/store-edge1");
        assert_eq!(
            hint("", None),
            "`armlet ps` lists the pods of this node, `armlet inspect` the manifests that cannot be run"
        );
        let error = pod(&pods, "none", Some("kube-system")).unwrap_err();
        assert_eq!(error.to_string(), "there is no pod \"none\" in namespace \"kube-system\"");
    }

    #[test]
    fn a_pod_in_replacement_is_the_one_that_stays() {
        let mut pods = pods(&[("shop", "web-edge1"), ("shop", "web-edge1")]);
        pods[0].metadata.deletion_timestamp = Some("2026-01-01T00:00:00Z".to_owned());
        pods[1].metadata.uid = "new".to_owned();
        assert_eq!(pod(&pods, "web", None).unwrap().metadata.uid, "new");
    }

    #[test]
    fn containers_are_found() {
        let mut pods = pods(&[("shop", "web-edge1")]);
        let name = |pod: &Pod, name| container(pod, name).map(|(c, others)| (c.name.clone(), others.map(|o| o.len())));
        assert_eq!(name(&pods[0], None), Ok(("main".to_owned(), Some(3))));
        assert_eq!(name(&pods[0], Some("setup")), Ok(("setup".to_owned(), None)));
        let error = name(&pods[0], Some("nope")).unwrap_err();
        assert_eq!(error.to_string(), "pod \"shop/web-edge1\" has no container \"nope\"");
        assert_eq!(error.hint(), "it has: setup, main, helper");
        pods[0].metadata.annotations.insert(DEFAULT_CONTAINER.to_owned(), "helper".to_owned());
        assert_eq!(name(&pods[0], None), Ok(("helper".to_owned(), None)));
    }

    #[test]
    fn distance_counts_changes() {
        for (a, b, n) in [
            ("", "", 0),
            ("web", "web", 0),
            ("web", "wab", 1),
            ("web", "webs", 1),
            ("kitten", "sitting", 3),
            ("", "abc", 3),
        ] {
            assert_eq!(distance(a, b), n, "{a} {b}");
            assert_eq!(distance(b, a), n, "{b} {a}");
        }
    }
}
