//! The terminal that a person sits at.

use super::error::CliError;
use rustix::termios::{self, OptionalActions, Termios};
use std::io::{self, IsTerminal};

/// Whether standard input is a terminal.
pub(super) fn is_interactive() -> bool {
    io::stdin().is_terminal()
}

/// Columns and rows of the window, if there is one.
pub(super) fn size() -> Option<(u16, u16)> {
    let size = termios::tcgetwinsize(io::stdout()).or_else(|_| termios::tcgetwinsize(io::stdin())).ok()?;
    (size.ws_col > 0 && size.ws_row > 0).then_some((size.ws_col, size.ws_row))
}

/// A terminal that hands every key on as it is. It is as before again when this value goes, whichever way that happens.
#[derive(Debug)]
pub(super) struct Raw {
    before: Termios,
}

impl Raw {
    /// Switches the terminal on standard input.
    pub(super) fn enter() -> Result<Self, CliError> {
        let failed = |errno: rustix::io::Errno| CliError::Terminal { source: errno.into() };
        let before = termios::tcgetattr(io::stdin()).map_err(failed)?;
        let mut raw = before.clone();
        raw.make_raw();
        termios::tcsetattr(io::stdin(), OptionalActions::Now, &raw).map_err(failed)?;
        Ok(Self { before })
    }
}

impl Drop for Raw {
    fn drop(&mut self) {
        // Drain: what the program wrote last is shown under the terminal's rules that it was written for.
        let _ = termios::tcsetattr(io::stdin(), OptionalActions::Drain, &self.before);
    }
}
