//! What the agent and the supervisor say to each other, and what the supervisor says to its create and exec children.
//!
//! One message is one SOCK_SEQPACKET datagram of JSON, at most [`MAX_MESSAGE`] bytes, with descriptors beside it where
//! a message says so. Unknown fields are ignored and new ones have defaults, so that neighbouring versions understand
//! each other; a change that cannot be said that way raises [`PROTOCOL`].

use super::log::LogLevel;
use super::{BootTime, ContainerId, PodUid, WallTime};
use serde::{Deserialize, Serialize};

/// The version of these messages.
pub const PROTOCOL: u32 = 1;

/// The largest message, in bytes. What is larger goes into a file that the message names.
pub const MAX_MESSAGE: usize = 64 * 1024;

/// First arguments of the roles that armlet starts itself.
pub mod role {
    /// The supervisor's writer of container logs.
    pub const LOGGER: &str = "@logger";
    /// Starts one container: `@create <bundle>`.
    pub const CREATE: &str = "@create";
    /// Runs one program in a container.
    pub const EXEC: &str = "@exec";
    /// Looks a hand-over document on descriptor 3 over and answers on descriptor 4.
    pub const LOOK_OVER: &str = "@look-over";
    /// Keeps an interface's address: `@dhcp <interface>`.
    pub const DHCP: &str = "@dhcp";
    /// Tells whether a database can be opened: `@store-check <folder>`.
    pub const STORE_CHECK: &str = "@store-check";
}

/// From the agent to the supervisor.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Request {
    /// Chosen by the agent; the answer carries it back.
    pub seq: u64,
    /// What is asked.
    pub ask: Ask,
}

/// What the agent can ask.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", rename_all_fields = "camelCase", tag = "type")]
pub enum Ask {
    /// The first message of a connection. A later agent's hello ends the earlier one's connection.
    /// Answers: [`Reply::Welcome`], then one [`Reply::Pod`] and [`Reply::Container`] per entry, then [`Reply::Done`].
    Hello {
        /// [`PROTOCOL`] of the agent.
        version: u32,
        /// How logs are kept from now on.
        logs: LogLimits,
        /// The agent's build (`sys::build`).
        #[serde(default)]
        build: String,
        /// What no other build knows of.
        #[cfg(feature = "other-build")]
        #[serde(default)]
        unheard_of: u32,
    },
    /// Makes a pod's namespaces and holds them. Safe to repeat. Answer: [`Reply::Pod`].
    CreateSandbox(SandboxSpec),
    /// Lets a pod's namespaces go. Refused while a container of the pod lives. Answer: [`Reply::Done`].
    RemoveSandbox {
        /// Which pod.
        pod: PodUid,
    },
    /// Starts one container attempt. Safe to repeat with the same id. Answer: [`Reply::Container`], when the container
    /// runs (its program was executed) or has failed to start.
    Start(StartSpec),
    /// Sends a signal to the container's first process. Answer: [`Reply::Done`].
    Signal {
        /// Which container.
        id: ContainerId,
        /// Signal number.
        signal: i32,
    },
    /// Kills everything in the container's cgroup at once. Answer: [`Reply::Done`].
    Kill {
        /// Which container.
        id: ContainerId,
    },
    /// Forgets an exited container. Answer: [`Reply::Done`], also when it is unknown.
    Forget {
        /// Which container.
        id: ContainerId,
    },
    /// Runs a program in a running container. Answer: [`Reply::Exec`] with descriptors, then later
    /// [`Notice::ExecExited`]. It is killed some seconds after another agent than the one that asked has said hello.
    Exec(ExecSpec),
    /// Sets the window size of an exec session's terminal. Answer: [`Reply::Done`].
    ResizeExec {
        /// Which session.
        session: u64,
        /// Columns.
        width: u16,
        /// Rows.
        height: u16,
    },
    /// Kills an exec session's processes. Answer: [`Reply::Done`].
    KillExec {
        /// Which session.
        session: u64,
    },
    /// Figures about the supervisor itself. Answer: [`Reply::Stats`].
    Stats,
    /// Become another program in place, keeping everything: the descriptor beside it is that program, on a read-only
    /// mount or sealed in memory. It is first run as a child that has to understand the table. Anybody who may connect
    /// may ask. Answer: [`Reply::Done`] from the new program, or a refusal from this one, which goes on.
    HandOver {
        /// The program's build, as far as who asks knows it.
        #[serde(default)]
        build: String,
    },
    /// The supervisor's own log, from memory. Answer: [`Reply::Log`]. The agent that asked is told of the next line
    /// once, by [`Notice::Logged`].
    Log {
        /// Lines after this number; 0: from the first that is there.
        after: u64,
    },
    /// How much the supervisor logs, until it ends. Answer: [`Reply::Done`].
    SetLogLevel {
        /// What is logged.
        level: LogLevel,
    },
    /// On process 1: stops the node once the agent has stopped the pods. Answer: [`Reply::Done`], then the end.
    PowerOff {
        /// Start again instead of staying off.
        reboot: bool,
    },
}

/// How container logs are kept (`containerLogMaxSize`, `containerLogMaxFiles`, and the node-wide budget).
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct LogLimits {
    /// Bytes of one file before it is rotated.
    pub max_size: u64,
    /// Files of one container attempt, the one being written included; at least 2.
    pub max_files: u32,
    /// Bytes of all logs on the node together.
    pub node_budget: u64,
}

/// A pod's namespaces.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct SandboxSpec {
    /// Which pod.
    pub pod: PodUid,
    /// Counts the pod's sandboxes from 0.
    pub attempt: u32,
    /// Use the node's network and UTS namespaces.
    pub host_network: bool,
    /// The kernel host name inside; none with `host_network`.
    pub hostname: Option<String>,
    /// Sysctls by dotted name, written inside the new namespaces.
    #[serde(default)]
    pub sysctls: Vec<(String, String)>,
}

/// One container attempt to start. The OCI spec and everything else that only the create child needs lie in `bundle`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct StartSpec {
    /// The attempt's id.
    pub id: ContainerId,
    /// Whose sandbox it joins.
    pub pod: PodUid,
    /// The container's name in the pod.
    pub name: String,
    /// Restart count: names the log file.
    pub attempt: u32,
    /// Folder with `config.json` (OCI) and `create.json` ([`crate::runtime`]'s own). On tmpfs.
    pub bundle: String,
    /// The log file to append to. Its folder exists.
    pub log_path: String,
    /// The container's cgroup, below the cgroup mount, without a leading slash. Made by the agent beforehand.
    pub cgroup: String,
    /// Run on a terminal.
    pub tty: bool,
    /// Keep a pipe on standard input.
    pub stdin: bool,
    /// Milliseconds that the create child may take before it is killed whole.
    pub timeout_ms: u64,
}

/// A program to run in a running container.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ExecSpec {
    /// Which container.
    pub id: ContainerId,
    /// The program and its arguments.
    pub command: Vec<String>,
    /// On a terminal.
    pub tty: bool,
    /// Give it standard input; else /dev/null.
    pub stdin: bool,
    /// First window size: columns and rows.
    #[serde(default)]
    pub size: Option<(u16, u16)>,
    /// Kill it after this many milliseconds; absent: never.
    #[serde(default)]
    pub timeout_ms: Option<u64>,
}

/// From the supervisor to the agent.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", rename_all_fields = "camelCase", tag = "type")]
pub enum Message {
    /// The answer to a request.
    Reply {
        /// The request's number.
        seq: u64,
        /// The answer.
        reply: Reply,
    },
    /// Something happened.
    Notice {
        /// What.
        notice: Notice,
    },
}

/// An answer.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", rename_all_fields = "camelCase", tag = "type")]
pub enum Reply {
    /// Who answers.
    Welcome {
        /// [`PROTOCOL`] of the supervisor.
        version: u32,
        /// The supervisor's build (`sys::build`).
        build: String,
        /// The kernel's boot id.
        boot_id: String,
        /// The supervisor's process id: namespaces are at `/proc/<pid>/fd/<n>`.
        pid: u32,
        /// The node goes down: [`Notice::Shutdown`] follows.
        #[serde(default)]
        stopping: bool,
        /// What no other build knows of.
        #[cfg(feature = "other-build")]
        #[serde(default)]
        unheard_of: u32,
    },
    /// One sandbox.
    Pod(SandboxEntry),
    /// One container.
    Container(ContainerEntry),
    /// An exec session has begun. Descriptors beside it: with a terminal its master; else the write end of standard
    /// input if asked for, then the read ends of standard output and standard error. With a terminal the answer comes
    /// when the child has opened it; if it could not, the answer has no descriptor and [`Notice::ExecExited`] follows.
    Exec {
        /// The session's number.
        session: u64,
    },
    /// Figures.
    Stats(Stats),
    /// Lines of the supervisor's log.
    Log(LogLines),
    /// Done, nothing to tell.
    Done,
    /// Not done.
    Refused {
        /// Machine-readable cause.
        code: RefusalCode,
        /// For people: operation, object, cause.
        message: String,
    },
}

/// Why a request was refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum RefusalCode {
    /// The message could not be understood.
    Malformed,
    /// No such container, session or sandbox.
    NotFound,
    /// The object is in a state in which this cannot be done.
    Conflict,
    /// A table is full.
    Exhausted,
    /// A system call failed.
    System,
    /// From a newer version.
    #[serde(other)]
    Unknown,
}

/// Something that happened.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", rename_all_fields = "camelCase", tag = "type")]
pub enum Notice {
    /// A container's state changed.
    Container(ContainerEntry),
    /// An exec session ended.
    ExecExited {
        /// Which session.
        session: u64,
        /// How.
        exit: ExecExit,
    },
    /// Another build was offered to the supervisor.
    HandOver {
        /// Which.
        build: String,
        /// Why it was not taken; absent: it is the supervisor now.
        #[serde(default)]
        refused: Option<String>,
    },
    /// The logger died and another took over.
    LoggerRestarted {
        /// How often since the supervisor started.
        count: u32,
    },
    /// Log lines of a container were dropped.
    LogsDropped {
        /// Which container.
        id: ContainerId,
        /// Bytes since it started.
        bytes: u64,
    },
    /// The supervisor's log has grown since it was asked for.
    Logged,
    /// The node is asked to stop (by a signal): stop the pods, then ask for PowerOff.
    Shutdown {
        /// Start again instead of staying off.
        reboot: bool,
    },
}

/// A sandbox as the supervisor holds it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct SandboxEntry {
    /// Which pod.
    pub pod: PodUid,
    /// Which of its sandboxes.
    pub attempt: u32,
    /// The node's network is used.
    pub host_network: bool,
    /// Path of the network namespace; none with `host_network`.
    pub netns: Option<String>,
    /// Path of the IPC namespace.
    pub ipcns: Option<String>,
    /// Path of the UTS namespace; none with `host_network`.
    pub utsns: Option<String>,
    /// When it was made.
    pub created_at: BootTime,
    /// The same on the wall clock.
    pub created_wall: WallTime,
}

/// A container as the supervisor holds it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ContainerEntry {
    /// The attempt's id.
    pub id: ContainerId,
    /// Whose.
    pub pod: PodUid,
    /// The container's name in the pod.
    pub name: String,
    /// Restart count.
    pub attempt: u32,
    /// Its log file.
    pub log_path: String,
    /// Its cgroup.
    pub cgroup: String,
    /// Where it stands.
    pub state: ContainerState,
}

/// Where a container attempt stands.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", rename_all_fields = "camelCase", tag = "state")]
pub enum ContainerState {
    /// The create child is at work.
    Creating,
    /// Its program runs.
    Running {
        /// Process id on the node.
        pid: u32,
        /// When its program was started.
        started_at: BootTime,
        /// The same on the wall clock.
        started_wall: WallTime,
    },
    /// It has ended, its cgroup is empty, its log is complete.
    Exited(Exit),
    /// It never ran.
    StartFailed {
        /// The exit code to report: 126, 127 or 128.
        code: i32,
        /// `StartError` or `ContainerCannotRun`.
        reason: String,
        /// For people.
        message: String,
        /// When.
        at: BootTime,
        /// The same on the wall clock.
        at_wall: WallTime,
    },
}

/// How a container ended.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Exit {
    /// Exit code; 128 + signal number for a death by signal; 137 when it is not known.
    pub code: i32,
    /// The signal that ended it.
    #[serde(default)]
    pub signal: Option<i32>,
    /// The kernel's OOM killer was at work in its cgroup.
    #[serde(default)]
    pub oom_killed: bool,
    /// Whether the exit was seen. False: the supervisor had died, and this is ContainerStatusUnknown.
    #[serde(default = "yes")]
    pub known: bool,
    /// When its program was started.
    pub started_at: BootTime,
    /// The same on the wall clock.
    pub started_wall: WallTime,
    /// When it ended.
    pub finished_at: BootTime,
    /// The same on the wall clock.
    pub finished_wall: WallTime,
}

const fn yes() -> bool {
    true
}

/// How an exec session ended.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", rename_all_fields = "camelCase", tag = "type")]
pub enum ExecExit {
    /// With this exit code (128 + signal number for a death by signal).
    Exited {
        /// The code.
        code: i32,
    },
    /// Killed because its time was over.
    TimedOut,
    /// It never ran; `code` is 126 or 127 as a shell would give, else 128.
    Failed {
        /// The code.
        code: i32,
        /// For people.
        message: String,
    },
}

/// Figures about the supervisor itself.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Stats {
    /// Process id of the supervisor.
    pub pid: u32,
    /// Process id of the logger.
    pub logger_pid: Option<u32>,
    /// Loggers started after the first.
    pub logger_restarts: u32,
    /// Create children started.
    pub creates: u64,
    /// Orphans reaped (process 1).
    pub orphans_reaped: u64,
    /// Log bytes dropped.
    pub log_bytes_dropped: u64,
    /// The supervisor's build.
    pub build: String,
    /// How often one build has handed over to another since the first supervisor began.
    pub hand_overs: u64,
    /// What the supervisor logs about itself; absent: it does not say.
    pub log_level: Option<LogLevel>,
}

/// A part of the supervisor's own log.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct LogLines {
    /// Whose: another process counts its lines anew.
    pub pid: u32,
    /// Whole lines, as [`crate::model::log`] tells; empty: there are no more.
    pub text: String,
    /// The number of the last of them.
    pub next: u64,
    /// Lines that had gone before they could be read.
    pub missed: u64,
}

/// What an exec child finds as JSON in the sealed memory file on descriptor 5.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ExecOrder {
    /// What to run.
    pub spec: ExecSpec,
    /// Process id of the container's first process on the node.
    pub pid: u32,
    /// The container's bundle folder.
    pub bundle: String,
    /// A cgroup below the container's that exists and is empty, without a leading slash: the program's process joins
    /// it, so that everything it forks can be killed together and no limit of the container is escaped.
    pub cgroup: String,
}

/// Descriptor numbers that a create or exec child finds open, beside the container's standard streams on 0, 1 and 2.
pub mod child_fd {
    /// Write end of a pipe for [`super::ChildReport`] lines.
    pub const REPORT: i32 = 3;
    /// With a terminal only: a connected stream socket on which the child sends one byte with the terminal's master
    /// as SCM_RIGHTS. Descriptors 0, 1 and 2 are /dev/null then.
    pub const CONSOLE: i32 = 4;
    /// Exec only: a sealed memory file holding an [`super::ExecOrder`].
    pub const ORDER: i32 = 5;
}

/// What a create or exec child reports to the supervisor: one JSON line each on descriptor 3.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", rename_all_fields = "camelCase", tag = "type")]
pub enum ChildReport {
    /// The first process exists, as a child of the supervisor, and has not yet executed its program.
    Created {
        /// Its process id on the node.
        pid: u32,
    },
    /// The program was executed.
    Started,
    /// It could not be.
    Failed {
        /// Exit code to report: 126 not executable, 127 not found, 128 anything else.
        code: i32,
        /// `StartError` or `ContainerCannotRun`.
        reason: String,
        /// For people: the whole chain of causes.
        message: String,
    },
}
