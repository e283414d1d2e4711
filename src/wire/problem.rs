//! What is wrong with a text, and where: collected, never thrown.

use std::fmt;

/// How much a [`Problem`] matters.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Severity {
    /// The object is refused.
    Error,
    /// The object is taken; something in it has no effect here.
    Warning,
}

/// One thing that is wrong with a file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Problem {
    /// The file, as it was named by the caller.
    pub file: String,
    /// The line in the file, from 1, where it is known.
    pub line: Option<u32>,
    /// Which document of the file, from 0.
    pub document: usize,
    /// The field, as Kubernetes writes paths: `spec.containers[0].name`. Empty: the document as a whole.
    pub field: String,
    /// What is wrong, as Kubernetes words it where it has words: `Required value`.
    pub message: String,
    /// Refused or only remarked.
    pub severity: Severity,
}

impl Problem {
    /// Whether the object is refused for it.
    #[must_use]
    pub fn is_error(&self) -> bool {
        self.severity == Severity::Error
    }
}

impl fmt::Display for Problem {
    /// `file:line: field: message`, leaving out what is not known.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.file)?;
        if let Some(line) = self.line {
            write!(f, ":{line}")?;
        }
        f.write_str(": ")?;
        if self.severity == Severity::Warning {
            f.write_str("warning: ")?;
        }
        if !self.field.is_empty() {
            write!(f, "{}: ", self.field)?;
        }
        f.write_str(&self.message)
    }
}

/// Puts the problems of one document into the order of the lines; those of one line stay as they are.
pub(crate) fn by_line(problems: &mut [Problem]) {
    problems.sort_by_key(|problem| problem.line);
}

/// Whether any of the problems is an error.
#[must_use]
pub fn any_error(problems: &[Problem]) -> bool {
    problems.iter().any(Problem::is_error)
}

/// One step of a [`Path`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Step {
    /// A field of an object.
    Field(String),
    /// An element of a list.
    Index(usize),
    /// An entry of a map whose keys are data: `labels[app]`.
    Key(String),
}

/// Where a value stands in its document.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Path {
    steps: Vec<Step>,
}

impl Path {
    /// The document itself.
    #[must_use]
    pub fn root() -> Self {
        Self::default()
    }

    /// The field `name` of the object here.
    #[must_use]
    pub fn field(&self, name: &str) -> Self {
        self.with(Step::Field(name.to_owned()))
    }

    /// The element `index` of the list here.
    #[must_use]
    pub fn index(&self, index: usize) -> Self {
        self.with(Step::Index(index))
    }

    /// The entry `key` of the map here.
    #[must_use]
    pub fn key(&self, key: &str) -> Self {
        self.with(Step::Key(key.to_owned()))
    }

    /// The steps from the document to the value.
    #[must_use]
    pub fn steps(&self) -> &[Step] {
        &self.steps
    }

    /// Whether `self` is `other` or lies around it.
    #[must_use]
    pub fn covers(&self, other: &Self) -> bool {
        other.steps.starts_with(&self.steps)
    }

    fn with(&self, step: Step) -> Self {
        let mut steps = Vec::with_capacity(self.steps.len() + 1);
        steps.extend_from_slice(&self.steps);
        steps.push(step);
        Self { steps }
    }
}

impl fmt::Display for Path {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (i, step) in self.steps.iter().enumerate() {
            match step {
                Step::Field(name) if i == 0 => f.write_str(name)?,
                Step::Field(name) => write!(f, ".{name}")?,
                Step::Index(index) => write!(f, "[{index}]")?,
                Step::Key(key) => write!(f, "[{key}]")?,
            }
        }
        Ok(())
    }
}
