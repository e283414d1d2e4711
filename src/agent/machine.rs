//! What the machine lacks, as conditions of the node.

use super::input::Input;
use crate::check::{Finding, Level};
use crate::config::Config;
use crate::executor::Rooms;
use crate::sys::log::chain;
use crate::sys::memory;
use serde::Deserialize;
use std::io;
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::mpsc;

/// How long after the agent's start it is looked: pods come first.
const PAUSE: Duration = Duration::from_secs(5);

#[derive(Deserialize)]
struct Report {
    findings: Vec<Finding>,
}

/// Looks once. In a child: its trials unshare namespaces, and its memory is given back.
pub(super) async fn look(rooms: Arc<Rooms>, to: mpsc::UnboundedSender<Input>) {
    tokio::time::sleep(PAUSE).await;
    let report = tokio::task::spawn_blocking(move || ask(&rooms.config)).await;
    match report {
        Ok(Ok(report)) => {
            // A loop that has ended needs no telling.
            let _ = to.send(Input::Machine(conditions(&report.findings)));
        }
        Ok(Err(error)) => tracing::warn!("the machine could not be looked at: {}", chain(&error)),
        Err(error) => tracing::warn!("the machine could not be looked at: {}", chain(&error)),
    }
}

fn ask(config: &Config) -> io::Result<Report> {
    let mut command = Command::new("/proc/self/exe");
    command.args(["check", "-o", "json", "--root-dir", &config.data_dir, "--run-dir", &config.run_dir]);
    command.args(["--logs-dir", &config.pod_logs_dir]);
    let child = command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::null()).spawn()?;
    // It is not guarded like the agent. One that has ended already needs nothing.
    let _ = memory::set_oom_score_adj_of(child.id(), 0);
    let output = child.wait_with_output()?;
    serde_json::from_slice(&output.stdout).map_err(io::Error::from)
}

/// A word and a sentence for each finding that is a condition.
fn conditions(findings: &[Finding]) -> Vec<(String, String)> {
    let bad = findings.iter().filter(|finding| finding.level > Level::Note);
    bad.filter_map(|finding| {
        let text = format!("{}: {}; {}", finding.topic, finding.found, finding.effect);
        Some((finding.condition.clone()?, text))
    })
    .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::check::{Board, findings};

    #[test]
    fn what_is_missing_is_a_condition() {
        let board = Board { cgroup2: true, seccomp: vec!["errno".to_owned()], ..Board::default() };
        let words: Vec<String> = conditions(&findings(&board)).into_iter().map(|(word, _)| word).collect();
        assert_eq!(words, ["CgroupControllersMissing", "MemoryLimitsUnavailable"]);
        let text = &conditions(&findings(&board))[1].1;
        assert!(text.starts_with("memory controller: off; containers with a memory limit are refused"), "{text}");
    }
}
