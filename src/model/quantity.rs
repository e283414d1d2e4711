//! Kubernetes quantities: `100m`, `1.5Gi`, `2e3`.
//!
//! The grammar is that of `staging/src/k8s.io/apimachinery/pkg/api/resource/quantity.go`.

use serde::{Deserialize, Serialize};

/// An amount in thousandths of its unit, so that `100m` is exact. Negative amounts are refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Quantity {
    milli: u128,
}

/// Why a text is not a quantity.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum QuantityError {
    /// Not a number with a known suffix.
    #[error(
        "not a quantity: expected a number with an optional suffix n, u, m, k, M, G, T, P, E, Ki, Mi, Gi, Ti, Pi, Ei or an exponent"
    )]
    Syntax,
    /// Below zero.
    #[error("must be greater than or equal to 0")]
    Negative,
    /// More than 2^63-1 units.
    #[error("too large")]
    TooLarge,
}

impl Quantity {
    /// An amount given in thousandths.
    #[must_use]
    pub const fn from_milli(milli: u64) -> Self {
        Self { milli: milli as u128 }
    }

    /// An amount given in whole units.
    #[must_use]
    pub const fn from_units(units: u64) -> Self {
        Self { milli: units as u128 * 1000 }
    }

    /// Reads a quantity. Amounts finer than a thousandth are rounded up, as upstream does for its milli value.
    ///
    /// # Errors
    /// [`QuantityError`] tells which rule the text breaks.
    pub fn parse(text: &str) -> Result<Self, QuantityError> {
        let (negative, rest) = match text.as_bytes().first() {
            Some(b'-') => (true, &text[1..]),
            Some(b'+') => (false, &text[1..]),
            _ => (false, text),
        };
        let end = rest.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(rest.len());
        let (number, suffix) = rest.split_at(end);
        let (whole, fraction) = number.split_once('.').unwrap_or((number, ""));
        if (whole.is_empty() && fraction.is_empty()) || fraction.contains('.') {
            return Err(QuantityError::Syntax);
        }
        let digits: String = format!("{whole}{fraction}");
        let digits = digits.trim_start_matches('0');
        if digits.len() > 30 {
            return Err(QuantityError::TooLarge);
        }
        let mantissa: u128 = if digits.is_empty() { 0 } else { digits.parse().map_err(|_| QuantityError::Syntax)? };
        let (binary, decimal) = scale(suffix)?;
        let places = i32::try_from(fraction.len()).map_err(|_| QuantityError::TooLarge)?;
        let exponent = decimal.saturating_sub(places).saturating_add(3);
        let scaled = mantissa.checked_shl(binary).filter(|v| v >> binary == mantissa).ok_or(QuantityError::TooLarge)?;
        let milli = shift10(scaled, exponent)?;
        if milli > (i64::MAX as u128) * 1000 {
            return Err(QuantityError::TooLarge);
        }
        if negative && milli > 0 {
            return Err(QuantityError::Negative);
        }
        Ok(Self { milli })
    }

    /// Whole units, rounded up.
    #[must_use]
    pub fn units(self) -> u64 {
        u64::try_from(self.milli.div_ceil(1000)).unwrap_or(u64::MAX)
    }

    /// Thousandths, at most `u64::MAX`.
    #[must_use]
    pub fn milli(self) -> u64 {
        u64::try_from(self.milli).unwrap_or(u64::MAX)
    }

    /// Whether the amount is nothing.
    #[must_use]
    pub const fn is_zero(self) -> bool {
        self.milli == 0
    }
}

/// The power of two and the power of ten that a suffix stands for.
fn scale(suffix: &str) -> Result<(u32, i32), QuantityError> {
    Ok(match suffix {
        "" => (0, 0),
        "n" => (0, -9),
        "u" => (0, -6),
        "m" => (0, -3),
        "k" => (0, 3),
        "M" => (0, 6),
        "G" => (0, 9),
        "T" => (0, 12),
        "P" => (0, 15),
        "E" => (0, 18),
        "Ki" => (10, 0),
        "Mi" => (20, 0),
        "Gi" => (30, 0),
        "Ti" => (40, 0),
        "Pi" => (50, 0),
        "Ei" => (60, 0),
        _ => {
            let digits = suffix.strip_prefix(['e', 'E']).ok_or(QuantityError::Syntax)?;
            let exponent: i32 = digits.parse().map_err(|_| QuantityError::Syntax)?;
            if exponent.unsigned_abs() > 40 {
                return Err(QuantityError::TooLarge);
            }
            (0, exponent)
        }
    })
}

fn shift10(value: u128, exponent: i32) -> Result<u128, QuantityError> {
    let factor = 10u128.checked_pow(exponent.unsigned_abs());
    if exponent >= 0 {
        if value == 0 {
            return Ok(0);
        }
        return factor.and_then(|f| value.checked_mul(f)).ok_or(QuantityError::TooLarge);
    }
    // A divisor beyond u128 leaves only a trace of the amount, which rounds up to one thousandth.
    Ok(factor.map_or(u128::from(value > 0), |f| value.div_ceil(f)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantities_are_read_exactly() {
        let table = [
            ("0", 0),
            ("1", 1000),
            ("100m", 100),
            ("0.5", 500),
            (".5", 500),
            ("1.", 1000),
            ("+1", 1000),
            ("-0", 0),
            ("1k", 1_000_000),
            ("1Ki", 1_024_000),
            ("1.5Gi", 1_610_612_736_000),
            ("2e3", 2_000_000),
            ("2E3", 2_000_000),
            ("1e-3", 1),
            ("1n", 1),
            ("1u", 1),
            ("0001", 1000),
            ("1e-40", 1),
        ];
        for (text, milli) in table {
            assert_eq!(Quantity::parse(text).map(Quantity::milli), Ok(milli), "{text}");
        }
        assert_eq!(Quantity::parse("1500m").map(Quantity::units), Ok(2));
    }

    #[test]
    fn what_is_no_quantity_is_refused() {
        for text in ["", "-", "m", "1x", "1KI", "1.2.3", "1 Gi", "1e", "e3", "٣", "1e3k", "0x10", "."] {
            assert_eq!(Quantity::parse(text), Err(QuantityError::Syntax), "{text}");
        }
        assert_eq!(Quantity::parse("-1"), Err(QuantityError::Negative));
        for text in ["9223372036854775808", "16Ei", "1e19", "1e99", "1e-2147483648", "1e2147483647", &"9".repeat(40)] {
            assert_eq!(Quantity::parse(text), Err(QuantityError::TooLarge), "{text}");
        }
    }
}
