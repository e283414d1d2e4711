//! Thin, safe Linux calls. Knows nothing of pods.

pub mod durable;
pub mod clock;
pub mod inotify;
pub mod files;
pub mod log;
pub mod mounts;
pub mod bpf;
pub mod children;
pub mod clock;
pub mod confined;
pub mod exe;
pub mod layers;
pub mod log;
pub mod overlay;
pub mod privileges;
pub mod program;
pub mod seccomp;
pub mod seqpacket;
pub mod signals;
pub mod netlink;
pub mod netns;
pub mod ready;
pub mod sysctl;
pub mod tree;
