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

    /// RFC 3339 with nine digits of fraction, in UTC: what CRI log lines carry.
    #[must_use]
    pub fn rfc3339_nanos(self) -> String {
        let (y, mo, d, h, mi, s, n) = self.civil();
        format!("{y:04}-{mo:02}-{d:02}T{h:02}:{mi:02}:{s:02}.{n:09}Z")
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
    fn boot_time_never_wraps() {
        assert_eq!(BootTime(5).since(BootTime(9)), Millis(0));
        assert_eq!(BootTime(u64::MAX) + Millis(1), BootTime(u64::MAX));
    }
}
