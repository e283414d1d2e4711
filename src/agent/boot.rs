//! The agent's command line: from flags, environment and configuration file to a running agent, or to everything that
//! is wrong with them.

use crate::config::{self, Args, Config, Files};
use crate::model::log::LogLevel;
use crate::sys::{log, memory, own_group};
use clap::Parser;
use std::collections::BTreeMap;
use std::ffi::OsString;
use std::io::{self, Write as _};
use std::path::Path;
use std::process::{Command, ExitCode, Stdio};
use std::time::Duration;

/// Where cgroup v2 is mounted.
const CGROUPS: &str = "/sys/fs/cgroup";

/// What a damaged store may take to be read before it is set aside.
const STORE_CHECK: Duration = Duration::from_secs(60);

const EXAMPLES: &str = "\
Examples:
  armlet agent                                    with /etc/armlet/config.yaml and config.d, when they are there
  armlet agent --config node.yaml --v 4           another file, and more log
  armlet agent --manifests /srv/pods --node-name edge1

The supervisor (`armlet supervisor`) has to run beside it. Containers go on while the agent is stopped or replaced.";

/// Run the node's agent: it follows the manifest folder and makes the node run what is in it.
#[derive(Debug, Parser)]
#[command(name = "armlet agent", version, after_help = EXAMPLES)]
struct Cli {
    #[command(flatten)]
    args: Args,
}

/// Runs the agent. `args` are those behind `agent`; `check_role` is how this binary is told to check a store.
#[must_use]
pub fn boot(args: &[OsString], check_role: &'static str) -> ExitCode {
    let name = OsString::from("armlet agent");
    let cli = match Cli::try_parse_from(std::iter::once(&name).chain(args)) {
        Ok(cli) => cli,
        Err(error) => {
            // There is no other place to say that it could not be printed.
            let _ = error.print();
            return ExitCode::from(u8::try_from(error.exit_code()).unwrap_or(2));
        }
    };
    let Some(config) = read_config(&cli.args) else { return ExitCode::from(2) };
    log::init("agent", log::AGENT_RING);
    log::set_level(LogLevel::of_verbosity(config.verbosity));
    if let Err(error) = memory::plain_pages_only() {
        tracing::debug!(%error, "huge pages stay on");
    }
    if let Err(error) = memory::set_oom_score_adj(config.oom_score_adj) {
        tracing::warn!("set the agent's oom_score_adj to {}: {error}", config.oom_score_adj);
    }
    // Before anything is allocated: what a process has stays accounted to the group in which it got it.
    if let Err(error) = own_group::enter(Path::new(CGROUPS), "agent") {
        tracing::warn!("guard the agent's memory in {CGROUPS}/{}: {error}", own_group::NAME);
    }
    let probe = move |dir: &Path| check_store(dir, check_role);
    match super::run(config, &probe) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            tracing::error!("{}", log::chain(&error));
            ExitCode::FAILURE
        }
    }
}

/// The configuration; none when it cannot be used, after saying all that is wrong with it.
fn read_config(args: &Args) -> Option<Config> {
    let env: BTreeMap<String, String> = std::env::vars().filter(|(name, _)| name.starts_with("ARMLET_")).collect();
    let mut out = io::stderr();
    let files = match Files::read(args, &env) {
        Ok(files) => files,
        Err(error) => {
            let _ = writeln!(out, "armlet agent: {}", log::chain(&error));
            return None;
        }
    };
    let (config, problems) = config::load(args, &files, &env);
    for problem in &problems {
        let _ = writeln!(out, "armlet agent: {problem}");
    }
    let swap = std::fs::read_to_string("/proc/swaps").unwrap_or_default();
    let swap_refused = config.fail_swap_on && swap.lines().count() > 1;
    if swap_refused {
        let text = "running with swap on is not supported, please disable swap or set --fail-swap-on flag to false";
        let _ = writeln!(out, "armlet agent: {text}");
    }
    let usable = !swap_refused && !problems.iter().any(config::Problem::is_error);
    usable.then_some(config)
}

/// Opens the database in a child: a damaged one can panic, or take all memory there is.
fn check_store(dir: &Path, role: &str) -> io::Result<bool> {
    let mut child =
        Command::new("/proc/self/exe").arg(role).arg(dir).stdin(Stdio::null()).stdout(Stdio::null()).spawn()?;
    let deadline =
        crate::sys::clock::now().boot + crate::model::Millis(STORE_CHECK.as_millis().try_into().unwrap_or(0));
    loop {
        if let Some(status) = child.try_wait()? {
            return Ok(status.success());
        }
        if crate::sys::clock::now().boot >= deadline {
            child.kill()?;
            child.wait()?;
            return Ok(false);
        }
        std::thread::sleep(Duration::from_millis(10));
    }
}
