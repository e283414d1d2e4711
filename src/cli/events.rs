//! `armlet events`.

use super::args::{Events, Format};
use super::client::{Client, Lines};
use super::error::CliError;
use super::lookup::{self, LookupError};
use super::output::Out;
use super::table::{self, Cell, Table, Tone};
use crate::model::api::{self, Event};

/// Runs the command.
pub(super) async fn run(args: &Events, mut client: Client, out: &mut Out) -> Result<(), CliError> {
    let (wanted, unknown) = match &args.pod {
        Some(name) => wanted(name, args.namespace.as_deref(), &mut client).await?,
        None => (args.namespace.clone().map_or(Wanted::All, Wanted::Namespace), None),
    };
    let path = if args.follow { "/armlet/v1/events?follow=true" } else { "/armlet/v1/events" };
    let mut lines = Lines::new(client.stream(path).await?);
    let mut columns = Columns::default();
    let mut table = Table::new(HEADINGS);
    let mut any = false;
    while let Some(event) = lines.next::<Event>().await? {
        if !wanted.holds(&event) {
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
        if let Some(unknown) = unknown {
            return Err(unknown.into());
        }
        out.remark("No events.");
    } else if args.output.is_none() && !args.follow {
        out.table(&table)?;
    }
    Ok(())
}

/// Which events are meant.
#[derive(Debug, PartialEq, Eq)]
enum Wanted {
    All,
    Namespace(String),
    /// `namespace/pod`.
    Pod(String),
    /// One that is not there, by the name as it was typed, and with the node's at its end: its events outlive it.
    Gone {
        namespace: Option<String>,
        names: [String; 2],
    },
}

impl Wanted {
    fn holds(&self, event: &Event) -> bool {
        let of = event.object.split_once('/');
        match self {
            Self::All => true,
            Self::Namespace(namespace) => of.is_some_and(|(ns, _)| ns == namespace),
            Self::Pod(object) => event.object == *object,
            Self::Gone { namespace, names } => of.is_some_and(|(ns, pod)| {
                namespace.as_ref().is_none_or(|namespace| ns == namespace) && names.iter().any(|name| name == pod)
            }),
        }
    }
}

/// The pod's events; with them, where there is no such pod, what to say when it has left none.
async fn wanted(
    name: &str,
    namespace: Option<&str>,
    client: &mut Client,
) -> Result<(Wanted, Option<LookupError>), CliError> {
    let pods = client.pods().await?.value.items;
    match lookup::pod(&pods, name, namespace) {
        Ok(pod) => Ok((Wanted::Pod(pod.full_name()), None)),
        Err(LookupError::NoPod { name, namespace, near }) => {
            let node = client.get::<api::Version>("/armlet/v1/version").await?.value.node_name;
            let names = [name.clone(), format!("{name}-{node}")];
            let gone = Wanted::Gone { namespace: namespace.clone(), names };
            Ok((gone, Some(LookupError::NoPod { name, namespace, near })))
        }
        Err(error) => Err(error.into()),
    }
}

const HEADINGS: [&str; 6] = ["TIME", "TYPE", "REASON", "OBJECT", "CONTAINER", "MESSAGE"];

fn texts(event: &Event) -> [&str; 6] {
    [&event.time, &event.kind, &event.reason, &event.object, container(event), &event.message]
}

/// The container's name in `spec.containers{name}`.
fn container(event: &Event) -> &str {
    let path = event.field_path.as_deref().unwrap_or_default();
    path.split_once('{').and_then(|(_, name)| name.strip_suffix('}')).unwrap_or("-")
}

fn tone(event: &Event) -> Tone {
    if event.kind == "Warning" { Tone::Warn } else { Tone::Plain }
}

/// Columns of a table whose rows come one by one: as wide as most need, and wider from the first row on that needs it.
struct Columns([usize; 5]);

impl Default for Columns {
    fn default() -> Self {
        Self([20, 7, 18, 24, 9])
    }
}

impl Columns {
    fn line(&mut self, texts: [&str; 6]) -> String {
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
            field_path: Some("spec.containers{main}".to_owned()),
            message: "Started container\nmain".to_owned(),
        }
    }

    #[test]
    fn an_event_is_one_line() {
        let mut columns = Columns::default();
        assert_eq!(
            columns.line(texts(&event("Normal", "shop/web-edge1"))),
            "2026-01-01T00:00:00Z   Normal    Started              shop/web-edge1             main        Started container main"
        );
        assert_eq!(tone(&event("Warning", "edge1")), Tone::Warn);
    }

    #[test]
    fn a_wide_cell_widens_its_column_for_the_rows_that_follow() {
        let mut columns = Columns::default();
        let at = |line: &str| line.find("Started container").unwrap();
        let narrow = at(&columns.line(texts(&event("Normal", "shop/web"))));
        let wide = at(&columns.line(texts(&event("Normal", "shop/a-name-that-needs-more-room"))));
        assert_eq!((wide - narrow, at(&columns.line(texts(&event("Normal", "shop/web"))))), (8, wide));
    }

    #[test]
    fn an_event_of_the_whole_pod_names_no_container() {
        for (path, name) in [(None, "-"), (Some("spec.initContainers{setup}"), "setup"), (Some("spec"), "-")] {
            let mut event = event("Normal", "shop/web-edge1");
            event.field_path = path.map(str::to_owned);
            assert_eq!(container(&event), name, "{path:?}");
        }
    }

    #[test]
    fn events_are_chosen_by_pod_and_namespace() {
        let event = event("Normal", "shop/web-edge1");
        let gone = |namespace: Option<&str>, name: &str| Wanted::Gone {
            namespace: namespace.map(str::to_owned),
            names: [name.to_owned(), format!("{name}-edge1")],
        };
        for (wanted, holds) in [
            (Wanted::All, true),
            (Wanted::Namespace("shop".into()), true),
            (Wanted::Namespace("sho".into()), false),
            (Wanted::Pod("shop/web-edge1".into()), true),
            (Wanted::Pod("shop/web".into()), false),
            (gone(None, "web"), true),
            (gone(Some("shop"), "web-edge1"), true),
            (gone(Some("default"), "web"), false),
            (gone(None, "we"), false),
        ] {
            assert_eq!(wanted.holds(&event), holds, "{wanted:?}");
        }
    }
}
