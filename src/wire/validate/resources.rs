//! Requests and limits.

use super::super::problem::Path;
use super::super::report::Report;
use super::super::schema::NOT_SUPPORTED;
use crate::model::Quantity;
use k8s_openapi::api::core::v1::Container;
use k8s_openapi::apimachinery::pkg::api::resource::Quantity as Text;
use std::collections::BTreeMap;

const HUGE: &str = "hugepages-";

pub(super) fn container(container: &Container, path: &Path, report: &mut Report<'_>) {
    let Some(resources) = &container.resources else { return };
    let none = BTreeMap::new();
    let limits = amounts(resources.limits.as_ref().unwrap_or(&none), &path.field("limits"), report);
    // What a request takes over from its limit was judged there.
    let mut written = resources.requests.clone().unwrap_or_default();
    written.retain(|name, _| report.is_written(&path.field("requests").key(name)));
    let requests = amounts(&written, &path.field("requests"), report);
    for (name, (request, text)) in &requests {
        let at = path.field("requests").key(name);
        match limits.get(name) {
            Some((limit, limit_text)) if name.starts_with(HUGE) && request != limit => {
                report.invalid(&at, text, &format!("must be equal to {name} limit of {limit_text}"));
            }
            Some((limit, limit_text)) if request > limit => {
                report.invalid(&at, text, &format!("must be less than or equal to {name} limit of {limit_text}"));
            }
            None if name.starts_with(HUGE) => {
                report.required(&path.field("limits"), "Limit must be set for non overcommitable resources");
            }
            _ => {}
        }
    }
    let huge = limits.keys().chain(requests.keys()).any(|n| n.starts_with(HUGE));
    let backed = limits.keys().chain(requests.keys()).any(|n| ["cpu", "memory"].contains(n));
    if huge && !backed {
        report.forbidden(path, "HugePages require cpu or memory");
    }
}

pub(super) fn overhead(overhead: &BTreeMap<String, Text>, path: &Path, report: &mut Report<'_>) {
    amounts(overhead, path, report);
}

/// Reads amounts by resource name, reporting each that cannot be.
fn amounts<'a>(
    given: &'a BTreeMap<String, Text>,
    path: &Path,
    report: &mut Report<'_>,
) -> BTreeMap<&'a str, (Quantity, &'a str)> {
    let mut out = BTreeMap::new();
    for (name, text) in given {
        let at = path.key(name);
        if !["cpu", "memory", "ephemeral-storage"].contains(&name.as_str()) && !name.starts_with(HUGE) {
            report.error(&at, NOT_SUPPORTED);
            continue;
        }
        match Quantity::parse(&text.0) {
            Err(error) => report.invalid(&at, &text.0, &error.to_string()),
            Ok(amount) => {
                if let Some(size) = name.strip_prefix(HUGE) {
                    huge_pages(size, amount, &text.0, &at, report);
                }
                out.insert(name.as_str(), (amount, text.0.as_str()));
            }
        }
    }
    out
}

fn huge_pages(size: &str, amount: Quantity, text: &str, path: &Path, report: &mut Report<'_>) {
    match Quantity::parse(size).map(Quantity::units) {
        Ok(page) if page.is_power_of_two() => {
            if !amount.units().is_multiple_of(page) {
                report.invalid(path, text, &format!("must be a multiple of the page size {size}"));
            }
        }
        _ => report.invalid(path, size, "must be a page size: a power of two such as 2Mi"),
    }
}
