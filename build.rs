//! Has the linker put an id into the binary that tells one build from another (`src/sys/build.rs`).

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    println!("cargo::rustc-link-arg-bins=-Wl,--build-id=sha1");
    println!("cargo::rustc-link-arg-tests=-Wl,--build-id=sha1");
}
