//! The create and exec roles: short-lived, single-threaded children of the supervisor that make a container and put
//! programs into one. The only place where libcontainer runs.
//!
//! Whatever goes wrong is told on the report descriptor, once, as [`ChildReport::Failed`]; standard error belongs to
//! the container.

mod console;
mod container;
mod derive;
mod error;
mod executor;
mod launch;
mod limits;
mod process;
mod report;
mod streams;

use crate::model::supervise::child_fd;
use error::CreateError;
use report::Report;
use std::path::Path;
use std::process::ExitCode;

/// `armlet create <bundle>`: makes and starts the container of a bundle.
#[must_use]
pub fn run_create(bundle: &Path) -> ExitCode {
    run(|report| container::create(bundle, report))
}

/// `armlet exec`: runs a program in a running container, as the order on [`child_fd::ORDER`] says.
#[must_use]
pub fn run_exec() -> ExitCode {
    run(process::exec)
}

fn run(role: impl FnOnce(&Report) -> Result<(), CreateError> + std::panic::UnwindSafe) -> ExitCode {
    // A panic's message would land in the container's log.
    std::panic::set_hook(Box::new(|_| {}));
    let Ok(report) = Report::take(child_fd::REPORT) else { return ExitCode::from(2) };
    let failure = match std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| role(&report))) {
        Ok(Ok(())) => return ExitCode::SUCCESS,
        Ok(Err(error)) => error.report(),
        Err(_) => CreateError::Panicked.report(),
    };
    report.send(&failure);
    ExitCode::FAILURE
}
