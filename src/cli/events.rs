//! `armlet events`.

use super::args::{Events, Format};
use super::client::{Client, Lines};
use super::error::CliError;
use super::lookup;
use super::output::Out;
use super::table::{self, Cell, Table, Tone};
use crate::model::api::Event;

/// Runs the command.
pub(super) async fn run(args: &Events, mut client: Client, out: &mut Out) -> Result<(), CliError> {
    let object = match &args.pod {
        Some(name) => Some(object(name, args.namespace.as_deref(), &mut client).await?),
        None => None,
    };
    let path = if args.follow { "/armlet/v1/events?follow=true" } else { "/armlet/v1/events" };
    let mut lines = Lines::new(client.stream(path).await?);
    let mut columns = Columns::default();
    let mut table = Table::new(HEADINGS);
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
            None if args.follow => {
                if !any {
                    out.line(&Tone::Head.paint(&columns.line(HEADINGS), out.color()))?;
                }
                out.line(&tone(&event).paint(&columns.line(texts(&event)), out.color()))?;
            }
            None => table.row(texts(&event).map(|text| Cell::toned(text, tone(&event)))),
        }
        any = true;
    }
    if !any {
        out.remark("No events.");
    } else if args.output.is_none() && !args.follow {
        out.table(&table)?;
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

const HEADINGS: [&str; 5] = ["TIME", "TYPE", "REASON", "OBJECT", "MESSAGE"];

fn texts(event: &Event) -> [&str; 5] {
    [&event.time, &event.kind, &event.reason, &event.object, &event.message].map(String::as_str)
}

fn tone(event: &Event) -> Tone {
    if event.kind == "Warning" { Tone::Warn } else { Tone::Plain }
}

/// Columns of a table whose rows come one by one: as wide as most need, and wider from the first row on that needs it.
struct Columns([usize; 4]);

impl Default for Columns {
    fn default() -> Self {
        Self([20, 7, 18, 24])
    }
}

impl Columns {
    fn line(&mut self, texts: [&str; 5]) -> String {
        let [cells @ .., last] = texts.map(table::printable);
        let mut line = String::new();
        for (cell, width) in cells.iter().zip(&mut self.0) {
            *width = cell.chars().count().max(*width);
            line.push_str(&format!("{cell:<width$}   "));
        }
        line + &last
    }
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
        let mut columns = Columns::default();
        assert_eq!(
            columns.line(texts(&event("Normal", "shop/web-edge1"))),
            "2026-01-01T00:00:00Z   Normal    Started              shop/web-edge1             Started container main"
        );
        assert_eq!(tone(&event("Warning", "edge1")), Tone::Warn);
    }

    #[test]
    fn a_wide_cell_widens_its_column_for_the_rows_that_follow() {
        let mut columns = Columns::default();
        let at = |line: &str| line.find("Started container").unwrap();
        let narrow = at(&columns.line(texts(&event("Normal", "shop/web"))));
        let wide = at(&columns.line(texts(&event("Normal", "shop/a-name-that-needs-more-room"))));
        assert_eq!((wide - narrow, at(&columns.line(texts(&event("Normal", "shop/web"))))), (7, wide));
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
