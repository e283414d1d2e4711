//! Telling the supervisor how far a child has come, and the pipe by which a program's first process tells that child.

use crate::model::supervise::ChildReport;
use crate::sys::program;
use rustix::event::{PollFd, PollFlags, Timespec};
use std::io::{self, Read, Write};
use std::os::fd::{AsRawFd, OwnedFd, RawFd};

/// The pipe to the supervisor.
#[derive(Debug)]
pub(super) struct Report(std::fs::File);

impl Report {
    /// Takes the descriptor over that the supervisor left at `number`.
    #[expect(unsafe_code, reason = "a descriptor given by number")]
    pub(super) fn take(number: RawFd) -> io::Result<Self> {
        // SAFETY: called once, at the start of the role, before anything else opens or owns descriptors.
        Ok(Self(unsafe { program::take_descriptor(number) }?.into()))
    }

    /// Sends one report. A supervisor that has gone cannot be told.
    pub(super) fn send(&self, report: &ChildReport) {
        if let Ok(mut line) = serde_json::to_vec(report) {
            line.push(b'\n');
            let _ = (&self.0).write_all(&line);
        }
    }
}

/// The end of the pipe that a first process holds until its program is executed: then it closes by itself. A plain
/// number, as libcontainer copies it across forks.
#[derive(Debug, Clone, Copy)]
pub(super) struct Status(RawFd);

impl Status {
    /// Tells what became of it.
    #[expect(unsafe_code, reason = "the descriptor was inherited through clone as a plain number")]
    pub(super) fn say(self, report: &ChildReport) {
        if let Ok(text) = serde_json::to_vec(report) {
            // SAFETY: the number was a pipe's write end when this process was cloned, and nothing closes it.
            let pipe = unsafe { std::os::fd::BorrowedFd::borrow_raw(self.0) };
            let _ = rustix::io::write(pipe, &text);
        }
    }

    /// Closes every other descriptor but the standard streams: the last thing before this process looks at what the
    /// container controls. After that it can only tell, and become the program or end.
    ///
    /// # Errors
    /// Of close_range.
    #[expect(unsafe_code, reason = "descriptors are closed behind their owners' backs")]
    pub(super) fn close_all_others(self) -> io::Result<()> {
        // SAFETY: the owners are this process's copies of values that it never comes back to.
        unsafe { program::close_all_but(self.0) }
    }
}

/// Waits until something was said on one of these, or the process behind `process` has ended.
///
/// # Errors
/// Of poll(2).
pub(super) fn wait_for_any(readers: &[&StatusReader], process: &OwnedFd) -> io::Result<()> {
    let all = readers.iter().map(|reader| &reader.read).chain([process]);
    let mut fds: Vec<PollFd<'_>> = all.map(|fd| PollFd::new(fd, PollFlags::IN)).collect();
    loop {
        match rustix::event::poll(&mut fds, None) {
            Ok(_) => return Ok(()),
            Err(rustix::io::Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
    }
}

/// The other end.
#[derive(Debug)]
pub(super) struct StatusReader {
    read: OwnedFd,
    write: OwnedFd,
}

impl StatusReader {
    pub(super) fn new() -> io::Result<Self> {
        let (read, write) = rustix::pipe::pipe_with(rustix::pipe::PipeFlags::CLOEXEC)?;
        Ok(Self { read, write })
    }

    pub(super) fn status(&self) -> Status {
        Status(self.write.as_raw_fd())
    }

    /// What has been said so far, though others may still hold the other end.
    pub(super) fn said(&self) -> Option<ChildReport> {
        let mut fds = [PollFd::new(&self.read, PollFlags::IN)];
        let ready = rustix::event::poll(&mut fds, Some(&Timespec::default())).ok()?;
        if ready == 0 {
            return None;
        }
        let mut text = vec![0; 64 * 1024];
        let length = rustix::io::read(&self.read, &mut text).ok()?;
        serde_json::from_slice(text.get(..length)?).ok()
    }

    /// Waits until the program was executed, or its process has gone; gives what it said before.
    pub(super) fn wait(self) -> Option<ChildReport> {
        drop(self.write);
        let mut text = Vec::new();
        std::fs::File::from(self.read).read_to_end(&mut text).ok()?;
        serde_json::from_slice(&text).ok()
    }
}
