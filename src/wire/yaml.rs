//! One YAML document to a [`Node`] tree, from the parser's event stream.
//!
//! Beyond the syntax: anchors, aliases and merge keys are resolved within a budget, duplicate keys are refused,
//! keys become texts, depth is bounded. The parser is iterative, and so is this: no text can exhaust the stack.

use super::scalar::{self, ScalarError};
use super::tree::{Budget, Data, Entry, MAX_DEPTH, Node, SyntaxError};
use saphyr_parser::{Event, Parser, ScalarStyle, Span, Tag};
use std::borrow::Cow;
use std::collections::{HashMap, HashSet};

/// Reads one document. None: it is empty (blank or comments only).
pub(crate) fn read(text: &str, budget: &mut Budget) -> Result<Option<Node>, SyntaxError> {
    let mut builder = Builder { budget, stack: Vec::new(), anchors: HashMap::new(), root: None };
    for event in Parser::new_from_str(text) {
        let (event, span) =
            event.map_err(|e| SyntaxError::new(line_number(e.marker().line()), format!("YAML: {}", e.info())))?;
        builder.event(event, span)?;
    }
    Ok(builder.root)
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
}

struct Builder<'b> {
    budget: &'b mut Budget,
    stack: Vec<Frame>,
    anchors: HashMap<usize, Node>,
    root: Option<Node>,
}

impl Builder<'_> {
    fn event(&mut self, event: Event<'_>, span: Span) -> Result<(), SyntaxError> {
        let line = line_number(span.start.line());
        match event {
            Event::Scalar(text, style, anchor, tag) => self.scalar(&text, style, anchor, tag.as_ref(), line),
            Event::SequenceStart(anchor, tag) => {
                check_collection_tag(tag.as_ref(), "seq", line)?;
                self.open(anchor, line, FrameKind::List(Vec::new()))
            }
            Event::MappingStart(anchor, tag) => {
                check_collection_tag(tag.as_ref(), "map", line)?;
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
        let data = data.map_err(|e| SyntaxError::new(line, scalar_error(e, text, tag)))?;
        self.place(Node { line, data }, anchor)
    }

    fn open(&mut self, anchor: usize, line: u32, kind: FrameKind) -> Result<(), SyntaxError> {
        self.budget.take(line, 0)?;
        if self.stack.len() >= MAX_DEPTH {
            return Err(SyntaxError::new(line, format!("nested deeper than {MAX_DEPTH} levels")));
        }
        if self.expects_key() {
            return Err(SyntaxError::new(line, "YAML: a key must be a scalar"));
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
                let Data::Map(from) = source.data else {
                    return Err(SyntaxError::new(line, "YAML: `<<` needs an object or a list of objects"));
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
            return Err(SyntaxError::new(line, "YAML: an alias to an anchor that is not complete here"));
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
            let name = key_text(node)?;
            return self.set_key(Key::Name(name, line), line);
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
            Key::Name(name, _) => !keys.insert(name.clone()),
            Key::Merge => !merges.is_empty(),
        };
        if duplicate {
            let name = if let Key::Name(name, _) = &next { name.as_str() } else { "<<" };
            return Err(SyntaxError::new(line, format!("key {name:?} is given twice")));
        }
        *key = Some(next);
        Ok(())
    }
}

/// A key as JSON needs it. Numbers and booleans become texts, as sigs.k8s.io/yaml does.
fn key_text(node: Node) -> Result<String, SyntaxError> {
    match node.data {
        Data::Text(text) => Ok(text),
        Data::Number(number) => Ok(number.to_string()),
        Data::Bool(value) => Ok(value.to_string()),
        Data::Null => Err(SyntaxError::new(node.line, "YAML: a key must not be null")),
        Data::List(_) | Data::Map(_) => Err(SyntaxError::new(node.line, "YAML: a key must be a scalar")),
    }
}

/// Takes a whole tree from the budget.
fn charge(node: &Node, budget: &mut Budget, line: u32) -> Result<(), SyntaxError> {
    match &node.data {
        Data::Text(text) => budget.take(line, text.len()),
        Data::Null | Data::Bool(_) | Data::Number(_) => budget.take(line, 0),
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

fn check_collection_tag(tag: Option<&Cow<'_, Tag>>, own: &str, line: u32) -> Result<(), SyntaxError> {
    match tag {
        Some(tag) if !(tag.is_yaml_core_schema() && tag.suffix == own) => {
            Err(SyntaxError::new(line, format!("YAML: tag {tag} is not known here")))
        }
        _ => Ok(()),
    }
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
        match read(text, &mut budget) {
            Ok(node) => Ok(node.map_or(Value::Null, |n| n.to_value())),
            Err(e) => Err(format!("{}: {}", e.line, e.message)),
        }
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
