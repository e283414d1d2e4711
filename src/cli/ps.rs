//! `armlet ps`.

use super::age;
use super::args::{ListFormat, Ps};
use super::client::Client;
use super::error::CliError;
use super::output::Out;
use super::pods::{Container, Pod, PodList};
use super::status::{self, Summary};
use super::table::{Cell, Table};
use crate::model::{WallTime, api};
use serde::Deserialize;
use serde_json::Value;

/// Runs the command.
pub(super) async fn run(args: &Ps, mut client: Client, out: &mut Out) -> Result<(), CliError> {
    let mut answer = client.get::<Value>("/pods").await?;
    if let (Some(namespace), Some(Value::Array(items))) = (&args.namespace, answer.value.get_mut("items")) {
        items.retain(|pod| pod.pointer("/metadata/namespace").and_then(Value::as_str) == Some(namespace));
    }
    match args.output {
        Some(ListFormat::Json) => return out.json(&answer.value),
        Some(ListFormat::Yaml) => return out.yaml(&answer.value),
        Some(ListFormat::Wide) | None => {}
    }
    let list =
        PodList::deserialize(&answer.value).map_err(|source| CliError::Decode { path: "/pods".to_owned(), source })?;
    let wide = args.output.is_some();
    let node = client.get::<api::NodeReport>("/armlet/v1/inspect").await?.value;
    if list.items.is_empty() {
        out.remark(&match &args.namespace {
            Some(namespace) => format!("No pods in namespace {namespace:?}."),
            None => format!("No pods. Manifests are read from {}.", node.static_pod_path),
        });
    } else if args.containers {
        out.table(&containers(&list.items, answer.at, wide))?;
    } else {
        out.table(&pods(&list.items, answer.at, wide))?;
    }
    for condition in &node.conditions {
        out.remark(&format!("Node: {}: {}", condition.kind, condition.message));
    }
    for stopped in &node.stopped {
        out.remark(&format!("Stopped: {stopped}. `armlet restart {stopped}` starts it."));
    }
    if !node.refused.is_empty() {
        out.remark(&format!("Manifests that cannot be run: {}. `armlet inspect` says why.", node.refused.len()));
    }
    Ok(())
}

fn pods(pods: &[Pod], now: WallTime, wide: bool) -> Table {
    let mut table = if wide {
        Table::new(["NAMESPACE", "NAME", "READY", "STATUS", "RESTARTS", "AGE", "IP", "NODE", "UID"])
    } else {
        Table::new(["NAMESPACE", "NAME", "READY", "STATUS", "RESTARTS", "AGE"])
    };
    for pod in pods {
        let Summary { ready, word, restarts, tone } = status::summary(pod, now);
        let mut row: Vec<Cell> = vec![
            pod.metadata.namespace.as_str().into(),
            pod.metadata.name.as_str().into(),
            ready.into(),
            Cell::toned(word, tone),
            restarts.into(),
            age::since(pod.created(), now).into(),
        ];
        if wide {
            row.push(pod.status.pod_ip.clone().unwrap_or_default().into());
            row.push(pod.spec.node_name.as_str().into());
            row.push(pod.metadata.uid.as_str().into());
        }
        table.row(row);
    }
    table
}

fn containers(pods: &[Pod], now: WallTime, wide: bool) -> Table {
    let mut table = if wide {
        Table::new(["NAMESPACE", "POD", "CONTAINER", "KIND", "READY", "STATE", "RESTARTS", "AGE", "IMAGE", "ID"])
    } else {
        Table::new(["NAMESPACE", "POD", "CONTAINER", "KIND", "READY", "STATE", "RESTARTS", "AGE", "IMAGE"])
    };
    for pod in pods {
        let init = pod.spec.init_containers.iter().map(|c| (c, if c.is_sidecar() { "sidecar" } else { "init" }));
        for (spec, kind) in init.chain(pod.spec.containers.iter().map(|c| (c, "app"))) {
            table.row(container(pod, spec, kind, now, wide));
        }
    }
    table
}

fn container(pod: &Pod, spec: &Container, kind: &str, now: WallTime, wide: bool) -> Vec<Cell> {
    let status = pod.status_of(&spec.name);
    let (word, tone) = status::container(status);
    let running = status.and_then(|s| s.state.running.as_ref());
    let mut row: Vec<Cell> = vec![
        pod.metadata.namespace.as_str().into(),
        pod.metadata.name.as_str().into(),
        spec.name.as_str().into(),
        kind.into(),
        if status.is_some_and(|s| s.ready) { "yes" } else { "no" }.into(),
        Cell::toned(word, tone),
        status.map_or(0, |s| s.restart_count).to_string().into(),
        running.map(|r| age::since(r.started_at.as_deref(), now)).unwrap_or_default().into(),
        spec.image.as_str().into(),
    ];
    if wide {
        row.push(status.and_then(|s| s.container_id.clone()).unwrap_or_default().into());
    }
    row
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tables_show_pods_and_containers() {
        let list: PodList = serde_json::from_value(serde_json::json!({"items": [{
            "metadata": {"namespace": "shop", "name": "web-edge1", "uid": "u1"},
            "spec": {"nodeName": "edge1",
                "initContainers": [{"name": "log", "image": "busybox:1", "restartPolicy": "Always"}],
                "containers": [{"name": "main", "image": "nginx:1"}]},
            "status": {"phase": "Running", "podIP": "10.1.0.2", "startTime": "2026-01-01T00:00:00Z",
                "initContainerStatuses": [{"name": "log", "ready": true, "started": true,
                    "state": {"running": {"startedAt": "2026-01-01T00:00:01Z"}}}],
                "containerStatuses": [{"name": "main", "ready": false, "restartCount": 2, "containerID": "armlet://0a",
                    "state": {"waiting": {"reason": "CrashLoopBackOff"}}}]},
        }]}))
        .unwrap();
        let now = WallTime::parse_rfc3339("2026-01-01T00:02:00Z").unwrap();
        assert_eq!(
            pods(&list.items, now, true).render(false),
            "NAMESPACE   NAME        READY   STATUS             RESTARTS   AGE   IP         NODE    UID\n\
             shop        web-edge1   1/2     CrashLoopBackOff   2          2m    10.1.0.2   edge1   u1\n"
        );
        assert_eq!(
            containers(&list.items, now, true).render(false),
            "NAMESPACE   POD         CONTAINER   KIND      READY   STATE              RESTARTS   AGE    IMAGE       ID\n\
             shop        web-edge1   log         sidecar   yes     Running            0          119s   busybox:1   -\n\
             shop        web-edge1   main        app       no      CrashLoopBackOff   2          -      nginx:1     armlet://0a\n"
        );
    }
}
