//! Process 1 from its first instruction to the loop.

use super::cmdline::{self, Ip, Settings};
use super::{disk, mounts};
use crate::model::Millis;
use crate::sys::netlink::Netlink;
use crate::sys::{children, clock, signals, sysctl};
use std::ffi::OsString;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

/// The argument by which the binary knows that the initramfs is left.
const SECOND_STAGE: &str = "@init";
/// How long the data disk may take to be found: cards and USB disks answer late. Then the node has none.
const DISK_WAIT: Millis = Millis(30_000);
/// While it is looked for that is said this often.
const DISK_PROGRESS: Millis = Millis(5_000);
/// How long mounting it may take: the journal may have to be replayed.
const MOUNT_WAIT: Millis = Millis(60_000);
/// A disk that could not be mounted is tried again after this time, and later and later.
const FIRST_MOUNT_PAUSE: Millis = Millis(1_000);
const LONGEST_MOUNT_PAUSE: Millis = Millis(30_000);

/// What upstream's kubelet sets where it may (`setupKernelTunables` in
/// `pkg/kubelet/cm/container_manager_linux.go`): memory is promised freely and a limit of a cgroup stops no machine, a
/// kernel that has lost its way starts again, and the keys of all pods have room.
const TUNABLES: [(&str, &str); 6] = [
    ("vm.overcommit_memory", "1"),
    ("vm.panic_on_oom", "0"),
    ("kernel.panic", "10"),
    ("kernel.panic_on_oops", "1"),
    ("kernel.keys.root_maxkeys", "1000000"),
    ("kernel.keys.root_maxbytes", "25000000"),
];

/// Makes a Linux system out of a kernel. What fails is said, and left out: a node that runs half is better than none.
pub(crate) fn boot(args: &[OsString]) -> Settings {
    if !args.iter().any(|a| a == SECOND_STAGE) {
        mounts::early();
        mounts::load_modules();
        if mounts::on_initramfs() {
            let Err(e) = mounts::leave_initramfs(SECOND_STAGE);
            tracing::error!(error = %e, "the initramfs could not be left: containers will not start");
        }
    }
    mounts::late();
    let (settings, problems) = cmdline::parse(&fs::read_to_string("/proc/cmdline").unwrap_or_default());
    for word in problems {
        tracing::error!(word, "this argument of the kernel command line is not understood");
    }
    if let Err(e) = rustix::system::sethostname(settings.hostname.as_bytes()) {
        tracing::error!(error = %e, "the host name could not be set");
    }
    let hosts = format!("127.0.0.1 localhost\n::1 localhost\n127.0.1.1 {}\n", settings.hostname);
    for (file, text) in [("/etc/hostname", format!("{}\n", settings.hostname)), ("/etc/hosts", hosts)] {
        mounts::said("write", Path::new(file), fs::create_dir_all("/etc").and_then(|()| fs::write(file, text)));
    }
    set_tunables();
    loopback_up();
    if settings.data {
        data_disk();
    }
    // Ctrl-alt-del becomes a signal to this process. Not before: while a disk is waited for there is nothing to end in
    // order, and nobody to read the signal.
    if let Err(e) = rustix::system::reboot(rustix::system::RebootCommand::CadOff) {
        tracing::warn!(error = %e, "ctrl-alt-del stays with the kernel");
    }
    settings
}

fn set_tunables() {
    for (name, value) in TUNABLES {
        match sysctl::set(name, value) {
            // A kernel without keys has none to count.
            Err(e) if e.kind() == io::ErrorKind::NotFound => {}
            result => mounts::said("set", Path::new(name), result),
        }
    }
}

fn loopback_up() {
    let done = Netlink::open().and_then(|mut netlink| match netlink.link("lo")? {
        Some(lo) => netlink.set_up(lo.index, true),
        None => Ok(()),
    });
    if let Err(e) = done {
        tracing::error!(error = &e as &dyn std::error::Error, "the loopback link could not be brought up");
    }
}

/// What to do about the data disk next.
#[derive(Debug, PartialEq, Eq)]
enum Next {
    /// Wait for it to be found, for so long before it is said that it is still looked for.
    Wait(Millis),
    /// Mount this device.
    Mount(PathBuf),
    /// Go on without.
    Without,
}

/// A disk that was there once is waited for without end, whatever is wrong with it: with an empty store the node would
/// run again what has finished. `waited` is how long none has been found.
fn next(found: Option<PathBuf>, seen: bool, waited: Millis) -> Next {
    match found {
        Some(device) => Next::Mount(device),
        None if seen => Next::Wait(DISK_PROGRESS),
        None if waited >= DISK_WAIT => Next::Without,
        None => Next::Wait(Millis(DISK_WAIT.0.saturating_sub(waited.0).min(DISK_PROGRESS.0))),
    }
}

fn data_disk() {
    let begun = clock::now().boot;
    let (mut seen, mut pause) = (false, FIRST_MOUNT_PAUSE);
    let mut found = disk::find(disk::LABEL);
    loop {
        match next(found, seen, clock::now().boot.since(begun)) {
            Next::Without => {
                return tracing::warn!(
                    label = disk::LABEL,
                    "no data disk: state and images are lost at the next start"
                );
            }
            Next::Wait(limit) => {
                found = disk::wait_for(disk::LABEL, limit);
                if found.is_none() {
                    let seconds = clock::now().boot.since(begun).as_secs();
                    tracing::warn!(label = disk::LABEL, seconds, "still looking for the data disk");
                }
            }
            Next::Mount(device) => {
                seen = true;
                if mount_bounded(&device) {
                    return;
                }
                tracing::error!(device = %device.display(), seconds = pause.as_secs(), "the data disk is tried again");
                std::thread::sleep(std::time::Duration::from_millis(pause.0));
                pause = Millis(pause.0.saturating_mul(2).min(LONGEST_MOUNT_PAUSE.0));
                found = disk::find(disk::LABEL);
            }
        }
    }
}

/// Mounts the data disk in a child: a card that hangs must not hang process 1 without a word. `true`: it is mounted.
fn mount_bounded(device: &Path) -> bool {
    let folder = Path::new(disk::FOLDER);
    let mounter = children::fork(|| match disk::mount(device, folder) {
        Ok(()) => 0,
        Err(e) => {
            tracing::error!(device = %device.display(), error = %e, "the data disk could not be mounted");
            1
        }
    });
    match mounter {
        Ok(pid) => wait_or_kill(pid, MOUNT_WAIT, &|| {
            tracing::error!(device = %device.display(), "the data disk does not answer");
        }),
        Err(e) => tracing::error!(error = %e, "the data disk could not be mounted"),
    }
    // The child may have come as far as that before it was killed.
    mounts::is_mount(folder)
}

/// Waits for a child, kills it after `limit`, and comes back only when it is gone: what it was at must not be done later,
/// behind everybody's back. Inside a hanging disk's driver not even a kill ends it before the kernel gives up; that it
/// is waited for is said again and again.
fn wait_or_kill(pid: u32, limit: Millis, slow: &dyn Fn()) {
    while wait_bounded(pid, limit).is_none() && children::is_ours(pid) {
        slow();
        let _ = signals::send(pid, libc::SIGKILL);
    }
}

/// Waits for a child at most `limit`; one that takes longer is left behind.
pub(crate) fn wait_bounded(pid: u32, limit: Millis) -> Option<children::Ended> {
    let end = clock::now().boot + limit;
    let mut pause = 1;
    loop {
        match children::reap(pid) {
            Ok(Some(how)) => return Some(how),
            Ok(None) if clock::now().boot < end => {
                std::thread::sleep(std::time::Duration::from_millis(pause));
                pause = (pause * 2).min(50);
            }
            Ok(None) | Err(_) => return None,
        }
    }
}

/// The arguments of the role that keeps the Ethernet link's address; none if there is nothing to do.
pub(crate) fn network_role(settings: &Settings, line: &str) -> Option<Vec<String>> {
    let role = crate::model::supervise::role::DHCP.to_owned();
    match settings.ip {
        Ip::None => None,
        Ip::Dhcp => Some(vec![role, settings.link.clone()]),
        Ip::Static(_) => {
            let value = line.split_whitespace().filter_map(|w| w.strip_prefix("armlet.ip=")).next_back()?;
            Some(vec![role, settings.link.clone(), value.to_owned()])
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_disk_that_is_there_is_never_done_without() {
        let disk = || Some(PathBuf::from("/dev/vda"));
        for (found, seen, waited, wanted) in [
            (disk(), false, 0, Next::Mount("/dev/vda".into())),
            (disk(), false, 100_000, Next::Mount("/dev/vda".into())),
            (disk(), true, 100_000, Next::Mount("/dev/vda".into())),
            (None, false, 0, Next::Wait(Millis(5_000))),
            (None, false, 27_000, Next::Wait(Millis(3_000))),
            (None, false, 29_999, Next::Wait(Millis(1))),
            (None, false, 30_000, Next::Without),
            // It was there and could not be mounted, and was pulled out or lost its label since.
            (None, true, 0, Next::Wait(Millis(5_000))),
            (None, true, 1_000_000, Next::Wait(Millis(5_000))),
        ] {
            assert_eq!(next(found, seen, Millis(waited)), wanted, "{seen} {waited}");
        }
    }

    #[test]
    fn a_child_that_takes_too_long_is_killed_and_gone() {
        let pid = children::fork(|| {
            loop {
                rustix::event::pause();
            }
        })
        .unwrap();
        let told = std::cell::Cell::new(0);
        wait_or_kill(pid, Millis(20), &|| told.set(told.get() + 1));
        assert!(told.get() >= 1);
        assert!(!children::is_ours(pid), "it is reaped");
    }
}
