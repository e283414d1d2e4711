//! The armlet binary: chooses a role from argv before any thread starts.

use std::process::ExitCode;

fn main() -> ExitCode {
    ExitCode::from(armlet::cli::run(std::env::args_os()))
}
