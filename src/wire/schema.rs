//! A tree against a table of fields: unknown fields, wrong types and fields that armlet does not honour are all
//! named in one pass; what is left is a JSON value that the typed decoder cannot refuse.

use super::problem::Path;
use super::report::Report;
use super::tree::{Data, Node};
use serde_json::{Map, Number, Value};

/// What a field holds.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Kind {
    /// A text.
    Text,
    /// A boolean.
    Bool,
    /// An integer of 32 bits.
    I32,
    /// An integer of 64 bits.
    I64,
    /// A number or a text that is a Kubernetes quantity.
    Quantity,
    /// An integer or a text: a port by number or name.
    IntOrText,
    /// A list of one kind.
    List(&'static Kind),
    /// An object whose keys are data.
    Map(&'static Kind),
    /// An object with known fields.
    Object(&'static [Field]),
    /// Anything: looked at elsewhere, or by nobody.
    Opaque,
}

/// What armlet does with a field.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Verdict {
    /// Honoured.
    Used,
    /// Kept in the object; on a single node there is nothing to do for it.
    Kept,
    /// Read past with a warning: it is the server's to write, not the manifest's.
    Dropped,
    /// Accepted with a warning that tells why nothing comes of it.
    NoEffect(&'static str),
    /// Honoured as long as it has one of these values.
    Only(&'static [&'static str]),
    /// Honoured with the value `effect`, which is what holds whatever is said. One of `others` is taken with a warning, or
    /// any other if there are none named.
    Instead {
        /// The value that holds.
        effect: &'static str,
        /// Upstream's other values.
        others: &'static [&'static str],
    },
    /// Not honoured: accepted with a warning unless it says nothing. The text tells what holds instead; it may be empty.
    Ignored(&'static str),
    /// The same, and no is not nothing.
    IgnoredChoice(&'static str),
    /// Not honoured: refused unless it says nothing.
    Refused,
    /// Not honoured: refused even when empty, because naming it is already a choice.
    RefusedChoice,
    /// An API object that a static pod must not name.
    Reference(&'static str),
}

/// A field of an object.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Field {
    /// Its name.
    pub name: &'static str,
    /// What it holds.
    pub kind: Kind,
    /// What armlet does with it.
    pub verdict: Verdict,
}

/// The sentence for a field that is known but not honoured.
pub(crate) const NOT_SUPPORTED: &str = "not supported by this version of armlet";

/// The sentence for a field that is known, not honoured, and accepted all the same.
pub(crate) fn ignored(why: &str) -> String {
    let colon = if why.is_empty() { "" } else { ": " };
    format!("{NOT_SUPPORTED} and ignored{colon}{why}")
}

/// Checks an object against its fields. Gives it without what was reported and without nulls.
pub(crate) fn object(node: &Node, fields: &[Field], path: &Path, report: &mut Report<'_>) -> Map<String, Value> {
    let mut out = Map::new();
    if !matches!(node.data, Data::Map(_)) {
        mismatch(node, "an object", path, report);
        return out;
    }
    for entry in node.entries() {
        let at = path.field(&entry.key);
        let Some(field) = fields.iter().find(|f| f.name == entry.key) else {
            report.unknown(&at, nearest(&entry.key, fields));
            continue;
        };
        if entry.value.data == Data::Null {
            continue;
        }
        if let Some(value) = judged(&entry.value, field, &at, report) {
            out.insert(entry.key.clone(), value);
        }
    }
    out
}

/// A field's value by its verdict.
fn judged(node: &Node, field: &Field, path: &Path, report: &mut Report<'_>) -> Option<Value> {
    match field.verdict {
        Verdict::Used | Verdict::Kept => value(node, &field.kind, path, report),
        Verdict::Dropped => {
            if !node.is_empty() {
                report.warning(path, "has no effect in a manifest");
            }
            None
        }
        Verdict::NoEffect(_) | Verdict::Ignored(_) | Verdict::IgnoredChoice(_) if says_nothing(node) => None,
        Verdict::Ignored(_) if node.data == Data::Bool(false) => None,
        Verdict::NoEffect(why) => {
            report.warning(path, format!("has no effect: {why}"));
            None
        }
        Verdict::Ignored(why) | Verdict::IgnoredChoice(why) => {
            report.warning(path, ignored(why));
            None
        }
        Verdict::Instead { effect, others } => {
            let value = value(node, &field.kind, path, report)?;
            let text = value.as_str().map_or_else(|| value.to_string(), str::to_owned);
            if text == effect || text.is_empty() {
                return None;
            }
            if others.is_empty() || others.contains(&text.as_str()) {
                report.warning(path, format!("{text:?} is {NOT_SUPPORTED}: {effect} is in effect"));
            } else {
                let supported: Vec<&str> = std::iter::once(effect).chain(others.iter().copied()).collect();
                report.one_of(path, &text, &supported);
            }
            None
        }
        Verdict::Refused if node.is_empty() || node.data == Data::Bool(false) => None,
        Verdict::Reference(_) if node.is_empty() && !matches!(field.kind, Kind::Object(_)) => None,
        Verdict::Refused | Verdict::RefusedChoice => {
            report.refuse(path, NOT_SUPPORTED);
            None
        }
        Verdict::Reference(resource) => {
            report.refuse(path, format!("Forbidden: static pods may not reference {resource}"));
            None
        }
        Verdict::Only(allowed) => {
            let value = value(node, &field.kind, path, report)?;
            let text = value.as_str().map_or_else(|| value.to_string(), str::to_owned);
            if text.is_empty() {
                return None;
            }
            if allowed.contains(&text.as_str()) {
                return Some(value);
            }
            report.error(path, format!("{text:?} is {NOT_SUPPORTED}, only {}", allowed.join(" or ")));
            None
        }
    }
}

/// Nothing, or the zero that Go writes for a duration that nobody set.
fn says_nothing(node: &Node) -> bool {
    node.is_empty() || matches!(&node.data, Data::Text(text) if text == "0s")
}

/// A value of a kind, or none and a problem.
pub(crate) fn value(node: &Node, kind: &Kind, path: &Path, report: &mut Report<'_>) -> Option<Value> {
    match (kind, &node.data) {
        (Kind::Opaque, _) => Some(node.to_value()),
        (Kind::Text | Kind::IntOrText | Kind::Quantity, Data::Text(text)) if text.contains('\0') => {
            mismatch(node, "without NUL characters: nothing of the system can take them", path, report)
        }
        (Kind::Text | Kind::IntOrText | Kind::Quantity, Data::Text(text)) => Some(Value::String(text.clone())),
        (Kind::Text, Data::Number(_) | Data::Bool(_)) => mismatch(node, "a string: write it in quotes", path, report),
        (Kind::Text, _) => mismatch(node, "a string", path, report),
        (Kind::Bool, Data::Bool(b)) => Some(Value::Bool(*b)),
        (Kind::Bool, _) => mismatch(node, "a boolean", path, report),
        (Kind::I32 | Kind::IntOrText, Data::Number(n)) => {
            integer(n, i64::from(i32::MIN), i64::from(i32::MAX), node, path, report)
        }
        (Kind::I64, Data::Number(n)) => integer(n, i64::MIN, i64::MAX, node, path, report),
        (Kind::I32 | Kind::I64, _) => mismatch(node, "an integer", path, report),
        (Kind::IntOrText, _) => mismatch(node, "an integer or a string", path, report),
        (Kind::Quantity, Data::Number(n)) => Some(Value::String(n.to_string())),
        (Kind::Quantity, _) => mismatch(node, "a quantity", path, report),
        (Kind::List(kind), Data::List(items)) => {
            let elements = items.iter().enumerate();
            Some(Value::Array(elements.map(|(i, n)| element(n, kind, &path.index(i), report)).collect()))
        }
        (Kind::List(_), _) => mismatch(node, "a list", path, report),
        (Kind::Map(kind), Data::Map(entries)) => {
            let entries = entries.iter();
            let entries = entries.map(|e| (e.key.clone(), element(&e.value, kind, &path.key(&e.key), report)));
            Some(Value::Object(entries.collect()))
        }
        (Kind::Map(_), _) => mismatch(node, "an object", path, report),
        (Kind::Object(fields), Data::Map(_)) => Some(Value::Object(object(node, fields, path, report))),
        (Kind::Object(_), _) => mismatch(node, "an object", path, report),
    }
}

/// An element of a list or map. A null, and a wrong one that was reported, stay as the kind's empty value, so that the
/// indices of the others keep their meaning.
fn element(node: &Node, kind: &Kind, path: &Path, report: &mut Report<'_>) -> Value {
    let read = if node.data == Data::Null { None } else { value(node, kind, path, report) };
    read.unwrap_or_else(|| match kind {
        Kind::Text | Kind::Quantity => Value::String(String::new()),
        Kind::Bool => Value::Bool(false),
        Kind::I32 | Kind::I64 | Kind::IntOrText => Value::from(0),
        Kind::List(_) => Value::Array(Vec::new()),
        Kind::Map(_) | Kind::Object(_) => Value::Object(Map::new()),
        Kind::Opaque => Value::Null,
    })
}

fn integer(n: &Number, min: i64, max: i64, node: &Node, path: &Path, report: &mut Report<'_>) -> Option<Value> {
    // `089` is read as the float 89 by YAML 1.1's rules, and written to JSON as 89.
    const EXACT: f64 = 9_007_199_254_740_992.0;
    let whole = n.as_f64().filter(|f| n.is_f64() && f.fract() == 0.0 && f.abs() <= EXACT);
    #[expect(clippy::cast_possible_truncation, reason = "whole and below 2^53")]
    let value = n.as_i64().or_else(|| whole.map(|f| f as i64));
    match value {
        Some(v) if (min..=max).contains(&v) => Some(Value::from(v)),
        None if n.is_f64() => mismatch(node, "an integer", path, report),
        _ => {
            report.error(path, format!("Invalid value: {n}: must be between {min} and {max}, inclusive"));
            None
        }
    }
}

fn mismatch(node: &Node, expected: &str, path: &Path, report: &mut Report<'_>) -> Option<Value> {
    report.error(path, format!("Invalid value: {}: must be {expected}", shown(node)));
    None
}

/// The value in a problem's text: scalars as they are, the rest by its kind.
fn shown(node: &Node) -> String {
    match &node.data {
        Data::Text(text) => format!("{:?}", text.chars().take(60).collect::<String>()),
        Data::Number(n) => n.to_string(),
        Data::Bool(b) => b.to_string(),
        Data::Null | Data::List(_) | Data::Map(_) | Data::Broken => node.kind().to_owned(),
    }
}

/// The field that may have been meant by one that is not in the table.
fn nearest(key: &str, fields: &[Field]) -> Option<&'static str> {
    let near = fields.iter().map(|f| (distance(&key.to_lowercase(), &f.name.to_lowercase()), f.name));
    near.min().filter(|(d, name)| *d <= 2 && *d * 3 <= name.len()).map(|(_, name)| name)
}

/// The edit distance of two short texts; large for long ones.
fn distance(a: &str, b: &str) -> usize {
    if a.len() > 64 || a.len().abs_diff(b.len()) > 2 {
        return usize::MAX / 3;
    }
    let mut row: Vec<usize> = (0..=b.len()).collect();
    for (i, x) in a.bytes().enumerate() {
        let mut diagonal = i;
        if let Some(first) = row.first_mut() {
            *first = i + 1;
        }
        for (j, y) in b.bytes().enumerate() {
            let replaced = diagonal + usize::from(x != y);
            diagonal = row[j + 1];
            row[j + 1] = replaced.min(diagonal + 1).min(row[j] + 1);
        }
    }
    row.last().copied().unwrap_or(usize::MAX / 3)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    const INNER: &[Field] = &[
        Field { name: "mode", kind: Kind::Text, verdict: Verdict::Only(&["None"]) },
        Field { name: "size", kind: Kind::Quantity, verdict: Verdict::Used },
    ];
    const FIELDS: &[Field] = &[
        Field { name: "name", kind: Kind::Text, verdict: Verdict::Used },
        Field { name: "count", kind: Kind::I32, verdict: Verdict::Used },
        Field { name: "big", kind: Kind::I64, verdict: Verdict::Used },
        Field { name: "flag", kind: Kind::Bool, verdict: Verdict::Used },
        Field { name: "port", kind: Kind::IntOrText, verdict: Verdict::Used },
        Field { name: "tags", kind: Kind::Map(&Kind::Text), verdict: Verdict::Kept },
        Field { name: "parts", kind: Kind::List(&Kind::Object(INNER)), verdict: Verdict::Used },
        Field { name: "hooks", kind: Kind::Opaque, verdict: Verdict::Refused },
        Field { name: "secret", kind: Kind::Opaque, verdict: Verdict::RefusedChoice },
        Field { name: "account", kind: Kind::Text, verdict: Verdict::Reference("serviceaccounts") },
        Field { name: "written", kind: Kind::Opaque, verdict: Verdict::Dropped },
    ];

    fn check(text: &str) -> (Value, Vec<String>) {
        let mut budget = super::super::tree::Budget::new(1 << 20);
        let tree = super::super::yaml::read(text, &mut budget).expect("not empty").tree.expect("syntax");
        let mut report = Report::new("f.yaml", 0, &tree, Path::root());
        let value = object(&tree, FIELDS, &Path::root(), &mut report);
        (Value::Object(value), report.into_problems().iter().map(ToString::to_string).collect())
    }

    #[test]
    fn what_fits_is_kept() {
        let (value, problems) = check(
            "name: x\ncount: 089\nbig: -5\nflag: yes\nport: http\ntags: {a: b}\nparts: [{mode: None, size: 1}, {size: 0.5}]\n\
             hooks: {}\nsecret: ~\naccount: ''\n",
        );
        assert_eq!(problems, Vec::<String>::new());
        let expect = json!({"name": "x", "count": 89, "big": -5, "flag": true, "port": "http", "tags": {"a": "b"},
            "parts": [{"mode": "None", "size": "1"}, {"size": "0.5"}]});
        assert_eq!(value, expect);
    }

    #[test]
    fn everything_wrong_is_named_at_once() {
        let (_, problems) = check(
            "name: 5\ncount: 3000000000\nbig: 1.5\nflag: 'true'\nport: [1]\ntags: {a: 1}\nparts:\n- mode: Both\n- {siz: 1}\n- 7\n\
             hooks: {a: 1}\nsecret: {}\naccount: a\nwritten: 1\nNAME: x\nxyz: 1\n",
        );
        let expect = [
            "f.yaml:1: name: Invalid value: 5: must be a string: write it in quotes",
            "f.yaml:2: count: Invalid value: 3000000000: must be between -2147483648 and 2147483647, inclusive",
            "f.yaml:3: big: Invalid value: 1.5: must be an integer",
            "f.yaml:4: flag: Invalid value: \"true\": must be a boolean",
            "f.yaml:5: port: Invalid value: a list: must be an integer or a string",
            "f.yaml:6: tags[a]: Invalid value: 1: must be a string: write it in quotes",
            "f.yaml:8: parts[0].mode: \"Both\" is not supported by this version of armlet, only None",
            "f.yaml:9: parts[1].siz: unknown field, did you mean \"size\"?",
            "f.yaml:10: parts[2]: Invalid value: 7: must be an object",
            "f.yaml:11: hooks: not supported by this version of armlet",
            "f.yaml:12: secret: not supported by this version of armlet",
            "f.yaml:13: account: Forbidden: static pods may not reference serviceaccounts",
            "f.yaml:14: warning: written: has no effect in a manifest",
            "f.yaml:15: NAME: unknown field, did you mean \"name\"?",
            "f.yaml:16: xyz: unknown field",
        ];
        assert_eq!(problems, expect);
    }
}
