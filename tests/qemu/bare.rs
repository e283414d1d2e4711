//! The guest itself: what armlet expects of a kernel, and that the harness brings back what scripts do.

use crate::guests::bare;
use std::io::Read;
use std::net::TcpStream;
use std::time::Duration;

#[test]
fn the_kernel_has_what_armlet_needs() {
    let guest = bare();
    let release = guest.ok("uname -r");
    let mut numbers = release.split('.').map(|part| part.parse::<u32>().unwrap_or_default());
    assert!((numbers.next(), numbers.next()) >= (Some(6), Some(12)), "{release}");
    let controllers = guest.ok("cat /sys/fs/cgroup/cgroup.controllers");
    for controller in ["cpuset", "cpu", "io", "memory", "hugetlb", "pids"] {
        assert!(controllers.split_whitespace().any(|name| name == controller), "{controller} in {controllers}");
    }
    let filesystems = guest.ok("cat /proc/filesystems");
    for name in ["overlay", "ext4", "cgroup2"] {
        assert!(filesystems.contains(name), "{name} in {filesystems}");
    }
    guest.ok("ip link add veth-a type veth peer name veth-b && ip link del veth-a");
}

#[test]
fn a_script_brings_back_status_and_both_streams() {
    let output = bare().run("echo out; echo err >&2; exit 7", Duration::from_secs(10)).unwrap();
    assert_eq!((output.status, output.stdout.as_str(), output.stderr.as_str()), (7, "out\n", "err\n"));
}

#[test]
fn a_script_that_hangs_is_killed_at_its_limit() {
    let output = bare().run("echo begun; sleep 1000", Duration::from_secs(1)).unwrap();
    assert_eq!((output.status, output.stdout.as_str()), (137, "begun\n"));
}

#[test]
fn scripts_run_side_by_side() {
    let guest = bare();
    guest.ok("mkfifo /tmp/meeting");
    std::thread::scope(|scope| {
        let reader = scope.spawn(|| guest.ok("cat /tmp/meeting"));
        guest.ok("echo met >/tmp/meeting");
        assert_eq!(reader.join().unwrap(), "met\n");
    });
}

#[test]
fn a_file_arrives_whole_and_unchanged() {
    let guest = bare();
    let contents: Vec<u8> = (0..=255).cycle().take(20_000).collect();
    guest.write_file("/run/some/file", &contents);
    assert_eq!(guest.ok("stat -c %s /run/some/file && ls -A /run/some"), "20000\nfile\n");
    assert_eq!(
        guest.ok("head -c 512 /run/some/file | od -An -v -tu1 | tr -s ' \\n' ' '").split_whitespace().nth(511),
        Some("255")
    );
}

#[test]
fn the_host_reaches_a_forwarded_port() {
    let guest = bare();
    guest.ok("echo hello from the guest | nc -l -p 8080 >/dev/null 2>&1 &");
    guest.wait_until("netstat -ltn | grep -q :8080", Duration::from_secs(20));
    let mut text = String::new();
    TcpStream::connect(("127.0.0.1", guest.port(8080).unwrap())).unwrap().read_to_string(&mut text).unwrap();
    assert_eq!(text, "hello from the guest\n");
}
