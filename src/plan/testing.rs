//! What the tests of this room share: small pods and small worlds.

use crate::model::pod::{
    Container, DnsConfig, DnsPolicy, Pod, PodSpec, PullPolicy, ResourceRequirements, Resources, RestartPolicy,
    Security, Source, TerminationMessagePolicy,
};
use crate::model::{PodUid, Quantity};

/// A container with nothing special about it; its image is `<name>:1`.
pub(super) fn container(name: &str) -> Container {
    Container {
        name: name.into(),
        image: format!("{name}:1"),
        pull_policy: PullPolicy::IfNotPresent,
        command: Vec::new(),
        args: Vec::new(),
        working_dir: None,
        env: Vec::new(),
        ports: Vec::new(),
        resources: ResourceRequirements::default(),
        mounts: Vec::new(),
        liveness: None,
        readiness: None,
        startup: None,
        termination_message_path: "/dev/termination-log".into(),
        termination_message_policy: TerminationMessagePolicy::File,
        restart_policy: None,
        security: Security::default(),
        stdin: false,
        stdin_once: false,
        tty: false,
    }
}

/// A sidecar.
pub(super) fn sidecar(name: &str) -> Container {
    Container { restart_policy: Some(RestartPolicy::Always), ..container(name) }
}

/// A pod with these ordinary containers; its uid is its name.
pub(super) fn pod(name: &str, containers: &[&str]) -> Pod {
    Pod {
        uid: PodUid::new(name).unwrap(),
        name: name.into(),
        namespace: "default".into(),
        labels: [].into(),
        annotations: [].into(),
        source: Source::File { path: format!("/etc/armlet/manifests/{name}.yaml"), document: 0 },
        manifest: (&serde_json::Value::Null).into(),
        spec: PodSpec {
            init_containers: Vec::new(),
            containers: containers.iter().map(|name| container(name)).collect(),
            volumes: Vec::new(),
            restart_policy: RestartPolicy::Always,
            termination_grace_secs: 30,
            host_network: false,
            hostname: None,
            subdomain: None,
            dns_policy: DnsPolicy::ClusterFirst,
            dns: DnsConfig::default(),
            host_aliases: Vec::new(),
            fs_group: None,
            sysctls: [].into(),
            priority_class_name: None,
            priority: 0,
            overhead: Resources::default(),
        },
    }
}

/// Sets requested cpu and memory, then limited cpu and memory; an empty text leaves one out.
pub(super) fn quantities(container: &mut Container, [cpu, memory, cpu_limit, memory_limit]: [&str; 4]) {
    let read = |text: &str| (!text.is_empty()).then(|| Quantity::parse(text).unwrap());
    container.resources.requests.cpu = read(cpu);
    container.resources.requests.memory = read(memory);
    container.resources.limits.cpu = read(cpu_limit);
    container.resources.limits.memory = read(memory_limit);
}

/// Says when a campaign is over, by the kernel's clock.
pub(super) struct Stopwatch {
    until: std::time::Duration,
}

impl Stopwatch {
    pub(super) fn new(length: std::time::Duration) -> Self {
        Self { until: Self::now() + length }
    }

    fn now() -> std::time::Duration {
        let time = rustix::time::clock_gettime(rustix::time::ClockId::Boottime);
        std::time::Duration::try_from(time).unwrap_or_default()
    }

    pub(super) fn over(&self) -> bool {
        Self::now() >= self.until
    }
}
