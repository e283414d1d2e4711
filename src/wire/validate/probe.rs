//! Probes.

use super::super::names;
use super::super::problem::Path;
use super::super::report::Report;
use k8s_openapi::api::core::v1::{Container, HTTPGetAction, Probe};
use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;

pub(super) fn probes(container: &Container, path: &Path, report: &mut Report<'_>) {
    let kinds = [
        ("livenessProbe", &container.liveness_probe, true),
        ("readinessProbe", &container.readiness_probe, false),
        ("startupProbe", &container.startup_probe, true),
    ];
    for (name, found, kills) in kinds {
        if let Some(found) = found {
            probe(found, container, kills, &path.field(name), report);
        }
    }
}

/// One probe. `kills`: its failure restarts the container (liveness, startup).
fn probe(probe: &Probe, container: &Container, kills: bool, path: &Path, report: &mut Report<'_>) {
    handler(probe, container, path, report);
    let numbers = [
        ("initialDelaySeconds", probe.initial_delay_seconds),
        ("timeoutSeconds", probe.timeout_seconds),
        ("periodSeconds", probe.period_seconds),
        ("successThreshold", probe.success_threshold),
        ("failureThreshold", probe.failure_threshold),
    ];
    for (name, value) in numbers {
        report.not_negative(&path.field(name), value);
    }
    if let Some(threshold) = probe.success_threshold.filter(|t| kills && *t > 1) {
        report.invalid(&path.field("successThreshold"), threshold, "must be 1");
    }
    let at = path.field("terminationGracePeriodSeconds");
    match probe.termination_grace_period_seconds {
        Some(grace) if !kills => report.invalid(&at, grace, "must not be set for readinessProbes"),
        Some(grace) if grace <= 0 => report.invalid(&at, grace, "must be greater than 0"),
        _ => {}
    }
}

fn handler(probe: &Probe, container: &Container, path: &Path, report: &mut Report<'_>) {
    let given = [
        ("exec", probe.exec.is_some()),
        ("httpGet", probe.http_get.is_some()),
        ("tcpSocket", probe.tcp_socket.is_some()),
    ];
    let mut named = given.iter().filter(|(_, given)| *given).map(|(name, _)| *name);
    if named.next().is_none() && !report.failed_within(path) {
        report.required(path, "must specify a handler type");
    }
    for second in named {
        report.forbidden(&path.field(second), "may not specify more than 1 handler type");
    }
    if let Some(exec) = &probe.exec
        && exec.command.as_deref().unwrap_or(&[]).is_empty()
    {
        report.required(&path.field("exec").field("command"), "");
    }
    if let Some(get) = &probe.http_get {
        http_get(get, container, &path.field("httpGet"), report);
    }
    if let Some(tcp) = &probe.tcp_socket {
        port(&tcp.port, container, &path.field("tcpSocket").field("port"), report);
    }
}

fn http_get(get: &HTTPGetAction, container: &Container, path: &Path, report: &mut Report<'_>) {
    port(&get.port, container, &path.field("port"), report);
    report.one_of(&path.field("scheme"), get.scheme.as_deref().unwrap_or(""), &["HTTP", "HTTPS"]);
    let target = get.path.as_deref().unwrap_or("");
    if target.bytes().any(|b| b.is_ascii_control() || b == b' ') {
        report.invalid(&path.field("path"), target, "must not contain spaces or control characters");
    }
    for (i, header) in get.http_headers.iter().flatten().enumerate() {
        let at = path.field("httpHeaders").index(i);
        report.form(&at.field("name"), &header.name, names::header_name(&header.name));
        if header.value.bytes().any(|b| b.is_ascii_control() && b != b'\t') {
            report.invalid(&at.field("value"), &header.value, "must not contain control characters");
        }
    }
}

/// A port by number, or by the name of one of the container's ports. Upstream looks the name up at each try; here a
/// name that nothing has is refused at once.
fn port(port: &IntOrString, container: &Container, path: &Path, report: &mut Report<'_>) {
    match port {
        IntOrString::Int(number) => report.form(path, number, names::port_number(*number)),
        IntOrString::String(name) => {
            let faults = names::port_name(name);
            let known = container.ports.iter().flatten().any(|p| p.name.as_ref() == Some(name));
            if faults.is_empty() && !known {
                report.invalid(path, name, "no port of this container has this name");
            }
            report.form(path, name, faults);
        }
    }
}
