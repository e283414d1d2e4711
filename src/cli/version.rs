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
    agent: api::Version,
}

/// Runs the command. This program's version is shown even where there is no agent.
pub(super) async fn run(args: &Version, client: Result<Client, CliError>, out: &mut Out) -> Result<(), CliError> {
    let client_version = env!("CARGO_PKG_VERSION");
    if args.output.is_none() {
        out.line(&format!("armlet {client_version}"))?;
    }
    let agent = client?.get::<api::Version>("/armlet/v1/version").await?.value;
    match args.output {
        Some(Format::Json) => out.json(&Both { client: client_version, agent }),
        Some(Format::Yaml) => out.yaml(&Both { client: client_version, agent }),
        None => out.line(&format!(
            "agent {} on node {}, {}, Kubernetes {} API",
            agent.version, agent.node_name, agent.architecture, agent.kubernetes
        )),
    }
}
