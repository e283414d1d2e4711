//! The supervisor's own test program, run in the guest: with fake children on a kernel with all controllers, then with
//! real containers.

use crate::guests::directory;
use armlet_vm::{Boot, Disk, Initramfs, Kind, root};
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::time::Duration;

/// Builds `tests/supervisor` for the guest.
fn program() -> PathBuf {
    let output = Command::new(root().join("cross/cargo.sh"))
        .args(["test", "--no-run", "--profile", "qemu", "--test", "supervisor", "--message-format=json"])
        .stderr(Stdio::inherit())
        .output()
        .unwrap();
    assert!(output.status.success(), "the supervisor's test program does not build for the guest");
    String::from_utf8_lossy(&output.stdout)
        .lines()
        .filter_map(|line| serde_json::from_str::<serde_json::Value>(line).ok())
        .filter(|message| message["target"]["name"] == "supervisor")
        .find_map(|message| Some(PathBuf::from(message["executable"].as_str()?)))
        .unwrap()
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
