//! Kubernetes JSON and YAML: parsing, defaulting, validation, conversion from and to `model`. Never reaches the system.
//!
//! A manifest goes through the files in this order:
//! 1. [`document`]: bytes to documents; [`yaml`] and [`json`] build [`tree`] nodes that know their lines.
//! 2. [`schema`] and [`support`]: every field is known, of the right type, and honoured; or it is named as a problem.
//! 3. [`defaults`], [`validate`]: what the API server would fill in and refuse.
//! 4. [`convert`]: the typed v1.Pod becomes a `model` pod; [`identity`] gives its UID.
//!
//! Reading never stops at the first problem: it returns what could be read and the list of everything that is wrong.
//! Back out go [`pod`] (v1.Pod with status, lists) and [`emit`] (YAML).

mod convert;
mod defaults;
pub(crate) mod document;
pub mod emit;
mod expand;
#[cfg(test)]
mod fuzz_tests;
mod identity;
mod json;
pub mod manifest;
#[cfg(test)]
mod manifest_tests;
pub(crate) mod names;
pub mod pod;
pub mod problem;
#[cfg(test)]
mod problem_tests;
pub(crate) mod report;
mod scalar;
pub(crate) mod schema;
mod support;
pub(crate) mod tree;
mod validate;
mod yaml;

pub use manifest::{NodeIdentity, Parsed, parse};
pub use problem::{Path, Problem, Severity};
