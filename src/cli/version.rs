//! `armlet version`.

use super::args::{Format, Version};
use super::client::Client;
use super::error::CliError;
use super::output::Out;
use crate::model::api;
use serde::Serialize;

#[derive(Debug, Serialize)]
struct Both {
    client: &'static str,
    /// None where there is no agent.
    agent: Option<api::Version>,
}

/// Runs the command. This program's version is shown even where there is no agent.
pub(super) async fn run(args: &Version, client: Result<Client, CliError>, out: &mut Out) -> Result<(), CliError> {
    let own = env!("CARGO_PKG_VERSION");
    if args.output.is_none() {
        out.line(&format!("armlet {own}"))?;
    }
    let answer = match client {
        Ok(mut client) => client.get::<api::Version>("/armlet/v1/version").await,
        Err(error) => Err(error),
    };
    let (agent, failed) = match answer {
        Ok(answer) => (Some(answer.value), None),
        Err(error) => (None, Some(error)),
    };
    match (args.output, agent) {
        (Some(Format::Json), agent) => out.json(&Both { client: own, agent })?,
        (Some(Format::Yaml), agent) => out.yaml(&Both { client: own, agent })?,
        (None, Some(agent)) => out.line(&format!(
            "agent {} on node {}, {}, Kubernetes {} API",
            agent.version, agent.node_name, agent.architecture, agent.kubernetes
        ))?,
        (None, None) => {}
    }
    failed.map_or(Ok(()), Err)
}
