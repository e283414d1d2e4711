//! A pod before its containers: volumes, cgroup, namespaces, links.

use super::Rooms;
use super::failure::{because, blocking, failed};
use crate::model::PodUid;
use crate::model::action::{Outcome, SandboxPlan};
use crate::model::event::PodEvent;
use crate::model::pod::Pod;
use crate::model::supervise::{Ask, Reply, SandboxEntry, SandboxSpec};
use crate::network::resolver::Warning;
use crate::network::{self, PodLink};
use crate::volumes;
use std::net::{IpAddr, Ipv4Addr};
use std::path::PathBuf;
use std::sync::Arc;

/// Makes one volume ready.
pub(super) async fn prepare_volume(rooms: &Arc<Rooms>, pod: Option<Arc<Pod>>, name: String) -> Outcome {
    let Some(pod) = pod else { return failed("FailedMount", format!("volume {name}: the pod is not known")) };
    let rooms = Arc::clone(rooms);
    blocking(move || {
        let Some(volume) = pod.spec.volumes.iter().find(|v| v.name == name) else {
            return Ok(());
        };
        let dirs = rooms.dirs(&pod.uid);
        let settings = volumes::Settings {
            fs_group: pod.spec.fs_group,
            pod_memory_limit: memory_limit(&pod),
            node_memory: Some(rooms.memory),
        };
        volumes::prepare(&dirs, volume, &settings).map(drop)
    })
    .await
}

/// What the pod's containers may use together; none when one of them has no limit.
fn memory_limit(pod: &Pod) -> Option<u64> {
    let limits = pod.spec.containers.iter().map(|c| c.resources.limits.memory.map(|m| m.units()));
    limits.sum::<Option<u64>>()
}

/// Makes the pod's folders, its cgroup and its namespaces.
pub(super) async fn create(rooms: &Arc<Rooms>, uid: PodUid, pod: Option<Arc<Pod>>, plan: SandboxPlan) -> Outcome {
    let Some(pod) = pod else { return failed("FailedCreatePodSandBox", "the pod is not known") };
    let spec = SandboxSpec {
        pod: uid.clone(),
        attempt: plan.attempt,
        host_network: plan.host_network,
        hostname: plan.hostname.clone(),
        sysctls: pod.spec.sysctls.iter().map(|(name, value)| (name.clone(), value.clone())).collect(),
    };
    let (at, of) = (Arc::clone(rooms), Arc::clone(&pod));
    let made = blocking(move || {
        let dirs = at.dirs(&uid);
        volumes::prepare_memory(&dirs)?;
        std::fs::create_dir_all(at.pod_log_dir(&pod)).map_err(SandboxError::Logs)?;
        at.cgroups.create_pod(&plan.cgroup, &plan.limits).map_err(SandboxError::Cgroup)
    });
    // The namespaces come last: once the supervisor knows a sandbox, also one that an agent killed here never heard of,
    // containers are started in it.
    let made = made.await;
    if made != Outcome::Done {
        return made;
    }
    let at = Arc::clone(rooms);
    let events = tokio::task::spawn_blocking(move || dns_events(&at, &of));
    match tokio::join!(rooms.supervisor.ask(Ask::CreateSandbox(spec)), events) {
        (Ok(Reply::Pod(sandbox)), events) => Outcome::Sandbox { sandbox, events: events.unwrap_or_default() },
        (Ok(other), _) => failed("FailedCreatePodSandBox", format!("the supervisor answered {other:?}")),
        (Err(error), _) => because("FailedCreatePodSandBox", &error),
    }
}

/// What the pod's resolver has to leave out. What keeps it from being made is told by the containers' starts.
fn dns_events(rooms: &Rooms, pod: &Pod) -> Vec<PodEvent> {
    let shown = format!("{}_{}({})", pod.name, pod.namespace, pod.uid);
    let warnings = super::container::resolver(rooms, pod).map(|(_, warnings)| warnings).unwrap_or_default();
    let event = |warning: &Warning| PodEvent {
        warning: true,
        reason: warning.reason().to_owned(),
        field_path: None,
        message: warning.message(&shown),
    };
    warnings.iter().map(event).collect()
}

/// Why a sandbox could not be made.
#[derive(Debug, thiserror::Error)]
enum SandboxError {
    #[error(transparent)]
    Volume(#[from] volumes::VolumeError),
    #[error("make the pod's log folder")]
    Logs(#[source] std::io::Error),
    #[error(transparent)]
    Cgroup(crate::runtime::cgroup::CgroupError),
}

/// Gives the sandbox its links and addresses.
pub(super) async fn attach(
    rooms: &Arc<Rooms>,
    uid: PodUid,
    sandbox: Option<SandboxEntry>,
    address: Option<Ipv4Addr>,
) -> Outcome {
    let netns = sandbox.and_then(|s| s.netns);
    let (Some(netns), Some(address)) = (netns, address) else {
        return failed("FailedCreatePodSandBox", "there is no network namespace or no address to attach");
    };
    let ip = IpAddr::V4(address);
    let link = PodLink { pod: uid, netns: PathBuf::from(netns), address: ip, bridge: rooms.bridge.clone() };
    match blocking(move || network::attach(&link)).await {
        Outcome::Done => Outcome::Attached { ips: vec![ip] },
        other => other,
    }
}
