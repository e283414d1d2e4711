//! An ended attempt's last words.

use crate::config::Config;
use crate::model::pod::Pod;
use crate::model::supervise::{ContainerEntry, ContainerState};
use crate::volumes::{PodDirs, termination};
use std::path::Path;

/// Reads the termination message of an ended attempt by its container's policy. None: there is nothing to say.
pub async fn termination_message(config: &Config, pod: &Pod, entry: &ContainerEntry) -> Option<String> {
    let container = pod.spec.init_containers.iter().chain(&pod.spec.containers).find(|c| c.name == entry.name)?;
    let failed = match &entry.state {
        ContainerState::Exited(exit) => exit.code != 0,
        // A program that never ran left no words; the failure's own message is shown.
        ContainerState::Creating | ContainerState::Running { .. } | ContainerState::StartFailed { .. } => return None,
    };
    let dirs = PodDirs::new(Path::new(&config.data_dir), Path::new(&config.run_dir), &pod.uid);
    let file = dirs.termination_log(&entry.id);
    let policy = container.termination_message_policy;
    let log = entry.log_path.clone();
    let read = tokio::task::spawn_blocking(move || termination::message(&file, policy, failed, Path::new(&log))).await;
    read.ok().filter(|message| !message.is_empty())
}
