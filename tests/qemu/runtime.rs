//! What a container finds around it, and what it cannot do: looked at from inside, in pods on a real node.

use crate::pod_node::{PATIENCE, Pod, among_others, condition, container, container_group, ended, node, waiting};
use armlet_vm::Arch;
use std::collections::BTreeMap;

/// A field of `/proc/<pid>/status`.
#[track_caller]
fn field<'a>(status: &'a str, name: &str) -> &'a str {
    let line = status.lines().find_map(|line| line.strip_prefix(&format!("{name}:")));
    line.unwrap_or_else(|| panic!("no {name} in:\n{status}")).trim()
}

const NAMESPACES: [&str; 7] = ["cgroup", "ipc", "mnt", "net", "pid", "user", "uts"];

/// A script that prints the namespaces of process 1, one a line.
fn namespaces_script() -> String {
    NAMESPACES.map(|name| format!("readlink /proc/1/ns/{name}")).join("; ")
}

fn namespaces(text: &str) -> BTreeMap<&'static str, String> {
    NAMESPACES.into_iter().zip(text.lines().map(str::to_owned)).collect()
}

/// "net, ipc, uts, pid, mount, cgroup namespaces, pod-wide /dev/shm"; "hostNetwork pods"; "managed /etc/hosts,
/// resolv.conf, hostname".
#[test]
fn containers_of_a_pod_share_what_a_pod_shares() {
    let _pods = among_others();
    let pod = Pod::new(
        "shared",
        r#"
hostname: a-name
terminationGracePeriodSeconds: 1
dnsPolicy: None
dnsConfig: {nameservers: [192.0.2.53], searches: [example.org], options: [{name: ndots, value: "3"}]}
hostAliases: [{ip: 192.0.2.7, hostnames: [seven, sieben]}]
containers:
- {name: one, image: "localhost/busybox:trixie", command: [sleep, "100000"]}
- {name: two, image: "localhost/busybox:trixie", command: [sleep, "100000"]}
"#,
    );
    let host = Pod::new(
        "host",
        "hostNetwork: true\nterminationGracePeriodSeconds: 1\ncontainers:\n- {name: main, image: \"localhost/busybox:trixie\", command: [sleep, \"100000\"]}\n",
    );
    let ready = pod.until_ready();
    let script = namespaces_script();
    let node_has = namespaces(&node().ok(&script));
    let [one, two] = ["one", "two"].map(|name| namespaces(&pod.exec(name, &script)));
    for name in ["net", "ipc", "uts"] {
        assert_eq!(one[name], two[name], "{name}");
        assert_ne!(one[name], node_has[name], "{name}");
    }
    for name in ["pid", "mnt", "cgroup"] {
        assert_ne!(one[name], two[name], "{name}");
        assert_ne!(one[name], node_has[name], "{name}");
    }
    assert_eq!(one["user"], node_has["user"]);

    pod.exec("one", "echo told >/dev/shm/word");
    assert_eq!(
        pod.exec("two", "cat /dev/shm/word; df -k /dev/shm | tail -n 1 | tr -s ' ' | cut -d' ' -f2"),
        "told\n65536\n"
    );
    assert_eq!(pod.exec("one", "cat /proc/1/cgroup; tr '\\0' ' ' </proc/1/cmdline"), "0::/\nsleep 100000 ");

    let address = ready["status"]["podIP"].as_str().unwrap();
    assert_eq!(pod.exec("one", "hostname; cat /etc/hostname"), "a-name\na-name\n");
    assert_eq!(
        pod.exec("one", "cat /etc/hosts"),
        format!(
            "# Kubernetes-managed hosts file.\n127.0.0.1\tlocalhost\n::1\tlocalhost ip6-localhost ip6-loopback\n\
             fe00::0\tip6-localnet\nfe00::0\tip6-mcastprefix\nfe00::1\tip6-allnodes\nfe00::2\tip6-allrouters\n\
             {address}\ta-name\n\n# Entries added by HostAliases.\n192.0.2.7\tseven\tsieben\n"
        )
    );
    let resolver = pod.exec("two", "cat /etc/resolv.conf");
    let mut lines: Vec<_> = resolver.lines().collect();
    lines.sort_unstable();
    assert_eq!(lines, ["nameserver 192.0.2.53", "options ndots:3", "search example.org"]);
    assert!(pod.exec("two", "ip -4 addr show eth0").contains(address));

    let ready = host.until_ready();
    let host_has = namespaces(&host.exec("main", &script));
    for name in ["net", "uts"] {
        assert_eq!(host_has[name], node_has[name], "{name}");
    }
    for name in ["ipc", "pid", "mnt", "cgroup"] {
        assert_ne!(host_has[name], node_has[name], "{name}");
    }
    assert_eq!(ready["status"]["podIP"], ready["status"]["hostIP"]);
    assert!(host.exec("main", "cat /etc/hosts").starts_with("# Kubernetes-managed hosts file (host network).\n"));
}

/// Machine code that makes one system call, with all arguments zero, and exits with the error number; and the machine's
/// number in the header of a program.
fn syscall_code(number: u16) -> (Vec<u8>, u16) {
    match Arch::current() {
        Arch::Aarch64 => {
            let load_number = |number: u16| 0xd280_0008_u32 | (u32::from(number) << 5);
            let (call, negate) = (0xd400_0001_u32, 0xcb00_03e0_u32);
            let clear = (0..6_u32).map(|register| 0xd280_0000 | register);
            let code = clear.chain([load_number(number), call, negate, load_number(93), call]);
            (code.flat_map(u32::to_le_bytes).collect(), 183)
        }
        Arch::X86_64 => {
            let clear = [0x31, 0xff, 0x31, 0xf6, 0x31, 0xd2, 0x4d, 0x31, 0xd2, 0x4d, 0x31, 0xc0, 0x4d, 0x31, 0xc9];
            let load_number = |number: u16| [&[0xb8][..], &u32::from(number).to_le_bytes()].concat();
            // Then `neg eax; mov edi, eax`.
            let (call, negate) = (&[0x0f, 0x05][..], &[0xf7, 0xd8, 0x89, 0xc7][..]);
            ([&clear, &load_number(number)[..], call, negate, &load_number(60), call].concat(), 62)
        }
    }
}

/// A static program of nothing but [`syscall_code`].
fn syscall_program(number: u16) -> Vec<u8> {
    const LOAD_AT: u64 = 0x40_0000;
    let (code, machine) = syscall_code(number);
    let (header, segment) = (64_u64, 56_u64);
    let size = header + segment + code.len() as u64;
    let mut file = b"\x7fELF\x02\x01\x01\0\0\0\0\0\0\0\0\0".to_vec();
    let half = |file: &mut Vec<u8>, value: u16| file.extend(value.to_le_bytes());
    let word = |file: &mut Vec<u8>, value: u32| file.extend(value.to_le_bytes());
    let long = |file: &mut Vec<u8>, value: u64| file.extend(value.to_le_bytes());
    half(&mut file, 2);
    half(&mut file, machine);
    word(&mut file, 1);
    long(&mut file, LOAD_AT + header + segment);
    long(&mut file, header);
    long(&mut file, 0);
    word(&mut file, 0);
    for value in [64, 56, 1, 0, 0, 0] {
        half(&mut file, value);
    }
    word(&mut file, 1);
    word(&mut file, 5);
    for value in [0, LOAD_AT, LOAD_AT, size, size, 0x1000] {
        long(&mut file, value);
    }
    file.extend(code);
    file
}

/// `add_key(2)`: with all arguments zero EFAULT, unless it is filtered.
fn blocked() -> u16 {
    match Arch::current() {
        Arch::Aarch64 => 217,
        Arch::X86_64 => 248,
    }
}
/// No kernel has this one.
const UNKNOWN: u16 = 600;
const EPERM: &str = "1";
const EFAULT: &str = "14";
const ENOSYS: &str = "38";

/// "capabilities; seccomp RuntimeDefault when the pod asks, unknown newer syscalls ENOSYS; no_new_privs only when
/// allowPrivilegeEscalation is false"; and exec gives a program exactly what the container has.
#[test]
fn privileges_are_those_that_were_asked_for() {
    let _pods = among_others();
    for (name, number) in [("blocked", blocked()), ("unknown", UNKNOWN)] {
        node().write_file(&format!("/var/lib/tools/{name}"), &syscall_program(number));
    }
    node().ok("chmod 755 /var/lib/tools/*");
    let pod = Pod::new(
        "privileges",
        r#"
terminationGracePeriodSeconds: 1
volumes: [{name: tools, hostPath: {path: /var/lib/tools, type: Directory}}]
containers:
- name: default
  image: localhost/busybox:trixie
  command: &sleep [sleep, "100000"]
  volumeMounts: &tools [{name: tools, mountPath: /tools, readOnly: true}]
- name: changed
  image: localhost/busybox:trixie
  command: *sleep
  securityContext: {capabilities: {add: [NET_ADMIN], drop: [CHOWN, MKNOD]}}
- name: none
  image: localhost/busybox:trixie
  command: *sleep
  volumeMounts: *tools
  securityContext: {allowPrivilegeEscalation: false, runAsUser: 1000, capabilities: {drop: [ALL]}, seccompProfile: {type: RuntimeDefault}}
- name: all
  image: localhost/busybox:trixie
  command: *sleep
  securityContext: {capabilities: {add: [ALL]}}
- name: user
  image: localhost/busybox:trixie
  command: *sleep
  volumeMounts: *tools
  securityContext: {runAsUser: 1000, seccompProfile: {type: RuntimeDefault}}
- name: privileged
  image: localhost/busybox:trixie
  command: *sleep
  volumeMounts: *tools
  securityContext: {privileged: true}
"#,
    );
    pod.until_ready();
    let default = 0xa804_25fb_u64;
    let all = u64::from_str_radix(field(&node().ok("cat /proc/1/status"), "CapPrm"), 16).unwrap();
    let (chown, mknod, net_admin) = (1 << 0, 1 << 27, 1 << 12);
    let changed = (default | net_admin) & !chown & !mknod;
    // Bounding set, effective set, seccomp mode, no_new_privs.
    for (name, bounding, effective, seccomp, no_new_privs) in [
        ("default", default, default, "0", "0"),
        ("changed", changed, changed, "0", "0"),
        ("none", 0, 0, "2", "1"),
        ("all", all, all, "0", "0"),
        ("user", default, 0, "2", "0"),
        ("privileged", all, all, "0", "0"),
    ] {
        for process in ["1", "self"] {
            let status = pod.exec(name, &format!("cat /proc/{process}/status"));
            let set = |name| u64::from_str_radix(field(&status, name), 16).unwrap();
            let found =
                (set("CapBnd"), set("CapEff"), set("CapPrm"), field(&status, "Seccomp"), field(&status, "NoNewPrivs"));
            assert_eq!(found, (bounding, effective, effective, seccomp, no_new_privs), "{name}, process {process}");
            assert_eq!((set("CapInh"), set("CapAmb")), (0, 0), "{name}, process {process}");
        }
    }
    for (name, blocked) in [("none", EPERM), ("user", EPERM), ("default", EFAULT), ("privileged", EFAULT)] {
        let found = pod.exec(name, "/tools/blocked; echo $?; /tools/unknown; echo $?");
        assert_eq!(found, format!("{blocked}\n{ENOSYS}\n"), "{name}");
    }
}

/// "masked and read-only paths; device rules enforced by an own BPF program (a container with CAP_MKNOD cannot open a
/// device it was not given)".
#[test]
fn the_kernel_and_its_devices_are_out_of_reach() {
    let _pods = among_others();
    let pod = Pod::new(
        "confined",
        r#"
terminationGracePeriodSeconds: 1
containers:
- {name: plain, image: "localhost/busybox:trixie", command: [sleep, "100000"]}
- {name: admin, image: "localhost/busybox:trixie", command: [sleep, "100000"], securityContext: {capabilities: {add: [ALL]}}}
- {name: sealed, image: "localhost/busybox:trixie", command: [sleep, "100000"], securityContext: {readOnlyRootFilesystem: true}}
- {name: privileged, image: "localhost/busybox:trixie", command: [sleep, "100000"], securityContext: {privileged: true}}
"#,
    );
    pod.until_ready();
    for name in ["plain", "admin"] {
        let masked = pod.exec(name, "cat /proc/kcore /proc/keys /proc/timer_list | wc -c; ls -A /sys/firmware | wc -l");
        assert_eq!(masked, "0\n0\n", "{name}");
        for path in ["/proc/sys/kernel/domainname", "/proc/sysrq-trigger", "/proc/irq/default_smp_affinity"] {
            let refused = pod.exec(name, &format!("echo x 2>&1 >{path} || true; (echo x >{path}) 2>&1 || true"));
            assert!(refused.contains("Read-only file system"), "{name}: {path}: {refused}");
        }
        assert!(pod.exec(name, "mkdir /sys/fs/cgroup/x 2>&1 || true").contains("Read-only file system"), "{name}");
        let device = pod.exec(
            name,
            "mknod /tmp/disk b $(stat -c '0x%t 0x%T' /dev/vda 2>/dev/null || echo 254 0) && (head -c 1 /tmp/disk | wc -c) 2>&1; \
             mknod /tmp/kmsg c 1 11 && (echo x >/tmp/kmsg) 2>&1; mknod /tmp/null c 1 3 && echo x >/tmp/null && echo null; \
             echo x >/dev/null && head -c 3 /dev/zero | wc -c",
        );
        assert_eq!(device.matches("Operation not permitted").count(), 2, "{name}: {device}");
        assert!(device.ends_with("null\n3\n"), "{name}: {device}");
    }
    // kcore is a link to /proc/kcore, which is masked.
    let devices = pod.exec("plain", "ls /dev");
    assert_eq!(
        devices.split_whitespace().collect::<Vec<_>>(),
        [
            "fd",
            "full",
            "kcore",
            "mqueue",
            "null",
            "ptmx",
            "pts",
            "random",
            "shm",
            "stderr",
            "stdin",
            "stdout",
            "termination-log",
            "tty",
            "urandom",
            "zero"
        ]
    );
    let sealed = pod.exec(
        "sealed",
        "touch /x 2>&1 || true; touch /dev/shm/x && echo shared; echo x >/dev/termination-log && echo said",
    );
    assert!(sealed.contains("Read-only file system") && sealed.ends_with("shared\nsaid\n"), "{sealed}");
    let free = pod.exec(
        "privileged",
        "head -c 4 /dev/vda | wc -c; ls -A /sys/firmware | wc -l; mkdir /sys/fs/cgroup/inner && rmdir /sys/fs/cgroup/inner; \
         cat /proc/sys/kernel/domainname >/proc/sys/kernel/domainname && echo writable",
    );
    let free: Vec<_> = free.lines().collect();
    assert_eq!((free[0], free[2]), ("4", "writable"), "{free:?}");
    assert_ne!(free[1], "0", "/sys/firmware is not masked");
}

/// "users, groups, working directory, entrypoint/command/args, environment".
#[test]
fn a_program_is_who_and_where_it_should_be() {
    let _pods = among_others();
    let pod = Pod::new(
        "process",
        r#"
terminationGracePeriodSeconds: 1
securityContext: {fsGroup: 2000, supplementalGroups: [4000]}
volumes:
- {name: work, emptyDir: {}}
containers:
- name: user
  image: localhost/busybox:trixie
  securityContext: {runAsUser: 1000, runAsGroup: 3000}
  command: [sleep, "100000"]
  workingDir: /made/for/it
  volumeMounts: [{name: work, mountPath: /work}]
- name: image-program
  image: localhost/redis:trixie
  args: [--port, "7000", --save, ""]
- name: environment
  image: localhost/busybox:trixie
  command: [sh, -c, 'printf "%s\n" "$@"; env; exec sleep 100000', zero, "$(A)", "$$(A)", "$(NONE)", "$(B)-$(PATH)"]
  env:
  - {name: A, value: first}
  - {name: B, value: "$(A) $(LATER) $$(A)"}
  - {name: LATER, value: "last"}
  - {name: EMPTY}
"#,
    );
    let ready = pod.until_ready();
    assert_eq!(
        pod.exec("user", "id -u; id -g; id -G; pwd; grep Groups /proc/1/status"),
        "1000\n3000\n3000 2000 4000\n/made/for/it\nGroups:\t2000 3000 4000 \n"
    );
    assert_eq!(
        pod.exec("user", "stat -c '%u %g %a' /work; echo mine >/work/file && stat -c '%u %g' /work/file"),
        "0 2000 2777\n1000 2000\n"
    );
    let first = format!("$(head -n 1 {}/cgroup.procs)", container_group(&ready, "image-program"));
    assert_eq!(
        node().ok(&format!("cd /proc/{first}; grep -E 'Uid|Gid|Groups' status; readlink cwd")),
        "Uid:\t999\t999\t999\t999\nGid:\t999\t999\t999\t999\nGroups:\t999 2000 4000 \n/data\n"
    );
    assert_eq!(node().ok("armlet exec process -c image-program -- redis-cli -p 7000 ping"), "PONG\n");
    let log = pod.log("environment");
    let lines: Vec<_> = log.lines().collect();
    let path = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";
    assert_eq!(lines[..3], ["first", "$(A)", "$(NONE)"]);
    for line in [
        "A=first",
        "B=first $(LATER) $(A)",
        "LATER=last",
        "EMPTY=",
        "HOSTNAME=process-armlet",
        "HOME=/root",
        &format!("PATH={path}"),
    ] {
        assert!(lines.contains(&line), "{line} in {log}");
    }
    assert_eq!(lines[3], "first $(LATER) $(A)-$(PATH)", "only what the manifest sets is expanded");
}

/// A container can make a link of its working directory, to a descriptor of the process that is about to become a program
/// of it: neither exec nor a restart follows it to the host's files (CVE-2024-21626).
#[test]
fn a_link_to_a_descriptor_does_not_lead_out_of_the_container() {
    let _pods = among_others();
    let pod = Pod::new(
        "links",
        r#"
terminationGracePeriodSeconds: 1
volumes: [{name: v, emptyDir: {}}]
containers:
- name: setter
  image: localhost/busybox:trixie
  command: [sleep, "100000"]
  volumeMounts: [{name: v, mountPath: /v}]
- name: victim
  image: localhost/busybox:trixie
  command: [sleep, "100000"]
  workingDir: /v/w
  volumeMounts: [{name: v, mountPath: /v}]
"#,
    );
    let ready = pod.until_ready();
    assert_eq!(pod.exec("victim", "pwd"), "/v/w\n");
    let script = "for n in $(seq 3 30); do \
        armlet exec links -c setter -- sh -c \"rm -rf /v/w; ln -s /proc/self/fd/$n /v/w\"; \
        armlet exec links -c victim -- ls -d . .. && echo ENTERED $n; \
        armlet exec links -c setter -- /proc/self/fd/$n/../../../../../../../../../sbin/armlet version && echo RAN $n; \
        done 2>&1; true";
    let tried = node().run(script, 4 * PATIENCE).unwrap();
    let tried = tried.stdout;
    assert!(!tried.contains("ENTERED") && !tried.contains("RAN"), "{tried}");
    assert_eq!(tried.matches("enter the working directory").count(), 28, "{tried}");
    assert_eq!(tried.matches("exec: \"/proc/self/fd/").count(), 28, "{tried}");

    pod.exec("setter", "rm /v/w; ln -s /proc/self/fd/7 /v/w");
    node().ok(&format!("kill -9 $(cat {}/cgroup.procs)", container_group(&ready, "victim")));
    let refused = pod.until("refused", |pod| !waiting(pod, "victim").0.is_empty());
    let (reason, message) = waiting(&refused, "victim");
    assert_eq!(reason, "RunContainerError", "{message}");
}

/// "32-bit ARM programs on a 64-bit kernel run under the profile."
#[test]
fn programs_of_32_bit_arm_run_under_the_profile() {
    if !crate::guests::runs_arm32() {
        return;
    }
    let _pods = among_others();
    let pod = Pod::new(
        "arm32",
        r#"
restartPolicy: Never
securityContext: {seccompProfile: {type: RuntimeDefault}}
containers:
- name: main
  image: localhost/busybox-arm32:trixie
  command: [sh, -c, "set -e; head -c 5 /proc/self/exe | tail -c 1 | od -An -tu1; mkdir /tmp/d; ls / | sort >/tmp/d/list; mv /tmp/d/list /tmp/l; usleep 1000; grep Seccomp: /proc/self/status; date +%Y | grep -c .; nc -l -p 1 & kill $!; echo $((6 * 7))"]
"#,
    );
    let done = pod.until_phase("Succeeded");
    assert_eq!(ended(&done, "main"), ("Completed", 0));
    assert_eq!(pod.log("main").split_whitespace().collect::<Vec<_>>(), ["1", "Seccomp:", "2", "1", "42"]);
}

/// "Volumes for now: ... termination message": the last 4096 bytes of the file, the end of the log when asked and failed.
#[test]
fn a_container_says_why_it_ended() {
    let _pods = among_others();
    let pod = Pod::new(
        "messages",
        r#"
restartPolicy: Never
containers:
- {name: said, image: "localhost/busybox:trixie", command: [sh, -c, "printf done >/dev/termination-log"]}
- {name: elsewhere, image: "localhost/busybox:trixie", terminationMessagePath: /tmp/said, securityContext: {runAsUser: 1000}, command: [sh, -c, "printf gone >/tmp/said; exit 4"]}
- {name: log, image: "localhost/busybox:trixie", terminationMessagePolicy: FallbackToLogsOnError, command: [sh, -c, "echo last words; exit 5"]}
- {name: fine, image: "localhost/busybox:trixie", terminationMessagePolicy: FallbackToLogsOnError, command: [echo, words]}
- {name: silent, image: "localhost/busybox:trixie", command: [sh, -c, "echo words; exit 6"]}
"#,
    );
    let long = Pod::new(
        "long-message",
        r#"
restartPolicy: Never
containers:
- {name: long, image: "localhost/busybox:trixie", command: [sh, -c, "{ yes x | head -c 5000; printf end; } >/dev/termination-log"]}
"#,
    );
    let pod = pod.until_phase("Failed");
    let message =
        |name: &str| container(&pod, name)["state"]["terminated"]["message"].as_str().unwrap_or_default().to_owned();
    assert_eq!(message("said"), "done");
    assert_eq!((message("elsewhere"), ended(&pod, "elsewhere").1), ("gone".to_owned(), 4));
    let long = long.until_phase("Succeeded");
    let long = container(&long, "long")["state"]["terminated"]["message"].as_str().unwrap_or_default();
    assert_eq!((long.len(), &long[4093..]), (4096, "end"));
    assert_eq!(message("log"), "last words\n");
    assert_eq!((message("fine"), message("silent")), (String::new(), String::new()));
    assert_eq!(condition(&pod, "Ready")["reason"], "PodFailed");
}

/// "Volumes for now: emptyDir, hostPath".
#[test]
fn volumes_are_there_as_they_were_asked_for() {
    let _pods = among_others();
    node().ok("mkdir -p /tmp/host/folder; echo kept >/tmp/host/folder/file");
    let pod = Pod::new(
        "volumes",
        r#"
terminationGracePeriodSeconds: 1
volumes:
- {name: disk, emptyDir: {}}
- {name: memory, emptyDir: {medium: Memory, sizeLimit: 1Mi}}
- {name: folder, hostPath: {path: /tmp/host/folder, type: Directory}}
- {name: any, hostPath: {path: /tmp/host/any}}
- {name: made, hostPath: {path: /tmp/host/made/deep, type: DirectoryOrCreate}}
- {name: made-file, hostPath: {path: /tmp/host/made-file, type: FileOrCreate}}
- {name: file, hostPath: {path: /tmp/host/folder/file, type: File}}
- {name: socket, hostPath: {path: /run/armlet/armlet.sock, type: Socket}}
- {name: char, hostPath: {path: /dev/null, type: CharDevice}}
- {name: block, hostPath: {path: /dev/vda, type: BlockDevice}}
containers:
- name: one
  image: localhost/busybox:trixie
  command: [sh, -c, "echo x >>/disk/starts; exec sleep 100000"]
  volumeMounts:
  - {name: disk, mountPath: /disk}
  - {name: memory, mountPath: /memory}
  - {name: folder, mountPath: /folder, readOnly: true}
  - {name: any, mountPath: /any}
  - {name: made, mountPath: /made}
  - {name: made-file, mountPath: /made-file}
  - {name: file, mountPath: /etc/motd}
  - {name: socket, mountPath: /sock}
  - {name: char, mountPath: /nothing}
  - {name: block, mountPath: /block}
- name: two
  image: localhost/busybox:trixie
  securityContext: {runAsUser: 1000}
  command: [sh, -c, "until test -e /disk/end; do sleep 1; done"]
  volumeMounts:
  - {name: disk, mountPath: /disk}
  - {name: memory, mountPath: /memory}
"#,
    );
    pod.until_ready();
    assert_eq!(pod.exec("one", "stat -c %a /disk /memory; stat -f -c %T /memory"), "777\n777\ntmpfs\n");
    pod.exec("two", "echo two >/memory/from; echo two >/disk/from");
    assert_eq!(pod.exec("one", "cat /memory/from /disk/from"), "two\ntwo\n");
    assert_eq!(pod.exec("one", "df -k /memory | tail -n 1 | tr -s ' ' | cut -d' ' -f2"), "1024\n");
    let full =
        "head -c 2000000 /dev/zero >/memory/big 2>/dev/null && echo fits; stat -c %s /memory/big; rm /memory/big";
    let written: u64 = pod.exec("two", full).trim().parse().unwrap();
    assert!(written < 1 << 20, "{written}");
    assert_eq!(pod.exec("one", "cat /folder/file /etc/motd"), "kept\nkept\n");
    assert!(pod.exec("one", "touch /folder/x 2>&1 || true").contains("Read-only file system"));
    pod.exec("one", "echo said >/made-file; touch /made/x; touch /any/x");
    assert_eq!(node().ok("cat /tmp/host/made-file; ls /tmp/host/made/deep /tmp/host/any | grep -c x"), "said\n2\n");
    assert_eq!(pod.exec("one", "test -S /sock && test -c /nothing && test -b /block && echo all"), "all\n");
    // Mounted is not given: the device rules know nothing of hostPath.
    assert!(pod.exec("one", "head -c 1 /block 2>&1 || true").contains("Operation not permitted"));

    pod.exec("two", "touch /disk/end");
    pod.until("restarted", |pod| container(pod, "two")["restartCount"] == 1);
    assert_eq!(pod.exec("one", "cat /disk/starts /disk/from /memory/from"), "x\ntwo\ntwo\n");
    let ready = pod.now();
    let place = format!("/var/lib/armlet/pods/{}", ready["metadata"]["uid"].as_str().unwrap());
    node().ok(&format!("test -d {place}"));
    pod.remove();
    assert_eq!(
        node().ok(&format!("cat /tmp/host/folder/file; ls -d {place} 2>/dev/null || echo gone")),
        "kept\ngone\n"
    );

    for (name, path, kind, message) in [
        ("no-file", "/tmp/host", "File", "hostPath type check failed: /tmp/host is not a file"),
        ("no-socket", "/dev/null", "Socket", "hostPath type check failed: /dev/null is not a socket file"),
        ("no-char", "/dev/vda", "CharDevice", "hostPath type check failed: /dev/vda is not a character device"),
        ("no-block", "/dev/null", "BlockDevice", "hostPath type check failed: /dev/null is not a block device"),
    ] {
        let spec = format!(
            "volumes: [{{name: v, hostPath: {{path: {path}, type: {kind}}}}}]\ncontainers:\n\
             - {{name: main, image: \"localhost/busybox:trixie\", command: [\"true\"], volumeMounts: [{{name: v, mountPath: /v}}]}}\n"
        );
        let pod = Pod::new(name, &spec);
        let text = format!("FailedMount MountVolume.SetUp failed for volume \"v\" : {message}");
        pod.until("told of its volume", |_| pod.events().contains(&text));
    }
}
