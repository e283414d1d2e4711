//! Whatever the bytes are, reading ends, never panics, and says something about each document that gives no pod.

use super::{NodeIdentity, parse};
use proptest::prelude::*;

const SEED: &str = r#"apiVersion: v1
kind: Pod
metadata: {name: web, labels: &l {app: web}, annotations: *l}
spec:
  hostNetwork: true
  securityContext: {fsGroup: 1, sysctls: [{name: kernel.shm_rmid_forced, value: "1"}]}
  initContainers:
  - {name: side, image: "i:1", restartPolicy: Always}
  containers:
  - name: app
    image: "i:1"
    command: [sh, -c, "echo $(A) $$(B)"]
    env: [{name: A, value: "1"}, {name: B, value: $(A)}]
    ports: [{name: http, containerPort: 80}]
    resources: {limits: {cpu: 100m, memory: 1Gi}}
    livenessProbe: {httpGet: {port: http}}
    volumeMounts: [{name: v, mountPath: /v}]
  volumes:
  - name: v
    hostPath: {path: /x}
---
{"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "b"}, "spec": {"containers": [{"name": "c", "image": "i"}]}}
"#;

/// Pieces that mean something to a YAML reader.
const PIECES: [&str; 40] = [
    "\n",
    "\r\n",
    "\t",
    " ",
    "  ",
    "- ",
    "---\n",
    "...\n",
    ": ",
    ":",
    "{",
    "}",
    "[",
    "]",
    ",",
    "\"",
    "'",
    "#",
    "&a ",
    "*a",
    "<<: *l",
    "!!str ",
    "!!binary ",
    "!x ",
    "|",
    ">-\n",
    "? ",
    "%YAML 1.1\n",
    "~",
    "0x",
    "1e999",
    "-1",
    "99999999999999999999",
    "null",
    "true",
    "\u{0}",
    "\u{feff}",
    "\u{2028}",
    "é",
    "${",
];

fn read(bytes: &[u8]) {
    let parsed = parse(bytes, "f.yaml", &NodeIdentity::new("n"));
    for pod in &parsed.pods {
        assert!(!pod.spec.containers.is_empty());
        assert_eq!(pod.manifest.value()["spec"]["nodeName"], "n");
    }
    for problem in &parsed.problems {
        assert!(problem.line.is_some_and(|l| l >= 1), "{problem}");
    }
}

/// The seed with pieces put in, taken out or replaced.
fn mutated() -> impl Strategy<Value = Vec<u8>> {
    let edit = (any::<prop::sample::Index>(), 0usize..12, prop::sample::select(&PIECES[..]));
    prop::collection::vec(edit, 1..6).prop_map(|edits| {
        let mut bytes = SEED.as_bytes().to_vec();
        for (at, remove, insert) in edits {
            let at = at.index(bytes.len());
            let end = (at + remove).min(bytes.len());
            bytes.splice(at..end, insert.bytes());
            if bytes.is_empty() {
                bytes.push(b'x');
            }
        }
        bytes
    })
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn random_bytes(bytes in prop::collection::vec(any::<u8>(), 0..300)) {
        read(&bytes);
    }

    #[test]
    fn random_pieces(pieces in prop::collection::vec(prop::sample::select(&PIECES[..]), 0..40)) {
        read(pieces.concat().as_bytes());
    }

    #[test]
    fn mutated_manifests(bytes in mutated()) {
        read(&bytes);
    }
}

#[test]
fn the_seed_itself_is_good() {
    let parsed = parse(SEED.as_bytes(), "f.yaml", &NodeIdentity::new("n"));
    assert_eq!(parsed.problems, []);
    assert_eq!(parsed.pods.len(), 2);
}

#[test]
fn every_beginning_of_a_manifest_is_read() {
    for end in 0..SEED.len() {
        read(&SEED.as_bytes()[..end]);
    }
}
