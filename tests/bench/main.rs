//! `make bench`: armlet's speed and size beside crun and podman of Debian, in one boot of one guest, as a table and as
//! `target/bench/results.json`. It reports and judges nothing; an idle host is the reader's business.
#![expect(clippy::print_stdout, clippy::print_stderr, reason = "it reports to its terminal")]

mod boots;
mod guest;
mod peers;
mod rows;
mod scale;

use armlet_vm::{Error, binary, root, target};
use guest::{Failure, Node};
use rows::Row;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, Stdio};

/// How often each start, exec and boot is measured; `BENCH_ROUNDS` overrides it.
const ROUNDS: usize = 21;

fn main() -> ExitCode {
    match bench() {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("\nbench failed: {error}");
            ExitCode::FAILURE
        }
    }
}

fn bench() -> Result<(), Failure> {
    let rounds = std::env::var("BENCH_ROUNDS").ok().map_or(Ok(ROUNDS), |rounds| rounds.parse())?;
    let bench = prepare()?;
    let directory = target().join("vm/run/bench");
    std::fs::create_dir_all(&directory)?;
    let binary = binary()?;
    say(&format!("{} rounds; {}; load {}", rounds, binary.display(), load()));

    let node = Node::boot(&bench, &directory)?;
    say(node.ask("crun --version | head -n 1; podman --version; uname -r")?.trim_end());
    let (mut rows, first) = peers::rows(&node, rounds, say)?;
    rows.extend(scale::rows(&node, rounds, first, say)?);
    node.ask("dd if=/dev/zero of=$data/boot bs=4096 count=1 2>/dev/null; rm -rf $data/podman; sync")?;
    let data = node.data.clone();
    node.power_off()?;
    rows.push(boots::row(&bench, &directory, &data, rounds, say)?);
    rows.push(binary_size(&binary)?);

    println!("\n{}\nload now {}", rows::table(&rows), load());
    let results = bench.join("results.json");
    std::fs::write(&results, format!("{:#}\n", rows::json(&rows)))?;
    println!("{}", results.strip_prefix(root()).unwrap_or(&results).display());
    Ok(())
}

/// Runs `prepare.sh`, whose messages go to the terminal; gives the folder of its last line.
fn prepare() -> Result<PathBuf, Failure> {
    let program = root().join("tests/bench/prepare.sh");
    let output = Command::new(&program).stderr(Stdio::inherit()).output()?;
    if !output.status.success() {
        return Err(Box::new(Error::Failed { program, status: output.status }));
    }
    Ok(PathBuf::from(String::from_utf8(output.stdout)?.trim_end()))
}

fn binary_size(binary: &Path) -> Result<Row, Failure> {
    #[expect(clippy::cast_precision_loss, reason = "a program has no 2^53 bytes")]
    let bytes = std::fs::metadata(binary)?.len() as f64;
    Ok(Row::alone("binary_bytes", bytes, "bytes", "< 12582912"))
}

/// Whether the host is idle: its load averages.
fn load() -> String {
    let text = std::fs::read_to_string("/proc/loadavg").unwrap_or_default();
    text.split_whitespace().take(3).collect::<Vec<_>>().join(" ")
}

fn say(text: &str) {
    println!("{text}");
}
