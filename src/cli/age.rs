//! Lengths of time as people write and read them. Pure.

use crate::model::WallTime;

/// Reads `10s`, `5m`, `1h30m`, `2d`, or plain seconds, into seconds: at least one.
pub(super) fn parse(text: &str) -> Result<u64, String> {
    let bad = || format!("{text:?} is not a length of time: write 10s, 5m, 1h30m or 2d");
    let (mut total, mut rest) = (0_u64, text);
    while !rest.is_empty() {
        let digits = rest.find(|c: char| !c.is_ascii_digit()).unwrap_or(rest.len());
        let (number, after) = rest.split_at(digits);
        let number: u64 = number.parse().map_err(|_| bad())?;
        let unit = match after.chars().next() {
            None | Some('s') => 1,
            Some('m') => 60,
            Some('h') => 3600,
            Some('d') => 86_400,
            Some(_) => return Err(bad()),
        };
        total = number.checked_mul(unit).and_then(|secs| total.checked_add(secs)).ok_or_else(bad)?;
        rest = after.get(1..).unwrap_or_default();
    }
    if total == 0 { Err(bad()) } else { Ok(total) }
}

/// Writes a length of time the way `kubectl get` writes ages (`k8s.io/apimachinery/pkg/util/duration`): two units
/// while it is short, one when it is long.
pub(super) fn short(secs: u64) -> String {
    let (minutes, hours, days) = (secs / 60, secs / 3600, secs / 86_400);
    let two = |big: u64, unit: char, small: u64, small_unit: char| {
        if small == 0 { format!("{big}{unit}") } else { format!("{big}{unit}{small}{small_unit}") }
    };
    match secs {
        0..120 => format!("{secs}s"),
        120..600 => two(minutes, 'm', secs % 60, 's'),
        600..10_800 => format!("{minutes}m"),
        10_800..28_800 => two(hours, 'h', minutes % 60, 'm'),
        28_800..172_800 => format!("{hours}h"),
        172_800..691_200 => two(days, 'd', hours % 24, 'h'),
        691_200..63_072_000 => format!("{days}d"),
        63_072_000..252_288_000 => two(days / 365, 'y', days % 365, 'd'),
        _ => format!("{}y", days / 365),
    }
}

/// How long ago `then` was, as text; unknown times are `<unknown>`, later ones count as now.
pub(super) fn since(then: Option<&str>, now: WallTime) -> String {
    match then.and_then(WallTime::parse_rfc3339) {
        Some(then) => short(u64::try_from(now.0.saturating_sub(then.0)).unwrap_or(0) / 1_000_000_000),
        None => "<unknown>".to_owned(),
    }
}

/// Reads the time of an answer: `Sun, 29 Nov 2026 18:40:09 GMT`. Ages are counted on the clock that wrote the times.
pub(super) fn http_date(text: &str) -> Option<WallTime> {
    let mut parts = text.split(' ').skip(1);
    let (day, month, year, clock) = (parts.next()?, parts.next()?, parts.next()?, parts.next()?);
    let months = ["Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"];
    let month = months.iter().position(|name| *name == month)? + 1;
    WallTime::parse_rfc3339(&format!("{year}-{month:02}-{day}T{clock}Z"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lengths_are_read() {
        for (text, secs) in [("10s", 10), ("90", 90), ("5m", 300), ("1h30m", 5400), ("2d", 172_800), ("1m30", 90)] {
            assert_eq!(parse(text), Ok(secs), "{text}");
        }
        for bad in
            ["", "0s", "s", "1x", "-1s", "1.5h", "99999999999999999999s", "9999999999999999999d", "1\u{e9}", " 1s"]
        {
            assert!(parse(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn ages_are_written_as_kubectl_writes_them() {
        for (secs, text) in [
            (0, "0s"),
            (119, "119s"),
            (120, "2m"),
            (599, "9m59s"),
            (600, "10m"),
            (10_799, "179m"),
            (10_860, "3h1m"),
            (28_800, "8h"),
            (172_799, "47h"),
            (176_400, "2d1h"),
            (691_200, "8d"),
            (63_072_000, "2y"),
            (63_158_400, "2y1d"),
            (252_288_000, "8y"),
        ] {
            assert_eq!(short(secs), text, "{secs}");
        }
    }

    #[test]
    fn ages_are_counted_from_the_answers_time() {
        let now = http_date("Sun, 29 Nov 2026 18:40:09 GMT").unwrap();
        assert_eq!(now.rfc3339(), "2026-11-29T18:40:09Z");
        assert_eq!(since(Some("2026-11-29T18:39:59Z"), now), "10s");
        assert_eq!(since(Some("2026-11-29T18:41:00Z"), now), "0s");
        assert_eq!(since(None, now), "<unknown>");
        assert_eq!(since(Some("x"), now), "<unknown>");
        for bad in ["", "Sun", "Sun, 29 Foo 2026 18:40:09 GMT", "Sunday, 29-Nov-26 18:40:09 GMT"] {
            assert_eq!(http_date(bad), None, "{bad}");
        }
    }
}
