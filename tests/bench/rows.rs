//! The rows of the result: as a table for people and as JSON for programs.

use serde_json::{Value, json};

/// One measured figure.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Row {
    pub(crate) name: &'static str,
    pub(crate) ours: f64,
    pub(crate) peer: Option<f64>,
    pub(crate) unit: &'static str,
    pub(crate) goal: &'static str,
}

impl Row {
    pub(crate) fn alone(name: &'static str, ours: f64, unit: &'static str, goal: &'static str) -> Self {
        Self { name, ours, peer: None, unit, goal }
    }

    pub(crate) fn beside(name: &'static str, ours: f64, peer: f64, unit: &'static str, goal: &'static str) -> Self {
        Self { name, ours, peer: Some(peer), unit, goal }
    }

    fn ratio(&self) -> Option<f64> {
        self.peer.filter(|peer| *peer > 0.0).map(|peer| rounded(self.ours / peer, 1000.0))
    }

    fn json(&self) -> Value {
        json!({
            "name": self.name,
            "ours": rounded(self.ours, 1000.0),
            "peer": self.peer.map(|peer| rounded(peer, 1000.0)),
            "ratio": self.ratio(),
            "unit": self.unit,
            "goal": self.goal,
        })
    }
}

fn rounded(value: f64, steps: f64) -> f64 {
    (value * steps).round() / steps
}

/// The list that `target/bench/results.json` holds.
pub(crate) fn json(rows: &[Row]) -> Value {
    rows.iter().map(Row::json).collect()
}

/// The same for people.
pub(crate) fn table(rows: &[Row]) -> String {
    let figure = |value: Option<f64>, digits: usize| value.map_or("-".to_owned(), |value| format!("{value:.digits$}"));
    let line = |cells: [&str; 6]| {
        format!("{:<22}{:>14}{:>12}{:>8}  {:<14}{}\n", cells[0], cells[1], cells[2], cells[3], cells[4], cells[5])
    };
    let mut text = line(["name", "ours", "peer", "ratio", "unit", "goal"]);
    for row in rows {
        let digits = if row.ours.abs() < 100.0 { 2 } else { 0 };
        let (ours, peer) = (figure(Some(row.ours), digits), figure(row.peer, digits));
        text.push_str(&line([row.name, &ours, &peer, &figure(row.ratio(), 2), row.unit, row.goal]));
    }
    text
}

/// The value in the middle; of an even number of values the mean of the two there. Not a number when there are none.
pub(crate) fn median(values: &[f64]) -> f64 {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    let middle = sorted.len() / 2;
    match (sorted.get(middle), sorted.len() % 2) {
        (None, _) => f64::NAN,
        (Some(value), 1) => *value,
        (Some(value), _) => f64::midpoint(*value, sorted[middle - 1]),
    }
}

/// Smallest, median and largest value, for the reader of a run.
pub(crate) fn spread(values: &[f64]) -> String {
    let least = values.iter().copied().fold(f64::NAN, f64::min);
    let most = values.iter().copied().fold(f64::NAN, f64::max);
    format!("{least:.0} .. {:.0} .. {most:.0} of {}", median(values), values.len())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_median_is_the_value_in_the_middle() {
        for (values, middle) in
            [(&[3.0][..], 3.0), (&[9.0, 1.0, 2.0], 2.0), (&[4.0, 1.0, 3.0, 2.0], 2.5), (&[1.0, 1.0, 1.0, 100.0], 1.0)]
        {
            assert!((median(values) - middle).abs() < 1e-9, "{values:?}: {}", median(values));
        }
        assert!(median(&[]).is_nan());
        assert_eq!(spread(&[30.0, 10.0, 20.0]), "10 .. 20 .. 30 of 3");
    }

    #[test]
    fn results_are_a_list_of_rows_with_all_their_fields() {
        let rows = [
            Row::beside("start_ms", 40.12345, 80.0, "ms", "<= 1.0"),
            Row::beside("nothing", 1.0, 0.0, "ms", ""),
            Row::alone("binary_bytes", 12_000_000.0, "bytes", "< 12582912"),
        ];
        let row = |name: &str, ours: f64, peer: Option<f64>, ratio: Option<f64>, unit: &str, goal: &str| json!({"name": name, "ours": ours, "peer": peer, "ratio": ratio, "unit": unit, "goal": goal});
        assert_eq!(
            json(&rows),
            json!([
                row("start_ms", 40.123, Some(80.0), Some(0.502), "ms", "<= 1.0"),
                row("nothing", 1.0, Some(0.0), None, "ms", ""),
                row("binary_bytes", 12_000_000.0, None, None, "bytes", "< 12582912"),
            ])
        );
        let table = table(&rows);
        assert_eq!(table.lines().count(), 4, "{table}");
        assert!(table.lines().nth(1).unwrap().starts_with("start_ms"), "{table}");
        assert!(table.lines().nth(3).unwrap().contains("    12000000           -       -  bytes"), "{table}");
    }
}
