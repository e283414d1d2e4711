//! armlet's own log, and how much is in it: `/armlet/v1/log` and `/armlet/v1/log-level`.

use super::command::{LogMark, LogPart};
use super::logs::LogOptions;
use super::query::Query;
use super::reply::{self, Body};
use super::{Command, Context, Refusal};
use crate::model::WallTime;
use crate::model::api::{LogLevelRequest, LogLevels};
use crate::model::log::{LogLevel, merge, time_of};
use futures_util::stream;
use http_body_util::{BodyExt, Limited};
use hyper::body::{Bytes, Incoming};
use hyper::{Method, Request, Response, StatusCode};
use std::io;
use tokio::sync::{mpsc, oneshot};

/// The largest body of a request.
const MAX_REQUEST: usize = 4096;

/// `GET /armlet/v1/log[?follow&tailLines&sinceSeconds&sinceTime]`: lines in the order of their times.
pub(super) async fn answer(query: Option<&str>, context: &Context) -> Response<Body> {
    let options = Query::parse(query).map_err(|e| e.to_string()).and_then(|query| read(&query));
    let options = match options {
        Ok(options) => options,
        Err(problem) => return reply::text(StatusCode::BAD_REQUEST, problem),
    };
    let since = options.since.map(|since| since.moment((context.clock)().wall));
    let mut source = Source { commands: context.commands.clone(), mark: LogMark::default(), follow: options.follow };
    let Some(part) = source.read(false).await else {
        return reply::text(StatusCode::INTERNAL_SERVER_ERROR, Refusal::gone().to_string());
    };
    let first = chosen(&part, since, options.tail);
    reply::raw(stream::try_unfold((Some(first), source), |(first, mut source)| async move {
        let chunk = match first {
            Some(first) => Some(first),
            None if source.follow => source.read(true).await.map(|part| chosen(&part, None, None)),
            None => None,
        };
        Ok::<_, io::Error>(chunk.map(|chunk| (chunk, (None, source))))
    }))
}

fn read(query: &Query) -> Result<LogOptions, String> {
    let options = LogOptions::read(query).map_err(|e| e.to_string())?;
    if options.previous || options.timestamps || options.limit.is_some() || options.only.is_some() {
        return Err("only follow, tailLines, sinceSeconds and sinceTime can be asked of this log".to_owned());
    }
    Ok(options)
}

struct Source {
    commands: mpsc::Sender<Command>,
    mark: LogMark,
    follow: bool,
}

impl Source {
    /// What has not been read yet; none when the agent is stopping.
    async fn read(&mut self, wait: bool) -> Option<LogPart> {
        let (reply, answer) = oneshot::channel();
        self.commands.send(Command::Log { after: self.mark, wait, reply }).await.ok()?;
        let part = answer.await.ok()?;
        self.mark = part.mark;
        Some(part)
    }
}

/// The lines that are to be shown.
fn chosen(part: &LogPart, since: Option<WallTime>, tail: Option<u64>) -> Bytes {
    let since = since.map(WallTime::rfc3339_nanos).unwrap_or_default();
    let mut lines = merge(&part.parts);
    lines.retain(|line| time_of(line) >= since.as_str());
    let tail = tail.and_then(|tail| usize::try_from(tail).ok()).unwrap_or(usize::MAX);
    let from = lines.len().saturating_sub(tail);
    lines.into_iter().skip(from).flat_map(|line| line.bytes().chain([b'\n'])).collect()
}

/// `GET` and `PUT /armlet/v1/log-level`.
pub(super) async fn level(request: Request<Incoming>, context: &Context) -> Response<Body> {
    let set = match *request.method() {
        Method::PUT => match wanted(request.into_body()).await {
            Ok(level) => Some(level),
            Err(problem) => return reply::text(StatusCode::BAD_REQUEST, problem),
        },
        _ => None,
    };
    let (reply, answer) = oneshot::channel();
    let asked = context.commands.send(Command::LogLevel { set, reply }).await.is_ok();
    let levels: Option<LogLevels> = if asked { answer.await.ok() } else { None };
    match levels {
        Some(levels) => reply::json(&levels),
        None => reply::text(StatusCode::INTERNAL_SERVER_ERROR, Refusal::gone().to_string()),
    }
}

async fn wanted(body: Incoming) -> Result<LogLevel, String> {
    let bytes = Limited::new(body, MAX_REQUEST).collect().await.map_err(|e| format!("reading the request: {e}"))?;
    let request: LogLevelRequest =
        serde_json::from_slice(&bytes.to_bytes()).map_err(|e| format!("the request is not {{\"level\": ...}}: {e}"))?;
    let wrong = || format!("level {:?} is none of error, warn, info, debug, trace, 0 to 10", request.level);
    LogLevel::parse(&request.level).ok_or_else(wrong)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_chosen_by_age_and_number() {
        let line = |second: u32, role: &str| format!("2026-01-01T00:00:{second:02}.000000000Z I {role}: {second}\n");
        let part = LogPart {
            parts: vec![line(1, "agent") + &line(4, "agent"), line(2, "supervisor") + &line(3, "supervisor")],
            mark: LogMark::default(),
        };
        let shown = |since: Option<&str>, tail| {
            let since = since.map(|since| WallTime::parse_rfc3339(since).unwrap());
            let text = String::from_utf8(chosen(&part, since, tail).to_vec()).unwrap();
            text.lines().map(|line| line.rsplit_once(": ").unwrap().1.to_owned()).collect::<String>()
        };
        assert_eq!(shown(None, None), "1234");
        assert_eq!(shown(None, Some(2)), "34");
        assert_eq!(shown(Some("2026-01-01T00:00:02Z"), None), "234");
        assert_eq!(shown(Some("2026-01-01T00:00:02Z"), Some(1)), "4");
        assert_eq!(shown(Some("2027-01-01T00:00:00Z"), Some(1)), "");
        assert_eq!(shown(None, Some(0)), "");
    }
}
