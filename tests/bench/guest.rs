//! The measured node and how it is asked.

use armlet_vm::{Boot, Disk, Guest, Initramfs, Kind, binary, root};
use std::path::{Path, PathBuf};
use std::time::Duration;

pub(crate) type Failure = Box<dyn std::error::Error>;

/// Enough for 110 pods.
const MEMORY_MIB: u32 = 2048;
const DATA_MIB: u64 = 2048;
/// What one measured step may take on a slow host.
pub(crate) const STEP: Duration = Duration::from_secs(300);

/// A node that runs, and the disk that outlives it.
pub(crate) struct Node {
    guest: Guest,
    pub(crate) data: PathBuf,
}

impl Node {
    /// Boots it with probe and peers at hand.
    pub(crate) fn boot(bench: &Path, directory: &Path) -> Result<Self, Failure> {
        let initramfs = Initramfs::build(Kind::Debug, Some(&binary()?))?;
        let data = Disk::make(&directory.join("data.img"), DATA_MIB, "armlet-data", None)?;
        let payload = Disk::make(&directory.join("payload.img"), 256, "armlet-payload", Some(&bench.join("payload")))?;
        let guest = Boot::new(&initramfs, directory).data(&data).payload(&payload).memory(MEMORY_MIB).start()?;
        for name in ["guest.sh", "pod.yaml"] {
            guest.write_file(&format!("/run/bench/{name}"), &std::fs::read(root().join("tests/bench").join(name))?);
        }
        let node = Self { guest, data: data.path };
        node.ask("prepare_node")?;
        Ok(node)
    }

    /// Runs a script with the functions of `guest.sh`; it must succeed.
    pub(crate) fn ask(&self, script: &str) -> Result<String, Failure> {
        let output = self.guest.run(&format!(". /run/bench/guest.sh\n{script}"), STEP)?;
        if output.success() {
            return Ok(output.stdout);
        }
        Err(format!(
            "in the guest, status {}: {script}\n{}{}\n{}",
            output.status,
            output.stdout,
            output.stderr,
            self.guest.console()
        )
        .into())
    }

    /// One number that a script prints.
    pub(crate) fn number(&self, script: &str) -> Result<f64, Failure> {
        Ok(self.ask(script)?.trim().parse()?)
    }

    /// Milliseconds from `start` to `first` in what a script prints.
    pub(crate) fn interval(&self, script: &str) -> Result<f64, Failure> {
        let text = self.ask(script)?;
        interval(&text).ok_or_else(|| format!("no times from {script}: {text}").into())
    }

    pub(crate) fn write_file(&self, path: &str, contents: &[u8]) {
        self.guest.write_file(path, contents);
    }

    /// Stops the pods and the node in order.
    pub(crate) fn power_off(self) -> Result<(), Failure> {
        self.guest.end_node("USR2")?;
        self.guest.wait_off(STEP)?;
        Ok(())
    }
}

/// The time that a line `NAME NANOSECONDS` tells.
pub(crate) fn time(text: &str, name: &str) -> Option<f64> {
    let mut words = text.split_whitespace();
    words.find(|word| *word == name)?;
    words.next()?.trim_end_matches('\0').parse().ok()
}

fn interval(text: &str) -> Option<f64> {
    Some((time(text, "first")? - time(text, "start")?) / 1e6)
}
