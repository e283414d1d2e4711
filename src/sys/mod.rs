//! Thin, safe Linux calls. Knows nothing of pods.

pub mod beneath;
pub mod clock;
pub mod durable;
pub mod log;
pub mod machine;
pub mod netlink;
pub mod netns;
#[cfg(test)]
pub(crate) mod testing;
