//! What armlet and its pods use: stats, usage, metrics.

use super::reply::{self, Body};
use super::{Command, Context, Refusal};
use crate::model::api::{ContainerUsage, GroupUsage, PodUsage, Stats, Usage};
use crate::model::view::NodeView;
use hyper::{Response, StatusCode};
use std::fmt::Write as _;
use tokio::sync::oneshot;

/// `GET /armlet/v1/stats`.
pub(super) async fn stats(context: &Context) -> Response<Body> {
    reply::done(ask_stats(context).await)
}

async fn ask_stats(context: &Context) -> Result<Stats, Refusal> {
    let (reply, answer) = oneshot::channel();
    context.ask(Command::Stats { reply }, answer).await
}

/// `GET /armlet/v1/usage`.
pub(super) async fn usage(context: &Context) -> Response<Body> {
    let wanted = running(&context.now());
    let groups = wanted.iter().flat_map(|(_, containers)| containers.iter().map(|c| c.cgroup.clone())).collect();
    let (reply, answer) = oneshot::channel();
    let used = context.ask(Command::Usage { groups, reply }, answer).await;
    let at_ms = (context.clock)().boot.0;
    reply::done(used.map(|used| Usage { at_ms, pods: put_together(wanted, used) }))
}

/// A running container whose group is asked for.
struct Running {
    name: String,
    id: String,
    cgroup: String,
}

/// Pods by namespace and name, with their running containers.
fn running(view: &NodeView) -> Vec<((String, String), Vec<Running>)> {
    let pod = |pod: &std::sync::Arc<crate::model::view::PodView>| {
        let attempts = pod.attempts.iter().filter(|attempt| attempt.pid.is_some());
        let containers: Vec<Running> = attempts
            .map(|a| Running { name: a.container.clone(), id: a.id.to_string(), cgroup: a.cgroup.clone() })
            .collect();
        ((pod.pod.namespace.clone(), pod.pod.name.clone()), containers)
    };
    view.pods.iter().map(pod).filter(|(_, containers)| !containers.is_empty()).collect()
}

fn put_together(wanted: Vec<((String, String), Vec<Running>)>, used: Vec<Option<GroupUsage>>) -> Vec<PodUsage> {
    let mut used = used.into_iter();
    let mut pods = Vec::new();
    for ((namespace, name), containers) in wanted {
        let mut seen = Vec::new();
        for Running { name, id, .. } in containers {
            // One that has ended meanwhile uses nothing any more.
            if let Some(usage) = used.next().flatten() {
                seen.push(ContainerUsage { name, id, usage });
            }
        }
        if !seen.is_empty() {
            pods.push(PodUsage { namespace, name, containers: seen });
        }
    }
    pods
}

/// `GET /metrics`: Prometheus' text format.
pub(super) async fn metrics(context: &Context) -> Response<Body> {
    match ask_stats(context).await {
        Ok(stats) => reply::text(StatusCode::OK, exposition(&stats, context.now().pods.len())),
        Err(refusal) => reply::done(Err::<(), _>(refusal)),
    }
}

fn exposition(stats: &Stats, pods: usize) -> String {
    let mut text = String::new();
    let mut family = |name: &str, kind: &str, help: &str, samples: &[(String, u64)]| {
        if !samples.is_empty() {
            let _ = write!(text, "# HELP {name} {help}\n# TYPE {name} {kind}\n");
        }
        for (labels, value) in samples {
            let _ = writeln!(text, "{name}{labels} {value}");
        }
    };
    let written = stats.written.parts().map(|(part, bytes)| (format!("{{part=\"{part}\"}}"), bytes));
    family("armlet_bytes_written_total", "counter", "Bytes written to disks since the node's first start.", &written);
    let memory = stats.processes.iter().filter_map(|p| Some((format!("{{role=\"{}\"}}", p.role), p.pss_bytes?)));
    let memory: Vec<(String, u64)> = memory.collect();
    family("armlet_process_pss_bytes", "gauge", "Memory of armlet's own processes.", &memory);
    let plain = |value: u64| [(String::new(), value)];
    let count = u64::try_from(pods).unwrap_or(u64::MAX);
    family("armlet_pods", "gauge", "Pods of this node.", &plain(count));
    let dropped = stats.supervisor.log_bytes_dropped;
    family(
        "armlet_log_bytes_dropped_total",
        "counter",
        "Bytes of containers' logs that were dropped.",
        &plain(dropped),
    );
    let restarts = u64::from(stats.supervisor.logger_restarts);
    family("armlet_logger_restarts_total", "counter", "Loggers that another has followed.", &plain(restarts));
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::api::{ProcessUsage, Written};

    #[test]
    fn metrics_are_prometheus_text() {
        let stats = Stats {
            processes: vec![
                ProcessUsage { role: "agent".into(), pid: 7, pss_bytes: Some(9_000_000) },
                ProcessUsage { role: "logger".into(), pid: 8, pss_bytes: None },
            ],
            written: Written { store: 4096, images: 5, logs: 6, volumes: 7 },
            ..Stats::default()
        };
        let text = exposition(&stats, 3);
        for line in [
            "# TYPE armlet_bytes_written_total counter",
            "armlet_bytes_written_total{part=\"store\"} 4096",
            "armlet_bytes_written_total{part=\"volumes\"} 7",
            "armlet_process_pss_bytes{role=\"agent\"} 9000000",
            "armlet_pods 3",
        ] {
            assert!(text.lines().any(|l| l == line), "{line} in {text}");
        }
        assert!(!text.contains("logger\"}") && text.ends_with('\n'));
    }

    #[test]
    fn what_has_ended_meanwhile_is_left_out() {
        let running = |name: &str| Running { name: name.into(), id: name.into(), cgroup: name.into() };
        let key = |name: &str| ("ns".to_owned(), name.to_owned());
        let used = |cpu| Some(GroupUsage { cpu_usec: Some(cpu), ..GroupUsage::default() });
        let wanted = vec![(key("a"), vec![running("1"), running("2")]), (key("b"), vec![running("3")])];
        let pods = put_together(wanted, vec![None, used(2), None]);
        assert_eq!(pods.len(), 1);
        assert_eq!((pods[0].name.as_str(), pods[0].containers[0].name.as_str()), ("a", "2"));
        assert_eq!(pods[0].containers[0].usage.cpu_usec, Some(2));
    }
}
