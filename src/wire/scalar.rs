//! What a plain YAML scalar means: YAML 1.1 as the Kubernetes tools read it.
//!
//! The rules are those of sigs.k8s.io/yaml (`goyaml.v2/resolve.go`): `yes` and `on` are booleans, `0644` is octal,
//! `1_000` is a thousand, a date stays a text.

use super::tree::Data;
use serde_json::Number;

/// Why a scalar has no value in JSON.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ScalarError {
    /// `.nan` or `.inf`.
    NotFinite,
    /// An explicit tag that the text does not fit.
    TagMismatch,
    /// A tag beyond those of YAML's core.
    UnknownTag,
}

/// The value of an unquoted scalar without a tag.
pub(crate) fn plain(text: &str) -> Result<Data, ScalarError> {
    match text {
        "" | "~" | "null" | "Null" | "NULL" => return Ok(Data::Null),
        "y" | "Y" | "yes" | "Yes" | "YES" | "true" | "True" | "TRUE" | "on" | "On" | "ON" => {
            return Ok(Data::Bool(true));
        }
        "n" | "N" | "no" | "No" | "NO" | "false" | "False" | "FALSE" | "off" | "Off" | "OFF" => {
            return Ok(Data::Bool(false));
        }
        ".nan" | ".NaN" | ".NAN" | ".inf" | ".Inf" | ".INF" | "+.inf" | "+.Inf" | "+.INF" | "-.inf" | "-.Inf"
        | "-.INF" => return Err(ScalarError::NotFinite),
        _ => {}
    }
    let numeric = match text.as_bytes().first() {
        Some(b'.') => float(text)?,
        Some(b'+' | b'-' | b'0'..=b'9') => number(text)?,
        _ => None,
    };
    Ok(numeric.map_or_else(|| Data::Text(text.to_owned()), Data::Number))
}

/// The value of a scalar with an explicit tag of YAML's core (`tag:yaml.org,2002:<suffix>`).
pub(crate) fn tagged(suffix: &str, text: &str) -> Result<Data, ScalarError> {
    if suffix == "str" {
        return Ok(Data::Text(text.to_owned()));
    }
    let value = plain(text)?;
    match (suffix, &value) {
        ("null", Data::Null) | ("bool", Data::Bool(_)) | ("float", Data::Number(_)) => Ok(value),
        ("int", Data::Number(n)) if !n.is_f64() => Ok(value),
        ("null" | "bool" | "float" | "int", _) => Err(ScalarError::TagMismatch),
        _ => Err(ScalarError::UnknownTag),
    }
}

fn number(text: &str) -> Result<Option<Number>, ScalarError> {
    let digits = text.replace('_', "");
    if let Some(n) = integer(&digits) {
        return Ok(Some(n));
    }
    float(&digits)
}

/// An integer with Go's prefixes: `0x`, `0o`, `0b`, and a leading `0` for octal.
fn integer(text: &str) -> Option<Number> {
    let (negative, rest) = match text.as_bytes().first()? {
        b'-' => (true, &text[1..]),
        b'+' => (false, &text[1..]),
        _ => (false, text),
    };
    let (radix, digits) = match rest.as_bytes() {
        [b'0', b'x' | b'X', ..] => (16, &rest[2..]),
        [b'0', b'o' | b'O', ..] => (8, &rest[2..]),
        [b'0', b'b' | b'B', ..] => (2, &rest[2..]),
        [b'0', _, ..] => (8, &rest[1..]),
        _ => (10, rest),
    };
    if digits.is_empty() || !digits.bytes().all(|b| char::from(b).is_digit(radix)) {
        return None;
    }
    let magnitude = u64::from_str_radix(digits, radix).ok()?;
    if negative {
        return 0i64.checked_sub_unsigned(magnitude).map(Number::from);
    }
    Some(Number::from(magnitude))
}

fn float(text: &str) -> Result<Option<Number>, ScalarError> {
    if !is_float(text) {
        return Ok(None);
    }
    let Ok(value) = text.parse::<f64>() else { return Ok(None) };
    Number::from_f64(value).map(Some).ok_or(ScalarError::NotFinite)
}

/// `[-+]?(\.[0-9]+|[0-9]+(\.[0-9]*)?)([eE][-+]?[0-9]+)?`
fn is_float(text: &str) -> bool {
    let unsigned = text.strip_prefix(['-', '+']).unwrap_or(text);
    let (mantissa, exponent) = match unsigned.split_once(['e', 'E']) {
        Some((mantissa, exponent)) => (mantissa, Some(exponent)),
        None => (unsigned, None),
    };
    let digits = |s: &str| s.bytes().all(|b| b.is_ascii_digit());
    let mantissa_ok = match mantissa.split_once('.') {
        Some(("", fraction)) => !fraction.is_empty() && digits(fraction),
        Some((whole, fraction)) => digits(whole) && digits(fraction),
        None => !mantissa.is_empty() && digits(mantissa),
    };
    let exponent_ok = exponent.is_none_or(|e| {
        let e = e.strip_prefix(['-', '+']).unwrap_or(e);
        !e.is_empty() && digits(e)
    });
    mantissa_ok && exponent_ok
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn scalars_mean_what_the_kubernetes_tools_make_of_them() {
        let table = [
            ("", json!(null)),
            ("~", json!(null)),
            ("Null", json!(null)),
            ("nUll", json!("nUll")),
            ("yes", json!(true)),
            ("Y", json!(true)),
            ("on", json!(true)),
            ("off", json!(false)),
            ("No", json!(false)),
            ("yEs", json!("yEs")),
            ("0", json!(0)),
            ("-0", json!(0)),
            ("0644", json!(420)),
            ("0o644", json!(420)),
            ("0x1F", json!(31)),
            ("0b101", json!(5)),
            ("-0b101", json!(-5)),
            ("+7", json!(7)),
            ("1_000", json!(1000)),
            ("089", json!(89.0)),
            ("1e3", json!(1000.0)),
            (".5", json!(0.5)),
            ("5.", json!(5.0)),
            ("-1.5e-1", json!(-0.15)),
            ("18446744073709551615", json!(u64::MAX)),
            ("-9223372036854775808", json!(i64::MIN)),
            ("18446744073709551616", json!(18_446_744_073_709_551_616.0)),
            ("2001-01-01", json!("2001-01-01")),
            ("1.2.3", json!("1.2.3")),
            ("12:30", json!("12:30")),
            ("100m", json!("100m")),
            ("-", json!("-")),
            ("+", json!("+")),
            (".", json!(".")),
            ("0x", json!("0x")),
            ("1e", json!("1e")),
            ("٣", json!("٣")),
            ("infinity", json!("infinity")),
            ("nan", json!("nan")),
        ];
        for (text, expect) in table {
            let node = super::super::tree::Node { line: 1, data: plain(text).expect(text) };
            assert_eq!(node.to_value(), expect, "{text}");
        }
        for text in [".nan", "-.inf", "1e999"] {
            assert_eq!(plain(text), Err(ScalarError::NotFinite), "{text}");
        }
    }

    #[test]
    fn tags_overrule_or_are_refused() {
        assert_eq!(tagged("str", "yes"), Ok(Data::Text("yes".into())));
        assert_eq!(tagged("int", "0x10"), Ok(Data::Number(16.into())));
        assert_eq!(tagged("int", "1.5"), Err(ScalarError::TagMismatch));
        assert_eq!(tagged("bool", "maybe"), Err(ScalarError::TagMismatch));
        assert_eq!(tagged("binary", "aGk="), Err(ScalarError::UnknownTag));
    }
}
