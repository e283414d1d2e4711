//! The armlet binary: chooses a role from argv before any thread starts.

use std::process::ExitCode;

fn main() -> ExitCode {
    let mut args = std::env::args_os().skip(1);
    match (args.next().as_deref().and_then(|role| role.to_str()), args.next()) {
        (Some("create"), Some(bundle)) => armlet::runtime::create::run_create(std::path::Path::new(&bundle)),
        (Some("exec-child"), None) => armlet::runtime::create::run_exec(),
        _ => ExitCode::from(2),
    }
}
