//! Volumes.

use super::super::names;
use super::super::problem::Path;
use super::super::report::Report;
use crate::model::Quantity;
use k8s_openapi::api::core::v1::Volume;
use std::collections::BTreeSet;

/// The values of `hostPath.type`.
const HOST_PATH_TYPES: [&str; 8] =
    ["", "DirectoryOrCreate", "Directory", "FileOrCreate", "File", "Socket", "CharDevice", "BlockDevice"];

pub(super) fn volumes(volumes: &[Volume], path: &Path, report: &mut Report<'_>) {
    let mut seen = BTreeSet::new();
    for (i, volume) in volumes.iter().enumerate() {
        let at = path.index(i);
        let name = volume.name.as_str();
        if name.is_empty() {
            report.required(&at.field("name"), "");
        } else {
            report.form(&at.field("name"), name, names::dns_label(name));
            if !seen.insert(name) {
                report.duplicate(&at.field("name"), name);
            }
        }
        source(volume, &at, report);
    }
}

fn source(volume: &Volume, path: &Path, report: &mut Report<'_>) {
    if volume.empty_dir.is_some() && volume.host_path.is_some() {
        report.forbidden(&path.field("hostPath"), "may not specify more than 1 volume type");
    }
    if let Some(limit) = volume.empty_dir.as_ref().and_then(|e| e.size_limit.as_ref())
        && let Err(error) = Quantity::parse(&limit.0)
    {
        report.invalid(&path.field("emptyDir").field("sizeLimit"), &limit.0, &error.to_string());
    }
    if let Some(host) = &volume.host_path {
        let path = path.field("hostPath");
        let at = path.field("path");
        if host.path.is_empty() {
            report.required(&at, "");
        } else if !host.path.starts_with('/') {
            report.invalid(&at, &host.path, "must be an absolute path");
        }
        report.form(&at, &host.path, names::no_backsteps(&host.path));
        report.one_of(&path.field("type"), host.type_.as_deref().unwrap_or(""), &HOST_PATH_TYPES);
    }
}
