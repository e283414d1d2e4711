//! A bare guest in which armlet's processes are started by hand, each with its own log.

use super::node::{Node, data_files};
use crate::guests::directory;
use armlet_vm::{Boot, Disk, Initramfs, Kind, binary};
use std::path::PathBuf;
use std::time::Duration;

impl Node {
    /// Boots it. Neither a supervisor nor an agent runs yet.
    pub(super) fn by_hand() -> Self {
        Self::by_hand_with("survival-hand", &[("armlet", binary().unwrap())])
    }

    /// The same, in a folder of its own and with these files at `/run/payload`; the one named `armlet` is installed.
    pub(super) fn by_hand_with(name: &str, payload: &[(&str, PathBuf)]) -> Self {
        let directory = directory(name);
        let files = directory.join("payload");
        std::fs::create_dir_all(&files).unwrap();
        for (name, from) in payload {
            std::fs::copy(from, files.join(name)).unwrap();
        }
        let payload = Disk::make(&directory.join("payload.img"), 64, "armlet-payload", Some(&files)).unwrap();
        let data =
            Disk::make(&directory.join("data.img"), 512, "armlet-data", Some(&data_files(&directory, &[]))).unwrap();
        let initramfs = Initramfs::build(Kind::Bare, None).unwrap();
        let guest = Boot::new(&initramfs, &directory).data(&data).payload(&payload).start().unwrap();
        guest.ok("ln -sf /run/payload/armlet /run/debug/bin/armlet");
        guest.write_file("/run/keep-agent", include_bytes!("keep-agent.sh"));
        Self { guest }
    }

    pub(super) fn start_supervisor(&self) {
        self.guest.ok("setsid armlet supervisor </dev/null >>/run/supervisor.log 2>&1 &");
        self.guest.wait_until(
            "[ -S /run/armlet/supervisor.sock ] && grep -q . /sys/fs/cgroup/armlet/supervisor/cgroup.procs",
            Duration::from_secs(60),
        );
    }

    /// Keeps an agent running: one that ends is followed by the next at once.
    pub(super) fn start_agents(&self) {
        self.guest.ok("rm -f /run/no-agent; setsid sh /run/keep-agent </dev/null >>/run/agent.log 2>&1 &");
        self.guest.wait_until("armlet ps", Duration::from_secs(60));
    }

    /// Kills the agent; none follows.
    pub(super) fn stop_agents(&self) {
        self.guest.ok("touch /run/no-agent; kill -KILL $(cat /run/agent.pid)");
        self.guest.wait_until("! grep -q . /proc/$(cat /run/keeper.pid)/cmdline", Duration::from_secs(60));
    }
}
