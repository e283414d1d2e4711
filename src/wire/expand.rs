//! `$(VAR)` in commands, arguments and environment values.
//!
//! The rules are those of `third_party/forked/golang/expansion`: `$(X)` is replaced when X is known and stays as it is
//! when it is not; `$$` is one `$`, so `$$(X)` is the text `$(X)`; what is not closed stays.

use std::collections::HashMap;

/// The longest text that a program can be given: the kernel's MAX_ARG_STRLEN without the NUL at its end.
pub(crate) const MAX_TEXT: usize = 128 * 1024 - 1;

/// What all texts of a pod may take together once they are expanded: a few short lines can double themselves forever.
pub(crate) const MAX_POD: usize = 8 << 20;

/// A text would be longer than [`MAX_TEXT`], or the pod's texts together longer than [`MAX_POD`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct TooLong;

/// Expands texts of one pod, and keeps count.
#[derive(Debug)]
pub(crate) struct Expander {
    left: usize,
}

impl Expander {
    /// For a pod.
    pub(crate) const fn new() -> Self {
        Self { left: MAX_POD }
    }

    /// Expands a text. `lookup` gives the value of a variable.
    pub(crate) fn expand<'v>(
        &mut self,
        text: &str,
        lookup: impl Fn(&str) -> Option<&'v str>,
    ) -> Result<String, TooLong> {
        let out = expand(text, lookup, MAX_TEXT.min(self.left)).ok_or(TooLong)?;
        self.left -= out.len();
        Ok(out)
    }
}

/// The variables of a container, in order, each expanded with those before it.
#[derive(Debug, Default)]
pub(crate) struct Environment {
    variables: Vec<(String, String)>,
    index: HashMap<String, usize>,
}

impl Environment {
    /// Adds a variable. A name given again replaces the value. One that is too long has no value.
    pub(crate) fn add(&mut self, name: &str, raw: &str, expander: &mut Expander) -> Result<(), TooLong> {
        let expanded = expander.expand(raw, |n| self.get(n));
        let failed = expanded.as_ref().err().copied();
        let value = expanded.unwrap_or_default();
        match self.index.get(name).and_then(|at| self.variables.get_mut(*at)) {
            Some((_, old)) => *old = value,
            None => {
                self.index.insert(name.to_owned(), self.variables.len());
                self.variables.push((name.to_owned(), value));
            }
        }
        failed.map_or(Ok(()), Err)
    }

    /// A variable's value.
    pub(crate) fn get(&self, name: &str) -> Option<&str> {
        let (_, value) = self.variables.get(*self.index.get(name)?)?;
        Some(value)
    }

    /// The variables in the order in which their names first came.
    pub(crate) fn into_variables(self) -> Vec<(String, String)> {
        self.variables
    }
}

/// The expanded text, unless it is longer than `max`.
fn expand<'v>(text: &str, lookup: impl Fn(&str) -> Option<&'v str>, max: usize) -> Option<String> {
    let mut out = String::new();
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
        if out.len() > max {
            return None;
        }
    }
    out.push_str(rest);
    (out.len() <= max).then_some(out)
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
            assert_eq!(expand(text, known, 100).as_deref(), Some(expect), "{text}");
        }
    }

    #[test]
    fn only_earlier_variables_count() {
        let given = [("A", "$(B)"), ("B", "x"), ("C", "$(B)$(A)"), ("B", "y$(B)")];
        let expect = [("A", "$(B)"), ("B", "yx"), ("C", "x$(B)")];
        let (mut got, mut expander) = (Environment::default(), Expander::new());
        for (name, raw) in given {
            assert_eq!(got.add(name, raw, &mut expander), Ok(()));
        }
        assert_eq!(got.get("B"), Some("yx"));
        assert_eq!(got.get("D"), None);
        let got = got.into_variables();
        assert_eq!(got.iter().map(|(n, v)| (n.as_str(), v.as_str())).collect::<Vec<_>>(), expect);
    }

    #[test]
    fn texts_do_not_grow_without_end() {
        let (mut env, mut expander) = (Environment::default(), Expander::new());
        assert_eq!(env.add("A", "x", &mut expander), Ok(()));
        let results: Vec<_> = (0..40).map(|_| env.add("A", "$(A)$(A)", &mut expander)).collect();
        assert_eq!(results.iter().position(Result::is_err), Some(16));
        assert_eq!(env.add("B", &"x".repeat(MAX_TEXT), &mut expander), Ok(()));
        let fits = (0..100).filter(|_| env.add("C", "$(B)", &mut expander).is_ok()).count();
        assert!((60..64).contains(&fits), "{fits}");
        assert!(expander.left < MAX_TEXT);
    }
}
