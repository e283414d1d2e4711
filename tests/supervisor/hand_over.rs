//! One program takes over from another in place. Here both are the same: that they can differ is shown where there are two
//! builds (`tests/qemu/upgrade.rs`).

use crate::cases::{begin, exec_spec};
use crate::fake::whim;
use crate::harness::{Agent, Node, code, until};
use armlet::model::supervise::{Ask, ContainerState, ExecExit, ExecSpec, Notice, RefusalCode, Reply, StartSpec};
use armlet::sys::exe;
use rustix::fd::{AsFd as _, OwnedFd};
use std::fs;
use std::io::{Read as _, Write as _};
use std::path::Path;

impl Agent {
    fn offer(&mut self, program: &OwnedFd) -> Reply {
        let seq = self.send_with(Ask::HandOver { build: "offered".to_owned() }, &[program.as_fd()]);
        self.reply(seq).0
    }

    /// Offers this program, which is taken.
    fn hand_over(&mut self, before: u64) {
        assert_eq!(self.offer(&exe::protected().unwrap()), Reply::Done);
        assert_eq!(self.stats().hand_overs, before + 1);
        self.notice(|n| matches!(n, Notice::HandOver { refused: None, .. }).then_some(()));
    }

    fn refusal(&mut self, program: &OwnedFd) -> String {
        let Reply::Refused { message, .. } = self.offer(program) else { panic!("it was taken") };
        message
    }
}

/// Numbered lines, some of them in two writes, so that a hand-over comes in the middle of one.
const COUNTING: &str = "i=0; while :; do i=$((i+1)); printf 'line '; sleep 0.02; echo $i; done";

/// As fast as a pipe takes it, in bursts, so that it lasts.
const FLOOD: &str =
    "i=0; while [ $i -lt 30 ]; do seq $((i * 5000 + 1)) $((i * 5000 + 5000)); i=$((i + 1)); sleep 0.02; done";
const FLOODED: u32 = 150_000;

fn counted(node: &Node, spec: &StartSpec) -> usize {
    let lines = node.log(spec);
    for (number, line) in (1..).zip(&lines) {
        assert_eq!(*line, format!("stdout F line {number}"));
    }
    lines.len()
}

/// How often: a few times, or for as long as a campaign takes, but at least fifty times then.
fn times() -> u64 {
    let campaign = std::env::var("ARMLET_CAMPAIGN_SECONDS").is_ok();
    if campaign { 50 } else { 5 }
}

pub(crate) fn a_hand_over_keeps_everything(cgroup: &Path) {
    let mut node = Node::start(cgroup);
    let (mut agent, ..) = node.agent();
    let sandbox = agent.sandbox("p");
    let container = node.container("p", "", COUNTING);
    let ContainerState::Running { pid, .. } = agent.run(&container) else { panic!() };
    let terminal = node.container("p", "tty", "stty raw; cat");
    agent.run(&terminal);

    let (session, mut fds) = begin(&mut agent, ExecSpec { stdin: true, ..exec_spec(&container.id, "cat; exit 7") });
    let (_stderr, stdout, stdin) = (fds.pop().unwrap(), fds.pop().unwrap(), fds.pop().unwrap());
    let (mut stdin, mut stdout) = (fs::File::from(stdin), fs::File::from(stdout));
    let tty = ExecSpec { tty: true, stdin: true, ..exec_spec(&container.id, "stty raw -echo; echo ready; cat") };
    let (_, mut fds) = begin(&mut agent, tty);
    let mut screen = fs::File::from(fds.remove(0));
    let mut ready = [0; 6];
    screen.read_exact(&mut ready).unwrap();

    let flood = node.container("p", "", FLOOD);
    agent.run(&flood);

    let supervisor = node.supervisor.id();
    for round in 0..times() {
        let before = counted(&node, &container);
        agent.hand_over(round);
        assert_eq!(agent.stats().pid, supervisor);
        until("the log goes on", || (counted(&node, &container) > before + 2).then_some(()));
        stdin.write_all(b"there").unwrap();
        let mut back = [0; 5];
        stdout.read_exact(&mut back).unwrap();
        assert_eq!(&back, b"there");
        screen.write_all(b"again").unwrap();
        screen.read_exact(&mut back).unwrap();
        assert_eq!(&back, b"again");
        // The namespaces are where they were, and a new agent finds the same table.
        assert_eq!(agent.sandbox("p"), sandbox);
        fs::metadata(sandbox.netns.as_ref().unwrap()).unwrap();
    }
    assert_eq!(agent.stats().logger_restarts, 0, "no logger died");
    assert_eq!(code(&agent.over(&flood)), 0);
    let lines = node.log(&flood);
    assert!((1..=FLOODED).map(|n| format!("stdout F {n}")).eq(lines.iter().cloned()), "{} lines", lines.len());
    drop(stdin);
    assert_eq!(agent.exec_over(session), ExecExit::Exited { code: 7 });
    let Reply::Container(entry) = agent.ask(Ask::Start(container.clone())) else { panic!() };
    assert!(matches!(entry.state, ContainerState::Running { pid: now, .. } if now == pid));
    agent.ask(Ask::Kill { id: container.id.clone() });
    assert_eq!(code(&agent.over(&container)), 137);
    agent.ask(Ask::Kill { id: terminal.id.clone() });
    agent.over(&terminal);
    let (mut next, pods, containers) = node.agent();
    assert_eq!((pods.len(), containers.len()), (1, 3));
    assert!(!next.notices.iter().any(|n| matches!(n, Notice::LoggerRestarted { .. })));
    next.stats();
}

/// Containers are being created and are ending, sessions begin, and nobody waits with that for a hand-over.
pub(crate) fn a_hand_over_in_the_middle_of_everything(cgroup: &Path) {
    let mut node = Node::start(cgroup);
    let (mut agent, ..) = node.agent();
    agent.sandbox("p");
    let steady = node.container("p", "", "sleep 300");
    agent.run(&steady);
    let mut started = Vec::new();
    for round in 0..times() {
        // One whose create child is slow, one that ends at once and leaves half a line, one that cannot be started in time.
        let slow = node.container("p", "early", "echo up; sleep 300");
        let short = node.container("p", "", "printf 'half a'; sleep 0.05; printf ' line'; exit 3");
        let hung = StartSpec { timeout_ms: 1_000, ..node.container("p", "hang", "") };
        let wanted: Vec<u64> =
            [&slow, &short, &hung].iter().map(|spec| agent.send(Ask::Start((*spec).clone()))).collect();
        let exec = agent.send(Ask::Exec(exec_spec(&steady.id, "exit 5")));
        let program = exe::protected().unwrap();
        let offer = agent.send_with(Ask::HandOver { build: String::new() }, &[program.as_fd()]);
        let mut open: Vec<u64> = wanted.into_iter().chain([exec, offer]).collect();
        let mut sessions = Vec::new();
        while !open.is_empty() {
            let (seq, reply, _fds) = agent.any_reply();
            open.retain(|s| *s != seq);
            match reply {
                Reply::Exec { session } => sessions.push(session),
                Reply::Refused { message, .. } => panic!("{message}"),
                _ => {}
            }
        }
        for session in sessions {
            assert_eq!(agent.exec_over(session), ExecExit::Exited { code: 5 });
        }
        assert_eq!(code(&agent.over(&short)), 3);
        assert_eq!(node.log(&short), ["stdout F half a line"]);
        assert!(matches!(agent.over(&hung), ContainerState::StartFailed { .. }));
        assert_eq!(agent.stats().hand_overs, round + 1);
        let Reply::Container(entry) = agent.ask(Ask::Start(slow.clone())) else { panic!() };
        assert!(matches!(entry.state, ContainerState::Running { .. }), "{entry:?}");
        started.push(slow);
    }
    for slow in &started {
        until("its first line is there", || (node.log(slow) == ["stdout F up"]).then_some(()));
        agent.ask(Ask::Kill { id: slow.id.clone() });
        assert_eq!(code(&agent.over(slow)), 137);
    }
    until("the create children's groups and the lookers' are gone", || {
        let mut groups = fs::read_dir(cgroup.join("armlet")).unwrap().flatten();
        let left = groups.any(|group| {
            let name = group.file_name().into_string().unwrap();
            name.starts_with("create-") || name.starts_with("look-over-")
        });
        (!left).then_some(())
    });
}

/// Whatever is wrong with a program, the supervisor says so and goes on.
pub(crate) fn programs_that_are_refused(cgroup: &Path) {
    let mut node = Node::start(cgroup);
    let (mut agent, ..) = node.agent();
    agent.sandbox("p");
    let container = node.container("p", "", COUNTING);
    let running = agent.run(&container);
    let own = fs::read("/proc/self/exe").unwrap();
    let sealed = |bytes: &[u8]| exe::sealed_bytes("program", bytes).unwrap();
    for (what, program, said) in [
        // Of an unstripped program most is nothing that is needed to run it.
        ("cut short", sealed(&own[..own.len() / 10]), ""),
        ("only its first page", sealed(&own[..4096]), ""),
        ("empty", sealed(b""), "cannot be executed"),
        ("a text", sealed(b"hello\n"), "cannot be executed"),
        ("another program", exe::protected_file(Path::new("/bin/sh")).unwrap(), "no answer"),
    ] {
        let message = agent.refusal(&program);
        assert!(message.contains(said), "{what}: {message}");
        agent.notice(|n| matches!(n, Notice::HandOver { refused: Some(_), .. }).then_some(()));
        // The same is not looked at again on this connection.
        assert!(agent.refusal(&program).contains("before"), "{what}");
        agent = node.agent().0;
    }

    // Another kind of machine.
    let mut foreign = own.clone();
    foreign[18] ^= 0xff;
    assert!(agent.refusal(&sealed(&foreign)).contains("cannot be executed"));
    agent = node.agent().0;

    // One that anybody may write, and none at all.
    let folder = tempfile::tempdir().unwrap();
    fs::write(folder.path().join("program"), &own).unwrap();
    let open: OwnedFd = fs::File::open(folder.path().join("program")).unwrap().into();
    assert!(agent.refusal(&open).contains("can be written"));
    let Reply::Refused { code: why, .. } = agent.ask(Ask::HandOver { build: String::new() }) else { panic!() };
    assert_eq!(why, RefusalCode::Malformed);

    let whim = whim(node.supervisor.id());
    for (mood, said) in
        [("die", "code 9"), ("babble", "too long"), ("nonsense", "cannot be read"), ("hang", "did not answer within")]
    {
        fs::write(&whim, mood).unwrap();
        let message = agent.refusal(&exe::protected().unwrap());
        assert!(message.contains(said), "{mood}: {message}");
        agent = node.agent().0;
    }
    fs::remove_file(&whim).unwrap();

    let Reply::Container(entry) = agent.ask(Ask::Start(container.clone())) else { panic!() };
    assert_eq!(entry.state, running);
    let before = counted(&node, &container);
    until("the log goes on", || (counted(&node, &container) > before + 2).then_some(()));
    assert_eq!(agent.stats().hand_overs, 0);
    // After all that a good one is taken.
    agent.hand_over(0);
    assert_eq!(agent.stats().logger_restarts, 0);
}
