//! What has to be done, in order. Pure.

use std::path::{Path, PathBuf};

/// The binary's place when nobody says otherwise; the unit files name it.
const BINARY: &str = "/usr/local/bin/armlet";

const UNITS: [(&str, &str); 3] = [
    ("armlet.slice", include_str!("armlet.slice")),
    ("armlet.service", include_str!("armlet.service")),
    ("armlet-supervisor.service", include_str!("armlet-supervisor.service")),
];

const UNIT_DIR: &str = "/etc/systemd/system";
const CONFIG: &str = "/etc/armlet/config.yaml";
/// A folder for each pod that the node knows.
const PODS: &str = "/run/armlet/pods";
/// The pods' bridge (`network::Bridge`).
const BRIDGE: &str = "armlet0";

/// What is known of the machine.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Facts {
    /// systemd is its process 1.
    pub systemd: bool,
    /// Swap is on.
    pub swap: bool,
    /// The running binary.
    pub exe: PathBuf,
    /// Where the binary is to be.
    pub binary: PathBuf,
    /// There is a configuration file.
    pub configured: bool,
    /// The units come from a package of the system: it put armlet here and takes it away.
    pub packaged: bool,
}

impl Default for Facts {
    fn default() -> Self {
        let binary = PathBuf::from(BINARY);
        Self { systemd: true, swap: false, exe: binary.clone(), binary, configured: false, packaged: false }
    }
}

/// One thing to do.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Step {
    /// A folder, made with its parents when it is missing.
    Folder {
        /// Where.
        path: PathBuf,
        /// Permission bits.
        mode: u32,
    },
    /// A file with this content, replaced in one step.
    File {
        /// Where.
        path: PathBuf,
        /// What is in it.
        text: String,
    },
    /// A program copied, replaced in one step: what runs of the old one goes on.
    Copy {
        /// From where.
        from: PathBuf,
        /// To where.
        to: PathBuf,
    },
    /// systemctl with these arguments.
    Systemctl(Vec<String>),
    /// The same; that it fails is no failure: what it is to stop may not be there.
    TrySystemctl(Vec<String>),
    /// Waits until the agent answers.
    AwaitAgent,
    /// Goes no further while a pod that has a folder here has a process.
    PodsHaveEnded(PathBuf),
    /// Everything unmounted that is mounted in this folder.
    Unmount(PathBuf),
    /// A network link taken away, if it is there.
    RemoveLink(String),
    /// A cgroup taken away with those below it, as far as they are empty: others may have groups there too.
    RemoveGroups(PathBuf),
    /// Writes down which folders of logs belong to the pods that have a folder here.
    NoteLogs(PathBuf),
    /// Folders of logs taken away, by that note.
    RemoveLogs,
    /// A file taken away, if it is there.
    Remove(PathBuf),
    /// A folder taken away with all that is in it, if it is there.
    RemoveTree(PathBuf),
}

fn words(text: &str) -> Vec<String> {
    text.split(' ').map(str::to_owned).collect()
}

/// What a node needs beside binary and units: its folders, and a configuration where there is none. A package has the rest.
#[must_use]
pub fn prepare(facts: &Facts) -> Vec<Step> {
    let folder = |path: &str, mode| Step::Folder { path: path.into(), mode };
    let mut steps =
        vec![folder("/etc/armlet", 0o755), folder("/etc/armlet/manifests", 0o755), folder("/var/lib/armlet", 0o700)];
    if !facts.configured {
        steps.push(Step::File { path: CONFIG.into(), text: config(facts.swap) });
    }
    steps
}

/// How armlet gets onto a machine. It can be done again: what is there already is brought up to date.
#[must_use]
pub fn install(facts: &Facts, start: bool) -> Vec<Step> {
    let mut steps = prepare(facts);
    if facts.exe != facts.binary {
        steps.push(Step::Copy { from: facts.exe.clone(), to: facts.binary.clone() });
    }
    if !facts.systemd {
        return steps;
    }
    let at = facts.binary.display().to_string();
    for (name, text) in UNITS {
        steps.push(Step::File { path: Path::new(UNIT_DIR).join(name), text: text.replace(BINARY, &at) });
    }
    steps.push(Step::Systemctl(words("daemon-reload")));
    let enable = if start { "enable --now" } else { "enable" };
    steps.push(Step::Systemctl(words(&format!("{enable} armlet-supervisor.service armlet.service"))));
    if start {
        // What ran before this installation is the old binary still.
        steps.push(Step::Systemctl(words("restart armlet.service")));
        steps.push(Step::AwaitAgent);
    }
    steps
}

/// What pods leave that were stopped and not removed: they are to come back. Whose logs are whose is noted before it is
/// forgotten with `/run/armlet`.
#[must_use]
pub fn leave() -> Vec<Step> {
    vec![
        Step::PodsHaveEnded(PODS.into()),
        Step::NoteLogs(PODS.into()),
        Step::Unmount("/run/armlet".into()),
        Step::Unmount("/var/lib/armlet".into()),
        Step::RemoveLink(BRIDGE.to_owned()),
        Step::RemoveGroups("/sys/fs/cgroup/kubepods".into()),
        Step::RemoveGroups("/sys/fs/cgroup/armlet".into()),
        Step::RemoveTree("/run/armlet".into()),
    ]
}

/// How it goes away. Pods are stopped first; images, volumes, manifests, logs and configuration stay unless they are purged.
#[must_use]
pub fn uninstall(facts: &Facts, purge: bool) -> Vec<Step> {
    let mut steps = Vec::new();
    if facts.systemd {
        // The supervisor first: it has the agent stop the pods.
        steps.push(Step::TrySystemctl(words("disable --now armlet-supervisor.service")));
        steps.push(Step::TrySystemctl(words("disable --now armlet.service")));
        // It outlives its units, and then its own file.
        steps.push(Step::TrySystemctl(words("stop armlet.slice")));
        steps.extend(UNITS.map(|(name, _)| Step::Remove(Path::new(UNIT_DIR).join(name))));
        steps.push(Step::TrySystemctl(words("daemon-reload")));
    }
    steps.extend(leave());
    steps.push(Step::Remove(facts.binary.clone()));
    if purge {
        steps.push(Step::RemoveLogs);
        steps.extend(["/var/lib/armlet", "/etc/armlet"].map(|path| Step::RemoveTree(path.into())));
    }
    steps
}

/// The configuration file that a machine without one gets.
fn config(swap: bool) -> String {
    let swap = if swap {
        "# Swap was on when armlet was installed. Pods do not use it; the node may.\nfailSwapOn: false\n"
    } else {
        ""
    };
    format!(
        "# armlet's configuration: every field is optional, and `armlet agent --help` names the flags.\n\
         apiVersion: kubelet.config.k8s.io/v1beta1\n\
         kind: KubeletConfiguration\n\
         staticPodPath: /etc/armlet/manifests\n{swap}"
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::{self, Args, Files};
    use crate::sys::own_group;
    use std::collections::BTreeMap;

    fn files(steps: &[Step]) -> BTreeMap<String, String> {
        let files = steps.iter().filter_map(|step| match step {
            Step::File { path, text } => Some((path.display().to_string(), text.clone())),
            _ => None,
        });
        files.collect()
    }

    #[test]
    fn the_units_name_the_binary_and_keep_containers_alive() {
        let facts = Facts { binary: "/opt/armlet".into(), ..Facts::default() };
        let files = files(&install(&facts, true));
        for (name, role) in [("armlet.service", "agent"), ("armlet-supervisor.service", "supervisor")] {
            let text = &files[&format!("/etc/systemd/system/{name}")];
            for line in
                [&format!("ExecStart=/opt/armlet {role}"), "KillMode=process", "Delegate=yes", "Slice=armlet.slice"]
            {
                assert!(text.lines().any(|l| l == line), "{line} in {text}");
            }
        }
        let least = format!("MemoryMin={}M", own_group::MEMORY_MIN >> 20);
        assert!(files["/etc/systemd/system/armlet.slice"].lines().any(|line| line == least));
        // Stopped before the agent, whom it needs to stop pods in order.
        assert!(files["/etc/systemd/system/armlet-supervisor.service"].contains("\nAfter=armlet.service\n"));
    }

    #[test]
    fn the_configuration_can_be_read_and_is_never_written_over() {
        for swap in [false, true] {
            let text = &files(&install(&Facts { swap, ..Facts::default() }, true))[CONFIG];
            let (config, problems) =
                config::load(&Args::default(), &Files::default().with(CONFIG, text.as_bytes()), &BTreeMap::default());
            assert!(problems.is_empty(), "{problems:?}");
            assert_eq!(config.fail_swap_on, !swap);
        }
        let steps = install(&Facts { configured: true, ..Facts::default() }, true);
        assert!(!files(&steps).contains_key(CONFIG));
    }

    #[test]
    fn without_systemd_only_files_are_put_in_place() {
        let facts = Facts { systemd: false, exe: "/tmp/armlet".into(), ..Facts::default() };
        let steps = install(&facts, true);
        assert!(steps.iter().all(|step| matches!(step, Step::Folder { .. } | Step::File { .. } | Step::Copy { .. })));
        assert!(steps.contains(&Step::Copy { from: "/tmp/armlet".into(), to: BINARY.into() }));
        assert!(uninstall(&facts, false).iter().all(|step| !matches!(step, Step::TrySystemctl(_))));
    }

    #[test]
    fn what_is_installed_is_what_is_removed() {
        let facts = Facts::default();
        let gone = uninstall(&facts, true);
        let covered = |path: &Path| {
            gone.iter().any(|step| match step {
                Step::Remove(at) => at == path,
                Step::RemoveTree(at) => path.starts_with(at),
                _ => false,
            })
        };
        let steps = install(&Facts { exe: "/tmp/x".into(), ..facts.clone() }, true);
        for step in &steps {
            if let Step::Folder { path, .. } | Step::File { path, .. } | Step::Copy { to: path, .. } = step {
                assert!(covered(path), "{}", path.display());
            }
        }
        let kept = uninstall(&facts, false);
        assert!(!kept.iter().any(
            |step| matches!(step, Step::RemoveTree(path) if path.starts_with("/var/lib") || path.starts_with("/etc"))
        ));
        let position = |unit: &str| {
            gone.iter().position(|step| matches!(step, Step::TrySystemctl(args) if args.iter().any(|a| a == unit)))
        };
        let units = ["armlet-supervisor.service", "armlet.service", "armlet.slice"].map(position);
        assert!(units.iter().all(Option::is_some) && units.is_sorted(), "{units:?}");
    }

    /// cross/deb.sh writes another path into the units by the same replacement.
    #[test]
    fn a_unit_names_the_binary_once() {
        for (name, text) in UNITS {
            assert_eq!(text.matches(BINARY).count(), usize::from(name.ends_with(".service")), "{name}");
        }
    }

    #[test]
    fn what_a_package_lacks_is_the_beginning_of_an_installation() {
        let facts = Facts::default();
        let steps = prepare(&facts);
        assert!(install(&facts, true).starts_with(&steps));
        assert!(steps.iter().all(|step| matches!(step, Step::Folder { .. } | Step::File { .. })), "{steps:?}");
        assert_eq!(files(&steps).keys().collect::<Vec<_>>(), [CONFIG]);
    }

    /// Nothing is taken from pods that still run, and what tells whose logs are whose is read before it goes.
    #[test]
    fn what_pods_left_goes_after_they_have_ended() {
        let steps = uninstall(&Facts::default(), true);
        let at = |wanted: &Step| steps.iter().position(|step| step == wanted).unwrap();
        let ended = at(&Step::PodsHaveEnded(PODS.into()));
        let noted = at(&Step::NoteLogs(PODS.into()));
        let run = at(&Step::RemoveTree("/run/armlet".into()));
        let logs = at(&Step::RemoveLogs);
        let state = at(&Step::RemoveTree("/var/lib/armlet".into()));
        let stopped = steps.iter().rposition(|step| matches!(step, Step::TrySystemctl(_))).unwrap();
        assert!([stopped, ended, noted, run, logs, state].is_sorted(), "{steps:?}");
        assert!(!uninstall(&Facts::default(), false).contains(&Step::RemoveLogs));
    }

    #[test]
    fn an_installed_binary_is_not_copied_onto_itself() {
        assert!(!install(&Facts::default(), true).iter().any(|step| matches!(step, Step::Copy { .. })));
        assert!(!install(&Facts::default(), false).contains(&Step::AwaitAgent));
    }
}
