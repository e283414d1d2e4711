//! Where commands write to.

use super::args::Color;
use super::error::CliError;
use super::table::Table;
use serde::Serialize;
use std::io::{self, IsTerminal, Write};

/// Standard output, with or without colour.
#[derive(Debug)]
pub(super) struct Out {
    color: bool,
}

impl Out {
    /// Decides on colour: what was asked for; else on a terminal that can, unless the user has said no for all programs
    /// (`NO_COLOR`, <https://no-color.org>).
    pub(super) fn new(color: Color) -> Self {
        let set = |name: &str| std::env::var_os(name).filter(|value| !value.is_empty());
        let color = match color {
            Color::Always => true,
            Color::Never => false,
            Color::Auto => {
                set("NO_COLOR").is_none() && set("TERM").is_some_and(|t| t != "dumb") && io::stdout().is_terminal()
            }
        };
        Self { color }
    }

    /// Whether texts may be coloured.
    pub(super) const fn color(&self) -> bool {
        self.color
    }

    /// Writes bytes as they are and hands them on at once.
    pub(super) fn bytes(&mut self, bytes: &[u8]) -> Result<(), CliError> {
        let mut out = io::stdout().lock();
        out.write_all(bytes).and_then(|()| out.flush()).map_err(|source| CliError::Output { source })
    }

    /// Writes a text and a line break.
    pub(super) fn line(&mut self, text: &str) -> Result<(), CliError> {
        self.bytes(format!("{text}\n").as_bytes())
    }

    /// Writes a table.
    pub(super) fn table(&mut self, table: &Table) -> Result<(), CliError> {
        self.bytes(table.render(self.color).as_bytes())
    }

    /// Writes a value as indented JSON.
    pub(super) fn json(&mut self, value: &impl Serialize) -> Result<(), CliError> {
        let text = serde_json::to_string_pretty(value).map_err(|source| CliError::Encode { source })?;
        self.line(&text)
    }

    /// Writes a value as YAML.
    pub(super) fn yaml(&mut self, value: &impl Serialize) -> Result<(), CliError> {
        let value = serde_json::to_value(value).map_err(|source| CliError::Encode { source })?;
        let text = crate::wire::emit::yaml(&value);
        self.bytes(text.as_bytes())
    }

    /// Writes a remark beside the output proper. Nobody depends on it: it may fail.
    pub(super) fn remark(&self, text: &str) {
        let _ = writeln!(io::stderr(), "{text}");
    }

    /// Hands everything on.
    pub(super) fn flush(&mut self) -> Result<(), CliError> {
        io::stdout().flush().map_err(|source| CliError::Output { source })
    }
}
