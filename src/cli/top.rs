//! `armlet top`: what pods use, measured over a second.

use super::args::{Format, SortBy, Top};
use super::client::Client;
use super::error::CliError;
use super::output::Out;
use super::table::Table;
use crate::model::api::{ContainerUsage, Usage};
use serde::Serialize;
use std::collections::BTreeMap;
use std::time::Duration;

/// Between the two readings that processor time is counted by.
const SPAN: Duration = Duration::from_secs(1);

/// What one container uses, or all of a pod's together.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize)]
#[serde(rename_all = "camelCase")]
struct Row {
    namespace: String,
    pod: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    container: Option<String>,
    /// Thousandths of a core.
    cpu_milli: Option<u64>,
    /// The working set, in bytes.
    memory_bytes: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    memory_limit: Option<u64>,
    pids: Option<u64>,
}

/// Runs the command.
pub(super) async fn run(args: &Top, mut client: Client, out: &mut Out) -> Result<(), CliError> {
    let first = client.get::<Usage>("/armlet/v1/usage").await?.value;
    tokio::time::sleep(SPAN).await;
    let second = client.get::<Usage>("/armlet/v1/usage").await?.value;
    let mut rows = rows(&first, &second);
    rows.retain(|row| args.namespace.as_ref().is_none_or(|namespace| row.namespace == *namespace));
    if !args.containers {
        rows = pods(rows);
    }
    match args.sort_by {
        Some(SortBy::Cpu) => rows.sort_by_key(|row| std::cmp::Reverse(row.cpu_milli)),
        Some(SortBy::Memory) => rows.sort_by_key(|row| std::cmp::Reverse(row.memory_bytes)),
        None => {}
    }
    match args.output {
        Some(Format::Json) => out.json(&rows),
        Some(Format::Yaml) => out.yaml(&rows),
        None if rows.is_empty() => {
            out.remark("No container runs.");
            Ok(())
        }
        None => out.table(&table(&rows, args.containers)),
    }
}

/// Containers that ran at both readings; of one that was started in between only its memory is known.
fn rows(first: &Usage, second: &Usage) -> Vec<Row> {
    let containers = |usage: &Usage| -> BTreeMap<String, ContainerUsage> {
        usage.pods.iter().flat_map(|pod| &pod.containers).map(|c| (c.id.clone(), c.clone())).collect()
    };
    let before = containers(first);
    let span_ms = second.at_ms.saturating_sub(first.at_ms).max(1);
    let mut rows = Vec::new();
    for pod in &second.pods {
        for ContainerUsage { name, id, usage } in &pod.containers {
            let used = usage.cpu_usec.zip(before.get(id).and_then(|before| before.usage.cpu_usec));
            rows.push(Row {
                namespace: pod.namespace.clone(),
                pod: pod.name.clone(),
                container: Some(name.clone()),
                // Microseconds a millisecond are thousandths of a core.
                cpu_milli: used.map(|(now, before)| now.saturating_sub(before).div_ceil(span_ms)),
                memory_bytes: usage.memory_bytes,
                memory_limit: usage.memory_limit,
                pids: usage.pids,
            });
        }
    }
    rows
}

/// One row for each pod. What is not known of one of its containers is not known of the pod.
fn pods(containers: Vec<Row>) -> Vec<Row> {
    let mut pods: Vec<Row> = Vec::new();
    let sum = |a: Option<u64>, b: Option<u64>| a.zip(b).map(|(a, b)| a.saturating_add(b));
    for row in containers {
        match pods.last_mut().filter(|last| last.namespace == row.namespace && last.pod == row.pod) {
            Some(pod) => {
                pod.cpu_milli = sum(pod.cpu_milli, row.cpu_milli);
                pod.memory_bytes = sum(pod.memory_bytes, row.memory_bytes);
                pod.pids = sum(pod.pids, row.pids);
            }
            None => pods.push(Row { container: None, memory_limit: None, ..row }),
        }
    }
    pods
}

fn table(rows: &[Row], containers: bool) -> Table {
    let mut table = if containers {
        Table::new(["NAMESPACE", "POD", "CONTAINER", "CPU", "MEMORY", "LIMIT", "PIDS"])
    } else {
        Table::new(["NAMESPACE", "NAME", "CPU", "MEMORY", "PIDS"])
    };
    let text = |value: Option<u64>, write: fn(u64) -> String| value.map(write).unwrap_or_default();
    for row in rows {
        let mut cells = vec![row.namespace.as_str().into(), row.pod.as_str().into()];
        if containers {
            cells.push(row.container.clone().unwrap_or_default().into());
        }
        cells.push(text(row.cpu_milli, |milli| format!("{milli}m")).into());
        cells.push(text(row.memory_bytes, mebibytes).into());
        if containers {
            cells.push(text(row.memory_limit, mebibytes).into());
        }
        cells.push(text(row.pids, |pids| pids.to_string()).into());
        table.row(cells);
    }
    table
}

/// As `kubectl top` writes memory, and rounded up: what is used is never nothing.
fn mebibytes(bytes: u64) -> String {
    format!("{}Mi", bytes.div_ceil(1 << 20))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn usage(at_ms: u64, containers: &[(&str, &str, u64, u64)]) -> Usage {
        let container = |(name, id, cpu, memory): &(&str, &str, u64, u64)| json!({"name": name, "id": id, "cpuUsec": cpu, "memoryBytes": memory, "pids": 1});
        let containers: Vec<_> = containers.iter().map(container).collect();
        let pod = json!({"namespace": "shop", "name": "web-edge1", "containers": containers});
        serde_json::from_value(json!({"atMs": at_ms, "pods": [pod]})).unwrap()
    }

    #[test]
    fn processor_time_is_what_was_used_between_two_readings() {
        let first = usage(1000, &[("a", "0a", 5_000_000, 1), ("b", "0b", 100, 1 << 20)]);
        let second = usage(2000, &[("a", "0a", 5_250_000, 1), ("b", "0c", 700, (1 << 20) + 1)]);
        let rows = rows(&first, &second);
        let seen: Vec<_> = rows.iter().map(|row| (row.container.as_deref(), row.cpu_milli)).collect();
        assert_eq!(seen, [(Some("a"), Some(250)), (Some("b"), None)], "another attempt begins at nothing");
        assert_eq!(
            table(&rows, true).render(false),
            "NAMESPACE   POD         CONTAINER   CPU    MEMORY   LIMIT   PIDS\n\
             shop        web-edge1   a           250m   1Mi      -       1\n\
             shop        web-edge1   b           -      2Mi      -       1\n"
        );
        assert_eq!(
            table(&pods(rows), false).render(false),
            "NAMESPACE   NAME        CPU   MEMORY   PIDS\nshop        web-edge1   -     2Mi      2\n"
        );
    }

    #[test]
    fn readings_of_one_moment_do_no_harm() {
        let at = |ms| usage(ms, &[("a", "0a", 7, 1)]);
        assert_eq!(rows(&at(5), &at(5))[0].cpu_milli, Some(0));
        assert_eq!(rows(&at(6), &at(5))[0].cpu_milli, Some(0));
    }
}
