//! Thin, safe Linux calls. Knows nothing of pods.

pub mod accounting;
pub mod beneath;
pub mod bpf;
pub mod build;
pub mod children;
pub mod clock;
pub mod confined;
pub mod device;
pub mod durable;
pub mod exe;
pub mod files;
pub mod heap;
pub mod inotify;
pub mod inside;
pub mod layers;
pub mod log;
pub mod machine;
pub mod memory;
pub mod mounts;
pub mod namespaces;
pub mod netlink;
pub mod netns;
pub mod overlay;
pub mod own_group;
pub mod privileges;
pub mod program;
pub mod random;
pub mod ready;
pub mod seccomp;
pub mod seqpacket;
pub mod signals;
pub mod sysctl;
#[cfg(test)]
pub(crate) mod testing;
pub mod timers;
pub mod tree;
