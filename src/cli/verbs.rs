//! `armlet stop` and `armlet restart`.

use super::args::PodName;
use super::client::{self, Client};
use super::error::CliError;
use super::lookup;
use super::output::Out;
use super::pods::Pod;
use crate::model::api::{NodeReport, PodVerb, Version};
use hyper::Method;
use hyper::body::Bytes;
use std::time::Duration;

/// After so long it is said what is waited for.
const QUIET: Duration = Duration::from_secs(2);

/// Runs one of both; it is done when the pod has ended.
pub(super) async fn run(verb: PodVerb, args: &PodName, mut client: Client, out: &mut Out) -> Result<(), CliError> {
    let mut pods = client.pods().await?.value.items;
    let node = client.get::<Version>("/armlet/v1/version").await?.value.node_name;
    let report = client.get::<NodeReport>("/armlet/v1/inspect").await?.value;
    pods.extend(report.stopped.iter().filter_map(|name| stand_in(name, &node)));
    let pod = lookup::pod(&pods, &args.pod, args.namespace.as_deref())?;
    let word = match verb {
        PodVerb::Stop => "stop",
        PodVerb::Restart => "restart",
    };
    let place = [&pod.metadata.namespace, &pod.metadata.name].map(|part| client::escape(part));
    let path = format!("/armlet/v1/pods/{}/{word}", place.join("/"));
    for condition in &report.conditions {
        out.remark(&format!("Node: {}: {}", condition.kind, condition.message));
    }
    let answer = client.send_slow(client::request(Method::POST, &path, Bytes::new())?);
    tokio::pin!(answer);
    let answer = match tokio::time::timeout(QUIET, &mut answer).await {
        Ok(answer) => answer?,
        Err(_) => {
            out.remark(&format!("Waiting for {} to end; it has its grace period.", pod.full_name()));
            answer.await?
        }
    };
    client::accepted(answer).await?;
    out.line(&match verb {
        PodVerb::Stop => format!("{} is stopped; `armlet restart {}` starts it", pod.full_name(), pod.full_name()),
        PodVerb::Restart => format!("{} starts anew", pod.full_name()),
    })
}

/// A pod that was stopped is not among the others. Its name is looked up like theirs.
fn stand_in(full_name: &str, node: &str) -> Option<Pod> {
    let (namespace, name) = full_name.split_once('/')?;
    let mut pod = Pod::default();
    pod.metadata.namespace = namespace.to_owned();
    pod.metadata.name = name.to_owned();
    pod.spec.node_name = node.to_owned();
    Some(pod)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stopped_pod_has_all_its_names() {
        let pods: Vec<Pod> = stand_in("shop/web-edge1", "edge1").into_iter().collect();
        for name in ["web", "web-edge1", "shop/web"] {
            assert_eq!(lookup::pod(&pods, name, None).map(Pod::full_name), Ok("shop/web-edge1".to_owned()), "{name}");
        }
        assert!(stand_in("noise", "edge1").is_none());
    }
}
