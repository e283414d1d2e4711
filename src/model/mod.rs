//! Plain values that all rooms speak. No I/O, no clocks, no locks.

pub mod action;
pub mod api;
pub mod event;
pub mod ids;
pub mod log;
pub mod observed;
pub mod pod;
pub mod quantity;
pub mod status;
pub mod supervise;
pub mod time;
pub mod view;

pub use ids::{ContainerId, ImageId, PodUid};
pub use quantity::Quantity;
pub use time::{BootTime, Millis, WallTime};
