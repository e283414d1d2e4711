//! One container attempt: from the plan's numbers to the supervisor's answer.

use super::Rooms;
use super::failure::{because, done, failed};
use crate::model::ContainerId;
use crate::model::action::{Failure, Outcome, StartPlan};
use crate::model::pod::{Container, Pod, VolumeKind};
use crate::model::supervise::{Ask, Reply, SandboxEntry, StartSpec};
use crate::network::files::{PodFilePaths, PodFiles, node_hosts, node_resolver, write_pod_files};
use crate::network::resolver::{Resolver, Wanted, Warning, pod_resolver};
use crate::network::{hostname, hosts};
use crate::runtime::request::{OverlayRoot, REQUEST_FILE, SPEC_FILE};
use crate::runtime::spec::{self, Bind, ImageDefaults, Inputs};
use crate::sys::layers;
use crate::sys::log::chain;
use crate::volumes::{self, termination};
use std::error::Error;
use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Links to the logs of all containers, as log collectors expect them.
pub(super) const LOG_LINKS: &str = "/var/log/containers";

/// `passwd` and `group` files beyond this are not of this world.
const ACCOUNTS_LIMIT: u64 = 4 * 1024 * 1024;

/// Starts one attempt.
pub(super) async fn start(
    rooms: &Arc<Rooms>,
    pod: Option<Arc<Pod>>,
    sandbox: Option<SandboxEntry>,
    plan: StartPlan,
) -> Outcome {
    let (Some(pod), Some(sandbox)) = (pod, sandbox) else {
        return failed("CreateContainerError", "the pod or its sandbox is not known");
    };
    let at = Arc::clone(rooms);
    let made = tokio::task::spawn_blocking(move || prepare(&at, &pod, &sandbox, &plan)).await;
    let Prepared { spec, oci } = match made {
        Ok(Ok(prepared)) => prepared,
        Ok(Err(failure)) => return Outcome::Failed(failure),
        Err(error) => return because("CreateContainerError", &error),
    };
    let file = Path::new(&spec.bundle).join(SPEC_FILE);
    // Only people read it: nothing waits for it but the end of this action, so that it is not written after its removal.
    let told = tokio::task::spawn_blocking(move || {
        let bytes = serde_json::to_vec(&*oci).map_err(std::io::Error::from);
        if let Err(error) = bytes.and_then(|bytes| std::fs::write(&file, bytes)) {
            tracing::warn!(path = %file.display(), %error, "the container's OCI spec could not be written");
        }
    });
    let (answer, _) = tokio::join!(rooms.supervisor.ask(Ask::Start(spec)), told);
    match answer {
        Ok(Reply::Container(entry)) => Outcome::Container { entry },
        Ok(other) => failed("RunContainerError", format!("the supervisor answered {other:?}")),
        Err(error) => because("RunContainerError", &error),
    }
}

fn failure(reason: &str, message: impl Into<String>) -> Failure {
    Failure { reason: reason.to_owned(), message: message.into() }
}

/// Turns an error into a failure to create the container.
fn create_error<E: Error>(error: E) -> Failure {
    failure("CreateContainerError", chain(&error))
}

/// Turns an error into a failure to configure the container.
fn config_error<E: Error>(error: E) -> Failure {
    failure("CreateContainerConfigError", chain(&error))
}

/// What a start needs.
struct Prepared {
    /// For the supervisor.
    spec: StartSpec,
    /// For people.
    oci: Box<oci_spec::runtime::Spec>,
}

/// Writes everything that the create child needs and makes the container's cgroup.
fn prepare(rooms: &Rooms, pod: &Pod, sandbox: &SandboxEntry, plan: &StartPlan) -> Result<Prepared, Failure> {
    let containers = pod.spec.init_containers.iter().chain(&pod.spec.containers);
    let container = containers.into_iter().find(|c| c.name == plan.container);
    let container = container.ok_or_else(|| config_error_text(format!("no container {:?}", plan.container)))?;
    let image = rooms
        .images
        .get(&plan.image)
        .ok_or_else(|| failure("ImageInspectError", format!("image {} is not in the store any more", plan.image)))?;
    let layer = rooms.dirs(&pod.uid).layer(&plan.id);
    let lower: Vec<PathBuf> = image.layers.iter().rev().cloned().collect();
    let passwd = account_file(&lower, "/etc/passwd")?;
    let group = account_file(&lower, "/etc/group")?;
    let lower = lower.into_iter().chain(rooms.skeleton.clone()).collect();
    let root = OverlayRoot { lower, upper: layer.upper, work: layer.work };
    let files = pod_files(rooms, pod, &plan.pod_ips)?;
    let managed = managed(rooms, pod, container, plan, &files)?;
    let volumes = mounted_volumes(rooms, pod, container)?;
    let host_devices = if container.security.privileged { crate::observe::host_devices() } else { Vec::new() };
    let inputs = Inputs {
        pod,
        container,
        id: &plan.id,
        image: ImageDefaults {
            entrypoint: &image.config.entrypoint,
            command: &image.config.cmd,
            env: &image.config.env,
            working_dir: &image.config.working_dir,
            user: &image.config.user,
        },
        passwd: &passwd,
        group: &group,
        root: &root,
        sandbox,
        hostname: &kernel_hostname(rooms, pod),
        cgroup: &plan.cgroup,
        limits: &plan.limits,
        volumes: &volumes,
        managed: &managed,
        host_devices: &host_devices,
        masked: &rooms.thermal,
        seccomp_default: rooms.config.seccomp_default,
    };
    let (oci, mut request) = spec::build(&inputs).map_err(|error| failure(error.reason(), chain(&error)))?;
    request.others = Some(rooms.pods_run_dir());
    rooms.cgroups.create_container(&plan.cgroup).map_err(create_error)?;
    let bundle = rooms.bundle_dir(&plan.id);
    write_request(&bundle, &request).map_err(create_error)?;
    prepare_log(pod, container, plan).map_err(create_error)?;
    let spec = StartSpec {
        id: plan.id.clone(),
        pod: pod.uid.clone(),
        name: container.name.clone(),
        attempt: plan.attempt,
        bundle: bundle.display().to_string(),
        log_path: plan.log_path.clone(),
        cgroup: plan.cgroup.clone(),
        tty: container.tty,
        stdin: container.stdin,
        timeout_ms: plan.timeout.0,
    };
    Ok(Prepared { spec, oci: Box::new(oci) })
}

fn config_error_text(message: String) -> Failure {
    failure("CreateContainerConfigError", message)
}

fn account_file(layers: &[PathBuf], path: &str) -> Result<Vec<u8>, Failure> {
    let read = layers::read_file(layers, Path::new(path), ACCOUNTS_LIMIT);
    read.map(Option::unwrap_or_default).map_err(|error| failure("CreateContainerError", format!("{path}: {error}")))
}

/// The host name that programs in the pod see.
fn kernel_hostname(rooms: &Rooms, pod: &Pod) -> String {
    if pod.spec.host_network {
        return rooms.node_name.clone();
    }
    hostname::pod_hostname(&pod.name, pod.spec.hostname.as_deref())
}

/// Writes the hosts, resolver and host name files, as the kubelet does before each start.
fn pod_files(rooms: &Rooms, pod: &Pod, ips: &[IpAddr]) -> Result<PodFilePaths, Failure> {
    let name = kernel_hostname(rooms, pod);
    let aliases = &pod.spec.host_aliases;
    let domain = hostname::pod_domain(pod.spec.subdomain.as_deref(), &pod.namespace, &rooms.config.cluster_domain);
    let hosts = if pod.spec.host_network {
        hosts::host_network_hosts_file(&node_hosts().map_err(config_error)?, aliases)
    } else {
        hosts::hosts_file(ips, &name, domain.as_deref(), aliases)
    };
    // The pod's sandbox has told the warnings already.
    let (resolver, _told) = resolver(rooms, pod)?;
    let files = PodFiles { hosts, resolver: resolver.text(), hostname: name };
    write_pod_files(&rooms.dirs(&pod.uid).memory(), &files).map_err(config_error)
}

/// The pod's resolver, and what people should know of it.
pub(super) fn resolver(rooms: &Rooms, pod: &Pod) -> Result<(Resolver, Vec<Warning>), Failure> {
    let node = match rooms.config.resolv_conf.as_str() {
        "" => None,
        path => Some(node_resolver(Path::new(path)).map_err(config_error)?),
    };
    Ok(pod_resolver(&Wanted {
        policy: pod.spec.dns_policy,
        config: &pod.spec.dns,
        host_network: pod.spec.host_network,
        namespace: &pod.namespace,
        cluster_dns: &rooms.config.cluster_dns,
        cluster_domain: &rooms.config.cluster_domain,
        node: node.as_ref(),
    }))
}

/// The files and folders that every container gets.
fn managed(
    rooms: &Rooms,
    pod: &Pod,
    container: &Container,
    plan: &StartPlan,
    files: &PodFilePaths,
) -> Result<Vec<Bind>, Failure> {
    let dirs = rooms.dirs(&pod.uid);
    let message = dirs.termination_log(&plan.id);
    termination::create(&message).map_err(config_error)?;
    let bind =
        |source: PathBuf, destination: &str| Bind { source, destination: PathBuf::from(destination), read_only: false };
    Ok(vec![
        bind(files.hosts.clone(), "/etc/hosts"),
        bind(files.resolver.clone(), "/etc/resolv.conf"),
        bind(files.hostname.clone(), "/etc/hostname"),
        bind(dirs.shm(), "/dev/shm"),
        bind(message, &container.termination_message_path),
    ])
}

/// The container's volumes.
fn mounted_volumes(rooms: &Rooms, pod: &Pod, container: &Container) -> Result<Vec<Bind>, Failure> {
    let dirs = rooms.dirs(&pod.uid);
    let bind = |mount: &crate::model::pod::VolumeMount| {
        let volume = pod.spec.volumes.iter().find(|v| v.name == mount.volume).ok_or_else(|| {
            let text = format!("cannot find volume {:?} to mount into container {:?}", mount.volume, container.name);
            config_error_text(text)
        })?;
        let source = match &volume.kind {
            VolumeKind::EmptyDir { .. } | VolumeKind::HostPath { .. } => {
                volumes::path_of(&dirs, volume).map_err(config_error)?
            }
        };
        Ok(Bind { source, destination: PathBuf::from(&mount.path), read_only: mount.read_only })
    };
    container.mounts.iter().map(bind).collect()
}

fn write_request(bundle: &Path, request: &crate::runtime::request::CreateRequest) -> std::io::Result<()> {
    std::fs::create_dir_all(bundle)?;
    std::fs::write(bundle.join(REQUEST_FILE), serde_json::to_vec(request)?)
}

/// The log's folder, and the link under which log collectors look for it.
fn prepare_log(pod: &Pod, container: &Container, plan: &StartPlan) -> std::io::Result<()> {
    let log = Path::new(&plan.log_path);
    if let Some(folder) = log.parent() {
        std::fs::create_dir_all(folder)?;
    }
    std::fs::create_dir_all(LOG_LINKS)?;
    match std::os::unix::fs::symlink(log, log_link(pod, &container.name, &plan.id)) {
        Err(error) if error.kind() != std::io::ErrorKind::AlreadyExists => Err(error),
        _ => Ok(()),
    }
}

/// `/var/log/containers/<pod>_<namespace>_<container>-<id>.log`, cut to what a file name may have
/// (`pkg/kubelet/kuberuntime/legacy.go`).
pub(super) fn log_link(pod: &Pod, container: &str, id: &ContainerId) -> PathBuf {
    let mut name = format!("{}_{}_{container}-{id}", pod.name, pod.namespace);
    name.truncate(255 - ".log".len());
    Path::new(LOG_LINKS).join(name + ".log")
}

/// Sends the stop signal to the container's first process.
pub(super) async fn signal(rooms: &Arc<Rooms>, id: ContainerId, name: &str) -> Outcome {
    let signal = crate::sys::signals::stop_signal(name);
    done(rooms.supervisor.ask(Ask::Signal { id, signal }).await)
}
