//! What must not leave the node. Pure.
//!
//! Two walls. First, places that hold secrets are emptied: values of environment variables, headers of probes,
//! annotations and words of commands that look like one, pull secrets, what containers said at their end. Second, each
//! value that was found in such a place is taken out of everything else that is gathered, be it a log line that quotes
//! a command.

use serde_json::Value;
use std::collections::BTreeSet;

/// What stands in the place of a secret.
pub(super) const GONE: &str = "<redacted>";

/// Shorter values are too common to be looked for in other texts; their places are emptied all the same.
const SHORTEST: usize = 6;

/// Values that say nothing and would take half of every text with them.
const COMMON: [&str; 8] =
    ["default", "localhost", "production", "development", "warning", "Warning", "kube-system", "127.0.0.1"];

/// A name that contains one of these, written small and without marks between its words, is a secret's.
const NAMES: [&str; 15] = [
    "password",
    "passwd",
    "passphrase",
    "secret",
    "token",
    "apikey",
    "accesskey",
    "privatekey",
    "credential",
    "authorization",
    "cookie",
    "sessionid",
    "connectionstring",
    "webhook",
    "signature",
];
/// The same for one that ends like this: `requirepass`, `--basic-auth`.
const ENDS: [&str; 6] = ["pass", "auth", "pwd", "psk", "dsn", "pin"];

/// Reasons of armlet's own, whose messages are its own too; what else a container says at its end may be anything.
const OWN_REASONS: [&str; 4] = ["StartError", "ContainerCannotRun", "ContainerStatusUnknown", "OOMKilled"];

/// Words after which a problem quotes the value that is wrong.
const QUOTES_A_VALUE: [&str; 3] = ["Invalid value: ", "Unsupported value: ", "Duplicate value: "];

/// Whether what has this name is likely to be a secret.
fn is_secret_name(name: &str) -> bool {
    let plain: String = name.chars().filter(char::is_ascii_alphanumeric).collect::<String>().to_ascii_lowercase();
    NAMES.iter().any(|word| plain.contains(word)) || ENDS.iter().any(|end| plain.ends_with(end))
}

/// Values that were found in places of secrets.
#[derive(Debug, Default)]
pub(super) struct Secrets(BTreeSet<String>);

impl Secrets {
    /// Remembers a value, and each of its lines.
    fn learn(&mut self, value: &str) {
        let escaped: String = value.trim().chars().flat_map(char::escape_default).collect();
        let debug = format!("{:?}", value.trim());
        let debug = debug.get(1..debug.len().saturating_sub(1)).unwrap_or_default().to_owned();
        let lines = value.lines().map(|line| line.trim().to_owned());
        for part in lines.chain([value.trim().to_owned(), escaped, debug]) {
            if part.len() >= SHORTEST && !COMMON.contains(&part.as_str()) && part != GONE {
                self.0.insert(part);
            }
        }
    }

    /// Takes all of them out of a text.
    pub(super) fn scrub(&self, text: &str) -> String {
        let mut longest_first: Vec<&String> = self.0.iter().collect();
        longest_first.sort_by_key(|value| std::cmp::Reverse(value.len()));
        longest_first.into_iter().fold(text.to_owned(), |text, value| text.replace(value.as_str(), GONE))
    }

    /// The same in every text of a document; names of fields stay.
    pub(super) fn scrub_json(&self, value: &mut Value) {
        match value {
            Value::String(text) => *text = self.scrub(text),
            Value::Array(list) => list.iter_mut().for_each(|item| self.scrub_json(item)),
            Value::Object(map) => map.values_mut().for_each(|item| self.scrub_json(item)),
            Value::Number(number) if self.0.contains(&number.to_string()) => *value = GONE.into(),
            _ => {}
        }
    }

    /// Empties the places of secrets in a document (a pod, a list of pods, a manifest), and remembers what was there.
    pub(super) fn empty(&mut self, value: &mut Value) {
        match value {
            Value::String(text) => *text = free_text(text),
            Value::Array(list) => list.iter_mut().for_each(|item| self.empty(item)),
            Value::Object(map) => {
                // What a container said at its end.
                let ended = map.get("exitCode").is_some();
                let own = map.get("reason").and_then(Value::as_str).is_some_and(|r| OWN_REASONS.contains(&r));
                for (name, item) in map.iter_mut() {
                    self.field(name, item, ended && !own);
                }
            }
            _ => {}
        }
    }

    fn field(&mut self, name: &str, item: &mut Value, said_at_its_end: bool) {
        match (name, item) {
            ("env", Value::Array(list)) => list.iter_mut().for_each(|entry| match entry.get_mut("value") {
                Some(value) => self.take(value),
                None => self.empty(entry),
            }),
            ("httpHeaders", Value::Array(list)) => {
                list.iter_mut().filter_map(|header| header.get_mut("value")).for_each(|value| self.take(value));
            }
            ("command" | "args", Value::Array(list)) => self.words(list),
            ("annotations", Value::Object(map)) => {
                for (name, value) in map.iter_mut() {
                    // kubectl keeps the whole manifest here.
                    let whole = name.ends_with("/last-applied-configuration");
                    let looks = value.as_str().is_some_and(|text| self.text(text) != text);
                    if whole || looks || is_secret_name(name) {
                        self.take(value);
                    }
                }
            }
            ("imagePullSecrets", item) => *item = GONE.into(),
            ("message", item) if said_at_its_end => self.take(item),
            (name, item @ (Value::String(_) | Value::Number(_))) if is_secret_name(name) => self.take(item),
            (_, item) => self.empty(item),
        }
    }

    /// Puts nothing in a value's place, and remembers it.
    fn take(&mut self, value: &mut Value) {
        match value {
            Value::String(text) => self.learn(text),
            ref other => self.learn(&other.to_string()),
        }
        *value = GONE.into();
    }

    /// A command line, word by word: the word after a flag that names a secret is one.
    fn words(&mut self, list: &mut [Value]) {
        let mut next_is_secret = false;
        for word in list {
            let Value::String(text) = word else { continue };
            if std::mem::take(&mut next_is_secret) && !text.starts_with('-') {
                self.take(word);
                continue;
            }
            let flag = text.strip_prefix('-').map(|rest| rest.trim_start_matches('-'));
            next_is_secret = flag.is_some_and(|flag| !flag.contains(['=', ' ', ':']) && is_secret_name(flag))
                || (!text.contains([' ', '=', ':', '/']) && is_secret_name(text));
            *text = self.text(text);
        }
    }

    /// A text without what looks like a secret in it: values after a name and `=` or `:`, or after a flag; users and
    /// passwords in URLs; private keys; values that a problem quotes.
    fn text(&mut self, text: &str) -> String {
        let text = self.cut_quoted_values(&self.cut_private_keys(text));
        let text = self.cut_urls(&text);
        let mut out = String::with_capacity(text.len());
        let mut rest = text.as_str();
        while let Some(start) = rest.find(|c: char| c.is_ascii_alphabetic()) {
            let (before, from) = rest.split_at(start);
            let end = from.find(|c: char| !is_name(c)).unwrap_or(from.len());
            let (name, after) = from.split_at(end);
            out.push_str(before);
            out.push_str(name);
            rest = after;
            let flag = before.ends_with('-');
            if let Some((mark, value)) = value_after(after, flag, name)
                && is_secret_name(name)
                && value != GONE
            {
                self.learn(value);
                out.push_str(mark);
                out.push_str(GONE);
                rest = after.get(mark.len().saturating_add(value.len())..).unwrap_or_default();
            }
        }
        out + rest
    }

    fn cut_private_keys(&self, text: &str) -> String {
        const BEGIN: &str = "-----BEGIN ";
        const END: &str = "-----END ";
        let Some(begin) = text.find(BEGIN).filter(|_| text.contains("PRIVATE KEY")) else { return text.to_owned() };
        let end = text.rfind(END).unwrap_or(text.len()).max(begin);
        format!("{}{GONE}{}", text.get(..begin).unwrap_or_default(), text.get(end..).unwrap_or_default())
    }

    fn cut_quoted_values(&self, text: &str) -> String {
        let cut = |line: &str| {
            let at =
                QUOTES_A_VALUE.iter().filter_map(|words| Some(line.find(words)?.saturating_add(words.len()))).min();
            at.map_or_else(|| line.to_owned(), |at| format!("{}{GONE}", line.get(..at).unwrap_or_default()))
        };
        let ends = text.ends_with('\n');
        let cut: Vec<String> = text.lines().map(cut).collect();
        cut.join("\n") + if ends { "\n" } else { "" }
    }

    fn cut_urls(&mut self, text: &str) -> String {
        let mut out = String::new();
        let mut rest = text;
        while let Some(at) = rest.find("://") {
            let (before, after) = rest.split_at(at.saturating_add(3));
            out.push_str(before);
            rest = after;
            let authority = after.split(['/', ' ', '"', '\'', '?', '#', '\n', ',']).next().unwrap_or_default();
            if let Some((user, _)) = authority.rsplit_once('@') {
                self.learn(user.rsplit_once(':').map_or(user, |(_, password)| password));
                out.push_str(GONE);
                rest = after.get(user.len()..).unwrap_or_default();
            }
        }
        out + rest
    }
}

/// A text that may be anything, a log for instance, without what looks like a secret in it. What follows a word in it is
/// as often a word as a secret, and is not looked for elsewhere.
pub(super) fn free_text(text: &str) -> String {
    Secrets::default().text(text)
}

/// One line of a problem of a manifest or a configuration: where it is and what is wrong, without what is there.
pub(super) fn problem(line: &str) -> String {
    let line = free_text(line);
    let mut out = String::new();
    for (n, part) in line.split('"').enumerate() {
        out.push_str(if n % 2 == 0 { part } else { GONE });
    }
    out
}

fn is_name(c: char) -> bool {
    c.is_ascii_alphanumeric() || matches!(c, '_' | '-' | '.')
}

/// What stands between a name and its value, and the value; none where no value follows.
fn value_after<'a>(after: &'a str, flag: bool, name: &str) -> Option<(&'a str, &'a str)> {
    let trimmed = after.trim_start_matches(['"', '\'', ']', '\\']);
    let has_mark = trimmed.starts_with(['=', ':']);
    let follows_a_flag = flag && after.starts_with([' ', '\t']);
    if !has_mark && !follows_a_flag {
        return None;
    }
    let body = if has_mark { trimmed.get(1..)? } else { after };
    let body = body.trim_start_matches([' ', '\t', '\\']);
    let (body, quote) = match body.chars().next()? {
        quote @ ('"' | '\'') => (body.get(1..)?, Some(quote)),
        _ => (body, None),
    };
    let end = match quote {
        Some(quote) => body.find([quote, '\n']),
        // What follows `Authorization:` is two words.
        None if has_mark && name.to_ascii_lowercase().ends_with("authorization") => body.find(['"', '\'', '\n']),
        None => body.find(|c: char| c.is_whitespace() || matches!(c, ';' | '&' | '|' | ')' | '"' | '\'' | ',' | '}')),
    };
    // A quote inside of a quoted text keeps what marks it.
    let value = body.get(..end.unwrap_or(body.len()))?.trim_end_matches('\\');
    let mark = after.get(..after.len().checked_sub(body.len())?)?;
    // `password:` at the end of a sentence, or a flag that is followed by another.
    (!value.is_empty() && (has_mark || !value.starts_with('-'))).then_some((mark, value))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn texts_lose_what_looks_like_a_secret() {
        for (text, wanted) in [
            ("--password=hunter2 --user=joe", "--password=<redacted> --user=joe"),
            ("--db-password hunter2 -v", "--db-password <redacted> -v"),
            ("--password --verbose", "--password --verbose"),
            ("export API_KEY='a b c'; run", "export API_KEY='<redacted>'; run"),
            ("PGPASS=x psql", "PGPASS=<redacted> psql"),
            ("redis-server --requirepass hunter2", "redis-server --requirepass <redacted>"),
            ("{\"token\": \"abc\", \"a\": 1}", "{\"token\": \"<redacted>\", \"a\": 1}"),
            ("{\\\"token\\\": \\\"abc\\\", \\\"a\\\": 1}", "{\\\"token\\\": \\\"<redacted>\\\", \\\"a\\\": 1}"),
            ("curl -H 'Authorization: Bearer abc.def' x", "curl -H 'Authorization: <redacted>' x"),
            ("amqp://joe:hunter2@broker:5672/a b", "amqp://<redacted>@broker:5672/a b"),
            ("http://broker/a@b", "http://broker/a@b"),
            ("the password: was wrong", "the password: <redacted> wrong"),
            ("tokens", "tokens"),
            ("f.yaml:3: spec.a: Invalid value: \"x\": must be y", "f.yaml:3: spec.a: Invalid value: <redacted>"),
            (
                "-----BEGIN RSA PRIVATE KEY-----\nabc\n-----END RSA PRIVATE KEY-----",
                "<redacted>-----END RSA PRIVATE KEY-----",
            ),
            ("2026-01-01T00:00:00Z I agent: all is well pod=a", "2026-01-01T00:00:00Z I agent: all is well pod=a"),
            ("", ""),
            ("a\nb\n", "a\nb\n"),
        ] {
            assert_eq!(Secrets::default().text(text), wanted, "{text}");
        }
    }

    #[test]
    fn a_pods_places_of_secrets_are_emptied_and_their_values_known() {
        let mut pod = json!({
            "metadata": {"name": "web", "annotations": {
                "note": "plain", "db/password": "annotated1", "x/config": "token=annotated2",
                "kubectl.kubernetes.io/last-applied-configuration": "{annotated3}",
            }},
            "spec": {
                "imagePullSecrets": [{"name": "registry"}],
                "containers": [{
                    "name": "main", "image": "a:1",
                    "env": [
                        {"name": "PLAIN", "value": "environ1"}, {"name": "NUMBER", "value": "123456"},
                        {"name": "IP", "valueFrom": {"fieldRef": {"fieldPath": "status.podIP"}}},
                    ],
                    "command": ["run", "--password=command1", "--token", "command2", "--level", "9"],
                    "args": ["sh", "-c", "PASSWORD=command3 exec x"],
                    "livenessProbe": {"httpGet": {"path": "/", "httpHeaders": [{"name": "X", "value": "header1"}]}},
                }],
            },
            "status": {"containerStatuses": [
                {"state": {"terminated": {"exitCode": 1, "reason": "Error", "message": "said by it"}}},
                {"state": {"terminated": {"exitCode": 128, "reason": "StartError", "message": "exec: x: not found"}}},
            ]},
        });
        let mut secrets = Secrets::default();
        secrets.empty(&mut pod);
        let text = pod.to_string();
        for planted in
            ["annotated", "environ1", "123456", "command1", "command2", "command3", "header1", "said by it", "registry"]
        {
            assert!(!text.contains(planted), "{planted} in {text}");
        }
        for kept in ["fieldRef", "status.podIP", "--level", "plain", "exec: x: not found", "PLAIN", "a:1"] {
            assert!(text.contains(kept), "{kept} in {text}");
        }
        let log = "exec [run --password=command1 environ1 123456]: annotated1 annotated2 said by it, default";
        let scrubbed = secrets.scrub(log);
        assert_eq!(scrubbed.matches(GONE).count(), 6, "{scrubbed}");
        let mut event = json!({"message": "pulled environ1", "count": 123_456, "environ1": 1});
        secrets.scrub_json(&mut event);
        assert_eq!(event, json!({"message": "pulled <redacted>", "count": "<redacted>", "environ1": 1}));
    }

    #[test]
    fn what_is_short_or_common_stays_in_other_texts() {
        let mut secrets = Secrets::default();
        secrets.empty(&mut json!({"env": [{"value": "1"}, {"value": "default"}, {"value": "two\nlines-long\n"}]}));
        assert_eq!(secrets.scrub("1 default lines-long"), "1 default <redacted>");
        assert_eq!(secrets.scrub("two\\nlines-long"), GONE);
    }

    #[test]
    fn a_problem_says_where_and_not_what() {
        assert_eq!(
            problem("c:3: cgroupRoot: \"/abc\" is not supported, only /"),
            "c:3: cgroupRoot: <redacted> is not supported, only /"
        );
        assert_eq!(
            problem("c:3: maxPods: Invalid value: 123: must be less"),
            "c:3: maxPods: Invalid value: <redacted>"
        );
    }

    proptest::proptest! {
        #[test]
        fn no_text_is_too_odd(text in "\\PC{0,60}", name in "[a-z]{0,4}(password|token|PASS)") {
            let _ = problem(&text);
            let mut secrets = Secrets::default();
            secrets.text(&text);
            let line = format!("{name}=planted-{text}");
            proptest::prop_assert!(!secrets.text(&line).contains("planted-"), "{line}");
        }

        #[test]
        fn no_planted_value_stays(value in "[a-zA-Z0-9/+=._-]{6,40}", before in "[a-z ]{0,20}") {
            let mut secrets = Secrets::default();
            let mut pod = json!({"env": [{"name": "A", "value": value}]});
            secrets.empty(&mut pod);
            let left = secrets.scrub(&format!("{before}{value}!"));
            proptest::prop_assert!(!left.contains(&value) || COMMON.contains(&value.as_str()) || GONE.contains(&value));
        }
    }
}
