//! Settings from file, flags and environment, and every text by which one is refused.

use super::*;

const FILE: &str = "/etc/armlet/config.yaml";
const HEAD: &str = "apiVersion: kubelet.config.k8s.io/v1beta1\nkind: KubeletConfiguration\n";
const NODE: &str = "apiVersion: armlet.dev/v1alpha1\nkind: NodeConfiguration\n";

fn from_file(text: &str) -> (Config, Vec<String>) {
    let (config, problems) = load(&Args::default(), Some((FILE, text.as_bytes())), &BTreeMap::new());
    (config, problems.iter().map(|p| p.to_string().replace(FILE, "")).collect())
}

#[test]
fn nothing_said_means_the_defaults() {
    let (config, problems) = load(&Args::default(), None, &BTreeMap::new());
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
         logging: {{verbosity: 4, format: text}}\nenforceNodeAllocatable: [none]\ncgroupDriver: cgroupfs\nreadOnlyPort: 0\n\
         authentication: {{}}\nregisterNode: false\n---\n{NODE}nodeName: Edge1\ndataDir: /data\nrunDir: /run/a\nlogBudget: 32Mi\n\
         podCIDR: 10.9.0.0/24\n"
    );
    let (config, problems) = from_file(&text);
    assert_eq!(problems, Vec::<String>::new());
    let expect = Config {
        node_name: Some("edge1".into()),
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
        eviction_hard_memory: Threshold::BasisPoints(500),
        seccomp_default: true,
        max_restart_back_off: Millis::from_secs(60),
        fail_swap_on: false,
        swap: SwapBehavior::LimitedSwap,
        oom_score_adj: -500,
        allowed_unsafe_sysctls: vec!["net.core.*".into(), "kernel.sem".into()],
        verbosity: 4,
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
    let args = Args {
        max_pods: Some("3".into()),
        seccomp_default: Some("true".into()),
        cluster_dns: Some("1.1.1.1, 1.1.1.2".into()),
        root_dir: Some("/two".into()),
        run_dir: Some("/r".into()),
        ..Args::default()
    };
    let (config, problems) = load(&args, Some((FILE, text.as_bytes())), &env);
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
    let args = Args { max_pods: Some("many".into()), ..Args::default() };
    let env = BTreeMap::from([("ARMLET_POD_CIDR".to_owned(), "10.0.0.0".to_owned())]);
    let (_, problems) = load(&args, Some((FILE, text.as_bytes())), &env);
    let got: Vec<String> = problems.iter().map(ToString::to_string).collect();
    let expect = [
        "/etc/armlet/config.yaml:3: maxPods: Invalid value: -1: must be between 0 and 2147483647, inclusive",
        "/etc/armlet/config.yaml:4: featureGates: not supported by this version of armlet",
        "/etc/armlet/config.yaml:5: maxpods: unknown field, did you mean \"maxPods\"?",
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
            "evictionHard[nodefs.available]: not supported by this version of armlet",
        ),
        (
            "evictionHard: {memory.available: 101%}",
            "evictionHard[memory.available]: Invalid value: \"101%\": must be a percentage between 0% and 100%",
        ),
        ("kubeReserved: {gpu: 1}", "kubeReserved[gpu]: must be cpu, memory or pid"),
        (
            "systemReserved: {ephemeral-storage: 1Gi}",
            "systemReserved[ephemeral-storage]: not supported by this version of armlet",
        ),
        ("cgroupRoot: /a", "cgroupRoot: \"/a\" is not supported by this version of armlet, only /"),
        ("enableServer: false", "enableServer: not supported by this version of armlet"),
        (
            "enforceNodeAllocatable: [system-reserved]",
            "enforceNodeAllocatable[0]: Invalid value: \"system-reserved\": not supported by this version of armlet, only pods or none",
        ),
        (
            "cgroupDriver: systemd",
            "cgroupDriver: \"systemd\" is not supported by this version of armlet, only cgroupfs",
        ),
        ("readOnlyPort: 10255", "readOnlyPort: \"10255\" is not supported by this version of armlet, only 0"),
        ("fileCheckFrequency: 20s", "warning: fileCheckFrequency: has no effect: the manifests are watched"),
        ("logging: {options: {json: {infoBufferSize: 1}}}", "logging.options: not supported by this version of armlet"),
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

/// What upstream does unless it is told not to cannot be switched off here by a `false` that nobody heeds.
#[test]
fn a_no_to_what_upstream_does_by_default_is_refused() {
    for name in [
        "enableControllerAttachDetach",
        "enableDebugFlagsHandler",
        "enableDebuggingHandlers",
        "enableProfilingHandler",
        "enableServer",
        "enableSystemLogHandler",
        "localStorageCapacityIsolation",
        "makeIPTablesUtilChains",
        "serializeImagePulls",
        "cgroupsPerQOS",
        "failCgroupV1",
    ] {
        let (_, problems) = from_file(&format!("{HEAD}{name}: false\n"));
        assert!(problems.len() == 1 && problems[0].starts_with(&format!(":3: {name}: ")), "{name}: {problems:?}");
    }
    for name in ["enableSystemLogQuery", "protectKernelDefaults", "rotateCertificates", "runOnce", "serverTLSBootstrap"]
    {
        assert_eq!(from_file(&format!("{HEAD}{name}: false\n")).1, Vec::<String>::new(), "{name}");
    }
    assert!(!from_file(&format!("{HEAD}enforceNodeAllocatable: []\n")).0.enforce_reserved);
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
    let flag = Args { config: Some("/f".into()), ..Args::default() };
    assert_eq!(flag.config_file(&env), ("/f".to_owned(), true));
    assert_eq!(Args::default().config_file(&env), ("/e".to_owned(), true));
    assert_eq!(Args::default().config_file(&BTreeMap::new()), (DEFAULT_CONFIG.to_owned(), false));
}

#[test]
fn flags_parse_as_people_write_them() {
    #[derive(clap::Parser)]
    struct Cli {
        #[command(flatten)]
        args: Args,
    }
    let parse = |args: &[&str]| {
        let all = std::iter::once("armlet").chain(args.iter().copied());
        <Cli as clap::Parser>::try_parse_from(all).map(|cli| cli.args)
    };
    let args =
        parse(&["--hostname-override", "n", "--pod-manifest-path=/m", "--seccomp-default", "-v4"]).expect("parses");
    assert_eq!((args.node_name.as_deref(), args.manifests.as_deref()), (Some("n"), Some("/m")));
    assert_eq!((args.seccomp_default.as_deref(), args.verbosity.as_deref()), (Some("true"), Some("4")));
    let args = parse(&["--seccomp-default=false", "--v", "2"]).expect("parses");
    assert_eq!((args.seccomp_default.as_deref(), args.verbosity.as_deref()), (Some("false"), Some("2")));
    assert!(parse(&["--kubeconfig", "x"]).is_err());
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
        let args = Args { pod_cidr: Some(flag.clone()), cluster_dns: Some(flag.clone()), verbosity: Some(flag), ..Args::default() };
        let (config, _) = load(&args, Some((FILE, text.as_bytes())), &BTreeMap::new());
        proptest::prop_assert!((1_000..=1_000_000).contains(&config.cpu_cfs_quota_period_us));
        proptest::prop_assert!(config.container_log_max_files >= 2 && config.verbosity <= 10);
    }
}
