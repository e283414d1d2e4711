//! armlet on a real aarch64 kernel with cgroup v2. `make test` runs these; tests of one kind share one boot.

mod bare;
mod guests;
mod node;
mod pods;
mod rooms;
