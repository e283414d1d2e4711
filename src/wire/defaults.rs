//! What the API server would fill in: the defaults of `pkg/apis/core/v1/defaults.go` (v1.36).
//!
//! For a pod from the API the server has done this; for one from a file it is done here. Values that admission plugins
//! add (priorities, service account tokens, default tolerations) are not defaults and are not added.

use k8s_openapi::api::core::v1::{
    Container, EmptyDirVolumeSource, HostPathVolumeSource, Pod, PodSecurityContext, PodSpec, Probe, Volume,
};
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;

/// Fills in a pod's defaults.
pub(crate) fn pod(pod: &mut Pod) {
    let namespace = &mut pod.metadata.namespace;
    if namespace.as_deref().unwrap_or("").is_empty() {
        *namespace = Some("default".to_owned());
    }
    spec(pod.spec.get_or_insert_default());
}

fn spec(spec: &mut PodSpec) {
    text(&mut spec.restart_policy, "Always");
    text(&mut spec.dns_policy, "ClusterFirst");
    text(&mut spec.scheduler_name, "default-scheduler");
    spec.termination_grace_period_seconds.get_or_insert(30);
    spec.enable_service_links.get_or_insert(true);
    spec.security_context.get_or_insert_with(PodSecurityContext::default);
    let host_network = spec.host_network == Some(true);
    let containers = spec.init_containers.iter_mut().flatten().chain(&mut spec.containers);
    for one in containers {
        container(one, host_network);
    }
    spec.volumes.iter_mut().flatten().for_each(volume);
}

fn container(container: &mut Container, host_network: bool) {
    let image = container.image.as_deref().unwrap_or("");
    let pull_policy = if tag_is_latest(image) { "Always" } else { "IfNotPresent" };
    text(&mut container.image_pull_policy, pull_policy);
    text(&mut container.termination_message_path, "/dev/termination-log");
    text(&mut container.termination_message_policy, "File");
    let resources = container.resources.get_or_insert_default();
    if let Some(limits) = &resources.limits {
        let requests = resources.requests.get_or_insert_default();
        for (name, limit) in limits {
            requests.entry(name.clone()).or_insert_with(|| Quantity(limit.0.clone()));
        }
    }
    for port in container.ports.iter_mut().flatten() {
        text(&mut port.protocol, "TCP");
        if host_network && port.host_port.unwrap_or(0) == 0 {
            port.host_port = Some(port.container_port);
        }
    }
    let probes = [&mut container.liveness_probe, &mut container.readiness_probe, &mut container.startup_probe];
    probes.into_iter().flatten().for_each(probe);
}

fn probe(probe: &mut Probe) {
    // A zero is what Go's types cannot tell from nothing.
    number(&mut probe.timeout_seconds, 1);
    number(&mut probe.period_seconds, 10);
    number(&mut probe.success_threshold, 1);
    number(&mut probe.failure_threshold, 3);
    if let Some(get) = &mut probe.http_get {
        text(&mut get.path, "/");
        text(&mut get.scheme, "HTTP");
    }
}

fn volume(volume: &mut Volume) {
    match &mut volume.host_path {
        Some(HostPathVolumeSource { type_, .. }) => {
            type_.get_or_insert_default();
        }
        None => {
            volume.empty_dir.get_or_insert_with(EmptyDirVolumeSource::default);
        }
    }
}

fn text(field: &mut Option<String>, default: &str) {
    if field.as_deref().unwrap_or("").is_empty() {
        *field = Some(default.to_owned());
    }
}

fn number(field: &mut Option<i32>, default: i32) {
    if field.unwrap_or(0) == 0 {
        *field = Some(default);
    }
}

/// Whether an image reference means the tag `latest`: it says so, or it has neither tag nor digest.
fn tag_is_latest(image: &str) -> bool {
    let (name, digest) = match image.split_once('@') {
        Some((name, _)) => (name, true),
        None => (image, false),
    };
    // A colon before the last slash belongs to the registry's port.
    let last = name.rsplit('/').next().unwrap_or(name);
    match last.split_once(':') {
        Some((_, tag)) => tag == "latest",
        None => !digest,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    fn defaulted(spec: Value) -> Value {
        let mut value: Pod =
            serde_json::from_value(json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p"}, "spec": spec}))
                .expect("decodes");
        pod(&mut value);
        serde_json::to_value(value).expect("serializes")["spec"].clone()
    }

    #[test]
    fn a_bare_pod_gets_every_default() {
        let spec = defaulted(json!({"containers": [{"name": "c", "image": "i:1"}]}));
        let expect = json!({
            "containers": [{"name": "c", "image": "i:1", "imagePullPolicy": "IfNotPresent", "resources": {},
                "terminationMessagePath": "/dev/termination-log", "terminationMessagePolicy": "File"}],
            "restartPolicy": "Always", "dnsPolicy": "ClusterFirst", "schedulerName": "default-scheduler",
            "terminationGracePeriodSeconds": 30, "enableServiceLinks": true, "securityContext": {}});
        assert_eq!(spec, expect);
    }

    #[test]
    fn what_is_given_stays() {
        let given = json!({
            "containers": [{"name": "c", "image": "i", "imagePullPolicy": "Never", "resources": {},
                "terminationMessagePath": "/x", "terminationMessagePolicy": "FallbackToLogsOnError",
                "ports": [{"containerPort": 1, "protocol": "UDP"}],
                "livenessProbe": {"httpGet": {"path": "/h", "port": 1, "scheme": "HTTPS"}, "timeoutSeconds": 2,
                    "periodSeconds": 3, "successThreshold": 4, "failureThreshold": 5}}],
            "volumes": [{"name": "v", "hostPath": {"path": "/x", "type": "Directory"}}],
            "restartPolicy": "Never", "dnsPolicy": "Default", "schedulerName": "s",
            "terminationGracePeriodSeconds": 0, "enableServiceLinks": false, "securityContext": {"fsGroup": 1}});
        assert_eq!(defaulted(given.clone()), given);
    }

    #[test]
    fn containers_and_init_containers_alike() {
        let one = json!({"name": "c", "image": "i", "ports": [{"containerPort": 80}],
            "resources": {"limits": {"cpu": "1", "memory": "1Gi"}, "requests": {"cpu": "500m"}},
            "readinessProbe": {"httpGet": {"port": "web"}, "timeoutSeconds": 0}});
        let spec = defaulted(json!({"hostNetwork": true, "containers": [one], "initContainers": [one]}));
        for list in ["containers", "initContainers"] {
            let c = &spec[list][0];
            assert_eq!(c["imagePullPolicy"], "Always");
            assert_eq!(c["resources"]["requests"], json!({"cpu": "500m", "memory": "1Gi"}));
            assert_eq!(c["ports"], json!([{"containerPort": 80, "hostPort": 80, "protocol": "TCP"}]));
            let expect = json!({"httpGet": {"path": "/", "port": "web", "scheme": "HTTP"}, "timeoutSeconds": 1,
                "periodSeconds": 10, "successThreshold": 1, "failureThreshold": 3});
            assert_eq!(c["readinessProbe"], expect);
        }
    }

    #[test]
    fn a_volume_without_a_source_is_an_empty_dir() {
        let spec =
            defaulted(json!({"containers": [], "volumes": [{"name": "a"}, {"name": "b", "hostPath": {"path": "/"}}]}));
        let expect = json!([{"name": "a", "emptyDir": {}}, {"name": "b", "hostPath": {"path": "/", "type": ""}}]);
        assert_eq!(spec["volumes"], expect);
    }

    #[test]
    fn the_tag_decides_the_pull_policy() {
        let table = [
            ("a", true),
            ("a:latest", true),
            ("r:5000/a", true),
            ("r:5000/a/b:latest", true),
            ("a:1", false),
            ("r:5000/a:1", false),
            ("a@sha256:00", false),
            ("a:1@sha256:00", false),
            ("a:latest@sha256:00", true),
            ("", true),
        ];
        for (image, latest) in table {
            assert_eq!(tag_is_latest(image), latest, "{image}");
        }
    }
}
