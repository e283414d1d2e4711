//! What pods reach and who reaches them.

use crate::node::{IMAGE, PATIENCE, PORT, container, node};
use std::io::{Read, Write};
use std::net::TcpStream;

fn server(text: &str, port: u16) -> String {
    let serve = format!("mkdir /www; echo {text} >/www/index.html; exec httpd -f -p {port} -h /www");
    format!("  containers:\n{}", container("main", &serve))
}

/// "a minimal bridge with addresses, so that probes and the demo's client work": the node reaches a pod by its address,
/// and a pod reaches another.
#[test]
fn the_bridge_joins_pods_and_the_node() {
    let (node, _agent) = node();
    node.run_pod("left", &server("hello-from-left", 80));
    node.run_pod("right", &server("hello-from-right", 80));
    let address = |pod: &str| node.field(pod, "/status/podIP").as_str().unwrap().to_owned();
    let (left, right) = (address("left"), address("right"));
    assert_ne!(left, right);
    for (address, text) in [(&left, "hello-from-left"), (&right, "hello-from-right")] {
        node.wait_until(&format!("wget -q -T 5 -O - http://{address}/ | grep -x {text}"), PATIENCE);
    }
    assert_eq!(node.ok(&format!("armlet exec left -- wget -q -T 20 -O - http://{right}/")), "hello-from-right\n");
    assert_eq!(node.ok(&format!("armlet exec right -- wget -q -T 20 -O - http://{left}/")), "hello-from-left\n");
    // Each has a loopback of its own, and its name leads to its address.
    assert_eq!(node.ok("armlet exec left -- wget -q -T 20 -O - http://127.0.0.1/"), "hello-from-left\n");
    assert!(node.ok("armlet exec left -- cat /etc/hosts").lines().any(|line| line.starts_with(&left)));
    assert!(node.ok("armlet exec left -- hostname").starts_with("left"));
    node.remove_pod("left");
    // What the other has is untouched.
    assert_eq!(node.ok(&format!("wget -q -T 20 -O - http://{right}/")), "hello-from-right\n");
    node.remove_pod("right");
}

/// "hostNetwork pods": what listens in one is reached at the node's own address, here by a client on another machine.
#[test]
fn a_pod_on_the_hosts_network_is_reached_from_outside() {
    let (node, _agent) = node();
    node.run_pod("outside", &format!("  hostNetwork: true\n{}", server("hello-outside", PORT)));
    node.wait_until(&format!("netstat -ltn | grep -q :{PORT}"), PATIENCE);
    let mut stream = TcpStream::connect(("127.0.0.1", node.port(PORT).unwrap())).unwrap();
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    stream.write_all(b"GET / HTTP/1.0\r\n\r\n").unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    assert!(answer.starts_with("HTTP/1.") && answer.ends_with("hello-outside\n"), "{answer}");
    assert_eq!(node.field("outside", "/status/podIP"), node.field("outside", "/status/hostIP"));
    assert_eq!(node.ok("armlet exec outside -- hostname"), node.ok("hostname"));
    node.remove_pod("outside");
}

/// "hostIP ... podIP": both follow the node's addresses while the pod runs.
#[test]
fn the_nodes_addresses_are_followed() {
    let (node, _agent) = node();
    node.run_pod("follower", &format!("  hostNetwork: true\n  containers:\n{}", container("main", "sleep 100000")));
    let shown = |address: &str, count: u8| {
        format!("[ $(armlet inspect follower -o json | grep -c '\"ip\": *\"{address}\"') = {count} ]")
    };
    assert_eq!(node.field("follower", "/status/hostIP"), "10.0.2.15");
    node.ok("ip addr add 10.0.2.77/24 dev eth0");
    // As an address of the node, and of the pod.
    node.wait_until(&shown("10.0.2.77", 2), PATIENCE);
    node.ok("ip addr del 10.0.2.77/24 dev eth0");
    node.wait_until(&shown("10.0.2.77", 0), PATIENCE);
    assert_eq!(node.field("follower", "/status/podIP"), "10.0.2.15");
    node.remove_pod("follower");
}

/// "probes ... http, tcp": a pod gets ready through its address on the bridge, and only then.
#[test]
fn probes_reach_the_pod_over_the_bridge() {
    let (node, _agent) = node();
    let script = "while [ ! -e /tmp/go ]; do usleep 100000; done; exec httpd -f -p 80 -h /etc";
    let containers = format!(
        "  containers:\n  - name: main\n    image: {IMAGE}\n    imagePullPolicy: IfNotPresent\n    command: [sh, -c, {script:?}]\n    \
         startupProbe: {{tcpSocket: {{port: 80}}, periodSeconds: 1, failureThreshold: 1000}}\n    \
         readinessProbe: {{httpGet: {{port: 80, path: /passwd}}, periodSeconds: 1}}\n"
    );
    node.run_pod("probed", &containers);
    assert_eq!(node.field("probed", "/status/containerStatuses/0/ready"), false);
    assert_eq!(node.field("probed", "/status/containerStatuses/0/started"), false);
    node.ok("armlet exec probed -- touch /tmp/go");
    node.wait_until("armlet ps | grep -E '^default +probed.* 1/1 '", PATIENCE);
    node.remove_pod("probed");
}
