//! `armlet config show` and `armlet config check`.

use super::args::{Config, Format};
use super::error::CliError;
use super::output::Out;
use super::table::{Cell, Table, Tone};
use crate::config::{Args, Files, Problem, Setting, settings};
use std::collections::BTreeMap;

/// Runs the command. The exit code is 1 when the agent would not start with this configuration.
pub(super) fn run(command: &Config, out: &mut Out) -> Result<u8, CliError> {
    match command {
        Config::Show(show) => {
            let (settings, problems) = read(&show.args)?;
            for problem in &problems {
                out.remark(&problem.to_string());
            }
            match show.output {
                Some(Format::Json) => out.json(&settings)?,
                Some(Format::Yaml) => out.yaml(&settings)?,
                None => out.table(&table(&settings))?,
            }
            Ok(code(&problems))
        }
        Config::Check(check) => {
            let (_, problems) = read(&check.args)?;
            for problem in &problems {
                out.line(&problem.to_string())?;
            }
            match (code(&problems), problems.len()) {
                (0, 0) => out.line("The configuration is as it should be.")?,
                (0, _) => out.line("The agent would start with it.")?,
                _ => out.line("The agent would not start with it.")?,
            }
            Ok(code(&problems))
        }
    }
}

/// What the agent would read: the same files, the same variables.
fn read(args: &Args) -> Result<(Vec<Setting>, Vec<Problem>), CliError> {
    let env: BTreeMap<String, String> = std::env::vars().filter(|(name, _)| name.starts_with("ARMLET_")).collect();
    let files = Files::read(args, &env).map_err(|source| CliError::Config { source })?;
    Ok(settings(args, &files, &env))
}

fn code(problems: &[Problem]) -> u8 {
    u8::from(problems.iter().any(Problem::is_error))
}

fn table(settings: &[Setting]) -> Table {
    let mut table = Table::new(["SETTING", "VALUE", "FROM"]);
    for setting in settings {
        let value = match &setting.value {
            serde_json::Value::String(text) => text.clone(),
            serde_json::Value::Null => String::new(),
            other => other.to_string(),
        };
        let tone = if setting.from == "default" { Tone::Plain } else { Tone::Good };
        table.row([setting.name.as_str().into(), value.into(), Cell::toned(setting.from.as_str(), tone)]);
    }
    table
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn settings_are_a_table() {
        let (settings, _) = settings(&Args::default(), &Files::default(), &BTreeMap::new());
        let text = table(&settings).render(false);
        let line = |name: &str| text.lines().find(|line| line.starts_with(name)).unwrap().to_owned();
        assert_eq!(line("maxPods").split_whitespace().collect::<Vec<_>>(), ["maxPods", "110", "default"]);
        assert_eq!(line("nodeName").split_whitespace().collect::<Vec<_>>(), ["nodeName", "-", "default"]);
    }
}
