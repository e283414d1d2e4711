//! Thin, safe Linux calls. Knows nothing of pods.

pub mod durable;
pub mod clock;
pub mod inotify;
pub mod files;
pub mod log;
pub mod mounts;
pub mod children;
pub mod clock;
pub mod exe;
pub mod log;
pub mod seqpacket;
pub mod signals;
pub mod netlink;
pub mod netns;
pub mod ready;
pub mod sysctl;
pub mod tree;
