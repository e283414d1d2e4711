//! The query part of a URL (`application/x-www-form-urlencoded`, as Go's `net/url` reads it, but strict).

/// Why a query cannot be read.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(super) enum QueryError {
    /// `%` is not followed by two hexadecimal digits.
    #[error("%-escape in {0:?} is not two hexadecimal digits")]
    Escape(String),
    /// The decoded bytes are not UTF-8.
    #[error("{0:?} is not UTF-8 once decoded")]
    NotUtf8(String),
}

/// Names and values in order; a name may come more than once.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(super) struct Query(Vec<(String, String)>);

impl Query {
    /// Reads what follows the `?`.
    ///
    /// # Errors
    /// [`QueryError`] names the first part that cannot be decoded.
    pub(super) fn parse(text: Option<&str>) -> Result<Self, QueryError> {
        let parts = text.unwrap_or_default().split('&').filter(|part| !part.is_empty());
        let pair = |part: &str| {
            let (name, value) = part.split_once('=').unwrap_or((part, ""));
            Ok((decode(name, true)?, decode(value, true)?))
        };
        parts.map(pair).collect::<Result<_, _>>().map(Self)
    }

    /// The first value of a name.
    pub(super) fn first(&self, name: &str) -> Option<&str> {
        self.0.iter().find(|(n, _)| n == name).map(|(_, v)| v.as_str())
    }

    /// All values of a name, in order.
    pub(super) fn all<'a>(&'a self, name: &'a str) -> impl Iterator<Item = &'a str> {
        self.0.iter().filter(move |(n, _)| n == name).map(|(_, v)| v.as_str())
    }

    /// A flag as Kubernetes reads one: absent, `false` (in any case) and `0` are false, everything else is true.
    pub(super) fn flag(&self, name: &str) -> bool {
        self.first(name).is_some_and(|v| v != "0" && !v.eq_ignore_ascii_case("false"))
    }
}

/// Decodes `%xx`, and `+` as a space where `plus` says so (queries, not paths).
///
/// # Errors
/// [`QueryError`] names the text.
pub(super) fn decode(text: &str, plus: bool) -> Result<String, QueryError> {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.bytes();
    while let Some(byte) = rest.next() {
        bytes.push(match byte {
            b'+' if plus => b' ',
            b'%' => {
                let mut digit =
                    || rest.next().and_then(|d| char::from(d).to_digit(16)).and_then(|d| u8::try_from(d).ok());
                match (digit(), digit()) {
                    (Some(high), Some(low)) => high << 4 | low,
                    _ => return Err(QueryError::Escape(text.to_owned())),
                }
            }
            other => other,
        });
    }
    String::from_utf8(bytes).map_err(|_| QueryError::NotUtf8(text.to_owned()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn queries_are_read_in_order() {
        let query = Query::parse(Some("command=sh&command=-c&command=echo+a%3Bb%20c&tty&x=1=2&&")).unwrap();
        assert_eq!(query.all("command").collect::<Vec<_>>(), ["sh", "-c", "echo a;b c"]);
        assert_eq!(query.first("tty"), Some(""));
        assert_eq!(query.first("x"), Some("1=2"));
        assert_eq!(query.first("y"), None);
        assert_eq!(Query::parse(None), Ok(Query::default()));
    }

    #[test]
    fn flags_are_read_as_kubernetes_reads_them() {
        for (text, value) in [
            ("", false),
            ("f=0", false),
            ("f=FALSE", false),
            ("f=1", true),
            ("f=true", true),
            ("f", true),
            ("f=x", true),
        ] {
            assert_eq!(Query::parse(Some(text)).unwrap().flag("f"), value, "{text}");
        }
    }

    #[test]
    fn bad_queries_are_refused() {
        for bad in ["a=%", "a=%1", "a=%zz", "%=1", "a=%+1"] {
            assert!(matches!(Query::parse(Some(bad)), Err(QueryError::Escape(_))), "{bad}");
        }
        for bad in ["a=%ff", "a=%c3%28", "%80=1"] {
            assert!(matches!(Query::parse(Some(bad)), Err(QueryError::NotUtf8(_))), "{bad}");
        }
    }

    proptest::proptest! {
        #[test]
        fn any_text_is_read_or_refused(text: String) {
            let _ = Query::parse(Some(&text));
        }

        #[test]
        fn escaped_text_comes_back(text: String) {
            let escaped: String = text.bytes().map(|b| format!("%{b:02x}")).collect();
            proptest::prop_assert_eq!(decode(&escaped, true), Ok(text));
        }
    }
}
