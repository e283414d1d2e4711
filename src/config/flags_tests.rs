//! Flags and variables: as people write them, over what the files say, and told by their own names.

use super::flag_table::{ALL, Does, Takes};
use super::*;
use clap::Parser;

#[derive(Debug, Parser)]
struct Cli {
    #[command(flatten)]
    args: Args,
}

fn parse(line: &str) -> Result<Args, clap::Error> {
    Cli::try_parse_from(std::iter::once("armlet").chain(line.split_whitespace())).map(|cli| cli.args)
}

/// What a command line makes of the configuration, and what it is told.
fn read(line: &str) -> (Config, Vec<String>) {
    let (config, problems) = load(&parse(line).expect(line), &Files::default(), &BTreeMap::new());
    (config, problems.iter().map(ToString::to_string).collect())
}

#[test]
fn flags_are_taken_as_people_write_them() {
    let line = "--hostname-override n --pod-manifest-path=/m --seccomp-default -v4 --fail-swap-on=false --max-pods 5 \
                --max-pods=6 --node-labels=a=b,c=d --node-labels e= --cluster-dns 1.1.1.1,::1 --cluster-dns=1.1.1.2 \
                --system-reserved=cpu=100m,memory=64Mi --eviction-hard=memory.available<5% --oom-score-adj -500 \
                --pod-max-pids -1 --container-log-max-size=1Mi --container-log-max-files=3 --root-dir /d \
                --cpu-cfs-quota-period=20ms --enforce-node-allocatable=none --cgroup-driver=cgroupfs --read-only-port=0 \
                --rotate-certificates=false";
    let (config, problems) = read(line);
    assert_eq!(problems, Vec::<String>::new());
    let text = |text: &str| text.to_owned();
    let expect = Config {
        node_name: Some(text("n")),
        node_labels: [("a", "b"), ("c", "d"), ("e", "")].map(|(k, v)| (text(k), text(v))).into(),
        static_pod_path: text("/m"),
        data_dir: text("/d"),
        preload_dir: text("/d/preload"),
        seccomp_default: true,
        fail_swap_on: false,
        verbosity: 4,
        max_pods: 6,
        cluster_dns: ["1.1.1.1", "::1", "1.1.1.2"].map(|ip| ip.parse().expect("ip")).into(),
        system_reserved: Reserved { cpu: Quantity::from_milli(100), memory: Quantity::from_units(64 << 20), pid: 0 },
        eviction_hard_memory: Threshold::BasisPoints(500),
        oom_score_adj: -500,
        container_log_max_bytes: 1 << 20,
        container_log_max_files: 3,
        cpu_cfs_quota_period_us: 20_000,
        enforce_reserved: false,
        ..Config::default()
    };
    assert_eq!(config, expect);
    assert_eq!(read("--seccomp-default=false --v 2").0.verbosity, 2);
}

/// Over files and environment; a reserve on the command line is the whole of it.
#[test]
fn flags_win() {
    let file = "apiVersion: kubelet.config.k8s.io/v1beta1\nkind: KubeletConfiguration\nsystemReserved: {cpu: 1, pid: 5}\n\
                kubeReserved: {cpu: 1, pid: 5}\nclusterDNS: [1.1.1.1]\n";
    let env = BTreeMap::from([
        ("ARMLET_KUBE_RESERVED".to_owned(), "memory=1".to_owned()),
        ("ARMLET_CLUSTER_DNS".to_owned(), "1.1.1.3".to_owned()),
    ]);
    let args = parse("--system-reserved memory=1 --cluster-dns 1.1.1.2").expect("parses");
    let (config, problems) = load(&args, &Files::default().with("f", file.as_bytes()), &env);
    assert_eq!(problems, []);
    let whole = Reserved { memory: Quantity::from_units(1), ..Reserved::default() };
    assert_eq!((&config.system_reserved, &config.kube_reserved), (&whole, &whole));
    assert_eq!(config.cluster_dns, [IpAddr::from([1, 1, 1, 2])]);
}

#[test]
fn flags_are_told_by_their_names() {
    let not = "not supported by this version of armlet";
    let table = [
        ("--max-pods many", "--max-pods: Invalid value: \"many\": must be an integer".to_owned()),
        ("--max-pods -1", "--max-pods: Invalid value: -1: must be between 0 and 2147483647, inclusive".to_owned()),
        ("--cluster-dns 1.1.1.1,x", "--cluster-dns: Invalid value: \"x\": must be a valid IP address, (e.g. 10.9.8.7 or 2001:db8::ffff)".to_owned()),
        ("--fail-swap-on=maybe", "--fail-swap-on: Invalid value: \"maybe\": must be true or false".to_owned()),
        ("--v 11", "--v: Invalid value: 11: must be between 0 and 10, inclusive".to_owned()),
        ("--root-dir data", "--root-dir: Invalid value: \"data\": must be an absolute path".to_owned()),
        ("--system-reserved cpu", "--system-reserved: Invalid value: \"cpu\": must be KEY=VALUE, with commas between".to_owned()),
        ("--kube-reserved gpu=1", "--kube-reserved[gpu]: must be cpu, memory, pid or ephemeral-storage".to_owned()),
        ("--node-labels k8s.io/x=1", "--node-labels[k8s.io/x]: Forbidden: of this namespace a node may set only node.kubernetes.io/..., kubelet.kubernetes.io/..., topology.kubernetes.io/zone and topology.kubernetes.io/region".to_owned()),
        ("--eviction-hard nodefs.available<10%", format!("warning: --eviction-hard[nodefs.available]: {not} and ignored: nothing is evicted")),
        ("--cgroup-driver=systemd", format!("warning: --cgroup-driver: \"systemd\" is {not}: cgroupfs is in effect")),
        ("--cgroup-driver=none", "--cgroup-driver: Unsupported value: \"none\": supported values: \"cgroupfs\", \"systemd\"".to_owned()),
        ("--anonymous-auth=false", format!("warning: --anonymous-auth: {not} and ignored: nobody is asked who they are: the API is a unix socket that only root can open")),
        ("--kubeconfig /x", format!("warning: --kubeconfig: {not} and ignored: this version joins no cluster")),
        ("--sync-frequency 1m", "warning: --sync-frequency: has no effect: armlet acts on events, it does not poll".to_owned()),
    ];
    for (line, expect) in table {
        assert_eq!(read(line).1, [format!("command line: {expect}")], "{line}");
    }
}

/// Whatever upstream knows is taken and at most remarked; what nobody knows is refused, with what may have been meant.
#[test]
fn every_flag_of_the_table_is_taken() {
    for flag in ALL {
        let value = match (flag.takes, flag.does) {
            (_, Does::Own) => continue,
            (Takes::Bool, _) => "true",
            (Takes::Number, _) => "7",
            (Takes::Pairs('<'), _) => "memory.available<7",
            (Takes::Pairs(_), Does::Node(_)) => "a=b",
            (Takes::Pairs('='), _) => "cpu=7",
            (Takes::Pairs(_), _) => "a:b",
            _ => match flag.name {
                "cluster-dns" => "1.1.1.1",
                "pod-cidr" => "10.1.0.0/16",
                "cpu-cfs-quota-period" => "7ms",
                "container-log-max-size" => "7",
                "cpu-manager-policy" => "static",
                "cgroup-driver" => "systemd",
                "memory-manager-policy" => "Static",
                "topology-manager-policy" => "restricted",
                "logging-format" => "json",
                "enforce-node-allocatable" => "pods",
                "allowed-unsafe-sysctls" => "net.*",
                "node-name" | "cluster-domain" => "a",
                _ => "/a",
            },
        };
        let (_, problems) = read(&format!("--{}={value}", flag.name));
        let honoured = !flag.help.is_empty();
        assert!(problems.len() <= usize::from(!honoured), "{}: {problems:?}", flag.name);
        let begin = format!("command line: warning: --{}: ", flag.name);
        assert!(problems.iter().all(|problem| problem.starts_with(&begin)), "{}: {problems:?}", flag.name);
        if let Does::Field(path) | Does::Node(path) = flag.does {
            let fields = if matches!(flag.does, Does::Node(_)) { node::FIELDS } else { kubelet::FIELDS };
            let name = path.split('.').next().unwrap_or_default();
            assert!(fields.iter().any(|field| field.name == name), "{path}");
        }
    }
    let refused = parse("--max-pod 5").expect_err("unknown").to_string();
    assert!(refused.contains("unexpected argument '--max-pod'") && refused.contains("'--max-pods'"), "{refused}");
}
