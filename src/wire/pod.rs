//! A pod as the API shows it: the defaulted manifest and the status it has now.
//!
//! The shapes are those that upstream's kubelet answers on `/pods`: `state` and `lastState` are always there, `imageID`
//! is empty until it is known, `containerID` carries the runtime's name, `lastProbeTime` is null.

use crate::model::status::{Condition, ContainerStatus, PodStatus, State, Terminated};
use crate::model::view::PodView;
use crate::model::{ContainerId, WallTime};
use serde_json::{Map, Value, json};
use std::net::IpAddr;

/// The v1.Pod of a pod.
#[must_use]
pub fn to_json(view: &PodView) -> Value {
    let mut pod = view.pod.manifest.value();
    if let Some(start) = view.status.start_time {
        // Upstream stamps the moment at which the manifest was first seen. Here that moment is a fact of the status, so
        // that reading the same file again gives the same pod.
        if let Some(annotations) = pod.pointer_mut("/metadata/annotations").and_then(Value::as_object_mut) {
            annotations.insert("kubernetes.io/config.seen".to_owned(), start.rfc3339_nanos().into());
        }
    }
    let status = status_to_json(&view.status, pod.get("spec").unwrap_or(&Value::Null));
    if let Some(object) = pod.as_object_mut() {
        object.insert("status".to_owned(), status);
    }
    pod
}

/// A v1.PodList.
#[must_use]
pub fn list_to_json<'a>(views: impl IntoIterator<Item = &'a PodView>) -> Value {
    let items: Vec<Value> = views.into_iter().map(to_json).collect();
    json!({"kind": "PodList", "apiVersion": "v1", "metadata": {}, "items": items})
}

/// The v1.PodStatus of a pod whose `spec` is the manifest's.
#[must_use]
pub fn status_to_json(status: &PodStatus, spec: &Value) -> Value {
    let mut out = Object::default();
    out.set("phase", format!("{:?}", status.phase));
    out.set("conditions", status.conditions.iter().map(condition).collect::<Vec<_>>());
    out.maybe("message", status.message.clone());
    out.maybe("reason", status.reason.clone());
    out.addresses("hostIP", "hostIPs", &status.host_ips);
    out.addresses("podIP", "podIPs", &status.pod_ips);
    out.maybe("startTime", status.start_time.map(WallTime::rfc3339));
    let lists = [
        ("initContainerStatuses", "initContainers", &status.init_containers),
        ("containerStatuses", "containers", &status.containers),
    ];
    for (name, spec_name, list) in lists {
        if !list.is_empty() {
            let specs = spec.get(spec_name).and_then(Value::as_array).map_or(&[][..], Vec::as_slice);
            let of =
                |c: &ContainerStatus| specs.iter().find(|s| s.get("name").and_then(Value::as_str) == Some(&c.name));
            out.set(name, list.iter().map(|c| container(c, of(c))).collect::<Vec<_>>());
        }
    }
    out.set("qosClass", format!("{:?}", status.qos_class));
    Value::Object(out.0)
}

/// A JSON object that leaves out what is absent.
#[derive(Default)]
struct Object(Map<String, Value>);

impl Object {
    fn set(&mut self, name: &str, value: impl Into<Value>) {
        self.0.insert(name.to_owned(), value.into());
    }

    fn maybe(&mut self, name: &str, value: Option<impl Into<Value>>) {
        if let Some(value) = value {
            self.set(name, value);
        }
    }

    fn addresses(&mut self, one: &str, all: &str, addresses: &[IpAddr]) {
        if let Some(first) = addresses.first() {
            self.set(one, first.to_string());
            self.set(all, addresses.iter().map(|ip| json!({"ip": ip.to_string()})).collect::<Vec<_>>());
        }
    }
}

fn condition(condition: &Condition) -> Value {
    let mut out = Object::default();
    out.set("type", condition.kind.clone());
    out.set("status", if condition.status { "True" } else { "False" });
    out.set("lastProbeTime", Value::Null);
    out.set("lastTransitionTime", condition.last_transition.rfc3339());
    out.maybe("reason", condition.reason.clone());
    out.maybe("message", condition.message.clone());
    Value::Object(out.0)
}

fn container(container: &ContainerStatus, spec: Option<&Value>) -> Value {
    let mut out = Object::default();
    out.set("name", container.name.clone());
    out.set("state", state(&container.state));
    let last = container.last_state.as_ref().map(|t| json!({"terminated": terminated(t)}));
    out.set("lastState", last.unwrap_or_else(|| json!({})));
    out.set("ready", container.ready);
    out.set("restartCount", container.restart_count);
    out.set("image", container.image.clone());
    out.set("imageID", container.image_id.clone());
    out.maybe("containerID", container.container_id.as_ref().map(container_id));
    out.set("started", container.started);
    // What the container was given is known once there is one.
    if let Some(spec) = spec.filter(|_| container.container_id.is_some()) {
        let resources = spec.get("resources").cloned().unwrap_or_else(|| json!({}));
        out.maybe("allocatedResources", resources.get("requests").cloned());
        out.set("resources", resources);
        let mounts = spec.get("volumeMounts").and_then(Value::as_array);
        out.maybe("volumeMounts", mounts.map(|m| m.iter().map(volume_mount).collect::<Vec<_>>()));
    }
    Value::Object(out.0)
}

fn volume_mount(mount: &Value) -> Value {
    let mut out = Object::default();
    for name in ["name", "mountPath", "readOnly"] {
        out.maybe(name, mount.get(name).cloned());
    }
    Value::Object(out.0)
}

fn state(state: &State) -> Value {
    match state {
        State::Waiting { reason, message } => {
            let mut out = Object::default();
            out.set("reason", reason.clone());
            out.maybe("message", message.clone());
            json!({"waiting": out.0})
        }
        State::Running { started_at } => json!({"running": {"startedAt": started_at.rfc3339()}}),
        State::Terminated(end) => json!({"terminated": terminated(end)}),
    }
}

fn terminated(end: &Terminated) -> Value {
    let mut out = Object::default();
    out.set("exitCode", end.exit_code);
    out.maybe("signal", end.signal);
    out.set("reason", end.reason.clone());
    out.maybe("message", end.message.clone());
    out.set("startedAt", end.started_at.rfc3339());
    out.set("finishedAt", end.finished_at.rfc3339());
    out.maybe("containerID", end.container_id.as_ref().map(container_id));
    Value::Object(out.0)
}

/// A container's id as the API writes it: the runtime's name, then the id.
#[must_use]
pub fn container_id(id: &ContainerId) -> String {
    format!("armlet://{id}")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::status::{Phase, QosClass};
    use crate::wire::NodeIdentity;
    use std::sync::Arc;

    const MANIFEST: &str = "apiVersion: v1\nkind: Pod\nmetadata: {name: web}\nspec:\n  containers:\n  - name: app\n    \
        image: app:1\n    resources: {limits: {cpu: 100m}}\n    volumeMounts: [{name: d, mountPath: /d, readOnly: true}]\n  \
        initContainers: [{name: prepare, image: app:1}]\n  volumes: [{name: d}]\n";

    fn at(secs: i64) -> WallTime {
        WallTime(secs * 1_000_000_000 + 5)
    }

    fn view() -> PodView {
        let parsed = crate::wire::parse(MANIFEST.as_bytes(), "/m/web.yaml", &NodeIdentity::new("edge1"));
        assert_eq!(parsed.problems, []);
        let id = |c: &str| ContainerId::new(c.repeat(32)).ok();
        let ended = |id| Terminated {
            exit_code: 137,
            signal: Some(9),
            reason: "OOMKilled".into(),
            message: Some("last words".into()),
            started_at: at(1),
            finished_at: at(2),
            container_id: id,
        };
        let container = |name: &str, state, last_state, container_id| ContainerStatus {
            name: name.into(),
            state,
            last_state,
            ready: true,
            started: true,
            restart_count: 2,
            image: "app:1".into(),
            image_id: "sha256:00".into(),
            container_id,
        };
        let waiting = State::Waiting { reason: "PodInitializing".into(), message: None };
        let status = PodStatus {
            phase: Phase::Running,
            reason: None,
            message: None,
            conditions: vec![Condition {
                kind: "Ready".into(),
                status: false,
                reason: Some("ContainersNotReady".into()),
                message: None,
                last_transition: at(3),
            }],
            pod_ips: vec!["10.88.0.2".parse().expect("address")],
            host_ips: Vec::new(),
            start_time: Some(at(0)),
            qos_class: QosClass::Burstable,
            init_containers: vec![container("prepare", waiting, None, None)],
            containers: vec![container("app", State::Running { started_at: at(3) }, Some(ended(id("a"))), id("b"))],
            terminating: false,
        };
        let pod = parsed.pods.into_iter().next().map(Arc::new).expect("a pod");
        PodView { pod, status, attempts: Vec::new() }
    }

    #[test]
    fn status_has_the_shape_that_clients_know() {
        let pod = to_json(&view());
        assert_eq!(pod["metadata"]["annotations"]["kubernetes.io/config.seen"], "1970-01-01T00:00:00.000000005Z");
        let expect = json!({
            "phase": "Running",
            "conditions": [{"type": "Ready", "status": "False", "lastProbeTime": null,
                "lastTransitionTime": "1970-01-01T00:00:03Z", "reason": "ContainersNotReady"}],
            "podIP": "10.88.0.2", "podIPs": [{"ip": "10.88.0.2"}],
            "startTime": "1970-01-01T00:00:00Z", "qosClass": "Burstable",
            "initContainerStatuses": [{"name": "prepare", "state": {"waiting": {"reason": "PodInitializing"}},
                "lastState": {}, "ready": true, "restartCount": 2, "image": "app:1", "imageID": "sha256:00",
                "started": true}],
            "containerStatuses": [{"name": "app", "state": {"running": {"startedAt": "1970-01-01T00:00:03Z"}},
                "lastState": {"terminated": {"exitCode": 137, "signal": 9, "reason": "OOMKilled",
                    "message": "last words", "startedAt": "1970-01-01T00:00:01Z",
                    "finishedAt": "1970-01-01T00:00:02Z", "containerID": format!("armlet://{}", "a".repeat(32))}},
                "ready": true, "restartCount": 2, "image": "app:1", "imageID": "sha256:00",
                "containerID": format!("armlet://{}", "b".repeat(32)), "started": true,
                "allocatedResources": {"cpu": "100m"},
                "resources": {"limits": {"cpu": "100m"}, "requests": {"cpu": "100m"}},
                "volumeMounts": [{"name": "d", "mountPath": "/d", "readOnly": true}]}]});
        assert_eq!(pod["status"], expect);
    }

    #[test]
    fn a_list_decodes_as_the_v1_type() {
        let list = list_to_json([&view()]);
        let typed: k8s_openapi::List<k8s_openapi::api::core::v1::Pod> = serde_json::from_value(list).expect("decodes");
        let status = typed.items[0].status.as_ref().expect("status");
        assert_eq!(status.container_statuses.as_ref().map(Vec::len), Some(1));
    }
}
