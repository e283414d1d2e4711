//! A pod's namespaces: a forked helper makes them and sends them back as descriptors.

use super::hand_over::Number;
use super::hand_over::claims::Claims;
use crate::model::supervise::SandboxSpec;
use crate::sys::namespaces::{self, Namespace};
use crate::sys::{children, netns, seqpacket};
use rustix::fd::{AsFd as _, AsRawFd as _, BorrowedFd, OwnedFd};
use serde::{Deserialize, Serialize};
use std::io;
use std::path::PathBuf;

/// Namespaces that are held: a process joins them through `/proc/<supervisor>/fd/<number>`.
#[derive(Debug)]
pub(crate) struct Namespaces {
    ipc: OwnedFd,
    /// Network and UTS; a pod on the node's network has none of its own.
    own: Option<(OwnedFd, OwnedFd)>,
}

/// The same, as they are handed over: they keep their numbers, which everybody has been told.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct HandedNamespaces {
    ipc: Number,
    #[serde(default)]
    own: Option<(Number, Number)>,
}

impl HandedNamespaces {
    pub(crate) fn numbers(&self) -> Vec<Number> {
        [self.ipc].into_iter().chain(self.own.into_iter().flat_map(|(net, uts)| [net, uts])).collect()
    }
}

impl Namespaces {
    pub(crate) fn hand(&self) -> HandedNamespaces {
        let own = self.own.as_ref().map(|(net, uts)| (Number::of(net), Number::of(uts)));
        HandedNamespaces { ipc: Number::of(&self.ipc), own }
    }

    pub(crate) fn adopt(handed: &HandedNamespaces, claims: &mut Claims) -> Option<Self> {
        let own = handed.own.and_then(|(net, uts)| claims.take(net).zip(claims.take(uts)));
        Some(Self { ipc: claims.take(handed.ipc)?, own })
    }

    /// Paths of the IPC, network and UTS namespaces.
    pub(crate) fn paths(&self) -> (String, Option<String>, Option<String>) {
        let path = |fd: &OwnedFd| format!("/proc/{}/fd/{}", std::process::id(), fd.as_raw_fd());
        let own = self.own.as_ref();
        (path(&self.ipc), own.map(|(net, _)| path(net)), own.map(|(_, uts)| path(uts)))
    }
}

/// Why a helper failed, as one line of text: it crosses a process boundary.
#[derive(Debug, thiserror::Error)]
enum MakeError {
    #[error("{operation}")]
    System {
        operation: String,
        #[source]
        source: io::Error,
    },
    #[error("{name:?} is not a sysctl's name")]
    Name { name: String },
}

/// Forks the helper. Gives its process id and the socket on which the answer comes.
///
/// # Errors
/// Of socketpair and clone3.
pub(crate) fn spawn(spec: &SandboxSpec) -> io::Result<(u32, OwnedFd)> {
    let (ours, theirs) = seqpacket::pair()?;
    let pid = children::fork(|| {
        let sent = match make(spec) {
            Ok(fds) => seqpacket::send(theirs.as_fd(), b"ok", &seqpacket::borrow(&fds)),
            Err(e) => seqpacket::send(theirs.as_fd(), chain(&e).as_bytes(), &[]),
        };
        u8::from(!matches!(sent, Ok(true)))
    })?;
    Ok((pid, ours))
}

/// Reads the helper's answer. `None`: not there yet.
pub(crate) fn answer(socket: BorrowedFd<'_>) -> Option<Result<Namespaces, String>> {
    let mut text = [0; 1024];
    let got = match seqpacket::receive(socket, &mut text) {
        Ok(got) => got?,
        Err(e) => return Some(Err(format!("read the helper's answer: {e}"))),
    };
    let mut fds = got.fds.into_iter();
    match (text.get(..got.len).unwrap_or_default(), fds.next(), fds.next(), fds.next()) {
        (b"ok", Some(ipc), net, uts) => Some(Ok(Namespaces { ipc, own: net.zip(uts) })),
        ([], ..) => Some(Err("the helper ended without an answer".to_owned())),
        (text, ..) => Some(Err(String::from_utf8_lossy(text).into_owned())),
    }
}

/// The helper's work. Gives the IPC namespace and, unless the node's are used, network and UTS.
fn make(spec: &SandboxSpec) -> Result<Vec<OwnedFd>, MakeError> {
    let system = |operation: &str| {
        let operation = operation.to_owned();
        move |e: rustix::io::Errno| MakeError::System { operation, source: e.into() }
    };
    let kinds: &[Namespace] =
        if spec.host_network { &[Namespace::Ipc] } else { &[Namespace::Ipc, Namespace::Net, Namespace::Uts] };
    namespaces::unshare(kinds).map_err(system("make the namespaces"))?;
    if !spec.host_network {
        if let Some(name) = &spec.hostname {
            rustix::system::sethostname(name.as_bytes()).map_err(system("set the host name"))?;
        }
        let operation = || "bring up the loopback link".to_owned();
        netns::loopback_up().map_err(|source| MakeError::System { operation: operation(), source })?;
    }
    for (name, value) in &spec.sysctls {
        let path = sysctl_path(name).ok_or_else(|| MakeError::Name { name: name.clone() })?;
        std::fs::write(&path, value)
            .map_err(|source| MakeError::System { operation: format!("set sysctl {name} to {value:?}"), source })?;
    }
    kinds.iter().map(|kind| namespaces::open_own(*kind).map_err(system("open a namespace"))).collect()
}

/// The file of a sysctl. Dots separate parts; where the first separator is a slash, slashes separate and dots are
/// part of the names (as in `net/ipv4/conf/eth0.100/forwarding`).
fn sysctl_path(name: &str) -> Option<PathBuf> {
    let slashes = matches!((name.find('/'), name.find('.')), (Some(s), d) if d.is_none_or(|d| s < d));
    let separator = if slashes { '/' } else { '.' };
    let part = |p: &str| {
        // With dots as separators a slash stands for a dot in a name.
        let p = if slashes { p.to_owned() } else { p.replace('/', ".") };
        let plain = !p.is_empty() && p != "." && p != ".." && !p.contains(['/', '\0']);
        plain.then_some(p)
    };
    let parts = name.split(separator).map(part).collect::<Option<Vec<String>>>()?;
    Some(parts.iter().fold(PathBuf::from("/proc/sys"), |path, part| path.join(part)))
}

fn chain(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(e) = cause {
        text = format!("{text}: {e}");
        cause = e.source();
    }
    text.truncate(text.floor_char_boundary(1000));
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_sysctl_name_is_a_path_below_proc_sys_and_nothing_else() {
        let path = |name: &str| sysctl_path(name).map(|p| p.to_string_lossy().into_owned());
        assert_eq!(path("net.ipv4.ip_forward").as_deref(), Some("/proc/sys/net/ipv4/ip_forward"));
        assert_eq!(
            path("net/ipv4/conf/eth0.1/forwarding").as_deref(),
            Some("/proc/sys/net/ipv4/conf/eth0.1/forwarding")
        );
        assert_eq!(
            path("net.ipv4.conf.eth0/1.forwarding").as_deref(),
            Some("/proc/sys/net/ipv4/conf/eth0.1/forwarding")
        );
        for bad in ["", ".", "..", "a..b", "net/../../etc/passwd", "/etc/passwd", "a./", "a.//.b", "a\0b"] {
            assert_eq!(path(bad), None, "{bad:?}");
        }
    }
}
