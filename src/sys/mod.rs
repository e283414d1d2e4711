//! Thin, safe Linux calls. Knows nothing of pods.

pub mod bpf;
pub mod confined;
pub mod layers;
pub mod overlay;
pub mod privileges;
pub mod program;
pub mod seccomp;
pub mod children;
pub mod clock;
pub mod exe;
pub mod log;
pub mod seqpacket;
pub mod signals;
