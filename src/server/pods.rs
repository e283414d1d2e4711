//! `GET /pods`: the pods of this node as a v1.PodList.

use super::reply::{self, Body};
use crate::model::api;
use crate::model::view::{NodeView, PodView};
use crate::wire;
use hyper::Response;
use serde_json::{Value, json};

/// All pods.
pub(super) fn list(view: &NodeView) -> Response<Body> {
    let items: Vec<Value> = view.pods.iter().map(|pod| to_json(pod)).collect();
    reply::json(&json!({"kind": "PodList", "apiVersion": "v1", "metadata": {}, "items": items}))
}

/// The v1.Pod of a pod. One that is being stopped says so in an annotation: a static pod has no deletion time.
pub(super) fn to_json(view: &PodView) -> Value {
    let mut pod = wire::pod::to_json(view);
    if view.status.terminating
        && let Some(metadata) = pod.get_mut("metadata").and_then(Value::as_object_mut)
        && let Some(annotations) = metadata.entry("annotations").or_insert_with(|| json!({})).as_object_mut()
    {
        annotations.insert(api::TERMINATING.to_owned(), "true".into());
    }
    pod
}

/// The pod of a name; with `uid` only that very one.
pub(super) fn find<'a>(view: &'a NodeView, namespace: &str, name: &str, uid: Option<&str>) -> Option<&'a PodView> {
    let fits = |pod: &PodView| {
        pod.pod.namespace == namespace && pod.pod.name == name && uid.is_none_or(|uid| pod.pod.uid.as_str() == uid)
    };
    // While a pod is being replaced, two have one name: the one that stays is meant.
    let mut named = view.pods.iter().map(AsRef::as_ref).filter(|pod| fits(pod));
    let first = named.next()?;
    if first.status.terminating { named.find(|pod| !pod.status.terminating).or(Some(first)) } else { Some(first) }
}

/// Whether the pod's spec has the container, init containers included.
pub(super) fn has_container(pod: &PodView, container: &str) -> bool {
    let spec = &pod.pod.spec;
    spec.init_containers.iter().chain(&spec.containers).any(|c| c.name == container)
}
