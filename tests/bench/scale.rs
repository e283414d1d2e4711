//! Memory, idle costs and starts on a node with many pods.

use crate::guest::{Failure, Node};
use crate::rows::{Row, median, spread};

/// Rows that need 10, 20 and then 110 pods. `first` is how long a start takes on a node with next to none.
pub(crate) fn rows(node: &Node, rounds: usize, first: f64, say: impl Fn(&str)) -> Result<Vec<Row>, Failure> {
    let mut rows = Vec::new();
    let mut bytes = Vec::new();
    for _ in 0..rounds {
        bytes.push(node.number(
            "sync; before=$(written); start_pod measured >/dev/null; running 1; sync; echo $(($(written) - before)); \
             remove_pods measured",
        )?);
    }
    say(&format!("bytes written by a start: {}", spread(&bytes)));

    node.ask("fill 1 10; sleep 5")?;
    let ten = Memory::of(node)?;
    node.ask("fill 11 20; sleep 10; sync")?;
    let twenty = Memory::of(node)?;
    say(&format!("memory with 20 pods:\n{}", twenty.text.trim_end()));
    rows.push(Row::alone("supervisor_pss_kib", twenty.sum(&["supervisor", "logger"]), "KiB", "<= 2000"));
    rows.push(Row::alone("agent_pss_kib", twenty.sum(&["agent"]), "KiB", "<= 16384"));

    let idle = node.ask(
        "sync; bytes=$(written) cpu=$(cpu); sleep 60; used=$(($(cpu) - cpu)); sync; echo $used $(($(written) - bytes))",
    )?;
    let mut idle = idle.split_whitespace().map(str::parse::<f64>);
    let (Some(cpu), Some(idle_bytes)) = (idle.next(), idle.next()) else { return Err("no idle figures".into()) };

    let mut adopt = Vec::new();
    for _ in 0..rounds {
        // An agent that lived for more than ten seconds is started again without a growing pause.
        adopt.push(node.interval(
            "sleep 11; $probe kill $(cat /sys/fs/cgroup/armlet/agent/cgroup.procs) /run/armlet/armlet.sock 20 '\"phase\":\"Running\"'",
        )?);
    }
    say(&format!("adoption of 20 pods, ms: {}", spread(&adopt)));

    for to in [50, 80, 109] {
        node.ask(&format!("fill $(($(ls $manifests | wc -l) + 1)) {to}"))?;
    }
    let mut last = Vec::new();
    for _ in 0..rounds {
        last.push(node.interval("start_pod measured; remove_pods measured")?);
    }
    say(&format!("start with 109 others, ms: {}", spread(&last)));
    node.ask("fill 110 110; sleep 10")?;
    let all = Memory::of(node)?;
    say(&format!("memory with 110 pods:\n{}", all.text.trim_end()));
    node.ask("remove_pods many-")?;

    rows.push(Row::alone("kib_per_pod", (all.total() - ten.total()) / 100.0, "KiB", "< 100"));
    rows.push(Row::alone("idle_cpu_percent", cpu? / 60e6 * 100.0, "% of a core", "< 0.2"));
    rows.push(Row::alone("idle_bytes_written", idle_bytes?, "bytes", "0"));
    rows.push(Row::alone("start_bytes_written", median(&bytes), "bytes", "<= 131072"));
    rows.push(Row::beside("start_110th_vs_first", median(&last), first, "ms", "ratio <= 1.3"));
    rows.push(Row::alone("adopt_ms", median(&adopt), "ms", "<= 1000"));
    Ok(rows)
}

/// Proportional shares of memory, a line for each of armlet's processes: role, pid, KiB, private KiB.
struct Memory {
    text: String,
}

impl Memory {
    fn of(node: &Node) -> Result<Self, Failure> {
        Ok(Self { text: node.ask("pss")? })
    }

    fn shares(&self) -> impl Iterator<Item = (&str, f64)> {
        self.text.lines().filter_map(|line| {
            let mut words = line.split_whitespace();
            Some((words.next()?, words.nth(1)?.parse().ok()?))
        })
    }

    fn sum(&self, roles: &[&str]) -> f64 {
        self.shares().filter(|(role, _)| roles.contains(role)).map(|(_, share)| share).sum()
    }

    fn total(&self) -> f64 {
        self.shares().map(|(_, share)| share).sum()
    }
}
