//! armlet on a real aarch64 kernel with cgroup v2. `make test` runs these; tests of one kind share one boot.

mod archives;
mod bare;
mod cli;
mod guests;
mod images;
mod logs;
mod manifests;
mod network;
mod node;
mod rooms;
