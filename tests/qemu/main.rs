//! armlet on a real aarch64 kernel with cgroup v2. `make test` runs these; tests of one kind share one boot.
#![expect(clippy::unwrap_used, reason = "a guest that cannot be made fails the test")]

mod archives;
mod bare;
mod check;
mod cli;
mod create;
mod debian;
mod guests;
mod images;
mod logs;
mod manifests;
mod network;
mod node;
mod own_life;
mod package;
mod pod_node;
mod pods;
mod process_one;
mod resources;
mod rooms;
mod runtime;
mod supervisor;
mod survival;
mod verbs;
