//! The pure decisions: what to do next for one pod and for the node. Never reads a clock, touches a disk, awaits or logs.
//!
//! [`pod`] decides for one pod, [`node`] for what pods compete for, and [`fold`] turns what came back into the facts
//! that the next decision sees. The agent's loop: observe, [`fold::table`], [`pod`], start and cancel what the plan
//! says, [`fold::status`], commit what changed, arm the timer for `wake_at`; and [`fold::outcome`] when an action ends.

mod conditions;
pub mod fold;
mod images;
mod node;
mod pod;
mod probes;
pub mod resources;
mod restart;
#[cfg(test)]
mod scenes;
mod sequence;
mod start;
mod status;
mod termination;
#[cfg(test)]
mod testing;
mod view;
#[cfg(test)]
mod world;

pub use node::{Admission, Grants, NodeObserved, NodePlan, PodSummary, node};
pub use pod::{Plan, hostname, pod};
pub use start::{log_path, pod_log_dir};
