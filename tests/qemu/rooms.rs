//! The tests beside the code of the rooms that speak to Linux, run once more where armlet runs: as root, on aarch64, with
//! cgroup v2. On the machine that builds they meet another processor and whatever cgroups its owner has.

use crate::guests::directory;
use armlet_vm::{Boot, Disk, Initramfs, Kind, root};
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::time::Duration;

/// The rooms whose tests depend on the system below.
const ROOMS: &str = "sys:: store:: images:: network:: volumes:: runtime:: supervisor:: observe::";

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

    let script = format!(
        "mkdir -p /var/lib/armlet/tmp && cd /root && TMPDIR=/var/lib/armlet/tmp ARMLET_TEST_ROOT=1 PROPTEST_CASES=16 \
         /run/payload/tests --test-threads=2 --skip real_ --skip of_real {ROOMS}"
    );
    let output = guest.run(&script, Duration::from_secs(600)).unwrap();
    assert!(output.success(), "{}\n{}", output.stdout, output.stderr);
    let summary = output.stdout.lines().find(|line| line.starts_with("test result: ok.")).unwrap_or_default();
    let passed: u32 = summary.split_whitespace().nth(3).and_then(|count| count.parse().ok()).unwrap_or_default();
    assert!(passed > 0, "no test ran:\n{}", output.stdout);
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
