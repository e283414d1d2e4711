//! `$(VAR)` in commands, arguments and environment values.
//!
//! The rules are those of `third_party/forked/golang/expansion`: `$(X)` is replaced when X is known and stays as it is
//! when it is not; `$$` is one `$`, so `$$(X)` is the text `$(X)`; what is not closed stays.

/// Expands a text. `lookup` gives the value of a variable.
pub(crate) fn expand<'v>(text: &str, lookup: impl Fn(&str) -> Option<&'v str>) -> String {
    let mut out = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(at) = rest.find('$') {
        let (before, after) = rest.split_at(at);
        out.push_str(before);
        let after = after.get(1..).unwrap_or("");
        rest = if let Some(escaped) = after.strip_prefix('$') {
            out.push('$');
            escaped
        } else if let Some((name, tail)) = after.strip_prefix('(').and_then(|inner| inner.split_once(')')) {
            match lookup(name) {
                Some(value) => out.push_str(value),
                None => out.extend(["$(", name, ")"]),
            }
            tail
        } else {
            out.push('$');
            after
        };
    }
    out.push_str(rest);
    out
}

/// An environment in order, each value expanded with the variables before it. A name given again replaces the value.
pub(crate) fn environment<'v>(given: impl Iterator<Item = (&'v str, &'v str)>) -> Vec<(String, String)> {
    let mut out: Vec<(String, String)> = Vec::new();
    for (name, raw) in given {
        let value = expand(raw, |n| lookup(&out, n));
        match out.iter_mut().find(|(known, _)| known == name) {
            Some((_, old)) => *old = value,
            None => out.push((name.to_owned(), value)),
        }
    }
    out
}

/// A variable of an environment.
pub(crate) fn lookup<'e>(environment: &'e [(String, String)], name: &str) -> Option<&'e str> {
    environment.iter().find(|(known, _)| known == name).map(|(_, value)| value.as_str())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn references_are_replaced_as_upstream_does() {
        let known = |name: &str| match name {
            "A" => Some("1"),
            "EMPTY" => Some(""),
            "REF" => Some("$(A)"),
            _ => None,
        };
        let table = [
            ("", ""),
            ("plain", "plain"),
            ("$(A)", "1"),
            ("x$(A)y$(A)z", "x1y1z"),
            ("$(EMPTY)", ""),
            ("$(B)", "$(B)"),
            ("$$(A)", "$(A)"),
            ("$$$(A)", "$1"),
            ("$$$$(A)", "$$(A)"),
            ("$A", "$A"),
            ("$", "$"),
            ("$$", "$"),
            ("cost$", "cost$"),
            ("$(A", "$(A"),
            ("$((A))", "$((A))"),
            ("$()", "$()"),
            ("$(REF)", "$(A)"),
            ("é$(A)é", "é1é"),
            ("$é", "$é"),
        ];
        for (text, expect) in table {
            assert_eq!(expand(text, known), expect, "{text}");
        }
    }

    #[test]
    fn only_earlier_variables_count() {
        let given = [("A", "$(B)"), ("B", "x"), ("C", "$(B)$(A)"), ("B", "y$(B)")];
        let expect = [("A", "$(B)"), ("B", "yx"), ("C", "x$(B)")];
        let got = environment(given.into_iter());
        assert_eq!(got.iter().map(|(n, v)| (n.as_str(), v.as_str())).collect::<Vec<_>>(), expect);
    }
}
