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
    let mut data_dir = config.data_dir.clone();
    s.text("dataDir", read::absolute, &mut data_dir);
    config.set_data_dir(data_dir);
    let mut run_dir = config.run_dir.clone();
    s.text("runDir", read::absolute, &mut run_dir);
    config.set_run_dir(run_dir);
    s.text("preloadDir", read::absolute, &mut config.preload_dir);
    s.text("socketPath", socket_path, &mut config.socket_path);
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
