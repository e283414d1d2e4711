//! The one loop, the sources of desired pods, and the only writer of facts and status.
//!
//! - `looping`: what can wake the loop, and what each does to the loop's state.
//! - `pass`: one pass: the node plan, then each pod that may have changed.
//! - `slot`, `words`, `mirror`, `desired`: the loop's state: pods, what their containers said last, the supervisor's
//!   table, what the manifests want.
//! - `journal`: durable facts on their way to the store. `publish`: the picture that the server shows.
//! - [`manifests`]: the folder of static pods. `addresses`: the node's own. `machine`: what the machine lacks.
//!   `commands`, `images`: what the API asks for.
//!
//! The agent may be killed at any moment. It finds its way back from three places: the store (what pods there were),
//! the supervisor's table (what runs), and the manifests (what is wanted).

mod addresses;
mod boot;
mod commands;
mod desired;
mod images;
mod input;
mod journal;
mod log_file;
mod looping;
mod machine;
pub mod manifests;
mod mirror;
mod node_log;
mod pass;
mod publish;
mod reserved;
mod slot;
mod start;
mod verbs;
mod words;

pub use boot::boot;
pub use start::{AgentError, run};
