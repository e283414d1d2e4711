//! `armlet log-level`.

use super::args::{Format, LogLevel};
use super::client::Client;
use super::error::CliError;
use super::output::Out;
use crate::model::api::{LogLevelRequest, LogLevels};

/// Runs the command.
pub(super) async fn run(args: &LogLevel, mut client: Client, out: &mut Out) -> Result<(), CliError> {
    const PATH: &str = "/armlet/v1/log-level";
    let levels: LogLevels = match args.level {
        Some(level) => client.put(PATH, &LogLevelRequest { level: level.word().to_owned() }).await?,
        None => client.get(PATH).await?.value,
    };
    if let Some(problem) = &levels.problem {
        out.remark(&format!("The supervisor was not told: {problem}"));
    }
    match args.output {
        Some(Format::Json) => out.json(&levels)?,
        Some(Format::Yaml) => out.yaml(&levels)?,
        None => {
            out.line(&format!("agent       {}", levels.agent.word()))?;
            out.line(&format!("supervisor  {}", levels.supervisor.map_or("unknown", |level| level.word())))?;
            if args.level.is_some() {
                out.remark("It holds until they end.");
            }
        }
    }
    Ok(())
}
