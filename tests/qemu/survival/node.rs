//! A node in a guest, seen through its command line.

use super::LONG;
use armlet_vm::{Guest, images, root};
use serde_json::Value;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

/// The manifest folder, on the data disk, so that it outlives a boot.
pub(super) const MANIFESTS: &str = "/var/lib/armlet/manifests";
/// What the pods of these tests write outside of their own files, on the data disk.
pub(super) const NOTES: &str = "/var/lib/armlet/notes";

/// The node's name: the last part of the names of its pods.
pub(super) const NAME: &str = "node";

/// A guest with an agent, or one that will have one.
pub(super) struct Node {
    pub(super) guest: Guest,
}

/// A container's status.
pub(super) struct Container<'a>(&'a Value);

impl Container<'_> {
    pub(super) fn id(&self) -> &str {
        self.0["containerID"].as_str().unwrap_or_default()
    }

    pub(super) fn restarts(&self) -> u64 {
        self.0["restartCount"].as_u64().unwrap_or_default()
    }

    pub(super) fn runs(&self) -> bool {
        self.0["state"]["running"].is_object()
    }

    /// Exit code and reason of the attempt before, or of this one when it has ended.
    pub(super) fn last_end(&self) -> Option<(i64, &str)> {
        let ended = [&self.0["state"]["terminated"], &self.0["lastState"]["terminated"]];
        let ended = ended.into_iter().find(|ended| ended.is_object())?;
        Some((ended["exitCode"].as_i64()?, ended["reason"].as_str()?))
    }
}

/// All pods, as `armlet ps -o json` shows them.
#[derive(Debug)]
pub(super) struct Pods(Vec<Value>);

impl Pods {
    pub(super) fn get(&self, name: &str) -> Option<&Value> {
        let name = format!("{name}-{NAME}");
        self.0.iter().find(|pod| pod["metadata"]["name"] == name.as_str())
    }

    /// The pods' names in their manifests.
    pub(super) fn names(&self) -> Vec<&str> {
        let shown = self.0.iter().filter_map(|pod| pod["metadata"]["name"].as_str());
        shown.filter_map(|name| name.strip_suffix(NAME)?.strip_suffix('-')).collect()
    }

    pub(super) fn phase(&self, name: &str) -> &str {
        self.get(name).and_then(|pod| pod["status"]["phase"].as_str()).unwrap_or_default()
    }

    pub(super) fn uid(&self, name: &str) -> &str {
        self.get(name).and_then(|pod| pod["metadata"]["uid"].as_str()).unwrap_or_default()
    }

    /// A pod's first ordinary container.
    pub(super) fn main(&self, name: &str) -> Option<Container<'_>> {
        Some(Container(self.get(name)?["status"]["containerStatuses"].get(0)?))
    }

    /// Whether the pod's first container runs and, if it has a probe, is ready.
    pub(super) fn ready(&self, name: &str) -> bool {
        self.condition(name, "Ready").is_some_and(|condition| condition["status"] == "True")
    }

    pub(super) fn condition(&self, name: &str, kind: &str) -> Option<&Value> {
        let conditions = self.get(name)?["status"]["conditions"].as_array()?;
        conditions.iter().find(|condition| condition["type"] == kind)
    }
}

impl Node {
    /// The pods now; none while the agent does not answer.
    pub(super) fn pods(&self) -> Option<Pods> {
        let output = self.guest.run("armlet ps -o json", Duration::from_secs(60)).unwrap();
        let list: Value = serde_json::from_str(&output.stdout).ok()?;
        Some(Pods(list["items"].as_array()?.clone()))
    }

    /// Waits until the agent shows what is waited for.
    #[track_caller]
    pub(super) fn wait(&self, what: &str, condition: impl Fn(&Pods) -> bool) -> Pods {
        self.wait_for(LONG, what, condition)
    }

    #[track_caller]
    pub(super) fn wait_for(&self, limit: Duration, what: &str, condition: impl Fn(&Pods) -> bool) -> Pods {
        let begin = self.uptime();
        loop {
            let pods = self.pods();
            match pods {
                Some(pods) if condition(&pods) => return pods,
                pods if self.uptime() > begin + limit.as_secs_f64() => {
                    panic!("{what}: not within {limit:?}; shown: {:?}\n{}", pods.is_some(), self.story())
                }
                _ => drop(self.guest.ok("usleep 100000")),
            }
        }
    }

    /// The guest's own clock, in seconds: a slow host is no reason to fail.
    pub(super) fn uptime(&self) -> f64 {
        self.guest.ok("cut -d ' ' -f 1 /proc/uptime").trim().parse().unwrap()
    }

    /// What has happened, for whoever reads about a failure.
    pub(super) fn story(&self) -> String {
        let script = "armlet ps -c; armlet events | tail -n 60; grep -v 'Probe {' /run/agent.log | tail -n 60; tail -n 40 /run/supervisor.log";
        let output = self.guest.run(script, Duration::from_secs(60));
        let console = self.guest.console();
        let lines: Vec<_> = console.lines().collect();
        let text = output.map(|output| output.stdout + &output.stderr).unwrap_or_default();
        format!("{text}\nconsole:\n{}", lines[lines.len().saturating_sub(60)..].join("\n"))
    }

    pub(super) fn add(&self, name: &str, manifest: &str) {
        self.guest.write_file(&format!("{MANIFESTS}/{name}.yaml"), manifest.as_bytes());
    }

    pub(super) fn remove(&self, name: &str) {
        self.guest.ok(&format!("rm {MANIFESTS}/{name}.yaml"));
    }

    /// The text of a note; empty if there is none.
    pub(super) fn note(&self, name: &str) -> String {
        self.guest.ok(&format!("cat {NOTES}/{name} 2>/dev/null || true"))
    }

    /// Checks that the numbered lines of a pod's container `main` are all there, once each, in order, whatever attempt
    /// wrote them, and gives their count.
    #[track_caller]
    pub(super) fn unbroken_lines(&self, pod: &str) -> u64 {
        let script = format!("pod={pod}\n{}", include_str!("lines.sh"));
        let output = self.guest.run(&script, Duration::from_secs(60)).unwrap();
        assert!(output.success(), "{pod}: {}{}\n{}", output.stdout, output.stderr, self.story());
        output.stdout.trim().parse().unwrap()
    }

    /// The pod's first ordinary process, as the kernel knows it: its id and when it began.
    pub(super) fn process(&self, pods: &Pods, pod: &str) -> String {
        let uid = pods.uid(pod);
        let script = format!(
            "for group in $(find /sys/fs/cgroup/kubepods -type d -name 'pod{uid}'); do \
             for procs in \"$group\"/*/cgroup.procs; do read -r pid <\"$procs\" && \
             echo $pid $(sed 's/.*) //' /proc/$pid/stat | cut -d ' ' -f 20); done; done"
        );
        self.guest.ok(&script)
    }
}

/// The files of a data disk: images to preload, and the manifests that are there from the beginning.
pub(super) fn data_files(directory: &Path, manifests: &[(&str, &str)]) -> PathBuf {
    let from = directory.join("data");
    // What an earlier run left would be part of the disk.
    let _ = std::fs::remove_dir_all(&from);
    for folder in ["preload", "manifests", "notes"] {
        std::fs::create_dir_all(from.join(folder)).unwrap();
    }
    let pack = root().join("images/pack.sh");
    assert!(Command::new(&pack).arg("busybox").stdout(Stdio::null()).status().unwrap().success());
    std::fs::copy(images().join("busybox.tar"), from.join("preload/busybox.tar")).unwrap();
    for (name, manifest) in manifests {
        std::fs::write(from.join("manifests").join(format!("{name}.yaml")), manifest).unwrap();
    }
    from
}

/// A pod of one container `main` that runs a shell script. `more` goes into its container, `spec` into the pod's spec;
/// both are lines of YAML in flow style, closed by a comma. The script finds the folder of notes at /notes.
pub(super) fn pod(name: &str, spec: &str, more: &str, script: &str) -> String {
    let script = serde_json::to_string(script).unwrap();
    let network = if spec.contains("hostNetwork") { "" } else { "hostNetwork: true," };
    format!(
        "{{apiVersion: v1, kind: Pod, metadata: {{name: {name}}}, spec: {{{spec} {network} \
         volumes: [{{name: notes, hostPath: {{path: {NOTES}}}}}], \
         containers: [{{name: main, image: 'localhost/busybox:trixie', {more} command: [sh, -c, {script}], \
         volumeMounts: [{{name: notes, mountPath: /notes}}]}}]}}}}\n"
    )
}

/// A script that writes numbered lines for ever, notes each of its starts and that it was asked to end.
pub(super) fn counting(name: &str) -> String {
    format!(
        "echo start >>/notes/{name}; trap 'echo term >>/notes/{name}; exit 0' TERM; i=0; \
         while :; do for n in 1 2 3 4 5 6 7 8 9 10; do i=$((i+1)); echo line $i; done; usleep 50000; done"
    )
}
