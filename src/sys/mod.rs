//! Thin, safe Linux calls. Knows nothing of pods.

pub mod durable;
