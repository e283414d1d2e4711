//! Taking things away. Each step is tried, whatever happened to the one before; what failed is named together.

use super::Rooms;
use super::failure::{all_done, because, blocking};
use crate::model::action::Outcome;
use crate::model::pod::Pod;
use crate::model::supervise::{Ask, ContainerEntry};
use crate::model::{ContainerId, PodUid};
use crate::sys::log::chain;
use crate::sys::tree::remove_tree;
use crate::volumes::{self, Layer};
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Runs a teardown's blocking steps, each giving its failures.
async fn steps(work: impl FnOnce() -> Vec<String> + Send + 'static) -> Outcome {
    match tokio::task::spawn_blocking(work).await {
        Ok(failures) => all_done(&failures),
        Err(error) => because("Panicked", &error),
    }
}

fn note<T, E: std::error::Error>(failures: &mut Vec<String>, result: Result<T, E>) {
    if let Err(error) = result {
        failures.push(chain(&error));
    }
}

/// Forgets an ended attempt: cgroup, bundle, writable layer, termination message, logs of older attempts, the
/// supervisor's entry last.
pub(super) async fn container(
    rooms: &Arc<Rooms>,
    uid: PodUid,
    pod: Option<Arc<Pod>>,
    id: ContainerId,
    name: String,
    entry: Option<ContainerEntry>,
    drop_logs_below: u32,
) -> Outcome {
    let at = Arc::clone(rooms);
    let gone = id.clone();
    let done = steps(move || {
        let mut failures = Vec::new();
        if let Some(entry) = &entry {
            note(&mut failures, at.cgroups.remove(&entry.cgroup));
        }
        note(&mut failures, remove_tree(&at.bundle_dir(&gone)));
        let dirs = at.dirs(&uid);
        let Layer { upper, work } = dirs.layer(&gone);
        for path in [upper, work, dirs.termination_log(&gone)] {
            note(&mut failures, remove_tree(&path));
        }
        if let Some(pod) = pod {
            let logs = at.pod_log_dir(&pod).join(&name);
            note(&mut failures, drop_logs(&logs, drop_logs_below));
            note(&mut failures, drop_links_into(&logs, |log| !log.exists()));
        }
        failures
    })
    .await;
    if done != Outcome::Done {
        return done;
    }
    super::failure::done(rooms.supervisor.ask(Ask::Forget { id }).await)
}

/// Removes the log files of attempts below a number: `<n>.log` and its rotated ones.
fn drop_logs(folder: &Path, below: u32) -> std::io::Result<()> {
    let entries = match std::fs::read_dir(folder) {
        Ok(entries) => entries,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(()),
        Err(error) => return Err(error),
    };
    for entry in entries {
        let entry = entry?;
        let name = entry.file_name();
        let attempt = name.to_str().and_then(|n| n.split_once(".log")?.0.parse::<u32>().ok());
        if attempt.is_some_and(|attempt| attempt < below) {
            drop_link(&entry.path())?;
        }
    }
    Ok(())
}

fn drop_link(path: &Path) -> std::io::Result<()> {
    match std::fs::remove_file(path) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => Err(error),
        _ => Ok(()),
    }
}

/// Lets the namespaces go and removes the pod's cgroup and its file system in memory.
pub(super) async fn sandbox(rooms: &Arc<Rooms>, uid: PodUid) -> Outcome {
    let released = rooms.supervisor.ask(Ask::RemoveSandbox { pod: uid.clone() }).await;
    let at = Arc::clone(rooms);
    let removed = steps(move || {
        let mut failures = Vec::new();
        note(&mut failures, volumes::remove_memory(&at.dirs(&uid)));
        for group in at.cgroups.pod_groups(&uid) {
            note(&mut failures, at.cgroups.remove(&group));
        }
        failures
    })
    .await;
    match released {
        Ok(_) => removed,
        Err(error) => because("FailedKillPod", &error),
    }
}

/// Unmounts one volume and removes what it held.
pub(super) async fn volume(rooms: &Arc<Rooms>, uid: PodUid, pod: Option<Arc<Pod>>, name: String) -> Outcome {
    let at = Arc::clone(rooms);
    blocking(move || {
        let volume = pod.as_ref().and_then(|pod| pod.spec.volumes.iter().find(|v| v.name == name));
        volume.map_or(Ok(()), |volume| volumes::remove(&at.dirs(&uid), volume))
    })
    .await
}

/// Removes all that is left of a pod.
pub(super) async fn pod(rooms: &Arc<Rooms>, uid: PodUid, pod: Option<Arc<Pod>>) -> Outcome {
    let at = Arc::clone(rooms);
    steps(move || {
        let mut failures: Vec<String> = volumes::remove_pod(&at.dirs(&uid)).iter().map(|e| chain(e)).collect();
        for group in at.cgroups.pod_groups(&uid) {
            note(&mut failures, at.cgroups.remove(&group));
        }
        for folder in log_folders(&at, &uid, pod.as_deref()) {
            note(&mut failures, drop_links_into(&folder, |_| true));
            note(&mut failures, remove_tree(&folder));
        }
        failures
    })
    .await
}

/// The pod's log folder; for found remains, whose name is not known, the one that ends in the UID.
fn log_folders(rooms: &Rooms, uid: &PodUid, pod: Option<&Pod>) -> Vec<PathBuf> {
    if let Some(pod) = pod {
        return vec![rooms.pod_log_dir(pod)];
    }
    let suffix = format!("_{uid}");
    let Ok(entries) = std::fs::read_dir(&rooms.config.pod_logs_dir) else { return Vec::new() };
    let ours = |path: &PathBuf| path.to_str().is_some_and(|p| p.ends_with(&suffix));
    entries.flatten().map(|e| e.path()).filter(ours).collect()
}

/// Removes the links of `/var/log/containers` that lead to such files of a folder. A link stays as long as its log, which
/// outlives the container: what ships logs follows the links.
fn drop_links_into(folder: &Path, which: impl Fn(&Path) -> bool) -> std::io::Result<()> {
    let Ok(entries) = std::fs::read_dir(super::container::LOG_LINKS) else { return Ok(()) };
    for entry in entries.flatten() {
        if std::fs::read_link(entry.path()).is_ok_and(|target| target.starts_with(folder) && which(&target)) {
            drop_link(&entry.path())?;
        }
    }
    Ok(())
}
