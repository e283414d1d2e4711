//! The command line and the API below it, as people and programs meet them.

use crate::node::{AGENT_PID, IMAGE, PATIENCE, container, node, node_alone};
use serde_json::Value;

const COMMANDS: [&str; 15] = [
    "ps",
    "logs",
    "exec",
    "images",
    "import",
    "inspect",
    "events",
    "version",
    "rmi",
    "top",
    "stats",
    "stop",
    "restart",
    "completions",
    "man",
];

/// "`--help` a person can follow": every command explains itself and shows examples.
#[test]
fn every_help_text_has_examples() {
    let (node, _agent) = node();
    let all = node.ok("armlet --help");
    for command in COMMANDS {
        assert!(all.contains(&format!("  {command} ")), "{command} in\n{all}");
        let help = node.ok(&format!("armlet {command} --help"));
        assert!(help.contains("Examples:\n  armlet ") && help.contains("Usage: armlet"), "{help}");
    }
    assert!(all.contains("Examples:") && all.contains("Exit codes:"), "{all}");
    let wrong = node.try_run("armlet log x");
    assert!(wrong.status == 2 && wrong.stderr.contains("'logs'"), "{wrong:?}");
}

/// "tables ..., `-o json|yaml`, plain when piped".
#[test]
fn lists_come_as_tables_and_as_documents() {
    let (node, _agent) = node();
    node.run_pod("listed", &format!("  containers:\n{}", container("main", "exec sleep 1000000")));
    let table = node.ok("armlet ps");
    let header = table.lines().next().unwrap();
    let line = table.lines().find(|line| line.contains(" listed")).unwrap();
    assert!(!table.contains('\x1b'), "{table:?}");
    for (heading, cell) in [("READY", "1/1"), ("STATUS", "Running"), ("RESTARTS", "0")] {
        let at = header.find(heading).unwrap();
        assert!(line[at..].starts_with(cell), "{cell} below {heading} in\n{table}");
    }
    let address = node.field("listed", "/status/podIP");
    assert!(node.ok("armlet ps -o wide").contains(address.as_str().unwrap()));
    assert!(node.ok("armlet ps -c").lines().any(|line| line.contains("listed") && line.contains("main")));
    assert!(node.ok("armlet --color always ps").contains('\x1b'));

    for command in ["ps", "images", "inspect listed", "inspect", "version"] {
        let json = node.ok(&format!("armlet {command} -o json"));
        let json: Value = serde_json::from_str(&json).unwrap_or_else(|error| panic!("{command}: {error}\n{json}"));
        let yaml = node.ok(&format!("armlet {command} -o yaml"));
        let one = if json.is_array() { &json[0] } else { &json };
        for field in one.as_object().unwrap().keys() {
            let named = |line: &str| line.trim_start_matches("- ").trim_start().starts_with(&format!("{field}:"));
            assert!(yaml.lines().any(named), "{command}: {field} in\n{yaml}");
        }
    }
    let pods: Value = serde_json::from_str(&node.ok("armlet ps -o json")).unwrap();
    let listed = pods["items"]
        .as_array()
        .unwrap()
        .iter()
        .find(|pod| pod["metadata"]["name"].as_str().unwrap().starts_with("listed"));
    let listed = listed.unwrap();
    assert_eq!((&listed["kind"], &listed["status"]["phase"]), (&"Pod".into(), &"Running".into()));
    let digests = |flags: &str| node.ok(&format!("armlet images {flags} | grep -cE ' [0-9a-f]{{64}} ' || true"));
    assert_eq!((digests("").trim(), digests("-o wide").trim() == "0"), ("0", false));
    assert!(node.ok("armlet version").lines().count() >= 2);

    node.wait_until("armlet events | grep Started", PATIENCE);
    let events = node.ok("armlet events listed");
    let (header, rest) = events.split_once('\n').unwrap();
    for reason in ["Created", "Started"] {
        let line = rest.lines().find(|line| line.contains(reason)).unwrap();
        for (heading, cell) in [("TYPE", "Normal"), ("REASON", reason), ("OBJECT", "default/listed")] {
            assert!(line[header.find(heading).unwrap()..].starts_with(cell), "{cell} below {heading} in\n{events}");
        }
    }
    let event: Value = serde_json::from_str(node.ok("armlet events listed -o json").lines().next().unwrap()).unwrap();
    assert!(event["object"].as_str().unwrap().starts_with("default/listed"), "{event}");
    node.remove_pod("listed");
}

/// "`exec` (`-i`, exit code)": streams arrive apart and whole, the end of the input too, and the code is the program's.
#[test]
fn exec_passes_streams_and_codes_on() {
    let (node, _agent) = node();
    node.run_pod("worker", &format!("  containers:\n{}", container("main", "exec sleep 1000000")));
    let output = node.try_run("armlet exec worker -- sh -c 'echo out; echo err >&2; exit 7'");
    assert_eq!((output.status, output.stdout.as_str(), output.stderr.as_str()), (7, "out\n", "err\n"));
    // The program sees the end of its input and goes on writing.
    assert_eq!(node.ok("printf abc | armlet exec -i worker -- sh -c 'cat; echo \" end\"'"), "abc end\n");
    // Without -i there is no input to wait for.
    assert_eq!(node.ok("echo x | armlet exec worker -- sh -c 'cat; echo none'"), "none\n");
    let sum = "head -c 3000000 /dev/urandom >/tmp/big; sha256sum </tmp/big; \
               armlet exec -i worker -- sha256sum </tmp/big; armlet exec -i worker -- cat </tmp/big | sha256sum";
    let sums = node.ok(sum);
    let sums: Vec<&str> = sums.lines().collect();
    assert!(sums.len() == 3 && sums.iter().all(|line| line == &sums[0]), "{sums:?}");
    for (program, code) in [
        ("true", 0),
        ("false", 1),
        ("sh -c 'exit 255'", 255),
        ("/nonexistent", 127),
        ("/etc/passwd", 126),
        ("sh -c 'kill -9 $$'", 137),
    ] {
        let output = node.try_run(&format!("armlet exec worker -- {program}"));
        assert_eq!(output.status, code, "{program}: {output:?}");
    }
    for (line, why) in [
        ("armlet exec absent -- true", "absent"),
        ("armlet exec worker -c absent -- true", "absent"),
        ("armlet --socket /run/nowhere.sock exec worker -- true", "cannot be reached"),
    ] {
        let output = node.try_run(line);
        assert!(output.status == 125 && output.stderr.contains(why), "{line}: {output:?}");
    }
    // A client that goes away takes its program with it.
    node.ok("armlet exec worker -- sleep 7654321 >/run/client.out 2>&1 & client=$!; until armlet exec worker -- sh -c 'ps | grep [7]654321'; do usleep 100000; done; kill $client");
    node.wait_until("! armlet exec worker -- sh -c 'ps | grep [7]654321'", PATIENCE);
    node.remove_pod("worker");
}

/// "`exec -t`, window size": on a terminal inside another pod, so that there is one. The program has the size from its
/// first moment and hears when it changes.
#[test]
fn exec_on_a_terminal_has_its_size() {
    let (node, _agent) = node();
    let inner = "tty; stty size; until stty size | grep -qx \"44 88\"; do usleep 100000; done; echo resized; exit 9";
    node.run_pod("screen", &format!("  containers:\n{}", container("main", "exec sleep 1000000")));
    let outer = format!(
        "stty rows 33 cols 77; /payload/armlet exec -it screen -- sh -c '{inner}'; echo code=$?; exec sleep 1000000"
    );
    let outer = serde_json::to_string(&outer).unwrap();
    node.run_pod(
        "terminal",
        &format!(
            "  volumes:\n  - {{name: payload, hostPath: {{path: /run/payload}}}}\n  - {{name: run, hostPath: {{path: /run/armlet}}}}\n  \
             containers:\n  - name: main\n    image: {IMAGE}\n    imagePullPolicy: IfNotPresent\n    tty: true\n    stdin: true\n    \
             command: [sh, -c, {outer}]\n    \
             volumeMounts: [{{name: payload, mountPath: /payload}}, {{name: run, mountPath: /run/armlet}}]"
        ),
    );
    node.wait_until("armlet logs terminal | grep -F '33 77'", PATIENCE);
    node.ok("armlet exec terminal -- sh -c 'stty rows 44 cols 88 </dev/console'");
    node.wait_until("armlet logs terminal | grep code=9", PATIENCE);
    let seen = node.ok("armlet logs terminal");
    assert!(seen.contains("/dev/pts/") && seen.contains("resized"), "{seen}");
    node.remove_pod("terminal");
    node.remove_pod("screen");
}

/// An agent that is not there is said so, with what to do, and has a code of its own.
#[test]
fn an_agent_that_is_down_is_said_so() {
    let (node, _agent) = node();
    for command in ["ps", "images", "inspect", "events", "logs x"] {
        let output = node.try_run(&format!("armlet --socket /run/nowhere.sock {command}"));
        assert_eq!(output.status, 3, "{command}: {output:?}");
        assert!(
            output.stderr.contains("/run/nowhere.sock") && output.stderr.contains("Is armlet running"),
            "{output:?}"
        );
    }
}

/// "CLI over the unix socket": what the command line uses is there for other clients, here curl of Debian in a pod.
#[test]
fn another_http_client_reads_the_api() {
    let (node, _agent) = node();
    node.ok("armlet import /run/payload/curl.tar");
    node.run_pod(
        "client",
        "  volumes: [{name: run, hostPath: {path: /run/armlet}}]\n  containers:\n  - {name: main, image: 'localhost/curl:trixie', \
         imagePullPolicy: Never, command: [sleep, '1000000'], volumeMounts: [{name: run, mountPath: /run/armlet}]}",
    );
    let curl = |arguments: &str| {
        node.ok(&format!(
            "armlet exec client -- curl -sS --max-time 60 --unix-socket /run/armlet/armlet.sock {arguments}"
        ))
    };
    assert_eq!(curl("http://node/healthz"), "ok");
    let pods: Value = serde_json::from_str(&curl("http://node/pods")).unwrap();
    assert_eq!(pods["kind"], "PodList");
    let name = node.field("client", "/metadata/name").as_str().unwrap().to_owned();
    assert!(pods["items"].as_array().unwrap().iter().any(|pod| pod["metadata"]["name"] == name.as_str()), "{pods}");
    let code = |arguments: &str| curl(&format!("-o /dev/null -w '%{{http_code}}' {arguments}"));
    assert_eq!(code("http://node/nothing"), "404");
    assert_eq!(code("-X DELETE http://node/pods"), "405");
    assert_eq!(code(&format!("http://node/containerLogs/default/{name}/absent")), "404");
    assert_eq!(code(&format!("http://node/containerLogs/default/{name}/main")), "200");
    assert_eq!(code(&format!("-X POST 'http://node/exec/default/{name}/main?command=true&output=1'")), "500");
    let told = curl(&format!("-X POST 'http://node/exec/default/{name}/main?command=true&output=1'"));
    assert_eq!(told, "Upgrade request required\n");
    node.remove_pod("client");
}

/// What is not known yet is not told as if it were not there: exit 3 is "not now", 1 would be "no such pod".
#[test]
fn an_agent_that_has_just_started_knows_its_pods() {
    let (node, _agent) = node_alone();
    node.run_pod("known", &format!("  containers:\n{}", container("main", "exec sleep 1000000")));
    for _ in 0..5 {
        node.ok(&format!(
            "{AGENT_PID} && kill -9 $agent; while :; do armlet inspect known >/dev/null; status=$?; \
             [ $status = 3 ] || break; done; [ $status = 0 ] && armlet ps -o json | grep -q '\"known'"
        ));
    }
    node.remove_pod("known");
}
