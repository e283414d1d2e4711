//! The tests beside the code of the rooms that speak to Linux, run once more where armlet runs: as root, on aarch64, with
//! cgroup v2. On the machine that builds they meet another processor and whatever cgroups its owner has.

use crate::guests::directory;
use armlet_vm::{Boot, Disk, Initramfs, Kind, root};
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::time::Duration;

/// The rooms whose tests depend on the system below, and how many of each have to pass at least: a filter that no longer
/// fits, or tests that are passed over, would go unnoticed.
const ROOMS: &[(&str, usize)] = &[
    ("sys", 48),
    ("store", 25),
    ("images", 32),
    ("network", 17),
    ("volumes", 14),
    ("runtime", 32),
    ("supervisor", 36),
    ("observe", 2),
    ("agent", 16),
];

#[test]
fn rooms_work_on_the_kernel_they_are_for() {
    let directory = directory("rooms");
    let files = directory.join("payload");
    std::fs::create_dir_all(&files).unwrap();
    std::fs::copy(test_program(), files.join("tests")).unwrap();
    let payload = Disk::make(&directory.join("payload.img"), 256, "armlet-payload", Some(&files)).unwrap();
    let data = Disk::make(&directory.join("data.img"), 512, "armlet-data", None).unwrap();
    let initramfs = Initramfs::build(Kind::Bare, None).unwrap();
    let guest = Boot::new(&initramfs, &directory).data(&data).payload(&payload).start().unwrap();

    let filters = ROOMS.iter().map(|(room, _)| format!("{room}::")).collect::<Vec<_>>().join(" ");
    let script = format!(
        "mkdir -p /var/lib/armlet/tmp && cd /root && TMPDIR=/var/lib/armlet/tmp ARMLET_TEST_ROOT=1 PROPTEST_CASES=16 \
         /run/payload/tests --test-threads=2 --skip real_ --skip of_real {filters}"
    );
    let output = guest.run(&script, Duration::from_secs(600)).unwrap();
    assert!(output.success(), "{}\n{}", output.stdout, output.stderr);
    for (room, least) in ROOMS {
        let own = format!("test {room}::");
        let passed = output.stdout.lines().filter(|line| line.starts_with(&own) && line.ends_with(" ... ok")).count();
        assert!(passed >= *least, "{room}: {passed} passed, {least} are wanted:\n{}", output.stdout);
    }
}

/// Builds the unit tests for the guest, with the profile of the binary under test: most of it is compiled already.
fn test_program() -> PathBuf {
    let output = Command::new(root().join("cross/cargo.sh"))
        .args(["test", "--no-run", "--profile", "qemu", "--lib", "--message-format=json"])
        .stderr(Stdio::inherit())
        .output()
        .unwrap();
    assert!(output.status.success(), "the unit tests do not build for the guest");
    String::from_utf8_lossy(&output.stdout)
        .lines()
        .filter_map(|line| serde_json::from_str::<serde_json::Value>(line).ok())
        .find_map(|message| Some(PathBuf::from(message.get("executable")?.as_str()?)))
        .unwrap()
}
