//! `armlet debug bundle`: what it gathers, and that nothing secret is in it.

use crate::node::FakeNode;
use std::os::unix::net::UnixListener;
use std::path::{Path, PathBuf};

/// What is in an archive, by name.
fn unpacked(archive: &Path) -> std::collections::BTreeMap<String, String> {
    let list = std::process::Command::new("tar").arg("tzf").arg(archive).output().unwrap();
    assert!(list.status.success(), "{list:?}");
    let names = String::from_utf8(list.stdout).unwrap();
    let read = |name: &str| {
        let out = std::process::Command::new("tar").arg("xzOf").arg(archive).arg(name).output().unwrap();
        (name.split_once('/').unwrap().1.to_owned(), String::from_utf8(out.stdout).unwrap())
    };
    names.lines().map(read).collect()
}

/// The configuration of a bundle's node: its folders, and secrets where somebody may have put them by mistake.
fn bundle_config(folder: &Path) -> PathBuf {
    let path = |name: &str| folder.join(name).display().to_string();
    for name in ["data/store", "run", "logs", "manifests"] {
        std::fs::create_dir_all(folder.join(name)).unwrap();
    }
    let refused = "apiVersion: v1\nkind: Pod\nmetadata: {name: x}\nspec: {containers: [{name: a, env: [{name: PIN, value: 98765432}]}]}\n";
    std::fs::write(folder.join("manifests/refused.yaml"), refused).unwrap();
    std::fs::create_dir_all(folder.join("data/panics")).unwrap();
    let panic = "2026-01-01T00:00:00.000000000Z F agent: panicked at x: pin 98765432\n";
    std::fs::write(folder.join("data/panics/0001-agent.log"), panic).unwrap();
    let config = format!(
        "apiVersion: kubelet.config.k8s.io/v1beta1\nkind: KubeletConfiguration\nstaticPodPath: {}\npodLogsDir: {}\n\
         apiToken: planted-unknown\ncgroupRoot: /planted-root\nclusterDomain: planted_domain\n\
         staticPodURLHeader: {{Authorization: [planted-header]}}\n---\napiVersion: armlet.dev/v1alpha1\n\
         kind: NodeConfiguration\ndataDir: {}\nrunDir: {}\n",
        path("manifests"),
        path("logs"),
        path("data"),
        path("run")
    );
    std::fs::write(folder.join("config.yaml"), config).unwrap();
    folder.join("config.yaml")
}

#[test]
fn a_bundle_of_a_fake_node_has_everything_but_secrets() {
    let node = FakeNode::start();
    let config = bundle_config(node.folder.path()).display().to_string();
    let archive = node.folder.path().join("b.tar.gz");
    let (code, out, err) = node.run(&["debug", "bundle", "-o", archive.to_str().unwrap(), "--config", &config]);
    assert_eq!((code, err.as_str()), (0, ""), "{out}");
    let files = unpacked(&archive);
    for (name, has) in [
        ("README", "log.txt"),
        ("version.json", "\"nodeName\": \"edge1\""),
        ("config.json", "\"from\": \"default\""),
        ("node.json", "Invalid value: <redacted>"),
        ("pods.json", "\"PLAIN\""),
        ("attempts.json", "kubepods/x"),
        ("events.txt", "BackOff"),
        ("stats.json", "agentPid"),
        ("log.txt", "F supervisor: panicked"),
        ("panics.txt", "F agent: panicked at x: pin <redacted>"),
        ("check.json", "\"findings\""),
        ("kernel.txt", "== /proc/version"),
        ("mounts.txt", "== /proc/self/mountinfo"),
        ("network.txt", "lo state"),
        ("disks.txt", "KiB free"),
    ] {
        let text = files.get(name).unwrap_or_else(|| panic!("{name} of {:?}\n{out}", files.keys()));
        assert!(text.contains(has), "{has} in {name}:\n{text}");
    }
    for (name, text) in &files {
        assert!(!text.contains("planted") && !text.contains("98765432"), "{name}:\n{text}");
    }
    assert!(files["config.json"].contains("config.yaml:5: warning: apiToken: "), "{}", files["config.json"]);
    assert!(out.contains("supervisor-log.txt") && out.contains(" missing "), "{out}");
    assert!(out.lines().last().unwrap().starts_with(&format!("{} (", archive.display())), "{out}");
}

#[test]
fn a_bundle_is_made_without_an_agent_and_with_one_that_hangs() {
    let folder = tempfile::tempdir().unwrap();
    let config = bundle_config(folder.path()).display().to_string();
    let bundle = |socket: &Path| {
        let mut command = std::process::Command::new(env!("CARGO_BIN_EXE_armlet"));
        command.current_dir(folder.path()).args(["debug", "bundle", "--config", &config]);
        let out = command.env("ARMLET_SOCKET", socket).output().unwrap();
        assert!(out.status.success(), "{out:?}");
        let text = String::from_utf8(out.stdout).unwrap();
        let line = text.lines().last().unwrap();
        (unpacked(&folder.path().join(line.split(' ').next().unwrap())), text)
    };
    let (files, out) = bundle(&folder.path().join("nobody.sock"));
    assert!(files["README"].contains("missing   pods.json              the agent cannot be reached at "), "{out}");
    for name in ["check.json", "config.json", "disks.txt", "kernel.txt", "panics.txt"] {
        assert!(files.contains_key(name), "{name}: {out}");
    }
    let socket = folder.path().join("hangs.sock");
    let listener = UnixListener::bind(&socket).unwrap();
    let (files, out) = bundle(&socket);
    assert!(files["README"].contains("the agent did not answer within 10 s"), "{out}");
    drop(listener);
}
