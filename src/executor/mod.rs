//! Performs one action through the rooms and reports one outcome. Neither decides nor retries.
//!
//! Every action is safe to repeat and has a time limit. What blocks (disk, netlink, cgroup files) runs on the few
//! threads for blocking work; a teardown goes on after a failure and reports all of them.

mod container;
mod failure;
mod image;
pub mod probe;
mod remove;
mod rooms;
mod sandbox;
mod skeleton;
mod volatile;

pub use image::images_of;
pub use rooms::{Rooms, RoomsError};
pub use volatile::{drop_volatile, keep_volatile, read_volatile};

use crate::model::PodUid;
use crate::model::action::{Action, GroupLimits, NodeLimits, Outcome};
use crate::model::pod::Pod;
use crate::model::supervise::{Ask, ContainerEntry, SandboxEntry};
use crate::runtime::cgroup::CgroupError;
use failure::{blocking, done, failed};
use std::sync::Arc;
use std::time::Duration;

/// One action to perform, with what the agent knows of the pod.
#[derive(Debug)]
pub struct Job {
    /// Whose.
    pub uid: PodUid,
    /// What the pod is to be; absent for found remains.
    pub pod: Option<Arc<Pod>>,
    /// Its sandbox.
    pub sandbox: Option<SandboxEntry>,
    /// The attempt that the action is about.
    pub container: Option<ContainerEntry>,
    /// What to do.
    pub action: Action,
}

/// Performs one action. Its outcome comes in any case, at the latest when its time is over.
pub async fn perform(rooms: &Arc<Rooms>, job: Job) -> Outcome {
    let limit = time_limit(&job.action);
    let name = job.action.key();
    match tokio::time::timeout(limit, dispatch(rooms, job)).await {
        Ok(outcome) => outcome,
        Err(_) => failed("DeadlineExceeded", format!("{name:?} was not done within {} s", limit.as_secs())),
    }
}

/// Long enough for a card that stalls, short enough that nothing waits for ever.
fn time_limit(action: &Action) -> Duration {
    match action {
        Action::StartContainer(plan) => plan.timeout.to_std() + Duration::from_secs(30),
        Action::EnsureImage { .. } => Duration::from_secs(24 * 3600),
        Action::Probe { probe, .. } => Duration::from_secs(u64::from(probe.timeout_secs) + 30),
        Action::RemoveVolume { .. } | Action::RemovePod => Duration::from_secs(600),
        _ => Duration::from_secs(120),
    }
}

async fn dispatch(rooms: &Arc<Rooms>, job: Job) -> Outcome {
    let Job { uid, pod, sandbox, container, action } = job;
    match action {
        Action::PrepareVolume { volume } => sandbox::prepare_volume(rooms, pod, volume).await,
        Action::CreateSandbox(plan) => sandbox::create(rooms, uid, pod, plan).await,
        Action::AttachNetwork { address, .. } => sandbox::attach(rooms, uid, sandbox, address).await,
        Action::EnsureImage { reference, policy, .. } => image::ensure(rooms, &reference, policy),
        Action::StartContainer(plan) => container::start(rooms, pod, sandbox, *plan).await,
        Action::Signal { id, signal, .. } => container::signal(rooms, id, &signal).await,
        Action::Kill { id, .. } => done(rooms.supervisor.ask(Ask::Kill { id }).await),
        Action::Probe { id, probe, address, .. } => probe::perform(rooms, id, probe, address).await,
        Action::RemoveContainer { id, container: name, drop_logs_below } => {
            remove::container(rooms, uid, pod, id, name, container, drop_logs_below).await
        }
        Action::DetachNetwork { .. } => blocking(move || crate::network::detach(&uid)).await,
        Action::DestroySandbox { .. } => remove::sandbox(rooms, uid).await,
        Action::RemoveVolume { volume } => remove::volume(rooms, uid, pod, volume).await,
        Action::RemovePod => remove::pod(rooms, uid, pod).await,
        Action::Cancel { .. } => Outcome::Done,
    }
}

/// Holds all pods together to what they may have of the node.
///
/// # Errors
/// What cannot be kept, and why.
pub fn limit_all_pods(rooms: &Rooms, limits: &NodeLimits) -> Result<(), CgroupError> {
    rooms.cgroups.limit_all(limits)
}

/// Holds a group to what is reserved for those in it.
///
/// # Errors
/// What cannot be kept, and why.
pub fn limit_reserved(rooms: &Rooms, cgroup: &str, limits: &GroupLimits) -> Result<(), CgroupError> {
    rooms.cgroups.limit_reserved(cgroup, limits)
}

/// Takes the limits off armlet's own group.
pub fn free_own_group(rooms: &Rooms) {
    rooms.cgroups.free_own();
}

/// Sets the weights of the two QoS groups. A failure is logged: the next pod tries again.
pub fn set_qos_weights(rooms: &Arc<Rooms>, burstable: u64, besteffort: u64) {
    let rooms = Arc::clone(rooms);
    tokio::task::spawn_blocking(move || {
        if let Err(error) = rooms.cgroups.set_qos_weights(burstable, besteffort) {
            tracing::warn!("{}", crate::sys::log::chain(&error));
        }
    });
}

/// Removes the links of pods that are not known. A failure is logged: they are looked for again at the next start.
pub fn remove_unknown_links(known: Vec<PodUid>) {
    tokio::task::spawn_blocking(move || match crate::network::reconcile(&known) {
        Ok(done) => {
            for name in &done.removed {
                tracing::info!(link = %name, "removed the link of a pod that nobody knows");
            }
            for error in &done.failed {
                tracing::warn!("{}", crate::sys::log::chain(error));
            }
        }
        Err(error) => tracing::warn!("{}", crate::sys::log::chain(&error)),
    });
}

/// Asks process 1 to end the node.
pub async fn power_off(rooms: &Arc<Rooms>, reboot: bool) {
    if let Err(error) = rooms.supervisor.ask(Ask::PowerOff { reboot }).await {
        tracing::error!("{}", crate::sys::log::chain(&error));
    }
}
