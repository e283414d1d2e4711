//! Thin, safe Linux calls. Knows nothing of pods.

pub mod netlink;
pub mod netns;
