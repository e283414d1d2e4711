//! What armlet does as process 1 before there is an agent.

use crate::guests::directory;
use armlet_vm::{Boot, Disk, Initramfs, Kind, binary};
use std::os::unix::fs::FileExt as _;
use std::path::Path;
use std::time::Duration;

const PATIENCE: Duration = Duration::from_secs(120);
/// Where an ext4 has the features without which it cannot be understood (`s_feature_incompat`).
const FEATURES: u64 = 1024 + 0x60;

/// Makes a file system one that no kernel mounts. Gives what the bytes were.
fn spoil(disk: &Path) -> [u8; 4] {
    let file = std::fs::File::options().read(true).write(true).open(disk).unwrap();
    let mut was = [0; 4];
    file.read_exact_at(&mut was, FEATURES).unwrap();
    file.write_all_at(&[0xff; 4], FEATURES).unwrap();
    was
}

/// One boot: a disk that is there and does not mount is waited for, then a fixed address is set, as are the kernel's
/// settings, and SIGPWR switches the machine off.
#[test]
fn a_disk_is_waited_for_and_a_fixed_address_set() {
    let directory = directory("process-one");
    let data = Disk::make(&directory.join("data.img"), 64, "armlet-data", None).unwrap();
    let was = spoil(&data.path);
    let initramfs = Initramfs::build(Kind::Debug, Some(&binary().unwrap())).unwrap();
    let guest = Boot::new(&initramfs, &directory)
        .data(&data)
        .append("armlet.ip=10.0.2.15/24,10.0.2.2,10.0.2.3")
        .append("armlet.hostname=fixed")
        .start()
        .unwrap();

    // The kernel says why at each try.
    guest.wait_until("[ $(dmesg | grep -c 'EXT4-fs (vda)') -ge 2 ]", PATIENCE);
    guest.ok("[ ! -e /sys/fs/cgroup/armlet ] && ! grep -q ' /var/lib/armlet ' /proc/mounts");
    let told = guest.console();
    assert!(told.contains("the data disk could not be mounted") && told.contains("is tried again"), "{told}");
    let bytes: String = was.iter().map(|byte| format!("\\\\{byte:03o}")).collect();
    guest.ok(&format!("printf {bytes} | dd of=/dev/vda bs=1 seek={FEATURES} conv=notrunc && sync"));
    guest.wait_until("armlet version", PATIENCE);
    guest.ok("grep -q '^/dev/vda /var/lib/armlet ext4 ' /proc/mounts && test -d /var/lib/armlet/store");

    guest.wait_until("ip -4 addr show dev eth0 | grep -q 'inet 10.0.2.15/24 '", PATIENCE);
    guest.wait_until("ip route | grep -q '^default via 10.0.2.2 dev eth0 '", PATIENCE);
    assert_eq!(guest.ok("cat /etc/resolv.conf; hostname"), "nameserver 10.0.2.3\nfixed\n");
    guest.ok("ping -c 1 -W 20 10.0.2.2");
    // Nobody is needed to keep it.
    guest.wait_until("[ -z \"$(cat /sys/fs/cgroup/armlet/network/cgroup.procs)\" ]", PATIENCE);

    let settings = "cd /proc/sys && cat vm/overcommit_memory vm/panic_on_oom kernel/panic kernel/panic_on_oops \
                    kernel/keys/root_maxkeys kernel/keys/root_maxbytes";
    assert_eq!(guest.ok(settings), "1\n0\n10\n1\n1000000\n25000000\n");

    // The script may end with the machine.
    guest.end_node("PWR").expect("process 1 takes a signal");
    assert!(guest.wait_off(PATIENCE).unwrap().success());
}
