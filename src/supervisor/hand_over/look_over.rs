//! The role that looks a hand-over document over, before the supervisor becomes this program: it reads all of it and
//! touches nothing.

use super::{Document, FORMAT, Why, text_of};
use crate::sys::{build, children, log};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fd::OwnedFd;
use serde::{Deserialize, Serialize};
use std::fs::File;
use std::io::{self, Write as _};
use std::process::ExitCode;

/// Descriptor numbers that it finds open: the document, and the pipe for its answer.
pub(crate) const DOCUMENT: i32 = 3;
pub(crate) const ANSWER: i32 = 4;
/// How long it stays after its answer at most. As long as it runs its program cannot be written by anybody.
const STAY: Timespec = Timespec { tv_sec: 60, tv_nsec: 0 };

/// The answer: one line of JSON.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", rename_all_fields = "camelCase", tag = "answer")]
pub(crate) enum Answer {
    /// The document is understood.
    Yes {
        /// The document's version that this program writes.
        format: u32,
        /// This program's build.
        build: String,
    },
    /// It is not.
    No {
        /// Why not.
        why: String,
    },
}

/// The role: answers, then waits until the supervisor has become this program or given it up.
#[must_use]
pub fn run() -> ExitCode {
    log::init("look-over", 0);
    let taken = children::inherited(DOCUMENT).and_then(|document| Ok((document, children::inherited(ANSWER)?)));
    let said = taken.and_then(|(document, pipe)| {
        let answer = answer(&File::from(document));
        say(&pipe, &answer).map(|()| {
            // Nothing is read here: that the other end is closed is what ends the wait.
            let _ = poll(&mut [PollFd::new(&pipe, PollFlags::empty())], Some(&STAY));
        })
    });
    match said {
        Ok(()) => ExitCode::SUCCESS,
        Err(e) => {
            tracing::error!(error = %e, "the hand-over document could not be looked over");
            ExitCode::FAILURE
        }
    }
}

fn answer(file: &File) -> Answer {
    match look(file) {
        Ok(()) => Answer::Yes { format: FORMAT, build: build::identity().to_owned() },
        Err(why) => Answer::No { why: log::chain(&why) },
    }
}

fn look(file: &File) -> Result<(), Why> {
    // What this role needs of the program may be there, and something else missing.
    let own = File::open("/proc/self/exe").map_err(|e| Why::System("open this program", e))?;
    if !build::is_whole(&own).map_err(|e| Why::System("read this program", e))? {
        return Err(Why::CutShort);
    }
    let document = Document::read(&text_of(file)?)?;
    #[cfg(feature = "other-build")]
    {
        if super::made_to("refuse", &document.run) {
            return Err(Why::Made);
        }
        while super::made_to("hang", &document.run) {
            let _ = poll(&mut [], Some(&Timespec { tv_sec: 1, tv_nsec: 0 }));
        }
    }
    drop(document);
    Ok(())
}

fn say(pipe: &OwnedFd, answer: &Answer) -> io::Result<()> {
    let mut line = serde_json::to_vec(answer)?;
    line.push(b'\n');
    File::from(pipe.try_clone()?).write_all(&line)
}
