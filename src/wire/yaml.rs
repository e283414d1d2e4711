//! One YAML document to a [`Node`] tree, from the parser's event stream.
//!
//! Beyond the syntax: anchors, aliases and merge keys are resolved within a budget, duplicate keys are told,
//! keys become texts, depth is bounded. The parser is iterative, and so is this: no text can exhaust the stack.
//!
//! What the syntax allows and no object can hold is a fault, and reading goes on: of a key that is given twice the first
//! value stays, what has no value stays as one that is [broken](Data::Broken).

use super::scalar::{self, ScalarError};
use super::tree::{Budget, Data, Entry, Faults, MAX_DEPTH, Node, Reading, SyntaxError};
use saphyr_parser::{Event, Parser, ScalarStyle, Span, Tag};
use std::borrow::Cow;
use std::collections::{HashMap, HashSet};

/// Reads one document. None: it is empty (blank or comments only).
pub(crate) fn read(text: &str, budget: &mut Budget) -> Option<Reading> {
    let faults = Faults::default();
    let mut builder = Builder { budget, stack: Vec::new(), anchors: HashMap::new(), root: None, faults };
    let end = builder.all(text);
    let Builder { root, mut faults, .. } = builder;
    let tree = match (root, end) {
        (Some(root), Ok(())) => Ok(root),
        // The value is whole: what comes behind it does not make it unreadable.
        (Some(root), Err(error)) => {
            faults.0.push(error);
            Ok(root)
        }
        (None, Err(error)) => Err(error),
        (None, Ok(())) => return None,
    };
    Some(Reading { tree, faults })
}

/// An object or list that is being read.
struct Frame {
    line: u32,
    anchor: usize,
    kind: FrameKind,
}

enum FrameKind {
    List(Vec<Node>),
    Map { entries: Vec<Entry>, keys: HashSet<String>, merges: Vec<Node>, key: Option<Key> },
}

/// A key whose value has not come yet.
enum Key {
    Name(String, u32),
    Merge,
    /// One that was told as a fault: its value is dropped.
    Faulty,
}

struct Builder<'b> {
    budget: &'b mut Budget,
    stack: Vec<Frame>,
    anchors: HashMap<usize, Node>,
    root: Option<Node>,
    faults: Faults,
}

impl Builder<'_> {
    fn all(&mut self, text: &str) -> Result<(), SyntaxError> {
        for event in Parser::new_from_str(text) {
            let (event, span) =
                event.map_err(|e| SyntaxError::new(line_number(e.marker().line()), format!("YAML: {}", e.info())))?;
            self.event(event, span)?;
        }
        Ok(())
    }

    fn event(&mut self, event: Event<'_>, span: Span) -> Result<(), SyntaxError> {
        let line = line_number(span.start.line());
        match event {
            Event::Scalar(text, style, anchor, tag) => self.scalar(&text, style, anchor, tag.as_ref(), line),
            Event::SequenceStart(anchor, tag) => {
                self.check_collection_tag(tag.as_ref(), "seq", line)?;
                self.open(anchor, line, FrameKind::List(Vec::new()))
            }
            Event::MappingStart(anchor, tag) => {
                self.check_collection_tag(tag.as_ref(), "map", line)?;
                let kind = FrameKind::Map { entries: Vec::new(), keys: HashSet::new(), merges: Vec::new(), key: None };
                self.open(anchor, line, kind)
            }
            Event::SequenceEnd | Event::MappingEnd => self.close(line),
            Event::Alias(id) => self.alias(id, line),
            Event::DocumentStart(_) if self.root.is_some() => {
                Err(SyntaxError::new(line, "YAML: a second document without a line of `---` before it"))
            }
            Event::Nothing | Event::StreamStart | Event::StreamEnd | Event::DocumentStart(_) | Event::DocumentEnd => {
                Ok(())
            }
        }
    }

    fn scalar(
        &mut self,
        text: &str,
        style: ScalarStyle,
        anchor: usize,
        tag: Option<&Cow<'_, Tag>>,
        line: u32,
    ) -> Result<(), SyntaxError> {
        self.budget.take(line, text.len())?;
        let plain = style == ScalarStyle::Plain;
        if plain && tag.is_none() && text == "<<" && self.expects_key() {
            return self.set_key(Key::Merge, line);
        }
        let data = match tag {
            None if plain => scalar::plain(text),
            None => Ok(Data::Text(text.to_owned())),
            // `!` alone means: do not guess.
            Some(tag) if tag.handle.is_empty() && tag.suffix == "!" || tag.handle == "!" && tag.suffix.is_empty() => {
                Ok(Data::Text(text.to_owned()))
            }
            Some(tag) if tag.is_yaml_core_schema() => scalar::tagged(&tag.suffix, text),
            Some(_) => Err(ScalarError::UnknownTag),
        };
        let data = match data {
            Ok(data) => data,
            Err(error) => {
                self.faults.add(line, scalar_error(error, text, tag))?;
                Data::Broken
            }
        };
        self.place(Node { line, data }, anchor)
    }

    fn open(&mut self, anchor: usize, line: u32, kind: FrameKind) -> Result<(), SyntaxError> {
        self.budget.take(line, 0)?;
        if self.stack.len() >= MAX_DEPTH {
            return Err(SyntaxError::new(line, format!("nested deeper than {MAX_DEPTH} levels")));
        }
        self.stack.push(Frame { line, anchor, kind });
        Ok(())
    }

    fn close(&mut self, line: u32) -> Result<(), SyntaxError> {
        let Some(frame) = self.stack.pop() else {
            return Err(SyntaxError::new(line, "YAML: an end without a start"));
        };
        let data = match frame.kind {
            FrameKind::List(items) => Data::List(items),
            FrameKind::Map { entries, keys, merges, key: _ } => Data::Map(self.merged(entries, keys, merges)?),
        };
        self.place(Node { line: frame.line, data }, frame.anchor)
    }

    /// Adds what merge keys bring in: explicit entries win, then earlier merges over later ones.
    fn merged(
        &mut self,
        mut entries: Vec<Entry>,
        mut keys: HashSet<String>,
        merges: Vec<Node>,
    ) -> Result<Vec<Entry>, SyntaxError> {
        for merge in merges {
            let line = merge.line;
            let sources = match merge.data {
                Data::List(items) => items,
                data => vec![Node { line, data }],
            };
            for source in sources {
                let from = match source.data {
                    Data::Map(from) => from,
                    Data::Broken => continue,
                    _ => {
                        self.faults.add(source.line, "YAML: `<<` needs an object or a list of objects")?;
                        continue;
                    }
                };
                for entry in from {
                    if keys.insert(entry.key.clone()) {
                        entries.push(entry);
                    }
                }
            }
        }
        Ok(entries)
    }

    fn alias(&mut self, id: usize, line: u32) -> Result<(), SyntaxError> {
        let Some(target) = self.anchors.get(&id) else {
            self.faults.add(line, "YAML: an alias to an anchor that is not complete here")?;
            return self.place(Node { line, data: Data::Broken }, 0);
        };
        charge(target, self.budget, line)?;
        if self.stack.len() + depth(target) > MAX_DEPTH {
            return Err(SyntaxError::new(line, format!("nested deeper than {MAX_DEPTH} levels")));
        }
        let mut copy = target.clone();
        copy.line = line;
        self.place(copy, 0)
    }

    fn expects_key(&self) -> bool {
        matches!(self.stack.last(), Some(Frame { kind: FrameKind::Map { key: None, .. }, .. }))
    }

    /// Puts a complete value where it belongs: root, element, key or value.
    fn place(&mut self, node: Node, anchor: usize) -> Result<(), SyntaxError> {
        if anchor > 0 {
            charge(&node, self.budget, node.line)?;
            self.anchors.insert(anchor, node.clone());
        }
        if self.expects_key() {
            let line = node.line;
            let key = match key_text(node) {
                Ok(Some(name)) => Key::Name(name, line),
                Ok(None) => Key::Faulty,
                Err(why) => {
                    self.faults.add(line, why)?;
                    Key::Faulty
                }
            };
            return self.set_key(key, line);
        }
        match self.stack.last_mut().map(|f| &mut f.kind) {
            None if self.root.is_none() => {
                self.root = if node.data == Data::Null { None } else { Some(node) };
            }
            None => return Err(SyntaxError::new(node.line, "YAML: more than one value")),
            Some(FrameKind::List(items)) => items.push(node),
            Some(FrameKind::Map { entries, merges, key, .. }) => match key.take() {
                Some(Key::Name(key, line)) => entries.push(Entry { key, line, value: node }),
                Some(Key::Merge) => merges.push(node),
                Some(Key::Faulty) => {}
                None => return Err(SyntaxError::new(node.line, "YAML: a value without a key")),
            },
        }
        Ok(())
    }

    fn set_key(&mut self, next: Key, line: u32) -> Result<(), SyntaxError> {
        let Some(Frame { kind: FrameKind::Map { keys, key, merges, .. }, .. }) = self.stack.last_mut() else {
            return Err(SyntaxError::new(line, "YAML: a key outside of an object"));
        };
        let duplicate = match &next {
            Key::Name(name, _) if !keys.insert(name.clone()) => Some(name.as_str()),
            Key::Merge if !merges.is_empty() => Some("<<"),
            Key::Name(..) | Key::Merge | Key::Faulty => None,
        };
        if let Some(name) = duplicate {
            *key = Some(Key::Faulty);
            return self.faults.add(line, given_twice(name));
        }
        *key = Some(next);
        Ok(())
    }

    /// What is in an object or a list is read on whatever its tag.
    fn check_collection_tag(&mut self, tag: Option<&Cow<'_, Tag>>, own: &str, line: u32) -> Result<(), SyntaxError> {
        match tag {
            Some(tag) if !(tag.is_yaml_core_schema() && tag.suffix == own) => {
                self.faults.add(line, format!("YAML: tag {tag} is not known here"))
            }
            _ => Ok(()),
        }
    }
}

/// A fault of YAML and JSON alike.
pub(super) fn given_twice(key: &str) -> String {
    format!("key {key:?} is given twice")
}

/// A key as JSON needs it. Numbers and booleans become texts, as sigs.k8s.io/yaml does. None: it was told already why it
/// cannot be one.
fn key_text(node: Node) -> Result<Option<String>, &'static str> {
    match node.data {
        Data::Text(text) => Ok(Some(text)),
        Data::Number(number) => Ok(Some(number.to_string())),
        Data::Bool(value) => Ok(Some(value.to_string())),
        Data::Null => Err("YAML: a key must not be null"),
        Data::List(_) | Data::Map(_) => Err("YAML: a key must be a scalar"),
        Data::Broken => Ok(None),
    }
}

/// Takes a whole tree from the budget.
fn charge(node: &Node, budget: &mut Budget, line: u32) -> Result<(), SyntaxError> {
    match &node.data {
        Data::Text(text) => budget.take(line, text.len()),
        Data::Null | Data::Bool(_) | Data::Number(_) | Data::Broken => budget.take(line, 0),
        Data::List(items) => {
            budget.take(line, 0)?;
            items.iter().try_for_each(|n| charge(n, budget, line))
        }
        Data::Map(entries) => {
            budget.take(line, 0)?;
            entries.iter().try_for_each(|e| {
                budget.take(line, e.key.len())?;
                charge(&e.value, budget, line)
            })
        }
    }
}

/// How many levels a tree has. Bounded by [`MAX_DEPTH`], since each tree was checked when it was built.
fn depth(node: &Node) -> usize {
    let deepest = match &node.data {
        Data::List(items) => items.iter().map(depth).max(),
        Data::Map(entries) => entries.iter().map(|e| depth(&e.value)).max(),
        _ => return 0,
    };
    deepest.unwrap_or(0) + 1
}

fn scalar_error(error: ScalarError, text: &str, tag: Option<&Cow<'_, Tag>>) -> String {
    let short: String = text.chars().take(40).collect();
    let tag = tag.map(ToString::to_string).unwrap_or_default();
    match error {
        ScalarError::NotFinite => format!("YAML: {short:?} is not a finite number"),
        ScalarError::TagMismatch => format!("YAML: {short:?} does not fit tag {tag}"),
        ScalarError::UnknownTag => format!("YAML: tag {tag} is not known here"),
    }
}

fn line_number(line: usize) -> u32 {
    u32::try_from(line).unwrap_or(u32::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    fn value(text: &str) -> Result<Value, String> {
        let mut budget = Budget::new(1 << 20);
        let Some(Reading { tree, faults }) = read(text, &mut budget) else { return Ok(Value::Null) };
        match (tree, faults.0.first()) {
            (Ok(node), None) => Ok(node.to_value()),
            (Err(error), _) => Err(shown(&error)),
            (_, Some(fault)) => Err(shown(fault)),
        }
    }

    fn shown(error: &SyntaxError) -> String {
        format!("{}: {}", error.line, error.message)
    }

    #[test]
    fn documents_become_json() {
        let table = [
            ("", json!(null)),
            ("# only a comment\n", json!(null)),
            ("a: 1\nb: [x, 'y', \"z\"]\n", json!({"a": 1, "b": ["x", "y", "z"]})),
            ("a:\n- b: c\n  d: e\n- f\n", json!({"a": [{"b": "c", "d": "e"}, "f"]})),
            ("a: |\n  x\n  y\nb: >-\n  x\n  y\n", json!({"a": "x\ny\n", "b": "x y"})),
            ("1: a\ntrue: b\n1.5: c\n", json!({"1": "a", "true": "b", "1.5": "c"})),
            ("on: a\n", json!({"true": "a"})),
            ("a: !!str 1\nb: ! 2\n", json!({"a": "1", "b": "2"})),
            ("a: &x {b: 1}\nc: *x\n", json!({"a": {"b": 1}, "c": {"b": 1}})),
            ("a: &x {b: 1, c: 2}\nd:\n  <<: *x\n  c: 3\n", json!({"a": {"b": 1, "c": 2}, "d": {"b": 1, "c": 3}})),
            (
                "a: &x {k: 1}\nb: &y {k: 2, l: 3}\nc: {<<: [*x, *y]}\n",
                json!({"a": {"k": 1}, "b": {"k": 2, "l": 3}, "c": {"k": 1, "l": 3}}),
            ),
            ("'<<': 1\n", json!({"<<": 1})),
            ("---\na: b\n...\n", json!({"a": "b"})),
            ("%YAML 1.1\n---\na: b\n", json!({"a": "b"})),
            ("a:\r\n  b: c\r\n", json!({"a": {"b": "c"}})),
            ("a: \"x\\ty\\u00e9\"\n", json!({"a": "x\ty\u{e9}"})),
        ];
        for (text, expect) in table {
            assert_eq!(value(text), Ok(expect), "{text}");
        }
    }

    /// What is left of a document, and what is wrong with it.
    #[test]
    fn a_fault_hides_nothing_of_the_rest() {
        let table: [(&str, Value, &[&str]); 9] = [
            (
                "a: 1\na: {b: [2]}\nb: 3\nb: 4\n",
                json!({"a": 1, "b": 3}),
                &["2: key \"a\" is given twice", "4: key \"b\" is given twice"],
            ),
            ("? {a: [b]}\n: {c: d}\ne: f\n", json!({"e": "f"}), &["1: YAML: a key must be a scalar"]),
            (
                "~: [b]\n.inf: 1\nc: d\n",
                json!({"c": "d"}),
                &["1: YAML: a key must not be null", "2: YAML: \".inf\" is not a finite number"],
            ),
            (
                "a: [.nan, 1]\nb: !!int x\n",
                json!({"a": [null, 1], "b": null}),
                &["1: YAML: \".nan\" is not a finite number", "2: YAML: \"x\" does not fit tag tag:yaml.org,2002:!int"],
            ),
            (
                "a: !mine {b: [!!set {c: d}]}\n",
                json!({"a": {"b": [{"c": "d"}]}}),
                &["1: YAML: tag !mine is not known here", "1: YAML: tag tag:yaml.org,2002:!set is not known here"],
            ),
            (
                "a: &x {b: 1}\nc:\n  <<: [*x, 2]\n  <<: *x\n  d: 3\n",
                json!({"a": {"b": 1}, "c": {"b": 1, "d": 3}}),
                &["4: key \"<<\" is given twice", "3: YAML: `<<` needs an object or a list of objects"],
            ),
            (
                "a: {<<: !mine x}\nb: &y [*y, 1]\n",
                json!({"a": {}, "b": [null, 1]}),
                &["1: YAML: tag !mine is not known here", "2: YAML: an alias to an anchor that is not complete here"],
            ),
            ("a: 1\n...\nb: 2\n", json!({"a": 1}), &["3: YAML: a second document without a line of `---` before it"]),
            ("a: 1\n...\nb: [\n", json!({"a": 1}), &["3: YAML: a second document without a line of `---` before it"]),
        ];
        for (text, left, expect) in table {
            let Reading { tree, faults } = read(text, &mut Budget::new(1 << 20)).expect("not empty");
            assert_eq!(tree.map(|node| node.to_value()), Ok(left), "{text}");
            assert_eq!(faults.0.iter().map(shown).collect::<Vec<_>>(), expect, "{text}");
        }
        // What was wrong before the text breaks off is told too.
        let Reading { tree, faults } = read("a: 1\na: 2\nb: [\n", &mut Budget::new(1 << 20)).expect("not empty");
        assert!(tree.is_err() && faults.0.len() == 1, "{tree:?} {faults:?}");
        let hostile = "a: 1\n".repeat(10_000);
        let Reading { tree, faults } = read(&hostile, &mut Budget::new(1 << 20)).expect("not empty");
        assert_eq!(shown(&tree.expect_err("refused")), "202: more than 200 mistakes: the rest is not read");
        assert_eq!(faults.0.len(), 200);
    }

    #[test]
    fn what_cannot_be_read_says_where() {
        let table = [
            ("a: 1\na: 2\n", "2: key \"a\" is given twice"),
            ("a:\n  b: 1\n  b: 2\n", "3: key \"b\" is given twice"),
            ("? [a]\n: b\n", "1: YAML: a key must be a scalar"),
            ("~: b\n", "1: YAML: a key must not be null"),
            ("a: .inf\n", "1: YAML: \".inf\" is not a finite number"),
            ("a: !!binary aGk=\n", "1: YAML: tag tag:yaml.org,2002:!binary is not known here"),
            ("a: !mine x\n", "1: YAML: tag !mine is not known here"),
            ("a: {<<: 1}\n", "1: YAML: `<<` needs an object or a list of objects"),
        ];
        for (text, expect) in table {
            assert_eq!(value(text), Err(expect.to_owned()), "{text}");
        }
        for text in ["a: b: c\n", "a:\n\t- b\n", "a: [1\n", "a: *nothing\n", "\"a", "a: &x [*x]\n", "- a\nb: c\n"] {
            assert!(value(text).is_err(), "{text:?} -> {:?}", value(text));
        }
    }

    #[test]
    fn a_small_text_cannot_unfold() {
        let mut bomb = "a: &a [x,x,x,x,x,x,x,x,x,x]\n".to_owned();
        for (from, to) in ("abcdefgh").chars().zip("bcdefghi".chars()) {
            let refs = vec![format!("*{from}"); 10].join(",");
            bomb.push_str(&format!("{to}: &{to} [{refs}]\n"));
        }
        assert!(value(&bomb).expect_err("refused").contains("unfold"), "lists");
        let mut text = format!("a: &a {}\nb:\n", "x".repeat(100_000));
        text.push_str(&"- *a\n".repeat(1000));
        assert!(value(&text).expect_err("refused").contains("unfold"), "texts");
        assert!(value(&"[".repeat(5000)).is_err());
        let blocks: String = (0..300).map(|i| format!("{}a:\n", " ".repeat(i))).collect();
        assert!(value(&blocks).expect_err("refused").contains("nested deeper"));
        assert!(value(&"- ".repeat(20_000)).is_err());
    }
}
