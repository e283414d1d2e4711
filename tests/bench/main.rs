//! `make bench`: armlet's figures beside those of crun and podman, in one guest boot, and `target/bench/results.json`.
//! It only reports: a missed goal is no failure. Run it on a machine that does nothing else.
#![expect(clippy::print_stdout, clippy::print_stderr, reason = "a report speaks to its terminal")]

mod figures;
mod node;
mod peers;
mod pods;

use armlet_vm::{Boot, Disk, Error, Initramfs, Kind, binary, root, target};
use figures::{Figure, Goal};
use node::Node;
use serde_json::Value;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, Stdio};
use std::time::Duration;

type Result<T> = std::result::Result<T, Box<dyn std::error::Error>>;

fn main() -> ExitCode {
    match bench() {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("bench failed: {error}");
            ExitCode::FAILURE
        }
    }
}

fn bench() -> Result<()> {
    let directory = target().join("bench");
    std::fs::create_dir_all(&directory)?;
    let binary = binary()?;
    let payload = payload(&directory)?;
    let data = Disk::make(&directory.join("data.img"), 2048, "armlet-data", Some(&preload(&directory)?))?;
    let mut figures = vec![Figure {
        name: "binary_bytes",
        ours: std::fs::metadata(&binary)?.len().try_into().ok().map(|bytes: u32| f64::from(bytes)),
        peer: None,
        unit: "bytes",
        goal: Goal::Most(12.0 * 1024.0 * 1024.0),
    }];

    let initramfs = Initramfs::build(Kind::Debug, Some(&binary))?;
    let guest = Boot::new(&initramfs, &directory.join("vm"))
        .data(&data)
        .payload(&payload)
        .memory(2560)
        .append("armlet.ip=dhcp")
        .start()?;
    let node = Node::prepare(guest)?;
    for measure in [Node::starts, Node::execs, Node::twenty_pods, Node::many_pods] {
        // What cannot be measured here is left out; the other figures still count.
        match measure(&node) {
            Ok(more) => more.into_iter().for_each(|figure| announce(&mut figures, figure)),
            Err(error) => eprintln!("not measured: {error}"),
        }
    }
    node.power_off()?;
    match boots(&directory, &binary, &data) {
        Ok(figure) => announce(&mut figures, figure),
        Err(error) => eprintln!("not measured: {error}"),
    }

    let results: Vec<Value> = figures.iter().map(Figure::json).collect();
    std::fs::write(directory.join("results.json"), serde_json::to_string_pretty(&results)? + "\n")?;
    println!("\n{:<22} {:>12} {:>12} {:>7} {:<6} {:<18}", "name", "ours", "peer", "ratio", "unit", "goal");
    figures.iter().for_each(|figure| println!("{}", figure.row()));
    println!("\nwritten to {}", directory.join("results.json").display());
    Ok(())
}

fn announce(figures: &mut Vec<Figure>, figure: Figure) {
    eprintln!("{}", figure.row());
    figures.push(figure);
}

/// From the kernel's first instruction to that of a static pod, beside the kernel alone with an empty process 1.
fn boots(directory: &Path, binary: &Path, data: &Disk) -> Result<Figure> {
    let extra = directory.join("extra");
    std::fs::create_dir_all(extra.join("etc/armlet/manifests"))?;
    std::fs::write(extra.join("etc/armlet/manifests/boot.yaml"), pods::manifest("boot", "boot"))?;
    let initramfs = Initramfs::build_with(Kind::Debug, Some(binary), &extra)?;
    let (mut ours, mut bare) = (Vec::new(), Vec::new());
    for _ in 0..3 {
        let guest = Boot::new(&initramfs, &directory.join("vm")).data(data).append("armlet.ip=dhcp").start()?;
        guest.run("until [ -s /var/lib/armlet/bench/boot ]; do usleep 50000; done", Duration::from_secs(60))?;
        ours.push(
            guest.ok("cat /var/lib/armlet/bench/boot; rm /var/lib/armlet/bench/boot").trim().parse::<f64>()? / 1e6,
        );
        guest.run("kill -USR2 1", Duration::from_secs(10))?;
        guest.wait_off(Duration::from_secs(60))?;
        bare.push(empty_boot(directory, &initramfs)?);
    }
    Ok(Figure {
        name: "boot_to_pod_ms",
        ours: figures::median(ours),
        peer: figures::median(bare),
        unit: "ms",
        goal: Goal::Difference(1000.0),
    })
}

fn empty_boot(directory: &Path, initramfs: &Initramfs) -> Result<f64> {
    let alone = Initramfs { path: initramfs.path.clone(), kind: Kind::Node };
    let vm = directory.join("vm");
    Boot::new(&alone, &vm).append("rdinit=/empty").start()?.wait_off(Duration::from_secs(60))?;
    let console = String::from_utf8_lossy(&std::fs::read(vm.join("console.log"))?).into_owned();
    let seconds = console.lines().find_map(|line| line.split("EMPTY ").nth(1)).ok_or("the empty boot said nothing")?;
    Ok(seconds.trim().parse::<f64>()? * 1000.0)
}

/// The disk with the programs of the peers, and an image for podman.
fn payload(directory: &Path) -> Result<Disk> {
    let files = directory.join("payload");
    let peers = files.join("peers");
    std::fs::create_dir_all(&peers)?;
    script("tests/bench/peers.sh", &[peers.to_string_lossy().as_ref()])?;
    script("images/pack.sh", &["busybox"])?;
    std::fs::copy(target().join("images/busybox.tar"), files.join("busybox.tar"))?;
    Ok(Disk::make(&directory.join("payload.img"), 512, "armlet-payload", Some(&files))?)
}

/// The data disk's first contents: the image, and the stopwatch where containers see it.
fn preload(directory: &Path) -> Result<PathBuf> {
    let files = directory.join("data");
    for folder in ["preload", "bench"] {
        std::fs::create_dir_all(files.join(folder))?;
    }
    std::fs::copy(target().join("images/busybox.tar"), files.join("preload/busybox.tar"))?;
    script("cross/cargo.sh", &["build", "--quiet", "--profile", "qemu", "-p", "armlet-vm", "--bin", "stopwatch"])?;
    let stopwatch = target().join("aarch64-unknown-linux-musl/qemu/stopwatch");
    std::fs::copy(stopwatch, files.join("bench/stopwatch"))?;
    Ok(files)
}

fn script(path: &str, arguments: &[&str]) -> Result<()> {
    let program = root().join(path);
    let status = Command::new(&program).args(arguments).stdout(Stdio::null()).status()?;
    if status.success() { Ok(()) } else { Err(Box::new(Error::Failed { program, status })) }
}
