//! armlet on a Linux that people have: Debian with systemd, which installs and starts it, shuts down and boots. One disk,
//! two boots, and beside armlet what other programs have on such a machine.

use crate::guests::directory;
use crate::node::image;
use crate::package::packages;
use armlet_vm::{Boot, Disk, Guest, Initramfs, Kind, binary, debian};
use std::time::Duration;

const PATIENCE: Duration = Duration::from_secs(120);
/// systemd's start is more work than all that follows, and the host may be busy.
const BOOT: Duration = Duration::from_secs(300);

/// A pod that notes when it begins, when it is told to end, and when it has ended, in a folder of the machine. It takes two
/// seconds to end, so that who does not wait for it is found out.
const POD: &str = r#"
apiVersion: v1
kind: Pod
metadata: {name: web}
spec:
  terminationGracePeriodSeconds: 30
  volumes: [{name: notes, hostPath: {path: /srv/notes, type: DirectoryOrCreate}}]
  containers:
  - name: main
    image: localhost/busybox:trixie
    command: [sh, -c, "trap 'echo term >>/notes/web; sleep 2; echo ended >>/notes/web; exit 0' TERM; echo start >>/notes/web; echo hello; while :; do sleep 1 & wait $!; done"]
    volumeMounts: [{name: notes, mountPath: /notes}]
    resources: {limits: {cpu: 200m, memory: 32Mi}}
"#;

/// What others have on the machine: leftovers of k3s, ufw with its defaults (nothing comes in, nothing is forwarded), an
/// own table of somebody's, and containers of Docker and of podman.
const OTHERS: &str = "\
set -e
mkdir -p /etc/cni/net.d /var/lib/rancher/k3s /var/log/pods/other_pod_1/main
echo '{\"name\": \"cbr0\", \"type\": \"flannel\"}' >/etc/cni/net.d/10-flannel.conflist
echo k3s >/var/lib/rancher/k3s/token
echo line >/var/log/pods/other_pod_1/main/0.log
ip link add cni0 address 02:00:00:00:2a:01 type bridge && ip addr add 10.42.0.1/24 dev cni0 && ip link set cni0 up
nft -f - <<'END'
table inet other {
    chain input {
        type filter hook input priority 0; policy accept;
        tcp dport 2049 drop
    }
}
END
ufw --force enable >/dev/null
systemctl start docker
mkdir -p /tmp/root && cp /usr/lib/harness/busybox /tmp/root/
tar -C /tmp/root -c . >/tmp/root.tar
docker rm -f other >/dev/null 2>&1 || true
docker import /tmp/root.tar other >/dev/null
docker run -d --name other other /busybox sleep 1000000 >/dev/null
podman rm -f other >/dev/null 2>&1 || true
podman import -q /tmp/root.tar other >/dev/null
podman run -d --name other other /busybox sleep 1000000 >/dev/null
";

/// Shell: all of [`OTHERS`] as it is now, but for what is counted.
const OTHERS_NOW: &str = "\
nft list ruleset | sed -e 's/counter packets [0-9]* bytes [0-9]*//'
ip -o -4 addr show cni0 | tr -s ' '; cat /sys/class/net/cni0/bridge/bridge_id
find /etc/cni /var/lib/rancher /etc/ufw /etc/docker /etc/containers /var/log/pods/other_pod_1 -type f -exec sha256sum {} + | sort
for engine in docker podman; do
    pid=$($engine inspect -f '{{.State.Pid}}' other); $engine inspect -f '{{.State.StartedAt}}' other
    cat /proc/$pid/cgroup
done
systemctl is-active docker containerd ufw
";

/// Shell: what an installation leaves on a machine; nothing when it is gone.
const TRACES: &str = "\
ls -d /usr/bin/armlet /usr/local/bin/armlet /etc/armlet /var/lib/armlet /run/armlet /usr/share/doc/armlet \
    /sys/fs/cgroup/kubepods /sys/fs/cgroup/armlet /sys/fs/cgroup/armlet.slice /sys/class/net/armlet0 2>/dev/null
find /etc/systemd /usr/lib/systemd /var/lib/systemd/deb-systemd-helper-enabled -name '*armlet*' 2>/dev/null
find /var/log/pods /var/log/containers -mindepth 1 -maxdepth 1 2>/dev/null | grep -v other_pod
grep armlet /proc/mounts
ps -eo args | grep '[a]rmlet '
true";

const WAIT_READY: &str = "armlet ps | grep -E '^default +web.* 1/1 +Running '";

#[test]
fn systemd_carries_armlet() {
    let directory = directory("debian");
    let payload = directory.join("payload");
    std::fs::create_dir_all(&payload).unwrap();
    for (deb, name) in packages().iter().zip(["one.deb", "two.deb"]) {
        std::fs::copy(deb, payload.join(name)).unwrap();
    }
    std::fs::copy(binary().unwrap(), payload.join("armlet")).unwrap();
    std::fs::copy(image("busybox"), payload.join("busybox.tar")).unwrap();
    let payload = Disk::make(&directory.join("payload.img"), 96, "armlet-payload", Some(&payload)).unwrap();
    let disk = debian(&directory.join("root.img")).unwrap();
    let initramfs = Initramfs::build(Kind::Disk, None).unwrap();
    let boot = Boot::new(&initramfs, &directory).data(&disk).payload(&payload);

    let guest = boot.start().unwrap();
    settle(&guest);
    slowly(&guest, OTHERS);
    let others = guest.ok(OTHERS_NOW);
    installed_from_the_package(&guest);
    a_pod_runs(&guest);
    containers_outlive_the_agent(&guest);
    containers_outlive_an_upgrade(&guest);
    stopped_with_the_supervisor(&guest);
    assert_eq!(guest.ok(OTHERS_NOW), others);
    guest.ok("systemctl --no-block reboot");
    guest.wait_off(PATIENCE).unwrap();

    let guest = boot.start().unwrap();
    settle(&guest);
    slowly(&guest, OTHERS);
    let others = guest.ok(OTHERS_NOW);
    came_back_after_a_shutdown_in_order(&guest);
    removed_and_purged(&guest);
    installed_by_hand(&guest);
    assert_eq!(guest.ok(OTHERS_NOW), others);
}

/// Runs what takes its time on a busy machine: dpkg's scripts, and pods' ends.
#[track_caller]
fn slowly(guest: &Guest, script: &str) -> String {
    let output = guest.run(script, PATIENCE).unwrap();
    assert!(output.success(), "{script}: {output:#?}\n{}", journal(guest));
    output.stdout
}

/// systemd has started all that it starts by itself.
#[track_caller]
fn settle(guest: &Guest) {
    guest.wait_until("systemctl is-system-running | grep -qE 'running|degraded'", BOOT);
    assert_eq!(guest.ok("systemctl --failed --plain --no-legend"), "");
}

/// Shell: the main processes of both units: supervisor, agent.
fn roles(guest: &Guest) -> Vec<String> {
    let text = guest.ok("for unit in armlet-supervisor armlet; do systemctl show -P MainPID $unit; done");
    text.lines().map(str::to_owned).collect()
}

/// The container's first process and when it began.
#[track_caller]
fn process(guest: &Guest) -> String {
    guest.ok("p=$(head -n 1 /sys/fs/cgroup/kubepods/pod*/*/cgroup.procs); echo $p $(cut -d ' ' -f 22 /proc/$p/stat)")
}

fn installed_from_the_package(guest: &Guest) {
    slowly(guest, "dpkg -i /run/payload/one.deb");
    assert_eq!(guest.ok("systemctl is-active armlet-supervisor armlet"), "active\nactive\n");
    assert_eq!(guest.ok("systemctl is-enabled armlet-supervisor armlet"), "enabled\nenabled\n");
    guest.wait_until("armlet version", PATIENCE);
    let found = guest.run("armlet check", PATIENCE).unwrap();
    for other in ["dockerd", "containerd", "/etc/cni/net.d", "/var/lib/rancher/k3s"] {
        assert!(found.stdout.contains(other), "{other} in {found:?}");
    }
    assert_eq!(guest.ok("systemd-analyze verify --man=no armlet.service armlet-supervisor.service 2>&1"), "");
    for command in ["install", "uninstall"] {
        let refused = guest.run(&format!("armlet {command}"), PATIENCE).unwrap();
        assert!(refused.status != 0 && refused.stderr.contains("package"), "{refused:?}");
    }
    for unit in ["armlet-supervisor", "armlet"] {
        let shown = guest.ok(&format!("systemctl show -p KillMode -p Delegate -p OOMScoreAdjust -p TasksMax {unit}"));
        for line in ["KillMode=process", "Delegate=yes", "OOMScoreAdjust=-999", "TasksMax=infinity"] {
            assert!(shown.lines().any(|shown| shown == line), "{line} in {shown}");
        }
    }
}

fn a_pod_runs(guest: &Guest) {
    guest.ok("armlet import /run/payload/busybox.tar");
    guest.write_file("/etc/armlet/manifests/web.yaml", POD.as_bytes());
    guest.wait_until(WAIT_READY, PATIENCE);
    guest.wait_until("armlet logs web | grep -x hello", PATIENCE);
    // systemd looks after the cgroups of its units and must leave these alone.
    guest.ok("systemctl daemon-reload");
    let limits = guest.ok("cd /sys/fs/cgroup/kubepods/pod*/ && cat cpu.max memory.max");
    assert_eq!(limits, "20000 100000\n33554432\n");
    // Each unit's lines are its own, and the kernel guards the memory of both.
    for (unit, role) in [("armlet", "agent"), ("armlet-supervisor", "supervisor")] {
        let told = guest.ok(&format!("journalctl --no-pager -o cat -u {unit}"));
        assert!(told.lines().any(|line| line.starts_with(&format!("{role}: "))), "{unit}: {told}");
    }
    assert_eq!(guest.ok("cat /sys/fs/cgroup/armlet.slice/memory.min"), "33554432\n");
    assert_eq!(
        guest.ok("cat /sys/fs/cgroup/armlet.slice/armlet.service/cgroup.procs"),
        format!("{}\n", roles(guest)[1])
    );
}

fn containers_outlive_the_agent(guest: &Guest) {
    let (before, [supervisor, agent]) = (process(guest), roles(guest).try_into().unwrap());
    slowly(guest, "systemctl restart armlet");
    guest.wait_until(WAIT_READY, PATIENCE);
    let now: [String; 2] = roles(guest).try_into().unwrap();
    assert_eq!((process(guest), &now[0]), (before.clone(), &supervisor));
    assert_ne!(now[1], agent);
    // Killed, it is started again.
    guest.ok(&format!("kill -KILL {}", now[1]));
    guest.wait_until(&format!("p=$(systemctl show -P MainPID armlet); [ $p != 0 ] && [ $p != {} ]", now[1]), PATIENCE);
    guest.wait_until(WAIT_READY, PATIENCE);
    assert_eq!(process(guest), before);
    assert_eq!(guest.ok("cat /srv/notes/web"), "start\n");
}

fn containers_outlive_an_upgrade(guest: &Guest) {
    let (before, agent) = (process(guest), roles(guest)[1].clone());
    slowly(guest, "dpkg -i /run/payload/two.deb");
    guest.wait_until(WAIT_READY, PATIENCE);
    assert_eq!(process(guest), before);
    assert_ne!(roles(guest)[1], agent);
    assert_eq!(guest.ok("dpkg-query -W -f '${Version}' armlet"), crate::package::VERSIONS[1]);
    assert_eq!(guest.ok("cat /srv/notes/web"), "start\n");
}

fn stopped_with_the_supervisor(guest: &Guest) {
    slowly(guest, "systemctl stop armlet-supervisor");
    assert_eq!(guest.ok("cat /srv/notes/web"), "start\nterm\nended\n", "{}", journal(guest));
    guest.ok("systemctl start armlet-supervisor");
    guest.wait_until(WAIT_READY, PATIENCE);
    guest.ok("echo reboot >>/srv/notes/web");
}

fn came_back_after_a_shutdown_in_order(guest: &Guest) {
    guest.wait_until(WAIT_READY, PATIENCE);
    let notes = guest.ok("cat /srv/notes/web");
    assert_eq!(notes, "start\nterm\nended\nstart\nreboot\nterm\nended\nstart\n", "{}", journal(guest));
    // The supervisor's end, once all pods had theirs, came before the machine's network and disks went.
    let told = guest.ok("journalctl -b -1 --no-pager -o short-monotonic");
    let lines: Vec<_> = told.lines().collect();
    // The last time: units were stopped before it too.
    let at = |wanted: &str| {
        let place = lines.iter().rposition(|line| line.contains(wanted));
        place.unwrap_or_else(|| panic!("no {wanted:?} in:\n{told}"))
    };
    let stopped = at("Stopped armlet-supervisor.service");
    assert!(stopped < at("Stopped armlet.service"), "{told}");
    assert!(stopped < at("Stopped target network.target"), "{told}");
    assert!(
        !told.contains("armlet-supervisor.service: Failed") && !told.contains("State 'stop-sigterm' timed out"),
        "{told}"
    );
}

fn removed_and_purged(guest: &Guest) {
    slowly(guest, "dpkg -r armlet");
    assert!(guest.ok("cat /srv/notes/web").ends_with("start\nterm\nended\n"));
    let left = guest.ok(TRACES);
    assert!(!left.contains("armlet ") && !left.contains("/bin/armlet") && !left.contains("/run/armlet"), "{left}");
    guest.ok("test -d /var/lib/armlet/store && test -s /etc/armlet/manifests/web.yaml");
    slowly(guest, "dpkg --purge armlet");
    assert_eq!(guest.ok(TRACES), "");
}

fn installed_by_hand(guest: &Guest) {
    guest.ok("mkdir -p /opt/try && cp /run/payload/armlet /opt/try/ && rm -f /srv/notes/web");
    let said = slowly(guest, "/opt/try/armlet install");
    assert!(said.contains("the agent answers") && said.ends_with("and see `armlet ps`.\n"), "{said}");
    guest.ok("cmp /opt/try/armlet /usr/local/bin/armlet");
    let refused = guest.run("dpkg -i /run/payload/one.deb", PATIENCE).unwrap();
    assert!(!refused.success() && refused.stderr.contains("run 'armlet uninstall' first"), "{refused:?}");
    slowly(guest, "dpkg --purge armlet");
    guest.ok("armlet import /run/payload/busybox.tar");
    guest.write_file("/etc/armlet/manifests/web.yaml", POD.as_bytes());
    guest.wait_until(WAIT_READY, PATIENCE);
    let before = process(guest);
    slowly(guest, "/opt/try/armlet install");
    guest.wait_until(WAIT_READY, PATIENCE);
    assert_eq!(process(guest), before, "to be installed again leaves containers alone");
    slowly(guest, "armlet uninstall --purge");
    assert_eq!(guest.ok("cat /srv/notes/web"), "start\nterm\nended\n");
    assert_eq!(guest.ok(TRACES), "");
}

fn journal(guest: &Guest) -> String {
    guest.ok("journalctl --no-pager -u armlet -u armlet-supervisor | tail -n 60")
}
