//! The data disk, found by the label of its file system.

use crate::model::Millis;
use crate::sys::{clock, device};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::mount::MountFlags;
use std::fs;
use std::io;
use std::os::unix::fs::FileExt as _;
use std::path::{Path, PathBuf};

/// The label of the data disk's ext4.
pub(crate) const LABEL: &str = "armlet-data";
/// Where it is mounted.
pub(crate) const FOLDER: &str = "/var/lib/armlet";

/// The ext4 file system with this label among the block devices there are.
pub(crate) fn find(label: &str) -> Option<PathBuf> {
    let mut names: Vec<String> = fs::read_dir("/sys/class/block")
        .into_iter()
        .flatten()
        .flatten()
        .filter_map(|e| e.file_name().into_string().ok())
        .collect();
    // The same disk is found whatever order the kernel lists them in.
    names.sort();
    names.into_iter().map(|n| Path::new("/dev").join(n)).find(|device| has_label(device, label).unwrap_or(false))
}

/// Waits until the kernel has found a disk with this label, at most `limit`. Wakes only when a device appears.
pub(crate) fn wait_for(label: &str, limit: Millis) -> Option<PathBuf> {
    // Listened before it is looked, so that no device is missed in between.
    let events = match device::device_changes() {
        Ok(events) => events,
        Err(e) => {
            tracing::error!(error = %e, "new devices cannot be listened for");
            return find(label);
        }
    };
    let end = clock::now().boot + limit;
    loop {
        if let Some(found) = find(label) {
            return Some(found);
        }
        let left = end.since(clock::now().boot);
        if left == Millis(0) {
            return None;
        }
        let timeout = Timespec {
            tv_sec: i64::try_from(left.as_secs()).unwrap_or(0),
            tv_nsec: i64::try_from(left.0 % 1000 * 1_000_000).unwrap_or(0),
        };
        let _ = poll(&mut [PollFd::new(&events, PollFlags::IN)], Some(&timeout));
        let _ = device::forget_changes(&events);
    }
}

fn has_label(device: &Path, label: &str) -> io::Result<bool> {
    let mut block = [0; 1024];
    fs::File::open(device)?.read_exact_at(&mut block, 1024)?;
    Ok(ext4_label(&block) == Some(label.as_bytes()))
}

/// The label in an ext4 super block (which starts 1024 bytes into the device).
fn ext4_label(block: &[u8]) -> Option<&[u8]> {
    if block.get(0x38..0x3a)? != [0x53, 0xef] {
        return None;
    }
    let field = block.get(0x78..0x88)?;
    field.split(|b| *b == 0).next()
}

/// Mounts it: no access times (each would be a write), others with what else is written (a fact that is updated in place
/// would take the journal along), errors make it read-only rather than stop the node.
///
/// # Errors
/// Of mkdir and mount.
pub(crate) fn mount(device: &Path, folder: &Path) -> io::Result<()> {
    fs::create_dir_all(folder)?;
    let flags = MountFlags::NOATIME | MountFlags::LAZYTIME | MountFlags::NODEV;
    Ok(rustix::mount::mount(device, folder, "ext4", flags, Some(c"errors=remount-ro"))?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_label_is_read_from_the_super_block() {
        let mut block = [0_u8; 1024];
        assert_eq!(ext4_label(&block), None);
        block[0x38] = 0x53;
        block[0x39] = 0xef;
        assert_eq!(ext4_label(&block), Some(&b""[..]));
        block[0x78..0x83].copy_from_slice(b"armlet-data");
        assert_eq!(ext4_label(&block), Some(&b"armlet-data"[..]));
        block[0x78..0x88].copy_from_slice(b"sixteen-letters-");
        assert_eq!(ext4_label(&block), Some(&b"sixteen-letters-"[..]));
        assert_eq!(ext4_label(&block[..0x80]), None);
    }
}
