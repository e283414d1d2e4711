//! `armlet stats`: what armlet itself uses, and what has been written to disks.

use super::args::{Format, Stats};
use super::client::Client;
use super::error::CliError;
use super::images::size;
use super::output::Out;
use super::table::Table;
use crate::model::api;

/// Runs the command.
pub(super) async fn run(args: &Stats, mut client: Client, out: &mut Out) -> Result<(), CliError> {
    let stats = client.get::<api::Stats>("/armlet/v1/stats").await?.value;
    match args.output {
        Some(Format::Json) => out.json(&stats),
        Some(Format::Yaml) => out.yaml(&stats),
        None => {
            out.table(&processes(&stats))?;
            out.line("")?;
            out.table(&written(&stats))
        }
    }
}

fn processes(stats: &api::Stats) -> Table {
    let mut table = Table::new(["PROCESS", "PID", "MEMORY"]);
    for process in &stats.processes {
        let memory = process.pss_bytes.map(|bytes| format!("{} KiB", bytes / 1024)).unwrap_or_default();
        table.row([process.role.as_str().into(), process.pid.to_string().into(), memory.into()]);
    }
    table
}

fn written(stats: &api::Stats) -> Table {
    let mut table = Table::new(["WRITTEN TO DISKS", "BYTES"]);
    for (part, bytes) in stats.written.parts() {
        table.row([part.into(), size(bytes).into()]);
    }
    table
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn processes_and_parts_are_tables() {
        let process = |role: &str, pss_bytes| api::ProcessUsage { role: role.into(), pid: 7, pss_bytes };
        let stats = api::Stats {
            processes: vec![process("agent", Some(9 << 20)), process("logger", None)],
            written: api::Written { store: 4096, images: 24_400_000, logs: 0, volumes: 12 },
            ..api::Stats::default()
        };
        assert_eq!(
            processes(&stats).render(false),
            "PROCESS   PID   MEMORY\nagent     7     9216 KiB\nlogger    7     -\n"
        );
        assert_eq!(
            written(&stats).render(false),
            "WRITTEN TO DISKS   BYTES\nstore              4.09 kB\nimages             24.4 MB\nlogs               0 B\n\
             volumes            12 B\n"
        );
    }
}
