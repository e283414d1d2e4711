//! Reads what a machine shows. The only part that touches the system; nothing that it does stays.

use super::board::{Board, BootFile, Clock, Module, Port, Space, Trial};
use crate::runtime::devices;
use crate::sys::netlink::{Mac, Netlink, Veth};
use crate::sys::{bpf, clock, log, machine, mounts, netns, overlay};
use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::os::fd::AsFd;
use std::path::{Path, PathBuf};

/// What the node uses of the kernel that may be a module.
const MODULES: [&str; 3] = ["overlay", "veth", "bridge"];

/// Where the firmware's file can be; on older systems it is right below `/boot`.
const BOOT_FILES: [&str; 2] = ["/boot/firmware/cmdline.txt", "/boot/cmdline.txt"];

/// Ports of the kubelet's API.
const PORTS: [(u16, &str); 2] = [(10250, "the node's API"), (10248, "the health check")];

/// Programs that run containers too, by the name of their process (`/proc/<pid>/comm`, 15 bytes).
const RUNTIMES: [&str; 9] =
    ["kubelet", "k3s", "k3s-server", "k3s-agent", "k0s", "microk8s", "dockerd", "containerd", "crio"];

/// What other node programs leave behind when they are not uninstalled with their own script.
const LEFTOVERS: [&str; 4] = ["/etc/cni/net.d", "/var/lib/rancher/k3s", "/var/lib/kubelet", "/run/flannel"];

/// `FS_MAGIC` of cgroup v2 (linux/magic.h).
const CGROUP2_MAGIC: u64 = 0x6367_7270;

/// `STATX`-free way to know a read-only mount (`ST_RDONLY`).
const READ_ONLY: rustix::fs::StatVfsMountFlags = rustix::fs::StatVfsMountFlags::RDONLY;

/// The folders that the node writes to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Places {
    /// What is durable.
    pub data: PathBuf,
    /// What a reboot makes void.
    pub run: PathBuf,
    /// Container logs.
    pub logs: PathBuf,
}

/// Looks. Without root some things cannot be tried, and the board says so.
#[must_use]
pub fn look(places: &Places) -> Board {
    let text = |path: &str| fs::read_to_string(path).unwrap_or_default();
    let words = |path: &str| text(path).split_whitespace().map(str::to_owned).collect::<Vec<_>>();
    let uname = rustix::system::uname();
    let kernel = uname.release().to_string_lossy().into_owned();
    let root = rustix::process::geteuid().is_root();
    Board {
        root,
        model: fs::read_to_string("/proc/device-tree/model").ok().map(|name| name.trim_end_matches('\0').to_owned()),
        machine: machine::name(),
        page_size: u64::try_from(rustix::param::page_size()).unwrap_or(0),
        memory: memory(&text("/proc/meminfo")),
        swap: text("/proc/swaps").lines().count() > 1,
        cmdline: text("/proc/cmdline").trim_end().to_owned(),
        boot_file: BOOT_FILES.iter().find_map(|path| {
            let text = fs::read_to_string(path).ok()?;
            Some(BootFile { path: path.into(), text })
        }),
        cgroup2: rustix::fs::statfs("/sys/fs/cgroup").is_ok_and(|fs| u64::try_from(fs.f_type) == Ok(CGROUP2_MAGIC)),
        controllers: words("/sys/fs/cgroup/cgroup.controllers"),
        namespaces: names("/proc/self/ns"),
        user_namespaces: text("/proc/sys/user/max_user_namespaces").trim().parse().ok(),
        seccomp: words("/proc/sys/kernel/seccomp/actions_avail"),
        overlay: trial(root, || try_overlay(&places.data)),
        device_program: trial(root, || {
            bpf::load_device_program(&devices::compile(&devices::default_rules())).map(drop)
        }),
        links: trial(root, try_links),
        arm32: machine::runs_arm32(),
        pressure: Path::new("/proc/pressure/memory").exists(),
        modules: modules(&kernel),
        clock: Clock { seconds: clock::now().wall.0 / 1_000_000_000, synchronised: clock::synchronised() },
        spaces: [
            ("images, volumes and state", &places.data),
            ("what lives until the next boot", &places.run),
            ("container logs", &places.logs),
        ]
        .into_iter()
        .filter_map(|(purpose, path)| space(purpose, path))
        .collect(),
        ports: listening(&[text("/proc/net/tcp"), text("/proc/net/tcp6")]),
        runtimes: running(),
        leftovers: LEFTOVERS.iter().map(PathBuf::from).filter(|path| has_something(path)).collect(),
        kernel,
    }
}

/// Only root can try, and a full disk says nothing of what was tried: its space is told by itself.
fn trial(root: bool, work: impl FnOnce() -> io::Result<()>) -> Trial {
    match root.then(work) {
        None => Trial::NotTried,
        Some(Err(error)) if matches!(error.kind(), io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded) => {
            Trial::NotTried
        }
        Some(Ok(())) => Trial::Works,
        Some(Err(error)) => Trial::Fails(error.to_string()),
    }
}

/// Makes what a pod's network is made of in two network namespaces, which take it along when they go.
fn try_links() -> io::Result<()> {
    const ADDRESS: [Mac; 2] = [Mac([2, 0, 0, 0, 0, 1]), Mac([2, 0, 0, 0, 0, 2])];
    let namespace = || netns::create().map_err(|error| io::Error::other(format!("no network namespace: {error}")));
    let (node, pod) = (namespace()?, namespace()?);
    let made = || -> crate::sys::netlink::Result<()> {
        let mut netlink = Netlink::open_in(&node)?;
        netlink.add_bridge("trial", ADDRESS[0], 1500)?;
        let master = netlink.link("trial")?.map_or(0, |bridge| bridge.index);
        netlink.add_veth(&Veth {
            name: "trial0",
            peer_name: "eth0",
            peer_netns: pod.as_fd(),
            peer_mac: ADDRESS[1],
            mtu: 1500,
            master,
        })
    };
    made().map_err(|error| io::Error::other(log::chain(&error)))
}

fn memory(meminfo: &str) -> u64 {
    let line = meminfo.lines().find_map(|line| line.strip_prefix("MemTotal:"));
    line.and_then(|rest| rest.split_whitespace().next()?.parse::<u64>().ok()).unwrap_or(0).saturating_mul(1024)
}

fn names(folder: &str) -> Vec<String> {
    let entries = fs::read_dir(folder).into_iter().flatten().flatten();
    let mut names: Vec<_> = entries.filter_map(|entry| entry.file_name().into_string().ok()).collect();
    names.sort();
    names
}

fn has_something(folder: &Path) -> bool {
    fs::read_dir(folder).is_ok_and(|mut entries| entries.next().is_some())
}

/// The nearest folder above that is there already.
fn nearest(path: &Path) -> Option<&Path> {
    path.ancestors().find(|path| path.is_dir())
}

/// Mounts an overlay on the file system that will hold containers, in a mount namespace that ends with the trial.
fn try_overlay(data: &Path) -> io::Result<()> {
    let folder = nearest(data).ok_or(io::ErrorKind::NotFound)?;
    let trial = folder.join(format!(".armlet-check-{}", std::process::id()));
    let part = |name: &str| trial.join(name);
    let mounted = || -> io::Result<()> {
        for name in ["lower", "upper", "work", "root"] {
            fs::create_dir_all(part(name))?;
        }
        fs::write(part("lower/file"), "below")?;
        overlay::private_namespace()?;
        let lower = [part("lower")];
        overlay::mount(overlay::Overlay { lower: &lower, upper: &part("upper"), work: &part("work") }, &part("root"))?;
        let seen = fs::read(part("root/file")).and_then(|_| fs::write(part("root/new"), "above"));
        mounts::unmount_all(&part("root"))?;
        seen
    };
    let done = mounted();
    // A work folder has a folder without permissions in it: root may remove it all the same.
    let gone = fs::remove_dir_all(&trial);
    done.and(gone)
}

fn modules(kernel: &str) -> BTreeMap<String, Module> {
    let folder = Path::new("/lib/modules").join(kernel);
    let lists =
        ["modules.builtin", "modules.dep"].map(|name| fs::read_to_string(folder.join(name)).unwrap_or_default());
    let filesystems = fs::read_to_string("/proc/filesystems").unwrap_or_default();
    let own = fs::read_to_string("/lib/armlet/modules/order").unwrap_or_default();
    let state = |name: &str| {
        let listed = |list: &str| list.lines().any(|line| is_module(line, name));
        let [builtin, loadable] = &lists;
        if Path::new("/sys/module").join(name).is_dir()
            || filesystems.split_whitespace().any(|word| word == name)
            || listed(builtin)
        {
            Module::Present
        } else if listed(loadable) || listed(&own) {
            Module::Loadable
        } else {
            Module::Missing
        }
    };
    MODULES.iter().map(|name| ((*name).to_owned(), state(name))).collect()
}

/// Whether a line of a module list, such as `kernel/fs/overlayfs/overlay.ko.xz: ...`, is the module's.
fn is_module(line: &str, name: &str) -> bool {
    let path = line.split(':').next().unwrap_or_default();
    let file = path.rsplit('/').next().unwrap_or_default();
    file.strip_prefix(name).is_some_and(|rest| rest.is_empty() || rest.starts_with(".ko"))
}

fn space(purpose: &str, path: &Path) -> Option<Space> {
    let fs = rustix::fs::statvfs(nearest(path)?).ok()?;
    Some(Space {
        purpose: purpose.to_owned(),
        path: path.to_owned(),
        size: fs.f_blocks.saturating_mul(fs.f_frsize),
        free: fs.f_bavail.saturating_mul(fs.f_frsize),
        inodes: (fs.f_files > 0).then_some(fs.f_favail),
        read_only: fs.f_flag.contains(READ_ONLY),
    })
}

/// Which of [`PORTS`] the tables of sockets name as listened on.
fn listening(tables: &[String]) -> Vec<Port> {
    let numbers: Vec<u16> = tables.iter().flat_map(|table| table.lines().filter_map(listened)).collect();
    let taken = PORTS.iter().filter(|(number, _)| numbers.contains(number));
    taken.map(|(number, purpose)| Port { number: *number, purpose: (*purpose).to_owned() }).collect()
}

/// The local port of a line of `/proc/net/tcp` in state LISTEN.
fn listened(line: &str) -> Option<u16> {
    let mut fields = line.split_whitespace().skip(1);
    let (_, port) = fields.next()?.rsplit_once(':')?;
    let state = fields.nth(1)?;
    (state == "0A").then(|| u16::from_str_radix(port, 16).ok())?
}

fn running() -> Vec<String> {
    let processes = fs::read_dir("/proc").into_iter().flatten().flatten();
    let names = processes.filter_map(|entry| {
        let is_process = entry.file_name().to_str()?.bytes().all(|b| b.is_ascii_digit());
        is_process.then(|| fs::read_to_string(entry.path().join("comm")).ok()).flatten()
    });
    let mut found: Vec<String> =
        names.map(|name| name.trim().to_owned()).filter(|name| RUNTIMES.contains(&name.as_str())).collect();
    found.sort();
    found.dedup();
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sockets_that_listen_are_told_from_others() {
        let line = |port: &str, state: &str| format!("   0: 00000000:{port} 00000000:0000 {state} 00000000:00000000");
        assert_eq!(listened(&line("280A", "0A")), Some(10250));
        assert_eq!(listened(&line("280A", "01")), None);
        assert_eq!(listened("  sl  local_address rem_address   st"), None);
        assert_eq!(listened(""), None);
        let v6 = "   0: 00000000000000000000000000000000:2808 00000000000000000000000000000000:0000 0A";
        let found = listening(&[String::new(), v6.to_owned()]);
        assert_eq!(found.iter().map(|port| port.number).collect::<Vec<_>>(), [10248]);
    }

    #[test]
    fn lists_of_modules_are_read_by_the_files_name() {
        for (line, is) in [
            ("kernel/fs/overlayfs/overlay.ko", true),
            ("kernel/fs/overlayfs/overlay.ko.xz: kernel/a.ko", true),
            ("overlay", true),
            ("kernel/fs/overlayfs/overlay2.ko", false),
            ("kernel/drivers/x.ko: kernel/fs/overlayfs/overlay.ko", false),
            ("", false),
        ] {
            assert_eq!(is_module(line, "overlay"), is, "{line:?}");
        }
    }

    #[test]
    fn this_machine_shows_something_and_nothing_stays() {
        let folder = tempfile::tempdir().unwrap();
        let data = folder.path().join("not/yet/made");
        let places = Places { data, run: "/run".into(), logs: "/var/log/pods".into() };
        let board = look(&places);
        assert!(board.memory > 0 && board.page_size >= 4096 && !board.machine.is_empty());
        assert_eq!(board.spaces.len(), 3);
        assert!(board.namespaces.iter().any(|name| name == "net"));
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 0);
    }
}
