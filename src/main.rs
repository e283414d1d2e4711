//! The armlet binary: chooses a role from argv before any thread starts.
//!
//! Names that begin with `@` are the roles that armlet starts itself; no command of people's can clash with them.

use armlet::model::supervise::role;
use armlet::sys::heap::Heap;
use armlet::{agent, cli, runtime, store, supervisor};
use std::ffi::OsString;
use std::path::Path;
use std::process::ExitCode;

#[global_allocator]
static HEAP: Heap = Heap;

fn main() -> ExitCode {
    let args: Vec<OsString> = std::env::args_os().collect();
    let rest = args.get(2..).unwrap_or_default();
    if std::process::id() == 1 {
        return supervisor::run(args.get(1..).unwrap_or_default());
    }
    match args.get(1).and_then(|arg| arg.to_str()) {
        Some("agent") => agent::boot(rest, role::STORE_CHECK),
        Some("supervisor") => supervisor::run(rest),
        Some(role::LOGGER) => supervisor::logger::run(),
        Some(role::LOOK_OVER) => supervisor::look_over(),
        Some(role::DHCP) => supervisor::dhcp::run(rest),
        Some(role::CREATE) => {
            rest.first().map_or(ExitCode::from(2), |bundle| runtime::create::run_create(Path::new(bundle)))
        }
        Some(role::EXEC) => runtime::create::run_exec(),
        Some(role::STORE_CHECK) => store::check_role(rest),
        _ => ExitCode::from(cli::run(args)),
    }
}
