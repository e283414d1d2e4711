//! Flags, configuration files and board data, read into one validated value. Reaches the system for those files only.
//!
//! Precedence: a flag, else its environment variable, else the last drop-in that says something, else the configuration
//! file, else the default. A file holds up to two documents: a KubeletConfiguration (`kubelet.config.k8s.io/v1beta1`) with
//! upstream's fields, and a NodeConfiguration (`armlet.dev/v1alpha1`) with what only armlet knows. A drop-in is put over
//! what came before field by field: lists are replaced, maps merged. The documents are read by `wire`'s reader of marked
//! trees, the only thing of that room that is used here.

mod files;
mod flag_table;
mod flags;
mod kubelet;
mod node;
mod read;
mod reserved;
mod setting;
mod show;

pub use crate::wire::Problem;
pub use files::{Files, FilesError};
pub use flags::{Args, DEFAULT_CONFIG, DEFAULT_CONFIG_DIR};
pub use reserved::LEAST_OWN_MEMORY;
pub use show::{Setting, settings};

use crate::model::{Millis, Quantity};
use crate::wire::document::Document;
use crate::wire::problem::{Path, by_line};
use crate::wire::report::Report;
use crate::wire::schema::{self, Field};
use serde_json::Value;
use std::collections::BTreeMap;
use std::net::IpAddr;

/// Everything that can be set, validated. Built once at start.
#[derive(Debug, Clone, PartialEq)]
pub struct Config {
    /// The node's name, lower case. Flag `--node-name` (or `--hostname-override`); none: the host's name.
    pub node_name: Option<String>,
    /// Labels of the node beside those that every node has. None. Flag `--node-labels`, field `nodeLabels`.
    pub node_labels: BTreeMap<String, String>,
    /// Durable data. `/var/lib/armlet`. Flag `--root-dir`, field `dataDir`.
    pub data_dir: String,
    /// What a reboot makes void. `/run/armlet`. Field `runDir`.
    pub run_dir: String,
    /// The unix socket of the API. `<run_dir>/armlet.sock`. Field `socketPath`.
    pub socket_path: String,
    /// Image archives imported at start. `<data_dir>/preload`. Field `preloadDir`.
    pub preload_dir: String,
    /// Static pods: a folder or one file. `/etc/armlet/manifests`. Flag `--manifests`, field `staticPodPath`.
    pub static_pod_path: String,
    /// Container logs. `/var/log/pods`. Field `podLogsDir`.
    pub pod_logs_dir: String,
    /// A container's log is rotated at this size in bytes. 10 MiB. Field `containerLogMaxSize`.
    pub container_log_max_bytes: u64,
    /// How many files a container's log has, the current one included; at least 2. 5. Field `containerLogMaxFiles`.
    pub container_log_max_files: u32,
    /// Bytes that all logs together may take; none: a tenth of the file system they lie on, at most 1 GiB.
    /// Field `logBudget`.
    pub log_budget_bytes: Option<u64>,
    /// The pods' name servers for dnsPolicy ClusterFirst. None. Flag `--cluster-dns`, field `clusterDNS`.
    pub cluster_dns: Vec<IpAddr>,
    /// The cluster's domain. Empty. Flag `--cluster-domain`, field `clusterDomain`.
    pub cluster_domain: String,
    /// The node's resolver file; empty: none. `/etc/resolv.conf`. Field `resolvConf`.
    pub resolv_conf: String,
    /// The bridge's addresses. 10.88.0.0/16. Flag `--pod-cidr`, fields `podCIDR`.
    pub pod_cidr: (IpAddr, u8),
    /// How many pods may run. 110. Flag `--max-pods`, field `maxPods`.
    pub max_pods: u32,
    /// Processes of one pod; none: no limit. Field `podPidsLimit`.
    pub pod_pids_limit: Option<u64>,
    /// Whether cpu limits become cpu.max. true. Field `cpuCFSQuota`.
    pub cpu_cfs_quota: bool,
    /// The period of cpu.max. 100 ms. Field `cpuCFSQuotaPeriod`.
    pub cpu_cfs_quota_period_us: u64,
    /// The kernel kills one process instead of the whole container. false. Field `singleProcessOOMKill`.
    pub single_process_oom_kill: bool,
    /// Set aside for the system. Nothing. Field `systemReserved`.
    pub system_reserved: Reserved,
    /// Set aside for armlet. Nothing. Field `kubeReserved`.
    pub kube_reserved: Reserved,
    /// Whether the group of all pods is held to what the two above leave; else to what there is. true. Field
    /// `enforceNodeAllocatable`.
    pub enforce_reserved: bool,
    /// What is written to the group of what armlet is reserved for. Nothing. Field `enforceNodeAllocatable`.
    pub enforce_kube: Enforced,
    /// The same for what the system is reserved for.
    pub enforce_system: Enforced,
    /// The group whose limits are `kubeReserved`, below the cgroup mount; empty: none. Field `kubeReservedCgroup`.
    pub kube_reserved_cgroup: String,
    /// The group whose limits are `systemReserved`; empty: none. Field `systemReservedCgroup`.
    pub system_reserved_cgroup: String,
    /// Memory that pods cannot have, `evictionHard[memory.available]`. 100 MiB.
    pub eviction_hard_memory: Threshold,
    /// RuntimeDefault where a pod says nothing. false. Flag `--seccomp-default`, field `seccompDefault`.
    pub seccomp_default: bool,
    /// The longest back-off between restarts. 300 s. Field `crashLoopBackOff.maxContainerRestartPeriod`.
    pub max_restart_back_off: Millis,
    /// Refuse to start with swap on. true. Field `failSwapOn`.
    pub fail_swap_on: bool,
    /// What swap pods may use. NoSwap. Field `memorySwap.swapBehavior`.
    pub swap: SwapBehavior,
    /// The agent's oom_score_adj. -999. Field `oomScoreAdj`.
    pub oom_score_adj: i32,
    /// Sysctls beyond the safe ones: names, or prefixes that end in `*`. None. Field `allowedUnsafeSysctls`.
    pub allowed_unsafe_sysctls: Vec<String>,
    /// Log verbosity: 0 info, 4 debug, 6 and above trace. 0. Flag `--v`, field `logging.verbosity`.
    pub verbosity: u32,
    /// A file that gets armlet's own log beside standard error; none. Field `logFile`.
    pub log_file: Option<String>,
    /// Bytes of that file; one more is kept of what was in it before. 1 MiB. Field `logFileMaxSize`.
    pub log_file_max_bytes: u64,
}

/// Amounts set aside.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Reserved {
    /// Cores.
    pub cpu: Quantity,
    /// Bytes.
    pub memory: Quantity,
    /// Process ids.
    pub pid: u64,
}

/// An eviction threshold.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Threshold {
    /// An amount in bytes.
    Bytes(u64),
    /// A share of the capacity in hundredths of a percent.
    BasisPoints(u32),
}

/// What of an amount that is set aside is also the limit of whom it is set aside for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Enforced {
    /// Nothing.
    No,
    /// What can be had later instead: processor time.
    Compressible,
    /// Memory and processes too.
    All,
}

/// `memorySwap.swapBehavior`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SwapBehavior {
    /// Containers do not swap.
    NoSwap,
    /// Burstable pods get a share of the swap, by their memory request.
    LimitedSwap,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            node_name: None,
            node_labels: BTreeMap::new(),
            data_dir: "/var/lib/armlet".to_owned(),
            run_dir: "/run/armlet".to_owned(),
            socket_path: "/run/armlet/armlet.sock".to_owned(),
            preload_dir: "/var/lib/armlet/preload".to_owned(),
            static_pod_path: "/etc/armlet/manifests".to_owned(),
            pod_logs_dir: "/var/log/pods".to_owned(),
            container_log_max_bytes: 10 << 20,
            container_log_max_files: 5,
            log_budget_bytes: None,
            cluster_dns: Vec::new(),
            cluster_domain: String::new(),
            resolv_conf: "/etc/resolv.conf".to_owned(),
            pod_cidr: (IpAddr::from([10, 88, 0, 0]), 16),
            max_pods: 110,
            pod_pids_limit: None,
            cpu_cfs_quota: true,
            cpu_cfs_quota_period_us: 100_000,
            single_process_oom_kill: false,
            system_reserved: Reserved::default(),
            kube_reserved: Reserved::default(),
            enforce_reserved: true,
            enforce_kube: Enforced::No,
            enforce_system: Enforced::No,
            kube_reserved_cgroup: String::new(),
            system_reserved_cgroup: String::new(),
            eviction_hard_memory: Threshold::Bytes(100 << 20),
            seccomp_default: false,
            max_restart_back_off: Millis::from_secs(300),
            fail_swap_on: true,
            swap: SwapBehavior::NoSwap,
            oom_score_adj: -999,
            allowed_unsafe_sysctls: Vec::new(),
            verbosity: 0,
            log_file: None,
            log_file_max_bytes: 1 << 20,
        }
    }
}

impl Config {
    /// Moves the data folder, and the preload folder with it unless that was set apart.
    fn set_data_dir(&mut self, dir: String) {
        if self.preload_dir == below(&self.data_dir, "preload") {
            self.preload_dir = below(&dir, "preload");
        }
        self.data_dir = dir;
    }

    /// Moves the run folder, and the socket with it unless that was set apart.
    fn set_run_dir(&mut self, dir: String) {
        if self.socket_path == below(&self.run_dir, "armlet.sock") {
            self.socket_path = below(&dir, "armlet.sock");
        }
        self.run_dir = dir;
    }
}

fn below(dir: &str, name: &str) -> String {
    format!("{}/{name}", dir.trim_end_matches('/'))
}

/// Reads flags, environment and files into one value, and names everything that is wrong with them.
///
/// The value is usable only when no problem is an error.
#[must_use]
pub fn load(args: &Args, files: &Files, env: &BTreeMap<String, String>) -> (Config, Vec<Problem>) {
    let mut config = Config::default();
    let mut problems = files.problems();
    for (path, documents) in files.documents() {
        read_file(path, &documents, &mut config, &mut problems);
    }
    flags::apply(args, env, &mut config, &mut problems);
    (config, problems)
}

/// How what a document says gets into the configuration.
type Apply = fn(&serde_json::Map<String, Value>, &mut Config, &mut Report<'_>);

/// The kinds of documents, how each is read, and whether it may have fields that armlet does not know: upstream's was
/// written for other kubelets too.
const KINDS: [(&str, &str, &[Field], Apply, bool); 2] = [
    ("kubelet.config.k8s.io/v1beta1", "KubeletConfiguration", kubelet::FIELDS, kubelet::apply, true),
    ("armlet.dev/v1alpha1", "NodeConfiguration", node::FIELDS, node::apply, false),
];

fn read_file(path: &str, documents: &[Document], config: &mut Config, problems: &mut Vec<Problem>) {
    let mut seen: BTreeMap<&str, bool> = BTreeMap::new();
    for document in documents {
        let begin = problems.len();
        problems.extend(document.problems(path));
        let Ok(tree) = &document.tree else { continue };
        let mut report = Report::new(path, document.index, tree, Path::root());
        let api_version = tree.text_of("apiVersion").unwrap_or("");
        let kind = tree.text_of("kind").unwrap_or("");
        match KINDS.iter().find(|(version, name, ..)| *version == api_version && *name == kind) {
            None => report.error(&Path::root(), unknown_kind(api_version, kind)),
            Some((_, name, fields, apply, lenient)) => {
                report = report.lenient(*lenient);
                let other_network = seen.values().any(|has_network| *has_network);
                let has_network = tree.get("podCIDR").is_some();
                if seen.insert(name, has_network).is_some() {
                    report.duplicate(&Path::root().field("kind"), name);
                }
                if has_network && other_network {
                    report.forbidden(&Path::root().field("podCIDR"), "it is set in another document of this file too");
                }
                let values = schema::object(tree, fields, &Path::root(), &mut report);
                report.seal();
                apply(&values, config, &mut report);
            }
        }
        problems.extend(report.into_problems());
        by_line(problems.get_mut(begin..).unwrap_or_default());
    }
}

fn unknown_kind(api_version: &str, kind: &str) -> String {
    let known: Vec<String> = KINDS.iter().map(|(version, name, ..)| format!("{version} {name}")).collect();
    format!("apiVersion {api_version:?} and kind {kind:?} are not known here: expected {}", known.join(" or "))
}

#[cfg(test)]
mod defaults_tests;
#[cfg(test)]
mod files_tests;
#[cfg(test)]
mod flags_tests;
#[cfg(test)]
mod tests;
