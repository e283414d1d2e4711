//! The guests that the tests of this program share.

use armlet_vm::{Boot, Disk, Guest, Initramfs, Kind, target};
use std::path::PathBuf;
use std::sync::OnceLock;

/// A folder for one guest's sockets, logs and disks. Its contents stay after a run: there is the console of a failed one.
pub(crate) fn directory(name: &str) -> PathBuf {
    let directory = target().join("vm/run").join(name);
    std::fs::create_dir_all(&directory).unwrap();
    directory
}

/// The guest without armlet: for parts that are tried alone.
pub(crate) fn bare() -> &'static Guest {
    static GUEST: OnceLock<Guest> = OnceLock::new();
    GUEST.get_or_init(|| {
        let directory = directory("bare");
        let data = Disk::make(&directory.join("data.img"), 256, "armlet-data", None).unwrap();
        let initramfs = Initramfs::build(Kind::Bare, None).unwrap();
        Boot::new(&initramfs, &directory).data(&data).forward(8080).start().unwrap()
    })
}
