//! Collects the problems of one object, in Kubernetes' words, with the lines looked up in its tree.

use super::names::Faults;
use super::problem::{Path, Problem, Severity, by_line};
use super::tree::Node;
use std::fmt::{Debug, Display};

/// How many problems of one object are told. A person fixes some and looks again; a hostile file fills no memory.
const MAX_PROBLEMS: usize = 200;

/// The problems of one object.
#[derive(Debug)]
pub(crate) struct Report<'a> {
    file: &'a str,
    document: usize,
    tree: &'a Node,
    /// Where the object stands in its document: nothing, or `items[3]`.
    base: Path,
    found: Vec<(Path, Problem)>,
    /// How many of `found` were there at the last [`Report::seal`].
    sealed: usize,
    refused: bool,
    /// An unknown field is no error.
    lenient: bool,
    /// How many were not kept.
    more: usize,
}

impl<'a> Report<'a> {
    /// A report about the object `tree`, which stands at `base` in document number `document` of `file`.
    pub(crate) fn new(file: &'a str, document: usize, tree: &'a Node, base: Path) -> Self {
        Self { file, document, tree, base, found: Vec::new(), sealed: 0, refused: false, lenient: false, more: 0 }
    }

    /// An unknown field is accepted with a warning: the object was written for others too.
    pub(crate) fn lenient(self, lenient: bool) -> Self {
        Self { lenient, ..self }
    }

    /// The object has a field that nobody knows.
    /// `near`: one that may have been meant.
    pub(crate) fn unknown(&mut self, path: &Path, near: Option<&str>) {
        let (fate, severity) = if self.lenient { (" and ignored", Severity::Warning) } else { ("", Severity::Error) };
        let hint = near.map(|name| format!(", did you mean {name:?}?")).unwrap_or_default();
        self.keep(path, format!("unknown field{fate}{hint}"), severity);
    }

    /// From here on, what lies at or below a place that already has an error is not reported again: a name of the
    /// wrong type is not a missing name as well.
    pub(crate) fn seal(&mut self) {
        self.sealed = self.found.len();
    }

    /// Whether anything found so far refuses the object.
    pub(crate) const fn refused(&self) -> bool {
        self.refused
    }

    /// Whether an error was found somewhere within `path`.
    pub(crate) fn failed_within(&self, path: &Path) -> bool {
        self.tree.is_broken_within(path) || self.found.iter().any(|(at, p)| p.is_error() && path.covers(at))
    }

    /// Whether `path` is in the text: what is not was put there by the defaults.
    pub(crate) fn is_written(&self, path: &Path) -> bool {
        self.tree.has(path)
    }

    /// What was found, in the order of the lines, that of one line as it was found.
    pub(crate) fn into_problems(self) -> Vec<Problem> {
        let mut problems: Vec<Problem> = self.found.into_iter().map(|(_, problem)| problem).collect();
        by_line(&mut problems);
        if let Some(last) = problems.last().filter(|_| self.more > 0) {
            let severity = if self.refused { Severity::Error } else { Severity::Warning };
            let message = format!("and {} more problems", self.more);
            problems.push(Problem { field: String::new(), message, severity, ..last.clone() });
        }
        problems
    }

    /// The object is refused for a field that it has, whatever stands there.
    pub(crate) fn refuse(&mut self, path: &Path, message: impl Into<String>) {
        self.keep(path, message.into(), Severity::Error);
    }

    /// The object is refused.
    pub(crate) fn error(&mut self, path: &Path, message: impl Into<String>) {
        self.push(path, message.into(), Severity::Error);
    }

    /// The object is taken all the same.
    pub(crate) fn warning(&mut self, path: &Path, message: impl Into<String>) {
        self.push(path, message.into(), Severity::Warning);
    }

    /// `Required value: detail`
    pub(crate) fn required(&mut self, path: &Path, detail: &str) {
        let colon = if detail.is_empty() { "" } else { ": " };
        self.error(path, format!("Required value{colon}{detail}"));
    }

    /// `Invalid value: "value": why`
    pub(crate) fn invalid(&mut self, path: &Path, value: impl Debug, why: &str) {
        self.error(path, format!("Invalid value: {value:?}: {why}"));
    }

    /// One `Invalid value` for each broken rule of a form.
    pub(crate) fn form(&mut self, path: &Path, value: impl Debug, faults: Faults) {
        for fault in faults {
            self.invalid(path, &value, &fault);
        }
    }

    /// `Unsupported value: "value": supported values: ...`, unless the value is one of them.
    pub(crate) fn one_of(&mut self, path: &Path, value: &str, supported: &[&str]) {
        if !supported.contains(&value) {
            let list: Vec<String> = supported.iter().map(|s| format!("{s:?}")).collect();
            self.error(path, format!("Unsupported value: {value:?}: supported values: {}", list.join(", ")));
        }
    }

    /// `Duplicate value: "value"`
    pub(crate) fn duplicate(&mut self, path: &Path, value: impl Display) {
        self.error(path, format!("Duplicate value: \"{value}\""));
    }

    /// `Forbidden: why`
    pub(crate) fn forbidden(&mut self, path: &Path, why: &str) {
        self.error(path, format!("Forbidden: {why}"));
    }

    /// `Invalid value: n: must be greater than or equal to 0`, when it is not.
    pub(crate) fn not_negative(&mut self, path: &Path, value: Option<impl Into<i64>>) {
        if let Some(value) = value.map(Into::into).filter(|v| *v < 0) {
            self.invalid(path, value, "must be greater than or equal to 0");
        }
    }

    fn push(&mut self, path: &Path, message: String, severity: Severity) {
        let known = self.found.iter().take(self.sealed).any(|(at, p)| p.is_error() && at.covers(path));
        if !known && !self.tree.is_broken_at(path) {
            self.keep(path, message, severity);
        }
    }

    fn keep(&mut self, path: &Path, message: String, severity: Severity) {
        self.refused |= severity == Severity::Error;
        if self.found.len() >= MAX_PROBLEMS {
            self.more += 1;
            return;
        }
        let problem = self.problem(path, message, severity);
        self.found.push((path.clone(), problem));
    }

    fn problem(&self, path: &Path, message: String, severity: Severity) -> Problem {
        let (base, own) = (self.base.to_string(), path.to_string());
        Problem {
            file: self.file.to_owned(),
            line: Some(self.tree.line_of(path)),
            document: self.document,
            field: if base.is_empty() || own.is_empty() { base + &own } else { format!("{base}.{own}") },
            message,
            severity,
        }
    }
}
