//! KubeletConfiguration (`kubelet.config.k8s.io/v1beta1`): which fields armlet honours, and what they set.
//!
//! The names and defaults are those of `staging/src/k8s.io/kubelet/config/v1beta1/types.go` (v1.36), the bounds those of
//! `pkg/kubelet/apis/config/validation/validation.go`. A field that armlet does not honour yet is refused by name.

use super::read;
use super::setting::Section;
use super::{Config, Reserved, SwapBehavior, Threshold};
use crate::model::{Millis, Quantity};
use crate::wire::report::Report;
use crate::wire::schema::Kind::{Bool, I32, I64, List, Map, Object, Opaque, Text};
use crate::wire::schema::{Field, Kind, NOT_SUPPORTED, Verdict};
use serde_json::{Map as JsonMap, Value};

const fn field(name: &'static str, kind: Kind, verdict: Verdict) -> Field {
    Field { name, kind, verdict }
}
const fn used(name: &'static str, kind: Kind) -> Field {
    field(name, kind, Verdict::Used)
}
const fn only(name: &'static str, kind: Kind, values: &'static [&'static str]) -> Field {
    field(name, kind, Verdict::Only(values))
}
const fn idle(name: &'static str, why: &'static str) -> Field {
    field(name, Opaque, Verdict::NoEffect(why))
}
const fn refused(name: &'static str) -> Field {
    field(name, Opaque, Verdict::Refused)
}

/// For what upstream does by default and armlet does not: even to say no is a choice.
const fn choice(name: &'static str) -> Field {
    field(name, Opaque, Verdict::RefusedChoice)
}

const EVENTS: &str = "armlet acts on events, it does not poll";

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
    used(
        "logging",
        Object(&[
            only("format", Text, &["text"]),
            idle("flushFrequency", "log lines are written at once"),
            refused("options"),
            used("verbosity", I32),
            refused("vmodule"),
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
    // There is one way to do these, and saying so is fine.
    only("cgroupDriver", Text, &["cgroupfs"]),
    only("cgroupRoot", Text, &["/"]),
    only("cgroupsPerQOS", Bool, &["true"]),
    only("cpuManagerPolicy", Text, &["none"]),
    only("failCgroupV1", Bool, &["true"]),
    only("memoryManagerPolicy", Text, &["None"]),
    only("readOnlyPort", I32, &["0"]),
    only("registerNode", Bool, &["false"]),
    only("topologyManagerPolicy", Text, &["none"]),
    // Figures of loops that armlet does not have.
    idle("containerLogMaxWorkers", EVENTS),
    idle("containerLogMonitorInterval", "a log is rotated when it is full"),
    idle("cpuManagerReconcilePeriod", EVENTS),
    idle("fileCheckFrequency", "the manifests are watched"),
    idle("runtimeRequestTimeout", "the runtime is part of armlet"),
    idle("syncFrequency", EVENTS),
    idle("volumeStatsAggPeriod", "volumes are measured when asked for"),
    refused("address"),
    refused("authentication"),
    refused("authorization"),
    refused("configMapAndSecretChangeDetectionStrategy"),
    refused("containerRuntimeEndpoint"),
    refused("contentType"),
    refused("cpuManagerPolicyOptions"),
    choice("enableControllerAttachDetach"),
    choice("enableDebugFlagsHandler"),
    choice("enableDebuggingHandlers"),
    choice("enableProfilingHandler"),
    choice("enableServer"),
    choice("enableSystemLogHandler"),
    refused("enableSystemLogQuery"),
    refused("eventBurst"),
    refused("eventRecordQPS"),
    refused("evictionMaxPodGracePeriod"),
    refused("evictionMinimumReclaim"),
    refused("evictionPressureTransitionPeriod"),
    refused("evictionSoft"),
    refused("evictionSoftGracePeriod"),
    refused("featureGates"),
    refused("hairpinMode"),
    refused("healthzBindAddress"),
    refused("healthzPort"),
    refused("httpCheckFrequency"),
    refused("imageGCHighThresholdPercent"),
    refused("imageGCLowThresholdPercent"),
    refused("imageMaximumGCAge"),
    refused("imageMinimumGCAge"),
    refused("imagePullCredentialsVerificationPolicy"),
    refused("imageServiceEndpoint"),
    refused("iptablesDropBit"),
    refused("iptablesMasqueradeBit"),
    refused("kernelMemcgNotification"),
    refused("kubeAPIBurst"),
    refused("kubeAPIQPS"),
    refused("kubeReservedCgroup"),
    refused("kubeletCgroups"),
    choice("localStorageCapacityIsolation"),
    choice("makeIPTablesUtilChains"),
    refused("maxOpenFiles"),
    refused("maxParallelImagePulls"),
    refused("memoryReservationPolicy"),
    refused("memoryThrottlingFactor"),
    refused("mergeDefaultEvictionSettings"),
    refused("nodeLeaseDurationSeconds"),
    refused("nodeStatusMaxImages"),
    refused("nodeStatusReportFrequency"),
    refused("nodeStatusUpdateFrequency"),
    refused("podsPerCore"),
    refused("port"),
    refused("preloadedImagesVerificationAllowlist"),
    refused("protectKernelDefaults"),
    refused("providerID"),
    refused("qosReserved"),
    refused("registerWithTaints"),
    refused("registryBurst"),
    refused("registryPullQPS"),
    refused("reservedMemory"),
    refused("reservedSystemCPUs"),
    refused("rotateCertificates"),
    refused("runOnce"),
    choice("serializeImagePulls"),
    refused("serverTLSBootstrap"),
    refused("showHiddenMetricsForVersion"),
    refused("shutdownGracePeriod"),
    refused("shutdownGracePeriodByPodPriority"),
    refused("shutdownGracePeriodCriticalPods"),
    refused("staticPodURL"),
    refused("staticPodURLHeader"),
    refused("streamingConnectionIdleTimeout"),
    refused("systemCgroups"),
    refused("systemReservedCgroup"),
    refused("tlsCertFile"),
    refused("tlsCipherSuites"),
    refused("tlsCurvePreferences"),
    refused("tlsMinVersion"),
    refused("tlsPrivateKeyFile"),
    refused("topologyManagerPolicyOptions"),
    refused("topologyManagerScope"),
    refused("tracing"),
    refused("userNamespaces"),
    refused("volumePluginDir"),
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
    let mut enforced = vec![config.enforce_reserved];
    s.texts("enforceNodeAllocatable", enforcement, &mut enforced);
    config.enforce_reserved = enforced.contains(&true);
    reserved("systemReserved", &mut s, &mut config.system_reserved);
    reserved("kubeReserved", &mut s, &mut config.kube_reserved);
    eviction(&mut s, &mut config.eviction_hard_memory);
}

fn reserved(name: &str, section: &mut Section<'_, '_, '_>, into: &mut Reserved) {
    let Some(mut amounts) = section.map(name) else { return };
    let names: Vec<String> = amounts.values.keys().cloned().collect();
    for name in names {
        let quantity = |text: &str| Quantity::parse(text).map_err(|e| e.to_string());
        match name.as_str() {
            "cpu" => amounts.text(&name, quantity, &mut into.cpu),
            "memory" => amounts.text(&name, quantity, &mut into.memory),
            // Nothing of armlet measures or limits what pods keep on the disk yet.
            "ephemeral-storage" => amounts.report.error(&amounts.at(&name), NOT_SUPPORTED),
            "pid" => amounts.text(&name, |t| quantity(t).map(Quantity::units), &mut into.pid),
            _ => amounts.report.error(&amounts.at(&name), "must be cpu, memory or pid"),
        }
    }
}

/// Only what the memory threshold takes from the allocatable amount is honoured so far; nothing is evicted.
fn eviction(section: &mut Section<'_, '_, '_>, into: &mut Threshold) {
    let Some(mut signals) = section.map("evictionHard") else { return };
    let names: Vec<String> = signals.values.keys().cloned().collect();
    for name in names {
        if name == "memory.available" {
            signals.text(&name, threshold, into);
        } else {
            signals.report.error(&signals.at(&name), NOT_SUPPORTED);
        }
    }
}

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

/// Whether the pods' group is held to what is left.
fn enforcement(text: &str) -> Result<bool, String> {
    match text {
        "pods" => Ok(true),
        "none" => Ok(false),
        _ => Err(format!("{NOT_SUPPORTED}, only pods or none")),
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
