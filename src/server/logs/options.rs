//! What a client asks of a log: the query of `/containerLogs`, as `v1.PodLogOptions` defines it.

use super::line::Output;
use crate::model::WallTime;
use crate::server::query::Query;

/// Checked options.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(in crate::server) struct LogOptions {
    /// Go on until the container ends.
    pub(in crate::server) follow: bool,
    /// The attempt before.
    pub(in crate::server) previous: bool,
    /// Each line with the time at which it was written.
    pub(in crate::server) timestamps: bool,
    /// Only so many lines from the end.
    pub(in crate::server) tail: Option<u64>,
    /// At most so many bytes.
    pub(in crate::server) limit: Option<u64>,
    /// Only what was written then or later.
    pub(in crate::server) since: Option<Since>,
    /// Only one of the two outputs.
    pub(in crate::server) only: Option<Output>,
}

/// From when on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::server) enum Since {
    /// So many seconds before now.
    Seconds(u32),
    /// A moment.
    Time(WallTime),
}

impl Since {
    /// The moment that is meant, as seen from `now`.
    pub(in crate::server) fn moment(self, now: WallTime) -> WallTime {
        match self {
            Self::Seconds(secs) => WallTime(now.0.saturating_sub(i64::from(secs) * 1_000_000_000)),
            Self::Time(at) => at,
        }
    }
}

/// Why options are refused. The texts and codes are the kubelet's.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub(in crate::server) enum OptionsError {
    /// Status 400.
    #[error("{{\"message\": \"Unable to decode query.\"}}")]
    Undecodable,
    /// Status 422.
    #[error("{{\"message\": \"Invalid request.\"}}")]
    Invalid,
}

impl LogOptions {
    /// Reads and checks a query.
    ///
    /// # Errors
    /// `Undecodable` where a value is not of its type, `Invalid` where one is out of range or two exclude each other.
    pub(in crate::server) fn read(query: &Query) -> Result<Self, OptionsError> {
        // `tail` is the older spelling; its `all` stands for no bound.
        let tail = match query.first("tail") {
            Some("all") => None,
            Some(text) => integer(Some(text))?,
            None => integer(query.first("tailLines"))?,
        };
        let limit = integer(query.first("limitBytes"))?;
        let seconds = integer(query.first("sinceSeconds"))?;
        let time = match query.first("sinceTime") {
            None | Some("") => None,
            Some(text) => Some(WallTime::parse_rfc3339(text).ok_or(OptionsError::Undecodable)?),
        };
        Ok(Self {
            follow: query.flag("follow"),
            previous: query.flag("previous"),
            timestamps: query.flag("timestamps"),
            tail: tail.map(|n| at_least(n, 0)).transpose()?,
            limit: limit.map(|n| at_least(n, 1)).transpose()?,
            since: match (seconds, time) {
                (Some(_), Some(_)) => return Err(OptionsError::Invalid),
                (Some(secs), None) => {
                    let secs = at_least(secs, 1)?;
                    Some(Since::Seconds(u32::try_from(secs).unwrap_or(u32::MAX)))
                }
                (None, time) => time.map(Since::Time),
            },
            only: match query.first("stream") {
                None | Some("" | "All") => None,
                Some("Stdout") => Some(Output::Stdout),
                Some("Stderr") => Some(Output::Stderr),
                Some(_) => return Err(OptionsError::Invalid),
            },
        })
    }
}

fn integer(text: Option<&str>) -> Result<Option<i64>, OptionsError> {
    text.filter(|t| !t.is_empty()).map(|t| t.parse().map_err(|_| OptionsError::Undecodable)).transpose()
}

fn at_least(n: i64, least: u64) -> Result<u64, OptionsError> {
    u64::try_from(n).ok().filter(|n| *n >= least).ok_or(OptionsError::Invalid)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> Result<LogOptions, OptionsError> {
        LogOptions::read(&Query::parse(Some(text)).unwrap())
    }

    #[test]
    fn options_are_read() {
        assert_eq!(read(""), Ok(LogOptions::default()));
        assert_eq!(
            read("follow=true&previous=1&timestamps&tailLines=2&limitBytes=10&sinceSeconds=60&stream=Stderr"),
            Ok(LogOptions {
                follow: true,
                previous: true,
                timestamps: true,
                tail: Some(2),
                limit: Some(10),
                since: Some(Since::Seconds(60)),
                only: Some(Output::Stderr),
            })
        );
        assert_eq!(read("sinceTime=1970-01-01T00:00:01Z").unwrap().since, Some(Since::Time(WallTime(1_000_000_000))));
        assert_eq!(read("tailLines=0").unwrap().tail, Some(0));
        assert_eq!(read("tail=all&tailLines=3").unwrap().tail, None);
        assert_eq!(read("tail=5").unwrap().tail, Some(5));
        assert_eq!(read("tailLines=&stream=All&follow=false"), Ok(LogOptions::default()));
        assert_eq!(read("sinceSeconds=99999999999").unwrap().since, Some(Since::Seconds(u32::MAX)));
    }

    #[test]
    fn bad_options_are_refused_as_the_kubelet_refuses_them() {
        for text in [
            "tailLines=x",
            "limitBytes=1.5",
            "sinceSeconds=1s",
            "sinceTime=yesterday",
            "tailLines=99999999999999999999",
        ] {
            assert_eq!(read(text), Err(OptionsError::Undecodable), "{text}");
        }
        for text in [
            "tailLines=-1",
            "limitBytes=0",
            "sinceSeconds=0",
            "sinceSeconds=1&sinceTime=2026-01-01T00:00:00Z",
            "stream=Both",
        ] {
            assert_eq!(read(text), Err(OptionsError::Invalid), "{text}");
        }
        assert_eq!(OptionsError::Undecodable.to_string(), r#"{"message": "Unable to decode query."}"#);
        assert_eq!(OptionsError::Invalid.to_string(), r#"{"message": "Invalid request."}"#);
    }

    #[test]
    fn since_is_relative_to_now() {
        assert_eq!(Since::Seconds(2).moment(WallTime(5_000_000_000)), WallTime(3_000_000_000));
        assert_eq!(Since::Seconds(u32::MAX).moment(WallTime(i64::MIN)), WallTime(i64::MIN));
    }
}
