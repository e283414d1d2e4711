//! JSON values as YAML, in the form that `kubectl get -o yaml` prints: block style, keys sorted, lists not indented.

use super::scalar;
use super::tree::Data;
use serde_json::Value;

/// A value as a YAML document, with a line feed at its end.
#[must_use]
pub fn yaml(value: &Value) -> String {
    let mut out = String::new();
    match value {
        Value::Object(map) if !map.is_empty() => block(value, 0, &mut out),
        Value::Array(list) if !list.is_empty() => block(value, 0, &mut out),
        _ => {
            scalar_text(value, 0, &mut out);
            out.push('\n');
        }
    }
    out
}

/// Objects and lists with something in them, each entry on a line of its own.
fn block(value: &Value, indent: usize, out: &mut String) {
    match value {
        Value::Object(map) => {
            let mut entries: Vec<_> = map.iter().collect();
            entries.sort_unstable_by_key(|(key, _)| *key);
            for (i, (key, inner)) in entries.into_iter().enumerate() {
                if i > 0 {
                    pad(indent, out);
                }
                plain_or_quoted(key, out);
                out.push(':');
                entry(inner, indent, out);
            }
        }
        Value::Array(list) => {
            for (i, inner) in list.iter().enumerate() {
                if i > 0 {
                    pad(indent, out);
                }
                out.push('-');
                if is_block(inner) {
                    out.push(' ');
                    block(inner, indent + 2, out);
                } else {
                    out.push(' ');
                    scalar_text(inner, indent, out);
                    out.push('\n');
                }
            }
        }
        _ => {}
    }
}

/// What follows a key's colon.
fn entry(value: &Value, indent: usize, out: &mut String) {
    match value {
        Value::Object(_) if is_block(value) => {
            out.push('\n');
            pad(indent + 2, out);
            block(value, indent + 2, out);
        }
        Value::Array(_) if is_block(value) => {
            out.push('\n');
            pad(indent, out);
            block(value, indent, out);
        }
        _ => {
            out.push(' ');
            scalar_text(value, indent, out);
            out.push('\n');
        }
    }
}

fn is_block(value: &Value) -> bool {
    match value {
        Value::Object(map) => !map.is_empty(),
        Value::Array(list) => !list.is_empty(),
        _ => false,
    }
}

fn pad(indent: usize, out: &mut String) {
    out.extend(std::iter::repeat_n(' ', indent));
}

fn scalar_text(value: &Value, indent: usize, out: &mut String) {
    match value {
        Value::String(text) if literal(text) => literal_block(text, indent + 2, out),
        Value::String(text) => plain_or_quoted(text, out),
        // Null, booleans, numbers, `{}` and `[]` are the same in both languages.
        other => out.push_str(&other.to_string()),
    }
}

/// Whether a text reads best as a literal block: several lines of ordinary characters.
fn literal(text: &str) -> bool {
    let ordinary = |c: char| c == '\n' || c == '\t' || !c.is_control() && c != '\u{feff}' && c != '\u{85}';
    let inner = text.trim_end_matches('\n');
    inner.contains('\n')
        && !text.starts_with([' ', '\n', '\t'])
        && !text.contains(['\u{2028}', '\u{2029}'])
        && text.chars().all(ordinary)
        && !inner.lines().any(|l| l.ends_with([' ', '\t']))
}

fn literal_block(text: &str, indent: usize, out: &mut String) {
    let inner = text.trim_end_matches('\n');
    let breaks = text.len() - inner.len();
    out.push_str(match breaks {
        0 => "|-",
        1 => "|",
        _ => "|+",
    });
    for line in inner.split('\n') {
        out.push('\n');
        if !line.is_empty() {
            pad(indent, out);
            out.push_str(line);
        }
    }
    // The caller ends the last line; what is more than that belongs to the text.
    out.extend(std::iter::repeat_n('\n', breaks.saturating_sub(1)));
}

fn plain_or_quoted(text: &str, out: &mut String) {
    if is_plain(text) {
        out.push_str(text);
    } else {
        // A JSON text is a YAML text in double quotes.
        out.push_str(&Value::from(text).to_string());
    }
}

/// Whether a text stands for itself without quotes, to YAML 1.1 and 1.2 readers alike.
fn is_plain(text: &str) -> bool {
    let first_ok = |c: char| c.is_ascii_alphanumeric() || "/._$(".contains(c);
    let rest_ok = |c: char| c.is_ascii_alphanumeric() || " /._-+@=,;()$%~!&*^<>?'\"|:\\[]{}#".contains(c);
    text.chars().next().is_some_and(first_ok)
        && text.chars().all(rest_ok)
        && !text.contains(": ")
        && !text.contains(" #")
        && !text.ends_with([' ', ':'])
        && !text.starts_with("...")
        && !sexagesimal(text)
        && matches!(scalar::plain(text), Ok(Data::Text(_)))
        && !date(text)
}

/// `12:30` is 750 to some YAML 1.1 readers.
fn sexagesimal(text: &str) -> bool {
    text.contains(':') && text.bytes().all(|b| b.is_ascii_digit() || b":._+-".contains(&b))
}

/// `2001-01-01...` is a date to some readers.
fn date(text: &str) -> bool {
    let bytes = text.as_bytes();
    bytes.len() >= 8 && bytes.iter().take(4).all(u8::is_ascii_digit) && bytes.get(4) == Some(&b'-')
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wire::tree::Budget;
    use proptest::prelude::*;
    use serde_json::json;

    #[test]
    fn it_looks_as_kubectl_prints_it() {
        let value = json!({"kind": "Pod", "apiVersion": "v1", "metadata": {"labels": {"a/b": "1", "c": "yes"}},
            "spec": {"containers": [{"name": "c", "args": ["-x", "a: b", ""], "env": [], "resources": {}}]},
            "status": {"startTime": "2026-01-02T03:04:05Z", "message": "one\ntwo\n", "lastProbeTime": null, "num": 1.5}});
        let expect = "\
apiVersion: v1
kind: Pod
metadata:
  labels:
    a/b: \"1\"
    c: \"yes\"
spec:
  containers:
  - args:
    - \"-x\"
    - \"a: b\"
    - \"\"
    env: []
    name: c
    resources: {}
status:
  lastProbeTime: null
  message: |
    one
    two
  num: 1.5
  startTime: \"2026-01-02T03:04:05Z\"
";
        assert_eq!(yaml(&value), expect);
        assert_eq!(yaml(&json!({})), "{}\n");
        assert_eq!(
            yaml(&json!([1, [2, [3]], {"a": [{"b": 1, "c": 2}]}])),
            "- 1\n- - 2\n  - - 3\n- a:\n  - b: 1\n    c: 2\n"
        );
    }

    fn texts() -> impl Strategy<Value = String> {
        prop_oneof![
            any::<String>(),
            "[ -~]{0,12}",
            "[a-z:#\\-\n\t 0-9]{0,12}",
            "(yes|on|~|null|0x1|1e3|12:30|2001-01-01|\\.5|<<|---|\\.\\.\\.|=|!x|&a|\\*a)",
        ]
    }

    fn values() -> impl Strategy<Value = Value> {
        let leaf = prop_oneof![
            Just(Value::Null),
            any::<bool>().prop_map(Value::from),
            any::<i64>().prop_map(Value::from),
            (-1e12f64..1e12).prop_map(Value::from),
            texts().prop_map(Value::from),
        ];
        leaf.prop_recursive(4, 40, 5, |inner| {
            prop_oneof![
                prop::collection::vec(inner.clone(), 0..5).prop_map(Value::from),
                prop::collection::btree_map(texts(), inner, 0..5).prop_map(|m| Value::Object(m.into_iter().collect())),
            ]
        })
    }

    proptest! {
        #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]
        #[test]
        fn what_is_written_reads_back(value in values()) {
            let text = yaml(&value);
            let reading = crate::wire::yaml::read(&text, &mut Budget::new(1 << 20));
            let faults = reading.as_ref().map_or(0, |reading| reading.faults.0.len());
            let back = reading.map_or(Ok(Value::Null), |reading| reading.tree.map(|node| node.to_value()));
            prop_assert_eq!((back, faults), (Ok(value), 0), "{}", text);
        }
    }
}
