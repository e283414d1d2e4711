//! Thin, safe Linux calls. Knows nothing of pods.

pub mod bpf;
pub mod confined;
pub mod layers;
pub mod overlay;
pub mod privileges;
pub mod program;
pub mod seccomp;
