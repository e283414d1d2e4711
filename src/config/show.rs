//! The effective values, and where each came from.

use super::{Args, Config, Files, SwapBehavior, Threshold, flags, load};
use crate::wire::problem::Problem;
use serde::Serialize;
use serde_json::{Value, json};
use std::collections::BTreeMap;

/// One setting.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Setting {
    /// The field of the configuration file, its parts joined by dots.
    pub name: String,
    /// The value in force.
    pub value: Value,
    /// `default`, `FILE:LINE`, `--flag` or `ARMLET_VARIABLE`.
    pub from: String,
}

/// A row: the field, and how its value is read.
type Row = (&'static str, fn(&Config) -> Value);

const ROWS: &[Row] = &[
    ("nodeName", |c| json!(c.node_name)),
    ("nodeLabels", |c| json!(c.node_labels)),
    ("staticPodPath", |c| json!(c.static_pod_path)),
    ("dataDir", |c| json!(c.data_dir)),
    ("runDir", |c| json!(c.run_dir)),
    ("socketPath", |c| json!(c.socket_path)),
    ("preloadDir", |c| json!(c.preload_dir)),
    ("podLogsDir", |c| json!(c.pod_logs_dir)),
    ("containerLogMaxSize", |c| json!(c.container_log_max_bytes)),
    ("containerLogMaxFiles", |c| json!(c.container_log_max_files)),
    ("logBudget", |c| json!(c.log_budget_bytes)),
    ("logFile", |c| json!(c.log_file)),
    ("logFileMaxSize", |c| json!(c.log_file_max_bytes)),
    ("podCIDR", |c| json!(format!("{}/{}", c.pod_cidr.0, c.pod_cidr.1))),
    ("clusterDNS", |c| json!(c.cluster_dns)),
    ("clusterDomain", |c| json!(c.cluster_domain)),
    ("resolvConf", |c| json!(c.resolv_conf)),
    ("maxPods", |c| json!(c.max_pods)),
    ("podPidsLimit", |c| c.pod_pids_limit.map_or(json!(-1), |limit| json!(limit))),
    ("cpuCFSQuota", |c| json!(c.cpu_cfs_quota)),
    ("cpuCFSQuotaPeriod", |c| json!(format!("{}us", c.cpu_cfs_quota_period_us))),
    ("singleProcessOOMKill", |c| json!(c.single_process_oom_kill)),
    ("enforceNodeAllocatable", |c| json!(super::reserved::words(c))),
    ("systemReserved.cpu", |c| json!(format!("{}m", c.system_reserved.cpu.milli()))),
    ("systemReserved.memory", |c| json!(c.system_reserved.memory.units())),
    ("systemReserved.pid", |c| json!(c.system_reserved.pid)),
    ("kubeReserved.cpu", |c| json!(format!("{}m", c.kube_reserved.cpu.milli()))),
    ("kubeReserved.memory", |c| json!(c.kube_reserved.memory.units())),
    ("kubeReserved.pid", |c| json!(c.kube_reserved.pid)),
    ("systemReservedCgroup", |c| json!(c.system_reserved_cgroup)),
    ("kubeReservedCgroup", |c| json!(c.kube_reserved_cgroup)),
    ("evictionHard.memory.available", |c| match c.eviction_hard_memory {
        Threshold::Bytes(bytes) => json!(bytes),
        Threshold::BasisPoints(points) => json!(format!("{}.{:02}%", points / 100, points % 100)),
    }),
    ("failSwapOn", |c| json!(c.fail_swap_on)),
    ("memorySwap.swapBehavior", |c| {
        json!(match c.swap {
            SwapBehavior::NoSwap => "NoSwap",
            SwapBehavior::LimitedSwap => "LimitedSwap",
        })
    }),
    ("seccompDefault", |c| json!(c.seccomp_default)),
    ("allowedUnsafeSysctls", |c| json!(c.allowed_unsafe_sysctls)),
    ("crashLoopBackOff.maxContainerRestartPeriod", |c| json!(format!("{}ms", c.max_restart_back_off.0))),
    ("oomScoreAdj", |c| json!(c.oom_score_adj)),
    ("logging.verbosity", |c| json!(c.verbosity)),
];

/// All settings in force, with everything that is wrong with what was given. The values are usable only when no problem
/// is an error.
#[must_use]
pub fn settings(args: &Args, files: &Files, env: &BTreeMap<String, String>) -> (Vec<Setting>, Vec<Problem>) {
    let (config, problems) = load(args, files, env);
    let mut origins = lines(files);
    origins.extend(flags::origins(args, env));
    let setting = |name: String, value| {
        let from = origins.get(&name).cloned().unwrap_or_else(|| "default".to_owned());
        Setting { name, value, from }
    };
    let mut settings = Vec::new();
    for (name, value) in ROWS {
        match value(&config) {
            // Each label has an origin of its own.
            Value::Object(labels) if !labels.is_empty() => {
                settings.extend(labels.into_iter().map(|(key, value)| setting(format!("{name}.{key}"), value)));
            }
            value => settings.push(setting((*name).to_owned(), value)),
        }
    }
    (settings, problems)
}

/// The place of each field, those of objects with the object's name before them: the last one, which counts.
fn lines(files: &Files) -> BTreeMap<String, String> {
    let mut found = BTreeMap::new();
    for (path, documents) in files.documents() {
        for tree in documents.iter().filter_map(|document| document.tree.as_ref().ok()) {
            for entry in tree.entries() {
                found.insert(entry.key.clone(), format!("{path}:{}", entry.line));
                for inner in entry.value.entries() {
                    found.insert(format!("{}.{}", entry.key, inner.key), format!("{path}:{}", inner.line));
                }
            }
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    const FILE: &str = "\
apiVersion: kubelet.config.k8s.io/v1beta1
kind: KubeletConfiguration
maxPods: 7
seccompDefault: true
clusterDomain: a
systemReserved: {cpu: 1, memory: 2}
logging:
  verbosity: 3
---
apiVersion: armlet.dev/v1alpha1
kind: NodeConfiguration
nodeName: edge1
nodeLabels: {a: b, c: d}
";
    const DROP_IN: &str = "\
apiVersion: kubelet.config.k8s.io/v1beta1
kind: KubeletConfiguration
clusterDomain: null
seccompDefault: false
systemReserved: {memory: 4}
---
apiVersion: armlet.dev/v1alpha1
kind: NodeConfiguration
nodeLabels: {c: e}
";

    fn told(args: &Args, env: &BTreeMap<String, String>) -> BTreeMap<String, String> {
        let files = Files::default().with("c.yaml", FILE.as_bytes()).with("d/1.conf", DROP_IN.as_bytes());
        let (settings, problems) = settings(args, &files, env);
        assert!(problems.is_empty(), "{problems:?}");
        settings.into_iter().map(|setting| (setting.name, format!("{} {}", setting.value, setting.from))).collect()
    }

    #[test]
    fn each_value_says_where_it_came_from() {
        let args = Args::default().with("fail-swap-on", "false").with("kube-reserved", "memory=1Ki");
        let env = BTreeMap::from([("ARMLET_MAX_PODS".to_owned(), "9".to_owned())]);
        let told = told(&args, &env);
        for (name, expect) in [
            ("maxPods", "9 ARMLET_MAX_PODS"),
            ("failSwapOn", "false --fail-swap-on"),
            ("seccompDefault", "false d/1.conf:4"),
            ("logging.verbosity", "3 c.yaml:8"),
            ("nodeName", "\"edge1\" c.yaml:12"),
            ("oomScoreAdj", "-999 default"),
            ("podPidsLimit", "-1 default"),
            // Taken back, merged, and set as a whole.
            ("clusterDomain", "\"\" default"),
            ("systemReserved.cpu", "\"1000m\" c.yaml:6"),
            ("systemReserved.memory", "4 d/1.conf:5"),
            ("kubeReserved.memory", "1024 --kube-reserved"),
            ("kubeReserved.cpu", "\"0m\" --kube-reserved"),
            ("nodeLabels.a", "\"b\" c.yaml:13"),
            ("nodeLabels.c", "\"e\" d/1.conf:9"),
        ] {
            assert_eq!(told.get(name).map(String::as_str), Some(expect), "{name}");
        }
        let args = Args::default().with("eviction-hard", "nodefs.available<10%").with("node-labels", "c=f");
        let files = Files::default().with("c.yaml", FILE.as_bytes());
        let (settings, _) = settings(&args, &files, &BTreeMap::new());
        let of = |name: &str| settings.iter().find(|setting| setting.name == name).map(|setting| setting.from.as_str());
        assert_eq!(of("evictionHard.memory.available"), Some("default"));
        assert_eq!((of("nodeLabels.a"), of("nodeLabels.c")), (Some("c.yaml:13"), Some("--node-labels")));
    }

    /// A field that is honoured and not shown would be forgotten here.
    #[test]
    fn every_field_that_is_honoured_is_shown() {
        use crate::wire::schema::Verdict;
        let shown = |name: &str| ROWS.iter().any(|(row, _)| row.split('.').next() == Some(name));
        for field in super::super::kubelet::FIELDS.iter().chain(super::super::node::FIELDS) {
            let heading = matches!(field.name, "apiVersion" | "kind");
            assert_eq!(shown(field.name), matches!(field.verdict, Verdict::Used) && !heading, "{}", field.name);
        }
    }
}
