//! System call filters: armlet's own profile, and the compiler from an OCI profile to the program that the kernel
//! runs. Pure, but for the system call numbers, which libseccomp knows.
//!
//! libseccomp could make the program too, but takes a quarter of a container's start for it. Here each architecture
//! becomes one binary search over ranges of system call numbers, compiled once in the agent.

mod compile;
mod numbers;
mod profile;
#[cfg(test)]
mod tests;

pub use compile::{CompileError, compile};
pub use numbers::Arch;
pub use profile::default_profile;

use super::request::FilterProgram;
use crate::sys::privileges::Capabilities;
use oci_spec::runtime::{LinuxSeccomp, LinuxSeccompFilterFlag};
use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};

/// Compiles a profile, its flags included.
///
/// # Errors
/// [`CompileError`].
pub fn program(profile: &LinuxSeccomp) -> Result<FilterProgram, CompileError> {
    let flags = profile.flags().iter().flatten().map(|flag| match flag {
        LinuxSeccompFilterFlag::SeccompFilterFlagTsync => 1,
        LinuxSeccompFilterFlag::SeccompFilterFlagLog => 2,
        LinuxSeccompFilterFlag::SeccompFilterFlagSpecAllow => 4,
        LinuxSeccompFilterFlag::SeccompFilterFlagWaitKillableRecv => 32,
    });
    Ok(FilterProgram::new(&compile(profile)?, flags.fold(0, |all, flag| all | flag)))
}

/// The compiled [`default_profile`]. It is the same for all containers with the same capabilities, so each is compiled
/// once in the life of a process.
///
/// # Errors
/// [`CompileError`], if the profile were wrong.
pub fn default_program(capabilities: Capabilities) -> Result<FilterProgram, CompileError> {
    static COMPILED: Mutex<BTreeMap<u64, FilterProgram>> = Mutex::new(BTreeMap::new());
    /// Sets of capabilities are few; manifests must not fill the memory with them.
    const MOST: usize = 32;
    let mut compiled = COMPILED.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(program) = compiled.get(&capabilities.0) {
        return Ok(program.clone());
    }
    let program = program(&default_profile(capabilities))?;
    if compiled.len() < MOST {
        compiled.insert(capabilities.0, program.clone());
    }
    Ok(program)
}
