//! Why a command was not done, and what to do next.

use super::lookup::LookupError;
use std::error::Error;
use std::fmt::Write;
use std::io;
use std::path::PathBuf;

/// Everything that can go wrong.
#[derive(Debug, thiserror::Error)]
pub(super) enum CliError {
    /// The agent's socket does not take a connection.
    #[error("the agent cannot be reached at {}", socket.display())]
    Connect { socket: PathBuf, source: io::Error },
    /// The connection broke.
    #[error("talking to the agent")]
    Talk { source: hyper::Error },
    /// The connection broke in a session.
    #[error("talking to the agent")]
    Session { source: Box<tokio_tungstenite::tungstenite::Error> },
    /// The agent says no.
    #[error("{message}")]
    Refused { status: u16, message: String },
    /// The agent's answer is not what this program knows.
    #[error("the agent's answer to {path} cannot be understood")]
    Decode { path: String, source: serde_json::Error },
    /// The answer ended before its end.
    #[error("the agent went away before it was done")]
    CutOff,
    /// A path cannot be made absolute, a request cannot be made of what was typed.
    #[error("{what} cannot be asked for")]
    Request { what: String, source: Box<dyn Error + Send + Sync> },
    /// A name leads nowhere.
    #[error(transparent)]
    Lookup(#[from] LookupError),
    /// The archive is not there.
    #[error("import {}", path.display())]
    Archive { path: PathBuf, source: Box<dyn Error + Send + Sync> },
    /// The images were not imported.
    #[error("nothing was imported: {message}")]
    Import { message: String },
    /// The program was not run, or it is not known how it ended.
    #[error("{message}")]
    Exec { code: Option<u8>, message: String },
    /// A signal has ended the session.
    #[error("ended by signal {signal}")]
    Signal { signal: u8 },
    /// The terminal cannot be set up.
    #[error("setting up the terminal")]
    Terminal { source: io::Error },
    /// Standard output does not take what is written.
    #[error("writing the output")]
    Output { source: io::Error },
    /// A value cannot be written in the form that was asked for.
    #[error("writing the output")]
    Encode { source: serde_json::Error },
    /// There is no firmware that could be told.
    #[error("there is no cmdline.txt of a Raspberry Pi on this machine")]
    NoBootFile { words: String },
    /// The firmware's file was not changed.
    #[error("nothing was changed")]
    Fix { source: crate::check::FixError },
    /// There is no such manual page.
    #[error("there is no page {name}")]
    NoPage { name: String },
    /// A manual page cannot be written.
    #[error("write {}", path.display())]
    Page { path: PathBuf, source: io::Error },
    /// A configuration file cannot be read.
    #[error("read the configuration")]
    Config { source: crate::config::FilesError },
    /// The archive cannot be written.
    #[error("write {}", path.display())]
    Bundle { path: PathBuf, source: io::Error },
    /// A step of an installation was not done.
    #[error("not done")]
    Install { source: crate::install::StepError },
    /// The machine has no room for even this small program.
    #[error("starting up")]
    Runtime { source: io::Error },
}

impl CliError {
    /// The text for people: what, why, what next.
    pub(super) fn report(&self) -> String {
        let mut text = format!("armlet: {self}");
        let mut cause = self.source();
        while let Some(error) = cause {
            let _ = write!(text, ": {error}");
            cause = error.source();
        }
        if let Some(hint) = self.hint() {
            let _ = write!(text, "\n  {hint}");
        }
        text
    }

    fn hint(&self) -> Option<String> {
        match self {
            Self::Connect { source, .. } => Some(match source.kind() {
                io::ErrorKind::NotFound => "Is armlet running on this machine? Start it, or name its socket with \
                    --socket or ARMLET_SOCKET."
                    .to_owned(),
                io::ErrorKind::PermissionDenied => "Only root may talk to the agent: try again with sudo.".to_owned(),
                io::ErrorKind::ConnectionRefused => {
                    "The agent is not running. As a rule it is started again by itself: try again in a moment. If it \
                     stays away, `armlet config check` tells what its configuration lacks, and its log (`journalctl -u \
                     armlet` under systemd) what it ended with."
                        .to_owned()
                }
                io::ErrorKind::WouldBlock => {
                    "The agent takes no more connections: it is busy or stopped. Try again in a moment.".to_owned()
                }
                _ => return None,
            }),
            Self::Lookup(error) => Some(error.hint()),
            Self::NoPage { .. } => {
                Some("`armlet --help` lists the commands; one below another is written config-show.".to_owned())
            }
            Self::NoBootFile { words } => Some(format!(
                "Add these words to the kernel's command line where your boot loader keeps it (GRUB: \
                 GRUB_CMDLINE_LINUX in /etc/default/grub, then update-grub): {words}"
            )),
            Self::Install { source: crate::install::StepError::Packaged } => Some(
                "`apt remove armlet` stops the pods and takes it away; `apt purge armlet` takes its files too."
                    .to_owned(),
            ),
            Self::Install { .. } => {
                Some("What is said above is done; it may be run again, as root, when this is mended.".to_owned())
            }
            Self::Fix { .. } => {
                Some("Only root may change the file: try again with sudo, or edit it by hand.".to_owned())
            }
            Self::CutOff | Self::Talk { .. } | Self::Session { .. } => {
                Some("The agent may have been restarted: the pods go on running. Try again.".to_owned())
            }
            _ => None,
        }
    }

    /// The exit code. `exec` passes on other programs' codes: its own failures take one that few programs use.
    pub(super) fn exit_code(&self, exec: bool) -> u8 {
        match self {
            Self::Exec { code: Some(code), .. } => *code,
            Self::Signal { signal } => 128 | signal,
            _ if exec => 125,
            Self::Connect { .. } | Self::Refused { status: 503, .. } => 3,
            _ => 1,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_report_says_what_to_do_next() {
        let connect = |kind: io::ErrorKind| CliError::Connect { socket: "/run/x.sock".into(), source: kind.into() };
        let text = connect(io::ErrorKind::PermissionDenied).report();
        assert_eq!(
            text,
            "armlet: the agent cannot be reached at /run/x.sock: permission denied\n  \
             Only root may talk to the agent: try again with sudo."
        );
        assert!(connect(io::ErrorKind::NotFound).report().contains("Is armlet running"));
        assert_eq!(connect(io::ErrorKind::TimedOut).report().lines().count(), 1);
    }

    #[test]
    fn exit_codes_tell_who_failed() {
        let refused = || CliError::Refused { status: 404, message: String::new() };
        assert_eq!(refused().exit_code(false), 1);
        assert_eq!(CliError::Refused { status: 503, message: String::new() }.exit_code(false), 3);
        assert_eq!(refused().exit_code(true), 125);
        assert_eq!(CliError::Exec { code: Some(127), message: String::new() }.exit_code(true), 127);
        assert_eq!(CliError::Exec { code: None, message: String::new() }.exit_code(true), 125);
        assert_eq!(CliError::Signal { signal: 15 }.exit_code(true), 143);
        assert_eq!(
            CliError::Connect { socket: PathBuf::new(), source: io::ErrorKind::NotFound.into() }.exit_code(false),
            3
        );
    }
}
