//! Containers and init containers.

use super::super::names;
use super::super::problem::Path;
use super::super::report::Report;
use super::super::schema::NOT_SUPPORTED;
use super::{probe, resources, security};
use k8s_openapi::api::core::v1::{Container, ContainerPort, PodSpec, VolumeMount};
use std::collections::{BTreeMap, BTreeSet};

/// What containers are checked against beyond themselves.
struct Pod<'a> {
    host_network: bool,
    volumes: BTreeSet<&'a str>,
    container_names: BTreeSet<&'a str>,
    host_ports: BTreeSet<(&'a str, i32)>,
}

pub(super) fn containers(spec: &PodSpec, path: &Path, report: &mut Report<'_>) {
    let mut pod = Pod {
        host_network: spec.host_network == Some(true),
        volumes: spec.volumes.iter().flatten().map(|v| v.name.as_str()).collect(),
        container_names: BTreeSet::new(),
        host_ports: BTreeSet::new(),
    };
    if spec.containers.is_empty() {
        report.required(&path.field("containers"), "");
    }
    for (i, one) in spec.containers.iter().enumerate() {
        container(one, &mut pod, &path.field("containers").index(i), report);
    }
    for (i, one) in spec.init_containers.iter().flatten().enumerate() {
        let at = path.field("initContainers").index(i);
        if one.restart_policy.as_deref() != Some("Always") {
            no_probes(one, &at, report);
            // Ordinary init containers run before the others: a host port of theirs is free again by then.
            let others = std::mem::take(&mut pod.host_ports);
            container(one, &mut pod, &at, report);
            pod.host_ports = others;
        } else {
            container(one, &mut pod, &at, report);
        }
    }
}

/// An init container that ends has nothing to probe.
fn no_probes(container: &Container, path: &Path, report: &mut Report<'_>) {
    let probes = [
        ("livenessProbe", &container.liveness_probe),
        ("readinessProbe", &container.readiness_probe),
        ("startupProbe", &container.startup_probe),
    ];
    for (name, _) in probes.iter().filter(|(_, probe)| probe.is_some()) {
        report.forbidden(&path.field(name), "may not be set for init containers without restartPolicy=Always");
    }
}

fn container<'a>(container: &'a Container, pod: &mut Pod<'a>, path: &Path, report: &mut Report<'_>) {
    name(container, pod, path, report);
    let image = container.image.as_deref().unwrap_or("");
    if image.is_empty() {
        report.required(&path.field("image"), "");
    } else if image.trim() != image {
        report.invalid(&path.field("image"), image, "must not have leading or trailing whitespace");
    }
    let pull = container.image_pull_policy.as_deref().unwrap_or("");
    report.one_of(&path.field("imagePullPolicy"), pull, &["Always", "IfNotPresent", "Never"]);
    let policy = container.termination_message_policy.as_deref().unwrap_or("");
    report.one_of(&path.field("terminationMessagePolicy"), policy, &["FallbackToLogsOnError", "File"]);
    if let Some(policy) = &container.restart_policy {
        report.one_of(&path.field("restartPolicy"), policy, &["Always", "OnFailure", "Never"]);
    }
    let message_path = container.termination_message_path.as_deref().unwrap_or("");
    report.form(&path.field("terminationMessagePath"), message_path, names::no_backsteps(message_path));
    for (i, variable) in container.env.iter().flatten().enumerate() {
        let at = path.field("env").index(i).field("name");
        if variable.name.is_empty() {
            report.required(&at, "");
        } else {
            report.form(&at, &variable.name, names::env_name(&variable.name));
        }
    }
    ports(container.ports.as_deref().unwrap_or(&[]), pod, &path.field("ports"), report);
    mounts(container.volume_mounts.as_deref().unwrap_or(&[]), pod, &path.field("volumeMounts"), report);
    resources::container(container, &path.field("resources"), report);
    security::container(container, &path.field("securityContext"), report);
    probe::probes(container, path, report);
}

fn name<'a>(container: &'a Container, pod: &mut Pod<'a>, path: &Path, report: &mut Report<'_>) {
    let at = path.field("name");
    let name = container.name.as_str();
    if name.is_empty() {
        report.required(&at, "");
        return;
    }
    report.form(&at, name, names::dns_label(name));
    if !pod.container_names.insert(name) {
        report.duplicate(&at, name);
    }
}

fn ports<'a>(ports: &'a [ContainerPort], pod: &mut Pod<'a>, path: &Path, report: &mut Report<'_>) {
    let mut seen = BTreeSet::new();
    for (i, port) in ports.iter().enumerate() {
        let at = path.index(i);
        if let Some(name) = port.name.as_deref().filter(|n| !n.is_empty()) {
            report.form(&at.field("name"), name, names::port_name(name));
            if !seen.insert(name) {
                report.duplicate(&at.field("name"), name);
            }
        }
        if port.container_port == 0 {
            report.required(&at.field("containerPort"), "");
        } else {
            report.form(&at.field("containerPort"), port.container_port, names::port_number(port.container_port));
        }
        let protocol = port.protocol.as_deref().unwrap_or("");
        report.one_of(&at.field("protocol"), protocol, &["SCTP", "TCP", "UDP"]);
        if let Some(host_port) = port.host_port.filter(|p| *p != 0) {
            self::host_port(host_port, port, pod, &at.field("hostPort"), report);
        }
    }
}

fn host_port<'a>(host_port: i32, port: &'a ContainerPort, pod: &mut Pod<'a>, path: &Path, report: &mut Report<'_>) {
    if !pod.host_network {
        report.error(path, format!("{NOT_SUPPORTED}, only with hostNetwork"));
        return;
    }
    if host_port != port.container_port {
        report.invalid(path, host_port, "must match `containerPort` when `hostNetwork` is true");
        return;
    }
    let protocol = port.protocol.as_deref().unwrap_or("");
    if !pod.host_ports.insert((protocol, host_port)) {
        report.duplicate(path, format!("{protocol}//{host_port}"));
    }
}

fn mounts(mounts: &[VolumeMount], pod: &Pod<'_>, path: &Path, report: &mut Report<'_>) {
    let mut seen = BTreeMap::new();
    for (i, mount) in mounts.iter().enumerate() {
        let at = path.index(i);
        if mount.name.is_empty() {
            report.required(&at.field("name"), "");
        } else if !pod.volumes.contains(mount.name.as_str()) {
            report.error(&at.field("name"), format!("Not found: {:?}", mount.name));
        }
        let target = mount.mount_path.as_str();
        if target.is_empty() {
            report.required(&at.field("mountPath"), "");
            continue;
        }
        if target.contains(':') {
            report.invalid(&at.field("mountPath"), target, "must not contain ':'");
        }
        if seen.insert(target, ()).is_some() {
            report.invalid(&at.field("mountPath"), target, "must be unique");
        }
    }
}
