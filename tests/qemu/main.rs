//! armlet on a real aarch64 kernel with cgroup v2. `make test` runs these; tests of one kind share one boot.

mod bare;
mod create;
mod guests;
mod supervisor;
mod rooms;
