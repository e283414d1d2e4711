//! What is read of a v1.Pod. Fields that are not here are not needed; fields that are missing have defaults.

use crate::model::api::TERMINATING;
use serde::Deserialize;
use std::collections::BTreeMap;

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default)]
pub(super) struct PodList {
    pub(super) items: Vec<Pod>,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default)]
pub(super) struct Pod {
    pub(super) metadata: Metadata,
    pub(super) spec: Spec,
    pub(super) status: Status,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(super) struct Metadata {
    pub(super) name: String,
    pub(super) namespace: String,
    pub(super) uid: String,
    pub(super) annotations: BTreeMap<String, String>,
    pub(super) creation_timestamp: Option<String>,
    pub(super) deletion_timestamp: Option<String>,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(super) struct Spec {
    pub(super) node_name: String,
    pub(super) init_containers: Vec<Container>,
    pub(super) containers: Vec<Container>,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(super) struct Container {
    pub(super) name: String,
    pub(super) image: String,
    pub(super) restart_policy: Option<String>,
}

impl Container {
    /// An init container that goes on running.
    pub(super) fn is_sidecar(&self) -> bool {
        self.restart_policy.as_deref() == Some("Always")
    }
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(super) struct Status {
    pub(super) phase: String,
    pub(super) reason: Option<String>,
    #[serde(rename = "podIP")]
    pub(super) pod_ip: Option<String>,
    pub(super) start_time: Option<String>,
    pub(super) conditions: Vec<Condition>,
    pub(super) init_container_statuses: Vec<ContainerStatus>,
    pub(super) container_statuses: Vec<ContainerStatus>,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default)]
pub(super) struct Condition {
    #[serde(rename = "type")]
    pub(super) kind: String,
    pub(super) status: String,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(super) struct ContainerStatus {
    pub(super) name: String,
    pub(super) state: State,
    pub(super) last_state: State,
    pub(super) ready: bool,
    pub(super) started: Option<bool>,
    pub(super) restart_count: u32,
    #[serde(rename = "containerID")]
    pub(super) container_id: Option<String>,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default)]
pub(super) struct State {
    pub(super) waiting: Option<Waiting>,
    pub(super) running: Option<Running>,
    pub(super) terminated: Option<Terminated>,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default)]
pub(super) struct Waiting {
    pub(super) reason: Option<String>,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(super) struct Running {
    pub(super) started_at: Option<String>,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(super) struct Terminated {
    pub(super) exit_code: i32,
    pub(super) signal: Option<i32>,
    pub(super) reason: Option<String>,
    pub(super) finished_at: Option<String>,
}

impl Pod {
    /// `namespace/name`.
    pub(super) fn full_name(&self) -> String {
        format!("{}/{}", self.metadata.namespace, self.metadata.name)
    }

    /// Whether it is being stopped.
    pub(super) fn is_terminating(&self) -> bool {
        self.metadata.deletion_timestamp.is_some() || self.metadata.annotations.contains_key(TERMINATING)
    }

    /// Init containers and containers, in spec order.
    pub(super) fn all_containers(&self) -> impl Iterator<Item = &Container> {
        self.spec.init_containers.iter().chain(&self.spec.containers)
    }

    /// The status of a container, if it has one yet.
    pub(super) fn status_of(&self, container: &str) -> Option<&ContainerStatus> {
        let mut all = self.status.init_container_statuses.iter().chain(&self.status.container_statuses);
        all.find(|status| status.name == container)
    }

    /// When it came to this node.
    pub(super) fn created(&self) -> Option<&str> {
        self.metadata.creation_timestamp.as_deref().or(self.status.start_time.as_deref())
    }
}
