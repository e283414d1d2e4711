//! A file's bytes to its documents. Each document is read by itself, so that a mistake in one leaves the others alone.

use super::json;
use super::problem::{Problem, Severity};
use super::tree::{Budget, Faults, Node, Reading, SyntaxError};
use super::yaml;

/// The largest file that is read: 10 MiB, as upstream's `maxConfigLength` (`pkg/kubelet/config/file.go`).
pub(crate) const MAX_FILE: usize = 10 << 20;

/// How many documents of a file are read.
const MAX_DOCUMENTS: usize = 1000;

/// A document of a file, read or not.
#[derive(Debug)]
pub(crate) struct Document {
    /// Which one, from 0; empty ones count.
    pub index: usize,
    /// Its tree, or why it has none.
    pub tree: Result<Node, SyntaxError>,
    faults: Vec<SyntaxError>,
}

impl Document {
    fn new(index: usize, Reading { tree, faults }: Reading) -> Self {
        Self { index, tree, faults: faults.0 }
    }

    fn failed(index: usize, error: SyntaxError) -> Self {
        Self::new(index, Reading { tree: Err(error), faults: Faults::default() })
    }

    /// What is wrong with it as a text. Any of it refuses the document, whatever its tree holds.
    pub(crate) fn problems(&self, file: &str) -> Vec<Problem> {
        let errors = self.faults.iter().chain(self.tree.as_ref().err());
        let problem = |error: &SyntaxError| Problem {
            file: file.to_owned(),
            line: Some(error.line),
            document: self.index,
            field: String::new(),
            message: error.message.clone(),
            severity: Severity::Error,
        };
        errors.map(problem).collect()
    }
}

/// Splits a file and reads each document. Empty documents are left out.
pub(crate) fn read(bytes: &[u8]) -> Vec<Document> {
    let text = match decode(bytes) {
        Ok(text) => text,
        Err(error) => return vec![Document::failed(0, error)],
    };
    let mut budget = Budget::new(2 * MAX_FILE);
    if json::looks_like_json(text) {
        return read_json(text, &mut budget);
    }
    let mut documents = Vec::new();
    for (index, (first_line, chunk)) in split(text).into_iter().enumerate() {
        if index >= MAX_DOCUMENTS {
            let error = SyntaxError::new(first_line, format!("more than {MAX_DOCUMENTS} documents"));
            documents.push(Document::failed(index, error));
            break;
        }
        let Some(mut reading) = yaml::read(chunk, &mut budget) else { continue };
        let lines = first_line - 1;
        let faults = reading.faults.0.iter_mut();
        faults.chain(reading.tree.as_mut().err()).for_each(|error| error.line = error.line.saturating_add(lines));
        if let Ok(node) = &mut reading.tree {
            shift(node, lines);
        }
        documents.push(Document::new(index, reading));
    }
    documents
}

fn read_json(text: &str, budget: &mut Budget) -> Vec<Document> {
    let readings = json::read_stream(text, budget).into_iter().enumerate();
    readings.map(|(index, reading)| Document::new(index, reading)).collect()
}

/// The bytes as text: UTF-8, with or without a byte order mark, without NUL.
fn decode(bytes: &[u8]) -> Result<&str, SyntaxError> {
    if bytes.len() > MAX_FILE {
        return Err(SyntaxError::new(1, format!("larger than {MAX_FILE} bytes")));
    }
    if bytes.starts_with(&[0xFF, 0xFE]) || bytes.starts_with(&[0xFE, 0xFF]) {
        return Err(SyntaxError::new(1, "UTF-16 is not read here: save the file as UTF-8"));
    }
    let bytes = bytes.strip_prefix(&[0xEF, 0xBB, 0xBF]).unwrap_or(bytes);
    let text =
        std::str::from_utf8(bytes).map_err(|e| SyntaxError::new(line_at(bytes, e.valid_up_to()), "not UTF-8"))?;
    match text.find('\0') {
        Some(at) => Err(SyntaxError::new(line_at(bytes, at), "holds a NUL byte")),
        None => Ok(text),
    }
}

fn line_at(bytes: &[u8], at: usize) -> u32 {
    let breaks = bytes.iter().take(at).filter(|b| **b == b'\n').count();
    u32::try_from(breaks + 1).unwrap_or(u32::MAX)
}

/// Cuts a text at its lines of `---`. Gives each part with the line it begins on.
///
/// A document marker at the start of a line ends a document everywhere in YAML, block scalars included, so this
/// needs no parser. Directives (`%YAML 1.1`) belong to the document after their marker.
fn split(text: &str) -> Vec<(u32, &str)> {
    let mut parts = Vec::new();
    let (mut start, mut first_line, mut only_directives) = (0, 1, true);
    let (mut at, mut line) = (0, 1u32);
    for full in text.split_inclusive('\n') {
        let content = full.trim_end_matches(['\n', '\r']);
        let marker = content.strip_prefix("---").is_some_and(|rest| rest.is_empty() || rest.starts_with([' ', '\t']));
        if marker && at > start && !only_directives {
            parts.push((first_line, &text[start..at]));
            (start, first_line) = (at, line);
        }
        if marker {
            only_directives = false;
        }
        only_directives &= content.trim().is_empty() || content.starts_with(['#', '%']);
        at += full.len();
        line = line.saturating_add(1);
    }
    parts.push((first_line, &text[start..]));
    parts
}

fn shift(node: &mut Node, lines: u32) {
    use super::tree::Data;
    if lines == 0 {
        return;
    }
    node.line = node.line.saturating_add(lines);
    match &mut node.data {
        Data::List(items) => items.iter_mut().for_each(|n| shift(n, lines)),
        Data::Map(entries) => entries.iter_mut().for_each(|e| {
            e.line = e.line.saturating_add(lines);
            shift(&mut e.value, lines);
        }),
        _ => {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    fn all(bytes: &[u8]) -> Vec<(usize, Result<Value, String>)> {
        let shown = |d: &Document| match (&d.tree, d.faults.first()) {
            (Ok(node), None) => Ok(node.to_value()),
            (Err(e), _) | (_, Some(e)) => Err(format!("{}: {}", e.line, e.message)),
        };
        read(bytes).iter().map(|d| (d.index, shown(d))).collect()
    }

    #[test]
    fn documents_are_read_one_by_one() {
        let text = b"# head\n---\na: 1\n---\n---\n# nothing\n---\nb: [\n--- \nc: 3\n...\n";
        let documents = all(text);
        assert_eq!(documents[0], (0, Ok(json!({"a": 1}))));
        assert_eq!(documents[1].0, 3);
        assert!(documents[1].1.is_err());
        assert_eq!(documents[2], (4, Ok(json!({"c": 3}))));
        assert_eq!(documents.len(), 3);
    }

    #[test]
    fn lines_are_those_of_the_file() {
        let documents = read(b"a: 1\n---\n\nb:\n  c: 2\n");
        let node = documents[1].tree.as_ref().expect("reads");
        assert_eq!(node.line_of(&super::super::problem::Path::root().field("b").field("c")), 5);
        assert_eq!(all(b"a: 1\n---\nb: 1\nb: 2\n")[1].1, Err("4: key \"b\" is given twice".to_owned()));
    }

    #[test]
    fn directives_stay_with_their_document() {
        assert_eq!(all(b"%YAML 1.1\n# x\n---\na: 1\n---\nb: 2\n").len(), 2);
        assert_eq!(all(b"a: |\n  ---\n  x\nb: --- x\n"), [(0, Ok(json!({"a": "---\nx\n", "b": "--- x"})))]);
        assert_eq!(all(b"--- {a: 1}\n--- \nb: 1\n").len(), 2);
    }

    #[test]
    fn odd_bytes_are_named() {
        assert_eq!(all(b"\xEF\xBB\xBFa: 1\r\n"), [(0, Ok(json!({"a": 1})))]);
        assert_eq!(all(b"\xFF\xFEa\0"), [(0, Err("1: UTF-16 is not read here: save the file as UTF-8".to_owned()))]);
        assert_eq!(all(b"a: 1\nb: \xC3\n"), [(0, Err("2: not UTF-8".to_owned()))]);
        assert_eq!(all(b"a: 1\nb: \0\n"), [(0, Err("2: holds a NUL byte".to_owned()))]);
        assert_eq!(all(&vec![b' '; MAX_FILE + 1]), [(0, Err(format!("1: larger than {MAX_FILE} bytes")))]);
        let many = all("---\na: 1\n".repeat(1001).as_bytes());
        assert_eq!(many[1000], (1000, Err("2001: more than 1000 documents".to_owned())));
        assert!(all(b"").is_empty());
        assert!(all(b"\n\n# x\n---\n").is_empty());
    }
}
