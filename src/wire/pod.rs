//! A pod as the API shows it: the defaulted manifest and the status.

use crate::model::view::PodView;
use serde_json::Value;

/// The v1.Pod of a pod: its defaulted manifest with the status that it has now.
#[must_use]
pub fn to_json(view: &PodView) -> Value {
    view.pod.manifest.clone()
}

/// A v1.PodList.
#[must_use]
pub fn list_to_json<'a>(views: impl IntoIterator<Item = &'a PodView>) -> Value {
    let items: Vec<Value> = views.into_iter().map(to_json).collect();
    serde_json::json!({"kind": "PodList", "apiVersion": "v1", "metadata": {}, "items": items})
}
