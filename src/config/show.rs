//! The effective values, and where each came from.

use super::{Args, Config, SwapBehavior, Threshold, flags, load};
use crate::wire::document;
use crate::wire::problem::Problem;
use serde::Serialize;
use serde_json::{Value, json};
use std::collections::BTreeMap;

/// One setting.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Setting {
    /// The field of the configuration file, its parts joined by dots.
    pub name: &'static str,
    /// The value in force.
    pub value: Value,
    /// `default`, `FILE:LINE`, `--flag` or `ARMLET_VARIABLE`.
    pub from: String,
}

/// A row: the field, the flag that sets it too, and how its value is read.
type Row = (&'static str, Option<&'static str>, fn(&Config) -> Value);

const ROWS: &[Row] = &[
    ("nodeName", Some("node-name"), |c| json!(c.node_name)),
    ("staticPodPath", Some("manifests"), |c| json!(c.static_pod_path)),
    ("dataDir", Some("root-dir"), |c| json!(c.data_dir)),
    ("runDir", Some("run-dir"), |c| json!(c.run_dir)),
    ("socketPath", Some("socket"), |c| json!(c.socket_path)),
    ("preloadDir", None, |c| json!(c.preload_dir)),
    ("podLogsDir", None, |c| json!(c.pod_logs_dir)),
    ("containerLogMaxSize", None, |c| json!(c.container_log_max_bytes)),
    ("containerLogMaxFiles", None, |c| json!(c.container_log_max_files)),
    ("logBudget", None, |c| json!(c.log_budget_bytes)),
    ("podCIDR", Some("pod-cidr"), |c| json!(format!("{}/{}", c.pod_cidr.0, c.pod_cidr.1))),
    ("clusterDNS", Some("cluster-dns"), |c| json!(c.cluster_dns)),
    ("clusterDomain", Some("cluster-domain"), |c| json!(c.cluster_domain)),
    ("resolvConf", Some("resolv-conf"), |c| json!(c.resolv_conf)),
    ("maxPods", Some("max-pods"), |c| json!(c.max_pods)),
    ("podPidsLimit", None, |c| c.pod_pids_limit.map_or(json!(-1), |limit| json!(limit))),
    ("cpuCFSQuota", None, |c| json!(c.cpu_cfs_quota)),
    ("cpuCFSQuotaPeriod", None, |c| json!(format!("{}us", c.cpu_cfs_quota_period_us))),
    ("singleProcessOOMKill", None, |c| json!(c.single_process_oom_kill)),
    ("enforceNodeAllocatable", None, |c| json!([if c.enforce_reserved { "pods" } else { "none" }])),
    ("systemReserved", None, |c| reserved(&c.system_reserved)),
    ("kubeReserved", None, |c| reserved(&c.kube_reserved)),
    ("evictionHard", None, |c| match c.eviction_hard_memory {
        Threshold::Bytes(bytes) => json!({ "memory.available": bytes }),
        Threshold::BasisPoints(points) => {
            json!({ "memory.available": format!("{}.{:02}%", points / 100, points % 100) })
        }
    }),
    ("failSwapOn", Some("fail-swap-on"), |c| json!(c.fail_swap_on)),
    ("memorySwap.swapBehavior", None, |c| {
        json!(match c.swap {
            SwapBehavior::NoSwap => "NoSwap",
            SwapBehavior::LimitedSwap => "LimitedSwap",
        })
    }),
    ("seccompDefault", Some("seccomp-default"), |c| json!(c.seccomp_default)),
    ("allowedUnsafeSysctls", None, |c| json!(c.allowed_unsafe_sysctls)),
    ("crashLoopBackOff.maxContainerRestartPeriod", None, |c| json!(format!("{}ms", c.max_restart_back_off.0))),
    ("oomScoreAdj", None, |c| json!(c.oom_score_adj)),
    ("logging.verbosity", Some("v"), |c| json!(c.verbosity)),
];

fn reserved(amounts: &super::Reserved) -> Value {
    json!({ "cpu": format!("{}m", amounts.cpu.milli()), "memory": amounts.memory.units(), "pid": amounts.pid })
}

/// All settings in force, with everything that is wrong with what was given. The values are usable only when no problem
/// is an error.
#[must_use]
pub fn settings(
    args: &Args,
    file: Option<(&str, &[u8])>,
    env: &BTreeMap<String, String>,
) -> (Vec<Setting>, Vec<Problem>) {
    let (config, problems) = load(args, file, env);
    let given = flags::given(args, env);
    let lines = file.map(|(path, bytes)| (path, lines(bytes)));
    let from = |name: &str, flag: Option<&str>| {
        let flag = flag.and_then(|flag| given.get(flag).cloned());
        let line = || lines.as_ref().and_then(|(path, lines)| lines.get(name).map(|line| format!("{path}:{line}")));
        flag.or_else(line).unwrap_or_else(|| "default".to_owned())
    };
    let setting = |(name, flag, value): &Row| Setting { name, value: value(&config), from: from(name, *flag) };
    (ROWS.iter().map(setting).collect(), problems)
}

/// The line of each field of the file, those of objects with the object's name before them.
fn lines(bytes: &[u8]) -> BTreeMap<String, u32> {
    let mut found = BTreeMap::new();
    for tree in document::read(bytes).into_iter().filter_map(|document| document.tree.ok()) {
        for entry in tree.entries() {
            found.insert(entry.key.clone(), entry.line);
            for inner in entry.value.entries() {
                found.insert(format!("{}.{}", entry.key, inner.key), inner.line);
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
logging:
  verbosity: 3
---
apiVersion: armlet.dev/v1alpha1
kind: NodeConfiguration
nodeName: edge1
";

    #[test]
    fn each_value_says_where_it_came_from() {
        let args = Args { seccomp_default: Some("false".to_owned()), ..Args::default() };
        let env = BTreeMap::from([("ARMLET_MAX_PODS".to_owned(), "9".to_owned())]);
        let (settings, problems) = settings(&args, Some(("c.yaml", FILE.as_bytes())), &env);
        assert!(problems.is_empty(), "{problems:?}");
        let told = |name: &str| {
            let setting = settings.iter().find(|setting| setting.name == name).unwrap();
            format!("{} {}", setting.value, setting.from)
        };
        assert_eq!(told("maxPods"), "9 ARMLET_MAX_PODS");
        assert_eq!(told("seccompDefault"), "false --seccomp-default");
        assert_eq!(told("logging.verbosity"), "3 c.yaml:6");
        assert_eq!(told("nodeName"), "\"edge1\" c.yaml:10");
        assert_eq!(told("failSwapOn"), "true default");
        assert_eq!(told("podPidsLimit"), "-1 default");
    }

    /// A field that is honoured and not shown would be forgotten here.
    #[test]
    fn every_field_that_is_honoured_is_shown() {
        use crate::wire::schema::Verdict;
        let shown = |name: &str| ROWS.iter().any(|(row, ..)| row.split('.').next() == Some(name));
        for field in super::super::kubelet::FIELDS.iter().chain(super::super::node::FIELDS) {
            let heading = matches!(field.name, "apiVersion" | "kind");
            assert_eq!(shown(field.name), matches!(field.verdict, Verdict::Used) && !heading, "{}", field.name);
        }
    }

    /// The flags of the rows are flags, and each flag that sets something has its row.
    #[test]
    fn every_flag_is_shown() {
        let command = <Args as clap::Args>::augment_args(clap::Command::new("x"));
        let flags: Vec<&str> = command.get_arguments().filter_map(clap::Arg::get_long).collect();
        for flag in &flags {
            assert_eq!(ROWS.iter().any(|(_, row, _)| row == &Some(*flag)), *flag != "config", "{flag}");
        }
        assert!(ROWS.iter().filter_map(|(_, flag, _)| *flag).all(|flag| flags.contains(&flag)));
    }
}
