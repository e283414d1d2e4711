//! An offered program: looked at by a child of its own, then executed in this one's place, or refused.

use super::Supervisor;
use super::effects::warn;
use crate::model::supervise::{Notice, RefusalCode, Reply};
use crate::model::time::Now;
use crate::model::{BootTime, Millis};
use crate::supervisor::hand_over::Number;
use crate::supervisor::hand_over::look_over::Answer;
use crate::supervisor::poller::{Interest, Source, Watched};
use crate::supervisor::table::Asker;
use crate::supervisor::{again, roles};
use crate::sys::children::{EXEC_FAILED, Ended};
use crate::sys::{exe, program, signals};
use rustix::fd::{AsRawFd as _, OwnedFd};
use rustix::pipe::{PipeFlags, pipe_with};
use std::io;

/// How long an offered program may take to look the document over: it may come from a slow card.
const LOOK_WAIT: Millis = Millis(15_000);
/// The longest answer that is understood.
const MAX_ANSWER: usize = 16 * 1024;
/// Children that looked something over and do not end, for instance inside a hanging disk's driver.
const MAX_LOOKERS: usize = 4;
/// The longest name of a build that is repeated.
const MAX_BUILD: usize = 128;

/// A program that is being looked at.
#[derive(Debug)]
pub(super) struct Offer {
    asker: Asker,
    build: String,
    exe: OwnedFd,
    child: u32,
    pipe: Watched,
    answer: Vec<u8>,
    deadline: BootTime,
    accepted: bool,
}

/// How a hand-over ended, and who asked for it.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Outcome {
    pub(super) asker: Option<Asker>,
    pub(super) build: String,
    /// Why it came to nothing.
    pub(super) refused: Option<String>,
}

impl Supervisor {
    /// Somebody offers a program.
    pub(super) fn take_offer(&mut self, asker: Asker, mut build: String, exe: Option<OwnedFd>, now: Now) {
        build.truncate(build.floor_char_boundary(MAX_BUILD));
        let refusal = match &exe {
            None => Some((RefusalCode::Malformed, "no program came with the offer")),
            Some(exe) if !exe::is_protected(exe) => Some((
                RefusalCode::Malformed,
                "the program can be written: it has to be sealed, or on a read-only mount",
            )),
            Some(_) if self.offer.is_some() => Some((RefusalCode::Conflict, "another program is being looked at")),
            Some(_) if self.node.is_stopping() => Some((RefusalCode::Conflict, "the node is stopping")),
            Some(_) if self.lookers.len() >= MAX_LOOKERS => {
                Some((RefusalCode::Exhausted, "programs that were offered before do not end"))
            }
            Some(_) if self.refused.as_ref().is_some_and(|(link, b)| *link == asker.link && *b == build) => {
                Some((RefusalCode::Conflict, "it was refused on this connection before"))
            }
            Some(_) => None,
        };
        let refused = match (refusal, exe) {
            (None, Some(exe)) => match self.look_over(asker, build.clone(), exe, now) {
                Ok(()) => return,
                Err(e) => (RefusalCode::System, e.to_string()),
            },
            (Some((code, why)), _) => (code, why.to_owned()),
            (None, None) => return,
        };
        self.refuse(asker, refused.0, &format!("hand over to {build:?}: {}", refused.1));
    }

    /// Starts the child that has to understand what it would be handed.
    fn look_over(&mut self, asker: Asker, build: String, exe: OwnedFd, now: Now) -> io::Result<()> {
        let (text, _) = self.document(asker, &build, &exe).write()?;
        let document = exe::sealed_bytes("hand-over", &text)?;
        let (pipe, end) = pipe_with(PipeFlags::CLOEXEC)?;
        rustix::io::ioctl_fionbio(&pipe, true)?;
        let pipe = self.poller.add(pipe, Source::LookOver, Interest::Read)?;
        // Never the name of one before: some kernels go on killing in a group that was killed once.
        let group = self.groups.own(&format!("look-over-{}", now.boot.0));
        let child = match roles::look_over(&exe, &self.groups, &group, &document, &end) {
            Ok(child) => child,
            Err(e) => {
                drop(self.poller.remove(pipe));
                self.remove_group_soon(group, now);
                return Err(e);
            }
        };
        tracing::info!(build, "another build is offered and looked at");
        self.lookers.insert(child, group);
        let deadline = now.boot + LOOK_WAIT;
        self.offer = Some(Offer { asker, build, exe, child, pipe, answer: Vec::new(), deadline, accepted: false });
        Ok(())
    }

    /// The child says something.
    pub(super) fn read_answer(&mut self) {
        let Some(offer) = &mut self.offer else { return };
        let mut buffer = [0; 4096];
        while let Ok(n @ 1..) = rustix::io::read(&offer.pipe.fd, &mut buffer[..]) {
            offer.answer.extend_from_slice(buffer.get(..n).unwrap_or_default());
            if offer.answer.len() > MAX_ANSWER {
                return self.refuse_offer("its answer is too long");
            }
        }
        let Some(end) = offer.answer.iter().position(|b| *b == b'\n') else { return };
        match serde_json::from_slice(offer.answer.get(..end).unwrap_or_default()) {
            Ok(Answer::Yes { format, mut build }) => {
                build.truncate(build.floor_char_boundary(MAX_BUILD));
                tracing::info!(build, format, "the offered build understands the table");
                offer.build = build;
                offer.accepted = true;
            }
            Ok(Answer::No { why }) => self.refuse_offer(&why),
            Err(e) => self.refuse_offer(&format!("its answer cannot be read: {e}")),
        }
    }

    /// The child was reaped, after its answer was read.
    pub(super) fn looker_ended(&mut self, pid: u32, how: Ended, now: Now) {
        if let Some(group) = self.lookers.remove(&pid) {
            self.remove_group_soon(group, now);
        }
        if self.offer.as_ref().is_some_and(|o| o.child == pid && !o.accepted) {
            let why = match how {
                Ended::Code(EXEC_FAILED) => "it cannot be executed on this machine".to_owned(),
                Ended::Code(code) => format!("it ended with code {code} and no answer"),
                Ended::Signal(signal) => format!("it was ended by signal {signal} and gave no answer"),
            };
            self.refuse_offer(&why);
        }
    }

    pub(super) fn offer_deadline(&self) -> Option<BootTime> {
        self.offer.as_ref().map(|o| o.deadline)
    }

    pub(super) fn tick_offer(&mut self, now: Now) {
        if self.offer.as_ref().is_some_and(|o| !o.accepted && o.deadline <= now.boot) {
            self.refuse_offer(&format!("it did not answer within {} seconds", LOOK_WAIT.as_secs()));
        }
    }

    pub(super) fn offer_is_accepted(&self) -> bool {
        self.offer.as_ref().is_some_and(|o| o.accepted)
    }

    /// Goes on as before, and says why.
    fn refuse_offer(&mut self, why: &str) {
        let Some(offer) = self.offer.take() else { return };
        drop(self.poller.remove(offer.pipe));
        if let Some(group) = self.lookers.get(&offer.child) {
            warn("kill an offered program", self.groups.kill(group));
            warn("kill an offered program", signals::send(offer.child, libc::SIGKILL));
        }
        let (mut why, build) = (why.to_owned(), offer.build);
        why.truncate(why.floor_char_boundary(1000));
        self.outcome = Some(Outcome { asker: Some(offer.asker), build, refused: Some(why) });
        self.tell_outcome();
    }

    /// Tells who asked, the agent and the log how a hand-over ended.
    pub(super) fn tell_outcome(&mut self) {
        let Some(Outcome { asker, build, refused }) = self.outcome.take() else { return };
        match &refused {
            None => tracing::info!(build, "this build is the supervisor now"),
            Some(why) => tracing::error!(build, why, "another build was refused, and this one goes on"),
        }
        if let Some(asker) = asker {
            let reply = match &refused {
                None => Reply::Done,
                Some(why) => {
                    self.refused = Some((asker.link, build.clone()));
                    Reply::Refused { code: RefusalCode::System, message: format!("hand over to {build}: {why}") }
                }
            };
            self.reply(asker, reply);
        }
        self.links.notify(Notice::HandOver { build, refused });
        self.links.flush(&mut self.poller);
    }

    /// Becomes the offered program. Comes back only when that failed, and then goes on.
    pub(super) fn hand_over(&mut self) {
        let Some(offer) = &self.offer else { return };
        let why = match self.execute(offer) {
            Ok(never) => match never {},
            Err(e) => format!("it could not be executed: {e}"),
        };
        self.refuse_offer(&why);
    }

    fn execute(&self, offer: &Offer) -> io::Result<std::convert::Infallible> {
        let (text, numbers) = self.document(offer.asker, &offer.build, &offer.exe).write()?;
        let document = exe::sealed_bytes("hand-over", &text)?;
        tracing::info!(build = offer.build, bytes = text.len(), descriptors = numbers.len(), "handing over");
        let args = again::arguments(Number::of(&document), None)?;
        let kept: Vec<i32> = numbers.iter().map(|n| n.0).chain([document.as_raw_fd()]).collect();
        Err(program::execute(&offer.exe, &args, &kept))
    }
}
