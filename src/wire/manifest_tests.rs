//! Manifests from text to pod: what is understood, and every text by which something is refused.

use super::{NodeIdentity, Parsed, parse};
use crate::model::Quantity;
use crate::model::pod::{
    DnsPolicy, HostPathType, Pod, ProbeHandler, Protocol, PullPolicy, RestartPolicy, Seccomp, Source,
    TerminationMessagePolicy, VolumeKind,
};
use serde_json::json;

const FILE: &str = "/etc/armlet/manifests/web.yaml";

fn read(text: &str) -> Parsed {
    parse(text.as_bytes(), FILE, &NodeIdentity::new("Edge1"))
}

fn good(text: &str) -> Pod {
    let parsed = read(text);
    assert_eq!(parsed.problems, [], "{text}");
    parsed.pods.into_iter().next().expect("a pod")
}

/// The problems without the file's name, one a line.
fn problems(text: &str) -> Vec<String> {
    let parsed = read(text);
    parsed.problems.iter().map(|p| p.to_string().replace(FILE, "")).collect()
}

/// A pod whose spec has, beside a container `c`, these lines (from line 8 of the file).
fn with_spec(spec: &str) -> String {
    let spec: String = spec.lines().map(|l| format!("  {l}\n")).collect();
    format!(
        "apiVersion: v1\nkind: Pod\nmetadata:\n  name: web\nspec:\n  containers:\n  - {{name: c, image: \"i:1\"}}\n{spec}"
    )
}

/// A pod whose only container has, beside name and image, these lines (from line 9 of the file).
fn with_container(lines: &str) -> String {
    let lines: String = lines.lines().map(|l| format!("    {l}\n")).collect();
    format!(
        "apiVersion: v1\nkind: Pod\nmetadata:\n  name: web\nspec:\n  containers:\n  - name: c\n    image: i:1\n{lines}  \
         volumes: [{{name: v}}]\n"
    )
}

#[test]
fn a_small_pod_is_a_static_pod_of_this_node() {
    let pod = good(&with_spec(""));
    assert_eq!((pod.name.as_str(), pod.namespace.as_str()), ("web-edge1", "default"));
    assert_eq!(pod.source, Source::File { path: FILE.to_owned(), document: 0 });
    assert_eq!(pod.uid.as_str().len(), 32);
    assert_eq!(pod.annotations["kubernetes.io/config.hash"], pod.uid.as_str());
    assert_eq!(pod.annotations["kubernetes.io/config.source"], "file");
    assert_eq!(pod.manifest.value()["metadata"]["uid"], pod.uid.as_str());
    assert_eq!(pod.manifest.value()["spec"]["nodeName"], "Edge1");
    assert_eq!(pod.manifest.value()["spec"]["tolerations"], json!([{"operator": "Exists", "effect": "NoExecute"}]));
    assert_eq!(pod.manifest.value()["spec"]["restartPolicy"], "Always");
    assert_eq!(pod.spec.restart_policy, RestartPolicy::Always);
    assert_eq!(pod.spec.termination_grace_secs, 30);
    assert_eq!(pod.spec.dns_policy, DnsPolicy::ClusterFirst);
    let c = &pod.spec.containers[0];
    assert_eq!((c.name.as_str(), c.image.as_str(), c.pull_policy), ("c", "i:1", PullPolicy::IfNotPresent));
    assert_eq!(c.termination_message_path, "/dev/termination-log");
    assert_eq!(c.termination_message_policy, TerminationMessagePolicy::File);
}

#[test]
fn a_full_pod_means_what_it_says() {
    let pod = good(
        r#"
apiVersion: v1
kind: Pod
metadata:
  name: full
  namespace: shop
  labels: {app: full}
  annotations: {example.com/note: "any text: at all"}
  creationTimestamp: null
spec:
  restartPolicy: OnFailure
  terminationGracePeriodSeconds: 0
  hostNetwork: true
  hostname: h
  subdomain: s
  dnsPolicy: None
  dnsConfig: {nameservers: [10.0.0.1], searches: [a.b], options: [{name: ndots, value: "2"}, {name: edns0}]}
  hostAliases: [{ip: 127.0.0.1, hostnames: [x, z]}]
  nodeSelector: {kubernetes.io/os: linux}
  tolerations: [{operator: Exists}]
  priorityClassName: system-node-critical
  priority: 7
  overhead: {memory: 1Mi}
  automountServiceAccountToken: false
  affinity: {podAntiAffinity: {requiredDuringSchedulingIgnoredDuringExecution: [{topologyKey: k, labelSelector: {matchLabels: {a: b}}}]}}
  securityContext:
    runAsUser: 1000
    runAsGroup: 1000
    runAsNonRoot: true
    fsGroup: 2000
    supplementalGroups: [3000]
    supplementalGroupsPolicy: Strict
    seccompProfile: {type: RuntimeDefault}
  initContainers:
  - {name: first, image: "i:1"}
  - {name: side, image: "i:1", restartPolicy: Always, startupProbe: {exec: {command: [ls, $(A)]}}, env: [{name: A, value: b}]}
  containers:
  - name: app
    image: r.io:5000/app
    command: [run, $(WHO), $$(WHO), $(NO)]
    args: ["--x=$(BOTH)"]
    workingDir: /w
    env: [{name: WHO, value: me}, {name: BOTH, value: "$(WHO)-$(LATE)"}, {name: LATE, value: x}, {name: NONE}]
    ports: [{name: http, containerPort: 8080}, {containerPort: 53, protocol: UDP}]
    resources: {limits: {cpu: 2, memory: 1Gi, hugepages-2Mi: 4Mi}, requests: {cpu: 0.5}}
    volumeMounts: [{name: tmp, mountPath: /tmp}, {name: host, mountPath: rel, readOnly: true, mountPropagation: None}]
    livenessProbe: {httpGet: {port: http, path: healthz, httpHeaders: [{name: X-A, value: b}]}, terminationGracePeriodSeconds: 5}
    readinessProbe: {tcpSocket: {port: 8080, host: 127.0.0.1}, successThreshold: 2}
    terminationMessagePolicy: FallbackToLogsOnError
    stdin: true
    stdinOnce: true
    tty: true
    securityContext:
      runAsUser: 0
      runAsNonRoot: false
      allowPrivilegeEscalation: false
      readOnlyRootFilesystem: true
      capabilities: {add: [net_admin, CAP_SYS_TIME], drop: [all]}
      seccompProfile: {type: Unconfined}
  volumes:
  - {name: tmp, emptyDir: {medium: Memory, sizeLimit: 1.5Mi}}
  - {name: host, hostPath: {path: /var/log, type: DirectoryOrCreate}}
"#,
    );
    let spec = &pod.spec;
    assert_eq!((pod.namespace.as_str(), spec.restart_policy), ("shop", RestartPolicy::OnFailure));
    assert_eq!((spec.termination_grace_secs, spec.host_network, spec.priority), (0, true, 7));
    assert_eq!(spec.dns.options, [("ndots".to_owned(), Some("2".to_owned())), ("edns0".to_owned(), None)]);
    assert_eq!(spec.host_aliases, [("127.0.0.1".to_owned(), vec!["x".to_owned(), "z".to_owned()])]);
    assert_eq!(spec.overhead.memory, Some(Quantity::from_units(1 << 20)));
    assert_eq!(spec.fs_group, Some(2000));
    assert!(spec.init_containers[1].is_sidecar() && !spec.init_containers[0].is_sidecar());
    let startup = spec.init_containers[1].startup.as_ref().expect("a probe");
    assert_eq!(startup.handler, ProbeHandler::Exec { command: vec!["ls".into(), "b".into()] });
    assert_eq!(spec.init_containers[0].security.run_as_user, Some(1000));
    assert_eq!(spec.init_containers[0].security.seccomp, Some(Seccomp::RuntimeDefault));

    let app = &spec.containers[0];
    assert_eq!(app.pull_policy, PullPolicy::Always);
    assert_eq!(app.command, ["run", "me", "$(WHO)", "$(NO)"]);
    assert_eq!(app.args, ["--x=me-$(LATE)"]);
    assert_eq!(app.env[1], ("BOTH".to_owned(), "me-$(LATE)".to_owned()));
    assert_eq!(app.env[3], ("NONE".to_owned(), String::new()));
    assert_eq!((app.ports[0].host_port, app.ports[1].protocol), (Some(8080), Protocol::Udp));
    assert_eq!(app.resources.requests.cpu, Some(Quantity::from_milli(500)));
    assert_eq!(app.resources.requests.memory, Some(Quantity::from_units(1 << 30)));
    assert_eq!(app.resources.limits.hugepages["2Mi"], Quantity::from_units(4 << 20));
    assert_eq!((app.mounts[1].path.as_str(), app.mounts[1].read_only), ("/rel", true));
    let liveness = app.liveness.as_ref().expect("a probe");
    let get = ProbeHandler::HttpGet {
        host: None,
        port: 8080,
        path: "/healthz".into(),
        https: false,
        headers: vec![("X-A".into(), "b".into())],
    };
    assert_eq!(liveness.handler, get);
    assert_eq!((liveness.period_secs, liveness.termination_grace_secs), (10, Some(5)));
    assert_eq!(app.readiness.as_ref().map(|p| (p.success_threshold, p.failure_threshold)), Some((2, 3)));
    let security = &app.security;
    assert_eq!((security.run_as_user, security.run_as_non_root), (Some(0), false));
    assert_eq!((security.no_new_privs, security.read_only_root, security.strict_groups), (true, true, true));
    assert_eq!(security.groups, [2000, 3000]);
    assert_eq!(security.add_capabilities, ["NET_ADMIN", "SYS_TIME"]);
    assert_eq!(security.drop_capabilities, ["ALL"]);
    assert_eq!(security.seccomp, Some(Seccomp::Unconfined));
    assert_eq!(spec.volumes[0].kind, VolumeKind::EmptyDir { memory: true, size_limit: Some(1_572_864) });
    let host = VolumeKind::HostPath { path: "/var/log".into(), check: HostPathType::DirectoryOrCreate };
    assert_eq!(spec.volumes[1].kind, host);
    assert!(pod.manifest.value().pointer("/spec/affinity/podAntiAffinity").is_some(), "kept though unused");
}

#[test]
fn a_uid_follows_the_document_and_nothing_else() {
    let uid = |text: &str| good(text).uid;
    let plain = with_spec("hostname: a");
    let first = uid(&plain);
    assert_eq!(uid(&format!("# hello\n{plain}\n\n")), first);
    assert_eq!(read(&format!("---\n---\n{plain}")).pods[0].uid, first);
    assert_ne!(uid(&with_spec("hostname: b")), first);
    // What the defaults fill in is not part of it: saying it changes the document.
    assert_ne!(uid(&with_spec("hostname: a\nrestartPolicy: Always")), first);
    let other_file = parse(plain.as_bytes(), "/m/other.yaml", &NodeIdentity::new("edge1"));
    assert_ne!(other_file.pods[0].uid, first);
}

/// One that is written in the manifest is a part of the document like any other: two files that give the same are two
/// pods, and a change is another pod.
#[test]
fn a_given_uid_is_not_kept() {
    let given = with_spec("hostname: a").replace("  name: web\n", "  name: web\n  uid: my-own-1\n");
    let read_from = |text: &str, file: &str| {
        let mut parsed = parse(text.as_bytes(), file, &NodeIdentity::new("edge1"));
        let problems: Vec<String> = parsed.problems.iter().map(ToString::to_string).collect();
        let told = format!(
            "{file}:5: warning: metadata.uid: is not the pod's UID, which follows from the whole document and this only \
             with it"
        );
        assert_eq!(problems, [told]);
        parsed.pods.remove(0)
    };
    let first = read_from(&given, "/m/a.yaml");
    assert_eq!(
        (first.uid.as_str().len(), &first.manifest.value()["metadata"]["uid"]),
        (32, &first.uid.as_str().into())
    );
    let others = [
        read_from(&given, "/m/b.yaml"),
        read_from(&given.replace("hostname: a", "hostname: b"), "/m/a.yaml"),
        read_from(&given.replace("my-own-1", "my-own-2"), "/m/a.yaml"),
    ];
    assert!(others.iter().all(|other| other.uid != first.uid));
}

#[test]
fn several_documents_a_file() {
    let one = with_spec("");
    let two = one.replace("name: web", "name: two");
    let broken = "apiVersion: v1\nkind: Pod\nmetadata: [\n";
    let parsed = read(&format!("{one}---\n{broken}---\n# empty\n---\n{two}"));
    assert_eq!(parsed.pods.iter().map(|p| p.name.as_str()).collect::<Vec<_>>(), ["web-edge1", "two-edge1"]);
    assert_eq!(parsed.pods[1].source, Source::File { path: FILE.to_owned(), document: 3 });
    assert_eq!(parsed.problems.len(), 1);
    assert_eq!(parsed.problems[0].document, 1);
}

#[test]
fn json_and_lists_are_read_too() {
    let pod = json!({"metadata": {"name": "a"}, "spec": {"containers": [{"name": "c", "image": "i:1"}]}});
    let list = json!({"apiVersion": "v1", "kind": "PodList", "metadata": {}, "items": [pod]});
    assert_eq!(good(&list.to_string()).name, "a-edge1");
    let mut full = pod;
    full["apiVersion"] = "v1".into();
    full["kind"] = "Pod".into();
    assert_eq!(good(&serde_json::to_string_pretty(&full).expect("json")).name, "a-edge1");
    let mut other = full.clone();
    other["spec"]["containers"][0]["image"] = "".into();
    other["metadata"]["name"] = "b".into();
    let list = json!({"apiVersion": "v1", "kind": "List", "items": [full, other]});
    let parsed = read(&list.to_string());
    assert_eq!(parsed.pods.len(), 1);
    assert_eq!(parsed.problems[0].field, "items[1].spec.containers[0].image");
    assert_eq!(parsed.problems[0].message, "Required value");
}

#[test]
fn what_is_no_pod_says_so() {
    let table: [(&str, &[&str]); 8] = [
        ("", &[]),
        ("just text\n", &[":1: Invalid value: a string: must be an object, a v1.Pod"]),
        ("- a\n", &[":1: Invalid value: a list: must be an object, a v1.Pod"]),
        ("a: b\n", &[":1: apiVersion: Required value", ":1: kind: Required value"]),
        (
            "apiVersion: apps/v1\nkind: Deployment\n",
            &[
                ":1: apiVersion: Unsupported value: \"apps/v1\": supported values: \"v1\"",
                ":2: kind: Unsupported value: \"Deployment\": supported values: \"Pod\"",
            ],
        ),
        ("apiVersion: v1\nkind: [Pod]\n", &[":2: kind: Invalid value: a list: must be a string"]),
        ("apiVersion: v1\nkind: List\nitems: 5\n", &[":3: items: Invalid value: 5: must be a list"]),
        ("apiVersion: v1\nkind: Pod\n", &[":1: metadata.name: Required value", ":1: spec.containers: Required value"]),
    ];
    for (text, expect) in table {
        assert_eq!(problems(text), expect, "{text}");
    }
}

#[test]
fn a_name_is_used_once_in_a_file() {
    let one = with_spec("");
    let expect = [":12: metadata.name: Duplicate value: \"default/web\""];
    assert_eq!(problems(&format!("{one}---\n{one}")), expect);
}

#[test]
fn every_problem_of_a_file_comes_at_once() {
    let text = "\
apiVersion: v1
kind: Pod
metadata:
  name: Web
  labels: {app: a b}
spec:
  restartPolicy: Sometimes
  hostPID: true
  containers:
  - name: a_b
    image: ' i'
    imagePullPolice: Always
    lifecycle: {preStop: {sleep: {seconds: 1}}}
    env: [{name: 'A=B', value: 1}, {name: B, valueFrom: {fieldRef: {fieldPath: status.podIP}}}]
    volumeMounts: [{name: data, mountPath: /a:b}]
  - name: a_b
    ports: [{containerPort: 70000, hostPort: 1}]
";
    let label = "a lowercase RFC 1123 label must consist of lower case alphanumeric characters or '-', and must start \
                 and end with an alphanumeric character (e.g. 'my-name',  or '123-abc', regex used for validation is \
                 '[a-z0-9]([-a-z0-9]*[a-z0-9])?')";
    let subdomain = "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or '.', and must \
                     start and end with an alphanumeric character (e.g. 'example.com', regex used for validation is \
                     '[a-z0-9]([-a-z0-9]*[a-z0-9])?(\\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*')";
    let value = "a valid label must be an empty string or consist of alphanumeric characters, '-', '_' or '.', and must \
                 start and end with an alphanumeric character (e.g. 'MyValue',  or 'my_value',  or '12345', regex used \
                 for validation is '(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?')";
    let expect = [
        format!(":4: metadata.name: Invalid value: \"Web\": {subdomain}"),
        format!(":5: metadata.labels[app]: Invalid value: \"a b\": {value}"),
        ":7: spec.restartPolicy: Unsupported value: \"Sometimes\": supported values: \"Always\", \"OnFailure\", \"Never\""
            .to_owned(),
        ":8: spec.hostPID: \"true\" is not supported by this version of armlet, only false".to_owned(),
        format!(":10: spec.containers[0].name: Invalid value: \"a_b\": {label}"),
        ":11: spec.containers[0].image: Invalid value: \" i\": must not have leading or trailing whitespace".to_owned(),
        ":12: spec.containers[0].imagePullPolice: unknown field, did you mean \"imagePullPolicy\"?".to_owned(),
        ":13: spec.containers[0].lifecycle: not supported by this version of armlet".to_owned(),
        ":14: spec.containers[0].env[0].value: Invalid value: 1: must be a string: write it in quotes".to_owned(),
        ":14: spec.containers[0].env[1].valueFrom: not supported by this version of armlet".to_owned(),
        ":14: spec.containers[0].env[0].name: Invalid value: \"A=B\": a valid environment variable name must consist \
         only of printable ASCII characters other than '='"
            .to_owned(),
        ":15: spec.containers[0].volumeMounts[0].name: Not found: \"data\"".to_owned(),
        ":15: spec.containers[0].volumeMounts[0].mountPath: Invalid value: \"/a:b\": must not contain ':'".to_owned(),
        format!(":16: spec.containers[1].name: Invalid value: \"a_b\": {label}"),
        ":16: spec.containers[1].name: Duplicate value: \"a_b\"".to_owned(),
        ":16: spec.containers[1].image: Required value".to_owned(),
        ":17: spec.containers[1].ports[0].containerPort: Invalid value: 70000: must be between 1 and 65535, inclusive"
            .to_owned(),
        ":17: spec.containers[1].ports[0].hostPort: not supported by this version of armlet, only with hostNetwork"
            .to_owned(),
    ];
    assert_eq!(problems(text), expect);
}

/// Each line of a spec or container, and the one problem that it has.
fn check_table(with: fn(&str) -> String, first_line: usize, table: &[(&str, &str)]) {
    for (lines, expect) in table {
        let got = problems(&with(lines));
        let got: Vec<_> = got.iter().map(|p| p.split_once(": ").map_or("", |(_, rest)| rest)).collect();
        assert_eq!(got, [*expect], "{lines}");
        let line = read(&with(lines)).problems[0].line.and_then(|l| usize::try_from(l).ok()).unwrap_or(0);
        assert!((first_line - 3..first_line + lines.lines().count()).contains(&line), "{lines}: line {line}");
    }
}

#[test]
fn specs_are_refused_by_name() {
    const NO: &str = "not supported by this version of armlet";
    let refused: Vec<(String, String)> = [
        ("activeDeadlineSeconds: 5", "activeDeadlineSeconds"),
        ("ephemeralContainers: [{name: d, image: i}]", "ephemeralContainers"),
        ("hostnameOverride: x", "hostnameOverride"),
        ("readinessGates: [{conditionType: a}]", "readinessGates"),
        ("resources: {limits: {cpu: 1}}", "resources"),
        ("runtimeClassName: kata", "runtimeClassName"),
        ("schedulingGates: [{name: a}]", "schedulingGates"),
        ("securityContext: {seLinuxOptions: {level: s0}}", "securityContext.seLinuxOptions"),
        ("securityContext: {windowsOptions: {hostProcess: true}}", "securityContext.windowsOptions"),
        ("volumes: [{name: v, configMap: {}}]", "volumes[0].configMap"),
        ("volumes: [{name: v, secret: {secretName: s}}]", "volumes[0].secret"),
        ("volumes: [{name: v, projected: {sources: []}}]", "volumes[0].projected"),
        ("volumes: [{name: v, persistentVolumeClaim: {claimName: c}}]", "volumes[0].persistentVolumeClaim"),
        ("volumes: [{name: v, downwardAPI: {items: []}}]", "volumes[0].downwardAPI"),
        ("volumes: [{name: v, image: {reference: r}}]", "volumes[0].image"),
        ("volumes: [{name: v, nfs: {server: s, path: /}}]", "volumes[0].nfs"),
        (
            "affinity: {nodeAffinity: {requiredDuringSchedulingIgnoredDuringExecution: {nodeSelectorTerms: [{}]}}}",
            "affinity.nodeAffinity.requiredDuringSchedulingIgnoredDuringExecution",
        ),
    ]
    .map(|(lines, field)| (lines.to_owned(), format!("spec.{field}: {NO}")))
    .into();
    let table: Vec<(&str, &str)> = refused.iter().map(|(a, b)| (a.as_str(), b.as_str())).collect();
    check_table(with_spec, 8, &table);
    let table = [
        ("hostIPC: true", "spec.hostIPC: \"true\" is not supported by this version of armlet, only false"),
        ("hostUsers: false", "spec.hostUsers: \"false\" is not supported by this version of armlet, only true"),
        (
            "shareProcessNamespace: true",
            "spec.shareProcessNamespace: \"true\" is not supported by this version of armlet, only false",
        ),
        (
            "setHostnameAsFQDN: true",
            "spec.setHostnameAsFQDN: \"true\" is not supported by this version of armlet, only false",
        ),
        ("os: {name: windows}", "spec.os.name: \"windows\" is not supported by this version of armlet, only linux"),
        (
            "volumes: [{name: v, emptyDir: {medium: HugePages}}]",
            "spec.volumes[0].emptyDir.medium: \"HugePages\" is not supported by this version of armlet, only Memory",
        ),
        (
            "securityContext: {seccompProfile: {type: Localhost}}",
            "spec.securityContext.seccompProfile.type: \"Localhost\" is not supported by this version of armlet, only \
             RuntimeDefault or Unconfined",
        ),
        (
            "securityContext: {appArmorProfile: {type: RuntimeDefault}}",
            "spec.securityContext.appArmorProfile.type: \"RuntimeDefault\" is not supported by this version of armlet, \
             only Unconfined",
        ),
        (
            "serviceAccountName: builder",
            "spec.serviceAccountName: Forbidden: static pods may not reference serviceaccounts",
        ),
        ("imagePullSecrets: [{name: s}]", "spec.imagePullSecrets: Forbidden: static pods may not reference secrets"),
    ];
    check_table(with_spec, 8, &table);
}

#[test]
fn specs_are_validated_as_upstream_does() {
    let table = [
        (
            "terminationGracePeriodSeconds: -1",
            "spec.terminationGracePeriodSeconds: Invalid value: -1: must be greater than or equal to 0",
        ),
        (
            "dnsPolicy: Sometimes",
            "spec.dnsPolicy: Unsupported value: \"Sometimes\": supported values: \"ClusterFirstWithHostNet\", \"ClusterFirst\", \"Default\", \"None\"",
        ),
        (
            "dnsPolicy: None",
            "spec.dnsConfig.nameservers: Required value: must provide at least one DNS nameserver when `dnsPolicy` is None",
        ),
        (
            "dnsConfig: {nameservers: [x]}",
            "spec.dnsConfig.nameservers[0]: Invalid value: \"x\": must be a valid IP address, (e.g. 10.9.8.7 or 2001:db8::ffff)",
        ),
        (
            "dnsConfig: {nameservers: [1.1.1.1, 1.1.1.2, 1.1.1.3, 1.1.1.4]}",
            "spec.dnsConfig.nameservers: Invalid value: [\"1.1.1.1\", \"1.1.1.2\", \"1.1.1.3\", \"1.1.1.4\"]: must not have more than 3 nameservers",
        ),
        ("dnsConfig: {options: [{value: x}]}", "spec.dnsConfig.options[0]: Required value: must not be empty"),
        (
            "hostAliases: [{ip: 300.0.0.1}]",
            "spec.hostAliases[0].ip: Invalid value: \"300.0.0.1\": must be a valid IP address, (e.g. 10.9.8.7 or 2001:db8::ffff)",
        ),
        ("nodeSelector: {disk: ssd}", "spec.nodeSelector[disk]: Invalid value: \"ssd\": this node has no such label"),
        (
            "nodeSelector: {kubernetes.io/os: windows}",
            "spec.nodeSelector[kubernetes.io/os]: Invalid value: \"windows\": this node's label has the value \"linux\"",
        ),
        ("nodeName: other", "warning: spec.nodeName: \"other\" is replaced by this node's name, \"Edge1\""),
        (
            "preemptionPolicy: Maybe",
            "spec.preemptionPolicy: Unsupported value: \"Maybe\": supported values: \"PreemptLowerPriority\", \"Never\"",
        ),
        (
            "overhead: {cpu: x}",
            "spec.overhead[cpu]: Invalid value: \"x\": not a quantity: expected a number with an optional suffix n, u, m, k, M, G, T, P, E, Ki, Mi, Gi, Ti, Pi, Ei or an exponent",
        ),
        (
            "tolerations: [{key: a, operator: Is}]",
            "spec.tolerations[0].operator: Unsupported value: \"Is\": supported values: \"Equal\", \"Exists\"",
        ),
        (
            "tolerations: [{effect: Never, operator: Exists}]",
            "spec.tolerations[0].effect: Unsupported value: \"Never\": supported values: \"NoSchedule\", \"PreferNoSchedule\", \"NoExecute\"",
        ),
        (
            "securityContext: {runAsUser: -1}",
            "spec.securityContext.runAsUser: Invalid value: -1: must be between 0 and 2147483647, inclusive",
        ),
        (
            "securityContext: {supplementalGroups: [1, 2147483648]}",
            "spec.securityContext.supplementalGroups[1]: Invalid value: 2147483648: must be between 0 and 2147483647, inclusive",
        ),
        (
            "securityContext: {supplementalGroupsPolicy: All}",
            "spec.securityContext.supplementalGroupsPolicy: Unsupported value: \"All\": supported values: \"Merge\", \"Strict\"",
        ),
        (
            "securityContext: {seccompProfile: {}}",
            "spec.securityContext.seccompProfile.type: Required value: type is required",
        ),
        (
            "securityContext: {sysctls: [{name: vm.swappiness, value: '1'}]}",
            "spec.securityContext.sysctls[0].name: Forbidden: forbidden sysctl: \"vm.swappiness\" not allowlisted",
        ),
        (
            "securityContext: {sysctls: [{name: net.core.somaxconn, value: '1'}]}",
            "spec.securityContext.sysctls[0].name: Forbidden: forbidden sysctl: \"net.core.somaxconn\" not allowlisted",
        ),
        (
            "hostNetwork: true\nsecurityContext: {sysctls: [{name: net/ipv4/tcp_syncookies, value: '1'}]}",
            "spec.securityContext.sysctls[0].name: Invalid value: \"net/ipv4/tcp_syncookies\": may not be specified when 'hostNetwork' is true",
        ),
        ("volumes: [{name: v}, {name: v}]", "spec.volumes[1].name: Duplicate value: \"v\""),
        ("volumes: [{emptyDir: {}}]", "spec.volumes[0].name: Required value"),
        (
            "volumes: [{name: v, emptyDir: {}, hostPath: {path: /}}]",
            "spec.volumes[0].hostPath: Forbidden: may not specify more than 1 volume type",
        ),
        (
            "volumes: [{name: v, emptyDir: {sizeLimit: -1}}]",
            "spec.volumes[0].emptyDir.sizeLimit: Invalid value: \"-1\": must be greater than or equal to 0",
        ),
        ("volumes: [{name: v, hostPath: {}}]", "spec.volumes[0].hostPath.path: Required value"),
        (
            "volumes: [{name: v, hostPath: {path: a}}]",
            "spec.volumes[0].hostPath.path: Invalid value: \"a\": must be an absolute path",
        ),
        (
            "volumes: [{name: v, hostPath: {path: /a/../b}}]",
            "spec.volumes[0].hostPath.path: Invalid value: \"/a/../b\": must not contain '..'",
        ),
        (
            "volumes: [{name: v, hostPath: {path: /a, type: Dir}}]",
            "spec.volumes[0].hostPath.type: Unsupported value: \"Dir\": supported values: \"\", \"DirectoryOrCreate\", \"Directory\", \"FileOrCreate\", \"File\", \"Socket\", \"CharDevice\", \"BlockDevice\"",
        ),
        ("initContainers: [{name: c, image: i}]", "spec.initContainers[0].name: Duplicate value: \"c\""),
        (
            "initContainers: [{name: d, image: i, livenessProbe: {exec: {command: [a]}}}]",
            "spec.initContainers[0].livenessProbe: Forbidden: may not be set for init containers without restartPolicy=Always",
        ),
        ("containers: []", "key \"containers\" is given twice"),
    ];
    check_table(with_spec, 8, &table);
}

#[test]
fn containers_are_refused_and_validated() {
    const NO: &str = "not supported by this version of armlet";
    let refused: Vec<(String, String)> = [
        ("envFrom: [{configMapRef: {name: x}}]", "envFrom"),
        ("restartPolicyRules: [{action: Restart}]", "restartPolicyRules"),
        ("volumeDevices: [{name: v, devicePath: /dev/x}]", "volumeDevices"),
        ("resources: {claims: [{name: x}]}", "resources.claims"),
        ("resources: {limits: {nvidia.com/gpu: 1}, requests: {}}", "resources.limits[nvidia.com/gpu]"),
        ("livenessProbe: {grpc: {port: 1}}", "livenessProbe.grpc"),
        ("securityContext: {seLinuxOptions: {level: s0}}", "securityContext.seLinuxOptions"),
        ("volumeMounts: [{name: v, mountPath: /v, subPath: a}]", "volumeMounts[0].subPath"),
        ("volumeMounts: [{name: v, mountPath: /v, subPathExpr: a}]", "volumeMounts[0].subPathExpr"),
        ("ports: [{containerPort: 1, hostIP: 127.0.0.1}]", "ports[0].hostIP"),
    ]
    .map(|(lines, field)| (lines.to_owned(), format!("spec.containers[0].{field}: {NO}")))
    .into();
    for (lines, expect) in &refused {
        let got = problems(&with_container(lines));
        assert!(got.len() == 1 && got[0].ends_with(expect.as_str()), "{lines}: {got:?}");
    }
    let table = [
        (
            "imagePullPolicy: Sometimes",
            "imagePullPolicy: Unsupported value: \"Sometimes\": supported values: \"Always\", \"IfNotPresent\", \"Never\"",
        ),
        (
            "terminationMessagePolicy: X",
            "terminationMessagePolicy: Unsupported value: \"X\": supported values: \"FallbackToLogsOnError\", \"File\"",
        ),
        (
            "restartPolicy: X",
            "restartPolicy: Unsupported value: \"X\": supported values: \"Always\", \"OnFailure\", \"Never\"",
        ),
        ("env: [{value: x}]", "env[0].name: Required value"),
        ("ports: [{name: a}]", "ports[0].containerPort: Required value"),
        (
            "ports: [{containerPort: 1, protocol: tcp}]",
            "ports[0].protocol: Unsupported value: \"tcp\": supported values: \"SCTP\", \"TCP\", \"UDP\"",
        ),
        ("ports: [{containerPort: 1, name: a}, {containerPort: 2, name: a}]", "ports[1].name: Duplicate value: \"a\""),
        (
            "ports: [{containerPort: 1, name: '80'}]",
            "ports[0].name: Invalid value: \"80\": must contain at least one letter (a-z)",
        ),
        ("volumeMounts: [{name: v}]", "volumeMounts[0].mountPath: Required value"),
        (
            "volumeMounts: [{name: v, mountPath: /v}, {name: v, mountPath: /v}]",
            "volumeMounts[1].mountPath: Invalid value: \"/v\": must be unique",
        ),
        (
            "volumeMounts: [{name: v, mountPath: /v, mountPropagation: Bidirectional}]",
            "volumeMounts[0].mountPropagation: \"Bidirectional\" is not supported by this version of armlet, only None",
        ),
        (
            "resizePolicy: [{resourceName: cpu, restartPolicy: RestartContainer}]",
            "resizePolicy[0].restartPolicy: \"RestartContainer\" is not supported by this version of armlet, only NotRequired",
        ),
        (
            "resources: {limits: {cpu: 1}, requests: {cpu: 1500m}}",
            "resources.requests[cpu]: Invalid value: \"1500m\": must be less than or equal to cpu limit of 1",
        ),
        (
            "resources: {requests: {memory: 1Gib}}",
            "resources.requests[memory]: Invalid value: \"1Gib\": not a quantity: expected a number with an optional suffix n, u, m, k, M, G, T, P, E, Ki, Mi, Gi, Ti, Pi, Ei or an exponent",
        ),
        ("resources: {limits: {hugepages-2Mi: 2Mi}}", "resources: Forbidden: HugePages require cpu or memory"),
        (
            "resources: {requests: {hugepages-2Mi: 2Mi, cpu: 1}}",
            "resources.limits: Required value: Limit must be set for non overcommitable resources",
        ),
        (
            "resources: {limits: {hugepages-2Mi: 4Mi, cpu: 1}, requests: {hugepages-2Mi: 2Mi}}",
            "resources.requests[hugepages-2Mi]: Invalid value: \"2Mi\": must be equal to hugepages-2Mi limit of 4Mi",
        ),
        ("livenessProbe: {}", "livenessProbe: Required value: must specify a handler type"),
        (
            "livenessProbe: {exec: {command: [a]}, tcpSocket: {port: 1}}",
            "livenessProbe.tcpSocket: Forbidden: may not specify more than 1 handler type",
        ),
        ("livenessProbe: {exec: {}}", "livenessProbe.exec.command: Required value"),
        (
            "livenessProbe: {tcpSocket: {port: 0}}",
            "livenessProbe.tcpSocket.port: Invalid value: 0: must be between 1 and 65535, inclusive",
        ),
        (
            "livenessProbe: {tcpSocket: {port: web}}",
            "livenessProbe.tcpSocket.port: Invalid value: \"web\": no port of this container has this name",
        ),
        (
            "livenessProbe: {httpGet: {port: 1, scheme: ftp}}",
            "livenessProbe.httpGet.scheme: Unsupported value: \"ftp\": supported values: \"HTTP\", \"HTTPS\"",
        ),
        (
            "livenessProbe: {httpGet: {port: 1, path: \"/a b\"}}",
            "livenessProbe.httpGet.path: Invalid value: \"/a b\": must not contain spaces or control characters",
        ),
        (
            "livenessProbe: {exec: {command: [a]}, successThreshold: 2}",
            "livenessProbe.successThreshold: Invalid value: 2: must be 1",
        ),
        (
            "startupProbe: {exec: {command: [a]}, periodSeconds: -1}",
            "startupProbe.periodSeconds: Invalid value: -1: must be greater than or equal to 0",
        ),
        (
            "readinessProbe: {exec: {command: [a]}, terminationGracePeriodSeconds: 1}",
            "readinessProbe.terminationGracePeriodSeconds: Invalid value: 1: must not be set for readinessProbes",
        ),
        (
            "livenessProbe: {exec: {command: [a]}, terminationGracePeriodSeconds: 0}",
            "livenessProbe.terminationGracePeriodSeconds: Invalid value: 0: must be greater than 0",
        ),
        (
            "securityContext: {capabilities: {add: [FLY]}}",
            "securityContext.capabilities.add[0]: Invalid value: \"FLY\": the kernel has no capability of this name",
        ),
        (
            "securityContext: {allowPrivilegeEscalation: false, privileged: true}",
            "securityContext: Invalid value: false: cannot set `allowPrivilegeEscalation` to false and `privileged` to true",
        ),
        (
            "securityContext: {procMount: Unmasked}",
            "securityContext.procMount: \"Unmasked\" is not supported by this version of armlet, only Default",
        ),
    ];
    let table = table.map(|(lines, expect)| (lines, format!("spec.containers[0].{expect}")));
    let table: Vec<(&str, &str)> = table.iter().map(|(a, b)| (*a, b.as_str())).collect();
    check_table(with_container, 9, &table);
}

#[test]
fn host_ports_are_used_once() {
    let text = with_spec(
        "hostNetwork: true\ninitContainers:\n- {name: i, image: i, ports: [{containerPort: 80}]}\n\
         - {name: s, image: i, restartPolicy: Always, ports: [{containerPort: 81, protocol: UDP}, {containerPort: 81}]}\n\
         - {name: t, image: i, restartPolicy: Always, ports: [{containerPort: 81}, {containerPort: 5, hostPort: 6}]}",
    );
    let expect = [
        ":12: spec.initContainers[2].ports[0].hostPort: Duplicate value: \"TCP//81\"",
        ":12: spec.initContainers[2].ports[1].hostPort: Invalid value: 6: must match `containerPort` when `hostNetwork` \
         is true",
    ];
    assert_eq!(problems(&text), expect);
}

#[test]
fn metadata_is_checked() {
    let with = |lines: &str| with_spec("").replace("  name: web\n", lines);
    let table = [
        ("  name: ~\n", ":4: metadata.name: Required value"),
        ("  name: 5\n", ":4: metadata.name: Invalid value: 5: must be a string: write it in quotes"),
        (
            "  name: a\n  annotations: {kubernetes.io/config.mirror: x}\n",
            ":5: metadata.annotations[kubernetes.io/config.mirror]: Forbidden: a manifest is never a mirror pod",
        ),
        (
            "  name: a\n  annotations: {container.apparmor.security.beta.kubernetes.io/c: localhost/x}\n",
            ":5: metadata.annotations[container.apparmor.security.beta.kubernetes.io/c]: \"localhost/x\" is not supported by this version of armlet, only unconfined",
        ),
        ("  name: a\n  resourceVersion: '5'\n", ":5: warning: metadata.resourceVersion: has no effect in a manifest"),
    ];
    for (lines, expect) in table {
        assert_eq!(problems(&with(lines)), [expect], "{lines}");
    }
    let big = format!("  name: a\n  annotations: {{a: {}}}\n", "x".repeat(263_000));
    assert_eq!(problems(&with(&big)), [":5: metadata.annotations: Too long: may not be more than 262144 bytes"]);
    let long = problems(&with(&format!("  name: {}\n", "a".repeat(250))));
    assert!(long[0].ends_with("must be no more than 253 bytes"), "{long:?}");
    let long = problems(&with(&format!("  name: {}\n", "a".repeat(220))));
    assert!(
        long[0].starts_with(":4: metadata.name: Too long: with \"-edge1\" behind it, namespace and UID"),
        "{long:?}"
    );
}

#[test]
fn sysctls_beyond_the_safe_ones_must_be_allowed_by_the_node() {
    let mut node = NodeIdentity::new("n");
    node.allowed_unsafe_sysctls = vec!["net.core.*".into(), "kernel.sem".into(), "vm.*".into()];
    let text =
        with_spec("securityContext: {sysctls: [{name: net/core/somaxconn, value: '1'}, {name: kernel.sem, value: x}]}");
    let parsed = parse(text.as_bytes(), FILE, &node);
    assert_eq!(parsed.problems, []);
    assert_eq!(parsed.pods[0].spec.sysctls["net.core.somaxconn"], "1");
    // Not even the node can allow what is not kept per namespace.
    let text = with_spec("securityContext: {sysctls: [{name: vm.swappiness, value: '1'}]}");
    assert!(parse(text.as_bytes(), FILE, &node).pods.is_empty());
}

#[test]
fn hostile_manifests_are_bounded() {
    let names: String = (0..3000).map(|i| format!("x{i}: 1\n")).collect();
    let got = problems(&format!("apiVersion: v1\nkind: Pod\n{names}"));
    assert_eq!(got.len(), 201);
    assert_eq!(got[200], ":202: and 2802 more problems");
    let doubling: String = (0..40).map(|_| "- {name: A, value: $(A)$(A)}\n".to_owned()).collect();
    let got = problems(&with_container(&format!("env:\n- {{name: A, value: x}}\n{doubling}")));
    let expect = ":27: spec.containers[0].env[17].value: Too long: expanded it may not be more than 131071 bytes, with the \
                  pod's others 8388608";
    assert_eq!(got[0], expect);
    let got = problems(&with_container("args: [\"a\\0b\"]\nlivenessProbe: {exec: {command: [\"\\0\"]}}"));
    assert_eq!(got.len(), 2);
    assert!(got[0].ends_with("must be without NUL characters: nothing of the system can take them"));
}
