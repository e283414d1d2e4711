//! Thin, safe Linux calls. Knows nothing of pods.

pub mod children;
pub mod clock;
pub mod exe;
pub mod log;
pub mod namespaces;
pub mod netlink;
pub mod netns;
pub mod seqpacket;
pub mod signals;
