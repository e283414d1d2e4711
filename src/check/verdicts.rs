//! What is made of a machine. Pure: each finding has its effect and its remedy.

use super::board::{Board, Module, Space, Trial};
use serde::{Deserialize, Serialize};

/// How bad it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Level {
    /// As it should be.
    #[serde(rename = "ok")]
    Good,
    /// Worth knowing; nothing is missing.
    Note,
    /// One feature is missing or weaker; pods run.
    Degraded,
    /// Pods cannot run.
    Missing,
}

/// One thing that was looked at.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Finding {
    /// What was looked at, in a few words.
    pub topic: String,
    /// How bad it is.
    pub level: Level,
    /// What was found.
    pub found: String,
    /// What follows from it; empty when all is well.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub effect: String,
    /// What to do; empty when there is nothing to do.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub remedy: String,
    /// The node condition that tells it while the agent runs. Only of what stays as it is until the next boot.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub condition: Option<String>,
}

impl Finding {
    fn good(topic: &str, found: impl Into<String>) -> Self {
        let topic = topic.to_owned();
        let (effect, remedy) = (String::new(), String::new());
        Self { topic, level: Level::Good, found: found.into(), effect, remedy, condition: None }
    }

    fn bad(level: Level, topic: &str, found: impl Into<String>, effect: &str, remedy: impl Into<String>) -> Self {
        Self { level, effect: effect.to_owned(), remedy: remedy.into(), ..Self::good(topic, found) }
    }

    fn shown_as(self, condition: &str) -> Self {
        Self { condition: Some(condition.to_owned()), ..self }
    }
}

/// Words that the firmware's command line file should have, and those that it should not.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Words {
    /// To be added.
    pub add: Vec<&'static str>,
    /// To be taken out.
    pub remove: Vec<&'static str>,
}

const MIB: u64 = 1 << 20;
const GIB: u64 = 1 << 30;

/// The first second of 2026, in which armlet began: no clock that is right is before it.
const BEGINNING: i64 = 1_767_225_600;

/// The words that are missing on this board.
#[must_use]
pub fn words(board: &Board) -> Words {
    let mut words = Words::default();
    if board.cgroup2 && !has(&board.controllers, "memory") {
        words.add.extend(["cgroup_enable=memory", "cgroup_memory=1"]);
        words.remove.push("cgroup_disable=memory");
    }
    if !board.pressure {
        words.add.push("psi=1");
        words.remove.push("psi=0");
    }
    words
}

/// Whether pods can run here.
#[must_use]
pub fn ready(findings: &[Finding]) -> bool {
    findings.iter().all(|finding| finding.level < Level::Missing)
}

/// Judges the machine, in the order in which people look at one.
#[must_use]
pub fn findings(board: &Board) -> Vec<Finding> {
    let mut all = vec![
        machine(board),
        kernel(board),
        pages(board),
        memory(board),
        swap(board),
        clock(board),
        cgroup(board),
        controllers(board),
        memory_controller(board),
        namespaces(board),
        user_namespaces(board),
        overlay(board),
        devices(board),
        seccomp(board),
        links(board),
        modules(board),
        pressure(board),
    ];
    all.extend(board.spaces.iter().map(space));
    all.push(ports(board));
    all.push(runtimes(board));
    all
}

fn has(list: &[String], word: &str) -> bool {
    list.iter().any(|entry| entry == word)
}

fn machine(board: &Board) -> Finding {
    let model = board.model.as_ref().map(|model| format!("{model}, ")).unwrap_or_default();
    let found = format!("{model}{}", board.machine);
    match board.machine.as_str() {
        "aarch64" if board.arm32 => Finding::good("machine", format!("{found}, runs 32-bit ARM programs too")),
        "aarch64" => Finding::bad(
            Level::Note,
            "machine",
            format!("{found}, without 32-bit ARM programs"),
            "images for arm/v7 and arm/v6 do not run",
            "use arm64 images",
        ),
        "x86_64" => Finding::good("machine", found),
        _ => Finding::bad(
            Level::Missing,
            "machine",
            found,
            "armlet is made for 64-bit ARM and x86-64 kernels",
            "boot a 64-bit kernel (on a Raspberry Pi: arm_64bit=1 in config.txt)",
        ),
    }
}

/// `cgroup.kill` came with 5.14; what is tested is 6.1 and newer.
fn kernel(board: &Board) -> Finding {
    let mut numbers = board.kernel.split(|c: char| !c.is_ascii_digit()).map(|number| number.parse::<u32>().ok());
    let version = (numbers.next().flatten(), numbers.next().flatten());
    let found = format!("Linux {}", board.kernel);
    let effect = "too old: containers cannot be killed as a whole, nor be born in their cgroup";
    match version {
        (Some(major), Some(minor)) if (major, minor) >= (6, 1) => Finding::good("kernel", found),
        (Some(major), Some(minor)) if (major, minor) >= (5, 14) => Finding::bad(
            Level::Note,
            "kernel",
            found,
            "has what is needed, but armlet is tested on 6.1 and newer",
            "upgrade the system when there is an occasion",
        ),
        _ => Finding::bad(Level::Missing, "kernel", found, effect, "use a kernel from 6.1 on"),
    }
}

fn pages(board: &Board) -> Finding {
    Finding::good("page size", format!("{} KiB", board.page_size / 1024))
}

fn memory(board: &Board) -> Finding {
    let found = format!("{} MiB", board.memory / MIB);
    if board.memory >= 200 * MIB {
        return Finding::good("memory", found);
    }
    let effect = "little is left for pods beside the kernel and armlet";
    Finding::bad(Level::Note, "memory", found, effect, "")
}

fn swap(board: &Board) -> Finding {
    if !board.swap {
        return Finding::good("swap", "off");
    }
    Finding::bad(
        Level::Note,
        "swap",
        "on",
        "the agent does not start with swap on unless it is told to, as the kubelet",
        "switch swap off, or set failSwapOn: false in the configuration",
    )
}

fn clock(board: &Board) -> Finding {
    if board.clock.seconds < BEGINNING {
        return Finding::bad(
            Level::Degraded,
            "clock",
            "in the past: it has not been set since the board was switched on",
            "certificates look as if not valid yet, and times in logs and statuses are wrong; pods run",
            "connect the board to a network with a time server, or set it: date -s '2026-01-31 12:00'",
        );
    }
    match board.clock.synchronised {
        Some(false) => Finding::bad(
            Level::Note,
            "clock",
            "not kept right by a time server",
            "it will drift",
            "run a time service (systemd-timesyncd, chrony)",
        ),
        _ => Finding::good("clock", "set"),
    }
}

fn cgroup(board: &Board) -> Finding {
    if board.cgroup2 {
        return Finding::good("cgroup v2", "mounted at /sys/fs/cgroup");
    }
    Finding::bad(
        Level::Missing,
        "cgroup v2",
        "not mounted at /sys/fs/cgroup",
        "nothing can be limited, accounted or killed as a whole: no pod runs",
        "remove systemd.unified_cgroup_hierarchy=0 from the kernel's command line, or: mount -t cgroup2 none \
         /sys/fs/cgroup",
    )
}

fn controllers(board: &Board) -> Finding {
    let wanted = ["cpu", "cpuset", "io", "pids", "hugetlb"];
    let absent: Vec<&str> = wanted.into_iter().filter(|name| !has(&board.controllers, name)).collect();
    let topic = "controllers";
    if !board.cgroup2 {
        return Finding::bad(Level::Missing, topic, "none", "see cgroup v2", "see cgroup v2");
    }
    let lost: Vec<&str> = absent
        .iter()
        .map(|name| match *name {
            "cpu" => "cpu requests and limits are not kept",
            "pids" => "a pod may take all process ids",
            "cpuset" => "no pinning to processors",
            "io" => "disk pressure of pods is not told apart",
            _ => "no huge pages for pods",
        })
        .collect();
    match absent.as_slice() {
        [] => Finding::good(topic, "all"),
        ["hugetlb"] => Finding::good(topic, "all that is needed (no hugetlb: no huge pages for pods)"),
        some => {
            let level =
                if some.iter().any(|name| matches!(*name, "cpu" | "pids")) { Level::Degraded } else { Level::Note };
            let remedy = "use a kernel with these controllers (CONFIG_CGROUP_SCHED, CONFIG_CGROUP_PIDS, CONFIG_CPUSETS, \
                          CONFIG_BLK_CGROUP)";
            let finding = Finding::bad(level, topic, format!("without {}", some.join(", ")), &lost.join("; "), remedy);
            if level == Level::Degraded { finding.shown_as("CgroupControllersMissing") } else { finding }
        }
    }
}

fn memory_controller(board: &Board) -> Finding {
    let topic = "memory controller";
    if has(&board.controllers, "memory") {
        return Finding::good(topic, "on");
    }
    if !board.cgroup2 {
        return Finding::bad(Level::Missing, topic, "none", "see cgroup v2", "see cgroup v2");
    }
    let disabled = board.cmdline.split_whitespace().any(|word| word == "cgroup_disable=memory");
    let found = if disabled { "off: the kernel was started with cgroup_disable=memory" } else { "off" };
    let remedy = match &board.boot_file {
        Some(file) => format!(
            "add cgroup_enable=memory cgroup_memory=1 to the one line of {} and reboot; `armlet check --fix` does it",
            file.path.display()
        ),
        None => "add cgroup_enable=memory to the kernel's command line (GRUB: GRUB_CMDLINE_LINUX in \
                 /etc/default/grub, then update-grub) and reboot"
            .to_owned(),
    };
    let effect = "containers with a memory limit are refused; one that eats all memory takes others with it";
    Finding::bad(Level::Degraded, topic, found, effect, remedy).shown_as("MemoryLimitsUnavailable")
}

fn namespaces(board: &Board) -> Finding {
    let wanted = ["mnt", "pid", "net", "ipc", "uts", "cgroup"];
    let absent: Vec<&str> = wanted.into_iter().filter(|name| !has(&board.namespaces, name)).collect();
    if absent.is_empty() {
        return Finding::good("namespaces", "all that containers need");
    }
    let found = format!("without {}", absent.join(", "));
    Finding::bad(
        Level::Missing,
        "namespaces",
        found,
        "containers cannot be told apart: no pod runs",
        "use another kernel",
    )
}

fn user_namespaces(board: &Board) -> Finding {
    let topic = "user namespaces";
    if has(&board.namespaces, "user") && board.user_namespaces != Some(0) {
        return Finding::good(topic, "on");
    }
    let effect = "pods with hostUsers: false are refused";
    let remedy = if board.user_namespaces == Some(0) { "sysctl -w user.max_user_namespaces=15000" } else { "" };
    Finding::bad(Level::Note, topic, "off", effect, remedy)
}

const AS_ROOT: &str = "run it as root: sudo armlet check";

fn untried(board: &Board, topic: &str) -> Finding {
    if board.root {
        return Finding::bad(
            Level::Note,
            topic,
            "not tried",
            "there is no room for a trial",
            "make room on the data disk",
        );
    }
    Finding::bad(Level::Note, topic, "not tried", "only root can try it", AS_ROOT)
}

fn overlay(board: &Board) -> Finding {
    match &board.overlay {
        Trial::Works => Finding::good("overlay", "a trial mount works"),
        Trial::NotTried => untried(board, "overlay"),
        Trial::Fails(why) => Finding::bad(
            Level::Missing,
            "overlay",
            format!("a trial mount fails: {why}"),
            "containers have no root file system: no pod runs",
            "load the module (modprobe overlay), and keep the data folder on ext4, btrfs or xfs: not on NFS, FAT or \
             another overlay",
        )
        .shown_as("OverlayUnavailable"),
    }
}

fn devices(board: &Board) -> Finding {
    match &board.device_program {
        Trial::Works => Finding::good("BPF", "device rules can be enforced"),
        Trial::NotTried => untried(board, "BPF"),
        Trial::Fails(why) => Finding::bad(
            Level::Missing,
            "BPF",
            format!("the device program is refused: {why}"),
            "containers could open any device: none is started but privileged ones",
            "use a kernel with CONFIG_BPF_SYSCALL and CONFIG_CGROUP_BPF",
        )
        .shown_as("DeviceRulesUnavailable"),
    }
}

fn seccomp(board: &Board) -> Finding {
    if has(&board.seccomp, "errno") {
        return Finding::good("seccomp", "filters work");
    }
    Finding::bad(
        Level::Degraded,
        "seccomp",
        "the kernel has no filters",
        "containers with the profile RuntimeDefault are refused",
        "use a kernel with CONFIG_SECCOMP_FILTER",
    )
    .shown_as("SeccompUnavailable")
}

fn links(board: &Board) -> Finding {
    match &board.links {
        Trial::Works => Finding::good("pod network", "bridge and links can be made"),
        Trial::NotTried => untried(board, "pod network"),
        Trial::Fails(why) => Finding::bad(
            Level::Degraded,
            "pod network",
            format!("a trial fails: {why}"),
            "only pods with hostNetwork: true run",
            "load the modules (modprobe -a veth bridge)",
        )
        .shown_as("PodNetworkUnavailable"),
    }
}

/// A module that is built in leaves few traces: what a trial has used is there.
fn modules(board: &Board) -> Finding {
    let used = |name: &str| match name {
        "overlay" => board.overlay == Trial::Works,
        _ => board.links == Trial::Works,
    };
    let missing: Vec<&str> = board
        .modules
        .iter()
        .filter(|(name, state)| **state == Module::Missing && !used(name))
        .map(|(name, _)| name.as_str())
        .collect();
    if missing.is_empty() {
        return Finding::good("modules", board.modules.keys().cloned().collect::<Vec<_>>().join(", "));
    }
    let found = format!("without {}", missing.join(", "));
    let effect = "pods have no network of their own (veth, bridge) or no root file system (overlay)";
    let remedy =
        format!("install the modules of the running kernel {} (a reboot after an upgrade may be due)", board.kernel);
    Finding::bad(Level::Degraded, "modules", found, effect, remedy).shown_as("KernelModulesMissing")
}

fn pressure(board: &Board) -> Finding {
    if board.pressure {
        return Finding::good("pressure", "the kernel tells it (PSI)");
    }
    let effect = "pressure is not told in the figures of node and pods; nothing else";
    let remedy = match &board.boot_file {
        Some(file) => format!("add psi=1 to the line of {}; `armlet check --fix` does it", file.path.display()),
        None => "add psi=1 to the kernel's command line".to_owned(),
    };
    Finding::bad(Level::Note, "pressure", "switched off, or not built into the kernel", effect, remedy)
}

fn space(space: &Space) -> Finding {
    let topic = format!("space of {}", space.path.display());
    let inodes = space.inodes.map(|free| format!(", {free} files")).unwrap_or_default();
    let found = format!("{} MiB free of {} MiB{inodes}", space.free / MIB, space.size / MIB);
    if space.read_only {
        let remedy = "mount it writable (mount -o remount,rw), or check the card: errors make it read-only";
        let effect = format!("{} cannot be written", space.purpose);
        return Finding::bad(Level::Missing, &topic, "read-only", &effect, remedy).shown_as("ReadOnlyStorage");
    }
    let least = if space.purpose.starts_with("images") { GIB / 4 } else { 16 * MIB };
    if space.free < least || space.inodes.is_some_and(|free| free < 2000) {
        let effect = format!("{} may not fit", space.purpose);
        return Finding::bad(Level::Degraded, &topic, found, &effect, "make room, or use a larger card");
    }
    Finding::good(&topic, found)
}

fn ports(board: &Board) -> Finding {
    if board.ports.is_empty() {
        return Finding::good("ports", "10250 and 10248 are free");
    }
    let taken: Vec<String> = board.ports.iter().map(|port| format!("{} ({})", port.number, port.purpose)).collect();
    let found = format!("in use: {}", taken.join(", "));
    let effect = "a program listens where the node's API would";
    Finding::bad(Level::Note, "ports", found, effect, "`ss -ltnp` names it; a kubelet or k3s has to be stopped")
}

/// Two kubelets on one machine remove each other's pods; container engines do not touch what is not theirs.
fn runtimes(board: &Board) -> Finding {
    let engines = ["dockerd", "containerd", "crio"];
    let nodes: Vec<&str> = board.runtimes.iter().map(String::as_str).filter(|name| !engines.contains(name)).collect();
    let topic = "other runtimes";
    if !nodes.is_empty() {
        let found = format!("running: {}", nodes.join(", "));
        let effect = "two node programs on one machine take each other's cgroups and ports";
        let remedy = format!("stop and disable it: systemctl disable --now {}", nodes.join(" "));
        return Finding::bad(Level::Degraded, topic, found, effect, remedy).shown_as("OtherNodeRunning");
    }
    let left: Vec<String> = board.leftovers.iter().map(|path| path.display().to_string()).collect();
    let beside = board.runtimes.join(", ");
    match (beside.as_str(), left.as_slice()) {
        ("", []) => Finding::good(topic, "none"),
        (beside, []) => Finding::good(topic, format!("{beside} runs beside; what it uses is not counted as pods'")),
        (beside, left) => {
            let running = if beside.is_empty() { String::new() } else { format!("running: {beside}; ") };
            let found = format!("{running}left behind: {}", left.join(", "));
            let effect = "nothing is read of it but network configurations, when CNI is configured";
            let remedy = "uninstall what is no longer used (k3s: k3s-uninstall.sh)";
            Finding::bad(Level::Note, topic, found, effect, remedy)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::board::{BootFile, Clock, Port};
    use super::*;

    fn good() -> Board {
        let list = |words: &str| words.split(' ').map(str::to_owned).collect::<Vec<_>>();
        Board {
            root: true,
            model: Some("Raspberry Pi 4 Model B Rev 1.4".to_owned()),
            machine: "aarch64".to_owned(),
            kernel: "6.12.47+rpt-rpi-v8".to_owned(),
            page_size: 4096,
            memory: GIB,
            swap: false,
            cmdline: "root=PARTUUID=x rootwait".to_owned(),
            boot_file: Some(BootFile { path: "/boot/firmware/cmdline.txt".into(), text: "root=x\n".to_owned() }),
            cgroup2: true,
            controllers: list("cpuset cpu io memory hugetlb pids"),
            namespaces: list("cgroup ipc mnt net pid user uts"),
            user_namespaces: Some(3000),
            seccomp: list("kill_process errno allow"),
            overlay: Trial::Works,
            device_program: Trial::Works,
            links: Trial::Works,
            arm32: true,
            pressure: true,
            modules: ["overlay", "veth", "bridge"].map(|name| (name.to_owned(), Module::Present)).into(),
            clock: Clock { seconds: BEGINNING + 1, synchronised: Some(true) },
            spaces: vec![Space {
                purpose: "images, volumes and state".to_owned(),
                path: "/var/lib/armlet".into(),
                size: 8 * GIB,
                free: 4 * GIB,
                inodes: Some(100_000),
                read_only: false,
            }],
            ports: Vec::new(),
            runtimes: Vec::new(),
            leftovers: Vec::new(),
        }
    }

    /// What is not good, as `topic level condition`.
    fn told(board: &Board) -> Vec<String> {
        let bad = findings(board).into_iter().filter(|finding| finding.level > Level::Good);
        bad.map(|f| format!("{} {:?} {}", f.topic, f.level, f.condition.unwrap_or_default()).trim_end().to_owned())
            .collect()
    }

    #[test]
    fn a_good_board_has_nothing_to_tell() {
        assert_eq!(told(&good()), [] as [&str; 0]);
        assert!(ready(&findings(&good())));
        assert_eq!(words(&good()), Words::default());
    }

    /// Each fault alone: what is told, and whether pods still run.
    #[test]
    fn each_fault_has_its_finding() {
        type Fault = (fn(&mut Board), &'static str, bool);
        let faults: [Fault; 24] = [
            (|b| b.machine = "armv7l".to_owned(), "machine Missing", false),
            (|b| b.arm32 = false, "machine Note", true),
            (|b| b.kernel = "5.15.0-rpi".to_owned(), "kernel Note", true),
            (|b| b.kernel = "5.10.0".to_owned(), "kernel Missing", false),
            (|b| b.kernel = "?".to_owned(), "kernel Missing", false),
            (|b| b.memory = 128 * MIB, "memory Note", true),
            (|b| b.swap = true, "swap Note", true),
            (|b| b.clock.seconds = 0, "clock Degraded", true),
            (|b| b.clock.synchronised = Some(false), "clock Note", true),
            (|b| b.controllers.retain(|c| c != "memory"), "memory controller Degraded MemoryLimitsUnavailable", true),
            (|b| b.controllers.retain(|c| c != "pids"), "controllers Degraded CgroupControllersMissing", true),
            (|b| b.controllers.retain(|c| c != "io"), "controllers Note", true),
            (|b| b.namespaces.retain(|n| n != "net"), "namespaces Missing", false),
            (|b| b.user_namespaces = Some(0), "user namespaces Note", true),
            (|b| b.overlay = Trial::Fails("no such device".to_owned()), "overlay Missing OverlayUnavailable", false),
            (|b| b.overlay = Trial::NotTried, "overlay Note", true),
            (|b| b.device_program = Trial::Fails("EPERM".to_owned()), "BPF Missing DeviceRulesUnavailable", false),
            (|b| b.seccomp.clear(), "seccomp Degraded SeccompUnavailable", true),
            (|b| b.links = Trial::Fails("no such kind".to_owned()), "pod network Degraded PodNetworkUnavailable", true),
            (|b| b.pressure = false, "pressure Note", true),
            (|b| b.spaces[0].free = MIB, "space of /var/lib/armlet Degraded", true),
            (|b| b.spaces[0].read_only = true, "space of /var/lib/armlet Missing ReadOnlyStorage", false),
            (|b| b.runtimes.push("k3s-server".to_owned()), "other runtimes Degraded OtherNodeRunning", true),
            (|b| b.leftovers.push("/etc/cni/net.d".into()), "other runtimes Note", true),
        ];
        for (fault, want, runs) in faults {
            let mut board = good();
            fault(&mut board);
            assert_eq!(told(&board), [want]);
            let all = findings(&board);
            assert_eq!(ready(&all), runs, "{want}");
            for finding in all.iter().filter(|finding| finding.level > Level::Good) {
                assert!(!finding.effect.is_empty(), "{want}: an effect");
                assert!(finding.level < Level::Degraded || !finding.remedy.is_empty(), "{want}: a remedy");
            }
        }
    }

    #[test]
    fn a_module_that_a_trial_has_used_is_there() {
        let mut board = good();
        board.modules.insert("veth".to_owned(), Module::Missing);
        assert_eq!(told(&board), [] as [&str; 0]);
        board.links = Trial::NotTried;
        assert_eq!(told(&board), ["pod network Note", "modules Degraded KernelModulesMissing"]);
    }

    #[test]
    fn engines_beside_are_no_fault() {
        let mut board = good();
        board.runtimes = vec!["containerd".to_owned(), "dockerd".to_owned()];
        assert_eq!(told(&board), [] as [&str; 0]);
        board.ports.push(Port { number: 10250, purpose: "the node's API".to_owned() });
        assert_eq!(told(&board), ["ports Note"]);
    }

    #[test]
    fn without_cgroup_v2_no_pod_runs() {
        let mut board = good();
        board.cgroup2 = false;
        board.controllers.clear();
        assert!(!ready(&findings(&board)));
        assert_eq!(words(&board), Words::default(), "the words for its controller would not help");
    }

    #[test]
    fn the_words_that_a_raspberry_pi_needs() {
        let mut board = good();
        board.controllers.retain(|c| c != "memory");
        board.cmdline.push_str(" cgroup_disable=memory");
        board.pressure = false;
        let want = Words {
            add: vec!["cgroup_enable=memory", "cgroup_memory=1", "psi=1"],
            remove: vec!["cgroup_disable=memory", "psi=0"],
        };
        assert_eq!(words(&board), want);
        let remedies: String = findings(&board).into_iter().map(|finding| finding.remedy).collect();
        assert!(remedies.contains("/boot/firmware/cmdline.txt"), "{remedies}");
        board.boot_file = None;
        let remedies: String = findings(&board).into_iter().map(|finding| finding.remedy).collect();
        assert!(remedies.contains("GRUB_CMDLINE_LINUX"), "{remedies}");
    }
}
