//! Runs in the guest: the clock of the measurements. Times are read where things happen and kept in a file, so that the
//! waiting for the file adds nothing.
//!
//! `now` prints the time, nanoseconds since boot.
//! `mark FILE` writes it into FILE: the first thing that a measured container does.
//! `stay FILE` does the same and stays.
//! `drop FROM TO FILE` renames a manifest into its folder and prints the microseconds until FILE was marked.
//! `run FILE PROGRAM...` runs a program and prints the microseconds from its spawn until FILE was marked.
#![expect(clippy::print_stdout, clippy::print_stderr, reason = "its answer goes to the script that runs it")]

use std::io::{Error, ErrorKind, Result};
use std::path::Path;
use std::process::{Command, ExitCode, Stdio};
use std::time::Duration;

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let done = match words[..] {
        ["now"] => {
            println!("{}", now());
            Ok(())
        }
        ["mark", file] => mark(Path::new(file)),
        ["stay", file] => mark(Path::new(file)).map(|()| {
            loop {
                std::thread::park();
            }
        }),
        ["drop", from, to, file] => measure(Path::new(file), || std::fs::rename(from, to)),
        ["run", file, program, ref rest @ ..] => measure(Path::new(file), || run(program, rest)),
        _ => Err(Error::from(ErrorKind::InvalidInput)),
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("stopwatch {}: {error}", words.join(" "));
            ExitCode::FAILURE
        }
    }
}

/// Nanoseconds since boot.
fn now() -> i128 {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::Boottime);
    i128::from(time.tv_sec) * 1_000_000_000 + i128::from(time.tv_nsec)
}

fn mark(file: &Path) -> Result<()> {
    let time = now();
    // Renamed, so that whoever waits for the file finds it whole.
    let part = file.with_extension("part");
    std::fs::write(&part, time.to_string())?;
    std::fs::rename(&part, file)
}

fn measure(file: &Path, act: impl FnOnce() -> Result<()>) -> Result<()> {
    match std::fs::remove_file(file) {
        Err(error) if error.kind() != ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    let begin = now();
    act()?;
    let end = loop {
        match std::fs::read_to_string(file) {
            Ok(text) => break text.parse::<i128>().map_err(|_| Error::from(ErrorKind::InvalidData))?,
            Err(error) if error.kind() != ErrorKind::NotFound => return Err(error),
            Err(_) if now() - begin > 60_000_000_000 => return Err(Error::from(ErrorKind::TimedOut)),
            Err(_) => std::thread::sleep(Duration::from_millis(2)),
        }
    };
    println!("{}", (end - begin) / 1000);
    Ok(())
}

fn run(program: &str, arguments: &[&str]) -> Result<()> {
    let status = Command::new(program).args(arguments).stdin(Stdio::null()).stdout(Stdio::null()).status()?;
    if status.success() { Ok(()) } else { Err(Error::other(format!("{program}: {status}"))) }
}
