//! Is this machine ready to be a node? [`look`] reads what there is into a [`Board`], [`findings`] judges it, purely,
//! and [`cmdline`] edits the firmware's command line file of a board.
//!
//! The command line shows all findings; the agent makes a condition of the node of each that is not as it should be.

mod board;
mod cmdline;
mod fix;
mod look;
mod verdicts;

pub use board::{Board, BootFile, Clock, Module, Port, Space, Trial};
pub use cmdline::{Edit, EditError, edit};
pub use fix::{FixError, Fixed, fix};
pub use look::{Places, look};
pub use verdicts::{Finding, Level, Words, findings, ready, words};
