//! Texts with `$(VAR)` in them: what they become must fit.

use super::super::convert::written;
use super::super::expand::{Environment, Expander, MAX_POD, MAX_TEXT, TooLong};
use super::super::problem::Path;
use super::super::report::Report;
use k8s_openapi::api::core::v1::{Container, PodSpec};

/// Expands every text of a pod, in the order in which conversion does it.
pub(super) fn texts(spec: &PodSpec, path: &Path, report: &mut Report<'_>) {
    let mut expander = Expander::new();
    for (i, one) in spec.containers.iter().enumerate() {
        container(one, &mut expander, &path.field("containers").index(i), report);
    }
    for (i, one) in spec.init_containers.iter().flatten().enumerate() {
        container(one, &mut expander, &path.field("initContainers").index(i), report);
    }
}

fn container(container: &Container, expander: &mut Expander, path: &Path, report: &mut Report<'_>) {
    let mut env = Environment::default();
    for (i, variable) in container.env.iter().flatten().enumerate() {
        let added = env.add(&variable.name, variable.value.as_deref().unwrap_or(""), expander);
        check(added, &path.field("env").index(i).field("value"), report);
    }
    for (name, list) in [("command", &container.command), ("args", &container.args)] {
        for (i, text) in list.iter().flatten().enumerate() {
            check(expander.expand(text, |n| env.get(n)), &path.field(name).index(i), report);
        }
    }
    let written = written(container);
    let probes = [
        ("livenessProbe", &container.liveness_probe),
        ("readinessProbe", &container.readiness_probe),
        ("startupProbe", &container.startup_probe),
    ];
    for (name, probe) in probes {
        let command = probe.iter().filter_map(|p| p.exec.as_ref()).flat_map(|e| e.command.iter().flatten());
        let at = path.field(name).field("exec").field("command");
        for (i, text) in command.enumerate() {
            check(expander.expand(text, |n| written.get(n).copied()), &at.index(i), report);
        }
    }
}

fn check<T>(expanded: Result<T, TooLong>, path: &Path, report: &mut Report<'_>) {
    if expanded.is_err() {
        let message =
            format!("Too long: expanded it may not be more than {MAX_TEXT} bytes, with the pod's others {MAX_POD}");
        report.error(path, message);
    }
}
