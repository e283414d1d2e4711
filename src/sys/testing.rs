//! For tests of what only root may do.

/// Whether this test may change owners and make devices. `make test` and CI run as root and say so with `CI` or
/// `ARMLET_TEST_ROOT`: there a test that would have to pass over its subject fails instead.
pub(crate) fn is_root() -> bool {
    let root = rustix::process::geteuid().is_root();
    let required = std::env::var_os("CI").is_some() || std::env::var_os("ARMLET_TEST_ROOT").is_some();
    assert!(root || !required, "this test needs root");
    if !root {
        println!("passed over: needs root");
    }
    root
}
