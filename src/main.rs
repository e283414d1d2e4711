//! The armlet binary: chooses a role from argv before any thread starts.

use std::ffi::OsString;
use std::process::ExitCode;

fn main() -> ExitCode {
    let args: Vec<OsString> = std::env::args_os().skip(1).collect();
    let role = args.first().and_then(|r| r.to_str()).unwrap_or_default();
    let rest = args.get(1..).unwrap_or_default();
    match role {
        "supervisor" => armlet::supervisor::run(rest),
        "logger" => armlet::supervisor::logger::run(),
        _ => ExitCode::FAILURE,
    }
}
