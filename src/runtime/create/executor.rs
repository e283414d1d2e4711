//! What libcontainer calls inside the container, as its first process, when all is prepared.

use super::launch::{Launch, NotRunnable};
use super::report::Status;
use crate::sys::program::exit_now;
use libcontainer::oci_spec::runtime::Spec;
use libcontainer::workload::{Executor, ExecutorError, ExecutorSetEnvsError, ExecutorValidationError};
use std::cell::OnceCell;
use std::collections::HashMap;
use std::ffi::CString;
use std::rc::Rc;

/// Runs the container's program in place of libcontainer's own executor, which insists on PATH and on a permission
/// bit that not every program has, leaves SIGPIPE ignored, and cannot load a prepared filter.
#[derive(Debug, Clone)]
pub(super) struct ProgramExecutor {
    launch: Rc<Launch>,
    status: Status,
    program: Rc<OnceCell<CString>>,
}

impl ProgramExecutor {
    pub(super) fn new(launch: Launch, status: Status) -> Self {
        Self { launch: Rc::new(launch), status, program: Rc::new(OnceCell::new()) }
    }

    fn told(&self, failure: &NotRunnable) -> String {
        self.status.say(&failure.report());
        failure.to_string()
    }
}

impl Executor for ProgramExecutor {
    /// Runs before the container counts as created, as the container's user.
    fn validate(&self, _: &Spec) -> Result<(), ExecutorValidationError> {
        let program =
            self.launch.find().map_err(|failure| ExecutorValidationError::ArgValidationError(self.told(&failure)))?;
        let _ = self.program.set(program);
        Ok(())
    }

    /// The environment is passed to execve as the spec lists it, not through this process's own.
    fn setup_envs(&self, _: HashMap<String, String>) -> Result<(), ExecutorSetEnvsError> {
        Ok(())
    }

    fn exec(&self, _: &Spec) -> Result<(), ExecutorError> {
        let program = self.program.get().ok_or(ExecutorError::InvalidArg)?;
        // libcontainer only marks its descriptors close-on-exec; the path of the program may lead through them.
        let failure = match self.status.close_all_others() {
            Ok(()) => self.launch.become_program(program),
            Err(source) => NotRunnable::Confinement { operation: "close descriptors", source },
        };
        self.told(&failure);
        // libcontainer's own way out would use what is closed now.
        exit_now(127)
    }
}
