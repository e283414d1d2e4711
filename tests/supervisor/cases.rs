//! What is tested, one function each.

use crate::hand_over;
use crate::harness::{Agent, Node, code, millis, spawn, uid, until};
use armlet::model::log::LogLevel;
use armlet::model::supervise::{
    Ask, ContainerState, ExecExit, ExecSpec, LogLimits, Message, Notice, RefusalCode, Reply, StartSpec,
};
use armlet::model::{ContainerId, PodUid};
use armlet::sys::{seqpacket, signals};
use rustix::fd::{AsFd as _, OwnedFd};
use std::fs;
use std::io::{Read as _, Write as _};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

type Case = (&'static str, fn(&Path));

const CASES: &[Case] = &[
    ("a_container_runs_and_its_exit_is_told_and_written", a_container_runs_and_its_exit_is_told_and_written),
    ("a_sandbox_has_namespaces_of_its_own", a_sandbox_has_namespaces_of_its_own),
    ("a_grandchild_that_holds_the_output_delays_nothing", a_grandchild_that_holds_the_output_delays_nothing),
    ("signal_and_kill", signal_and_kill),
    ("create_children_that_go_wrong", create_children_that_go_wrong),
    ("a_process_that_ends_before_it_is_named", a_process_that_ends_before_it_is_named),
    ("a_new_agent_takes_over", a_new_agent_takes_over),
    ("a_killed_logger_costs_no_line_that_waits", a_killed_logger_costs_no_line_that_waits),
    ("floods_stay_within_the_budget_and_stall_nobody", floods_stay_within_the_budget_and_stall_nobody),
    ("exec_sessions", exec_sessions),
    ("exec_on_a_terminal", exec_on_a_terminal),
    ("a_container_on_a_terminal", a_container_on_a_terminal),
    ("a_killed_supervisor_leaves_no_survivor", a_killed_supervisor_leaves_no_survivor),
    ("a_hand_over_keeps_everything", hand_over::a_hand_over_keeps_everything),
    ("a_hand_over_in_the_middle_of_everything", hand_over::a_hand_over_in_the_middle_of_everything),
    ("programs_that_are_refused", hand_over::programs_that_are_refused),
    ("its_own_log_is_shown_and_its_level_changed", its_own_log_is_shown_and_its_level_changed),
    ("hostile_messages", hostile_messages),
    ("idle_is_idle", idle_is_idle),
    ("stopping", stopping),
];

/// Runs the cases whose name holds `filter`.
pub(crate) fn run(filter: Option<&str>) -> ExitCode {
    if !rustix::process::geteuid().is_root() {
        println!("supervisor: not run, it needs root; the QEMU ring runs it");
        return ExitCode::SUCCESS;
    }
    let tree = Tree::make();
    for (name, case) in CASES.iter().filter(|(name, _)| filter.is_none_or(|f| name.contains(f))) {
        let began = millis();
        case(&tree.group);
        println!("test {name} ... ok ({} ms)", millis() - began);
    }
    ExitCode::SUCCESS
}

/// A group of our own in the v2 hierarchy. A fresh mount shows the machine's one tree, where a supervisor kills the
/// containers below `kubepods` that it has no record of: on a board those would be the pods of the armlet that runs there.
struct Tree {
    group: PathBuf,
    folder: tempfile::TempDir,
}

impl Tree {
    /// Mounts the hierarchy on a folder of our own, whatever the distribution has mounted where. Only this program and
    /// its children see the mount: it goes with them, whichever way they end.
    #[expect(unsafe_code, reason = "unshare(2) is unsafe: it can take away what other threads share")]
    fn make() -> Self {
        use rustix::mount::{MountFlags, MountPropagationFlags, mount, mount_change};
        // SAFETY: this process has one thread, and only its mounts are unshared.
        unsafe { rustix::thread::unshare_unsafe(rustix::thread::UnshareFlags::NEWNS) }.unwrap();
        mount_change("/", MountPropagationFlags::REC | MountPropagationFlags::PRIVATE).unwrap();
        let folder = tempfile::tempdir().unwrap();
        mount("none", folder.path(), "cgroup2", MountFlags::empty(), None).unwrap();
        let group = folder.path().join(format!("armlet-test-{}", std::process::id()));
        fs::create_dir(&group).unwrap();
        Self { group, folder }
    }

    fn remove(group: &Path) {
        for entry in fs::read_dir(group).into_iter().flatten().flatten().filter(|e| e.path().is_dir()) {
            Self::remove(&entry.path());
        }
        let _ = fs::remove_dir(group);
    }
}

impl Drop for Tree {
    fn drop(&mut self) {
        let _ = fs::write(self.group.join("cgroup.kill"), "1");
        let end = millis() + 10_000;
        while self.group.exists() && millis() < end {
            Self::remove(&self.group);
            std::thread::sleep(std::time::Duration::from_millis(20));
        }
        let _ = rustix::mount::unmount(self.folder.path(), rustix::mount::UnmountFlags::DETACH);
    }
}

fn a_container_runs_and_its_exit_is_told_and_written(cgroup: &Path) {
    let mut node = Node::start(cgroup);
    let (mut agent, ..) = node.agent();
    agent.sandbox("p");
    let spec = node.container("p", "", "echo out; echo err >&2; printf half; exit 3");
    let ContainerState::Running { pid, .. } = agent.run(&spec) else { panic!() };
    assert!(pid > 1);
    let ContainerState::Exited(exit) = agent.over(&spec) else { panic!() };
    assert_eq!((exit.code, exit.signal, exit.known, exit.oom_killed), (3, None, true, false));
    let mut log = node.log(&spec);
    log.sort();
    assert_eq!(log, ["stderr F err", "stdout F half", "stdout F out"]);
    let record = node.folder.path().join(format!("run/exits/{}.json", spec.id));
    assert!(fs::read_to_string(&record).unwrap().contains("\"code\":3"));
    until("the create child's group is gone", || {
        (!cgroup.join(format!("armlet/create-{}", spec.id)).exists()).then_some(())
    });
    // The same start again starts nothing.
    assert_eq!(code(&agent.run(&spec)), 3);
    let remove = Ask::RemoveSandbox { pod: uid("p") };
    assert_eq!(agent.ask(Ask::Forget { id: spec.id.clone() }), Reply::Done);
    assert_eq!(agent.ask(Ask::Forget { id: spec.id.clone() }), Reply::Done);
    assert!(!record.exists());
    assert_eq!(agent.ask(remove.clone()), Reply::Done);
    assert_eq!(agent.ask(remove), Reply::Done);
    let Reply::Refused { code, .. } = agent.ask(Ask::Start(spec)) else { panic!() };
    assert_eq!(code, RefusalCode::NotFound);
}

fn a_sandbox_has_namespaces_of_its_own(cgroup: &Path) {
    let node = Node::start(cgroup);
    let (mut agent, ..) = node.agent();
    let entry = agent.sandbox("p");
    assert_eq!(agent.sandbox("p"), entry);
    for (kind, path) in [("net", &entry.netns), ("ipc", &entry.ipcns), ("uts", &entry.utsns)] {
        let theirs = fs::read_link(path.as_ref().unwrap()).unwrap();
        assert!(theirs.to_str().unwrap().starts_with(kind));
        assert_ne!(theirs, fs::read_link(format!("/proc/self/ns/{kind}")).unwrap());
    }
    let inside = std::process::Command::new("nsenter")
        .arg(format!("--net={}", entry.netns.unwrap()))
        .arg(format!("--uts={}", entry.utsns.unwrap()))
        .args(["sh", "-c", "hostname; cat /proc/sys/net/ipv4/ip_unprivileged_port_start; cat /proc/net/fib_trie"])
        .output()
        .unwrap();
    let inside = String::from_utf8(inside.stdout).unwrap();
    assert!(inside.starts_with("p\n77\n"), "{inside}");
    assert!(inside.contains("127.0.0.1"), "loopback is up: {inside}");
    let mut bad = armlet::model::supervise::SandboxSpec {
        pod: uid("q"),
        attempt: 0,
        host_network: true,
        hostname: None,
        sysctls: vec![("no.such".to_owned(), "1".to_owned())],
    };
    let Reply::Refused { message, .. } = agent.ask(Ask::CreateSandbox(bad.clone())) else { panic!() };
    assert!(message.contains("no.such"), "{message}");
    bad.sysctls.clear();
    let Reply::Pod(host) = agent.ask(Ask::CreateSandbox(bad)) else { panic!() };
    assert!(host.netns.is_none() && host.utsns.is_none() && host.ipcns.is_some());
}

fn a_grandchild_that_holds_the_output_delays_nothing(cgroup: &Path) {
    let mut node = Node::start(cgroup);
    let (mut agent, ..) = node.agent();
    agent.sandbox("p");
    // One in the cgroup, and one that has left it and writes on.
    let outside = cgroup.join("outside");
    fs::create_dir_all(&outside).unwrap();
    let script = format!(
        "setsid sleep 300 & (echo 0 > {}/cgroup.procs; while echo on; do sleep 0.05; done) & sleep 0.2; exit 0",
        outside.display()
    );
    let spec = node.container("p", "", &script);
    agent.run(&spec);
    let began = millis();
    assert_eq!(code(&agent.over(&spec)), 0);
    assert!(millis() - began < 1500, "{} ms", millis() - began);
    assert!(node.log(&spec).contains(&"stdout F on".to_owned()));
    fs::write(outside.join("cgroup.kill"), "1").unwrap();
    until("the escaped process is gone", || fs::remove_dir(&outside).ok());
    node.remove_group(&spec);
}

fn signal_and_kill(cgroup: &Path) {
    let mut node = Node::start(cgroup);
    let (mut agent, ..) = node.agent();
    agent.sandbox("p");
    let polite = node.container("p", "", "trap 'exit 5' TERM; echo up; while :; do sleep 0.05; done");
    agent.run(&polite);
    until("it is up", || (node.log(&polite).len() == 1).then_some(()));
    assert_eq!(agent.ask(Ask::Signal { id: polite.id.clone(), signal: 15 }), Reply::Done);
    assert_eq!(code(&agent.over(&polite)), 5);
    assert_eq!(agent.ask(Ask::Signal { id: polite.id.clone(), signal: 15 }), Reply::Done);
    let stubborn = node.container("p", "", "trap '' TERM; while :; do sleep 1; done");
    agent.run(&stubborn);
    let refused = [
        Ask::RemoveSandbox { pod: uid("p") },
        Ask::Forget { id: stubborn.id.clone() },
        Ask::Signal { id: stubborn.id.clone(), signal: 0 },
        Ask::Signal { id: ContainerId::new("ff").unwrap(), signal: 9 },
    ];
    for ask in refused {
        assert!(matches!(agent.ask(ask), Reply::Refused { .. }));
    }
    assert_eq!(agent.ask(Ask::Kill { id: stubborn.id.clone() }), Reply::Done);
    let ContainerState::Exited(exit) = agent.over(&stubborn) else { panic!() };
    assert_eq!((exit.code, exit.signal), (137, Some(9)));
}

fn create_children_that_go_wrong(cgroup: &Path) {
    let mut node = Node::start(cgroup);
    let (mut agent, ..) = node.agent();
    agent.sandbox("p");
    let cases = [
        ("die", 128, "left with code 9"),
        ("liar", 128, "reported process 1"),
        ("babble", 128, "too long"),
        ("fail", 127, "no such file"),
        ("hang", 128, "not started in time"),
    ];
    for (mode, wanted, text) in cases {
        let mut spec = node.container("p", mode, "sleep 300");
        if mode == "hang" {
            spec.timeout_ms = 1000;
        }
        let ContainerState::StartFailed { code, message, .. } = agent.run(&spec) else { panic!("{mode}") };
        assert_eq!(code, wanted, "{mode}");
        assert!(message.contains(text), "{mode}: {message}");
        let group = cgroup.join(format!("armlet/create-{}", spec.id));
        until("the create child's group is gone", || (!group.exists()).then_some(()));
        node.remove_group(&spec);
    }
    let hanging = node.container("p", "hang", "");
    let seq = agent.send(Ask::Start(hanging.clone()));
    let again = agent.send(Ask::Kill { id: hanging.id });
    let mut replies = Vec::new();
    while replies.len() < 2 {
        match agent.next(10_000).unwrap().0 {
            Message::Reply { seq, reply } => replies.push(format!("seq: {seq} {reply:?}")),
            Message::Notice { .. } => {}
        }
    }
    assert!(replies.iter().any(|r| r.contains(&format!("seq: {seq}")) && r.contains("killed while")), "{replies:?}");
    assert!(replies.iter().any(|r| r.contains(&format!("seq: {again}")) && r.contains("Done")), "{replies:?}");
}

fn a_process_that_ends_before_it_is_named(cgroup: &Path) {
    let mut node = Node::start(cgroup);
    let (mut agent, ..) = node.agent();
    agent.sandbox("p");
    let spec = node.container("p", "early", "echo gone; exit 4");
    assert!(matches!(agent.run(&spec), ContainerState::Running { .. }));
    assert_eq!(code(&agent.over(&spec)), 4);
    assert_eq!(node.log(&spec), ["stdout F gone"]);
}

fn a_new_agent_takes_over(cgroup: &Path) {
    let mut node = Node::start(cgroup);
    let (mut first, ..) = node.agent();
    first.sandbox("p");
    let stays = node.container("p", "", "sleep 300");
    first.run(&stays);
    let ends = node.container("p", "", "sleep 0.3; echo alone; exit 6");
    first.run(&ends);
    let group = node.group(&ends);
    drop(first);
    until("it ends with no agent there", || fs::remove_dir(&group).ok());
    until("its exit is recorded", || {
        node.folder.path().join(format!("run/exits/{}.json", ends.id)).exists().then_some(())
    });
    let (mut second, pods, containers) = node.agent();
    assert_eq!(pods.len(), 1);
    let state = |id: &ContainerId| containers.iter().find(|c| c.id == *id).unwrap().state.clone();
    assert!(matches!(state(&stays.id), ContainerState::Running { .. }));
    assert_eq!(code(&state(&ends.id)), 6);
    assert_eq!(node.log(&ends), ["stdout F alone"]);
    let (mut third, ..) = node.agent();
    assert!(second.next(10_000).is_none(), "the earlier agent's connection ends");
    third.ask(Ask::Kill { id: stays.id.clone() });
    assert_eq!(code(&third.over(&stays)), 137);
    // Before hello only figures are to be had.
    let mut stranger = Agent::connect(&node.socket());
    assert!(stranger.stats().pid > 0);
    assert!(matches!(stranger.ask(Ask::Kill { id: stays.id }), Reply::Refused { code: RefusalCode::Conflict, .. }));
}

/// A logger that is killed with a line in its hands loses that one; what waits in the pipe is the next one's.
fn a_killed_logger_costs_no_line_that_waits(cgroup: &Path) {
    let mut node = Node::start(cgroup);
    let (mut agent, ..) = node.agent();
    agent.sandbox("p");
    let folder = node.folder.path().to_owned();
    let file = |name: &str, round: usize| folder.join(format!("{name}-{round}"));
    let script = format!(
        "cd {} && for round in 0 1 2 3; do i=0; while [ $i -lt 50 ]; do echo line $round $i || exit 9; i=$((i+1)); done; \
         : >wrote-$round; until [ $round = 3 ] || [ -e go-$round ]; do sleep 0.01; done; done",
        folder.display()
    );
    let spec = node.container("p", "", &script);
    agent.run(&spec);
    for round in 0..3 {
        // It has written all there is, and so has nothing in its hands.
        until("all lines are written", || (node.log(&spec).len() == 50 * (round + 1)).then_some(()));
        let logger = until("a logger is there", || agent.stats().logger_pid);
        signals::send(logger, libc::SIGSTOP).unwrap();
        fs::write(file("go", round), "").unwrap();
        until("lines wait", || file("wrote", round + 1).exists().then_some(()));
        signals::send(logger, libc::SIGKILL).unwrap();
        agent.notice(|n| matches!(n, Notice::LoggerRestarted { .. }).then_some(()));
    }
    assert_eq!(code(&agent.over(&spec)), 0);
    let wanted = (0..4).flat_map(|round| (0..50).map(move |i| format!("stdout F line {round} {i}")));
    assert_eq!(node.log(&spec), wanted.collect::<Vec<_>>());
    assert_eq!(agent.stats().logger_restarts, 3);
}

fn floods_stay_within_the_budget_and_stall_nobody(cgroup: &Path) {
    let mut node = Node::start(cgroup);
    let budget = 4 << 20;
    let (mut agent, ..) = node.agent_with(LogLimits { max_size: 1 << 20, max_files: 5, node_budget: budget });
    agent.sandbox("p");
    agent.sandbox("q");
    let floods: Vec<StartSpec> = (0..3).map(|_| node.container("p", "", "yes 'much ado about nothing'")).collect();
    let quiet = node.container("q", "", "for i in 1 2 3 4 5; do echo $i; sleep 0.1; done");
    for spec in &floods {
        agent.run(spec);
    }
    agent.run(&quiet);
    let mut worst = 0;
    for _ in 0..50 {
        let began = millis();
        agent.stats();
        worst = worst.max(millis() - began);
        std::thread::sleep(std::time::Duration::from_millis(20));
        // A file that is renamed while the folder is read is counted twice.
        let size = folder_size(&node.folder.path().join("logs"));
        assert!(size <= budget + budget / 4, "the budget is kept: {size}");
    }
    assert!(worst < 500, "an answer took {worst} ms");
    assert_eq!(code(&agent.over(&quiet)), 0);
    assert_eq!(node.log(&quiet).len(), 5, "the quiet one keeps its lines");
    for spec in &floods {
        agent.ask(Ask::Kill { id: spec.id.clone() });
        assert_eq!(code(&agent.over(spec)), 137);
        // Between two files of a rotation there is none of that name.
        let text = until("there is a log", || fs::read_to_string(&spec.log_path).ok());
        assert!(text.is_empty() || text.ends_with('\n'));
    }
}

fn folder_size(folder: &Path) -> u64 {
    let entries = fs::read_dir(folder).into_iter().flatten().flatten();
    entries.fold(0, |sum, e| match e.metadata() {
        Ok(m) if m.is_dir() => sum + folder_size(&e.path()),
        Ok(m) => sum + m.len(),
        Err(_) => sum,
    })
}

pub(crate) fn exec_spec(id: &ContainerId, script: &str) -> ExecSpec {
    ExecSpec {
        id: id.clone(),
        command: ["/bin/sh", "-c", script].map(str::to_owned).to_vec(),
        tty: false,
        stdin: false,
        size: None,
        timeout_ms: None,
    }
}

pub(crate) fn begin(agent: &mut Agent, spec: ExecSpec) -> (u64, Vec<OwnedFd>) {
    let seq = agent.send(Ask::Exec(spec));
    match agent.reply(seq) {
        (Reply::Exec { session }, fds) => (session, fds),
        (other, _) => panic!("{other:?}"),
    }
}

fn read_all(fd: OwnedFd) -> String {
    let mut text = Vec::new();
    let _ = fs::File::from(fd).read_to_end(&mut text);
    String::from_utf8(text).unwrap()
}

fn exec_sessions(cgroup: &Path) {
    let mut node = Node::start(cgroup);
    let (mut agent, ..) = node.agent();
    agent.sandbox("p");
    let container = node.container("p", "", "sleep 300");
    agent.run(&container);
    let id = &container.id;

    let (session, mut fds) = begin(&mut agent, ExecSpec { stdin: true, ..exec_spec(id, "cat; echo err >&2; exit 7") });
    let (stderr, stdout, stdin) = (fds.pop().unwrap(), fds.pop().unwrap(), fds.pop().unwrap());
    fs::File::from(stdin).write_all(b"through").unwrap();
    assert_eq!(agent.exec_over(session), ExecExit::Exited { code: 7 });
    assert_eq!((read_all(stdout).as_str(), read_all(stderr).as_str()), ("through", "err\n"));
    until("the session's group is gone", || {
        let left = fs::read_dir(node.group(&container)).unwrap().flatten().filter(|e| e.path().is_dir()).count();
        (left == 0).then_some(())
    });

    // What a program leaves running keeps the group, and only for as long as it runs.
    let go = node.folder.path().join("go");
    let left = format!("(until [ -e {} ]; do sleep 0.05; done) >/dev/null 2>&1 & exit 0", go.display());
    let (session, _fds) = begin(&mut agent, exec_spec(id, &left));
    assert_eq!(agent.exec_over(session), ExecExit::Exited { code: 0 });
    let group = node.group(&container).join(format!("exec-{session}"));
    assert!(group.exists(), "the program left something running");
    fs::write(&go, "").unwrap();
    until("the group that was left is gone", || (!group.exists()).then_some(()));

    // A time-out ends all that was started.
    let began = millis();
    let slow = ExecSpec { timeout_ms: Some(300), ..exec_spec(id, "setsid sleep 300 & sleep 300") };
    let (session, _fds) = begin(&mut agent, slow);
    assert_eq!(agent.exec_over(session), ExecExit::TimedOut);
    assert!((300..5000).contains(&(millis() - began)));
    let (session, _fds) = begin(&mut agent, exec_spec(id, "sleep 300"));
    assert_eq!(agent.ask(Ask::KillExec { session }), Reply::Done);
    assert_eq!(agent.exec_over(session), ExecExit::Exited { code: 137 });

    let nowhere = ExecSpec { command: vec!["/nowhere".to_owned()], ..exec_spec(id, "") };
    let (session, _fds) = begin(&mut agent, nowhere);
    assert_eq!(agent.exec_over(session), ExecExit::Failed { code: 127, message: "not found".to_owned() });
    assert!(matches!(
        agent.ask(Ask::Exec(ExecSpec { command: Vec::new(), ..exec_spec(id, "") })),
        Reply::Refused { .. }
    ));

    // A session outlives the agent that asked for it, but not for long once another is there.
    let mark = node.folder.path().join("mark");
    let (session, fds) =
        begin(&mut agent, exec_spec(id, &format!("sleep 0.5; echo x && touch {}; sleep 300", mark.display())));
    let group = node.group(&container).join(format!("exec-{session}"));
    drop((agent, fds));
    let (mut agent, ..) = node.agent();
    until("the session goes on", || mark.exists().then_some(()));
    until("the session is ended", || (!group.exists()).then_some(()));

    // It does not outlive its container.
    let (session, fds) = begin(&mut agent, exec_spec(id, "echo ready; sleep 300"));
    fs::File::from(fds.into_iter().next().unwrap()).read_exact(&mut [0; 6]).unwrap();
    agent.ask(Ask::Kill { id: id.clone() });
    assert_eq!(agent.exec_over(session), ExecExit::Exited { code: 137 });
    assert_eq!(code(&agent.over(&container)), 137);
    node.remove_group(&container);
    let Reply::Refused { code, .. } = agent.ask(Ask::Exec(exec_spec(id, "true"))) else { panic!() };
    assert_eq!(code, RefusalCode::Conflict);
}

fn exec_on_a_terminal(cgroup: &Path) {
    let mut node = Node::start(cgroup);
    let (mut agent, ..) = node.agent();
    agent.sandbox("p");
    let container = node.container("p", "", "sleep 300");
    agent.run(&container);
    let spec = ExecSpec {
        tty: true,
        stdin: true,
        size: Some((90, 30)),
        ..exec_spec(
            &container.id,
            "read go; stty size; trap 'stty size; exit 3' WINCH; echo ready; while :; do sleep 0.05; done",
        )
    };
    let (session, mut fds) = begin(&mut agent, spec);
    let mut terminal = fs::File::from(fds.pop().unwrap());
    terminal.write_all(b"go\n").unwrap();
    let mut text = String::new();
    let mut read_until = |wanted: &str| {
        let mut buffer = [0; 256];
        while !text.contains(wanted) {
            let n = terminal.read(&mut buffer).unwrap();
            text.push_str(std::str::from_utf8(&buffer[..n]).unwrap());
        }
    };
    read_until("30 90");
    read_until("ready");
    assert_eq!(agent.ask(Ask::ResizeExec { session, width: 100, height: 40 }), Reply::Done);
    read_until("40 100");
    assert_eq!(agent.exec_over(session), ExecExit::Exited { code: 3 });
    assert!(matches!(agent.ask(Ask::ResizeExec { session, width: 1, height: 1 }), Reply::Refused { .. }));
    let nowhere = ExecSpec { tty: true, command: vec!["/nowhere".to_owned()], ..exec_spec(&container.id, "") };
    let (session, _) = begin(&mut agent, nowhere);
    assert!(matches!(agent.exec_over(session), ExecExit::Failed { code: 127, .. }));
}

fn a_container_on_a_terminal(cgroup: &Path) {
    let mut node = Node::start(cgroup);
    let (mut agent, ..) = node.agent();
    agent.sandbox("p");
    let spec = node.container("p", "tty", "tty >/dev/null && echo terminal; exit 2");
    agent.run(&spec);
    assert_eq!(code(&agent.over(&spec)), 2);
    assert_eq!(node.log(&spec), ["stdout F terminal\r"]);
}

fn a_killed_supervisor_leaves_no_survivor(cgroup: &Path) {
    let mut node = Node::start(cgroup);
    let (mut agent, ..) = node.agent();
    agent.sandbox("p");
    let lives = node.container("p", "", "trap '' TERM PIPE; while :; do sleep 1; done");
    agent.run(&lives);
    let ended = node.container("p", "", "exit 3");
    agent.run(&ended);
    agent.over(&ended);
    let mut second = spawn(node.folder.path(), cgroup);
    assert!(!second.wait().unwrap().success(), "a second supervisor is refused");
    node.supervisor.kill().unwrap();
    node.supervisor.wait().unwrap();
    assert!(agent.next(10_000).is_none());
    node.start_again();
    let group = node.group(&lives);
    until("the survivor is dead", || {
        fs::read_to_string(group.join("cgroup.events")).unwrap().contains("populated 0").then_some(())
    });
    until("its end is recorded", || {
        node.folder.path().join(format!("run/exits/{}.json", lives.id)).exists().then_some(())
    });
    let (_, pods, containers) = node.agent();
    assert!(pods.is_empty(), "its namespaces went with it");
    assert_eq!(containers.len(), 2);
    for entry in containers {
        let ContainerState::Exited(exit) = entry.state else { panic!() };
        let wanted = if entry.id == lives.id { (137, false) } else { (3, true) };
        assert_eq!((exit.code, exit.known), wanted);
    }
}

fn its_own_log_is_shown_and_its_level_changed(cgroup: &Path) {
    let mut node = Node::start(cgroup);
    let read = |agent: &mut Agent, after| match agent.ask(Ask::Log { after }) {
        Reply::Log(lines) => lines,
        other => panic!("{other:?}"),
    };
    // Whoever may connect may read, as figures may be read; only the agent is told of more.
    let mut stranger = Agent::connect(&node.socket());
    assert_eq!(read(&mut stranger, 0).pid, node.supervisor.id());
    let debug = Ask::SetLogLevel { level: LogLevel::Debug };
    assert!(matches!(stranger.ask(debug.clone()), Reply::Refused { code: RefusalCode::Conflict, .. }));
    let (mut agent, ..) = node.agent();
    assert_eq!(agent.stats().log_level, Some(LogLevel::Info));
    let first = read(&mut agent, 0);
    assert!(first.text.contains(" I supervisor: an agent said hello version=1 build="), "{}", first.text);
    let all = read(&mut agent, first.next);
    assert_eq!((all.text.as_str(), all.next), ("", first.next));
    signals::send(agent.stats().logger_pid.unwrap(), 9).unwrap();
    agent.notice(|n| matches!(n, Notice::Logged).then_some(()));
    // Told once: what is not read is no news.
    signals::send(until("another logger", || agent.stats().logger_pid), 9).unwrap();
    agent.notice(|n| matches!(n, Notice::LoggerRestarted { count: 2 }).then_some(()));
    assert!(!agent.notices.contains(&Notice::Logged), "{:?}", agent.notices);
    let news = read(&mut agent, first.next);
    assert_eq!(
        news.text.lines().filter(|line| line.contains("the logger was started again")).count(),
        2,
        "{}",
        news.text
    );
    assert!(!news.text.contains("said hello") && news.missed == 0);
    // What the logger has to say is kept with it.
    agent.sandbox("p");
    let mut spec = node.container("p", "", "echo unwritten");
    spec.log_path = "/nonexistent/0.log".to_owned();
    agent.run(&spec);
    agent.over(&spec);
    until("the logger's line", || read(&mut agent, news.next).text.contains(" logger: ").then_some(()));
    assert_eq!(agent.ask(debug), Reply::Done);
    assert_eq!(agent.stats().log_level, Some(LogLevel::Debug));
    // A number that this supervisor has not counted up to gives nothing, and no harm.
    assert_eq!(read(&mut agent, u64::MAX).text, "");
}

fn hostile_messages(cgroup: &Path) {
    let node = Node::start(cgroup);
    let socket = seqpacket::connect(&node.socket()).unwrap();
    let mut noise = 12_345_u64;
    let mut random = || {
        noise = noise.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        noise >> 33
    };
    let before = memory(node.supervisor.id());
    for round in 0..2000_u64 {
        let length = usize::try_from(random() % 5000).unwrap() + 1;
        let mut message: Vec<u8> = (0..length).map(|_| u8::try_from(random() % 256).unwrap()).collect();
        match round % 4 {
            0 => message = vec![b'['; length],
            1 => message = format!("{{\"seq\":{round},\"ask\":{{\"type\":\"{}\"}}}}", "x".repeat(length)).into_bytes(),
            2 => message = br#"{"seq":1,"ask":{"type":"kill","id":"../../etc"}}"#.to_vec(),
            _ => {}
        }
        // Answers are not fetched: the supervisor must stop to listen rather than pile them up.
        let null = fs::File::open("/dev/null").unwrap();
        if !seqpacket::send(socket.as_fd(), &message, &[null.as_fd()]).unwrap() {
            let mut buffer = [0; 4096];
            while let Ok(Some(_)) = seqpacket::receive(socket.as_fd(), &mut buffer) {}
        }
    }
    let big = vec![b' '; 100_000];
    let _ = seqpacket::send(socket.as_fd(), &big, &[]);
    let crowd: Vec<_> = (0..30).map(|_| seqpacket::connect(&node.socket())).collect();
    drop((socket, crowd));
    let mut agent = until("there is room again", || {
        let mut agent = Agent::connect(&node.socket());
        agent.try_stats().map(|_| agent)
    });
    assert!(agent.stats().pid == node.supervisor.id());
    let (mut agent, ..) = node.agent();
    let bad = |f: fn(&mut StartSpec)| {
        let mut spec = StartSpec {
            id: ContainerId::new("aa").unwrap(),
            pod: PodUid::new("p").unwrap(),
            name: "c".to_owned(),
            attempt: 0,
            bundle: "/b".to_owned(),
            log_path: "/l".to_owned(),
            cgroup: "g".to_owned(),
            tty: false,
            stdin: false,
            timeout_ms: 0,
        };
        f(&mut spec);
        Ask::Start(spec)
    };
    agent.sandbox("p");
    for ask in [
        bad(|s| s.cgroup = "../../x".to_owned()),
        bad(|s| s.cgroup = "/x".to_owned()),
        bad(|s| s.cgroup = String::new()),
        bad(|s| s.bundle = "b".to_owned()),
        bad(|s| s.log_path = "/a/../b\0".to_owned()),
        bad(|s| s.name = "n".repeat(10_000)),
        bad(|s| s.pod = PodUid::new("unknown").unwrap()),
    ] {
        assert!(matches!(agent.ask(ask), Reply::Refused { .. }));
    }
    let grown = memory(node.supervisor.id()).saturating_sub(before);
    // 5 MB were sent. What it touches for the first time in all this is above 1 MiB at times.
    assert!(grown < 2048, "memory grew by {grown} KiB");
}

/// Private memory of a process in KiB.
fn memory(pid: u32) -> u64 {
    let text = fs::read_to_string(format!("/proc/{pid}/smaps_rollup")).unwrap();
    let line = text.lines().find_map(|l| l.strip_prefix("Private_Dirty:")).unwrap();
    line.trim().trim_end_matches(" kB").parse().unwrap()
}

fn switches(pid: u32) -> u64 {
    let text = fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
    let line = text.lines().find_map(|l| l.strip_prefix("voluntary_ctxt_switches:")).unwrap();
    line.trim().parse().unwrap()
}

fn idle_is_idle(cgroup: &Path) {
    let mut node = Node::start(cgroup);
    let (mut agent, ..) = node.agent();
    let mut specs = Vec::new();
    for pod in 0..20 {
        let pod = format!("p{pod}");
        agent.sandbox(&pod);
        let spec = node.container(&pod, "", "echo hello; sleep 300");
        agent.run(&spec);
        specs.push(spec);
    }
    let logger = agent.stats().logger_pid.unwrap();
    until("all have spoken", || specs.iter().all(|s| node.log(s).len() == 1).then_some(()));
    // Some seconds after a start the code for it is let go, later on a busy machine. Then nobody wakes up.
    until("nobody wakes up for three seconds", || {
        let before = (switches(node.supervisor.id()), switches(logger));
        std::thread::sleep(std::time::Duration::from_secs(3));
        ((switches(node.supervisor.id()), switches(logger)) == before).then_some(())
    });
    for (name, pid) in [("supervisor", node.supervisor.id()), ("logger", logger)] {
        let text = fs::read_to_string(format!("/proc/{pid}/smaps_rollup")).unwrap();
        let pss = text.lines().find(|l| l.starts_with("Pss:")).unwrap();
        println!("  {name} with 20 pods: {pss}, private dirty {} kB", memory(pid));
    }
}

fn stopping(cgroup: &Path) {
    let mut node = Node::start(cgroup);
    let (mut agent, ..) = node.agent();
    agent.sandbox("p");
    let spec = node.container("p", "", "trap 'exit 0' TERM; while :; do sleep 0.05; done");
    agent.run(&spec);
    assert!(matches!(agent.ask(Ask::PowerOff { reboot: false }), Reply::Refused { .. }), "only process 1 can");
    signals::send(node.supervisor.id(), 15).unwrap();
    assert!(!agent.notice(|n| if let Notice::Shutdown { reboot } = n { Some(*reboot) } else { None }));
    agent.ask(Ask::Kill { id: spec.id.clone() });
    agent.over(&spec);
    assert!(node.supervisor.wait().unwrap().success());
    node.logger_is_gone();

    // Without an agent the supervisor asks the containers itself.
    let mut node = Node::start(cgroup);
    let (mut agent, ..) = node.agent();
    agent.sandbox("p");
    let spec = node.container("p", "", "trap 'echo bye; exit 0' TERM; echo up; while :; do sleep 0.05; done");
    agent.run(&spec);
    until("it is up", || (node.log(&spec).len() == 1).then_some(()));
    drop(agent);
    // Answered after the agent's end of the connection was seen: that event was there first.
    Agent::connect(&node.socket()).stats();
    signals::send(node.supervisor.id(), 15).unwrap();
    assert!(node.supervisor.wait().unwrap().success());
    assert_eq!(node.log(&spec), ["stdout F up", "stdout F bye"]);
}
