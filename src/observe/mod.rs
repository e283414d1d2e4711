//! Reads reality into `model::observed` and statistics. Changes nothing.

mod devices;
mod node;
mod remains;
mod termination;
mod usage;
mod written;

pub use devices::{host_devices, thermal_folders};
pub use node::{
    NodeError, amounts, amounts_of, boot_id, capacity, lies_in_memory, log_budget, memory_total, node_facts, reserved,
    resources,
};
pub use remains::pods_on_disk;
pub use termination::termination_message;
pub use usage::{group_usage, process_usage};
pub use written::{FACT as WRITTEN_FACT, Ledgers};
