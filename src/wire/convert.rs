//! A defaulted, validated v1.Pod to what the rest of armlet works with.
//!
//! Total: what validation has let through has a meaning; where the types alone would allow more, the default is taken.

use super::expand::{Environment, Expander};
use super::validate::{capability, sysctl_name};
use crate::model::Quantity;
use crate::model::pod::{
    Container, ContainerPort, DnsConfig, DnsPolicy, HostPathType, PodSpec, Probe, ProbeHandler, Protocol, PullPolicy,
    ResourceRequirements, Resources, RestartPolicy, Seccomp, Security, TerminationMessagePolicy, Volume, VolumeKind,
    VolumeMount,
};
use k8s_openapi::api::core::v1 as api;
use k8s_openapi::apimachinery::pkg::api::resource::Quantity as QuantityText;
use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;
use std::collections::{BTreeMap, HashMap};

/// What a pod is to be.
pub(crate) fn pod_spec(spec: &api::PodSpec) -> PodSpec {
    let context = spec.security_context.clone().unwrap_or_default();
    let mut expander = Expander::new();
    let containers = spec.containers.iter().map(|c| container(c, &context, &mut expander)).collect();
    let init_containers = spec.init_containers.iter().flatten();
    PodSpec {
        init_containers: init_containers.map(|c| container(c, &context, &mut expander)).collect(),
        containers,
        volumes: spec.volumes.iter().flatten().map(volume).collect(),
        restart_policy: restart_policy(spec.restart_policy.as_deref()).unwrap_or(RestartPolicy::Always),
        termination_grace_secs: unsigned(spec.termination_grace_period_seconds).unwrap_or(30),
        host_network: spec.host_network == Some(true),
        hostname: given(spec.hostname.as_ref()),
        subdomain: given(spec.subdomain.as_ref()),
        dns_policy: dns_policy(spec.dns_policy.as_deref()),
        dns: spec.dns_config.as_ref().map(dns_config).unwrap_or_default(),
        host_aliases: spec.host_aliases.iter().flatten().map(host_alias).collect(),
        fs_group: narrow(context.fs_group),
        sysctls: context.sysctls.iter().flatten().map(|s| (sysctl_name(&s.name), s.value.clone())).collect(),
        priority_class_name: given(spec.priority_class_name.as_ref()),
        priority: spec.priority.unwrap_or(0),
        overhead: spec.overhead.as_ref().map(resources).unwrap_or_default(),
    }
}

fn container(c: &api::Container, pod: &api::PodSecurityContext, expander: &mut Expander) -> Container {
    let texts = texts(c, expander);
    let requirements = c.resources.clone().unwrap_or_default();
    Container {
        name: c.name.clone(),
        image: c.image.clone().unwrap_or_default(),
        pull_policy: match c.image_pull_policy.as_deref() {
            Some("Always") => PullPolicy::Always,
            Some("Never") => PullPolicy::Never,
            _ => PullPolicy::IfNotPresent,
        },
        command: texts.command,
        args: texts.args,
        working_dir: given(c.working_dir.as_ref()),
        ports: c.ports.iter().flatten().map(port).collect(),
        resources: ResourceRequirements {
            requests: requirements.requests.as_ref().map(resources).unwrap_or_default(),
            limits: requirements.limits.as_ref().map(resources).unwrap_or_default(),
        },
        mounts: c.volume_mounts.iter().flatten().map(mount).collect(),
        liveness: c.liveness_probe.as_ref().and_then(|p| probe(p, c, expander)),
        readiness: c.readiness_probe.as_ref().and_then(|p| probe(p, c, expander)),
        startup: c.startup_probe.as_ref().and_then(|p| probe(p, c, expander)),
        termination_message_path: c.termination_message_path.clone().unwrap_or_default(),
        termination_message_policy: match c.termination_message_policy.as_deref() {
            Some("FallbackToLogsOnError") => TerminationMessagePolicy::FallbackToLogsOnError,
            _ => TerminationMessagePolicy::File,
        },
        restart_policy: restart_policy(c.restart_policy.as_deref()),
        security: security(c.security_context.as_ref(), pod),
        stdin: c.stdin == Some(true),
        stdin_once: c.stdin_once == Some(true),
        tty: c.tty == Some(true),
        env: texts.env,
    }
}

/// A container's texts with `$(VAR)` expanded.
struct Texts {
    env: Vec<(String, String)>,
    command: Vec<String>,
    args: Vec<String>,
}

fn texts(c: &api::Container, expander: &mut Expander) -> Texts {
    let mut env = Environment::default();
    for variable in c.env.iter().flatten() {
        // Validation has refused what is too long.
        let _ = env.add(&variable.name, variable.value.as_deref().unwrap_or(""), expander);
    }
    let mut all = |list: &Option<Vec<String>>| -> Vec<String> {
        list.iter().flatten().map(|t| expander.expand(t, |n| env.get(n)).unwrap_or_default()).collect()
    };
    let (command, args) = (all(&c.command), all(&c.args));
    Texts { env: env.into_variables(), command, args }
}

/// The variables that a probe's command sees: the values as they are written, not expanded ones.
pub(crate) fn written(container: &api::Container) -> HashMap<&str, &str> {
    let variables = container.env.iter().flatten();
    let values = variables.filter_map(|v| Some((v.name.as_str(), v.value.as_deref().filter(|t| !t.is_empty())?)));
    values.collect()
}

/// Pod and container contexts merged, the container's winning (`pkg/securitycontext/util.go`).
fn security(own: Option<&api::SecurityContext>, pod: &api::PodSecurityContext) -> Security {
    let own = own.cloned().unwrap_or_default();
    let capabilities = own.capabilities.unwrap_or_default();
    let names = |list: Option<Vec<String>>| list.into_iter().flatten().map(|c| capability(&c)).collect();
    let seccomp = own.seccomp_profile.or_else(|| pod.seccomp_profile.clone());
    let groups = pod.fs_group.into_iter().chain(pod.supplemental_groups.iter().flatten().copied());
    Security {
        run_as_user: narrow(own.run_as_user.or(pod.run_as_user)),
        run_as_group: narrow(own.run_as_group.or(pod.run_as_group)),
        run_as_non_root: own.run_as_non_root.or(pod.run_as_non_root) == Some(true),
        groups: groups.filter_map(|g| narrow(Some(g))).collect(),
        strict_groups: pod.supplemental_groups_policy.as_deref() == Some("Strict"),
        privileged: own.privileged == Some(true),
        no_new_privs: own.allow_privilege_escalation == Some(false),
        read_only_root: own.read_only_root_filesystem == Some(true),
        add_capabilities: names(capabilities.add),
        drop_capabilities: names(capabilities.drop),
        seccomp: seccomp.and_then(|profile| match profile.type_.as_str() {
            "Unconfined" => Some(Seccomp::Unconfined),
            "RuntimeDefault" => Some(Seccomp::RuntimeDefault),
            _ => None,
        }),
    }
}

fn probe(p: &api::Probe, container: &api::Container, expander: &mut Expander) -> Option<Probe> {
    let seconds = |value: Option<i32>, least: u32| unsigned32(value).max(least);
    Some(Probe {
        handler: handler(p, container, expander)?,
        initial_delay_secs: seconds(p.initial_delay_seconds, 0),
        period_secs: seconds(p.period_seconds, 1),
        timeout_secs: seconds(p.timeout_seconds, 1),
        success_threshold: seconds(p.success_threshold, 1),
        failure_threshold: seconds(p.failure_threshold, 1),
        termination_grace_secs: unsigned(p.termination_grace_period_seconds),
    })
}

fn handler(p: &api::Probe, container: &api::Container, expander: &mut Expander) -> Option<ProbeHandler> {
    if let Some(exec) = &p.exec {
        let written = written(container);
        let command = exec.command.iter().flatten();
        let command = command.map(|t| expander.expand(t, |n| written.get(n).copied()).unwrap_or_default()).collect();
        return Some(ProbeHandler::Exec { command });
    }
    if let Some(get) = &p.http_get {
        let path = get.path.clone().unwrap_or_default();
        return Some(ProbeHandler::HttpGet {
            host: given(get.host.as_ref()),
            port: probe_port(&get.port, container)?,
            path: if path.starts_with('/') { path } else { format!("/{path}") },
            https: get.scheme.as_deref() == Some("HTTPS"),
            headers: get.http_headers.iter().flatten().map(|h| (h.name.clone(), h.value.clone())).collect(),
        });
    }
    let tcp = p.tcp_socket.as_ref()?;
    Some(ProbeHandler::TcpSocket { host: given(tcp.host.as_ref()), port: probe_port(&tcp.port, container)? })
}

fn probe_port(port: &IntOrString, container: &api::Container) -> Option<u16> {
    let number = match port {
        IntOrString::Int(number) => *number,
        IntOrString::String(name) => {
            container.ports.iter().flatten().find(|p| p.name.as_ref() == Some(name))?.container_port
        }
    };
    u16::try_from(number).ok()
}

fn port(p: &api::ContainerPort) -> ContainerPort {
    ContainerPort {
        name: given(p.name.as_ref()),
        container_port: u16::try_from(p.container_port).unwrap_or(0),
        host_port: p.host_port.and_then(|h| u16::try_from(h).ok()).filter(|h| *h != 0),
        protocol: match p.protocol.as_deref() {
            Some("UDP") => Protocol::Udp,
            Some("SCTP") => Protocol::Sctp,
            _ => Protocol::Tcp,
        },
    }
}

fn mount(m: &api::VolumeMount) -> VolumeMount {
    // A relative path is taken from the container's root, as runtimes do.
    let slash = if m.mount_path.starts_with('/') { "" } else { "/" };
    VolumeMount {
        volume: m.name.clone(),
        path: format!("{slash}{}", m.mount_path),
        read_only: m.read_only == Some(true),
    }
}

fn volume(v: &api::Volume) -> Volume {
    let kind = match &v.host_path {
        Some(host) => VolumeKind::HostPath {
            path: host.path.clone(),
            check: match host.type_.as_deref() {
                Some("DirectoryOrCreate") => HostPathType::DirectoryOrCreate,
                Some("Directory") => HostPathType::Directory,
                Some("FileOrCreate") => HostPathType::FileOrCreate,
                Some("File") => HostPathType::File,
                Some("Socket") => HostPathType::Socket,
                Some("CharDevice") => HostPathType::CharDevice,
                Some("BlockDevice") => HostPathType::BlockDevice,
                _ => HostPathType::Unset,
            },
        },
        None => {
            let source = v.empty_dir.clone().unwrap_or_default();
            VolumeKind::EmptyDir {
                memory: source.medium.as_deref() == Some("Memory"),
                size_limit: source.size_limit.and_then(|q| Quantity::parse(&q.0).ok()).map(Quantity::units),
            }
        }
    };
    Volume { name: v.name.clone(), kind }
}

fn resources(amounts: &BTreeMap<String, QuantityText>) -> Resources {
    let read = |text: &QuantityText| Quantity::parse(&text.0).ok();
    let get = |name: &str| amounts.get(name).and_then(read);
    let huge =
        amounts.iter().filter_map(|(name, text)| Some((name.strip_prefix("hugepages-")?.to_owned(), read(text)?)));
    Resources {
        cpu: get("cpu"),
        memory: get("memory"),
        ephemeral_storage: get("ephemeral-storage"),
        hugepages: huge.collect(),
    }
}

fn restart_policy(text: Option<&str>) -> Option<RestartPolicy> {
    match text {
        Some("Always") => Some(RestartPolicy::Always),
        Some("OnFailure") => Some(RestartPolicy::OnFailure),
        Some("Never") => Some(RestartPolicy::Never),
        _ => None,
    }
}

fn dns_policy(text: Option<&str>) -> DnsPolicy {
    match text {
        Some("ClusterFirstWithHostNet") => DnsPolicy::ClusterFirstWithHostNet,
        Some("Default") => DnsPolicy::Default,
        Some("None") => DnsPolicy::None,
        _ => DnsPolicy::ClusterFirst,
    }
}

fn dns_config(config: &api::PodDNSConfig) -> DnsConfig {
    let options = config.options.iter().flatten();
    DnsConfig {
        nameservers: config.nameservers.clone().unwrap_or_default(),
        searches: config.searches.clone().unwrap_or_default(),
        options: options.map(|o| (o.name.clone().unwrap_or_default(), o.value.clone())).collect(),
    }
}

fn host_alias(alias: &api::HostAlias) -> (String, Vec<String>) {
    (alias.ip.clone(), alias.hostnames.clone().unwrap_or_default())
}

/// A text that says something.
fn given(text: Option<&String>) -> Option<String> {
    text.filter(|t| !t.is_empty()).cloned()
}

fn narrow(value: Option<i64>) -> Option<u32> {
    value.and_then(|v| u32::try_from(v).ok())
}

fn unsigned(value: Option<i64>) -> Option<u64> {
    value.and_then(|v| u64::try_from(v).ok())
}

fn unsigned32(value: Option<i32>) -> u32 {
    value.and_then(|v| u32::try_from(v).ok()).unwrap_or(0)
}
