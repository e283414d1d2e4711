//! `armlet inspect`.

use super::args::{Format, Inspect};
use super::client::{self, Client};
use super::error::CliError;
use super::lookup;
use super::output::Out;
use serde_json::Value;

/// Runs the command.
pub(super) async fn run(args: &Inspect, mut client: Client, out: &mut Out) -> Result<(), CliError> {
    let path = match &args.pod {
        None => "/armlet/v1/inspect".to_owned(),
        Some(name) => {
            let pods = client.pods().await?.value.items;
            let pod = lookup::pod(&pods, name, args.namespace.as_deref())?;
            let place = [&pod.metadata.namespace, &pod.metadata.name].map(|part| client::escape(part));
            format!("/armlet/v1/inspect/{}", place.join("/"))
        }
    };
    let report = client.get::<Value>(&path).await?.value;
    match args.output {
        Format::Json => out.json(&report),
        Format::Yaml => out.yaml(&report),
    }
}
