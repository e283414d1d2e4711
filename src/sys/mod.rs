//! Thin, safe Linux calls. Knows nothing of pods.

pub mod children;
pub mod clock;
pub mod exe;
pub mod log;
pub mod seqpacket;
pub mod signals;
pub mod netlink;
pub mod netns;
