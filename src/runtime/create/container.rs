//! Making a container and starting its program.

use super::console::Console;
use super::derive::{self, OwnMount, What};
use super::error::CreateError;
use super::executor::ProgramExecutor;
use super::launch::Launch;
use super::limits::{Group, Limits};
use super::report::{Report, StatusReader, wait_for_any};
use super::streams;
use crate::model::supervise::ChildReport;
use crate::runtime::devices::{self, Rule};
use crate::runtime::request::{CreateRequest, REQUEST_FILE, ROOT_FOLDER, SPEC_FILE};
use crate::sys::program::{self, Side};
use crate::sys::{confined, inside, mounts, namespaces, overlay, privileges};
use libcontainer::container::Container;
use libcontainer::container::builder::ContainerBuilder;
use libcontainer::notify_socket::{NOTIFY_FILE, NotifySocket};
use libcontainer::syscall::syscall::SyscallType;
use oci_spec::runtime::{LinuxNamespaceType, LinuxResources};
use serde::de::DeserializeOwned;
use std::io;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};

/// Folder in a bundle for libcontainer's own files. Gone when the container runs: the supervisor keeps the state.
const WORK_FOLDER: &str = "work";

/// Makes the container of `bundle` and starts its program, and says so.
pub(super) fn create(bundle: &Path, report: &Report) -> Result<(), CreateError> {
    let request: CreateRequest = read_json(&bundle.join(REQUEST_FILE))?;
    let spec = &*request.spec;
    let process = spec.process().as_ref().ok_or(CreateError::Missing("process"))?;
    let resources = spec.linux().as_ref().and_then(|linux| linux.resources().as_ref());
    let launch = Launch::new(process, request.filter.as_ref())?;
    let rules = resources.and_then(|resources| resources.devices().as_deref()).unwrap_or_default();
    let rules = devices::from_oci(rules).map_err(CreateError::Devices)?;
    let limits = Limits::new(resources);

    leave_nothing_inherited()?;
    let root = mount_root(bundle, &request)?;
    let group = Group::open(spec)?;
    group.write(&limits.before)?;
    let work = WorkFolder::make(bundle.join(WORK_FOLDER))?;
    let derived = derive::for_libcontainer(spec, &root, &work.stand_in()?);
    write_json(&work.0.join(SPEC_FILE), &derived.spec)?;

    let (uid, gid) = (process.user().uid(), process.user().gid());
    let console = if process.terminal() == Some(true) {
        Some(Console::open(&work.0, uid)?)
    } else {
        streams::give_to(uid, gid)?;
        None
    };
    let status = StatusReader::new().map_err(CreateError::system("make a pipe"))?;
    let oom_kills = group.oom_kills_above();
    let making = Making {
        request: &request,
        root: &root,
        mounts: &derived.mounts,
        all_bound: derived.spec.mounts().iter().flatten().all(|mount| mount.typ().as_deref() != Some("bind")),
        work: &work.0,
        console: console.as_ref(),
        status: &status,
    };
    let started = match making.in_group(&group, launch, &rules) {
        Err(CreateError::Killed) if group.oom_kills_above() > oom_kills => Err(out_of_memory(resources)),
        Err(error) => Err(error),
        Ok(created) => {
            report.send(&created);
            group
                .write(&limits.after)
                .and_then(|()| console.map_or(Ok(()), Console::forward))
                .and_then(|()| start(&work.0.join(request.id.as_str()), status))
        }
    };
    match started {
        Ok(()) => report.send(&ChildReport::Started),
        Err(_) => group.kill(),
    }
    started
}

/// What this process has from its parent and the container must not have.
#[expect(unsafe_code, reason = "changing the environment")]
fn leave_nothing_inherited() -> Result<(), CreateError> {
    // libcontainer passes as many descriptors on as this says.
    // SAFETY: create children have one thread.
    unsafe { program::forget_variable("LISTEN_FDS") };
    // libcontainer leaves the groups alone when the spec names none.
    privileges::drop_groups().map_err(CreateError::system("drop the supplementary groups"))?;
    rustix::process::umask(rustix::fs::Mode::from_raw_mode(0o022));
    rustix::process::chdir("/").map_err(io::Error::from).map_err(CreateError::system("enter /"))
}

/// Mounts the root filesystem in a mount namespace of this process's own, and makes the folders that are asked for.
fn mount_root(bundle: &Path, request: &CreateRequest) -> Result<PathBuf, CreateError> {
    let root = bundle.join(ROOT_FOLDER);
    overlay::private_namespace().map_err(CreateError::system("enter a mount namespace"))?;
    for folder in [&root, &request.root.upper, &request.root.work] {
        std::fs::create_dir_all(folder).map_err(CreateError::file("make", folder))?;
    }
    let parts = overlay::Overlay { lower: &request.root.lower, upper: &request.root.upper, work: &request.root.work };
    overlay::mount(parts, &root).map_err(CreateError::file("mount an overlay at", &root))?;
    for folder in &request.folders {
        let base = folder.base.as_deref().unwrap_or(&root);
        let base = confined::open_root(base).map_err(CreateError::file("open", base))?;
        confined::make_folders(&base, &folder.path, folder.new_folder())
            .map_err(CreateError::file("make in the container", &folder.path))?;
    }
    Ok(root)
}

/// What is needed to make the container.
struct Making<'a> {
    request: &'a CreateRequest,
    root: &'a Path,
    mounts: &'a [OwnMount],
    /// Nothing of the node is left for libcontainer to mount.
    all_bound: bool,
    work: &'a Path,
    console: Option<&'a Console>,
    status: &'a StatusReader,
}

impl Making<'_> {
    /// Makes the container in a process that is born in the container's cgroup, so that the first process is too.
    /// Gives its [`ChildReport::Created`]. Meanwhile the device rules are put on the group: they let nodes be made and
    /// those be opened that set-up needs.
    #[expect(unsafe_code, reason = "clone")]
    fn in_group(&self, group: &Group, launch: Launch, rules: &[Rule]) -> Result<ChildReport, CreateError> {
        let outcome = StatusReader::new().map_err(CreateError::system("make a pipe"))?;
        // SAFETY: create children have one thread.
        let side = unsafe { program::clone_sibling(group.folder()) }
            .map_err(CreateError::system("start a process in the container's cgroup"))?;
        let Side::Caller { process, .. } = side else {
            let made = self.mount().and_then(|()| self.build(launch)).and_then(|container| created(&container));
            outcome.status().say(&made.unwrap_or_else(|error| error.report()));
            program::exit_now(0);
        };
        group.confine_devices(rules)?;
        // What the first process says itself is the better text, and comes before libcontainer has cleaned up.
        wait_for_any(&[self.status, &outcome], &process).map_err(CreateError::system("wait for the container"))?;
        let report = self.status.said().or_else(|| outcome.said());
        match report {
            Some(created @ ChildReport::Created { .. }) => Ok(created),
            Some(failure) => Err(CreateError::Program(failure)),
            None => Err(CreateError::Killed),
        }
    }

    /// Makes the mounts that are ours: in the container's group, whose memory they take, and in the pod's namespaces,
    /// of which some filesystems show the one that they were mounted from.
    fn mount(&self) -> Result<(), CreateError> {
        for namespace in self.request.spec.linux().iter().flat_map(|linux| linux.namespaces().iter().flatten()) {
            if let (LinuxNamespaceType::Network | LinuxNamespaceType::Ipc, Some(path)) =
                (namespace.typ(), namespace.path())
            {
                namespaces::enter(path).map_err(CreateError::file("enter namespace", path))?;
            }
        }
        // libcontainer makes the container another one, which begins at the same group.
        namespaces::leave_cgroup_namespace()
            .map_err(|error| CreateError::system("make a cgroup namespace")(error.into()))?;
        let root = confined::open_root(self.root).map_err(CreateError::file("open", self.root))?;
        for OwnMount { destination, what } in self.mounts {
            match what {
                What::Bind { source, read_only } => {
                    inside::bind(&root, source, destination, *read_only).map_err(|cause| CreateError::Bind {
                        path: source.clone(),
                        at: destination.clone(),
                        source: cause,
                    })
                }
                What::New(new) => inside::mount(&root, destination, new)
                    .map_err(CreateError::file("mount a filesystem at", destination)),
            }?;
        }
        if let Some(others) = &self.request.others
            && self.all_bound
        {
            // Where it is no mount point it costs time and nothing else.
            let _ = mounts::let_go(others);
        }
        Ok(())
    }

    fn build(&self, launch: Launch) -> Result<Container, CreateError> {
        let failed = |error| CreateError::Libcontainer(Box::new(error));
        ContainerBuilder::new(self.request.id.as_str().to_owned(), SyscallType::default())
            .with_root_path(self.work)
            .map_err(failed)?
            .with_console_socket(self.console.map(|console| console.path().to_owned()))
            .with_executor(ProgramExecutor::new(launch, self.status.status()))
            .as_init(self.work)
            .with_systemd(false)
            // The first process becomes the supervisor's child.
            .as_sibling(true)
            .build()
            .map_err(failed)
    }
}

fn created(container: &Container) -> Result<ChildReport, CreateError> {
    let pid = container.pid().and_then(|pid| u32::try_from(pid.as_raw()).ok());
    Ok(ChildReport::Created { pid: pid.ok_or(CreateError::Missing("first process"))? })
}

/// Lets the first process execute the program, and waits until it has.
fn start(state: &Path, status: StatusReader) -> Result<(), CreateError> {
    // All that `Container::start` would do beside this is keep libcontainer's own files up to date, which go now.
    NotifySocket::new(state.join(NOTIFY_FILE)).notify_container_start().map_err(CreateError::Start)?;
    status.wait().map_or(Ok(()), |failure| Err(CreateError::Program(failure)))
}

fn out_of_memory(resources: Option<&LinuxResources>) -> CreateError {
    let memory = resources.and_then(|resources| resources.memory().as_ref());
    CreateError::OutOfMemory { limit: memory.and_then(oci_spec::runtime::LinuxMemory::limit).unwrap_or(-1) }
}

/// Removes libcontainer's files however the create ends.
#[derive(Debug)]
struct WorkFolder(PathBuf);

impl WorkFolder {
    fn make(path: PathBuf) -> Result<Self, CreateError> {
        match std::fs::remove_dir_all(&path) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => {
                return Err(CreateError::file("clear", path)(error));
            }
            _ => {}
        }
        std::fs::create_dir(&path).map_err(CreateError::file("make", &path))?;
        Ok(Self(path))
    }

    /// A folder that looks like a cgroup to libcontainer ([`derive::for_libcontainer`]).
    fn stand_in(&self) -> Result<PathBuf, CreateError> {
        let folder = self.0.join("group");
        std::fs::create_dir(&folder).map_err(CreateError::file("make", &folder))?;
        let processes = folder.join("cgroup.procs");
        symlink("/dev/null", &processes).map_err(CreateError::file("make", &processes))?;
        Ok(folder)
    }
}

impl Drop for WorkFolder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

pub(super) fn read_json<T: DeserializeOwned>(path: &Path) -> Result<T, CreateError> {
    let bytes = std::fs::read(path).map_err(CreateError::file("read", path))?;
    serde_json::from_slice(&bytes).map_err(|source| CreateError::Json { path: path.to_owned(), source })
}

fn write_json<T: serde::Serialize>(path: &Path, value: &T) -> Result<(), CreateError> {
    let bytes = serde_json::to_vec(value).map_err(|source| CreateError::Json { path: path.to_owned(), source })?;
    std::fs::write(path, bytes).map_err(CreateError::file("write", path))
}
