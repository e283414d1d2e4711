//! Reads of single settings, shared by flags and files: a text to a value, or why not.

use crate::model::Quantity;
use std::net::IpAddr;

/// A duration in Go's syntax (`1m30s`, `1.5h`, `0`) in nanoseconds. Negative ones are refused.
///
/// # Errors
/// Says what is wrong with the text.
pub(super) fn duration(text: &str) -> Result<u64, String> {
    const SYNTAX: &str = "must be a duration such as 1m30s: numbers with the units h, m, s, ms, us, ns";
    let wrong = || SYNTAX.to_owned();
    let unsigned = text.strip_prefix('+').unwrap_or(text);
    if unsigned == "0" {
        return Ok(0);
    }
    if unsigned.starts_with('-') {
        return Err("must not be negative".to_owned());
    }
    let mut rest = unsigned;
    let mut total: u128 = 0;
    while !rest.is_empty() {
        let end = rest.find(|c: char| !c.is_ascii_digit() && c != '.').ok_or_else(wrong)?;
        let (number, tail) = rest.split_at(end);
        let unit_end = tail.find(|c: char| c.is_ascii_digit() || c == '.').unwrap_or(tail.len());
        let (unit, after) = tail.split_at(unit_end);
        let unit: u128 = match unit {
            "h" => 3_600_000_000_000,
            "m" => 60_000_000_000,
            "s" => 1_000_000_000,
            "ms" => 1_000_000,
            "us" | "µs" | "μs" => 1_000,
            "ns" => 1,
            _ => return Err(wrong()),
        };
        total = total.saturating_add(scaled(number, unit).ok_or_else(wrong)?);
        rest = after;
    }
    if unsigned.is_empty() {
        return Err(wrong());
    }
    u64::try_from(total).ok().filter(|n| *n <= i64::MAX as u64).ok_or_else(|| "is too long".to_owned())
}

/// A decimal number times a unit, rounded down.
fn scaled(number: &str, unit: u128) -> Option<u128> {
    let (whole, fraction) = number.split_once('.').unwrap_or((number, ""));
    if whole.is_empty() && fraction.is_empty() || fraction.contains('.') || whole.len() > 18 {
        return None;
    }
    let whole: u128 = if whole.is_empty() { 0 } else { whole.parse().ok()? };
    let mut value = whole.checked_mul(unit)?;
    let mut part = unit;
    for digit in fraction.bytes() {
        part /= 10;
        value += part * u128::from(digit - b'0');
    }
    Some(value)
}

/// An amount of bytes, at least one.
pub(super) fn bytes(text: &str) -> Result<u64, String> {
    match Quantity::parse(text) {
        Ok(amount) if amount.is_zero() => Err("must be greater than 0".to_owned()),
        Ok(amount) => Ok(amount.units()),
        Err(error) => Err(error.to_string()),
    }
}

/// An absolute path without steps up.
pub(super) fn absolute(text: &str) -> Result<String, String> {
    if !text.starts_with('/') {
        return Err("must be an absolute path".to_owned());
    }
    if text.split('/').any(|part| part == "..") {
        return Err("must not contain '..'".to_owned());
    }
    let trimmed = text.trim_end_matches('/');
    Ok(if trimmed.is_empty() { "/".to_owned() } else { trimmed.to_owned() })
}

/// A network: an address and the length of its prefix. Bits beyond the prefix must be zero.
pub(super) fn cidr(text: &str) -> Result<(IpAddr, u8), String> {
    let wrong = || "must be a network such as 10.88.0.0/16".to_owned();
    let (address, length) = text.split_once('/').ok_or_else(wrong)?;
    let address: IpAddr = address.parse().map_err(|_| wrong())?;
    let length: u8 = length.parse().map_err(|_| wrong())?;
    let IpAddr::V4(v4) = address else {
        return Err("must be an IPv4 network in this version of armlet".to_owned());
    };
    if !(8..=30).contains(&length) {
        return Err("must have a prefix of 8 to 30 bits".to_owned());
    }
    if v4.to_bits() & (u32::MAX >> length) != 0 {
        return Err(format!("has bits set beyond its prefix of {length}"));
    }
    Ok((address, length))
}

/// `true` or `false` as Go's flags take them.
pub(super) fn boolean(text: &str) -> Result<bool, String> {
    match text {
        "true" | "True" | "TRUE" | "t" | "T" | "1" => Ok(true),
        "false" | "False" | "FALSE" | "f" | "F" | "0" => Ok(false),
        _ => Err("must be true or false".to_owned()),
    }
}

/// An integer within bounds.
pub(super) fn integer(text: &str, min: i64, max: i64) -> Result<i64, String> {
    let value = text.parse::<i64>().map_err(|_| "must be an integer".to_owned())?;
    within(value, min, max)
}

/// A number within bounds.
pub(super) fn within(value: i64, min: i64, max: i64) -> Result<i64, String> {
    if (min..=max).contains(&value) { Ok(value) } else { Err(format!("must be between {min} and {max}, inclusive")) }
}

/// An address.
pub(super) fn address(text: &str) -> Result<IpAddr, String> {
    text.parse().map_err(|_| "must be a valid IP address, (e.g. 10.9.8.7 or 2001:db8::ffff)".to_owned())
}

/// A share such as `5%` in hundredths of a percent.
pub(super) fn percentage(text: &str) -> Option<Result<u32, String>> {
    let number = text.strip_suffix('%')?;
    let scaled = scaled(number, 100).filter(|v| *v <= 10_000).and_then(|v| u32::try_from(v).ok());
    Some(scaled.ok_or_else(|| "must be a percentage between 0% and 100%".to_owned()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_are_those_of_go() {
        let table = [
            ("0", 0),
            ("0s", 0),
            ("100ms", 100_000_000),
            ("1m30s", 90_000_000_000),
            ("1.5h", 5_400_000_000_000),
            (".5s", 500_000_000),
            ("1.s", 1_000_000_000),
            ("+5us", 5_000),
            ("5µs", 5_000),
            ("1h0m0s", 3_600_000_000_000),
        ];
        for (text, nanos) in table {
            assert_eq!(duration(text), Ok(nanos), "{text}");
        }
        for text in ["", "5", "s", "1x", "1 s", "-1s", "1.2.3s", "1s5", "999999999999h", "٣s", "."] {
            assert!(duration(text).is_err(), "{text}");
        }
    }

    #[test]
    fn networks_are_exact() {
        assert_eq!(cidr("10.88.0.0/16"), Ok((IpAddr::from([10, 88, 0, 0]), 16)));
        for text in ["", "10.0.0.0", "10.0.0.1/24", "10.0.0.0/33", "10.0.0.0/31", "0.0.0.0/0", "fd00::/64", "x/8"] {
            assert!(cidr(text).is_err(), "{text}");
        }
    }

    #[test]
    fn shares_and_paths() {
        assert_eq!(percentage("5%"), Some(Ok(500)));
        assert_eq!(percentage("0.25%"), Some(Ok(25)));
        assert_eq!(percentage("5"), None);
        assert!(matches!(percentage("101%"), Some(Err(_))));
        assert!(matches!(percentage("-1%"), Some(Err(_))));
        assert_eq!(absolute("/a/b//"), Ok("/a/b".to_owned()));
        assert_eq!(absolute("///"), Ok("/".to_owned()));
        assert!(absolute("a").is_err() && absolute("/a/../b").is_err());
        assert!(bytes("0").is_err() && bytes("x").is_err());
        assert_eq!(bytes("10Mi"), Ok(10 << 20));
    }
}
