//! The supervisor and its logger as real processes, with fake create and exec children: this binary plays them all.
//!
//! Needs root and cgroup v2, in which it makes a group of its own. Without root it says so and tests nothing; the QEMU ring
//! runs it as root.
#![expect(clippy::unwrap_used, clippy::expect_used, clippy::print_stdout, reason = "a test program")]

mod cases;
mod fake;
mod hand_over;
mod harness;
mod joint;

use armlet::model::supervise::role;
use std::ffi::OsString;
use std::process::ExitCode;

fn main() -> ExitCode {
    let args: Vec<OsString> = std::env::args_os().skip(1).collect();
    let rest = args.get(1..).unwrap_or_default();
    match args.first().and_then(|a| a.to_str()) {
        Some("supervisor") => armlet::supervisor::run(rest),
        Some(role::LOGGER) => armlet::supervisor::logger::run(),
        Some(role::LOOK_OVER) => fake::look_over(),
        Some(role::CREATE) => fake::create(rest),
        Some(role::EXEC) => fake::exec(),
        Some("@joint") => joint::run(),
        Some("--list") => ExitCode::SUCCESS,
        other => cases::run(other.filter(|a| !a.starts_with('-'))),
    }
}
