//! armlet: a whole Kubernetes node in one static binary for ARM boards.
//!
//! The rooms, in reading order. Each room's own page says what it holds and what it must never do; `tests/tidy.rs`
//! keeps the import directions, and `ARCHITECTURE.md` tells why they are what they are.
//!
//! 1. [`model`]: plain values that all rooms speak.
//! 2. [`plan`]: the pure decisions.
//! 3. [`wire`]: Kubernetes JSON and YAML, read into `model` and written back.
//! 4. [`config`]: flags and the configuration file, read into one validated value.
//! 5. [`sys`]: thin, safe Linux calls.
//! 6. [`store`]: durable facts.
//! 7. [`images`], [`network`], [`volumes`], [`runtime`]: what a pod is made of.
//! 8. [`supervisor`]: the parent of every container, the logger, and process 1.
//! 9. [`observe`], [`executor`], [`agent`]: the loop that makes reality what the plan says.
//! 10. [`server`], [`cli`]: how people see it; [`check`]: whether a machine is
//!     ready; [`install`]: onto it and off it.

pub mod agent;
pub mod check;
pub mod cli;
pub mod config;
pub mod executor;
pub mod images;
pub mod install;
pub mod model;
pub mod network;
pub mod observe;
pub mod plan;
pub mod runtime;
pub mod server;
pub mod store;
pub mod supervisor;
pub mod sys;
pub mod volumes;
pub mod wire;
