//! The supervisor with the real create and exec children, as root of a machine of its own: run in the guest, as
//! `supervisor @joint`. The root filesystem is the guest's busybox.

use crate::harness::{Agent, Node, code, millis, uid, until};
use armlet::model::action::ContainerLimits;
use armlet::model::pod::{Container, Pod, Seccomp};
use armlet::model::supervise::{Ask, ContainerState, ExecExit, ExecSpec, Reply, SandboxEntry, StartSpec};
use armlet::model::{ContainerId, PodUid};
use armlet::runtime::request::{OverlayRoot, REQUEST_FILE, SPEC_FILE};
use armlet::runtime::spec::{ImageDefaults, Inputs, build};
use rustix::fd::OwnedFd;
use std::fs;
use std::io::{Read as _, Write as _};
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};

const BASE: &str = "/var/lib/armlet/joint";
const CGROUP: &str = "/sys/fs/cgroup";

/// Runs all of it.
pub(crate) fn run() -> ExitCode {
    make_root();
    let cases: [(&str, fn()); 6] = [
        ("a_container_lives_and_ends", a_container_lives_and_ends),
        ("what_cannot_start_says_why", what_cannot_start_says_why),
        ("the_oom_killer_is_seen", the_oom_killer_is_seen),
        ("programs_run_in_a_container", programs_run_in_a_container),
        ("terminals", terminals),
        ("twenty_pods", twenty_pods),
    ];
    for (name, case) in cases {
        let began = millis();
        case();
        println!("test joint::{name} ... ok ({} ms)", millis() - began);
    }
    ExitCode::SUCCESS
}

fn make_root() {
    let bin = Path::new(BASE).join("root/bin");
    fs::create_dir_all(&bin).unwrap();
    fs::copy("/bin/busybox", bin.join("busybox")).unwrap();
    for name in ["sh", "sleep", "echo", "cat", "stty", "seq", "yes", "hostname", "id", "head", "tail", "tty"] {
        let _ = std::os::unix::fs::symlink("busybox", bin.join(name));
    }
}

fn value(json: serde_json::Value) -> (Pod, Container) {
    let container = json["container"].clone();
    (serde_json::from_value(json["pod"].clone()).unwrap(), serde_json::from_value(container).unwrap())
}

fn example(pod: &str) -> (Pod, Container) {
    let amounts = serde_json::json!({"cpu":null,"memory":null,"ephemeral_storage":null,"hugepages":{}});
    let container = serde_json::json!({"name":"c","image":"c:1","pull_policy":"IfNotPresent","command":[],"args":[],
        "working_dir":null,"env":[],"ports":[],"resources":{"requests":amounts,"limits":amounts},"mounts":[],
        "liveness":null,"readiness":null,"startup":null,"termination_message_path":"/dev/termination-log",
        "termination_message_policy":"File","restart_policy":null,
        "security":{"run_as_user":null,"run_as_group":null,"run_as_non_root":false,"groups":[],"strict_groups":false,
            "privileged":false,"no_new_privs":false,"read_only_root":false,"add_capabilities":[],
            "drop_capabilities":[],"seccomp":null},
        "stdin":false,"stdin_once":false,"tty":false});
    let pod = serde_json::json!({"uid":pod,"name":pod,"namespace":"default","labels":{},"annotations":{},
        "source":{"file":{"path":"/x","document":0}},"manifest":null,
        "spec":{"init_containers":[],"containers":[container],"volumes":[],"restart_policy":"Always",
            "termination_grace_secs":30,"host_network":false,"hostname":null,"subdomain":null,
            "dns_policy":"Default","dns":{"nameservers":[],"searches":[],"options":[]},"host_aliases":[],
            "fs_group":null,"sysctls":{},"priority_class_name":null,"priority":0,"overhead":amounts}});
    value(serde_json::json!({ "pod": pod, "container": container }))
}

/// Makes the bundle and the cgroup of a container that runs `command`.
fn container(node: &mut Node, sandbox: &SandboxEntry, command: &[&str], memory: Option<u64>, tty: bool) -> StartSpec {
    let mut spec = node.container(sandbox.pod.as_str(), "", "");
    let (pod, mut container) = example(sandbox.pod.as_str());
    container.command = command.iter().map(ToString::to_string).collect();
    container.tty = tty;
    container.security.seccomp = Some(Seccomp::RuntimeDefault);
    let own = Path::new(BASE).join(node.supervisor.id().to_string()).join(spec.id.as_str());
    let root =
        OverlayRoot { lower: vec![Path::new(BASE).join("root")], upper: own.join("upper"), work: own.join("work") };
    let limits = ContainerLimits {
        cpu_weight: 35,
        cpu_max: None,
        memory_max: memory,
        swap_max: Some(0),
        oom_group: true,
        oom_score_adj: 900,
        hugetlb: Default::default(),
    };
    let (oci, request) = build(&Inputs {
        pod: &pod,
        container: &container,
        id: &spec.id,
        image: ImageDefaults::default(),
        passwd: b"",
        group: b"",
        root: &root,
        sandbox,
        hostname: "guest",
        cgroup: &spec.cgroup,
        limits: &limits,
        volumes: &[],
        managed: &[],
        host_devices: &[],
        masked: &[],
        seccomp_default: true,
    })
    .unwrap();
    let group = node.group(&spec);
    let above: Vec<_> = group.ancestors().skip(1).take(2).collect();
    for folder in above.into_iter().rev() {
        fs::write(folder.join("cgroup.subtree_control"), "+memory +cpu +pids").unwrap();
    }
    let bundle = PathBuf::from(&spec.bundle);
    fs::write(bundle.join(SPEC_FILE), serde_json::to_vec(&oci).unwrap()).unwrap();
    fs::write(bundle.join(REQUEST_FILE), serde_json::to_vec(&request).unwrap()).unwrap();
    spec.tty = tty;
    spec
}

fn begin() -> (Node, Agent) {
    let node = Node::start(Path::new(CGROUP));
    let (agent, ..) = node.agent();
    (node, agent)
}

fn run_to_end(node: &mut Node, agent: &mut Agent, spec: &StartSpec) -> ContainerState {
    let state = agent.run(spec);
    assert!(matches!(state, ContainerState::Running { .. }), "{state:?}");
    let end = agent.over(spec);
    node.remove_group(spec);
    end
}

fn a_container_lives_and_ends() {
    let (mut node, mut agent) = begin();
    let sandbox = agent.sandbox("p");
    let script = "hostname; id -u; echo err >&2; echo $$; exit 3";
    let spec = container(&mut node, &sandbox, &["/bin/sh", "-c", script], None, false);
    let began = millis();
    assert_eq!(code(&run_to_end(&mut node, &mut agent, &spec)), 3);
    println!("  start to end {} ms", millis() - began);
    let mut log = node.log(&spec);
    log.sort();
    assert_eq!(log, ["stderr F err", "stdout F 0", "stdout F 1", "stdout F p"]);
    let left = container(&mut node, &sandbox, &["/bin/sh", "-c", "sleep 300 & sleep 300 & exit 0"], None, false);
    assert_eq!(code(&run_to_end(&mut node, &mut agent, &left)), 0);
    let killed = container(&mut node, &sandbox, &["/bin/sleep", "300"], None, false);
    agent.run(&killed);
    agent.ask(Ask::Kill { id: killed.id.clone() });
    assert_eq!(code(&agent.over(&killed)), 137);
    let groups: Vec<_> = fs::read_dir(format!("{CGROUP}/armlet")).unwrap().flatten().map(|e| e.file_name()).collect();
    until("no create child's group is left", || {
        (!groups
            .iter()
            .any(|g| Path::new(CGROUP).join("armlet").join(g).exists() && g.to_string_lossy().starts_with("create-")))
        .then_some(())
    });
    // The kernel's list of mounts is as it was.
    assert!(!fs::read_to_string("/proc/mounts").unwrap().contains("joint"));
}

fn what_cannot_start_says_why() {
    let (mut node, mut agent) = begin();
    let sandbox = agent.sandbox("p");
    let spec = container(&mut node, &sandbox, &["/no/such"], None, false);
    let ContainerState::StartFailed { message, code, .. } = agent.run(&spec) else { panic!() };
    assert!(message.contains("no such file") && code != 0, "{code} {message}");
    node.remove_group(&spec);
    let broken = container(&mut node, &sandbox, &["/bin/sh"], None, false);
    fs::write(Path::new(&broken.bundle).join(REQUEST_FILE), "{").unwrap();
    let ContainerState::StartFailed { message, .. } = agent.run(&broken) else { panic!() };
    assert!(message.contains(REQUEST_FILE), "{message}");
}

fn the_oom_killer_is_seen() {
    let (mut node, mut agent) = begin();
    let sandbox = agent.sandbox("p");
    let hungry = ["/bin/sh", "-c", "tail -c 100000000 /dev/zero; echo survived"];
    let spec = container(&mut node, &sandbox, &hungry, Some(16 << 20), false);
    match run_to_end(&mut node, &mut agent, &spec) {
        ContainerState::Exited(exit) => assert_eq!((exit.code, exit.oom_killed), (137, true)),
        other => panic!("{other:?}"),
    }
}

fn exec(id: &ContainerId, script: &str) -> ExecSpec {
    let command = ["/bin/sh", "-c", script].map(str::to_owned).to_vec();
    ExecSpec { id: id.clone(), command, tty: false, stdin: false, size: None, timeout_ms: None }
}

fn start_exec(agent: &mut Agent, spec: ExecSpec) -> (u64, Vec<OwnedFd>) {
    let seq = agent.send(Ask::Exec(spec));
    match agent.reply(seq) {
        (Reply::Exec { session }, fds) => (session, fds),
        (other, _) => panic!("{other:?}"),
    }
}

fn programs_run_in_a_container() {
    let (mut node, mut agent) = begin();
    let sandbox = agent.sandbox("p");
    let spec = container(&mut node, &sandbox, &["/bin/sleep", "300"], None, false);
    agent.run(&spec);
    let began = millis();
    let (session, mut fds) =
        start_exec(&mut agent, ExecSpec { stdin: true, ..exec(&spec.id, "cat; hostname; exit 7") });
    let (_, stdout, stdin) = (fds.pop().unwrap(), fds.pop().unwrap(), fds.pop().unwrap());
    fs::File::from(stdin).write_all(b"in ").unwrap();
    assert_eq!(agent.exec_over(session), ExecExit::Exited { code: 7 });
    println!("  exec {} ms", millis() - began);
    let mut text = String::new();
    fs::File::from(stdout).read_to_string(&mut text).unwrap();
    assert_eq!(text, "in p\n");
    let (session, _fds) =
        start_exec(&mut agent, ExecSpec { timeout_ms: Some(3000), ..exec(&spec.id, "sleep 300 & sleep 300") });
    assert_eq!(agent.exec_over(session), ExecExit::TimedOut);
    let only = Command::new("cat").arg(node.group(&spec).join("cgroup.procs")).output().unwrap();
    assert_eq!(String::from_utf8(only.stdout).unwrap().lines().count(), 1);
    let (session, _fds) =
        start_exec(&mut agent, ExecSpec { command: vec!["/no/such".to_owned()], ..exec(&spec.id, "") });
    assert!(matches!(agent.exec_over(session), ExecExit::Failed { code: 126..=128, .. }));
    agent.ask(Ask::Kill { id: spec.id.clone() });
    agent.over(&spec);
    node.remove_group(&spec);
}

fn terminals() {
    let (mut node, mut agent) = begin();
    let sandbox = agent.sandbox("p");
    let spec = container(&mut node, &sandbox, &["/bin/sh", "-c", "tty && sleep 300"], None, true);
    agent.run(&spec);
    until("it has a terminal", || {
        (node.log(&spec) == ["stdout F /dev/pts/0\r"] || node.log(&spec) == ["stdout F /dev/console\r"]).then_some(())
    });
    let on_tty =
        ExecSpec { tty: true, stdin: true, size: Some((90, 30)), ..exec(&spec.id, "read go; stty size; exit 4") };
    let (session, mut fds) = start_exec(&mut agent, on_tty);
    let mut terminal = fs::File::from(fds.pop().unwrap());
    terminal.write_all(b"go\n").unwrap();
    let mut text = String::new();
    let mut buffer = [0; 256];
    while !text.contains("30 90") {
        let n = terminal.read(&mut buffer).unwrap();
        text.push_str(std::str::from_utf8(&buffer[..n]).unwrap());
    }
    assert_eq!(agent.exec_over(session), ExecExit::Exited { code: 4 });
    agent.ask(Ask::Kill { id: spec.id.clone() });
    agent.over(&spec);
}

fn figure(pid: u32, name: &str) -> u64 {
    let text = fs::read_to_string(format!("/proc/{pid}/smaps_rollup")).unwrap();
    let line = text.lines().find_map(|l| l.strip_prefix(name)).unwrap();
    line.trim().trim_end_matches(" kB").parse().unwrap()
}

fn switches(pid: u32) -> u64 {
    let text = fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
    let read = |name: &str| text.lines().find_map(|l| l.strip_prefix(name)).unwrap().trim().parse::<u64>().unwrap();
    read("voluntary_ctxt_switches:") + read("nonvoluntary_ctxt_switches:")
}

fn twenty_pods() {
    let (mut node, mut agent) = begin();
    let mut specs = Vec::new();
    let mut times = Vec::new();
    let mut made = Vec::new();
    for n in 0..20 {
        let began = millis();
        let sandbox = agent.sandbox(&format!("p{n}"));
        made.push(millis() - began);
        let spec = container(&mut node, &sandbox, &["/bin/sh", "-c", "echo hello; exec sleep 300"], None, false);
        let began = millis();
        agent.run(&spec);
        times.push(millis() - began);
        specs.push(spec);
    }
    until("all have spoken", || specs.iter().all(|s| node.log(s).len() == 1).then_some(()));
    times.sort_unstable();
    made.sort_unstable();
    println!("  sandbox: median {} ms; ask to started: median {} ms, slowest {} ms", made[10], times[10], times[19]);
    let logger = agent.stats().logger_pid.unwrap();
    let pids = [("supervisor", node.supervisor.id()), ("logger", logger)];
    // Some seconds after a start the code for it is let go.
    std::thread::sleep(std::time::Duration::from_secs(7));
    let before = pids.map(|(_, pid)| switches(pid));
    std::thread::sleep(std::time::Duration::from_secs(10));
    assert_eq!(pids.map(|(_, pid)| switches(pid)), before, "nobody woke up in ten seconds");
    for (name, pid) in pids {
        println!(
            "  {name}: PSS {} KiB, private {} KiB",
            figure(pid, "Pss:"),
            figure(pid, "Private_Dirty:") + figure(pid, "Private_Clean:")
        );
    }
    for spec in &specs {
        agent.ask(Ask::Kill { id: spec.id.clone() });
        agent.over(spec);
        agent.ask(Ask::Forget { id: spec.id.clone() });
    }
    for n in 0..20 {
        let pod: PodUid = uid(&format!("p{n}"));
        assert_eq!(agent.ask(Ask::RemoveSandbox { pod }), Reply::Done);
    }
    until("all groups can be removed", || {
        specs.iter().all(|s| !node.group(s).exists() || fs::remove_dir(node.group(s)).is_ok()).then_some(())
    });
}
