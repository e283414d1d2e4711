//! Standard error, which others write to as well and which may not take anything.

use rustix::fd::{AsFd, AsRawFd as _, BorrowedFd, OwnedFd};
use rustix::fs::{FileType, Mode, OFlags};
use rustix::io::Errno;
use rustix::net::SendFlags;

/// The way to a descriptor that others write to as well.
#[derive(Debug)]
pub(super) enum Output {
    /// The file, opened once more: that it does not wait holds for this open file only, so nobody else meets it.
    Own(OwnedFd),
    /// A socket, which says with each message that it does not wait.
    Socket,
    /// As it is.
    Shared,
}

impl Output {
    /// Finds it; `None` as long as it cannot be said, because `/proc` is not mounted yet.
    pub(super) fn to(fd: BorrowedFd<'_>) -> Option<Self> {
        match rustix::fs::fstat(fd).map(|stat| FileType::from_raw_mode(stat.st_mode)) {
            Ok(FileType::CharacterDevice | FileType::Fifo) => {
                let flags = OFlags::WRONLY | OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::CLOEXEC;
                match rustix::fs::open(format!("/proc/self/fd/{}", fd.as_raw_fd()), flags, Mode::empty()) {
                    Ok(own) => Some(Self::Own(own)),
                    Err(Errno::NOENT) => None,
                    Err(_) => Some(Self::Shared),
                }
            }
            Ok(FileType::Socket) => Some(Self::Socket),
            // A file does not wait for anybody, and has a position that is to be shared.
            _ => Some(Self::Shared),
        }
    }

    pub(super) fn write(&self, fd: BorrowedFd<'_>, bytes: &[u8]) -> rustix::io::Result<usize> {
        match self {
            Self::Own(own) => rustix::io::write(own.as_fd(), bytes),
            Self::Socket => rustix::net::send(fd, bytes, SendFlags::DONTWAIT | SendFlags::NOSIGNAL),
            Self::Shared => rustix::io::write(fd, bytes),
        }
    }
}

/// What is kept at most of lines that nobody has taken yet: a burst on a slow serial line.
const BACKLOG: usize = 8 * 1024;

/// Lines that wait, and the number of those that were dropped after them. Pure but for the writer that it is given.
#[derive(Debug, Default)]
pub(super) struct Backlog {
    unsent: Vec<u8>,
    dropped: u64,
}

impl Backlog {
    /// Writes a line, or keeps it, or drops and counts it. `notice` makes a line of the number of dropped ones.
    pub(super) fn put(
        &mut self,
        line: &[u8],
        notice: impl FnOnce(u64) -> String,
        mut write: impl FnMut(&[u8]) -> rustix::io::Result<usize>,
    ) {
        self.send(&mut write);
        if self.dropped > 0 && self.unsent.is_empty() {
            self.unsent.extend_from_slice(notice(self.dropped).as_bytes());
            self.dropped = 0;
            self.send(&mut write);
        }
        // Once something was dropped nothing is kept before that is said: lines stay in their order.
        if self.dropped > 0 || (!self.unsent.is_empty() && self.unsent.len().saturating_add(line.len()) > BACKLOG) {
            self.dropped = self.dropped.saturating_add(1);
            return;
        }
        self.unsent.extend_from_slice(line);
        self.send(&mut write);
    }

    /// Writes what can be written now.
    fn send(&mut self, write: &mut impl FnMut(&[u8]) -> rustix::io::Result<usize>) {
        let mut sent = 0;
        while let Some(rest) = self.unsent.get(sent..).filter(|rest| !rest.is_empty()) {
            match write(rest) {
                Ok(0) => break,
                Ok(n) => sent = sent.saturating_add(n),
                Err(Errno::INTR) => {}
                Err(_) => break,
            }
        }
        if sent >= self.unsent.len() {
            self.unsent = Vec::new();
        } else {
            self.unsent.drain(..sent);
        }
    }
}

/// Whether this descriptor is the journal's, as systemd says by device and inode in `JOURNAL_STREAM` (systemd.exec(5)).
pub(super) fn is_journal(fd: BorrowedFd<'_>, variable: &str) -> bool {
    let named = variable.split_once(':').and_then(|(dev, ino)| Some((dev.parse().ok()?, ino.parse().ok()?)));
    let own = rustix::fs::fstat(fd).map(|stat| (stat.st_dev, stat.st_ino));
    named.is_some() && own.ok() == named
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_journal_is_known_by_device_and_inode() {
        let (read, write) = rustix::pipe::pipe().unwrap();
        let stat = rustix::fs::fstat(&write).unwrap();
        let named = format!("{}:{}", stat.st_dev, stat.st_ino);
        assert!(is_journal(write.as_fd(), &named) && is_journal(read.as_fd(), &named));
        for other in ["", ":", "1", "1:2", &format!("{}:{}", stat.st_dev, stat.st_ino + 1), &format!("{named}x")] {
            assert!(!is_journal(write.as_fd(), other), "{other}");
        }
    }

    /// Puts lines while the other side takes so many bytes at each of them.
    fn put(lines: &[(&str, usize)]) -> String {
        let (mut backlog, mut out) = (Backlog::default(), String::new());
        for (line, room) in lines {
            let mut room = *room;
            backlog.put(
                line.as_bytes(),
                |count| format!("{count} dropped\n"),
                |bytes| {
                    let n = bytes.len().min(room);
                    room -= n;
                    out.push_str(std::str::from_utf8(&bytes[..n]).unwrap());
                    if n == 0 { Err(Errno::AGAIN) } else { Ok(n) }
                },
            );
            assert!(backlog.unsent.len() <= BACKLOG.max(line.len()));
        }
        out
    }

    #[test]
    fn a_line_waits_or_is_dropped_whole_and_counted() {
        let long = format!("{}\n", "x".repeat(BACKLOG - 10));
        let all = 100_000;
        for (what, lines, wanted) in [
            ("all is taken", &[("a\n", all), ("b\n", all)][..], "a\nb\n".to_owned()),
            ("a torn line is finished first", &[("abc\n", 2), ("d\n", all)], "abc\nd\n".to_owned()),
            ("a little is kept", &[("a\n", 0), ("b\n", 0), ("c\n", all)], "a\nb\nc\n".to_owned()),
            (
                "the rest is counted, in its place",
                &[(&long, 0), ("0123456789\n", 0), ("b\n", 0), ("c\n", all), ("d\n", all)],
                format!("{long}2 dropped\nc\nd\n"),
            ),
            (
                "the count itself may wait",
                &[(&long, 0), ("0123456789\n", 0), ("b\n", long.len() + 3), ("c\n", all)],
                format!("{long}1 dropped\nb\nc\n"),
            ),
        ] {
            assert_eq!(put(lines), wanted, "{what}");
        }
    }

    #[test]
    fn a_terminal_that_was_stopped_is_not_waited_for() {
        use rustix::pty::OpenptFlags;
        let master = rustix::pty::openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY).unwrap();
        rustix::pty::unlockpt(&master).unwrap();
        let side = rustix::pty::ioctl_tiocgptpeer(&master, OpenptFlags::RDWR | OpenptFlags::NOCTTY).unwrap();
        let output = Output::to(side.as_fd()).unwrap();
        rustix::termios::tcflow(&side, rustix::termios::Action::OOff).unwrap();
        let stopped = (0..10_000).find_map(|_| output.write(side.as_fd(), b"a line\n").err());
        assert_eq!(stopped, Some(Errno::AGAIN));
        rustix::termios::tcflow(&side, rustix::termios::Action::OOn).unwrap();
        assert_eq!(output.write(side.as_fd(), b"a line\n"), Ok(7));
    }

    #[test]
    fn a_full_pipe_is_not_waited_for_and_stays_as_others_have_it() {
        let (read, write) = rustix::pipe::pipe().unwrap();
        let output = Output::to(write.as_fd()).unwrap();
        assert!(matches!(output, Output::Own(_)));
        let full = (0..10_000).find_map(|_| output.write(write.as_fd(), &[b'x'; 4096]).err());
        assert_eq!(full, Some(Errno::AGAIN));
        assert!(!rustix::fs::fcntl_getfl(&write).unwrap().contains(OFlags::NONBLOCK));
        rustix::io::read(&read, &mut [0; 65_536][..]).unwrap();
        assert_eq!(output.write(write.as_fd(), b"again"), Ok(5));
        let (one, other) = std::os::unix::net::UnixStream::pair().unwrap();
        let output = Output::to(one.as_fd()).unwrap();
        assert!(matches!(output, Output::Socket));
        let full = (0..10_000).find_map(|_| output.write(one.as_fd(), &[b'x'; 4096]).err());
        assert_eq!(full, Some(Errno::AGAIN));
        drop(other);
        assert!(matches!(Output::to(tempfile::tempfile().unwrap().as_fd()), Some(Output::Shared)));
    }
}
