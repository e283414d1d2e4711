//! Thin, safe Linux calls. Knows nothing of pods.

pub mod durable;
pub mod clock;
pub mod inotify;
pub mod log;
pub mod netlink;
pub mod netns;
pub mod ready;
