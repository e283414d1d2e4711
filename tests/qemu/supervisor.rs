//! The supervisor's own test program, run in the guest: with fake children on a kernel with all controllers, then with
//! real containers.

use crate::guests::directory;
use armlet_vm::{Boot, Disk, Initramfs, Kind, root, target};
use std::path::PathBuf;
use std::process::Command;
use std::time::Duration;

/// Builds `tests/supervisor` for the guest.
fn program() -> PathBuf {
    let build = Command::new(root().join("cross/build.sh")).args(["qemu", "--test", "supervisor"]).output().unwrap();
    assert!(build.status.success(), "{}", String::from_utf8_lossy(&build.stderr));
    let folder = target().join("aarch64-unknown-linux-musl/qemu/deps");
    let programs = std::fs::read_dir(folder)
        .unwrap()
        .map(|e| e.unwrap())
        .filter(|e| e.file_name().to_str().is_some_and(|n| n.starts_with("supervisor-") && !n.contains('.')));
    programs.max_by_key(|e| e.metadata().unwrap().modified().unwrap()).unwrap().path()
}

#[test]
fn the_supervisor_holds_with_fake_and_with_real_children() {
    let directory = directory("supervisor");
    let files = directory.join("payload");
    std::fs::create_dir_all(&files).unwrap();
    std::fs::copy(program(), files.join("supervisor")).unwrap();
    let payload = Disk::make(&directory.join("payload.img"), 64, "armlet-payload", Some(&files)).unwrap();
    let data = Disk::make(&directory.join("data.img"), 256, "armlet-data", None).unwrap();
    let initramfs = Initramfs::build(Kind::Bare, None).unwrap();
    let guest = Boot::new(&initramfs, &directory).data(&data).payload(&payload).start().unwrap();
    for mode in ["", "@joint"] {
        let output = guest.run(&format!("/run/payload/supervisor {mode}"), Duration::from_secs(300)).unwrap();
        assert!(output.success(), "{mode}\n{}\n{}", output.stdout, output.stderr);
        print!("{}", output.stdout);
    }
}
