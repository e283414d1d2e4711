//! Figures, their goals, and how they are shown.

use serde_json::{Value, json};

/// One line of the result.
pub(crate) struct Figure {
    pub(crate) name: &'static str,
    pub(crate) ours: Option<f64>,
    pub(crate) peer: Option<f64>,
    pub(crate) unit: &'static str,
    pub(crate) goal: Goal,
}

/// What is aimed at.
pub(crate) enum Goal {
    /// Ours divided by the peer's.
    Ratio(f64),
    /// Ours alone.
    Most(f64),
    /// Ours less the peer's.
    Difference(f64),
}

impl Figure {
    pub(crate) fn ratio(&self) -> Option<f64> {
        Some(self.ours? / self.peer?)
    }

    /// Whether the goal is met; nothing where it could not be measured.
    pub(crate) fn met(&self) -> Option<bool> {
        Some(match self.goal {
            Goal::Ratio(most) => self.ratio()? <= most,
            Goal::Most(most) => self.ours? <= most,
            Goal::Difference(most) => self.ours? - self.peer? <= most,
        })
    }

    pub(crate) fn json(&self) -> Value {
        json!({
            "name": self.name, "ours": self.ours, "peer": self.peer, "ratio": self.ratio(), "unit": self.unit,
            "goal": self.goal.text(),
        })
    }

    pub(crate) fn row(&self) -> String {
        let number = |value: Option<f64>| value.map_or_else(|| "-".to_owned(), |value| format!("{value:.1}"));
        let ratio = self.ratio().map_or_else(|| "-".to_owned(), |ratio| format!("{ratio:.2}"));
        let met = match self.met() {
            Some(true) => "met",
            Some(false) => "missed",
            None => "not measured",
        };
        format!(
            "{:<22} {:>12} {:>12} {:>7} {:<6} {:<18} {met}",
            self.name,
            number(self.ours),
            number(self.peer),
            ratio,
            self.unit,
            self.goal.text()
        )
    }
}

impl Goal {
    fn text(&self) -> String {
        match self {
            Goal::Ratio(most) => format!("ratio <= {most}"),
            Goal::Most(most) => format!("<= {most}"),
            Goal::Difference(most) => format!("difference <= {most}"),
        }
    }
}

/// The middle of the sorted values.
pub(crate) fn median(mut values: Vec<f64>) -> Option<f64> {
    values.sort_by(f64::total_cmp);
    values.get(values.len() / 2).copied()
}
