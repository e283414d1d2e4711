//! What can be typed to look after armlet itself.

use super::Format;
use crate::model::log;
use clap::{Args, Subcommand};
use std::path::PathBuf;

#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  armlet log-level                       what agent and supervisor log now
  armlet log-level debug                 log more, until they end
  armlet log-level 2                     the same in the kubelet's numbers

It is not kept: a restart brings back what the configuration says.")]
pub(in crate::cli) struct LogLevel {
    /// error, warn, info, debug, trace, or a number from 0 to 10
    #[arg(value_name = "LEVEL", value_parser = level)]
    pub(in crate::cli) level: Option<log::LogLevel>,
    /// Another form than text
    #[arg(short, long, value_enum, value_name = "FORM")]
    pub(in crate::cli) output: Option<Format>,
}

fn level(text: &str) -> Result<log::LogLevel, String> {
    log::LogLevel::parse(text)
        .ok_or_else(|| "write error, warn, info, debug, trace, or a number from 0 to 10".to_owned())
}

/// What is gathered.
#[derive(Debug, Subcommand)]
pub(in crate::cli) enum Debug {
    /// Write one archive with all that a maintainer needs, without what can be told to be a secret
    Bundle(Bundle),
}

#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  sudo armlet debug bundle               armlet-bundle-NODE-TIME.tar.gz, here
  sudo armlet debug bundle -o /tmp/x.tar.gz

It works without an agent too, with what can be read then. Values of environment variables, what looks like a
password in commands, annotations and arguments, pull secrets and the containers' logs are left out; the archive's
README says what was gathered, what was not, and why.")]
pub(in crate::cli) struct Bundle {
    /// The archive; one that is there is replaced
    #[arg(short, long, value_name = "FILE")]
    pub(in crate::cli) output: Option<PathBuf>,
    /// The agent's configuration file, where it is not the usual one
    #[arg(long, value_name = "FILE")]
    pub(in crate::cli) config: Option<String>,
}
