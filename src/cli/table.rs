//! Tables: columns aligned with spaces, so that they read well on a screen and split well in a script.

/// A colour that means something.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) enum Tone {
    #[default]
    Plain,
    /// As it should be.
    Good,
    /// On its way, or to be looked at.
    Warn,
    /// Wrong.
    Bad,
    /// A heading.
    Head,
}

impl Tone {
    const fn code(self) -> &'static str {
        match self {
            Self::Plain => "",
            Self::Good => "\x1b[32m",
            Self::Warn => "\x1b[33m",
            Self::Bad => "\x1b[31m",
            Self::Head => "\x1b[1m",
        }
    }

    /// The text in this colour, or as it is.
    pub(super) fn paint(self, text: &str, color: bool) -> String {
        if color && self != Self::Plain { format!("{}{text}\x1b[0m", self.code()) } else { text.to_owned() }
    }
}

/// One cell.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Cell {
    text: String,
    tone: Tone,
}

impl Cell {
    /// A cell in a colour.
    pub(super) fn toned(text: impl Into<String>, tone: Tone) -> Self {
        Self { text: printable(&text.into()), tone }
    }
}

impl<T: Into<String>> From<T> for Cell {
    fn from(text: T) -> Self {
        Self::toned(text, Tone::Plain)
    }
}

/// Rows under headings.
#[derive(Debug, Clone)]
pub(super) struct Table {
    rows: Vec<Vec<Cell>>,
}

impl Table {
    pub(super) fn new<const N: usize>(headings: [&str; N]) -> Self {
        Self { rows: vec![headings.into_iter().map(|text| Cell::toned(text, Tone::Head)).collect()] }
    }

    pub(super) fn row(&mut self, cells: impl IntoIterator<Item = Cell>) {
        self.rows.push(cells.into_iter().collect());
    }

    /// The table as text. The last column is not padded, empty cells show as `-`.
    pub(super) fn render(&self, color: bool) -> String {
        let columns = self.rows.iter().map(Vec::len).max().unwrap_or(0);
        let width = |column: usize| {
            let cells = self.rows.iter().filter_map(|row| row.get(column));
            cells.map(|cell| cell.text.chars().count().max(1)).max().unwrap_or(0)
        };
        let widths: Vec<usize> = (0..columns).map(width).collect();
        let mut text = String::new();
        for row in &self.rows {
            for (at, (cell, width)) in row.iter().zip(&widths).enumerate() {
                let shown = if cell.text.is_empty() { "-" } else { &cell.text };
                text.push_str(&cell.tone.paint(shown, color));
                if at + 1 < row.len() {
                    let gap = width - shown.chars().count() + 3;
                    text.extend(std::iter::repeat_n(' ', gap));
                }
            }
            text.push('\n');
        }
        text
    }
}

/// Text that may come from a container or a manifest, without what would act on a terminal.
pub(super) fn printable(text: &str) -> String {
    text.chars().map(|c| if c.is_control() { ' ' } else { c }).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_are_aligned() {
        let mut table = Table::new(["NAME", "STATUS"]);
        table.row(["web".into(), Cell::toned("Running", Tone::Good)]);
        table.row(["a-long-name".into(), "".into()]);
        assert_eq!(table.render(false), "NAME          STATUS\nweb           Running\na-long-name   -\n");
        assert_eq!(
            table.render(true),
            "\x1b[1mNAME\x1b[0m          \x1b[1mSTATUS\x1b[0m\nweb           \x1b[32mRunning\x1b[0m\na-long-name   -\n"
        );
    }

    #[test]
    fn a_cell_cannot_steer_the_terminal() {
        let mut table = Table::new(["MESSAGE"]);
        table.row(["a\x1b[31mb\nc\x07".into()]);
        assert_eq!(table.render(false), "MESSAGE\na [31mb c \n");
    }
}
