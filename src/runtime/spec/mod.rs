//! From a container of a pod to the OCI spec and the [`CreateRequest`] of its next attempt. Pure.

mod environment;
mod filesystem;
mod identity;
mod resources;
#[cfg(test)]
mod tests;

pub(crate) use resources::kernel_page_size;

use super::accounts::UnknownAccount;
use super::capability::{self, UnknownCapability};
use super::devices;
use super::request::{CreateRequest, Folder, OverlayRoot, ROOT_FOLDER};
use super::seccomp::{CompileError, default_profile, default_program};
use crate::model::ContainerId;
use crate::model::action::ContainerLimits;
use crate::model::pod::{Container, Pod, Seccomp};
use crate::model::supervise::SandboxEntry;
use crate::sys::privileges::Capabilities;
use oci_spec::OciSpecError;
use oci_spec::runtime::{
    Capability, LinuxBuilder, LinuxCapabilitiesBuilder, LinuxNamespace, LinuxNamespaceBuilder, LinuxNamespaceType,
    PosixRlimitBuilder, PosixRlimitType, Process, ProcessBuilder, RootBuilder, Spec, UserBuilder,
};
use std::collections::HashSet;
use std::path::{Path, PathBuf};
use std::str::FromStr;

/// What an image says about the programs that start from it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct ImageDefaults<'a> {
    /// `Entrypoint`.
    pub entrypoint: &'a [String],
    /// `Cmd`.
    pub command: &'a [String],
    /// `Env`.
    pub env: &'a [String],
    /// `WorkingDir`.
    pub working_dir: &'a str,
    /// `User`.
    pub user: &'a str,
}

/// A file or folder of the node that the container sees.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Bind {
    /// On the node: absolute.
    pub source: PathBuf,
    /// In the container: absolute.
    pub destination: PathBuf,
    /// Not writable there.
    pub read_only: bool,
}

/// A device node that the container gets.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DeviceNode {
    /// In the container, below `/dev`.
    pub path: PathBuf,
    /// Block or character.
    pub kind: devices::Kind,
    /// Major number.
    pub major: u32,
    /// Minor number.
    pub minor: u32,
    /// Permission bits.
    pub mode: u32,
    /// Owner.
    pub uid: u32,
    /// Group.
    pub gid: u32,
}

/// Everything that a spec is made of.
#[derive(Debug, Clone, Copy)]
pub struct Inputs<'a> {
    /// The pod.
    pub pod: &'a Pod,
    /// The container.
    pub container: &'a Container,
    /// The attempt's id.
    pub id: &'a ContainerId,
    /// The image's configuration.
    pub image: ImageDefaults<'a>,
    /// The image's `/etc/passwd`; empty when it has none ([`crate::sys::layers::read_file`] reads it).
    pub passwd: &'a [u8],
    /// The image's `/etc/group`, likewise.
    pub group: &'a [u8],
    /// The root filesystem's parts.
    pub root: &'a OverlayRoot,
    /// The pod's namespaces.
    pub sandbox: &'a SandboxEntry,
    /// The kernel's host name in the pod: the variable `HOSTNAME`.
    pub hostname: &'a str,
    /// The container's cgroup, below the cgroup mount, without a leading slash.
    pub cgroup: &'a str,
    /// What its cgroup and first process are set to.
    pub limits: &'a ContainerLimits,
    /// The container's volumes.
    pub volumes: &'a [Bind],
    /// `/etc/hosts`, `/etc/resolv.conf`, `/etc/hostname`, `/dev/shm` and the termination message file. A volume at the
    /// same place wins.
    pub managed: &'a [Bind],
    /// The node's devices, for a privileged container; other containers get none of them.
    pub host_devices: &'a [DeviceNode],
    /// What of this machine is masked beside what is masked everywhere ([`crate::observe::thermal_folders`]).
    pub masked: &'a [String],
    /// `seccompDefault`: filter what says nothing.
    pub seccomp_default: bool,
}

/// Why a container cannot be made as it is written.
#[derive(Debug, thiserror::Error)]
pub enum SpecError {
    /// `runAsNonRoot` with `runAsUser: 0`.
    #[error("container's runAsUser breaks non-root policy (pod: {pod:?}, container: {container})")]
    RunAsRoot {
        /// `name_namespace(uid)`.
        pod: String,
        /// Its name.
        container: String,
    },
    /// `runAsNonRoot` and a user that is only a name.
    #[error(
        "container has runAsNonRoot and image has non-numeric user ({user}), cannot verify user is non-root \
         (pod: {pod:?}, container: {container})"
    )]
    NameOfUser {
        /// The image's.
        user: String,
        /// `name_namespace(uid)`.
        pod: String,
        /// Its name.
        container: String,
    },
    /// `runAsNonRoot` and an image of root's.
    #[error("container has runAsNonRoot and image will run as root (pod: {pod:?}, container: {container})")]
    ImageOfRoot {
        /// `name_namespace(uid)`.
        pod: String,
        /// Its name.
        container: String,
    },
    /// Neither the container nor the image names a program.
    #[error("no command specified")]
    NoCommand,
    /// The image's user or group is not in its files.
    #[error(transparent)]
    Account(#[from] UnknownAccount),
    /// Not a capability.
    #[error(transparent)]
    Capability(#[from] UnknownCapability),
    /// The system call filter cannot be made.
    #[error("failed to make the system call filter")]
    Seccomp(#[from] CompileError),
    /// The spec library refused a value.
    #[error("failed to build the OCI spec")]
    Oci(#[from] OciSpecError),
}

impl SpecError {
    /// The reason word of the container's waiting state.
    #[must_use]
    pub const fn reason(&self) -> &'static str {
        match self {
            Self::RunAsRoot { .. } | Self::NameOfUser { .. } | Self::ImageOfRoot { .. } => "CreateContainerConfigError",
            _ => "CreateContainerError",
        }
    }
}

/// Makes the spec and the request.
///
/// # Errors
/// [`SpecError`]; its reason word says at which step upstream fails.
pub fn build(inputs: &Inputs<'_>) -> Result<(Spec, CreateRequest), SpecError> {
    let capabilities = capabilities(inputs.container)?;
    let identity = identity::of(inputs)?;
    let binds = filesystem::binds(inputs);
    let cwd = environment::working_dir(inputs);
    let process = process(inputs, &identity, capabilities, &cwd)?;
    let privileged = inputs.container.security.privileged;
    let linux = LinuxBuilder::default()
        .namespaces(namespaces(inputs.sandbox)?)
        .cgroups_path(PathBuf::from(format!("/{}", inputs.cgroup)))
        .resources(resources::resources(inputs)?)
        .devices(resources::devices(inputs)?)
        .rootfs_propagation("private")
        .masked_paths(if privileged { Vec::new() } else { filesystem::masked(inputs.masked) })
        .readonly_paths(if privileged { Vec::new() } else { filesystem::read_only() })
        .build()?;
    let filter = match wants_filter(inputs) {
        true => Some(default_program(capabilities)?),
        false => None,
    };
    let root = RootBuilder::default().path(ROOT_FOLDER).readonly(inputs.container.security.read_only_root).build()?;
    let mut spec = Spec::default();
    spec.set_version("1.2.0".to_owned());
    spec.set_root(Some(root));
    spec.set_mounts(Some(filesystem::mounts(inputs, &binds)?));
    spec.set_process(Some(process));
    spec.set_hostname(None);
    spec.set_annotations(None);
    spec.set_linux(Some(linux));
    let request = CreateRequest {
        id: inputs.id.clone(),
        root: inputs.root.clone(),
        folders: filesystem::folder_for(&cwd, &binds).into_iter().collect(),
        others: None,
        spec: Box::new(spec.clone()),
        filter,
    };
    if request.filter.is_some()
        && let Some(linux) = spec.linux_mut()
    {
        linux.set_seccomp(Some(default_profile(capabilities)));
    }
    Ok((spec, request))
}

fn wants_filter(inputs: &Inputs<'_>) -> bool {
    let security = &inputs.container.security;
    !security.privileged
        && match security.seccomp {
            Some(Seccomp::RuntimeDefault) => true,
            Some(Seccomp::Unconfined) => false,
            None => inputs.seccomp_default,
        }
}

fn capabilities(container: &Container) -> Result<Capabilities, UnknownCapability> {
    let security = &container.security;
    if security.privileged {
        return Ok(capability::ALL);
    }
    capability::container(&security.add_capabilities, &security.drop_capabilities)
}

fn namespaces(sandbox: &SandboxEntry) -> Result<Vec<LinuxNamespace>, OciSpecError> {
    let mut namespaces = Vec::new();
    for kind in [LinuxNamespaceType::Pid, LinuxNamespaceType::Mount, LinuxNamespaceType::Cgroup] {
        namespaces.push(LinuxNamespaceBuilder::default().typ(kind).build()?);
    }
    for (kind, path) in [
        (LinuxNamespaceType::Network, &sandbox.netns),
        (LinuxNamespaceType::Ipc, &sandbox.ipcns),
        (LinuxNamespaceType::Uts, &sandbox.utsns),
    ] {
        if let Some(path) = path {
            namespaces.push(LinuxNamespaceBuilder::default().typ(kind).path(path).build()?);
        }
    }
    Ok(namespaces)
}

fn process(
    inputs: &Inputs<'_>,
    identity: &identity::Runs,
    capabilities: Capabilities,
    cwd: &Path,
) -> Result<Process, SpecError> {
    let args = environment::args(inputs.container, inputs.image);
    if args.is_empty() {
        return Err(SpecError::NoCommand);
    }
    let names: HashSet<Capability> = capability::names(capabilities)
        .map(|name| Capability::from_str(name.trim_start_matches("CAP_")))
        .collect::<Result<_, _>>()
        .map_err(|_| UnknownCapability("of this build".to_owned()))?;
    let sets = LinuxCapabilitiesBuilder::default()
        .bounding(names.clone())
        .effective(names.clone())
        .permitted(names)
        .inheritable(HashSet::new())
        .ambient(HashSet::new())
        .build()?;
    let user =
        UserBuilder::default().uid(identity.uid).gid(identity.gid).additional_gids(identity.groups.clone()).build()?;
    // As systemd gives services: programs that walk all descriptors up to the soft limit stay fast, those that need
    // many can raise it.
    let files = PosixRlimitBuilder::default().typ(PosixRlimitType::RlimitNofile).soft(1024_u64).hard(524_288_u64);
    let mut process = ProcessBuilder::default()
        .terminal(inputs.container.tty)
        .user(user)
        .args(args)
        .env(environment::env(inputs, &identity.home))
        .cwd(cwd)
        .capabilities(sets)
        .rlimits(vec![files.build()?])
        .oom_score_adj(inputs.limits.oom_score_adj)
        .build()?;
    // The builder's own default is true.
    process.set_no_new_privileges(inputs.container.security.no_new_privs.then_some(true));
    Ok(process)
}

/// What [`filesystem::folder_for`] makes of the working directory.
const WORKING_DIR_MODE: u32 = 0o755;

fn root_folder(path: PathBuf, base: Option<PathBuf>) -> Folder {
    Folder { path, base, mode: WORKING_DIR_MODE, uid: 0, gid: 0 }
}
