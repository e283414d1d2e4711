//! Reads reality into `model::observed` and statistics. Changes nothing.

mod devices;
mod node;
mod remains;
mod termination;

pub use devices::{host_devices, thermal_folders};
pub use node::{NodeError, amounts, boot_id, capacity, log_budget, memory_total, node_facts, reserved, resources};
pub use remains::pods_on_disk;
pub use termination::termination_message;
