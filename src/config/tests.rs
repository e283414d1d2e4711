//! Settings from file, flags and environment, and every text by which one is refused.

use super::*;

const FILE: &str = "/etc/armlet/config.yaml";
const HEAD: &str = "apiVersion: kubelet.config.k8s.io/v1beta1\nkind: KubeletConfiguration\n";
const NODE: &str = "apiVersion: armlet.dev/v1alpha1\nkind: NodeConfiguration\n";

fn from_file(text: &str) -> (Config, Vec<String>) {
    let (config, problems) = load(&Args::default(), &file(text), &BTreeMap::new());
    (config, problems.iter().map(|p| p.to_string().replace(FILE, "")).collect())
}

fn file(text: &str) -> Files {
    Files::default().with(FILE, text.as_bytes())
}

#[test]
fn nothing_said_means_the_defaults() {
    let (config, problems) = load(&Args::default(), &Files::default(), &BTreeMap::new());
    assert_eq!((config, problems), (Config::default(), Vec::new()));
    assert_eq!(from_file(&format!("{HEAD}---\n{NODE}")), (Config::default(), Vec::new()));
    assert_eq!(from_file("# nothing\n"), (Config::default(), Vec::new()));
}

#[test]
fn every_field_sets_its_value() {
    let text = format!(
        "{HEAD}staticPodPath: /m/\npodLogsDir: /l\ncgroupRoot: /\nresolvConf: ''\nclusterDomain: cluster.local\n\
         clusterDNS: [10.0.0.10, 'fd00::10']\nmaxPods: 5\npodPidsLimit: 100\ncpuCFSQuota: false\ncpuCFSQuotaPeriod: 20ms\n\
         singleProcessOOMKill: true\nsystemReserved: {{cpu: 100m, memory: 64Mi, pid: 100}}\n\
         kubeReserved: {{cpu: 1}}\nevictionHard: {{memory.available: 5%}}\nseccompDefault: true\ncontainerLogMaxSize: 1Mi\n\
         containerLogMaxFiles: 3\ncrashLoopBackOff: {{maxContainerRestartPeriod: 1m}}\nfailSwapOn: false\n\
         memorySwap: {{swapBehavior: LimitedSwap}}\noomScoreAdj: -500\nallowedUnsafeSysctls: [net.core.*, kernel/sem]\n\
         logging: {{verbosity: 4, format: text}}\nenforceNodeAllocatable: [none]\nkubeReservedCgroup: /armlet\n\
         systemReservedCgroup: system.slice\ncgroupDriver: cgroupfs\nreadOnlyPort: 0\n\
         authentication: {{}}\nregisterNode: false\n---\n{NODE}nodeName: Edge1\ndataDir: /data\nrunDir: /run/a\nlogBudget: 32Mi\n\
         nodeLabels: {{disk: ssd, node.kubernetes.io/x: \"1\"}}\n\
         logFile: /var/log/armlet.log\nlogFileMaxSize: 64Ki\n\
         podCIDR: 10.9.0.0/24\n"
    );
    let (config, problems) = from_file(&text);
    assert_eq!(problems, Vec::<String>::new());
    let expect = Config {
        node_name: Some("edge1".into()),
        node_labels: [("disk", "ssd"), ("node.kubernetes.io/x", "1")].map(|(k, v)| (k.to_owned(), v.to_owned())).into(),
        data_dir: "/data".into(),
        run_dir: "/run/a".into(),
        socket_path: "/run/a/armlet.sock".into(),
        preload_dir: "/data/preload".into(),
        static_pod_path: "/m".into(),
        pod_logs_dir: "/l".into(),
        container_log_max_bytes: 1 << 20,
        container_log_max_files: 3,
        log_budget_bytes: Some(32 << 20),
        cluster_dns: vec!["10.0.0.10".parse().expect("ip"), "fd00::10".parse().expect("ip")],
        cluster_domain: "cluster.local".into(),
        resolv_conf: String::new(),
        pod_cidr: (IpAddr::from([10, 9, 0, 0]), 24),
        max_pods: 5,
        pod_pids_limit: Some(100),
        cpu_cfs_quota: false,
        cpu_cfs_quota_period_us: 20_000,
        single_process_oom_kill: true,
        system_reserved: Reserved { cpu: Quantity::from_milli(100), memory: Quantity::from_units(64 << 20), pid: 100 },
        kube_reserved: Reserved { cpu: Quantity::from_units(1), ..Reserved::default() },
        enforce_reserved: false,
        enforce_kube: Enforced::No,
        enforce_system: Enforced::No,
        kube_reserved_cgroup: "armlet".into(),
        system_reserved_cgroup: "system.slice".into(),
        eviction_hard_memory: Threshold::BasisPoints(500),
        seccomp_default: true,
        max_restart_back_off: Millis::from_secs(60),
        fail_swap_on: false,
        swap: SwapBehavior::LimitedSwap,
        oom_score_adj: -500,
        allowed_unsafe_sysctls: vec!["net.core.*".into(), "kernel.sem".into()],
        verbosity: 4,
        log_file: Some("/var/log/armlet.log".into()),
        log_file_max_bytes: 64 << 10,
    };
    assert_eq!(config, expect);
}

#[test]
fn flags_win_over_environment_over_file() {
    let text = format!(
        "{HEAD}maxPods: 1\nclusterDomain: a\nseccompDefault: false\n---\n{NODE}dataDir: /one\npreloadDir: /p\n"
    );
    let env = BTreeMap::from([
        ("ARMLET_MAX_PODS".to_owned(), "2".to_owned()),
        ("ARMLET_CLUSTER_DOMAIN".to_owned(), "b".to_owned()),
        ("ARMLET_OTHER".to_owned(), "x".to_owned()),
    ]);
    let args = Args::default()
        .with("max-pods", "3")
        .with("seccomp-default", "true")
        .with("cluster-dns", "1.1.1.1, 1.1.1.2")
        .with("root-dir", "/two")
        .with("run-dir", "/r");
    let (config, problems) = load(&args, &file(&text), &env);
    assert_eq!(problems, []);
    assert_eq!((config.max_pods, config.cluster_domain.as_str(), config.seccomp_default), (3, "b", true));
    assert_eq!(config.cluster_dns.len(), 2);
    assert_eq!((config.data_dir.as_str(), config.preload_dir.as_str()), ("/two", "/p"));
    assert_eq!(config.socket_path, "/r/armlet.sock");
}

#[test]
fn everything_wrong_is_named_at_once() {
    let text = format!(
        "{HEAD}maxPods: -1\nfeatureGates: {{A: true}}\nmaxpods: 1\nclusterDNS: [x]\n---\n{NODE}dataDir: data\n"
    );
    let args = Args::default().with("max-pods", "many");
    let env = BTreeMap::from([("ARMLET_POD_CIDR".to_owned(), "10.0.0.0".to_owned())]);
    let (_, problems) = load(&args, &file(&text), &env);
    let got: Vec<String> = problems.iter().map(ToString::to_string).collect();
    let expect = [
        "/etc/armlet/config.yaml:3: maxPods: Invalid value: -1: must be between 0 and 2147483647, inclusive",
        "/etc/armlet/config.yaml:4: warning: featureGates: not supported by this version of armlet and ignored: armlet has \
         none: what it does is not to be switched",
        "/etc/armlet/config.yaml:5: warning: maxpods: unknown field and ignored, did you mean \"maxPods\"?",
        "/etc/armlet/config.yaml:6: clusterDNS[0]: Invalid value: \"x\": must be a valid IP address, (e.g. 10.9.8.7 or \
         2001:db8::ffff)",
        "/etc/armlet/config.yaml:10: dataDir: Invalid value: \"data\": must be an absolute path",
        "environment: ARMLET_POD_CIDR: Invalid value: \"10.0.0.0\": must be a network such as 10.88.0.0/16",
        "command line: --max-pods: Invalid value: \"many\": must be an integer",
    ];
    assert_eq!(got, expect);
}

#[test]
fn values_out_of_bounds_are_refused() {
    let table = [
        ("podPidsLimit: 0", "podPidsLimit: Invalid value: 0: must be -1 (no limit) or greater than 0"),
        ("cpuCFSQuotaPeriod: 2s", "cpuCFSQuotaPeriod: Invalid value: \"2s\": must be between 1ms and 1s, inclusive"),
        ("cpuCFSQuotaPeriod: 5", "cpuCFSQuotaPeriod: Invalid value: 5: must be a string: write it in quotes"),
        (
            "containerLogMaxFiles: 1",
            "containerLogMaxFiles: Invalid value: 1: must be between 2 and 2147483647, inclusive",
        ),
        ("containerLogMaxSize: '0'", "containerLogMaxSize: Invalid value: \"0\": must be greater than 0"),
        (
            "crashLoopBackOff: {maxContainerRestartPeriod: 6m}",
            "crashLoopBackOff.maxContainerRestartPeriod: Invalid value: \"6m\": must be between 1s and 300s, inclusive",
        ),
        (
            "memorySwap: {swapBehavior: Lots}",
            "memorySwap.swapBehavior: Invalid value: \"Lots\": must be NoSwap or LimitedSwap",
        ),
        ("oomScoreAdj: -1001", "oomScoreAdj: Invalid value: -1001: must be between -1000 and 1000, inclusive"),
        (
            "evictionHard: {nodefs.available: 10%}",
            "warning: evictionHard[nodefs.available]: not supported by this version of armlet and ignored: nothing is evicted",
        ),
        (
            "evictionHard: {memory.available: 101%}",
            "evictionHard[memory.available]: Invalid value: \"101%\": must be a percentage between 0% and 100%",
        ),
        (
            "evictionHard: {disk: 10%}",
            "evictionHard[disk]: must be memory.available or one of nodefs.available, nodefs.inodesFree, imagefs.available, imagefs.inodesFree, containerfs.available, containerfs.inodesFree, pid.available",
        ),
        ("kubeReserved: {gpu: 1}", "kubeReserved[gpu]: must be cpu, memory, pid or ephemeral-storage"),
        (
            "systemReserved: {ephemeral-storage: 1Gi}",
            "warning: systemReserved[ephemeral-storage]: not supported by this version of armlet and ignored: what pods write to the disk is not limited",
        ),
        ("cgroupRoot: /a", "warning: cgroupRoot: \"/a\" is not supported by this version of armlet: / is in effect"),
        (
            "enableServer: false",
            "warning: enableServer: not supported by this version of armlet and ignored: the API is a unix socket that only root can open, and nothing listens on the network",
        ),
        (
            "cgroupDriver: systemd",
            "warning: cgroupDriver: \"systemd\" is not supported by this version of armlet: cgroupfs is in effect",
        ),
        (
            "cgroupDriver: upstart",
            "cgroupDriver: Unsupported value: \"upstart\": supported values: \"cgroupfs\", \"systemd\"",
        ),
        ("cgroupsPerQOS: some", "cgroupsPerQOS: Invalid value: \"some\": must be a boolean"),
        (
            "readOnlyPort: 10255",
            "warning: readOnlyPort: \"10255\" is not supported by this version of armlet: 0 is in effect",
        ),
        (
            "registerNode: true",
            "warning: registerNode: \"true\" is not supported by this version of armlet: false is in effect",
        ),
        (
            "authentication: {anonymous: {enabled: false}}",
            "warning: authentication: not supported by this version of armlet and ignored: nobody is asked who they are: the API is a unix socket that only root can open",
        ),
        ("fileCheckFrequency: 20s", "warning: fileCheckFrequency: has no effect: the manifests are watched"),
        (
            "logging: {options: {json: {infoBufferSize: 1}}}",
            "warning: logging.options: not supported by this version of armlet and ignored",
        ),
        ("logging: {level: 1}", "warning: logging.level: unknown field and ignored"),
        ("staticPodPath: m", "staticPodPath: Invalid value: \"m\": must be an absolute path"),
        (
            "clusterDomain: A",
            "clusterDomain: Invalid value: \"A\": a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or '.', and must start and end with an alphanumeric character (e.g. 'example.com', regex used for validation is '[a-z0-9]([-a-z0-9]*[a-z0-9])?(\\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*')",
        ),
        (
            "allowedUnsafeSysctls: [vm.*]",
            "allowedUnsafeSysctls[0]: Invalid value: \"vm.*\": is not kept per pod by the kernel: only kernel.shm*, kernel.msg*, kernel.sem, fs.mqueue.* and net.*",
        ),
    ];
    for (line, expect) in table {
        let (_, problems) = from_file(&format!("{HEAD}{line}\n"));
        assert_eq!(problems, [format!(":3: {expect}")], "{line}");
    }
}

/// Each field that is not honoured is told once when it says something, and takes nothing else from the file.
#[test]
fn what_is_not_honoured_is_told_once() {
    use crate::wire::schema::Verdict;
    for field in kubelet::FIELDS {
        let (values, silent): (&[&str], &[&str]) = match field.verdict {
            Verdict::Ignored(_) => (&["true", "1", "{a: 1}", "x"], &["false", "", "{}", "0s"]),
            Verdict::IgnoredChoice(_) => (&["true", "false"], &[""]),
            Verdict::NoEffect(_) => (&["10s"], &["0s"]),
            _ => continue,
        };
        for (list, told) in [(values, 1), (silent, 0)] {
            for value in list {
                let (config, problems) = from_file(&format!("{HEAD}{}: {value}\nmaxPods: 7\n", field.name));
                assert_eq!((config.max_pods, problems.len()), (7, told), "{}: {value}: {problems:?}", field.name);
                let begin = format!(":3: warning: {}: ", field.name);
                assert!(problems.iter().all(|problem| problem.starts_with(&begin)), "{problems:?}");
            }
        }
    }
    assert!(!from_file(&format!("{HEAD}enforceNodeAllocatable: []\n")).0.enforce_reserved);
    // What only armlet reads has no fields of others.
    assert_eq!(from_file(&format!("{NODE}maxPods: 7\n")).1, [":3: maxPods: unknown field"]);
}

/// What a common installer writes is taken, and all that is remarked is what is not kept to.
#[test]
fn a_file_that_people_have_is_taken() {
    let text = format!(
        "{HEAD}authentication:\n  anonymous: {{enabled: false}}\n  webhook: {{cacheTTL: 0s, enabled: true}}\n  x509: {{clientCAFile: \
         /etc/kubernetes/pki/ca.crt}}\nauthorization: {{mode: Webhook, webhook: {{cacheAuthorizedTTL: 0s}}}}\ncgroupDriver: \
         systemd\nclusterDNS: [10.96.0.10]\nclusterDomain: cluster.local\ncontainerRuntimeEndpoint: ''\n\
         cpuManagerReconcilePeriod: 0s\ncrashLoopBackOff: {{}}\nevictionPressureTransitionPeriod: 0s\nfileCheckFrequency: 0s\n\
         healthzBindAddress: 127.0.0.1\nhealthzPort: 10248\nhttpCheckFrequency: 0s\nimageMaximumGCAge: 0s\n\
         imageMinimumGCAge: 0s\nlogging: {{flushFrequency: 0, options: {{json: {{infoBufferSize: '0'}}}}, verbosity: 0}}\n\
         memorySwap: {{}}\nnodeStatusReportFrequency: 0s\nrotateCertificates: true\nruntimeRequestTimeout: 0s\n\
         shutdownGracePeriod: 0s\nstaticPodPath: /etc/kubernetes/manifests\nsyncFrequency: 0s\nvolumeStatsAggPeriod: 0s\n"
    );
    let (config, problems) = from_file(&text);
    assert_eq!((config.static_pod_path.as_str(), config.cluster_dns.len()), ("/etc/kubernetes/manifests", 1));
    let told: Vec<&str> = problems.iter().filter_map(|problem| problem.split(": ").nth(2)).collect();
    let expect = [
        "authentication",
        "authorization",
        "cgroupDriver",
        "healthzBindAddress",
        "healthzPort",
        "logging.flushFrequency",
        "logging.options",
        "rotateCertificates",
    ];
    assert_eq!(told, expect, "{problems:#?}");
    assert!(problems.iter().all(|problem| problem.contains(" warning: ")), "{problems:#?}");
}

#[test]
fn labels_of_a_node_are_checked() {
    let table = [
        ("a b: c", "nodeLabels[a b]: Invalid value: \"a b\": name part must consist of"),
        ("a: b c", "nodeLabels[a]: Invalid value: \"b c\": a valid label must be"),
        (
            "node-role.kubernetes.io/worker: ''",
            "nodeLabels[node-role.kubernetes.io/worker]: Forbidden: of this namespace",
        ),
        ("kubernetes.io/os: plan9", "nodeLabels[kubernetes.io/os]: Forbidden: of this namespace"),
    ];
    for (label, expect) in table {
        let (_, problems) = from_file(&format!("{NODE}nodeLabels: {{{label}}}\n"));
        assert!(problems.len() == 1 && problems[0].starts_with(&format!(":3: {expect}")), "{label}: {problems:?}");
    }
    for label in ["topology.kubernetes.io/zone: a", "kubelet.kubernetes.io/x: a", "example.com/x: ''"] {
        assert_eq!(from_file(&format!("{NODE}nodeLabels: {{{label}}}\n")).1, Vec::<String>::new(), "{label}");
    }
}

#[test]
fn documents_must_be_known_and_single() {
    let (_, problems) = from_file("apiVersion: v1\nkind: Pod\n");
    let expect = ":1: apiVersion \"v1\" and kind \"Pod\" are not known here: expected kubelet.config.k8s.io/v1beta1 \
                  KubeletConfiguration or armlet.dev/v1alpha1 NodeConfiguration";
    assert_eq!(problems, [expect]);
    let (_, problems) = from_file(&format!("{HEAD}---\n{HEAD}"));
    assert_eq!(problems, [":5: kind: Duplicate value: \"KubeletConfiguration\""]);
    let (_, problems) = from_file(&format!("{HEAD}podCIDR: 10.1.0.0/16\n---\n{NODE}podCIDR: 10.2.0.0/16\n"));
    assert_eq!(problems, [":7: podCIDR: Forbidden: it is set in another document of this file too"]);
    let (_, problems) = from_file("a: [\n");
    assert_eq!(problems.len(), 1);
}

#[test]
fn the_file_to_read_is_known_before_it_is_read() {
    let env = BTreeMap::from([("ARMLET_CONFIG".to_owned(), "/e".to_owned())]);
    let flag = Args::default().with("config", "/f");
    assert_eq!(flag.config_file(&env), ("/f".to_owned(), true));
    assert_eq!(Args::default().config_file(&env), ("/e".to_owned(), true));
    assert_eq!(Args::default().config_file(&BTreeMap::new()), (DEFAULT_CONFIG.to_owned(), false));
    let env = BTreeMap::from([("ARMLET_CONFIG_DIR".to_owned(), "/d".to_owned())]);
    assert_eq!(Args::default().config_dir(&env), ("/d".to_owned(), true));
    assert_eq!(Args::default().config_dir(&BTreeMap::new()), (DEFAULT_CONFIG_DIR.to_owned(), false));
}

proptest::proptest! {
    #![proptest_config(proptest::prelude::ProptestConfig {
        failure_persistence: None,
        ..proptest::prelude::ProptestConfig::default()
    })]

    /// Whatever a field holds, reading says something or takes it; it never panics.
    #[test]
    fn any_value_of_any_field(at in 0usize..kubelet::FIELDS.len(), value in "[ -~\\n]{0,24}", flag in "\\PC{0,12}") {
        let name = kubelet::FIELDS[at].name;
        let text = format!("{HEAD}{name}: {value}\n---\n{NODE}podCIDR: {value:?}\nlogBudget: {value:?}\n");
        let args = flag_table::ALL.iter().fold(Args::default(), |args, one| args.with(one.name, &flag));
        let (config, _) = load(&args, &file(&text), &BTreeMap::new());
        proptest::prop_assert!((1_000..=1_000_000).contains(&config.cpu_cfs_quota_period_us));
        proptest::prop_assert!(config.container_log_max_files >= 2 && config.verbosity <= 10);
    }
}
