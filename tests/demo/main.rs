//! `make demo`: boots a node, gives it a manifest, shows the pod at work, powers off.
#![expect(clippy::print_stdout, clippy::print_stderr, reason = "a demonstration speaks to its terminal")]
#![expect(clippy::disallowed_methods, reason = "it says how long things took")]

mod redis;

use armlet_vm::{Boot, Disk, Error, Guest, Initramfs, Kind, Output, binary, root, target};
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};
use std::time::{Duration, Instant};

/// The port of the manifest's app.
const PORT: u16 = 6379;
const MANIFEST: &str = "docs/examples/redis.yaml";

fn main() -> ExitCode {
    match demo() {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            let mut message = error.to_string();
            let mut cause = error.source();
            while let Some(error) = cause {
                message.push_str(&format!(": {error}"));
                cause = error.source();
            }
            eprintln!("\ndemo failed: {message}");
            ExitCode::FAILURE
        }
    }
}

fn demo() -> Result<(), Box<dyn std::error::Error>> {
    let directory = target().join("vm/run/demo");
    std::fs::create_dir_all(&directory)?;
    let initramfs = Initramfs::build(Kind::Debug, Some(&binary()?))?;
    let data = Disk::make(&directory.join("data.img"), 1024, "armlet-data", Some(&preload(&directory)?))?;

    step("booting a node: Debian's arm64 kernel, armlet as process 1, nothing else");
    let booted = Instant::now();
    let guest = Boot::new(&initramfs, &directory).data(&data).forward(PORT).append("armlet.ip=dhcp").start()?;
    println!("    up after {:.1} s", booted.elapsed().as_secs_f32());

    let shown = show(&guest);
    if shown.is_err() {
        // What a person would look at next.
        for script in ["armlet ps", "dmesg | tail -n 20"] {
            eprintln!("--- {script}\n{}", text(&guest.run(script, Duration::from_secs(20))));
        }
        eprintln!("--- console\n{}", guest.console());
    }
    shown?;

    step("powering off: the pod is stopped in order first");
    guest.end_node("USR2")?;
    guest.wait_off(Duration::from_secs(45))?;
    println!("    off, {:.1} s after the start", booted.elapsed().as_secs_f32());
    Ok(())
}

fn show(guest: &Guest) -> Result<(), Box<dyn std::error::Error>> {
    wait(guest, "armlet images -o json | grep -q localhost/redis", Duration::from_secs(60))?;
    shown(guest, "armlet version")?;
    shown(guest, "armlet images")?;

    step(&format!("dropping {MANIFEST} into /etc/armlet/manifests"));
    let dropped = Instant::now();
    guest.write_file("/etc/armlet/manifests/redis.yaml", &std::fs::read(root().join(MANIFEST))?);
    let client = redis::Client::connect(guest.port(PORT)?, Duration::from_secs(90))?;
    println!("    redis answers this machine {:.1} s later", dropped.elapsed().as_secs_f32());

    step("a client on this machine");
    for command in [&["PING"][..], &["SET", "board", "armlet"], &["GET", "board"], &["INCR", "visits"]] {
        println!("    redis> {:<18} {}", command.join(" "), client.call(command)?);
    }

    step("the pod");
    wait(guest, "armlet ps | grep -q '2/2 *Running'", Duration::from_secs(20))?;
    shown(guest, "armlet ps")?;
    shown(guest, "armlet logs redis -c configure")?;
    shown(guest, "armlet logs redis -c heartbeat --tail 3 --timestamps")?;
    shown(guest, "armlet logs redis -c redis --tail 3")?;
    shown(guest, "armlet exec redis -c redis -- redis-cli info server | grep -E 'redis_version|process_id|arch_bits'")?;

    step("requests and limits of the manifest next to what the kernel enforces");
    print!("{}", guest.ok(include_str!("cgroups.sh")));

    step("memory of armlet itself (PSS, KiB)");
    print!("{}", guest.ok(include_str!("memory.sh")));
    Ok(())
}

/// The folder that becomes the data disk: images that the node imports when it starts.
fn preload(directory: &Path) -> Result<PathBuf, Box<dyn std::error::Error>> {
    let from = directory.join("data");
    let folder = from.join("preload");
    std::fs::create_dir_all(&folder)?;
    let pack = root().join("images/pack.sh");
    let status = Command::new(&pack).args(["busybox", "redis"]).stdout(std::process::Stdio::null()).status()?;
    if !status.success() {
        return Err(Box::new(Error::Failed { program: pack, status }));
    }
    for name in ["busybox.tar", "redis.tar"] {
        std::fs::copy(target().join("images").join(name), folder.join(name))?;
    }
    Ok(from)
}

fn step(title: &str) {
    println!("\n\x1b[1m{title}\x1b[0m");
}

/// Waits in the guest until a command succeeds.
fn wait(guest: &Guest, condition: &str, limit: Duration) -> Result<(), Box<dyn std::error::Error>> {
    let script = format!("until {condition}; do usleep 200000; done 2>/dev/null");
    if guest.run(&script, limit)?.success() { Ok(()) } else { Err(format!("not within {limit:?}: {condition}").into()) }
}

/// Shows a command and what it printed; an error when it fails.
fn shown(guest: &Guest, script: &str) -> Result<(), Box<dyn std::error::Error>> {
    println!("    # {script}");
    let output = guest.run(script, Duration::from_secs(30));
    for line in text(&output).lines() {
        println!("    {line}");
    }
    match output {
        Ok(output) if output.success() => Ok(()),
        Ok(output) => Err(format!("`{script}` ended with status {}", output.status).into()),
        Err(error) => Err(error.into()),
    }
}

fn text(output: &Result<Output, Error>) -> String {
    match output {
        Ok(output) => format!("{}{}", output.stdout, output.stderr),
        Err(error) => error.to_string(),
    }
}
