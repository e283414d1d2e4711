//! The container's cgroup: its limits in two parts, and what hangs on it.

use super::error::CreateError;
use crate::runtime::devices::{self, Rule};
use crate::sys::bpf;
use oci_spec::runtime::{LinuxResources, Spec};
use rustix::fs::{Mode, OFlags};
use std::io::{self, Read, Write};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::Path;

/// Where cgroup v2 is mounted.
const MOUNT: &str = "/sys/fs/cgroup";

/// Values for cgroup files, in the order of writing.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(super) struct Limits {
    /// Written before anything runs in the group.
    pub(super) before: Vec<(String, String)>,
    /// Written when the first process waits for its start: during set-up a quota would be felt, and there are two
    /// processes more than later.
    pub(super) after: Vec<(String, String)>,
}

impl Limits {
    /// The values of a spec's resources.
    pub(super) fn new(resources: Option<&LinuxResources>) -> Self {
        let mut limits = Self::default();
        let Some(resources) = resources else { return limits };
        let unlimited = |value: i64| if value < 0 { "max".to_owned() } else { value.to_string() };
        if let Some(limit) = resources.memory().as_ref().and_then(oci_spec::runtime::LinuxMemory::limit) {
            limits.before.push(("memory.max".to_owned(), unlimited(limit)));
        }
        for page in resources.hugepage_limits().iter().flatten() {
            limits.before.push((format!("hugetlb.{}.max", page.page_size()), page.limit().to_string()));
        }
        let mut unified: Vec<_> = resources.unified().iter().flatten().collect();
        unified.sort();
        for (file, value) in unified {
            let late = matches!(file.as_str(), "cpu.max" | "pids.max");
            let part = if late { &mut limits.after } else { &mut limits.before };
            part.push((file.clone(), value.clone()));
        }
        if let Some(cpu) = resources.cpu()
            && let Some(quota) = cpu.quota()
        {
            let period = cpu.period().unwrap_or(100_000);
            limits.after.push(("cpu.max".to_owned(), format!("{} {period}", unlimited(quota))));
        }
        if let Some(pids) = resources.pids() {
            limits.after.push(("pids.max".to_owned(), unlimited(pids.limit())));
        }
        limits
    }
}

/// A file that need not be there for this value: without the controller nothing is to be limited.
fn dispensable(file: &str, value: &str) -> bool {
    match file {
        "memory.oom.group" | "memory.swap.max" => true,
        "memory.high" | "pids.max" | "memory.max" => value == "max",
        "memory.low" | "memory.min" => value == "0",
        "cpu.weight" => true,
        file => file.starts_with("hugetlb.") && value == "0",
    }
}

/// A container's cgroup, held open.
#[derive(Debug)]
pub(super) struct Group {
    name: String,
    folder: OwnedFd,
}

impl Group {
    /// Opens the group that the spec names; makes it when the agent did not.
    pub(super) fn open(spec: &Spec) -> Result<Self, CreateError> {
        let path = spec.linux().as_ref().and_then(|linux| linux.cgroups_path().as_ref());
        let name = path.ok_or(CreateError::Missing("linux.cgroupsPath"))?.to_string_lossy().into_owned();
        let path = Path::new(MOUNT).join(name.trim_start_matches('/'));
        match std::fs::create_dir(&path) {
            Err(error) if error.kind() != io::ErrorKind::AlreadyExists => {
                return Err(CreateError::file("make cgroup", path)(error));
            }
            _ => {}
        }
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let folder = rustix::fs::open(&path, flags, Mode::empty())
            .map_err(|error| CreateError::file("open cgroup", &path)(error.into()))?;
        Ok(Self { name, folder })
    }

    /// Writes values.
    pub(super) fn write(&self, values: &[(String, String)]) -> Result<(), CreateError> {
        for (file, value) in values {
            match self.write_one(file, value) {
                Err(error) if error.kind() == io::ErrorKind::NotFound && dispensable(file, value) => {}
                Err(source) => {
                    let (cgroup, file, value) = (self.name.clone(), file.clone(), value.clone());
                    return Err(CreateError::Limit { cgroup, file, value, source });
                }
                Ok(()) => {}
            }
        }
        Ok(())
    }

    fn write_one(&self, file: &str, value: &str) -> io::Result<()> {
        let flags = OFlags::WRONLY | OFlags::CLOEXEC | OFlags::NOFOLLOW;
        let file = rustix::fs::openat(&self.folder, file, flags, Mode::empty())?;
        std::fs::File::from(file).write_all(value.as_bytes())
    }

    /// Enforces device rules on the group.
    pub(super) fn confine_devices(&self, rules: &[Rule]) -> Result<(), CreateError> {
        if devices::allow_everything(rules) {
            return Ok(());
        }
        let program = bpf::load_device_program(&devices::compile(rules))
            .map_err(CreateError::system("load the device program"))?;
        bpf::attach_device_program(&self.folder, program).map_err(CreateError::system("attach the device program"))
    }

    /// The group's folder, to be born in.
    pub(super) fn folder(&self) -> BorrowedFd<'_> {
        self.folder.as_fd()
    }

    /// Kills whatever is in it.
    pub(super) fn kill(&self) {
        let _ = self.write_one("cgroup.kill", "1");
    }

    /// How often the OOM killer was at work in the group above, where the count outlives this one.
    pub(super) fn oom_kills_above(&self) -> u64 {
        let read = || -> io::Result<String> {
            let flags = OFlags::RDONLY | OFlags::CLOEXEC;
            let file = rustix::fs::openat(&self.folder, "../memory.events", flags, Mode::empty())?;
            let mut text = String::new();
            std::fs::File::from(file).read_to_string(&mut text)?;
            Ok(text)
        };
        let text = read().unwrap_or_default();
        text.lines().find_map(|line| line.strip_prefix("oom_kill ")).and_then(|count| count.parse().ok()).unwrap_or(0)
    }
}
