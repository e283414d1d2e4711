//! The measurements inside one boot.

use crate::figures::{Figure, Goal, median};
use crate::{Result, peers, pods};
use armlet_vm::Guest;
use std::time::Duration;

/// How often each thing is measured; medians are reported.
const RUNS: usize = 21;
/// Where containers and host share marks.
const MARKS: &str = "/var/lib/armlet/bench";
/// Sums the proportional memory of all of armlet's processes, of one role or of all.
const PSS: &str = "pss() { for p in $(cat $1); do awk '/^Pss:/ { print $2 }' /proc/$p/smaps_rollup; done | awk '{ s += $1 } END { print s }'; }; cd /sys/fs/cgroup/armlet;";

pub(crate) struct Node {
    guest: Guest,
}

impl Node {
    /// Waits for the node and puts the measuring tools into it.
    pub(crate) fn prepare(guest: Guest) -> Result<Self> {
        let node = Self { guest };
        node.wait("armlet images -o json | grep -q busybox", 60)?;
        node.guest.ok(peers::INSTALL);
        node.guest.ok(&format!("ln -s {MARKS}/stopwatch /usr/bin/stopwatch 2>/dev/null || ln -s {MARKS}/stopwatch /run/debug/bin/stopwatch; mkdir -p /etc/armlet/manifests"));
        // Unmeasured: fills the page cache, for all alike.
        for warm_up in 0..2 {
            node.start(&format!("warm-up-{warm_up}"))?;
        }
        node.remove_all()?;
        Ok(node)
    }

    /// Manifest to first instruction, against crun with the same bundle and podman; and what a start writes to the disk.
    pub(crate) fn starts(&self) -> Result<Vec<Figure>> {
        let (mut ours, mut bytes) = (Vec::new(), Vec::new());
        for run in 0..RUNS {
            let before = self.bytes_written()?;
            ours.push(self.start(&format!("start-{run}"))?);
            bytes.push(self.bytes_written()? - before);
            if run + 1 < RUNS {
                self.remove_all()?;
            }
        }
        let bundle = self.guest.ok("ls -d /run/armlet/bundles/*/ | head -n 1");
        peers::bundle_for_crun(&self.guest, bundle.trim().trim_end_matches('/'))?;
        self.remove_all()?;
        let crun = self.peer(&format!("crun --cgroup-manager=cgroupfs run --bundle {} bench", peers::BUNDLE));
        let podman = self.podman();
        let ours = median(ours);
        Ok(vec![
            Figure { name: "start_vs_crun", ours, peer: said(crun), unit: "us", goal: Goal::Ratio(0.8) },
            Figure { name: "start_vs_podman", ours, peer: said(podman), unit: "us", goal: Goal::Ratio(0.2) },
            Figure {
                name: "start_bytes_written",
                ours: median(bytes),
                peer: None,
                unit: "bytes",
                goal: Goal::Most(128.0 * 1024.0),
            },
        ])
    }

    /// exec to first instruction in a container that runs, against crun.
    pub(crate) fn execs(&self) -> Result<Vec<Figure>> {
        self.start("exec")?;
        let ours = self.peer("armlet exec exec -- /bench/stopwatch mark /bench/out")?;
        self.remove_all()?;
        self.guest.ok(&format!(
            "crun --cgroup-manager=cgroupfs run --detach --bundle {}-exec bench-exec >/dev/null 2>&1 </dev/null",
            peers::BUNDLE
        ));
        let crun = self.peer("crun --cgroup-manager=cgroupfs exec bench-exec /bench/stopwatch mark /bench/out");
        self.guest.ok("crun --cgroup-manager=cgroupfs delete --force bench-exec");
        Ok(vec![Figure { name: "exec_vs_crun", ours, peer: said(crun), unit: "us", goal: Goal::Ratio(0.8) }])
    }

    /// Memory, processor and disk of a node with 20 quiet pods, and how soon a new agent has them.
    pub(crate) fn twenty_pods(&self) -> Result<Vec<Figure>> {
        for pod in 0..20 {
            self.start(&format!("quiet-{pod}"))?;
        }
        self.guest.ok("sleep 20; sync");
        let supervisor =
            self.number(&format!("{PSS} echo $(( $(pss supervisor/cgroup.procs) + $(pss logger/cgroup.procs) ))"))?;
        let agent = self.number(&format!("{PSS} pss agent/cgroup.procs"))?;
        let usage = "awk '/^usage_usec/ { print $2 }' /sys/fs/cgroup/armlet/cpu.stat";
        let (used, written) = (self.number(usage)?, self.bytes_written()?);
        self.guest.run("sleep 60", Duration::from_secs(70))?;
        let (used, written) = (self.number(usage)? - used, self.bytes_written()? - written);
        let adopted = self.number(
            "agent=$(cat /sys/fs/cgroup/armlet/agent/cgroup.procs); begin=$(stopwatch now); kill -9 $agent
             until [ \"$(armlet ps 2>/dev/null | grep -c Running)\" = 20 ]; do :; done
             echo $(( ($(stopwatch now) - begin) / 1000000 ))",
        )?;
        let alone =
            |name, ours, unit, most| Figure { name, ours: Some(ours), peer: None, unit, goal: Goal::Most(most) };
        Ok(vec![
            alone("supervisor_pss_kib", supervisor, "KiB", 2000.0),
            alone("agent_pss_kib", agent, "KiB", 16384.0),
            alone("idle_cpu_percent", used / 60e6 * 100.0, "%", 0.2),
            alone("idle_bytes_written", written, "bytes", 0.0),
            alone("adopt_ms", adopted, "ms", 1000.0),
        ])
    }

    /// What each further pod costs, and whether the last start is as quick as the first.
    pub(crate) fn many_pods(&self) -> Result<Vec<Figure>> {
        self.remove_all()?;
        let all = format!("{PSS} cat */cgroup.procs >/tmp/all; pss /tmp/all");
        let mut starts = Vec::new();
        let mut at_ten = 0.0;
        for pod in 0..110 {
            if pod == 10 {
                at_ten = self.number(&format!("sleep 5; {all}"))?;
            }
            starts.push(self.start(&format!("many-{pod}"))?);
        }
        let at_end = self.number(&format!("sleep 5; {all}"))?;
        let last = starts.split_off(105);
        starts.truncate(5);
        Ok(vec![
            Figure {
                name: "kib_per_pod",
                ours: Some((at_end - at_ten) / 100.0),
                peer: None,
                unit: "KiB",
                goal: Goal::Most(100.0),
            },
            Figure {
                name: "start_110th_vs_first",
                ours: median(last),
                peer: median(starts),
                unit: "us",
                goal: Goal::Ratio(1.3),
            },
        ])
    }

    pub(crate) fn power_off(self) -> Result<()> {
        self.guest.run("rm -f /etc/armlet/manifests/*; kill -USR2 1", Duration::from_secs(10))?;
        self.guest.wait_off(Duration::from_secs(120))?;
        Ok(())
    }

    /// Starts a pod that stays and gives the microseconds until its container began.
    fn start(&self, name: &str) -> Result<f64> {
        self.guest.write_file("/etc/armlet/bench.yaml", pods::manifest(name, "out").as_bytes());
        self.number(&format!("stopwatch drop /etc/armlet/bench.yaml /etc/armlet/manifests/{name}.yaml {MARKS}/out"))
    }

    /// Removes all pods and waits until nothing of them is left.
    fn remove_all(&self) -> Result<()> {
        self.guest.ok("rm -f /etc/armlet/manifests/*");
        self.wait("[ \"$(armlet ps -o json | tr -d ' \\n' | grep -c '\"items\":\\[\\]')\" = 1 ]", 120)
    }

    /// The median of a command's microseconds to the mark.
    fn peer(&self, command: &str) -> Result<Option<f64>> {
        let times: Result<Vec<f64>> = (0..RUNS)
            .map(|run| {
                self.number(&format!(
                    "stopwatch run {MARKS}/out {}",
                    command.replace("bench ", &format!("bench{run} "))
                ))
            })
            .collect();
        Ok(median(times?))
    }

    fn podman(&self) -> Result<Option<f64>> {
        self.guest.run(
            &format!("mkdir -p {MARKS}/podman && podman load --quiet --input /run/payload/busybox.tar"),
            Duration::from_secs(120),
        )?;
        let image = self.guest.ok("podman images --quiet | head -n 1");
        self.peer(&format!(
            "podman run --rm --pull=never --cpus 0.5 --memory 64m --volume {MARKS}:/bench {} /bench/stopwatch mark /bench/out",
            image.trim()
        ))
    }

    fn bytes_written(&self) -> Result<f64> {
        // The seventh field of a disk's stat file counts sectors of 512 bytes.
        self.number("sync; for d in /sys/block/vd*; do [ $(cat $d/serial) = data ] && awk '{ print $7 * 512 }' $d/stat; done; true")
    }

    fn number(&self, script: &str) -> Result<f64> {
        let output = self.guest.run(script, Duration::from_secs(180))?;
        let last = output.stdout.lines().last().unwrap_or_default().trim();
        last.parse().map_err(|_| format!("no number from `{script}`: {}{}", output.stdout, output.stderr).into())
    }

    fn wait(&self, condition: &str, seconds: u64) -> Result<()> {
        let script = format!("until {condition}; do usleep 50000; done 2>/dev/null");
        let output = self.guest.run(&script, Duration::from_secs(seconds))?;
        if output.success() { Ok(()) } else { Err(format!("not within {seconds} s: {condition}").into()) }
    }
}

/// A peer that could not be measured is no reason to lose our own figure, but it is said.
#[expect(clippy::print_stderr, reason = "a report speaks to its terminal")]
fn said(measured: Result<Option<f64>>) -> Option<f64> {
    measured.unwrap_or_else(|error| {
        eprintln!("peer not measured: {error}");
        None
    })
}
