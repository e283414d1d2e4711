//! The armlet binary: chooses a role from argv before any thread starts.

fn main() {}
