//! From the start of the kernel to the first instruction of a static pod, beside the kernel alone.

use crate::guest::{Failure, STEP, time};
use crate::rows::{Row, median, spread};
use armlet_vm::{Boot, Disk, Guest, Initramfs, Kind, binary};
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

/// Size of a block of the data disk.
const BLOCK: u64 = 4096;
const LOOK_AGAIN: Duration = Duration::from_millis(500);

/// `data` is the disk of a node that has the probe's image and an empty block in `bench/boot`.
pub(crate) fn row(
    bench: &Path,
    directory: &Path,
    data: &Path,
    rounds: usize,
    say: impl Fn(&str),
) -> Result<Row, Failure> {
    let node = with_manifest(&Initramfs::build(Kind::Node, Some(&binary()?))?, bench)?;
    let bare = Initramfs { path: bench.join("bare.cpio"), kind: Kind::Node };
    let offset = place_of_answer(data)?;
    let disk = Disk { path: directory.join("boot.img") };
    let (mut ours, mut peer) = (Vec::new(), Vec::new());
    for _ in 0..rounds {
        // The same state before each boot, with the disk's unused parts left out.
        let copied = Command::new("cp").arg("--sparse=always").arg(data).arg(&disk.path).status()?;
        if !copied.success() {
            return Err(format!("copying the data disk ended with {copied}").into());
        }
        let guest = Boot::new(&node, directory).data(&disk).start()?;
        ours.push(wait(&guest, || answer_on_disk(&disk.path, offset))?);
        guest.power_cut();
        let guest = Boot::new(&bare, directory).start()?;
        peer.push(wait(&guest, || Ok(time(&guest.console(), "first")))?);
        guest.wait_off(STEP)?;
    }
    say(&format!("boot, ms: to a pod {}; bare kernel {}", spread(&ours), spread(&peer)));
    Ok(Row::beside("boot_to_pod_ms", median(&ours), median(&peer), "ms", "difference <= 1000"))
}

/// The node's initramfs with the manifest behind: the kernel unpacks one archive after the other.
fn with_manifest(node: &Initramfs, bench: &Path) -> Result<Initramfs, Failure> {
    let path = bench.join("node.cpio");
    let mut bytes = std::fs::read(&node.path)?;
    bytes.extend(std::fs::read(bench.join("boot.cpio"))?);
    std::fs::write(&path, bytes)?;
    Ok(Initramfs { path, kind: Kind::Node })
}

/// Where on the disk the file lies into which the pod writes its time.
fn place_of_answer(data: &Path) -> Result<u64, Failure> {
    let path = std::env::var("PATH").unwrap_or_default() + ":/usr/sbin:/sbin";
    let output = Command::new("debugfs").env("PATH", path).args(["-R", "bmap /bench/boot 0"]).arg(data).output()?;
    let block: u64 = String::from_utf8_lossy(&output.stdout).trim().parse()?;
    if block == 0 { Err("the data disk has no place for the pod's time".into()) } else { Ok(block * BLOCK) }
}

fn answer_on_disk(disk: &Path, offset: u64) -> Result<Option<f64>, Failure> {
    let mut block = [0; 64];
    File::open(disk)?.read_exact_at(&mut block, offset)?;
    Ok(time(&String::from_utf8_lossy(&block), "first"))
}

/// Milliseconds, once there is an answer. Looks seldom, not to be in the way.
fn wait(guest: &Guest, answer: impl Fn() -> Result<Option<f64>, Failure>) -> Result<f64, Failure> {
    for _ in 0..STEP.as_millis() / LOOK_AGAIN.as_millis() {
        std::thread::sleep(LOOK_AGAIN);
        if let Some(nanoseconds) = answer()? {
            return Ok(nanoseconds / 1e6);
        }
    }
    Err(format!("the guest does not come up\n{}", guest.console()).into())
}
