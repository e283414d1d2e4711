//! JSON text to [`Node`] trees. serde_json reads the scalars; what is added is lines and the refusal of
//! duplicate keys, which serde_json's own value type silently drops.

use super::tree::{Budget, Data, Entry, MAX_DEPTH, Node, SyntaxError};
use std::collections::HashSet;

/// Reads the values of a text, one after another; lines of `---` between them are allowed.
///
/// The values before a syntax error are kept: the error comes beside them.
pub(crate) fn read_stream(text: &str, budget: &mut Budget) -> (Vec<Node>, Option<SyntaxError>) {
    let mut reader = Reader { text, at: 0, line: 1, budget };
    let mut nodes = Vec::new();
    loop {
        reader.skip_space();
        if reader.rest().starts_with("---") {
            reader.at += 3;
            continue;
        }
        if reader.rest().is_empty() {
            return (nodes, None);
        }
        match reader.value(0) {
            Ok(node) => nodes.push(node),
            Err(error) => return (nodes, Some(error)),
        }
    }
}

/// Whether a text is meant as JSON: an object whose first key is quoted, or that is empty.
pub(crate) fn looks_like_json(text: &str) -> bool {
    let inner = text.trim_start().strip_prefix('{').map(str::trim_start);
    inner.is_some_and(|rest| rest.starts_with(['"', '}']))
}

struct Reader<'t, 'b> {
    text: &'t str,
    at: usize,
    line: u32,
    budget: &'b mut Budget,
}

impl<'t> Reader<'t, '_> {
    fn rest(&self) -> &'t str {
        self.text.get(self.at..).unwrap_or("")
    }

    fn peek(&self) -> Option<u8> {
        self.text.as_bytes().get(self.at).copied()
    }

    fn skip_space(&mut self) {
        while let Some(byte @ (b' ' | b'\t' | b'\r' | b'\n')) = self.peek() {
            self.at += 1;
            if byte == b'\n' {
                self.line = self.line.saturating_add(1);
            }
        }
    }

    fn error<T>(&self, message: impl Into<String>) -> Result<T, SyntaxError> {
        Err(SyntaxError::new(self.line, format!("JSON: {}", message.into())))
    }

    /// A value; `depth` counts the objects and lists around it.
    fn value(&mut self, depth: usize) -> Result<Node, SyntaxError> {
        self.skip_space();
        let line = self.line;
        self.budget.take(line, 0)?;
        let data = match self.peek() {
            Some(b'{' | b'[') if depth >= MAX_DEPTH => {
                return self.error(format!("nested deeper than {MAX_DEPTH} levels"));
            }
            Some(b'{') => Data::Map(self.object(depth + 1)?),
            Some(b'[') => Data::List(self.list(depth + 1)?),
            Some(b'"') => Data::Text(self.string()?),
            Some(_) => self.word()?,
            None => return self.error("the text ends where a value should be"),
        };
        Ok(Node { line, data })
    }

    fn object(&mut self, depth: usize) -> Result<Vec<Entry>, SyntaxError> {
        let mut entries = Vec::new();
        let mut keys = HashSet::new();
        self.at += 1;
        self.skip_space();
        if self.peek() == Some(b'}') {
            self.at += 1;
            return Ok(entries);
        }
        loop {
            self.skip_space();
            let line = self.line;
            if self.peek() != Some(b'"') {
                return self.error("expected a key in double quotes");
            }
            let key = self.string()?;
            if !keys.insert(key.clone()) {
                return Err(SyntaxError::new(line, format!("key {key:?} is given twice")));
            }
            self.skip_space();
            if self.peek() != Some(b':') {
                return self.error(format!("expected `:` after key {key:?}"));
            }
            self.at += 1;
            let value = self.value(depth)?;
            entries.push(Entry { key, line, value });
            if self.next_or_end(b'}')? {
                return Ok(entries);
            }
        }
    }

    fn list(&mut self, depth: usize) -> Result<Vec<Node>, SyntaxError> {
        let mut items = Vec::new();
        self.at += 1;
        self.skip_space();
        if self.peek() == Some(b']') {
            self.at += 1;
            return Ok(items);
        }
        loop {
            items.push(self.value(depth)?);
            if self.next_or_end(b']')? {
                return Ok(items);
            }
        }
    }

    /// After an element: a comma (false) or the end (true).
    fn next_or_end(&mut self, end: u8) -> Result<bool, SyntaxError> {
        self.skip_space();
        match self.peek() {
            Some(b',') => {
                self.at += 1;
                Ok(false)
            }
            Some(byte) if byte == end => {
                self.at += 1;
                Ok(true)
            }
            _ => self.error(format!("expected `,` or `{}`", char::from(end))),
        }
    }

    fn string(&mut self) -> Result<String, SyntaxError> {
        let start = self.at;
        let mut at = start + 1;
        let bytes = self.text.as_bytes();
        while let Some(byte) = bytes.get(at) {
            match byte {
                b'"' => break,
                b'\\' => at += 2,
                b'\n' => return self.error("a text in quotes does not end on its line"),
                _ => at += 1,
            }
        }
        let Some(raw) = self.text.get(start..=at) else {
            return self.error("a text in quotes does not end");
        };
        let text: String = match serde_json::from_str(raw) {
            Ok(text) => text,
            Err(e) => return self.error(format!("{} is not a text: {e}", raw.chars().take(40).collect::<String>())),
        };
        self.budget.take(self.line, text.len())?;
        self.at = at + 1;
        Ok(text)
    }

    /// A number, `true`, `false` or `null`.
    fn word(&mut self) -> Result<Data, SyntaxError> {
        let rest = self.rest();
        let end = rest.find(|c: char| c.is_ascii_whitespace() || ",]}:[{\"".contains(c)).unwrap_or(rest.len());
        let word = rest.get(..end).unwrap_or("");
        let data = match word {
            "true" => Data::Bool(true),
            "false" => Data::Bool(false),
            "null" => Data::Null,
            _ => match serde_json::from_str(word) {
                Ok(number) => Data::Number(number),
                Err(_) => {
                    let short: String = word.chars().take(40).collect();
                    return self.error(format!("{short:?} is not a value"));
                }
            },
        };
        self.at += end;
        Ok(data)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    fn values(text: &str) -> (Vec<Value>, Option<String>) {
        let (nodes, error) = read_stream(text, &mut Budget::new(1 << 20));
        let error = error.map(|e| format!("{}: {}", e.line, e.message));
        (nodes.iter().map(Node::to_value).collect(), error)
    }

    #[test]
    fn json_is_read_with_lines() {
        let text =
            "{\n \"a\": [1, -2.5, \"x\\\"\\u00e9\\ud83d\\ude00\"],\n \"b\": {\"c\": null, \"d\": true}}\n---\n{}\n";
        let (nodes, error) = values(text);
        assert_eq!(error, None);
        assert_eq!(nodes, [json!({"a": [1, -2.5, "x\"é😀"], "b": {"c": null, "d": true}}), json!({})]);
        let (nodes, _) = read_stream(text, &mut Budget::new(1 << 20));
        let path = super::super::problem::Path::root().field("b").field("c");
        assert_eq!(nodes[0].line_of(&path), 3);
    }

    #[test]
    fn bad_json_says_where() {
        let table = [
            ("{\"a\": 1,\n\"a\": 2}", "2: key \"a\" is given twice"),
            ("{\"a\": 1,}", "1: JSON: expected a key in double quotes"),
            ("{\"a\"\n 1}", "2: JSON: expected `:` after key \"a\""),
            ("{\"a\": [1 2]}", "1: JSON: expected `,` or `]`"),
            ("{\"a\": 01}", "1: JSON: \"01\" is not a value"),
            ("{\"a\": tru}", "1: JSON: \"tru\" is not a value"),
            ("{\"a\": ", "1: JSON: the text ends where a value should be"),
            ("{\"a", "1: JSON: a text in quotes does not end"),
            ("{\"a\n\": 1}", "1: JSON: a text in quotes does not end on its line"),
        ];
        for (text, expect) in table {
            assert_eq!(values(text).1.as_deref(), Some(expect), "{text}");
        }
        let (nodes, error) = values("{\"a\": 1} {\"b\": }");
        assert_eq!(nodes.len(), 1);
        assert!(error.is_some());
        assert!(values(&"[".repeat(100_000)).1.is_some_and(|e| e.contains("nested deeper")));
        assert!(values("{\"a\": \"\\ud83d\"}").1.is_some());
        assert!(values("{\"é\\").1.is_some());
    }

    #[test]
    fn yaml_flow_style_is_not_json() {
        assert!(looks_like_json(" \n{ \"a\": 1}"));
        assert!(looks_like_json("{}"));
        assert!(!looks_like_json("{a: 1}"));
        assert!(!looks_like_json("a: {\"b\": 1}"));
    }
}
