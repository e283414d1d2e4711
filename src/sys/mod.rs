//! Thin, safe Linux calls. Knows nothing of pods.
