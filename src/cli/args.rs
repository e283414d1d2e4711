//! What can be typed.

mod upkeep;

pub(super) use upkeep::{Bundle, Debug, LogLevel};

use crate::model::WallTime;
use clap::{Args, Parser, Subcommand, ValueEnum};
use std::path::PathBuf;

const EXAMPLES: &str = "\
Examples:
  armlet ps                              what runs on this node
  armlet ps -c                           the same, one line for each container
  armlet logs -f web                     follow a pod's log
  armlet logs -p -c db shop/store        how the attempt before ended
  armlet exec -it web -- sh              a shell in a pod
  armlet inspect web                     everything about a pod
  armlet import ./app.tar                take images from an archive
  sudo armlet check                      is this machine ready to be a node?

A pod is named by its name, with or without the node's name at its end, and
with its namespace before it where the name alone is not enough: web,
web-edge1, shop/web.

Exit codes: 0 done, 1 not done, 2 wrong command line, 3 the agent cannot be
reached; exec passes on the program's code.

`armlet supervisor` and `armlet agent` are the node itself: the system starts
them, not people.";

/// A Kubernetes node in one program: look at its pods, read their logs, run programs in them
#[derive(Debug, Parser)]
#[command(name = "armlet", version, after_help = EXAMPLES, arg_required_else_help = true)]
pub(super) struct Cli {
    /// The agent's socket
    #[arg(
        long,
        global = true,
        help_heading = "Everywhere",
        env = "ARMLET_SOCKET",
        default_value = "/run/armlet/armlet.sock",
        value_name = "PATH"
    )]
    // A text, because the agent's own flag of this name, which `config` takes, is one.
    pub(super) socket: String,

    /// When to use colour; NO_COLOR turns it off too
    #[arg(long, global = true, help_heading = "Everywhere", value_enum, default_value_t = Color::Auto, value_name = "WHEN")]
    pub(super) color: Color,

    #[command(subcommand)]
    pub(super) command: Command,
}

/// When to use colour.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(super) enum Color {
    Auto,
    Always,
    Never,
}

#[derive(Debug, Subcommand)]
pub(super) enum Command {
    /// List the pods of this node
    Ps(Ps),
    /// Show a container's log
    Logs(Logs),
    /// Run a program in a container
    Exec(Exec),
    /// List the images of this node
    Images(Images),
    /// Take images from an archive or an OCI layout folder on this node
    Import(Import),
    /// Show everything about a pod, or about the node
    Inspect(Inspect),
    /// Remove images
    Rmi(Rmi),
    /// Show what has happened
    Events(Events),
    /// Show what pods use of processors and memory
    Top(Top),
    /// Show what armlet itself uses, and what has been written to disks
    Stats(Stats),
    /// Stop a pod, and keep it stopped
    Stop(PodName),
    /// Start a pod anew, also one that was stopped
    Restart(PodName),
    /// Show the versions of this program and of the agent
    Version(Version),
    /// See whether this machine is ready to be a node
    Check(Check),
    /// Show or check the configuration
    #[command(subcommand)]
    Config(Config),
    /// Show or change how much armlet logs about itself
    LogLevel(LogLevel),
    /// Gather what is needed to find out what is wrong with this node
    #[command(subcommand)]
    Debug(Debug),
    /// Put armlet on this machine, and start it
    Install(Install),
    /// Stop armlet and its pods, and take it off this machine
    Uninstall(Uninstall),
    /// Write the completions of a shell
    Completions(Completions),
    /// Write manual pages
    Man(Man),
}

/// How a list is written.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(super) enum ListFormat {
    Wide,
    Json,
    Yaml,
}

/// How one thing is written.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(super) enum Format {
    Json,
    Yaml,
}

#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  armlet ps
  armlet ps -n shop -o wide
  armlet ps -o json | jq -r '.items[].status.podIP'")]
pub(super) struct Ps {
    /// One line for each container
    #[arg(short, long)]
    pub(super) containers: bool,
    /// Only pods of this namespace
    #[arg(short, long, value_name = "NAME")]
    pub(super) namespace: Option<String>,
    /// Another form than the table
    #[arg(short, long, value_enum, value_name = "FORM")]
    pub(super) output: Option<ListFormat>,
}

#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  armlet logs web                        the log of the pod's only or first container
  armlet logs -f --tail 20 web           the last 20 lines and what follows
  armlet logs --since 10m -c db shop/store
  armlet logs -p web                     the attempt before the current one
  armlet logs --node --since 1h          armlet's own log of the last hour")]
pub(super) struct Logs {
    /// The pod: NAME or NAMESPACE/NAME
    #[arg(required_unless_present = "node")]
    pub(super) pod: Option<String>,
    /// Show armlet's own log: the agent's lines and the supervisor's, and what ended either
    #[arg(long, conflicts_with_all = ["pod", "container", "namespace", "previous", "timestamps", "limit_bytes", "stream"])]
    pub(super) node: bool,
    /// The container; without it the pod's default one
    #[arg(short, long, value_name = "NAME")]
    pub(super) container: Option<String>,
    /// The pod's namespace
    #[arg(short, long, value_name = "NAME")]
    pub(super) namespace: Option<String>,
    /// Go on until the container ends
    #[arg(short, long)]
    pub(super) follow: bool,
    /// Show the attempt before the current one
    #[arg(short, long)]
    pub(super) previous: bool,
    /// Show only so many lines from the end; -1 stands for all
    #[arg(long, value_name = "LINES", value_parser = tail, allow_negative_numbers = true)]
    pub(super) tail: Option<i64>,
    /// Show only what is younger than this: 10s, 5m, 1h30m, 2d
    #[arg(long, value_name = "AGE", value_parser = super::age::parse, conflicts_with = "since_time")]
    pub(super) since: Option<u64>,
    /// Show only what was written at this time or later: 2026-01-31T12:00:00Z
    #[arg(long, value_name = "TIME", value_parser = moment)]
    pub(super) since_time: Option<String>,
    /// Show each line with its time
    #[arg(long)]
    pub(super) timestamps: bool,
    /// Stop after so many bytes
    #[arg(long, value_name = "BYTES", value_parser = clap::value_parser!(u64).range(1..))]
    pub(super) limit_bytes: Option<u64>,
    /// Show only one of the two outputs
    #[arg(long, value_enum, value_name = "OUTPUT")]
    pub(super) stream: Option<Stream>,
}

/// Reads a number of lines: -1 for all, as kubectl has it. More than the API can say is as good as the most it can say.
fn tail(text: &str) -> Result<i64, String> {
    let lines = text.parse::<i128>().map_err(|_| "write a number of lines, or -1 for all".to_owned())?;
    if lines < -1 {
        Err("there are no fewer lines than none; -1 stands for all".to_owned())
    } else {
        Ok(i64::try_from(lines).unwrap_or(i64::MAX))
    }
}

/// Reads a moment. It goes to the agent as it was typed.
fn moment(text: &str) -> Result<String, String> {
    let why = "write it as RFC 3339 has it, with the zone: 2026-01-31T12:00:00Z or 2026-01-31T13:00:00+01:00";
    WallTime::parse_rfc3339(text).map(|_| text.to_owned()).ok_or_else(|| why.to_owned())
}

/// One of a container's outputs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(super) enum Stream {
    Stdout,
    Stderr,
}

#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  armlet exec web -- ls -l /
  armlet exec -it web -- sh
  tar c data | armlet exec -i -c db shop/store -- tar x -C /var/lib

Exit codes: the program's own; 126 it cannot be executed, 127 it is not there, 125 armlet itself failed.
The program is killed when armlet is.")]
pub(super) struct Exec {
    /// The pod: NAME or NAMESPACE/NAME
    pub(super) pod: String,
    /// The container; without it the pod's default one
    #[arg(short, long, value_name = "NAME")]
    pub(super) container: Option<String>,
    /// The pod's namespace
    #[arg(short, long, value_name = "NAME")]
    pub(super) namespace: Option<String>,
    /// Hand standard input on to the program
    #[arg(short = 'i', long)]
    pub(super) stdin: bool,
    /// Run the program on a terminal
    #[arg(short, long)]
    pub(super) tty: bool,
    /// The program and its arguments
    #[arg(last = true, required = true, value_name = "COMMAND")]
    pub(super) command: Vec<String>,
}

#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  armlet images
  armlet images -o wide                  with the whole digests")]
pub(super) struct Images {
    /// Another form than the table
    #[arg(short, long, value_enum, value_name = "FORM")]
    pub(super) output: Option<ListFormat>,
}

#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  armlet rmi localhost/app:1             one of its names, and with the last one the image
  armlet rmi --unused                    all images that no pod of this node needs

An image that a pod needs stays, whether the pod runs or was stopped.")]
pub(super) struct Rmi {
    /// Names, or ids as `armlet images -o wide` shows them
    #[arg(value_name = "IMAGE", required_unless_present = "unused", conflicts_with = "unused")]
    pub(super) images: Vec<String>,
    /// All that no pod needs
    #[arg(long)]
    pub(super) unused: bool,
    /// Write what was removed in this form
    #[arg(short, long, value_enum, value_name = "FORM")]
    pub(super) output: Option<Format>,
}

#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  armlet top
  armlet top -c --sort-by memory         one line for each container, the largest first

It takes a second: processor time is counted between two readings.")]
pub(super) struct Top {
    /// One line for each container
    #[arg(short, long)]
    pub(super) containers: bool,
    /// Only pods of this namespace
    #[arg(short, long, value_name = "NAME")]
    pub(super) namespace: Option<String>,
    /// What uses most first
    #[arg(long, value_enum, value_name = "WHAT")]
    pub(super) sort_by: Option<SortBy>,
    /// Another form than the table
    #[arg(short, long, value_enum, value_name = "FORM")]
    pub(super) output: Option<Format>,
}

/// What a list is ordered by.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(super) enum SortBy {
    Cpu,
    Memory,
}

#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  armlet stats
  armlet stats -o json | jq .written

What has been written is counted by the kernel, over armlet's lifetime on this node: by the
agent for its store, by imports, by the logger, and by containers. What lies in memory is
not counted.")]
pub(super) struct Stats {
    /// Another form than the tables
    #[arg(short, long, value_enum, value_name = "FORM")]
    pub(super) output: Option<Format>,
}

#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  armlet stop web                        it ends, and stays away over reboots
  armlet restart web                     it ends, if it runs, and starts anew

A pod that starts anew has empty emptyDir volumes and no restarts. A manifest that changes is
another pod, and runs whatever was stopped before.")]
pub(super) struct PodName {
    /// The pod: NAME or NAMESPACE/NAME
    pub(super) pod: String,
    /// The pod's namespace
    #[arg(short, long, value_name = "NAME")]
    pub(super) namespace: Option<String>,
}

#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  armlet completions bash >/etc/bash_completion.d/armlet
  armlet completions zsh >~/.zfunc/_armlet
  armlet completions fish >~/.config/fish/completions/armlet.fish")]
pub(super) struct Completions {
    /// Which shell
    #[arg(value_enum)]
    pub(super) shell: clap_complete::Shell,
}

#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  armlet man | man -l -                  the first page
  armlet man logs | man -l -             a command's
  armlet man --dir /usr/local/share/man/man1")]
pub(super) struct Man {
    /// The command; without it the first page
    #[arg(conflicts_with = "dir")]
    pub(super) command: Option<String>,
    /// Write all pages into this folder
    #[arg(long, value_name = "DIR")]
    pub(super) dir: Option<PathBuf>,
}

#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  armlet import app.tar                  an OCI archive, or what `docker save` wrote
  armlet import ./layout                 an OCI layout folder")]
pub(super) struct Import {
    /// The archive or folder, on this node
    pub(super) path: PathBuf,
    /// Write the imported images in this form
    #[arg(short, long, value_enum, value_name = "FORM")]
    pub(super) output: Option<Format>,
}

#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  armlet inspect                         the node: manifests that cannot be run and why
  armlet inspect web                     a pod: manifest, status, and its attempts with
                                         process ids, log files and cgroups")]
pub(super) struct Inspect {
    /// The pod: NAME or NAMESPACE/NAME; without it the node is shown
    pub(super) pod: Option<String>,
    /// The pod's namespace
    #[arg(short, long, value_name = "NAME")]
    pub(super) namespace: Option<String>,
    /// The form
    #[arg(short, long, value_enum, default_value_t = Format::Yaml, value_name = "FORM")]
    pub(super) output: Format,
}

#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  armlet events
  armlet events -f web                   what happens to one pod, as it happens")]
pub(super) struct Events {
    /// Only events of this pod: NAME or NAMESPACE/NAME
    pub(super) pod: Option<String>,
    /// Only events of this namespace
    #[arg(short, long, value_name = "NAME")]
    pub(super) namespace: Option<String>,
    /// Go on as things happen
    #[arg(short, long)]
    pub(super) follow: bool,
    /// Another form than the table: one JSON document a line, or YAML documents
    #[arg(short, long, value_enum, value_name = "FORM")]
    pub(super) output: Option<Format>,
}

#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  armlet version
  armlet version -o json | jq -r .agent.version")]
pub(super) struct Version {
    /// Another form than text
    #[arg(short, long, value_enum, value_name = "FORM")]
    pub(super) output: Option<Format>,
}

#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  sudo armlet check                      what is there, what is missing, and what to do about it
  sudo armlet check --fix                switch on what a Raspberry Pi's command line switches off
  sudo armlet check -o json | jq -r '.findings[] | select(.level != \"ok\") | .topic'

No agent is needed. Without root a few things cannot be tried.
Exit codes: 0 pods can run here, 1 they cannot.")]
pub(super) struct Check {
    /// Put the missing words into the firmware's cmdline.txt; the old file is kept beside it
    #[arg(long)]
    pub(super) fix: bool,
    /// Folder of durable data
    #[arg(long, value_name = "DIR", default_value = "/var/lib/armlet")]
    pub(super) root_dir: PathBuf,
    /// Folder of what a reboot makes void
    #[arg(long, value_name = "DIR", default_value = "/run/armlet")]
    pub(super) run_dir: PathBuf,
    /// Folder of the containers' logs
    #[arg(long, value_name = "DIR", default_value = "/var/log/pods")]
    pub(super) logs_dir: PathBuf,
    /// Another form than text; `board` has all that was read
    #[arg(short, long, value_enum, value_name = "FORM")]
    pub(super) output: Option<Format>,
}

/// What to do with the configuration.
#[derive(Debug, Subcommand)]
pub(super) enum Config {
    /// Show every setting in force and where it came from
    Show(ConfigShow),
    /// Name everything that is wrong with it
    Check(ConfigCheck),
}

#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  armlet config show
  armlet config show --config node.yaml --max-pods 20
  armlet config show -o json | jq -r '.[] | select(.from != \"default\") | .name'

It reads what `armlet agent` with the same flags, in the same environment, would read.")]
pub(super) struct ConfigShow {
    #[command(flatten)]
    pub(super) args: crate::config::Args,
    /// Another form than the table
    #[arg(short, long, value_enum, value_name = "FORM")]
    pub(super) output: Option<Format>,
}

#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  armlet config check
  armlet config check --config node.yaml && sudo cp node.yaml /etc/armlet/config.yaml

Exit codes: 0 the agent would start with it, 1 it would not.")]
pub(super) struct ConfigCheck {
    #[command(flatten)]
    pub(super) args: crate::config::Args,
}

#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  sudo ./armlet install                  copies itself to /usr/local/bin and starts the node
  sudo ./armlet install --no-start       the same, to be started at the next boot

With systemd it writes two units, armlet.service and armlet-supervisor.service, and
enables them; without, start `armlet supervisor` and `armlet agent` at boot yourself.
A configuration that is there is kept. It may be run again: that brings all up to date.")]
pub(super) struct Install {
    /// Where the binary is to be
    #[arg(long, value_name = "PATH", default_value = "/usr/local/bin/armlet")]
    pub(super) binary: PathBuf,
    /// Do not start it now
    #[arg(long)]
    pub(super) no_start: bool,
    /// Only make the folders and a configuration: what a package that carries binary and units needs
    #[arg(long)]
    pub(super) prepare: bool,
}

#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  sudo armlet uninstall                  images, volumes, manifests, logs, configuration stay
  sudo armlet uninstall --purge          nothing stays")]
pub(super) struct Uninstall {
    /// Where the binary is
    #[arg(long, value_name = "PATH", default_value = "/usr/local/bin/armlet")]
    pub(super) binary: PathBuf,
    /// Remove images, volumes, manifests, logs and configuration too
    #[arg(long)]
    pub(super) purge: bool,
    /// Only take away what stopped pods have left outside of the disk: what a package needs that stops the units itself
    #[arg(long, conflicts_with = "purge")]
    pub(super) leftovers: bool,
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory;

    #[test]
    fn the_command_line_is_consistent() {
        Cli::command().debug_assert();
    }

    /// The agent's flags beside this command line's own; the two have one in common.
    #[test]
    fn the_agents_flags_are_taken_by_config() {
        use crate::config::Args;
        for (line, expect) in [
            ("config check", Args::default()),
            ("--socket /s config show --max-pods 5", Args::default().with("socket", "/s").with("max-pods", "5")),
            ("config show --socket /s --v=4", Args::default().with("socket", "/s").with("v", "4")),
        ] {
            let cli = Cli::try_parse_from(["armlet"].into_iter().chain(line.split(' '))).unwrap();
            match cli.command {
                Command::Config(Config::Check(ConfigCheck { args }) | Config::Show(ConfigShow { args, .. })) => {
                    assert_eq!(args, expect, "{line}");
                }
                _ => panic!("{line}"),
            }
        }
    }

    #[test]
    fn options_may_stand_before_and_after_the_pod() {
        for line in ["exec -it -c main web -- sh -c id", "exec web -i -t -c main -- sh -c id"] {
            let cli = Cli::try_parse_from(["armlet"].into_iter().chain(line.split(' '))).unwrap();
            let Command::Exec(args) = cli.command else { panic!("{line}") };
            assert!(args.stdin && args.tty);
            assert_eq!((args.pod.as_str(), args.container.as_deref()), ("web", Some("main")));
            assert_eq!(args.command, ["sh", "-c", "id"]);
        }
    }

    #[test]
    fn any_number_of_lines_can_be_asked_for() {
        for (text, lines) in [("0", 0), ("20", 20), ("-1", -1), ("18446744073709551616", i64::MAX)] {
            let cli = Cli::try_parse_from(["armlet", "logs", "web", "--tail", text]).unwrap();
            let Command::Logs(args) = cli.command else { panic!("{text}") };
            assert_eq!(args.tail, Some(lines), "{text}");
        }
    }

    #[test]
    fn wrong_lines_are_refused() {
        for line in [
            "",
            "px",
            "exec web",
            "exec web sh",
            "logs",
            "logs web --tail -2",
            "rmi",
            "rmi a --unused",
            "top --sort-by x",
            "stop",
            "completions tcsh",
            "logs web --tail x",
            "logs web --since x",
            "logs web --since-time yesterday",
            "logs web --since-time 2026-01-31",
            "logs web --limit-bytes 0",
            "logs web --node",
            "logs --node -p",
            "logs --node -c main",
            "log-level loud",
            "log-level 11",
        ] {
            let parts = line.split(' ').filter(|part| !part.is_empty());
            let error = Cli::try_parse_from(["armlet"].into_iter().chain(parts)).unwrap_err();
            assert_eq!(error.exit_code(), 2, "{line}");
        }
    }
}
