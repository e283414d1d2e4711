//! What can be read of the machine without an agent. Every reader is bounded; none starts a program.

use crate::config::Config;
use crate::model::action::{OWN_GROUP, OWN_SLICE};
use crate::model::supervise::{Ask, LogLines, MAX_MESSAGE, Message, Reply, Request};
use crate::sys::seqpacket;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;
use std::fmt::Write as _;
use std::fs;
use std::io::{self, Read as _};
use std::os::fd::AsFd as _;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

/// Bytes of one file that is gathered as it is.
const LONGEST: u64 = 256 * 1024;
/// Bytes of the kernel's last messages.
const KERNEL_TAIL: usize = 128 * 1024;
/// Entries that are counted in folders, so that a full card does not hold everything up.
const ENTRIES: usize = 50_000;
/// Where cgroup v2 is mounted.
const CGROUPS: &str = "/sys/fs/cgroup";
/// The files of a group that tell what it is held to and what it has used.
const GROUP_FILES: [&str; 21] = [
    "cgroup.controllers",
    "cgroup.subtree_control",
    "cgroup.events",
    "cgroup.stat",
    "cpu.weight",
    "cpu.max",
    "cpu.stat",
    "cpu.pressure",
    "io.pressure",
    "memory.min",
    "memory.low",
    "memory.high",
    "memory.max",
    "memory.swap.max",
    "memory.oom.group",
    "memory.current",
    "memory.peak",
    "memory.events",
    "memory.pressure",
    "pids.max",
    "pids.current",
];

/// Files of the kernel, one after the other, each with its name.
fn files(names: &[&str]) -> io::Result<String> {
    let mut text = String::new();
    for name in names {
        match read(Path::new(name)) {
            Ok(bytes) => write_part(&mut text, name, &String::from_utf8_lossy(&bytes)),
            Err(error) => write_part(&mut text, name, &format!("({error})")),
        }
    }
    Ok(text)
}

fn write_part(text: &mut String, name: &str, part: &str) {
    let _ = writeln!(text, "== {name}\n{}\n", part.trim_end());
}

fn read(path: &Path) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    fs::File::open(path)?.take(LONGEST).read_to_end(&mut bytes)?;
    Ok(bytes)
}

/// What the kernel is and how the machine does.
pub(super) fn kernel() -> io::Result<String> {
    files(&[
        "/proc/version",
        "/proc/cmdline",
        "/proc/uptime",
        "/proc/loadavg",
        "/proc/meminfo",
        "/proc/swaps",
        "/proc/pressure/cpu",
        "/proc/pressure/io",
        "/proc/pressure/memory",
        "/proc/modules",
        "/proc/cgroups",
        "/etc/os-release",
    ])
}

/// Mounted file systems.
pub(super) fn mounts() -> io::Result<String> {
    files(&["/proc/self/mountinfo", "/proc/partitions"])
}

/// Links, addresses and routes.
pub(super) fn network() -> io::Result<String> {
    let mut text = String::new();
    for entry in fs::read_dir("/sys/class/net")?.flatten() {
        let of = |file: &str| fs::read_to_string(entry.path().join(file)).unwrap_or_default().trim().to_owned();
        let name = entry.file_name();
        let (state, mtu, address) = (of("operstate"), of("mtu"), of("address"));
        let _ = writeln!(text, "{} state {state} mtu {mtu} address {address}", name.to_string_lossy());
    }
    text.push('\n');
    Ok(text
        + &files(&[
            "/proc/net/route",
            "/proc/net/fib_trie",
            "/proc/net/if_inet6",
            "/proc/net/ipv6_route",
            "/proc/net/dev",
        ])?)
}

/// The groups of pods and of armlet, with their values.
pub(super) fn cgroups() -> io::Result<String> {
    let mut text = String::new();
    let mut folders = vec![Path::new(CGROUPS).join("kubepods"), Path::new(CGROUPS).join("armlet")];
    let mut left = ENTRIES;
    while let Some(folder) = folders.pop() {
        left = left.saturating_sub(1);
        if left == 0 {
            text.push_str("... and more groups\n");
            break;
        }
        let _ = writeln!(text, "== {}", folder.display());
        for file in GROUP_FILES {
            if let Ok(value) = fs::read_to_string(folder.join(file)) {
                let _ = writeln!(text, "{file}: {}", value.trim_end().replace('\n', "; "));
            }
        }
        let below = fs::read_dir(&folder).into_iter().flatten().flatten();
        let mut below: Vec<PathBuf> = below.map(|entry| entry.path()).filter(|path| path.is_dir()).collect();
        below.sort_unstable_by(|a, b| b.cmp(a));
        folders.extend(below);
    }
    Ok(text)
}

/// armlet's own processes: how they were started, what guards them, what they take.
pub(super) fn roles() -> io::Result<String> {
    let mut text = String::new();
    let tops = [OWN_GROUP, OWN_SLICE].map(|top| Path::new(CGROUPS).join(top));
    let mut groups: Vec<PathBuf> = tops.into_iter().filter(|top| top.is_dir()).collect();
    if groups.is_empty() {
        return Err(io::Error::new(io::ErrorKind::NotFound, format!("no {OWN_GROUP} and no {OWN_SLICE} in {CGROUPS}")));
    }
    while let Some(group) = groups.pop() {
        let mut below: Vec<PathBuf> =
            fs::read_dir(&group)?.flatten().map(|e| e.path()).filter(|p| p.is_dir()).collect();
        below.sort_by(|a, b| b.cmp(a));
        groups.extend(below);
        let name = group.strip_prefix(CGROUPS).unwrap_or(&group).display();
        for pid in fs::read_to_string(group.join("cgroup.procs")).unwrap_or_default().lines() {
            let of = |file: &str| fs::read_to_string(format!("/proc/{pid}/{file}")).unwrap_or_default();
            let status = of("status");
            let wanted = ["VmRSS:", "VmHWM:", "Threads:"];
            let figures = status.lines().filter(|line| wanted.iter().any(|name| line.starts_with(name)));
            let figures: Vec<String> =
                figures.map(|line| line.split_whitespace().collect::<Vec<_>>().join(" ")).collect();
            let (command, score) = (of("cmdline").replace('\0', " "), of("oom_score_adj"));
            let _ =
                writeln!(text, "{name} pid {pid}: {command}\n  oom_score_adj {}; {}", score.trim(), figures.join("; "));
        }
    }
    Ok(text)
}

/// The kernel's last messages.
pub(super) fn kernel_messages() -> io::Result<String> {
    let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::CLOEXEC;
    let kmsg = rustix::fs::open("/dev/kmsg", flags, Mode::empty())?;
    let (mut text, mut record) = (String::new(), vec![0; 8192]);
    loop {
        match rustix::io::read(&kmsg, &mut record[..]) {
            Ok(0) | Err(Errno::AGAIN) => break,
            Ok(len) => text.push_str(&message(&String::from_utf8_lossy(record.get(..len).unwrap_or_default()))),
            // It was written over while it was read.
            Err(Errno::PIPE | Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
        if text.len() > 4 * KERNEL_TAIL {
            text = tail(&text, KERNEL_TAIL);
        }
    }
    Ok(tail(&text, KERNEL_TAIL))
}

/// A record of `/dev/kmsg` (`PRIORITY,NUMBER,MICROSECONDS,FLAGS;TEXT`) as dmesg shows it.
fn message(record: &str) -> String {
    let (head, text) = record.split_once(';').unwrap_or(("", record));
    let micros: u64 = head.split(',').nth(2).and_then(|n| n.parse().ok()).unwrap_or(0);
    let text = text.lines().next().unwrap_or_default();
    format!("[{:5}.{:06}] {text}\n", micros / 1_000_000, micros % 1_000_000)
}

/// The end of a text, from the beginning of a line on.
fn tail(text: &str, most: usize) -> String {
    let from = text.ceil_char_boundary(text.len().saturating_sub(most));
    let rest = text.get(from..).unwrap_or_default();
    let whole = if from == 0 { rest } else { rest.split_once('\n').map_or("", |(_, rest)| rest) };
    whole.to_owned()
}

/// Room on the node's file systems, what its folders take, and the files of its store.
pub(super) fn disks(config: &Config) -> io::Result<String> {
    let mut text = String::new();
    for folder in [&config.data_dir, &config.run_dir, &config.pod_logs_dir] {
        let path = Path::new(folder);
        let Ok(room) = rustix::fs::statvfs(path) else {
            let _ = writeln!(text, "{folder}: not there\n");
            continue;
        };
        let bytes = |blocks: u64| blocks.saturating_mul(room.f_frsize) >> 10;
        let _ = writeln!(
            text,
            "{folder}: {} KiB, {} KiB free, inodes {}, {} free",
            bytes(room.f_blocks),
            bytes(room.f_bavail),
            room.f_files,
            room.f_favail
        );
        let mut left = ENTRIES;
        let mut entries: Vec<PathBuf> = fs::read_dir(path)?.flatten().map(|entry| entry.path()).collect();
        entries.sort();
        for entry in entries {
            let kib = size(&entry, &mut left) >> 10;
            let more = if left == 0 { " or more" } else { "" };
            let _ =
                writeln!(text, "  {kib:>10} KiB{more}  {}", entry.file_name().unwrap_or_default().to_string_lossy());
        }
        text.push('\n');
    }
    let store = Path::new(&config.data_dir).join("store");
    let _ = writeln!(text, "{}:", store.display());
    let mut names: Vec<String> = fs::read_dir(&store)?
        .flatten()
        .map(|entry| {
            let bytes = entry.metadata().map_or(0, |metadata| metadata.len());
            let damaged =
                if entry.file_name().to_string_lossy().contains(".damaged-") { "  DAMAGED, set aside" } else { "" };
            format!("  {bytes:>10} bytes  {}{damaged}", entry.file_name().to_string_lossy())
        })
        .collect();
    names.sort();
    Ok(text + &names.join("\n") + "\n")
}

/// Bytes on the disk of a file, or of a folder and all in it on the same file system.
fn size(path: &Path, left: &mut usize) -> u64 {
    let Ok(metadata) = path.symlink_metadata() else { return 0 };
    *left = left.saturating_sub(1);
    let mut sum = metadata.blocks().saturating_mul(512);
    if metadata.is_dir() && *left > 0 {
        for entry in fs::read_dir(path).into_iter().flatten().flatten() {
            let same = entry.metadata().is_ok_and(|inner| inner.dev() == metadata.dev());
            if *left > 0 && same {
                sum = sum.saturating_add(size(&entry.path(), left));
            }
        }
    }
    sum
}

/// The panics that were kept.
pub(super) fn panics(config: &Config) -> io::Result<String> {
    let folder = Path::new(&config.data_dir).join("panics");
    let mut files: Vec<PathBuf> = match fs::read_dir(&folder) {
        Ok(entries) => entries.flatten().map(|entry| entry.path()).collect(),
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok("none\n".to_owned()),
        Err(error) => return Err(error),
    };
    files.sort();
    let mut text = String::new();
    for file in files {
        let part = read(&file).map(|bytes| String::from_utf8_lossy(&bytes).into_owned());
        write_part(&mut text, &file.display().to_string(), &part.unwrap_or_else(|error| format!("({error})")));
    }
    Ok(text)
}

/// The supervisor's own lines, asked of itself: where there is no agent that could.
pub(super) fn supervisor_log(config: &Config) -> io::Result<String> {
    let socket = seqpacket::connect(&Path::new(&config.run_dir).join("supervisor.sock"))?;
    let (mut text, mut after) = (String::new(), 0);
    let mut buffer = vec![0; MAX_MESSAGE];
    for seq in 1..=16 {
        let request = serde_json::to_vec(&Request { seq, ask: Ask::Log { after } })?;
        seqpacket::send(socket.as_fd(), &request, &[])?;
        if poll(&mut [PollFd::new(&socket, PollFlags::IN)], Some(&Timespec { tv_sec: 2, tv_nsec: 0 }))? == 0 {
            return Err(io::ErrorKind::TimedOut.into());
        }
        let Some(got) = seqpacket::receive(socket.as_fd(), &mut buffer)?.filter(|got| got.len > 0) else { break };
        match serde_json::from_slice(buffer.get(..got.len).unwrap_or_default())? {
            Message::Reply { reply: Reply::Log(LogLines { text: lines, next, .. }), .. } if !lines.is_empty() => {
                text += &lines;
                after = next;
            }
            Message::Reply { reply: Reply::Refused { message, .. }, .. } => return Err(io::Error::other(message)),
            _ => break,
        }
    }
    Ok(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kernel_records_are_shown_as_people_know_them() {
        let record = "6,339,5140900,-;NET: Registered protocol family 10\n SUBSYSTEM=net\n";
        assert_eq!(message(record), "[    5.140900] NET: Registered protocol family 10\n");
        assert_eq!(message("odd"), "[    0.000000] odd\n");
        assert_eq!(tail("one\ntwo\nthree\n", 10), "three\n");
        assert_eq!(tail("one\n", 10), "one\n");
        assert_eq!(tail("\u{e9}\u{e9}\n\u{e9}\n", 4), "\u{e9}\n");
    }

    #[test]
    fn what_folders_take_is_told_within_bounds() {
        let data = tempfile::tempdir().unwrap();
        let path = |name: &str| data.path().join(name);
        fs::create_dir_all(path("store")).unwrap();
        fs::create_dir_all(path("images/a/b")).unwrap();
        fs::write(path("images/a/b/layer"), vec![1; 100_000]).unwrap();
        fs::write(path("store/pod-0"), "x").unwrap();
        fs::write(path("store/tree.damaged-1"), "x").unwrap();
        let config = Config {
            data_dir: data.path().display().to_string(),
            run_dir: "/nonexistent/run".to_owned(),
            pod_logs_dir: "/nonexistent/logs".to_owned(),
            ..Config::default()
        };
        let text = disks(&config).unwrap();
        let images: u64 = text
            .lines()
            .find(|line| line.ends_with("  images"))
            .unwrap()
            .split_whitespace()
            .next()
            .unwrap()
            .parse()
            .unwrap();
        assert!((97..300).contains(&images), "{text}");
        assert!(text.contains("/nonexistent/run: not there") && text.contains("tree.damaged-1  DAMAGED"), "{text}");
        let mut left = 2;
        size(data.path(), &mut left);
        assert_eq!(left, 0);
        assert_eq!(panics(&config).unwrap(), "none\n");
        assert!(supervisor_log(&config).is_err());
    }
}
