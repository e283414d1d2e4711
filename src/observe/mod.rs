//! Reads reality into `model::observed` and statistics. Changes nothing.

mod node;
mod termination;

pub use node::{NodeError, boot_id, node_facts, capacity};
pub use termination::termination_message;
