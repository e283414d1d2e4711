//! Thin, safe Linux calls. Knows nothing of pods.

pub mod bpf;
pub mod children;
pub mod clock;
pub mod confined;
pub mod device;
pub mod exe;
pub mod layers;
pub mod log;
pub mod namespaces;
pub mod netlink;
pub mod netns;
pub mod overlay;
pub mod privileges;
pub mod program;
pub mod seccomp;
pub mod seqpacket;
pub mod signals;
