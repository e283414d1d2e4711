//! The real server on a real socket, real log files, real clients; only the node behind it is a fake.

mod connections;
mod containers_logs;
mod exec;
mod fake;
mod questions;
