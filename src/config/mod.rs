//! Flags, configuration file and board data, read into one validated value. Never reaches the system.
//!
//! Precedence: a flag, else the file, else the default. The file holds up to two documents: a
//! KubeletConfiguration (`kubelet.config.k8s.io/v1beta1`) with upstream's fields, and a NodeConfiguration
//! (`armlet.dev/v1alpha1`) with what only armlet knows.

use crate::model::{Millis, Quantity};
use crate::wire::problem::Problem;
use std::collections::BTreeMap;
use std::net::IpAddr;

/// Everything that can be set, validated. Built once at start.
#[derive(Debug, Clone, PartialEq)]
pub struct Config {
    /// The node's name, lower case. Flag `--node-name` (or `--hostname-override`); none: the host's name.
    pub node_name: Option<String>,
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
    /// Bytes that all logs together may take; none: no budget beyond the above. Field `logBudget`.
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
    /// Memory that pods cannot have, `evictionHard["memory.available"]`. 100 MiB.
    pub eviction_hard_memory: Threshold,
    /// RuntimeDefault where a pod says nothing. false. Flag `--seccomp-default`, field `seccompDefault`.
    pub seccomp_default: bool,
    /// The longest back-off between restarts. 300 s. Field `crashLoopBackOff.maxContainerRestartPeriod`.
    pub max_restart_back_off: Millis,
    /// Refuse to start with swap on. true. Field `failSwapOn`.
    pub fail_swap_on: bool,
    /// What swap pods may use. NoSwap. Field `memorySwap.swapBehavior`.
    pub swap: SwapBehavior,
    /// The group below which `kubepods` lies. `/`. Field `cgroupRoot`.
    pub cgroup_root: String,
    /// The agent's oom_score_adj. -999. Field `oomScoreAdj`.
    pub oom_score_adj: i32,
    /// Sysctls beyond the safe ones: names, or prefixes that end in `*`. None. Field `allowedUnsafeSysctls`.
    pub allowed_unsafe_sysctls: Vec<String>,
    /// Log verbosity: 0 info, 4 debug, 6 and above trace. 0. Flag `--v`, field `logging.verbosity`.
    pub verbosity: u32,
}

/// Amounts set aside.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Reserved {
    /// Cores.
    pub cpu: Quantity,
    /// Bytes.
    pub memory: Quantity,
    /// Bytes.
    pub ephemeral_storage: Quantity,
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
            eviction_hard_memory: Threshold::Bytes(100 << 20),
            seccomp_default: false,
            max_restart_back_off: Millis::from_secs(300),
            fail_swap_on: true,
            swap: SwapBehavior::NoSwap,
            cgroup_root: "/".to_owned(),
            oom_score_adj: -999,
            allowed_unsafe_sysctls: Vec::new(),
            verbosity: 0,
        }
    }
}

/// The flags of `armlet agent`, as given.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Args;

/// Reads flags, file and environment into one value, and names everything that is wrong with them.
///
/// The value is usable only when no problem is an error. `file` is the path and content of the configuration file.
#[must_use]
pub fn load(args: &Args, file: Option<(&str, &[u8])>, env: &BTreeMap<String, String>) -> (Config, Vec<Problem>) {
    let _ = (args, file, env);
    (Config::default(), Vec::new())
}
