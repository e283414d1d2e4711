//! Container logs, read: CRI log files in, the text that `kubectl logs` shows out.
//!
//! 1. [`options`]: what the client asks for, checked.
//! 2. [`line`]: one line of a file; [`split`]: bytes to lines.
//! 3. [`join`]: pieces to whole lines, filtered and written out.
//! 4. [`tail`]: where the last lines begin, found from the end.
//! 5. [`files`]: the files of one container attempt, across rotation.
//! 6. [`reader`]: all of them put together, blocking; [`stream`]: the same for an answer's body, with `follow`.

mod files;
mod join;
mod line;
pub(super) mod options;
mod reader;
mod split;
mod stream;
mod tail;

pub(super) use options::{LogOptions, OptionsError};
pub(super) use reader::LogReader;
pub(super) use stream::{Follow, stream};
