//! A document as it was written: JSON's values, each with the line it stands on.

use super::problem::{Path, Step};
use serde_json::{Number, Value};

/// How deep values may nest. A Pod needs about 15; serde_json itself stops at 128.
pub(crate) const MAX_DEPTH: usize = 100;

/// How many values a file may hold once aliases are expanded. The largest pods have a few thousand.
pub(crate) const MAX_NODES: usize = 100_000;

/// A value and its line.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Node {
    /// The line in the file, from 1.
    pub line: u32,
    /// What stands there.
    pub data: Data,
}

/// The kinds of values.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Data {
    /// Nothing, said explicitly or by leaving a place empty.
    Null,
    /// True or false.
    Bool(bool),
    /// An integer or a finite float.
    Number(Number),
    /// A text.
    Text(String),
    /// A list.
    List(Vec<Node>),
    /// An object, in source order. Keys are unique.
    Map(Vec<Entry>),
    /// Something that no value can be made of, and that was told as a [fault](Faults): nothing more is said of it.
    Broken,
}

/// One entry of an object.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Entry {
    /// The key.
    pub key: String,
    /// The key's line.
    pub line: u32,
    /// The value.
    pub value: Node,
}

/// Why a text cannot be read as a tree at all.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct SyntaxError {
    /// The line in the text, from 1.
    pub line: u32,
    /// For people.
    pub message: String,
}

impl SyntaxError {
    pub(crate) fn new(line: u32, message: impl Into<String>) -> Self {
        Self { line, message: message.into() }
    }
}

/// How many faults of a document are looked past.
const MAX_FAULTS: usize = 200;

/// What is wrong with a text and leaves the rest of it readable: it refuses the document and hides nothing else.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Faults(pub Vec<SyntaxError>);

impl Faults {
    /// Notes one.
    ///
    /// # Errors
    /// There are so many that the rest of the text is not worth reading.
    pub(crate) fn add(&mut self, line: u32, message: impl Into<String>) -> Result<(), SyntaxError> {
        if self.0.len() >= MAX_FAULTS {
            return Err(SyntaxError::new(line, format!("more than {MAX_FAULTS} mistakes: the rest is not read")));
        }
        self.0.push(SyntaxError::new(line, message));
        Ok(())
    }
}

/// A document as far as it could be read.
#[derive(Debug)]
pub(crate) struct Reading {
    /// Its tree, or why it has none.
    pub tree: Result<Node, SyntaxError>,
    /// What else is wrong with it.
    pub faults: Faults,
}

impl Node {
    /// The value of an object's key.
    pub(crate) fn get(&self, key: &str) -> Option<&Self> {
        self.entries().iter().find(|e| e.key == key).map(|e| &e.value)
    }

    /// The text of an object's key, when it is one.
    pub(crate) fn text_of(&self, key: &str) -> Option<&str> {
        match &self.get(key)?.data {
            Data::Text(text) => Some(text),
            _ => None,
        }
    }

    /// An object's entries; none for anything else.
    pub(crate) fn entries(&self) -> &[Entry] {
        match &self.data {
            Data::Map(entries) => entries,
            _ => &[],
        }
    }

    /// The line of the value at `path`, or of the nearest value around it.
    pub(crate) fn line_of(&self, path: &Path) -> u32 {
        self.nearest(path).0
    }

    /// Whether a value stands at `path`.
    pub(crate) fn has(&self, path: &Path) -> bool {
        self.nearest(path).2
    }

    /// Whether the value at `path`, or one around it, could not be read.
    pub(crate) fn is_broken_at(&self, path: &Path) -> bool {
        self.nearest(path).1.data == Data::Broken
    }

    /// Whether a value at or below `path` could not be read.
    pub(crate) fn is_broken_within(&self, path: &Path) -> bool {
        let (_, node, found) = self.nearest(path);
        found && node.holds_broken()
    }

    fn holds_broken(&self) -> bool {
        match &self.data {
            Data::Broken => true,
            Data::List(items) => items.iter().any(Self::holds_broken),
            Data::Map(entries) => entries.iter().any(|entry| entry.value.holds_broken()),
            Data::Null | Data::Bool(_) | Data::Number(_) | Data::Text(_) => false,
        }
    }

    /// The value at `path`, or the nearest around it, with its line; and whether it is the one at `path`.
    fn nearest(&self, path: &Path) -> (u32, &Self, bool) {
        let mut node = self;
        let mut line = self.line;
        for step in path.steps() {
            let next = match (step, &node.data) {
                (Step::Field(key) | Step::Key(key), Data::Map(entries)) => {
                    entries.iter().find(|e| e.key == *key).map(|e| (e.line, &e.value))
                }
                (Step::Index(index), Data::List(items)) => items.get(*index).map(|n| (n.line, n)),
                _ => None,
            };
            let Some((at, found)) = next else { return (line, node, false) };
            (line, node) = (at, found);
        }
        (line, node, true)
    }

    /// The value without its lines. Object keys come out sorted.
    pub(crate) fn to_value(&self) -> Value {
        match &self.data {
            Data::Null | Data::Broken => Value::Null,
            Data::Bool(b) => Value::Bool(*b),
            Data::Number(n) => Value::Number(n.clone()),
            Data::Text(t) => Value::String(t.clone()),
            Data::List(items) => Value::Array(items.iter().map(Self::to_value).collect()),
            Data::Map(entries) => Value::Object(entries.iter().map(|e| (e.key.clone(), e.value.to_value())).collect()),
        }
    }

    /// What the value is, in the words of a problem.
    pub(crate) fn kind(&self) -> &'static str {
        match &self.data {
            Data::Null => "null",
            Data::Bool(_) => "a boolean",
            Data::Number(_) => "a number",
            Data::Text(_) => "a string",
            Data::List(_) => "a list",
            Data::Map(_) => "an object",
            Data::Broken => "nothing that can be read",
        }
    }

    /// Nothing is said: null, or an empty text, list or object.
    pub(crate) fn is_empty(&self) -> bool {
        match &self.data {
            Data::Null => true,
            Data::Text(t) => t.is_empty(),
            Data::List(items) => items.is_empty(),
            Data::Map(entries) => entries.is_empty(),
            Data::Bool(_) | Data::Number(_) | Data::Broken => false,
        }
    }
}

/// Counts what a file holds, so that a small text cannot unfold into a large one.
#[derive(Debug)]
pub(crate) struct Budget {
    nodes: usize,
    bytes: usize,
}

impl Budget {
    /// A budget for a file: [`MAX_NODES`] values whose texts take at most `bytes`.
    pub(crate) fn new(bytes: usize) -> Self {
        Self { nodes: MAX_NODES, bytes }
    }

    /// Takes one value with a text of `bytes`.
    pub(crate) fn take(&mut self, line: u32, bytes: usize) -> Result<(), SyntaxError> {
        let too_much =
            || SyntaxError::new(line, format!("more than {MAX_NODES} values, or aliases that unfold too far"));
        self.nodes = self.nodes.checked_sub(1).ok_or_else(too_much)?;
        self.bytes = self.bytes.checked_sub(bytes).ok_or_else(too_much)?;
        Ok(())
    }
}
