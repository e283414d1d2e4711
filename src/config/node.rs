//! NodeConfiguration (`armlet.dev/v1alpha1`): what only armlet knows.

use super::setting::Section;
use super::{Config, read};
use crate::wire::names;
use crate::wire::report::Report;
use crate::wire::schema::Kind::{Quantity, Text};
use crate::wire::schema::{Field, Kind, Verdict};
use serde_json::{Map, Value};

const fn used(name: &'static str, kind: Kind) -> Field {
    Field { name, kind, verdict: Verdict::Used }
}

/// The fields.
pub(super) const FIELDS: &[Field] = &[
    used("apiVersion", Text),
    used("kind", Text),
    used("dataDir", Text),
    used("logBudget", Quantity),
    used("nodeLabels", Kind::Map(&Text)),
    used("logFile", Text),
    used("logFileMaxSize", Quantity),
    used("nodeName", Text),
    used("podCIDR", Text),
    used("preloadDir", Text),
    used("runDir", Text),
    used("socketPath", Text),
];

/// Puts what the document says into the configuration.
pub(super) fn apply(document: &Map<String, Value>, config: &mut Config, report: &mut Report<'_>) {
    let mut s = Section::document(document, report);
    s.text("nodeName", |t| node_name(t).map(Some), &mut config.node_name);
    s.text("podCIDR", read::cidr, &mut config.pod_cidr);
    s.text("logBudget", |t| read::bytes(t).map(Some), &mut config.log_budget_bytes);
    labels(&mut s, config);
    s.text("logFile", |t| read::absolute(t).map(Some), &mut config.log_file);
    s.text("logFileMaxSize", file_size, &mut config.log_file_max_bytes);
    let mut data_dir = config.data_dir.clone();
    s.text("dataDir", read::absolute, &mut data_dir);
    config.set_data_dir(data_dir);
    let mut run_dir = config.run_dir.clone();
    s.text("runDir", read::absolute, &mut run_dir);
    config.set_run_dir(run_dir);
    s.text("preloadDir", read::absolute, &mut config.preload_dir);
    s.text("socketPath", socket_path, &mut config.socket_path);
}

/// Labels beside those that every node has. Of Kubernetes' own keys only some may be set by a node, as upstream
/// (`staging/src/k8s.io/kubelet/pkg/apis/well_known_labels.go`).
fn labels(section: &mut Section<'_, '_, '_>, config: &mut Config) {
    let Some(labels) = section.map("nodeLabels") else { return };
    for (key, value) in labels.values {
        let (at, value) = (labels.at(key), value.as_str().unwrap_or_default());
        labels.report.form(&at, key, names::qualified_name(key));
        labels.report.form(&at, value, names::label_value(value));
        if reserved(key) {
            labels.report.forbidden(&at, OWN_KEYS);
        }
        config.node_labels.insert(key.clone(), value.to_owned());
    }
}

const OWN_KEYS: &str = "of this namespace a node may set only node.kubernetes.io/..., kubelet.kubernetes.io/..., \
    topology.kubernetes.io/zone and topology.kubernetes.io/region";

/// Whether a label's key belongs to Kubernetes and is not for nodes to set. Those of host name, system and architecture are
/// what they are.
fn reserved(key: &str) -> bool {
    let namespace = key.split_once('/').map_or("", |(namespace, _)| namespace);
    let within = |of: &str| namespace == of || namespace.ends_with(&format!(".{of}"));
    let own = within("kubernetes.io") || within("k8s.io");
    own && !within("node.kubernetes.io")
        && !within("kubelet.kubernetes.io")
        && !["topology.kubernetes.io/zone", "topology.kubernetes.io/region"].contains(&key)
}

/// A size that holds more than a few lines.
fn file_size(text: &str) -> Result<u64, String> {
    let size = read::bytes(text)?;
    if size < 64 << 10 { Err("must be at least 64Ki".to_owned()) } else { Ok(size) }
}

/// A node's name: an RFC 1123 subdomain, written small as upstream does.
pub(super) fn node_name(text: &str) -> Result<String, String> {
    let name = text.trim().to_lowercase();
    match names::dns_subdomain(&name).into_iter().next() {
        Some(fault) => Err(fault),
        None => Ok(name),
    }
}

/// A path that fits into a socket address.
pub(super) fn socket_path(text: &str) -> Result<String, String> {
    let path = read::absolute(text)?;
    if path.len() > 107 {
        return Err("must be no more than 107 bytes".to_owned());
    }
    Ok(path)
}
