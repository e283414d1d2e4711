//! Process 1 from its first instruction to the loop.

use super::cmdline::{self, Ip, Settings};
use super::{disk, mounts};
use crate::model::Millis;
use crate::sys::netlink::Netlink;
use crate::sys::{children, clock};
use std::ffi::OsString;
use std::fs;
use std::path::Path;

/// The argument by which the binary knows that the initramfs is left.
const SECOND_STAGE: &str = "@init";
/// How long the data disk may take to be found: cards and USB disks answer late.
const DISK_WAIT: Millis = Millis(5_000);
/// How long mounting it may take: the journal may have to be replayed.
const MOUNT_WAIT: Millis = Millis(60_000);

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
    // Ctrl-alt-del becomes a signal to this process.
    if let Err(e) = rustix::system::reboot(rustix::system::RebootCommand::CadOff) {
        tracing::warn!(error = %e, "ctrl-alt-del stays with the kernel");
    }
    loopback_up();
    if settings.data {
        data_disk();
    }
    settings
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

fn data_disk() {
    let Some(device) = disk::wait_for(disk::LABEL, DISK_WAIT) else {
        return tracing::warn!(label = disk::LABEL, "no data disk: state and images are lost at the next start");
    };
    // In a child: a card that hangs must not hang process 1.
    let folder = Path::new(disk::FOLDER);
    let mounter = children::fork(|| match disk::mount(&device, folder) {
        Ok(()) => 0,
        Err(e) => {
            tracing::error!(device = %device.display(), error = %e, "the data disk could not be mounted");
            1
        }
    });
    match mounter.map(|pid| wait_bounded(pid, MOUNT_WAIT)) {
        Ok(Some(_)) => {}
        Ok(None) => tracing::error!(device = %device.display(), "the data disk does not answer"),
        Err(e) => tracing::error!(error = %e, "the data disk could not be mounted"),
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
