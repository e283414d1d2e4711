//! `armlet events`.

use super::args::{Events, Format};
use super::client::{Client, Lines};
use super::error::CliError;
use super::lookup;
use super::output::Out;
use super::table::{self, Tone};
use crate::model::api::Event;

/// Runs the command.
pub(super) async fn run(args: &Events, mut client: Client, out: &mut Out) -> Result<(), CliError> {
    let object = match &args.pod {
        Some(name) => Some(object(name, args.namespace.as_deref(), &mut client).await?),
        None => None,
    };
    let path = if args.follow { "/armlet/v1/events?follow=true" } else { "/armlet/v1/events" };
    let mut lines = Lines::new(client.stream(path).await?);
    let mut any = false;
    while let Some(event) = lines.next::<Event>().await? {
        if !concerns(&event, object.as_deref(), args.namespace.as_deref()) {
            continue;
        }
        match args.output {
            Some(Format::Json) => {
                let text = serde_json::to_string(&event).map_err(|source| CliError::Encode { source })?;
                out.line(&text)?;
            }
            Some(Format::Yaml) => {
                out.line("---")?;
                out.yaml(&event)?;
            }
            None => {
                if !any {
                    out.line(&Tone::Head.paint(&row("TIME", "TYPE", "REASON", "OBJECT", "MESSAGE"), out.color()))?;
                }
                out.line(&line(&event, out.color()))?;
            }
        }
        any = true;
    }
    if !any {
        out.remark("No events.");
    }
    Ok(())
}

/// What events of the pod carry. A pod that is gone is found by the name as it was typed: its events outlive it.
async fn object(name: &str, namespace: Option<&str>, client: &mut Client) -> Result<String, CliError> {
    let pods = client.pods().await?.value.items;
    match lookup::pod(&pods, name, namespace) {
        Ok(pod) => Ok(pod.full_name()),
        Err(lookup::LookupError::NoPod { .. }) if name.contains('/') => Ok(name.to_owned()),
        Err(error) => Err(error.into()),
    }
}

fn concerns(event: &Event, object: Option<&str>, namespace: Option<&str>) -> bool {
    match (object, namespace) {
        (Some(object), _) => event.object == object,
        (None, Some(ns)) => event.object.split_once('/').is_some_and(|(of, _)| of == ns),
        (None, None) => true,
    }
}

/// Events come one by one, so that the columns have fixed widths.
fn row(time: &str, kind: &str, reason: &str, object: &str, message: &str) -> String {
    format!("{time:<20}   {kind:<7}   {reason:<18}   {object:<24}   {message}")
}

fn line(event: &Event, color: bool) -> String {
    let plain = [&event.time, &event.kind, &event.reason, &event.object, &event.message].map(|t| table::printable(t));
    let [time, kind, reason, object, message] = plain.each_ref().map(String::as_str);
    let tone = if event.kind == "Warning" { Tone::Warn } else { Tone::Plain };
    tone.paint(&row(time, kind, reason, object, message), color)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn event(kind: &str, object: &str) -> Event {
        Event {
            time: "2026-01-01T00:00:00Z".to_owned(),
            kind: kind.to_owned(),
            reason: "Started".to_owned(),
            object: object.to_owned(),
            message: "Started container\nmain".to_owned(),
        }
    }

    #[test]
    fn an_event_is_one_line() {
        assert_eq!(
            line(&event("Normal", "shop/web-edge1"), true),
            "2026-01-01T00:00:00Z   Normal    Started              shop/web-edge1             Started container main"
        );
        assert!(line(&event("Warning", "edge1"), true).starts_with("\x1b[33m"));
    }

    #[test]
    fn events_are_chosen_by_pod_and_namespace() {
        let event = event("Normal", "shop/web-edge1");
        assert!(concerns(&event, None, None));
        assert!(concerns(&event, Some("shop/web-edge1"), Some("default")));
        assert!(!concerns(&event, Some("shop/web"), None));
        assert!(concerns(&event, None, Some("shop")));
        assert!(!concerns(&event, None, Some("sho")));
    }
}
