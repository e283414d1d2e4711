//! The configuration file and its drop-ins: which are read, in which order, and how one is put over another.

use super::*;
use std::fs;

const HEAD: &str = "apiVersion: kubelet.config.k8s.io/v1beta1\nkind: KubeletConfiguration\n";
const NODE: &str = "apiVersion: armlet.dev/v1alpha1\nkind: NodeConfiguration\n";

fn layers(texts: &[String]) -> (Config, Vec<String>) {
    let layers = texts.iter().enumerate();
    let files = layers.fold(Files::default(), |files, (i, text)| files.with(&i.to_string(), text.as_bytes()));
    let (config, problems) = load(&Args::default(), &files, &BTreeMap::new());
    (config, problems.iter().map(ToString::to_string).collect())
}

/// Field by field: what a later file says counts, lists as a whole, maps entry by entry; a null takes back.
#[test]
fn a_drop_in_is_put_over_what_came_before() {
    let (config, problems) = layers(&[
        format!(
            "{HEAD}maxPods: 1\nclusterDNS: [1.1.1.1, 1.1.1.2]\nsystemReserved: {{cpu: 1, memory: 1}}\nclusterDomain: a\n\
             kubeReserved: {{cpu: 1, pid: 1}}\nlogging: {{verbosity: 3}}\n---\n{NODE}dataDir: /d\nnodeLabels: {{a: b, c: d}}\n"
        ),
        format!("{HEAD}maxPods: 2\nsystemReserved: {{memory: 2, pid: 2}}\nclusterDomain: ~\n"),
        format!(
            "{NODE}nodeLabels: {{c: e, f: g}}\n---\n{HEAD}maxPods: 3\nclusterDNS: [1.1.1.3]\nkubeReserved: {{cpu: ~}}\n\
             logging: ~\n"
        ),
    ]);
    assert_eq!(problems, Vec::<String>::new());
    let of = |cpu, memory, pid| Reserved { cpu: Quantity::from_units(cpu), memory: Quantity::from_units(memory), pid };
    let labels = [("a", "b"), ("c", "e"), ("f", "g")];
    let expect = Config {
        max_pods: 3,
        cluster_dns: vec![IpAddr::from([1, 1, 1, 3])],
        system_reserved: of(1, 2, 2),
        kube_reserved: of(0, 0, 1),
        data_dir: "/d".into(),
        preload_dir: "/d/preload".into(),
        node_labels: labels.map(|(key, value)| (key.to_owned(), value.to_owned())).into(),
        ..Config::default()
    };
    assert_eq!(config, expect);
}

/// Everything wrong in every file, each with its place.
#[test]
fn problems_name_their_file() {
    let (_, problems) =
        layers(&[format!("{HEAD}maxPods: -1\nxyz: 1\n"), format!("{HEAD}maxPods: x\n"), "maxPods: 3\n".to_owned()]);
    let expect = [
        "0:3: maxPods: Invalid value: -1: must be between 0 and 2147483647, inclusive",
        "0:4: warning: xyz: unknown field and ignored",
        "1:3: maxPods: Invalid value: \"x\": must be an integer",
        "2:1: apiVersion \"\" and kind \"\" are not known here: expected kubelet.config.k8s.io/v1beta1 \
         KubeletConfiguration or armlet.dev/v1alpha1 NodeConfiguration",
    ];
    assert_eq!(problems, expect);
}

#[test]
fn drop_ins_are_read_in_lexical_order() {
    let dir = tempfile::tempdir().expect("a folder");
    let at = |name: &str| dir.path().join(name).display().to_string();
    let max_pods = |name: &str, count: u32| fs::write(at(name), format!("{HEAD}maxPods: {count}\n")).expect(name);
    fs::create_dir_all(at("d/20-more")).expect("folders");
    max_pods("main.yaml", 1);
    for (name, count) in
        [("d/10.conf", 2), ("d/20-more/9.conf", 4), ("d/20-more/1.conf", 3), ("d/15.conf~", 9), ("d/README", 9)]
    {
        max_pods(name, count);
    }
    let args = Args::default().with("config", &at("main.yaml")).with("config-dir", &at("d"));
    let env = BTreeMap::new();
    let told = |args: &Args| {
        let (config, problems) = load(args, &Files::read(args, &env).expect("reads"), &env);
        (config.max_pods, problems.iter().map(ToString::to_string).collect::<Vec<_>>())
    };
    assert_eq!(told(&args), (4, Vec::new()));
    max_pods("d/30.conf", 5);
    // People mistake the ending.
    max_pods("d/40.yaml", 6);
    let remark = format!("{}: warning: is not read: the names of drop-ins end with .conf", at("d/40.yaml"));
    assert_eq!(told(&args), (5, vec![remark]));
    assert_eq!(told(&args.clone().with("max-pods", "7")).0, 7);

    for (name, path) in [("config", "absent"), ("config-dir", "absent"), ("config-dir", "main.yaml")] {
        let error = Files::read(&args.clone().with(name, &at(path)), &env).expect_err("refused");
        assert_eq!(error.path, at(path));
    }
}
