//! JSON text to [`Node`] trees. serde_json reads the scalars; what is added is lines, and that a mistake whose end can be
//! told (a key that is given twice, a word that is no value, a comma too many) does not hide what comes after it.

use super::tree::{Budget, Data, Entry, Faults, MAX_DEPTH, Node, Reading, SyntaxError};
use super::yaml::given_twice;
use std::collections::HashSet;

/// Reads the values of a text, one after another; lines of `---` between them are allowed.
///
/// The values before a syntax error are kept: what cannot be read comes last.
pub(crate) fn read_stream(text: &str, budget: &mut Budget) -> Vec<Reading> {
    let mut reader = Reader { text, at: 0, line: 1, budget, faults: Faults::default() };
    let mut readings = Vec::new();
    loop {
        reader.skip_space();
        if reader.rest().starts_with("---") {
            reader.at += 3;
            continue;
        }
        if reader.rest().is_empty() {
            return readings;
        }
        let tree = reader.value(0);
        let failed = tree.is_err();
        readings.push(Reading { tree, faults: std::mem::take(&mut reader.faults) });
        if failed {
            return readings;
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
    faults: Faults,
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
            Some(b'"') => self.string()?.map_or(Data::Broken, Data::Text),
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
            let twice = key.as_ref().filter(|key| !keys.insert((*key).clone()));
            if let Some(key) = twice {
                self.faults.add(line, given_twice(key))?;
            }
            let first = twice.is_none();
            self.skip_space();
            if self.peek() != Some(b':') {
                return self.error(format!("expected `:` after key {:?}", key.unwrap_or_default()));
            }
            self.at += 1;
            let value = self.value(depth)?;
            entries.extend(key.filter(|_| first).map(|key| Entry { key, line, value }));
            if self.next_or_end(b'}', "a key in double quotes")? {
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
            if self.next_or_end(b']', "a value")? {
                return Ok(items);
            }
        }
    }

    /// After an element: a comma (false) or the end (true). `next`: what has to come after a comma.
    fn next_or_end(&mut self, end: u8, next: &str) -> Result<bool, SyntaxError> {
        self.skip_space();
        match self.peek() {
            Some(b',') => {
                self.at += 1;
                self.skip_space();
                let ends = self.peek() == Some(end);
                if ends {
                    self.faults.add(self.line, format!("JSON: expected {next}"))?;
                    self.at += 1;
                }
                Ok(ends)
            }
            Some(byte) if byte == end => {
                self.at += 1;
                Ok(true)
            }
            _ => self.error(format!("expected `,` or `{}`", char::from(end))),
        }
    }

    /// A text in quotes; none when it has an end and no meaning, which is told.
    fn string(&mut self) -> Result<Option<String>, SyntaxError> {
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
        self.at = at + 1;
        self.budget.take(self.line, raw.len())?;
        match serde_json::from_str(raw) {
            Ok(text) => Ok(Some(text)),
            Err(error) => {
                let short: String = raw.chars().take(40).collect();
                self.faults.add(self.line, format!("JSON: {short} is not a text: {error}"))?;
                Ok(None)
            }
        }
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
                    let message = format!("{short:?} is not a value");
                    if word.is_empty() {
                        return self.error(message);
                    }
                    self.faults.add(self.line, format!("JSON: {message}"))?;
                    Data::Broken
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

    /// The values that can be read, and all that is wrong.
    fn values(text: &str) -> (Vec<Value>, Vec<String>) {
        let (mut values, mut wrong) = (Vec::new(), Vec::new());
        for Reading { tree, faults } in read_stream(text, &mut Budget::new(1 << 20)) {
            wrong.extend(faults.0);
            match tree {
                Ok(node) => values.push(node.to_value()),
                Err(error) => wrong.push(error),
            }
        }
        (values, wrong.iter().map(|e| format!("{}: {}", e.line, e.message)).collect())
    }

    #[test]
    fn json_is_read_with_lines() {
        let text =
            "{\n \"a\": [1, -2.5, \"x\\\"\\u00e9\\ud83d\\ude00\"],\n \"b\": {\"c\": null, \"d\": true}}\n---\n{}\n";
        let (nodes, wrong) = values(text);
        assert_eq!(wrong, Vec::<String>::new());
        assert_eq!(nodes, [json!({"a": [1, -2.5, "x\"é😀"], "b": {"c": null, "d": true}}), json!({})]);
        let readings = read_stream(text, &mut Budget::new(1 << 20));
        let path = super::super::problem::Path::root().field("b").field("c");
        assert_eq!(readings[0].tree.as_ref().map(|node| node.line_of(&path)), Ok(3));
    }

    #[test]
    fn a_mistake_with_an_end_hides_nothing_after_it() {
        let text = "{\"a\": 1,\n\"a\": {\"b\": 2},\n\"c\": tru,\n\"d\": [01, 1e999, 2,],\n\"\\x\": 1, \"e\": \"\\ud83d\",\n}\n{\"f\": 1}";
        let (values, wrong) = values(text);
        assert_eq!(values, [json!({"a": 1, "c": null, "d": [null, null, 2], "e": null}), json!({"f": 1})]);
        let begins = [
            "2: key \"a\" is given twice",
            "3: JSON: \"tru\" is not a value",
            "4: JSON: \"01\" is not a value",
            "4: JSON: \"1e999\" is not a value",
            "4: JSON: expected a value",
            "5: JSON: \"\\x\" is not a text: ",
            "5: JSON: \"\\ud83d\" is not a text: ",
            "6: JSON: expected a key in double quotes",
        ];
        assert_eq!(wrong.len(), begins.len(), "{wrong:#?}");
        for (wrong, begin) in wrong.iter().zip(begins) {
            assert!(wrong.starts_with(begin), "{wrong}");
        }
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
            assert_eq!(values(text).1.first().map(String::as_str), Some(expect), "{text}");
        }
        let (nodes, wrong) = values("{\"a\": 1} {\"b\": }");
        assert_eq!((nodes.len(), wrong.len()), (1, 1));
        assert!(values(&"[".repeat(100_000)).1[0].contains("nested deeper"));
        assert_eq!(values("{\"a\": \"\\ud83d\"}").1.len(), 1);
        assert_eq!(values("{\"é\\").1.len(), 1);
    }

    #[test]
    fn yaml_flow_style_is_not_json() {
        assert!(looks_like_json(" \n{ \"a\": 1}"));
        assert!(looks_like_json("{}"));
        assert!(!looks_like_json("{a: 1}"));
        assert!(!looks_like_json("a: {\"b\": 1}"));
    }
}
