//! Thin, safe Linux calls. Knows nothing of pods.

pub mod clock;
pub mod files;
pub mod log;
pub mod mounts;
pub mod netlink;
pub mod netns;
pub mod sysctl;
pub mod tree;
