//! Thin, safe Linux calls. Knows nothing of pods.

pub mod clock;
pub mod inotify;
pub mod log;
pub mod ready;
