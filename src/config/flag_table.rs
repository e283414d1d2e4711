//! The flags: armlet's own, and those of upstream's kubelet (`cmd/kubelet/app/options`, v1.36) that people have in their
//! units and scripts. One that is in neither list is unknown, and refused.

/// How a flag's value is written.
#[derive(Debug, Clone, Copy)]
pub(super) enum Takes {
    /// A text.
    Text,
    /// Nothing, or `=true` or `=false`.
    Bool,
    /// An integer.
    Number,
    /// Texts with commas between.
    List,
    /// Keys and values with this sign between, and commas between the pairs.
    Pairs(char),
}

/// What a flag does.
#[derive(Debug, Clone, Copy)]
pub(super) enum Does {
    /// It sets this field of KubeletConfiguration, as far as armlet honours that; else it is remarked like the field.
    Field(&'static str),
    /// It sets this field of NodeConfiguration.
    Node(&'static str),
    /// It says where the configuration is.
    Own,
    /// It is upstream's and has no meaning here; why.
    Nothing(&'static str),
}

/// A flag.
#[derive(Debug)]
pub(super) struct Flag {
    /// Its name without the dashes.
    pub name: &'static str,
    /// Another name, or none.
    pub alias: &'static str,
    /// How its value is written.
    pub takes: Takes,
    /// What it does.
    pub does: Does,
    /// The value's name in the help.
    pub value: &'static str,
    /// For people; nothing: it is not shown.
    pub help: &'static str,
}

const fn flag(name: &'static str, takes: Takes, does: Does) -> Flag {
    Flag { name, alias: "", takes, does, value: "VALUE", help: "" }
}
/// One that stands for a field.
const fn sets(name: &'static str, takes: Takes, field: &'static str) -> Flag {
    flag(name, takes, Field(field))
}
/// One without a meaning here.
const fn none(name: &'static str, takes: Takes, why: &'static str) -> Flag {
    flag(name, takes, Nothing(why))
}

impl Flag {
    const fn help(self, value: &'static str, help: &'static str) -> Self {
        Self { value, help, ..self }
    }

    const fn or(self, alias: &'static str) -> Self {
        Self { alias, ..self }
    }
}

use Does::{Field, Node, Nothing, Own};
use Takes::{Bool, List, Number, Pairs, Text};

const CLUSTER: &str = "this version joins no cluster";
const RUNTIME: &str = "the container runtime is part of armlet";
const REGISTRY: &str = "images come from archives";
const CADVISOR: &str = "armlet has no cAdvisor";
const ATTEMPTS: &str = "the newest attempt of a container and the one before it are kept";
const LOGGING: &str = "the log is text, written at once to standard error";
const GONE: &str = "upstream removed it";

/// All of them, in the order of the help; the rest sorted.
pub(super) const ALL: &[Flag] = &[
    flag("config", Text, Own).help("FILE", "Configuration file [default: /etc/armlet/config.yaml, when it is there]"),
    flag("config-dir", Text, Own).help(
        "DIR",
        "Folder of *.conf files that are put over it, in order [default: /etc/armlet/config.d, when it is there]",
    ),
    flag("node-name", Text, Node("nodeName"))
        .or("hostname-override")
        .help("NAME", "The node's name [default: the host's name]"),
    flag("node-labels", Pairs('='), Node("nodeLabels"))
        .help("KEY=VALUE,...", "Labels of the node beside its own, for nodeSelector"),
    flag("root-dir", Text, Node("dataDir")).help("DIR", "Folder of durable data [default: /var/lib/armlet]"),
    flag("run-dir", Text, Node("runDir"))
        .help("DIR", "Folder of sockets and of what a reboot makes void [default: /run/armlet]"),
    flag("socket", Text, Node("socketPath"))
        .help("PATH", "The API's unix socket [default: armlet.sock in the run folder]"),
    sets("manifests", Text, "staticPodPath")
        .or("pod-manifest-path")
        .help("PATH", "Static pods: a folder of manifests or one file [default: /etc/armlet/manifests]"),
    sets("pod-cidr", Text, "podCIDR").help("NETWORK", "Network of the pods [default: 10.88.0.0/16]"),
    sets("cluster-dns", List, "clusterDNS").help("ADDRESSES", "Name servers of the pods, separated by commas"),
    sets("cluster-domain", Text, "clusterDomain").help("DOMAIN", "Domain of the cluster"),
    sets("resolv-conf", Text, "resolvConf").help("FILE", "Resolver file of the node [default: /etc/resolv.conf]"),
    sets("max-pods", Number, "maxPods").help("COUNT", "How many pods may run [default: 110]"),
    sets("pod-max-pids", Number, "podPidsLimit").help("COUNT", "Processes of one pod [default: -1, no limit]"),
    sets("container-log-max-size", Text, "containerLogMaxSize")
        .help("BYTES", "Size at which a container's log is rotated [default: 10Mi]"),
    sets("container-log-max-files", Number, "containerLogMaxFiles")
        .help("COUNT", "Files of a container's log [default: 5]"),
    sets("system-reserved", Pairs('='), "systemReserved")
        .help("KEY=AMOUNT,...", "cpu, memory and pid that pods cannot have, for the system"),
    sets("kube-reserved", Pairs('='), "kubeReserved").help("KEY=AMOUNT,...", "The same for armlet"),
    sets("eviction-hard", Pairs('<'), "evictionHard")
        .help("SIGNAL<AMOUNT,...", "Memory that admission leaves free [default: memory.available<100Mi]"),
    sets("seccomp-default", Bool, "seccompDefault")
        .help("BOOL", "Filter system calls of pods that say nothing about it [default: false]"),
    sets("allowed-unsafe-sysctls", List, "allowedUnsafeSysctls")
        .help("NAMES", "Sysctls that pods may set beside the safe ones, or prefixes that end in *"),
    sets("fail-swap-on", Bool, "failSwapOn").help("BOOL", "Refuse to start while swap is on [default: true]"),
    sets("v", Number, "logging.verbosity").help("LEVEL", "Log more: 0 to 10 [default: 0]"),
    // Others that stand for fields.
    sets("address", Text, "address"),
    sets("anonymous-auth", Bool, "authentication.anonymous.enabled"),
    sets("authentication-token-webhook", Bool, "authentication.webhook.enabled"),
    sets("authentication-token-webhook-cache-ttl", Text, "authentication.webhook.cacheTTL"),
    sets("authorization-mode", Text, "authorization.mode"),
    sets("authorization-webhook-cache-authorized-ttl", Text, "authorization.webhook.cacheAuthorizedTTL"),
    sets("authorization-webhook-cache-unauthorized-ttl", Text, "authorization.webhook.cacheUnauthorizedTTL"),
    sets("cgroup-driver", Text, "cgroupDriver"),
    sets("cgroup-root", Text, "cgroupRoot"),
    sets("cgroups-per-qos", Bool, "cgroupsPerQOS"),
    sets("client-ca-file", Text, "authentication.x509.clientCAFile"),
    sets("container-runtime-endpoint", Text, "containerRuntimeEndpoint"),
    sets("cpu-cfs-quota", Bool, "cpuCFSQuota"),
    sets("cpu-cfs-quota-period", Text, "cpuCFSQuotaPeriod"),
    sets("cpu-manager-policy", Text, "cpuManagerPolicy"),
    sets("cpu-manager-policy-options", Pairs('='), "cpuManagerPolicyOptions"),
    sets("cpu-manager-reconcile-period", Text, "cpuManagerReconcilePeriod"),
    sets("enable-controller-attach-detach", Bool, "enableControllerAttachDetach"),
    sets("enable-debugging-handlers", Bool, "enableDebuggingHandlers"),
    sets("enable-server", Bool, "enableServer"),
    sets("enforce-node-allocatable", List, "enforceNodeAllocatable"),
    sets("event-burst", Number, "eventBurst"),
    sets("event-qps", Number, "eventRecordQPS"),
    sets("eviction-max-pod-grace-period", Number, "evictionMaxPodGracePeriod"),
    sets("eviction-minimum-reclaim", Pairs('='), "evictionMinimumReclaim"),
    sets("eviction-pressure-transition-period", Text, "evictionPressureTransitionPeriod"),
    sets("eviction-soft", Pairs('<'), "evictionSoft"),
    sets("eviction-soft-grace-period", Pairs('='), "evictionSoftGracePeriod"),
    sets("fail-cgroupv1", Bool, "failCgroupV1"),
    sets("feature-gates", Pairs('='), "featureGates"),
    sets("file-check-frequency", Text, "fileCheckFrequency"),
    sets("hairpin-mode", Text, "hairpinMode"),
    sets("healthz-bind-address", Text, "healthzBindAddress"),
    sets("healthz-port", Number, "healthzPort"),
    sets("http-check-frequency", Text, "httpCheckFrequency"),
    sets("image-gc-high-threshold", Number, "imageGCHighThresholdPercent"),
    sets("image-gc-low-threshold", Number, "imageGCLowThresholdPercent"),
    sets("image-service-endpoint", Text, "imageServiceEndpoint"),
    sets("iptables-drop-bit", Number, "iptablesDropBit"),
    sets("iptables-masquerade-bit", Number, "iptablesMasqueradeBit"),
    sets("kernel-memcg-notification", Bool, "kernelMemcgNotification"),
    sets("kube-api-burst", Number, "kubeAPIBurst"),
    sets("kube-api-content-type", Text, "contentType"),
    sets("kube-api-qps", Number, "kubeAPIQPS"),
    sets("kube-reserved-cgroup", Text, "kubeReservedCgroup"),
    sets("kubelet-cgroups", Text, "kubeletCgroups"),
    sets("local-storage-capacity-isolation", Bool, "localStorageCapacityIsolation"),
    sets("log-flush-frequency", Text, "logging.flushFrequency"),
    sets("logging-format", Text, "logging.format"),
    sets("make-iptables-util-chains", Bool, "makeIPTablesUtilChains"),
    sets("manifest-url", Text, "staticPodURL"),
    sets("manifest-url-header", Pairs(':'), "staticPodURLHeader"),
    sets("max-open-files", Number, "maxOpenFiles"),
    sets("memory-manager-policy", Text, "memoryManagerPolicy"),
    sets("minimum-image-ttl-duration", Text, "imageMinimumGCAge"),
    sets("node-status-max-images", Number, "nodeStatusMaxImages"),
    sets("node-status-update-frequency", Text, "nodeStatusUpdateFrequency"),
    sets("oom-score-adj", Number, "oomScoreAdj"),
    sets("pods-per-core", Number, "podsPerCore"),
    sets("port", Number, "port"),
    sets("protect-kernel-defaults", Bool, "protectKernelDefaults"),
    sets("provider-id", Text, "providerID"),
    sets("qos-reserved", Pairs('='), "qosReserved"),
    sets("read-only-port", Number, "readOnlyPort"),
    sets("register-node", Bool, "registerNode"),
    sets("register-with-taints", List, "registerWithTaints"),
    sets("registry-burst", Number, "registryBurst"),
    sets("registry-qps", Number, "registryPullQPS"),
    sets("reserved-cpus", Text, "reservedSystemCPUs"),
    sets("reserved-memory", Text, "reservedMemory"),
    sets("rotate-certificates", Bool, "rotateCertificates"),
    sets("rotate-server-certificates", Bool, "serverTLSBootstrap"),
    sets("runtime-request-timeout", Text, "runtimeRequestTimeout"),
    sets("serialize-image-pulls", Bool, "serializeImagePulls"),
    sets("streaming-connection-idle-timeout", Text, "streamingConnectionIdleTimeout"),
    sets("sync-frequency", Text, "syncFrequency"),
    sets("system-cgroups", Text, "systemCgroups"),
    sets("system-reserved-cgroup", Text, "systemReservedCgroup"),
    sets("tls-cert-file", Text, "tlsCertFile"),
    sets("tls-cipher-suites", List, "tlsCipherSuites"),
    sets("tls-min-version", Text, "tlsMinVersion"),
    sets("tls-private-key-file", Text, "tlsPrivateKeyFile"),
    sets("topology-manager-policy", Text, "topologyManagerPolicy"),
    sets("topology-manager-policy-options", Pairs('='), "topologyManagerPolicyOptions"),
    sets("topology-manager-scope", Text, "topologyManagerScope"),
    sets("vmodule", Text, "logging.vmodule"),
    sets("volume-plugin-dir", Text, "volumePluginDir"),
    sets("volume-stats-agg-period", Text, "volumeStatsAggPeriod"),
    // Without a meaning here.
    none("application-metrics-count-limit", Number, CADVISOR),
    none("boot-id-file", Text, CADVISOR),
    none("bootstrap-kubeconfig", Text, CLUSTER),
    none("cert-dir", Text, "no TLS is served: the API is a unix socket that only root can open"),
    none("cloud-config", Text, GONE),
    none("cloud-provider", Text, CLUSTER),
    none("cni-bin-dir", Text, GONE),
    none("cni-conf-dir", Text, GONE),
    none("container-hints", Text, CADVISOR),
    none("container-runtime", Text, GONE),
    none("containerd", Text, CADVISOR),
    none("containerd-namespace", Text, CADVISOR),
    none("contention-profiling", Bool, "nothing is profiled"),
    none("docker-endpoint", Text, GONE),
    none("enable-load-reader", Bool, CADVISOR),
    none("event-storage-age-limit", Text, CADVISOR),
    none("event-storage-event-limit", Text, CADVISOR),
    none("exit-on-lock-contention", Bool, "one agent a node is kept to anyway"),
    none("experimental-allocatable-ignore-eviction", Bool, "what admission leaves free is never given out"),
    none("experimental-mounter-path", Text, "armlet mounts by itself"),
    none("global-housekeeping-interval", Text, CADVISOR),
    none("housekeeping-interval", Text, CADVISOR),
    none("image-credential-provider-bin-dir", Text, REGISTRY),
    none("image-credential-provider-config", Text, REGISTRY),
    none("keep-terminated-pod-volumes", Bool, GONE),
    none("kubeconfig", Text, CLUSTER),
    none("lock-file", Text, "one agent a node is kept to anyway"),
    none("log-cadvisor-usage", Bool, CADVISOR),
    none("log-json-info-buffer-size", Text, LOGGING),
    none("log-json-split-stream", Bool, LOGGING),
    none("log-text-info-buffer-size", Text, LOGGING),
    none("log-text-split-stream", Bool, LOGGING),
    none("logtostderr", Bool, LOGGING),
    none("machine-id-file", Text, CADVISOR),
    none("max-housekeeping-interval", Text, CADVISOR),
    none("maximum-dead-containers", Number, ATTEMPTS),
    none("maximum-dead-containers-per-container", Number, ATTEMPTS),
    none("minimum-container-ttl-duration", Text, ATTEMPTS),
    none("network-plugin", Text, GONE),
    none("node-ip", Text, "the node's addresses are those of its links"),
    none("pod-infra-container-image", Text, "a pod needs no container of its own"),
    none("runonce", Bool, "the agent goes on until it is stopped"),
    none("runtime-cgroups", Text, RUNTIME),
    none("storage-driver-buffer-duration", Text, CADVISOR),
    none("storage-driver-db", Text, CADVISOR),
    none("storage-driver-host", Text, CADVISOR),
    none("storage-driver-password", Text, CADVISOR),
    none("storage-driver-secure", Bool, CADVISOR),
    none("storage-driver-table", Text, CADVISOR),
    none("storage-driver-user", Text, CADVISOR),
];
