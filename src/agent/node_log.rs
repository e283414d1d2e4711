//! armlet's own log: the agent's lines and the supervisor's, both from memory, and the panics that were kept.

use super::input::Input;
use crate::model::log::time_of;
use crate::model::supervise::{Ask, LogLines, Reply};
use crate::runtime::client::Client;
use crate::server::{LogMark, LogPart};
use crate::sys::clock;
use crate::sys::log::{self, Lines, chain, panics};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::{Notify, mpsc};

/// How long the supervisor may take to give its lines.
const PATIENCE: Duration = Duration::from_secs(5);
/// How often it is asked at most for one part: its ring fits into a few answers.
const ASKS: usize = 16;

/// Where the log is read.
#[derive(Debug)]
pub(super) struct NodeLog {
    grown: Notify,
    panics: PathBuf,
}

impl NodeLog {
    /// Shows the panics that nobody has seen yet, and has those of this process kept.
    pub(super) fn start(data: &Path, tell: mpsc::UnboundedSender<Input>) -> Arc<Self> {
        let folder = data.join(panics::FOLDER);
        for kept in panics::list(&folder).into_iter().filter(|kept| kept.new) {
            let first = kept.text.lines().next().unwrap_or_default().to_owned();
            tracing::error!(role = %kept.role, "a process of armlet has panicked: {first}");
            // The loop begins after this.
            let _ = tell.send(Input::Panicked(first));
            if let Err(error) = panics::seen(&kept) {
                tracing::warn!(%error, "note that a panic was shown");
            }
        }
        panics::keep_all("agent", folder.clone(), panics::Writer::Itself, move |text| {
            // A loop that has ended tells nobody.
            let _ = tell.send(Input::Panicked(text));
        });
        let node_log = Arc::new(Self { grown: Notify::new(), panics: folder });
        let at = Arc::clone(&node_log);
        log::on_record(move || at.grown());
        node_log
    }

    /// There are new lines.
    pub(super) fn grown(&self) {
        self.grown.notify_waiters();
    }

    /// What follows `after`; with `wait` once there is something.
    pub(super) async fn read(&self, supervisor: &Client, after: LogMark, wait: bool) -> LogPart {
        loop {
            let mut grown = std::pin::pin!(self.grown.notified());
            // Registered before it is looked, so that no line is missed in between.
            grown.as_mut().enable();
            let part = self.gather(supervisor, after).await;
            if !wait || part.parts.iter().any(|part| !part.is_empty()) {
                return part;
            }
            grown.await;
        }
    }

    async fn gather(&self, supervisor: &Client, after: LogMark) -> LogPart {
        let mut mark = LogMark { panics: true, ..after };
        let mut parts = Vec::new();
        if !after.panics {
            let folder = self.panics.clone();
            let kept = tokio::task::spawn_blocking(move || panics::list(&folder)).await;
            parts.extend(kept.unwrap_or_default().into_iter().map(|kept| kept.text));
        }
        let own = log::lines_after(after.agent, log::AGENT_RING);
        mark.agent = own.next;
        parts.push(with_gap("agent", after.agent, own));
        match supervisors(supervisor, after).await {
            Ok(lines) => {
                (mark.supervisor, mark.supervisor_pid) = (lines.next, lines.pid);
                let LogLines { text, next, missed, .. } = lines;
                parts.push(with_gap("supervisor", after.supervisor, Lines { text, next, missed }));
            }
            // Said once, not with each part that follows.
            Err(why) if !after.panics => parts.push(remark(&format!("the supervisor's log cannot be had: {why}"))),
            Err(_) => {}
        }
        LogPart { parts, mark }
    }
}

/// The supervisor's lines after those that were read; all of them where another supervisor counted those.
async fn supervisors(client: &Client, after: LogMark) -> Result<LogLines, String> {
    let mut all = LogLines { pid: after.supervisor_pid, next: after.supervisor, ..LogLines::default() };
    for _ in 0..ASKS {
        let asked = tokio::time::timeout(PATIENCE, client.ask(Ask::Log { after: all.next })).await;
        let lines = match asked.map_err(|_| "it does not answer".to_owned())?.map_err(|error| chain(&error))? {
            Reply::Log(lines) => lines,
            other => return Err(format!("unexpected answer {other:?}")),
        };
        if lines.pid != all.pid {
            let counted_by_another = all.next > 0;
            all = LogLines { pid: lines.pid, ..LogLines::default() };
            if counted_by_another {
                continue;
            }
        }
        all.missed = all.missed.saturating_add(lines.missed);
        all.next = lines.next;
        if lines.text.is_empty() {
            break;
        }
        all.text += &lines.text;
    }
    Ok(all)
}

/// The lines, and before them that some had gone, if they follow others that were shown.
fn with_gap(role: &str, after: u64, lines: Lines) -> String {
    if after == 0 || lines.missed == 0 {
        return lines.text;
    }
    let time = time_of(&lines.text);
    format!("{time} W {role}: {} lines had gone before they could be shown\n{}", lines.missed, lines.text)
}

fn remark(text: &str) -> String {
    format!("{} W agent: {text}\n", clock::now().wall.rfc3339_nanos())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_gap_is_told_of_where_it_is() {
        let text = "2026-01-01T00:00:00.000000000Z I agent: x\n".to_owned();
        let lines = |missed| Lines { text: text.clone(), next: 9, missed };
        assert_eq!(with_gap("agent", 0, lines(5)), text, "what was before the first is nobody's loss");
        assert_eq!(with_gap("agent", 3, lines(0)), text);
        assert_eq!(
            with_gap("agent", 3, lines(5)),
            format!("2026-01-01T00:00:00.000000000Z W agent: 5 lines had gone before they could be shown\n{text}")
        );
    }

    #[tokio::test]
    async fn without_a_supervisor_the_agents_own_lines_are_there() {
        let data = tempfile::tempdir().unwrap();
        std::fs::create_dir(data.path().join(panics::FOLDER)).unwrap();
        let panic = "2026-01-01T00:00:00.000000000Z F agent: panicked at x\n";
        std::fs::write(data.path().join("panics/0001-agent.log"), panic).unwrap();
        let log = NodeLog { grown: Notify::new(), panics: data.path().join(panics::FOLDER) };
        let limits = crate::model::supervise::LogLimits { max_size: 1, max_files: 2, node_budget: 1 };
        let client = Client::new(&data.path().join("no.sock"), limits);
        let first = log.read(&client, LogMark::default(), true).await;
        assert_eq!((first.parts[0].as_str(), first.mark.panics), (panic, true));
        assert!(first.parts[2].contains(" W agent: the supervisor's log cannot be had: "), "{:?}", first.parts);
        let again = log.read(&client, first.mark, false).await;
        assert_eq!(again.parts.len(), 1, "the panics and the remark were shown");
        assert!(tokio::time::timeout(Duration::from_millis(20), log.read(&client, again.mark, true)).await.is_err());
    }
}
