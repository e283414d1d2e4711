//! Time as values. Durations inside one boot run on the boot clock; wall time is for people.

use serde::{Deserialize, Serialize};
use std::ops::{Add, Sub};

/// A length of time in milliseconds.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Millis(pub u64);

impl Millis {
    /// A length given in whole seconds.
    #[must_use]
    pub const fn from_secs(secs: u64) -> Self {
        Self(secs.saturating_mul(1000))
    }

    /// Whole seconds, rounded down.
    #[must_use]
    pub const fn as_secs(self) -> u64 {
        self.0 / 1000
    }

    /// As the standard library's duration.
    #[must_use]
    pub const fn to_std(self) -> std::time::Duration {
        std::time::Duration::from_millis(self.0)
    }
}

/// A moment on CLOCK_BOOTTIME, in milliseconds since the kernel started. Meaningless in another boot.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Serialize, Deserialize)]
#[serde(transparent)]
pub struct BootTime(pub u64);

impl BootTime {
    /// The time from `earlier` to `self`; zero if `earlier` is later.
    #[must_use]
    pub const fn since(self, earlier: Self) -> Millis {
        Millis(self.0.saturating_sub(earlier.0))
    }
}

impl Add<Millis> for BootTime {
    type Output = Self;
    fn add(self, d: Millis) -> Self {
        Self(self.0.saturating_add(d.0))
    }
}

impl Sub<Millis> for BootTime {
    type Output = Self;
    fn sub(self, d: Millis) -> Self {
        Self(self.0.saturating_sub(d.0))
    }
}

/// A moment on the wall clock: nanoseconds since 1970-01-01T00:00:00Z. Shown to people, never used to measure.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Serialize, Deserialize)]
#[serde(transparent)]
pub struct WallTime(pub i64);

impl WallTime {
    /// Calendar fields in UTC: year, month, day, hour, minute, second, nanosecond.
    ///
    /// Days to calendar by the civil-from-days method (proleptic Gregorian).
    #[must_use]
    pub const fn civil(self) -> (i64, u8, u8, u8, u8, u8, u32) {
        let secs = self.0.div_euclid(1_000_000_000);
        let nanos = self.0.rem_euclid(1_000_000_000);
        let days = secs.div_euclid(86_400);
        let of_day = secs.rem_euclid(86_400);
        let z = days + 719_468;
        let era = z.div_euclid(146_097);
        let doe = z.rem_euclid(146_097);
        let yoe = (doe - doe / 1460 + doe / 36_524 - doe / 146_096) / 365;
        let doy = doe - (365 * yoe + yoe / 4 - yoe / 100);
        let mp = (5 * doy + 2) / 153;
        let day = doy - (153 * mp + 2) / 5 + 1;
        let month = if mp < 10 { mp + 3 } else { mp - 9 };
        let year = yoe + era * 400 + if month <= 2 { 1 } else { 0 };
        #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "each is bounded by its unit")]
        (
            year,
            month as u8,
            day as u8,
            (of_day / 3600) as u8,
            (of_day / 60 % 60) as u8,
            (of_day % 60) as u8,
            nanos as u32,
        )
    }

    /// RFC 3339 with whole seconds, in UTC: what Kubernetes objects carry.
    #[must_use]
    pub fn rfc3339(self) -> String {
        let (y, mo, d, h, mi, s, _) = self.civil();
        format!("{y:04}-{mo:02}-{d:02}T{h:02}:{mi:02}:{s:02}Z")
    }

    /// Reads RFC 3339 with any zone and up to nine digits of fraction (more are cut); none where the text is something
    /// else or lies outside what 64 bits of nanoseconds hold (the years 1677 to 2262).
    #[must_use]
    pub fn parse_rfc3339(text: &str) -> Option<Self> {
        let bytes = text.as_bytes();
        let number = |from: usize, len: usize| -> Option<i64> {
            let digits = bytes.get(from..from + len)?;
            digits.iter().try_fold(0, |n, d| d.is_ascii_digit().then(|| n * 10 + i64::from(d - b'0')))
        };
        let marks = [(4, b"-"), (7, b"-"), (10, b"T"), (13, b":"), (16, b":")];
        if !marks.iter().all(|(at, mark)| bytes.get(*at).is_some_and(|b| b.eq_ignore_ascii_case(&mark[0]))) {
            return None;
        }
        let (year, month, day) = (number(0, 4)?, number(5, 2)?, number(8, 2)?);
        let (hour, minute, second) = (number(11, 2)?, number(14, 2)?, number(17, 2)?);
        if !(1..=12).contains(&month)
            || day < 1
            || day > days_in(year, month)
            || hour > 23
            || minute > 59
            || second > 59
        {
            return None;
        }
        let (nanos, rest) = fraction(&bytes[19..])?;
        let secs = days_from_civil(year, month, day) * 86_400 + hour * 3600 + minute * 60 + second - zone(rest)?;
        i64::try_from(i128::from(secs) * 1_000_000_000 + i128::from(nanos)).ok().map(Self)
    }

    /// RFC 3339 with nine digits of fraction, in UTC: what CRI log lines carry.
    #[must_use]
    pub fn rfc3339_nanos(self) -> String {
        let (y, mo, d, h, mi, s, n) = self.civil();
        format!("{y:04}-{mo:02}-{d:02}T{h:02}:{mi:02}:{s:02}.{n:09}Z")
    }
}

const fn days_in(year: i64, month: i64) -> i64 {
    match month {
        2 if year % 4 == 0 && (year % 100 != 0 || year % 400 == 0) => 29,
        2 => 28,
        4 | 6 | 9 | 11 => 30,
        _ => 31,
    }
}

/// Days since 1970-01-01, the inverse of the calendar in [`WallTime::civil`].
const fn days_from_civil(year: i64, month: i64, day: i64) -> i64 {
    let y = if month <= 2 { year - 1 } else { year };
    let era = y.div_euclid(400);
    let yoe = y.rem_euclid(400);
    let mp = (month + 9) % 12;
    let doy = (153 * mp + 2) / 5 + day - 1;
    era * 146_097 + yoe * 365 + yoe / 4 - yoe / 100 + doy - 719_468
}

/// Nanoseconds of `.123...`, and what follows it.
fn fraction(text: &[u8]) -> Option<(i64, &[u8])> {
    let Some(digits) = text.strip_prefix(b".") else { return Some((0, text)) };
    let len = digits.iter().take_while(|b| b.is_ascii_digit()).count();
    let padded = digits[..len].iter().copied().chain(std::iter::repeat(b'0')).take(9);
    (len > 0).then(|| (padded.fold(0, |n, d| n * 10 + i64::from(d - b'0')), &digits[len..]))
}

/// Seconds east of UTC of `Z` or `+hh:mm`.
fn zone(text: &[u8]) -> Option<i64> {
    match text {
        b"Z" | b"z" => Some(0),
        [sign @ (b'+' | b'-'), h1, h2, b':', m1, m2] if [h1, h2, m1, m2].iter().all(|d| d.is_ascii_digit()) => {
            let two = |a: u8, b: u8| i64::from(a - b'0') * 10 + i64::from(b - b'0');
            let (hours, minutes) = (two(*h1, *h2), two(*m1, *m2));
            let secs = hours * 3600 + minutes * 60;
            (hours < 24 && minutes < 60).then_some(if *sign == b'+' { secs } else { -secs })
        }
        _ => None,
    }
}

/// One reading of both clocks.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Now {
    /// For every duration and deadline.
    pub boot: BootTime,
    /// For what people read.
    pub wall: WallTime,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn wall_time_is_written_as_kubernetes_writes_it() {
        assert_eq!(WallTime(0).rfc3339(), "1970-01-01T00:00:00Z");
        assert_eq!(WallTime(951_827_696_000_000_000).rfc3339(), "2000-02-29T12:34:56Z");
        assert_eq!(WallTime(-1).rfc3339_nanos(), "1969-12-31T23:59:59.999999999Z");
        assert_eq!(WallTime(1_798_761_599_000_000_001).rfc3339_nanos(), "2026-12-31T23:59:59.000000001Z");
    }

    #[test]
    fn wall_time_is_read_back() {
        for (text, nanos) in [
            ("1970-01-01T00:00:00Z", 0),
            ("2000-02-29T12:34:56Z", 951_827_696_000_000_000),
            ("1969-12-31T23:59:59.999999999Z", -1),
            ("1970-01-01T02:00:00.5+02:00", 500_000_000),
            ("1969-12-31T22:30:00.0000000019-01:30", 1),
        ] {
            assert_eq!(WallTime::parse_rfc3339(text), Some(WallTime(nanos)), "{text}");
        }
        for bad in [
            "",
            "2026",
            "2026-13-01T00:00:00Z",
            "2026-02-29T00:00:00Z",
            "2026-01-01T24:00:00Z",
            "2026-01-01T00:00:00",
            "2026-01-01T00:00:00.Z",
            "2026-01-01T00:00:00+0200",
            "2026-01-01T00:00:00+24:00",
            "2026-01-01 00:00:00Z",
            "9999-01-01T00:00:00Z",
            "2026-01-01T00:00:0\u{e9}Z",
        ] {
            assert_eq!(WallTime::parse_rfc3339(bad), None, "{bad}");
        }
    }

    proptest::proptest! {
        #[test]
        fn what_is_written_is_read_back(nanos: i64) {
            let at = WallTime(nanos);
            proptest::prop_assert_eq!(WallTime::parse_rfc3339(&at.rfc3339_nanos()), Some(at));
        }
    }

    #[test]
    fn boot_time_never_wraps() {
        assert_eq!(BootTime(5).since(BootTime(9)), Millis(0));
        assert_eq!(BootTime(u64::MAX) + Millis(1), BootTime(u64::MAX));
    }
}
