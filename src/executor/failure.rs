//! From a room's error to an outcome.

use crate::model::action::{Failure, Outcome};
use crate::sys::log::chain;
use std::error::Error;

/// An outcome that says what went wrong.
pub(super) fn failed(reason: &str, message: impl Into<String>) -> Outcome {
    Outcome::Failed(Failure { reason: reason.to_owned(), message: message.into() })
}

/// The same for a room's error: the whole chain of causes in one line.
pub(super) fn because(reason: &str, error: &dyn Error) -> Outcome {
    failed(reason, chain(error))
}

/// Done, or why not.
pub(super) fn done<T, E: Error>(result: Result<T, E>) -> Outcome {
    match result {
        Ok(_) => Outcome::Done,
        Err(error) => because("Failed", &error),
    }
}

/// Runs a room's blocking call on a thread for such work.
pub(super) async fn blocking<T, E>(work: impl FnOnce() -> Result<T, E> + Send + 'static) -> Outcome
where
    T: Send + 'static,
    E: Error + Send + 'static,
{
    match tokio::task::spawn_blocking(work).await {
        Ok(result) => done(result),
        Err(error) => because("Panicked", &error),
    }
}

/// All failures of a teardown, or done.
pub(super) fn all_done(failures: &[String]) -> Outcome {
    if failures.is_empty() { Outcome::Done } else { failed("Failed", failures.join("; ")) }
}
