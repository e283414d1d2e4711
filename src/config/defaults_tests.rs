//! The table in docs/configuration.md of defaults that are not upstream's, against both.

use super::*;
use crate::wire::schema::Verdict;
use serde_json::json;
use std::collections::BTreeSet;

const PAGE: &str = include_str!("../../docs/configuration.md");

/// Upstream's defaults (`pkg/kubelet/apis/config/v1beta1/defaults.go`, v1.36, on Linux) of what armlet honours, in the
/// form of `armlet config show`. Null: nothing.
fn upstream() -> BTreeMap<&'static str, Value> {
    BTreeMap::from([
        ("allowedUnsafeSysctls", json!([])),
        ("cgroupDriver", json!("cgroupfs")),
        ("cgroupRoot", json!("/")),
        ("cgroupsPerQOS", json!("true")),
        ("clusterDNS", json!([])),
        ("clusterDomain", json!("")),
        ("containerLogMaxFiles", json!(5)),
        ("containerLogMaxSize", json!(10 << 20)),
        ("cpuCFSQuota", json!(true)),
        ("cpuCFSQuotaPeriod", json!("100000us")),
        ("cpuManagerPolicy", json!("none")),
        ("crashLoopBackOff.maxContainerRestartPeriod", json!("300000ms")),
        ("enforceNodeAllocatable", json!(["pods"])),
        ("evictionHard.imagefs.available", json!("15%")),
        ("evictionHard.imagefs.inodesFree", json!("5%")),
        ("evictionHard.memory.available", json!(100 << 20)),
        ("evictionHard.nodefs.available", json!("10%")),
        ("evictionHard.nodefs.inodesFree", json!("5%")),
        ("failCgroupV1", json!("true")),
        ("failSwapOn", json!(true)),
        ("kubeReserved.cpu", json!("0m")),
        ("kubeReserved.memory", json!(0)),
        ("kubeReserved.pid", json!(0)),
        ("kubeReservedCgroup", json!("")),
        ("logging.format", json!("text")),
        ("logging.verbosity", json!(0)),
        ("maxPods", json!(110)),
        ("memoryManagerPolicy", json!("None")),
        ("memorySwap.swapBehavior", json!("NoSwap")),
        ("oomScoreAdj", json!(-999)),
        ("podCIDR", Value::Null),
        ("podLogsDir", json!("/var/log/pods")),
        ("podPidsLimit", json!(-1)),
        ("readOnlyPort", json!("0")),
        ("registerNode", json!("true")),
        ("resolvConf", json!("/etc/resolv.conf")),
        ("seccompDefault", json!(false)),
        ("singleProcessOOMKill", json!(false)),
        ("staticPodPath", Value::Null),
        ("systemReserved.cpu", json!("0m")),
        ("systemReserved.memory", json!(0)),
        ("systemReserved.pid", json!(0)),
        ("systemReservedCgroup", json!("")),
        ("topologyManagerPolicy", json!("none")),
        // Flags of upstream that are fields here, or flags here too.
        ("--config", Value::Null),
        ("--config-dir", Value::Null),
        ("dataDir", json!("/var/lib/kubelet")),
    ])
}

/// armlet's, in the same form.
fn own() -> BTreeMap<String, Value> {
    let (settings, _) = settings(&Args::default(), &Files::default(), &BTreeMap::new());
    let mut own: BTreeMap<String, Value> = settings.into_iter().map(|setting| (setting.name, setting.value)).collect();
    // What only armlet has is nobody else's default.
    own.retain(|name, _| {
        name == "dataDir" || name == "podCIDR" || !node::FIELDS.iter().any(|field| field.name == *name)
    });
    own.insert("--config".to_owned(), json!(DEFAULT_CONFIG));
    own.insert("--config-dir".to_owned(), json!(DEFAULT_CONFIG_DIR));
    let logging = kubelet::FIELDS.iter().find(|field| field.name == "logging").map(|field| field.kind);
    let inner = match logging {
        Some(schema::Kind::Object(fields)) => fields,
        _ => &[],
    };
    let fields = kubelet::FIELDS.iter().map(|field| ("", field)).chain(inner.iter().map(|field| ("logging.", field)));
    for (around, field) in fields {
        if let Verdict::Instead { effect, .. } = field.verdict {
            own.insert(format!("{around}{}", field.name), json!(effect));
        }
    }
    own
}

/// A value as the table writes it.
fn cell(value: Option<&Value>) -> String {
    match value {
        None | Some(Value::Null) => "none".to_owned(),
        Some(Value::String(text)) => format!("`{text}`"),
        Some(other) => format!("`{other}`"),
    }
}

#[test]
fn the_table_of_other_defaults_is_true() {
    let (own, upstream) = (own(), upstream());
    let names: BTreeSet<&str> = own.keys().map(String::as_str).chain(upstream.keys().copied()).collect();
    let differ = names.into_iter().filter(|name| own.get(*name) != upstream.get(*name));
    let expect: BTreeSet<String> =
        differ.map(|name| format!("| `{name}` | {} | {} |", cell(own.get(name)), cell(upstream.get(name)))).collect();
    let (_, section) = PAGE.split_once("\n## Defaults that differ").expect("the section");
    let section = section.split("\n## ").next().unwrap_or_default();
    let mut told = BTreeSet::new();
    for line in section.lines().filter(|line| line.starts_with("| `")) {
        let cells: Vec<&str> = line.split(" | ").collect();
        assert!(cells.len() == 4 && cells[3].len() > 4, "a reason is missing: {line}");
        told.insert(format!("{} |", cells[..3].join(" | ")));
    }
    assert_eq!(told, expect);
    assert!(expect.len() >= 5, "{expect:?}");
}
