//! Static pods as files come, change and go, good and bad.

use crate::node::{AGENT_PID, PATIENCE, PIDS, container, node, node_alone, pod};
use serde_json::Value;
use std::time::Duration;

const IDLE: &str = "trap exit TERM; sleep 1000000 & wait";

fn idle() -> String {
    format!("  containers:\n{}", container("main", IDLE))
}

/// "YAML and JSON manifests, several documents a file; edits and removals followed": each document is a pod, and a
/// document or file taken away takes only its own pods away.
#[test]
fn files_of_both_forms_and_several_documents_become_pods() {
    let (node, _agent) = node();
    let two = format!("{}---\n# nothing\n---\n{}", pod("first", &idle()), pod("second", &idle()));
    let json = serde_json::json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "third"}, "spec": {
        "terminationGracePeriodSeconds": 2,
        "containers": [{"name": "main", "image": crate::node::IMAGE, "imagePullPolicy": "IfNotPresent",
            "command": ["sh", "-c", IDLE]}]}});
    node.manifest("two.yaml", &two);
    node.manifest("third.json", &json.to_string());
    for name in ["first", "second", "third"] {
        node.wait_for(name, "Running");
    }
    let (first, third) = (node.field("first", "/metadata/uid"), node.field("third", "/metadata/uid"));
    // A copy of a running pod's manifest is refused, under a name that sorts before it too; the pod goes on.
    node.ok("cp /etc/armlet/manifests/third.json /etc/armlet/manifests/copy.json");
    let refused = "/etc/armlet/manifests/copy.json: pod default/third";
    node.wait_until(&format!("armlet inspect | grep -F '{refused}' | grep -F manifests/third.json"), PATIENCE);
    assert_eq!(node.field("third", "/metadata/uid"), third);
    node.ok("rm /etc/armlet/manifests/copy.json");
    node.wait_until("! armlet inspect | grep -F copy.json", PATIENCE);
    node.manifest("two.yaml", &pod("first", &idle()));
    node.wait_until("! armlet inspect second", PATIENCE);
    assert_eq!(node.field("first", "/metadata/uid"), first);
    node.ok("rm /etc/armlet/manifests/two.yaml");
    node.wait_until("! armlet inspect first", PATIENCE);
    assert_eq!(node.field("third", "/metadata/uid"), third);
    node.ok("rm /etc/armlet/manifests/third.json");
    node.wait_until("! armlet inspect third", PATIENCE);
    for uid in [first, third] {
        let uid = uid.as_str().unwrap();
        let left = node.ok(&format!(
            "find /sys/fs/cgroup/kubepods /var/lib/armlet/pods /run/armlet /var/log -name '*{uid}*' || true"
        ));
        assert_eq!(left, "", "left of a removed pod");
    }
}

/// "a changed file is a new pod": another UID, and the old pod is gone before the new one starts.
#[test]
fn an_edit_is_a_new_pod_after_the_old_one_is_gone() {
    let (node, _agent) = node();
    let spec = |mark: &str| {
        let script = format!(
            "mkdir /shared/held || echo OVERLAP; trap 'sleep 1; rmdir /shared/held; exit' TERM; echo {mark}; sleep 1000000 & wait"
        );
        let volumes = "  volumes: [{name: shared, hostPath: {path: /run/edit, type: DirectoryOrCreate}}]\n";
        let container =
            container("main", &script).replace("}\n", ", volumeMounts: [{name: shared, mountPath: /shared}]}\n");
        format!("{volumes}  containers:\n{container}")
    };
    let text = |mark: &str| pod("edited", &spec(mark)).replace("Seconds: 2\n", "Seconds: 20\n");
    node.manifest("edited.yaml", &text("one"));
    node.wait_until("armlet logs edited | grep one", PATIENCE);
    let uid = node.field("edited", "/metadata/uid");
    node.manifest("edited.yaml", &text("two"));
    node.wait_until("armlet logs edited | grep two", PATIENCE);
    assert_ne!(node.field("edited", "/metadata/uid"), uid);
    assert_eq!(node.ok("armlet logs edited"), "two\n");
    node.remove_pod("edited");
    assert_eq!(node.ok("ls /run/edit"), "");
}

/// "half-written and editor files ignored": a file that is still being written is nothing yet, and no error.
#[test]
fn half_written_and_left_over_files_are_no_manifests() {
    let (node, _agent) = node();
    let text = pod("ghost", &idle());
    for name in [".ghost.yaml", ".ghost.yaml.swp", "ghost.yaml~", "#ghost.yaml#", "ghost.yaml.tmp", "4913"] {
        node.ok(&format!("cat >'/etc/armlet/manifests/{name}' <<'END'\n{text}END"));
    }
    // The writer keeps the file open, half a document in it, until it is told to go on.
    node.ok("mkfifo /tmp/half");
    let (begin, end) = text.split_at(text.find("containers").unwrap() + 5);
    let begin = begin.replace("ghost", "slow");
    node.ok(&format!(
        "{{ printf %s '{}'; cat /tmp/half; }} >/etc/armlet/manifests/slow.yaml 2>/dev/null &",
        begin.replace('\'', "'\\''")
    ));
    // A pod that came later proves that the folder was read meanwhile.
    node.run_pod("later", &idle());
    let refused = node.ok("armlet inspect");
    assert!(!refused.contains("slow.yaml") && !refused.contains("ghost"), "{refused}");
    assert!(!node.ok("armlet ps").contains("slow"));
    node.ok(&format!("printf %s '{}' >/tmp/half", end.replace('\'', "'\\''")));
    node.wait_for("slow", "Running");
    assert!(!node.ok("armlet ps").contains("ghost"));
    node.ok("rm -f /etc/armlet/manifests/*ghost* /etc/armlet/manifests/.ghost* /etc/armlet/manifests/4913 /tmp/half");
    node.remove_pod("slow");
    node.remove_pod("later");
}

/// "bad files refused with every problem named (file, line, field path) while the other pods go on".
#[test]
fn a_bad_file_is_refused_with_all_that_is_wrong() {
    let (node, _agent) = node();
    let bad = "apiVersion: v1\nkind: Pod\nmetadata:\n  name: Bad_Name\nspec:\n  restartPolicy: Sometimes\n  \
               hostPid: true\n  containers:\n  - name: a\n    image: x\n    ports: [{containerPort: 70000}]\n  - name: a\n    \
               image: y\n    livenessProbe: {grpc: {port: 1}}\n";
    node.manifest("bad.yaml", bad);
    node.manifest("worse.yaml", "a: [\n");
    let problem = |text: &str| format!("armlet inspect | grep -F '{text}'");
    for text in [
        "/etc/armlet/manifests/bad.yaml:4: metadata.name",
        "/etc/armlet/manifests/bad.yaml:6: spec.restartPolicy",
        "/etc/armlet/manifests/bad.yaml:7: spec.hostPid: unknown field, did you mean",
        "/etc/armlet/manifests/bad.yaml:11: spec.containers[0].ports[0].containerPort",
        "/etc/armlet/manifests/bad.yaml:12: spec.containers[1].name",
        "/etc/armlet/manifests/bad.yaml:14: spec.containers[1].livenessProbe.grpc",
        "/etc/armlet/manifests/worse.yaml:",
    ] {
        node.wait_until(&problem(text), PATIENCE);
    }
    let console = node.console();
    assert!(console.contains("bad.yaml:6: spec.restartPolicy"), "the agent's log says it too");
    // The others go on: a good file is taken up beside the bad ones.
    node.run_pod("beside", &idle());
    node.remove_pod("beside");
    node.ok("rm /etc/armlet/manifests/bad.yaml /etc/armlet/manifests/worse.yaml");
    node.wait_until("! armlet inspect | grep -E 'bad.yaml|worse.yaml'", PATIENCE);
}

/// "a running pod is never torn down by a parse error", not by a new agent either; "the same file is the same pod".
#[test]
fn a_running_pod_outlives_its_broken_file_and_the_agent() {
    let (node, _agent) = node_alone();
    node.run_pod("robust", &idle());
    let identity = |node: &crate::node::Node| -> Vec<Value> {
        ["/metadata/uid", "/status/containerStatuses/0/containerID", "/status/containerStatuses/0/restartCount"]
            .map(|pointer| node.field("robust", pointer))
            .to_vec()
    };
    let before = identity(node);
    node.restart_agent();
    node.wait_for("robust", "Running");
    assert_eq!(identity(node), before, "after an agent's restart");

    let good = pod("robust", &idle());
    node.manifest("robust.yaml", &format!("{good}  restartPolicy: [\n"));
    node.wait_until("armlet inspect | grep -F robust.yaml:", PATIENCE);
    assert_eq!(identity(node), before, "with a broken file");
    node.restart_agent();
    node.wait_until("armlet inspect | grep -F robust.yaml:", PATIENCE);
    node.wait_for("robust", "Running");
    assert_eq!(identity(node), before, "with a broken file and another agent");

    // One bad document of several keeps what it wanted too.
    node.manifest("robust.yaml", &good);
    node.wait_until("! armlet inspect | grep -F robust.yaml:", PATIENCE);
    assert_eq!(identity(node), before, "with the file mended");
    node.remove_pod("robust");
}

/// "a running pod is never torn down" because its file is being written when an agent begins, nor because the whole folder
/// is missing then: what runs is seen to as ever.
#[test]
fn a_running_pod_outlives_a_file_and_a_folder_that_are_not_there_yet() {
    let (node, _agent) = node_alone();
    node.run_pod("adopted", &idle());
    let uid = node.field("adopted", "/metadata/uid");
    let restarts = |node: &crate::node::Node| node.field("adopted", "/status/containerStatuses/0/restartCount");

    // The file is empty, and stays open until it is told to go on.
    node.ok("mkfifo /tmp/held; cat /tmp/held >/etc/armlet/manifests/adopted.yaml 2>/dev/null &");
    node.wait_until("[ ! -s /etc/armlet/manifests/adopted.yaml ]", PATIENCE);
    node.restart_agent();
    // A pod that came later proves that the folder was read.
    node.run_pod("later", &idle());
    node.remove_pod("later");
    assert_eq!((node.field("adopted", "/metadata/uid"), restarts(node)), (uid.clone(), 0.into()), "{}", node.console());
    node.ok(&format!("cat >/tmp/held <<'END'\n{}END\nrm /tmp/held", pod("adopted", &idle())));

    node.ok(&format!("{AGENT_PID}; kill -STOP $agent && mv /etc/armlet/manifests /etc/armlet/away"));
    node.restart_agent();
    node.wait_for("adopted", "Running");
    node.ok("armlet exec adopted -- kill -TERM 1 || true");
    node.wait_until("armlet inspect adopted -o json | grep -E '\"restartCount\": ?1'", PATIENCE);
    node.wait_for("adopted", "Running");
    node.ok("mv /etc/armlet/away /etc/armlet/manifests");
    node.run_pod("later", &idle());
    assert_eq!((node.field("adopted", "/metadata/uid"), restarts(node)), (uid, 1.into()));
    node.remove_pod("later");
    node.remove_pod("adopted");
}

/// "seccompDefault": a pod that says nothing is filtered, one that wants to be free is not.
#[test]
fn a_pod_that_says_nothing_is_filtered_where_the_node_says_so() {
    let (node, _agent) = node();
    let free = format!("  securityContext: {{seccompProfile: {{type: Unconfined}}}}\n{}", idle());
    for (name, spec, mode) in [("silent", idle(), "2"), ("unconfined", free, "0")] {
        node.run_pod(name, &spec);
        let status = node.ok(&format!("armlet exec {name} -- grep Seccomp: /proc/1/status"));
        assert_eq!(status.split_whitespace().collect::<Vec<_>>(), ["Seccomp:", mode], "{name}");
        node.remove_pod(name);
    }
}

/// "podPidsLimit": a pod has so many processes and no more.
#[test]
fn a_pod_has_no_more_processes_than_the_node_says() {
    let (node, _agent) = node();
    let many = "trap exit TERM; n=0; while [ $n -lt 400 ]; do sleep 1000000 & n=$((n+1)); done; wait";
    node.run_pod("many", &format!("  containers:\n{}", container("main", many)));
    let uid = node.field("many", "/metadata/uid").as_str().unwrap().to_owned();
    let group = node.ok(&format!("find /sys/fs/cgroup/kubepods -type d -name 'pod{uid}'"));
    let group = group.trim();
    assert_eq!(node.ok(&format!("cat {group}/pids.max")), format!("{PIDS}\n"));
    node.wait_until(&format!("grep '^max [1-9]' {group}/pids.events"), PATIENCE);
    assert!(node.ok(&format!("cat {group}/pids.peak")).trim().parse::<u32>().unwrap() <= PIDS);
    node.remove_pod("many");
}

/// "flags and a KubeletConfiguration file; other fields are named": the agent says all that is wrong and ends with code 2.
#[test]
fn a_configuration_that_is_not_understood_is_refused_by_name() {
    let (node, _agent) = node();
    let text = "apiVersion: kubelet.config.k8s.io/v1beta1\nkind: KubeletConfiguration\nfeatureGates: {A: true}\nmaxPods: -1\n\
                maxpods: 1\n";
    node.write_file("/run/wrong.yaml", text.as_bytes());
    let output = node.run("armlet agent --config /run/wrong.yaml --cluster-dns x", Duration::from_secs(60)).unwrap();
    assert_eq!(output.status, 2, "{output:?}");
    for line in [
        "armlet agent: /run/wrong.yaml:3: warning: featureGates: not supported",
        "armlet agent: /run/wrong.yaml:4: maxPods: Invalid value: -1",
        "armlet agent: /run/wrong.yaml:5: warning: maxpods: unknown field and ignored, did you mean \"maxPods\"?",
        "armlet agent: command line: --cluster-dns: Invalid value: \"x\"",
    ] {
        assert!(output.stderr.contains(line), "{line}\n{}", output.stderr);
    }
    let output = node.run("armlet agent --config /run/absent.yaml", Duration::from_secs(60)).unwrap();
    assert_eq!(output.status, 2, "{output:?}");
    assert!(output.stderr.contains("/run/absent.yaml"), "{output:?}");
}
