//! The commands people type: clients of the server's API, and of nothing else but for `check`, `config`, `install`,
//! `uninstall`, `completions` and `man`, which are for machines without an agent.
//!
//! One connection over the unix socket, one thread. Pure parts first: [`pods`] (what is read of a v1.Pod), [`lookup`]
//! (names to pods), [`status`] (a pod in one word), [`age`], [`table`], [`output`]. Then [`client`] (HTTP over the
//! socket), [`terminal`], and one file for each command.

mod age;
mod args;
mod bundle;
mod check;
mod client;
mod config;
mod error;
mod events;
mod exec;
mod images;
mod inspect;
mod install;
mod log_level;
mod logs;
mod lookup;
mod output;
mod pages;
mod pods;
mod ps;
mod stats;
mod status;
mod table;
mod terminal;
mod top;
mod verbs;
mod version;

use crate::model::api::PodVerb;
use args::{Cli, Command};
use clap::Parser;
use client::Client;
use error::CliError;
use output::Out;
use std::ffi::OsString;
use std::io::Write;

/// Runs one command line and returns the exit code: the program's own for `exec`, else 0 when done, 1 when not, 2 when
/// the command line is wrong, 3 when the agent cannot be reached.
///
/// `args` begins with the program's name. The process has to end right after: a thread may still wait for input.
pub fn run(args: impl IntoIterator<Item = OsString>) -> u8 {
    let cli = match Cli::try_parse_from(args) {
        Ok(cli) => cli,
        Err(error) => {
            let _ = error.print();
            return u8::try_from(error.exit_code()).unwrap_or(2);
        }
    };
    let mut out = Out::new(cli.color);
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let done = runtime.map_err(|source| CliError::Runtime { source }).and_then(|runtime| {
        let done = runtime.block_on(perform(&cli, &mut out));
        runtime.shutdown_background();
        done
    });
    let done = done.and_then(|code| out.flush().map(|()| code));
    match done {
        Ok(code) => code,
        // Whoever read our output has had enough of it.
        Err(CliError::Output { source }) if source.kind() == std::io::ErrorKind::BrokenPipe => 0,
        Err(error) => {
            let _ = writeln!(std::io::stderr(), "{}", error.report());
            error.exit_code(matches!(cli.command, Command::Exec(_)))
        }
    }
}

async fn perform(cli: &Cli, out: &mut Out) -> Result<u8, CliError> {
    let socket = std::path::Path::new(&cli.socket);
    let connect = || Client::connect(socket);
    match &cli.command {
        Command::Ps(args) => ps::run(args, connect().await?, out).await?,
        Command::Logs(args) => logs::run(args, connect().await?, out).await?,
        Command::Exec(args) => return exec::run(args, connect().await?, out).await,
        Command::Images(args) => images::list(args, connect().await?, out).await?,
        Command::Import(args) => images::import(args, connect().await?, out).await?,
        Command::Inspect(args) => inspect::run(args, connect().await?, out).await?,
        Command::Events(args) => events::run(args, connect().await?, out).await?,
        Command::Top(args) => top::run(args, connect().await?, out).await?,
        Command::Stats(args) => stats::run(args, connect().await?, out).await?,
        Command::Stop(args) => verbs::run(PodVerb::Stop, args, connect().await?, out).await?,
        Command::Restart(args) => verbs::run(PodVerb::Restart, args, connect().await?, out).await?,
        Command::Rmi(args) => images::remove(args, connect().await?, out).await?,
        Command::Completions(args) => pages::completions(args, out)?,
        Command::Man(args) => pages::man(args, out)?,
        Command::Version(args) => version::run(args, connect().await, out).await?,
        Command::Check(args) => return check::run(args, out),
        Command::Config(args) => return config::run(args, out),
        Command::LogLevel(args) => log_level::run(args, connect().await?, out).await?,
        Command::Debug(args::Debug::Bundle(args)) => bundle::run(args, socket, out).await?,
        Command::Install(args) => install::install(args, socket, out)?,
        Command::Uninstall(args) => install::uninstall(args, socket, out)?,
    }
    Ok(0)
}
