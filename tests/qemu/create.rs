//! Real containers, made by the create child and entered by the exec child, with a small parent in the supervisor's
//! place (`create_parent.rs`).

#![expect(clippy::unwrap_used, reason = "a test that cannot go on says where")]

use crate::guests::{directory, runs_arm32};
use armlet_vm::{Boot, Disk, Guest, Initramfs, Kind, binary, programs, root, target};
use serde_json::{Value, json};
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU32, Ordering};

const ROOT: &str = "/var/lib/armlet/root";

/// Makes the layer that all containers here start from.
const MAKE_ROOT: &str = "
    mkdir -p $R/bin $R/etc $R/tmp $R/srv && cp /bin/busybox /run/payload/arm32 $R/bin/
    for a in sh cat ls id mknod head sleep echo true grep mount unshare stat stty tty dd wc hostname ps; do
        ln -s busybox $R/bin/$a
    done
    printf 'root:x:0:0:root:/root:/bin/sh\\nweb:x:33:33:web:/srv:/bin/sh\\n' >$R/etc/passwd
    printf 'root:x:0:\\nweb:x:33:\\nssl:x:101:web\\n' >$R/etc/group
    echo data >$R/etc/plain
    echo nonsense >$R/bin/nonsense && chmod 755 $R/bin/nonsense";

fn run(command: &mut Command) -> String {
    let output = command.stderr(Stdio::inherit()).output().unwrap();
    assert!(output.status.success(), "{command:?}");
    String::from_utf8(output.stdout).unwrap()
}

fn payload(folder: &Path) {
    std::fs::create_dir_all(folder).unwrap();
    std::fs::copy(binary().unwrap(), folder.join("armlet")).unwrap();
    let build = ["build", "--profile", "qemu", "--example", "create_parent"];
    run(Command::new(root().join("cross/cargo.sh")).args(build));
    let parent = programs().join("examples/create_parent");
    std::fs::copy(parent, folder.join("create_parent")).unwrap();
    run(Command::new(target().join("tools/python/bin/python"))
        .args(["-m", "ziglang", "cc", "-target", "arm-linux-musleabihf", "-static", "-Os", "-s", "-o"])
        .arg(folder.join("arm32"))
        .arg(root().join("tests/qemu/arm32.c"))
        .env("ZIG_GLOBAL_CACHE_DIR", target().join("tools/zig-cache")));
}

fn guest() -> &'static Guest {
    static GUEST: OnceLock<Guest> = OnceLock::new();
    GUEST.get_or_init(|| {
        let directory = directory("create");
        let folder = directory.join("payload");
        payload(&folder);
        let disk = Disk::make(&directory.join("payload.img"), 64, "armlet-payload", Some(&folder)).unwrap();
        let data = Disk::make(&directory.join("data.img"), 256, "armlet-data", None).unwrap();
        let initramfs = Initramfs::build(Kind::Bare, None).unwrap();
        let guest = Boot::new(&initramfs, &directory).data(&data).payload(&disk).start().unwrap();
        guest.ok(&format!("R={ROOT}; {MAKE_ROOT}"));
        guest
    })
}

fn case(command: &[&str]) -> Value {
    static COUNT: AtomicU32 = AtomicU32::new(0);
    let id = format!("{:08x}", COUNT.fetch_add(1, Ordering::Relaxed));
    let none = json!({"cpu": null, "memory": null, "ephemeral_storage": null, "hugepages": {}});
    let security = json!({
        "run_as_user": null, "run_as_group": null, "run_as_non_root": false, "groups": [], "strict_groups": false,
        "privileged": false, "no_new_privs": false, "read_only_root": false, "add_capabilities": [],
        "drop_capabilities": [], "seccomp": "RuntimeDefault",
    });
    let container = json!({
        "name": "c", "image": "c:1", "pull_policy": "IfNotPresent", "command": command, "args": [],
        "working_dir": null, "env": [["GREETING", "hello"]], "ports": [],
        "resources": {"requests": none, "limits": none}, "mounts": [], "liveness": null, "readiness": null,
        "startup": null, "termination_message_path": "/dev/termination-log", "termination_message_policy": "File",
        "restart_policy": null, "security": security, "stdin": false, "stdin_once": false, "tty": false,
    });
    let pod = json!({
        "uid": "test", "name": "p", "namespace": "default", "labels": {}, "annotations": {},
        "source": {"file": {"path": "/p.yaml", "document": 0}}, "manifest": null,
        "spec": {
            "init_containers": [], "containers": [], "volumes": [], "restart_policy": "Never",
            "termination_grace_secs": 30, "host_network": true, "hostname": null, "subdomain": null,
            "dns_policy": "Default", "dns": {"nameservers": [], "searches": [], "options": []}, "host_aliases": [],
            "fs_group": null, "sysctls": {}, "priority_class_name": null, "priority": 0, "overhead": none,
        },
    });
    json!({
        "id": id, "pod": pod, "container": container, "security": security, "lower": [ROOT], "cpu_max": null,
        "memory_max": null, "exec": null,
    })
}

/// Runs a case and gives everything that was reported and said.
fn outcome(case: &Value) -> String {
    let path = format!("/run/cases/{}.json", case["id"].as_str().unwrap());
    guest().write_file(&path, case.to_string().as_bytes());
    guest().ok(&format!("/run/payload/create_parent /run/payload/armlet {path} 2>&1"))
}

fn sh(script: &str, change: impl FnOnce(&mut Value)) -> String {
    let mut case = case(&["/bin/sh", "-c", script]);
    change(&mut case);
    outcome(&case)
}

const PRIVILEGES: &str = "grep -E 'Cap|NoNew|Seccomp:|Groups' /proc/self/status; id -u";

/// The lines of [`PRIVILEGES`].
fn privileges(groups: &str, bounding: u64, permitted: u64, no_new_privs: u32, seccomp: u32, uid: u32) -> String {
    format!(
        "Groups:\t{groups} \nCapInh:\t{:016x}\nCapPrm:\t{permitted:016x}\nCapEff:\t{permitted:016x}\n\
         CapBnd:\t{bounding:016x}\nCapAmb:\t{:016x}\nNoNewPrivs:\t{no_new_privs}\nSeccomp:\t{seccomp}\n{uid}\n",
        0, 0
    )
}

#[test]
fn a_program_has_exactly_the_privileges_it_was_given() {
    const DEFAULT: u64 = 0xa804_25fb;
    type Change = fn(&mut Value);
    let cases: [(&str, Change, String); 6] = [
        ("root", |_| {}, privileges("0", DEFAULT, DEFAULT, 0, 2, 0)),
        ("web", |case| case["security"]["run_as_user"] = json!(33), privileges("33 101", DEFAULT, 0, 0, 2, 33)),
        (
            "no new privileges",
            |case| {
                case["security"]["run_as_user"] = json!(33);
                case["security"]["no_new_privs"] = json!(true);
            },
            privileges("33 101", DEFAULT, 0, 1, 2, 33),
        ),
        (
            "one capability",
            |case| {
                case["security"]["drop_capabilities"] = json!(["ALL"]);
                case["security"]["add_capabilities"] = json!(["NET_BIND_SERVICE"]);
            },
            privileges("0", 0x400, 0x400, 0, 2, 0),
        ),
        (
            "unconfined",
            |case| case["security"]["seccomp"] = json!("Unconfined"),
            privileges("0", DEFAULT, DEFAULT, 0, 0, 0),
        ),
        (
            "privileged",
            |case| case["security"]["privileged"] = json!(true),
            privileges("0", 0x1ff_ffff_ffff, 0x1ff_ffff_ffff, 0, 0, 0),
        ),
    ];
    for (name, change, want) in cases {
        let got = sh(PRIVILEGES, change);
        assert_eq!(got, format!("create: started\n{want}create: Code(0)\n"), "{name}");
        // A program that joins later has the same.
        let mut joined = case(&["/bin/sleep", "1000"]);
        change(&mut joined);
        joined["exec"] = json!(["/bin/sh", "-c", PRIVILEGES]);
        let want = format!("create: started\nexec: started\n{want}exec: Code(0)\ncreate: Signal(9)\n");
        assert_eq!(outcome(&joined), want, "{name}, exec");
    }
}

#[test]
fn a_device_that_was_not_given_can_be_made_but_not_opened() {
    let script = "mknod /tmp/disk b 254 0 && mknod /tmp/kmsg c 1 11 && mknod /tmp/mem c 1 1 && echo made
        mknod /tmp/console c 5 1
        for node in disk kmsg mem console; do head -c 1 /tmp/$node >/dev/null 2>&1 || echo $node refused; done
        head -c 4 /dev/zero | wc -c";
    let want = "create: started\nmade\ndisk refused\nkmsg refused\nmem refused\nconsole refused\n4\ncreate: Code(0)\n";
    assert_eq!(sh(script, |_| {}), want);
    let opened = sh("mknod /tmp/disk b 254 0; head -c 4 /tmp/disk | wc -c", |case| {
        case["security"]["privileged"] = json!(true);
    });
    assert_eq!(opened, "create: started\n4\ncreate: Code(0)\n");
}

#[test]
fn what_cannot_run_says_why_as_other_runtimes_do() {
    let cannot = "ContainerCannotRun: unable to start container process: ";
    for (command, want) in [
        ("foo", format!("127 {cannot}exec: \"foo\": executable file not found in $PATH")),
        ("/no/such", format!("127 {cannot}exec: \"/no/such\": stat /no/such: no such file or directory")),
        ("/etc/plain", format!("126 {cannot}exec: \"/etc/plain\": permission denied")),
        ("/etc", format!("126 {cannot}exec: \"/etc\": is a directory")),
        ("/bin/nonsense", format!("126 {cannot}exec /bin/nonsense: exec format error")),
    ] {
        assert_eq!(outcome(&case(&[command])), format!("create: {want}\n"), "{command}");
        let mut joined = case(&["/bin/sleep", "1000"]);
        joined["exec"] = json!([command]);
        assert!(outcome(&joined).contains(&format!("exec: {want}\n")), "{command}, exec");
    }
    let mut tiny = case(&["/bin/true"]);
    tiny["memory_max"] = json!(262_144);
    let want = "create: 128 StartError: container's first process was OOM-killed during set-up: the memory limit of \
                262144 bytes is too low\n";
    assert_eq!(outcome(&tiny), want);
}

#[test]
fn limits_are_set_and_a_small_quota_does_not_slow_the_start() {
    let script = "cd /sys/fs/cgroup; for f in cpu.max cpu.weight memory.max memory.swap.max memory.oom.group; do
        echo $f $(cat $f); done; cat /proc/self/oom_score_adj /proc/self/cgroup";
    let mut limited = case(&["/bin/sh", "-c", script]);
    limited["cpu_max"] = json!([10_000, 100_000]);
    limited["memory_max"] = json!(67_108_864);
    let got = outcome(&limited);
    let want = "create: started\ncpu.max 10000 100000\ncpu.weight 35\nmemory.max 67108864\nmemory.swap.max 0\n\
                memory.oom.group 1\n900\n0::/\ncreate: Code(0)\n";
    assert_eq!(got, want);
    guest().ok(&format!("test ! -e /sys/fs/cgroup/kubepods/podtest/{}", limited["id"].as_str().unwrap()));
}

#[test]
fn terminals() {
    let script = "tty; stat -c %u /dev/pts/0; echo $TERM; echo to-it >/dev/console";
    let user = |case: &mut Value| {
        case["container"]["tty"] = json!(true);
        case["security"]["run_as_user"] = json!(33);
    };
    let lines = "/dev/pts/0\r\n33\r\nxterm\r\nto-it\r\n";
    assert_eq!(sh(script, user), format!("create: started\n{lines}create: Code(0)\n"));
}

#[test]
fn files_and_folders() {
    let got = sh("pwd; echo x >/file || echo refused; echo y >/tmp/f || echo refused; echo $GREETING $HOME", |case| {
        case["security"]["read_only_root"] = json!(true);
        case["security"]["run_as_user"] = json!(33);
        case["container"]["working_dir"] = json!("/made/here");
    });
    let got: Vec<&str> = got.lines().filter(|line| !line.contains("can't create")).collect();
    assert_eq!(got, ["create: started", "/made/here", "refused", "refused", "hello /srv", "create: Code(0)"]);
    let hidden =
        sh("cat /proc/kcore /proc/keys | wc -c; ls /sys/firmware | wc -l; echo 1 >/proc/sys/vm/swappiness", |_| {});
    assert!(hidden.contains("\n0\n0\n") && hidden.contains("Read-only file system"), "{hidden}");
    let streams = sh("echo through >/dev/stdout", |case| case["security"]["run_as_user"] = json!(33));
    assert_eq!(streams, "create: started\nthrough\ncreate: Code(0)\n");
}

/// A link to a descriptor of the process that becomes the program, in the image: as the working directory, and in the
/// program's path. Both would lead to the host's files (CVE-2024-21626).
#[test]
fn a_link_of_the_image_does_not_lead_out_of_the_container() {
    guest().ok("cp /bin/busybox /bin/outside; for n in $(seq 3 20); do mkdir -p /var/lib/armlet/links/$n && \
                ln -s /proc/self/fd/$n /var/lib/armlet/links/$n/w; done");
    for number in 3..=20 {
        let mut case_of = case(&["/bin/ls", "-d", ".", ".."]);
        case_of["container"]["working_dir"] = json!("/w");
        case_of["lower"] = json!([format!("/var/lib/armlet/links/{number}"), ROOT]);
        let got = outcome(&case_of);
        assert!(got.starts_with("create: 128 StartError") && !got.contains("started"), "{number}: {got}");

        let program = format!("/proc/self/fd/{number}/../../../../../../../../../bin/outside");
        let got = outcome(&case(&[&program, "echo", "out"]));
        assert!(got.starts_with("create: 12") && !got.contains("started"), "{number}: {got}");
    }
}

#[test]
fn refused_calls_and_32_bit_programs() {
    let refused = sh("mount -t tmpfs x /tmp; unshare -n true; hostname x; echo still here", |_| {});
    assert!(refused.contains("unshare(0x40000000): Operation not permitted"), "{refused}");
    assert!(refused.contains("still here") && refused.matches("not permitted").count() >= 2, "{refused}");
    if !runs_arm32() {
        return;
    }
    assert_eq!(outcome(&case(&["/bin/arm32"])), "create: started\n32 bits\ncreate: Code(0)\n");
}
