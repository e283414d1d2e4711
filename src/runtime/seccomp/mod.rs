//! System call filters: armlet's own profile, and the compiler from an OCI profile to the program that the kernel
//! runs. Pure, but for the system call numbers, which libseccomp knows.
//!
//! libseccomp could make the program too, but takes a quarter of a container's start for it. Here each architecture
//! becomes one binary search over ranges of system call numbers, which takes about a millisecond.

mod compile;
mod numbers;
mod profile;
#[cfg(test)]
mod tests;

pub use compile::{CompileError, compile};
pub use numbers::Arch;
pub use profile::default_profile;
