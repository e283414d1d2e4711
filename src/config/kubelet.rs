//! KubeletConfiguration (`kubelet.config.k8s.io/v1beta1`): which fields armlet honours, and what they set.
//!
//! The names and defaults are those of `staging/src/k8s.io/kubelet/config/v1beta1/types.go` (v1.36), the bounds those of
//! `pkg/kubelet/apis/config/validation/validation.go`. A file that people have is taken: a field that armlet does not honour
//! yet, and one that nobody knows, is remarked; what is honoured has to be right.

use super::read;
use super::setting::Section;
use super::{Config, SwapBehavior, Threshold, reserved};
use crate::model::{Millis, Quantity};
use crate::wire::report::Report;
use crate::wire::schema::Kind::{Bool, I32, I64, List, Map, Object, Opaque, Text};
use crate::wire::schema::{Field, Kind, Verdict, ignored as is_ignored};
use serde_json::{Map as JsonMap, Value};

const fn field(name: &'static str, kind: Kind, verdict: Verdict) -> Field {
    Field { name, kind, verdict }
}
const fn used(name: &'static str, kind: Kind) -> Field {
    field(name, kind, Verdict::Used)
}
/// There is one way to do it: `effect`. Of `others`, which are upstream's (none named: all there are), one is remarked.
const fn instead(name: &'static str, kind: Kind, effect: &'static str, others: &'static [&'static str]) -> Field {
    field(name, kind, Verdict::Instead { effect, others })
}
const fn idle(name: &'static str, why: &'static str) -> Field {
    field(name, Opaque, Verdict::NoEffect(why))
}
/// Upstream's, not honoured. `why`: what holds instead, where ignoring it could be taken for something weaker.
const fn ignored(name: &'static str, why: &'static str) -> Field {
    field(name, Opaque, Verdict::Ignored(why))
}

/// For what upstream does by default: even to say no is a choice.
const fn choice(name: &'static str, why: &'static str) -> Field {
    field(name, Opaque, Verdict::IgnoredChoice(why))
}

const EVENTS: &str = "armlet acts on events, it does not poll";
const SOCKET: &str = "the API is a unix socket that only root can open, and nothing listens on the network";
const NO_TLS: &str = "no TLS is served: the API is a unix socket that only root can open";
const ARCHIVES: &str = "images come from archives: every pod may use every image of the node";

/// The fields, those that are honoured first.
pub(super) const FIELDS: &[Field] = &[
    used("apiVersion", Text),
    used("kind", Text),
    used("allowedUnsafeSysctls", List(&Text)),
    used("clusterDNS", List(&Text)),
    used("clusterDomain", Text),
    used("containerLogMaxFiles", I32),
    used("containerLogMaxSize", Text),
    used("cpuCFSQuota", Bool),
    used("cpuCFSQuotaPeriod", Text),
    used("crashLoopBackOff", Object(&[used("maxContainerRestartPeriod", Text)])),
    used("enforceNodeAllocatable", List(&Text)),
    used("evictionHard", Map(&Text)),
    used("failSwapOn", Bool),
    used("kubeReserved", Map(&Kind::Quantity)),
    used("kubeReservedCgroup", Text),
    used(
        "logging",
        Object(&[
            instead("format", Text, "text", &["json"]),
            idle("flushFrequency", "log lines are written at once"),
            ignored("options", ""),
            used("verbosity", I32),
            ignored("vmodule", ""),
        ]),
    ),
    used("maxPods", I32),
    used("memorySwap", Object(&[used("swapBehavior", Text)])),
    used("oomScoreAdj", I32),
    used("podCIDR", Text),
    used("podLogsDir", Text),
    used("podPidsLimit", I64),
    used("resolvConf", Text),
    used("seccompDefault", Bool),
    used("singleProcessOOMKill", Bool),
    used("staticPodPath", Text),
    used("systemReserved", Map(&Kind::Quantity)),
    used("systemReservedCgroup", Text),
    // There is one way to do these.
    instead("cgroupDriver", Text, "cgroupfs", &["systemd"]),
    instead("cgroupRoot", Text, "/", &[]),
    instead("cgroupsPerQOS", Bool, "true", &[]),
    instead("cpuManagerPolicy", Text, "none", &["static"]),
    instead("failCgroupV1", Bool, "true", &[]),
    instead("memoryManagerPolicy", Text, "None", &["Static"]),
    instead("readOnlyPort", I32, "0", &[]),
    instead("registerNode", Bool, "false", &[]),
    instead("topologyManagerPolicy", Text, "none", &["best-effort", "restricted", "single-numa-node"]),
    // Figures of loops that armlet does not have.
    idle("containerLogMaxWorkers", EVENTS),
    idle("containerLogMonitorInterval", "a log is rotated when it is full"),
    idle("cpuManagerReconcilePeriod", EVENTS),
    idle("fileCheckFrequency", "the manifests are watched"),
    idle("runtimeRequestTimeout", "the runtime is part of armlet"),
    idle("syncFrequency", EVENTS),
    idle("volumeStatsAggPeriod", "volumes are measured when asked for"),
    // Not honoured yet.
    ignored("address", SOCKET),
    ignored("authentication", "nobody is asked who they are: the API is a unix socket that only root can open"),
    ignored("authorization", "whoever can open the API's unix socket may do everything: only root can"),
    ignored("configMapAndSecretChangeDetectionStrategy", ""),
    ignored("containerRuntimeEndpoint", ""),
    ignored("contentType", ""),
    ignored("cpuManagerPolicyOptions", ""),
    choice("enableControllerAttachDetach", ""),
    choice("enableDebugFlagsHandler", "it is not served"),
    choice("enableDebuggingHandlers", "logs and exec are served, on a unix socket that only root can open"),
    choice("enableProfilingHandler", "it is not served"),
    choice("enableServer", SOCKET),
    choice("enableSystemLogHandler", "it is not served"),
    ignored("enableSystemLogQuery", "it is not served"),
    ignored("eventBurst", ""),
    ignored("eventRecordQPS", ""),
    ignored("evictionMaxPodGracePeriod", "nothing is evicted"),
    ignored("evictionMinimumReclaim", "nothing is evicted"),
    ignored("evictionPressureTransitionPeriod", "nothing is evicted"),
    ignored("evictionSoft", "nothing is evicted"),
    ignored("evictionSoftGracePeriod", "nothing is evicted"),
    ignored("featureGates", "armlet has none: what it does is not to be switched"),
    ignored("hairpinMode", ""),
    ignored("healthzBindAddress", SOCKET),
    ignored("healthzPort", SOCKET),
    ignored("httpCheckFrequency", ""),
    ignored("imageGCHighThresholdPercent", "no image is deleted"),
    ignored("imageGCLowThresholdPercent", "no image is deleted"),
    ignored("imageMaximumGCAge", "no image is deleted"),
    ignored("imageMinimumGCAge", "no image is deleted"),
    ignored("imagePullCredentialsVerificationPolicy", ARCHIVES),
    ignored("imageServiceEndpoint", ""),
    ignored("iptablesDropBit", ""),
    ignored("iptablesMasqueradeBit", ""),
    ignored("kernelMemcgNotification", ""),
    ignored("kubeAPIBurst", ""),
    ignored("kubeAPIQPS", ""),
    ignored("kubeletCgroups", ""),
    choice("localStorageCapacityIsolation", "what pods write to the disk is not limited"),
    choice("makeIPTablesUtilChains", "there are no rules of iptables"),
    ignored("maxOpenFiles", ""),
    ignored("maxParallelImagePulls", ""),
    ignored("memoryReservationPolicy", ""),
    ignored("memoryThrottlingFactor", ""),
    ignored("mergeDefaultEvictionSettings", ""),
    ignored("nodeLeaseDurationSeconds", ""),
    ignored("nodeStatusMaxImages", ""),
    ignored("nodeStatusReportFrequency", ""),
    ignored("nodeStatusUpdateFrequency", ""),
    ignored("podsPerCore", ""),
    ignored("port", SOCKET),
    ignored("preloadedImagesVerificationAllowlist", ARCHIVES),
    ignored("protectKernelDefaults", "the kernel's settings are neither compared nor changed, but for process 1"),
    ignored("providerID", ""),
    ignored("qosReserved", ""),
    ignored("registerWithTaints", "the node is not registered, and a static pod tolerates all"),
    ignored("registryBurst", ""),
    ignored("registryPullQPS", ""),
    ignored("reservedMemory", ""),
    ignored("reservedSystemCPUs", "containers run on all CPUs"),
    ignored("rotateCertificates", NO_TLS),
    ignored("runOnce", ""),
    choice("serializeImagePulls", ""),
    ignored("serverTLSBootstrap", NO_TLS),
    ignored("showHiddenMetricsForVersion", ""),
    ignored("shutdownGracePeriod", ""),
    ignored("shutdownGracePeriodByPodPriority", ""),
    ignored("shutdownGracePeriodCriticalPods", ""),
    ignored("staticPodURL", "manifests come from staticPodPath"),
    ignored("staticPodURLHeader", "manifests come from staticPodPath"),
    ignored("streamingConnectionIdleTimeout", "a session ends with its client or its program, however long it is idle"),
    ignored("systemCgroups", ""),
    ignored("tlsCertFile", NO_TLS),
    ignored("tlsCipherSuites", NO_TLS),
    ignored("tlsCurvePreferences", NO_TLS),
    ignored("tlsMinVersion", NO_TLS),
    ignored("tlsPrivateKeyFile", NO_TLS),
    ignored("topologyManagerPolicyOptions", ""),
    ignored("topologyManagerScope", ""),
    ignored("tracing", ""),
    ignored("userNamespaces", "pods have none"),
    ignored("volumePluginDir", ""),
];

/// Puts what the document says into the configuration.
pub(super) fn apply(document: &JsonMap<String, Value>, config: &mut Config, report: &mut Report<'_>) {
    let mut s = Section::document(document, report);
    s.text("staticPodPath", read::absolute, &mut config.static_pod_path);
    s.text("podLogsDir", read::absolute, &mut config.pod_logs_dir);
    s.text("resolvConf", resolv_conf, &mut config.resolv_conf);
    s.text("clusterDomain", cluster_domain, &mut config.cluster_domain);
    s.text("podCIDR", read::cidr, &mut config.pod_cidr);
    s.texts("clusterDNS", read::address, &mut config.cluster_dns);
    s.texts("allowedUnsafeSysctls", sysctl_pattern, &mut config.allowed_unsafe_sysctls);
    s.flag("cpuCFSQuota", &mut config.cpu_cfs_quota);
    s.flag("failSwapOn", &mut config.fail_swap_on);
    s.flag("seccompDefault", &mut config.seccomp_default);
    s.flag("singleProcessOOMKill", &mut config.single_process_oom_kill);
    s.number("maxPods", 0, i64::from(i32::MAX), &mut config.max_pods);
    s.number("oomScoreAdj", -1000, 1000, &mut config.oom_score_adj);
    s.number("containerLogMaxFiles", 2, i64::from(i32::MAX), &mut config.container_log_max_files);
    s.text("containerLogMaxSize", read::bytes, &mut config.container_log_max_bytes);
    s.text("cpuCFSQuotaPeriod", quota_period, &mut config.cpu_cfs_quota_period_us);
    s.check("podPidsLimit", |v| pids_limit(v.as_i64()), &mut config.pod_pids_limit);
    if let Some(mut logging) = s.inside("logging") {
        logging.number("verbosity", 0, 10, &mut config.verbosity);
    }
    if let Some(mut back_off) = s.inside("crashLoopBackOff") {
        back_off.text("maxContainerRestartPeriod", back_off_limit, &mut config.max_restart_back_off);
    }
    if let Some(mut swap) = s.inside("memorySwap") {
        swap.text("swapBehavior", swap_behavior, &mut config.swap);
    }
    reserved::apply(&mut s, config);
    eviction(&mut s, &mut config.eviction_hard_memory);
}

/// Only what the memory threshold takes from the allocatable amount is honoured so far; nothing is evicted.
fn eviction(section: &mut Section<'_, '_, '_>, into: &mut Threshold) {
    let Some(mut signals) = section.map("evictionHard") else { return };
    let names: Vec<String> = signals.values.keys().cloned().collect();
    for name in names {
        match name.as_str() {
            "memory.available" => signals.text(&name, threshold, into),
            other if SIGNALS.contains(&other) => {
                signals.report.warning(&signals.at(&name), is_ignored("nothing is evicted"));
            }
            _ => {
                let why = format!("must be memory.available or one of {}", SIGNALS.join(", "));
                signals.report.error(&signals.at(&name), why);
            }
        }
    }
}

/// Upstream's other signals (`pkg/kubelet/eviction/api/types.go`).
const SIGNALS: [&str; 7] = [
    "nodefs.available",
    "nodefs.inodesFree",
    "imagefs.available",
    "imagefs.inodesFree",
    "containerfs.available",
    "containerfs.inodesFree",
    "pid.available",
];

fn threshold(text: &str) -> Result<Threshold, String> {
    match read::percentage(text) {
        Some(share) => share.map(Threshold::BasisPoints),
        None => Quantity::parse(text).map(|q| Threshold::Bytes(q.units())).map_err(|e| e.to_string()),
    }
}

fn quota_period(text: &str) -> Result<u64, String> {
    let nanos = read::duration(text)?;
    if !(1_000_000..=1_000_000_000).contains(&nanos) {
        return Err("must be between 1ms and 1s, inclusive".to_owned());
    }
    Ok(nanos / 1000)
}

fn back_off_limit(text: &str) -> Result<Millis, String> {
    let nanos = read::duration(text)?;
    if !(1_000_000_000..=300_000_000_000).contains(&nanos) {
        return Err("must be between 1s and 300s, inclusive".to_owned());
    }
    Ok(Millis(nanos / 1_000_000))
}

fn pids_limit(value: Option<i64>) -> Result<Option<u64>, String> {
    match value {
        Some(-1) => Ok(None),
        Some(limit) if limit > 0 => Ok(u64::try_from(limit).ok()),
        _ => Err("must be -1 (no limit) or greater than 0".to_owned()),
    }
}

fn swap_behavior(text: &str) -> Result<SwapBehavior, String> {
    match text {
        "" | "NoSwap" => Ok(SwapBehavior::NoSwap),
        "LimitedSwap" => Ok(SwapBehavior::LimitedSwap),
        _ => Err("must be NoSwap or LimitedSwap".to_owned()),
    }
}

fn resolv_conf(text: &str) -> Result<String, String> {
    if text.is_empty() { Ok(String::new()) } else { read::absolute(text) }
}

pub(super) fn cluster_domain(text: &str) -> Result<String, String> {
    let faults = if text.is_empty() { Vec::new() } else { crate::wire::names::dns_subdomain(text) };
    match faults.into_iter().next() {
        Some(fault) => Err(fault),
        None => Ok(text.to_owned()),
    }
}

fn sysctl_pattern(text: &str) -> Result<String, String> {
    let name = text.replace('/', ".");
    let groups = ["kernel.shm", "kernel.msg", "fs.mqueue.", "net."];
    if name == "kernel.sem" || groups.iter().any(|g| name.starts_with(g)) {
        return Ok(name);
    }
    Err("is not kept per pod by the kernel: only kernel.shm*, kernel.msg*, kernel.sem, fs.mqueue.* and net.*"
        .to_owned())
}
