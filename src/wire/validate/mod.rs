//! What the API server would refuse: the rules of `pkg/apis/core/validation/validation.go` (v1.36) for the fields that
//! armlet honours, with its texts. Every broken rule is reported.
//!
//! It runs on the defaulted pod. Rules that upstream's kubelet applies when it admits a pod, and whose inputs are in the
//! manifest (node selector, sysctls), are applied here too: a static pod that can never run is better refused by name.

mod container;
mod probe;
mod resources;
mod security;
mod text;
mod volume;

use super::manifest::NodeIdentity;
use super::names;
use super::problem::Path;
use super::report::Report;
use super::schema::NOT_SUPPORTED;
pub(super) use security::{capability, sysctl_name};

use k8s_openapi::api::core::v1::{PodDNSConfig, PodSpec, Toleration};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use std::collections::BTreeMap;

/// All annotations together, keys included.
const MAX_ANNOTATION_BYTES: usize = 256 << 10;

/// Namespace, name and UID of a pod, joined by two underscores, are the name of its log folder.
const MAX_LOG_FOLDER: usize = 255 - 2;

/// Checks a defaulted static pod.
pub(crate) fn pod(metadata: &ObjectMeta, spec: &PodSpec, node: &NodeIdentity, report: &mut Report<'_>) {
    object_meta(metadata, node, &Path::root().field("metadata"), report);
    pod_spec(spec, node, &Path::root().field("spec"), report);
}

fn object_meta(metadata: &ObjectMeta, node: &NodeIdentity, path: &Path, report: &mut Report<'_>) {
    let name = metadata.name.as_deref().unwrap_or("");
    // The pod's name is what is written with the node's behind it: the rules are for both together, and it is the written
    // one that people look for in their file.
    let (written, suffix) = (node.written_name(name), node.suffix());
    if !name.is_empty() {
        let at = path.field("name");
        if name.len() > names::MAX_SUBDOMAIN {
            let why = format!("with {suffix:?} behind it, it must be no more than {} bytes", names::MAX_SUBDOMAIN);
            report.invalid(&at, written, &why);
        }
        report.form(&at, written, names::subdomain_form(name));
    }
    if let Some(namespace) = &metadata.namespace {
        report.form(&path.field("namespace"), namespace, names::dns_label(namespace));
    }
    let parts = [&metadata.name, &metadata.namespace, &metadata.uid];
    let log_folder: usize = parts.iter().map(|t| t.as_ref().map_or(0, String::len)).sum();
    if log_folder > MAX_LOG_FOLDER {
        let why = format!(
            "with {suffix:?} behind it, namespace and UID it may not be more than {MAX_LOG_FOLDER} bytes: they name the \
             log folder"
        );
        report.error(&path.field("name"), format!("Too long: {why}"));
    }
    labels(metadata.labels.as_ref(), &path.field("labels"), report);
    annotations(metadata.annotations.as_ref(), &path.field("annotations"), report);
}

fn labels(labels: Option<&BTreeMap<String, String>>, path: &Path, report: &mut Report<'_>) {
    for (key, value) in labels.into_iter().flatten() {
        report.form(&path.key(key), key, names::qualified_name(key));
        report.form(&path.key(key), value, names::label_value(value));
    }
}

fn annotations(annotations: Option<&BTreeMap<String, String>>, path: &Path, report: &mut Report<'_>) {
    let mut bytes = 0;
    for (key, value) in annotations.into_iter().flatten() {
        bytes += key.len() + value.len();
        report.form(&path.key(key), key, names::qualified_name(&key.to_lowercase()));
        if key == "kubernetes.io/config.mirror" {
            report.forbidden(&path.key(key), "a manifest is never a mirror pod");
        }
        let app_armor = key.starts_with("container.apparmor.security.beta.kubernetes.io/");
        if app_armor && value != "unconfined" {
            report.error(&path.key(key), format!("{value:?} is {NOT_SUPPORTED}, only unconfined"));
        }
    }
    if bytes > MAX_ANNOTATION_BYTES {
        report.error(path, format!("Too long: may not be more than {MAX_ANNOTATION_BYTES} bytes"));
    }
}

fn pod_spec(spec: &PodSpec, node: &NodeIdentity, path: &Path, report: &mut Report<'_>) {
    let restart_policy = spec.restart_policy.as_deref().unwrap_or("");
    report.one_of(&path.field("restartPolicy"), restart_policy, &["Always", "OnFailure", "Never"]);
    report.not_negative(&path.field("terminationGracePeriodSeconds"), spec.termination_grace_period_seconds);
    for (name, value) in [("hostname", &spec.hostname), ("subdomain", &spec.subdomain)] {
        if let Some(value) = value.as_deref().filter(|v| !v.is_empty()) {
            report.form(&path.field(name), value, names::dns_label(value));
        }
    }
    if let Some(class) = spec.priority_class_name.as_deref().filter(|c| !c.is_empty()) {
        report.form(&path.field("priorityClassName"), class, names::dns_subdomain(class));
    }
    if let Some(policy) = &spec.preemption_policy {
        report.one_of(&path.field("preemptionPolicy"), policy, &["PreemptLowerPriority", "Never"]);
    }
    placement(spec, node, path, report);
    dns(spec, path, report);
    host_aliases(spec, &path.field("hostAliases"), report);
    tolerations(spec.tolerations.as_deref().unwrap_or(&[]), &path.field("tolerations"), report);
    if let Some(overhead) = &spec.overhead {
        resources::overhead(overhead, &path.field("overhead"), report);
    }
    security::pod(spec, node, &path.field("securityContext"), report);
    volume::volumes(spec.volumes.as_deref().unwrap_or(&[]), &path.field("volumes"), report);
    container::containers(spec, path, report);
    text::texts(spec, path, report);
}

/// Whether the pod may be on this node: upstream's NodeAffinity admission, as far as labels go.
fn placement(spec: &PodSpec, node: &NodeIdentity, path: &Path, report: &mut Report<'_>) {
    let named = spec.node_name.as_deref().unwrap_or("");
    if !named.is_empty() && named != node.name {
        let message = format!("{named:?} is replaced by this node's name, {:?}", node.name);
        report.warning(&path.field("nodeName"), message);
    }
    let selector = path.field("nodeSelector");
    for (key, value) in spec.node_selector.iter().flatten() {
        report.form(&selector.key(key), key, names::qualified_name(key));
        report.form(&selector.key(key), value, names::label_value(value));
        match node.labels.get(key) {
            Some(own) if own == value => {}
            Some(own) => report.invalid(&selector.key(key), value, &format!("this node's label has the value {own:?}")),
            None => report.invalid(&selector.key(key), value, "this node has no such label"),
        }
    }
}

fn dns(spec: &PodSpec, path: &Path, report: &mut Report<'_>) {
    let policy = spec.dns_policy.as_deref().unwrap_or("");
    let policies = ["ClusterFirstWithHostNet", "ClusterFirst", "Default", "None"];
    report.one_of(&path.field("dnsPolicy"), policy, &policies);
    let config = spec.dns_config.as_ref();
    let servers = config.and_then(|c| c.nameservers.as_deref()).unwrap_or(&[]);
    let path = path.field("dnsConfig");
    if policy == "None" && servers.is_empty() {
        let detail = "must provide at least one DNS nameserver when `dnsPolicy` is None";
        report.required(&path.field("nameservers"), detail);
    }
    if let Some(config) = config {
        dns_config(config, servers, &path, report);
    }
}

fn dns_config(config: &PodDNSConfig, servers: &[String], path: &Path, report: &mut Report<'_>) {
    let at = path.field("nameservers");
    if servers.len() > 3 {
        report.invalid(&at, servers, "must not have more than 3 nameservers");
    }
    for (i, server) in servers.iter().enumerate() {
        report.form(&at.index(i), server, names::ip_address(server));
    }
    let searches = config.searches.as_deref().unwrap_or(&[]);
    let at = path.field("searches");
    if searches.len() > 32 {
        report.invalid(&at, searches, "must not have more than 32 search paths");
    }
    if searches.iter().map(|s| s.len() + 1).sum::<usize>() > 2049 {
        report.invalid(&at, searches, "must not have more than 2048 characters (including spaces) in the search list");
    }
    for (i, search) in searches.iter().enumerate() {
        report.form(&at.index(i), search, names::search_domain(search));
    }
    for (i, option) in config.options.iter().flatten().enumerate() {
        if option.name.as_deref().unwrap_or("").is_empty() {
            report.required(&path.field("options").index(i), "must not be empty");
        }
    }
}

fn host_aliases(spec: &PodSpec, path: &Path, report: &mut Report<'_>) {
    for (i, alias) in spec.host_aliases.iter().flatten().enumerate() {
        let at = path.index(i);
        report.form(&at.field("ip"), &alias.ip, names::ip_address(&alias.ip));
        for (j, name) in alias.hostnames.iter().flatten().enumerate() {
            report.form(&at.field("hostnames").index(j), name, names::dns_subdomain(name));
        }
    }
}

fn tolerations(tolerations: &[Toleration], path: &Path, report: &mut Report<'_>) {
    for (i, toleration) in tolerations.iter().enumerate() {
        let at = path.index(i);
        let key = toleration.key.as_deref().unwrap_or("");
        let operator = toleration.operator.as_deref().unwrap_or("");
        let effect = toleration.effect.as_deref().unwrap_or("");
        if !key.is_empty() {
            report.form(&at.field("key"), key, names::qualified_name(key));
        } else if operator != "Exists" {
            let why = "operator must be Exists when `key` is empty, which means \"match all values and all keys\"";
            report.invalid(&at.field("operator"), operator, why);
        }
        if !operator.is_empty() {
            report.one_of(&at.field("operator"), operator, &["Equal", "Exists"]);
        }
        if !effect.is_empty() {
            report.one_of(&at.field("effect"), effect, &["NoSchedule", "PreferNoSchedule", "NoExecute"]);
        }
        if operator == "Exists" && !toleration.value.as_deref().unwrap_or("").is_empty() {
            report.invalid(&at.field("operator"), &toleration.value, "value must be empty when `operator` is 'Exists'");
        }
        if toleration.toleration_seconds.is_some() && effect != "NoExecute" {
            report.invalid(&at.field("effect"), effect, "effect must be 'NoExecute' when `tolerationSeconds` is set");
        }
    }
}
