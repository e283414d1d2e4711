//! A pod's `/etc/hosts`, `/etc/resolv.conf` and `/etc/hostname`, and the node's own.

use super::resolver::Resolver;
use super::{NetworkError, Result};
use crate::sys::files::{read_small, write_in_place};
use std::path::{Path, PathBuf};

/// Far more than any real resolver or hosts file holds.
const MAX_BYTES: u64 = 1024 * 1024;
/// Where systemd-resolved keeps the servers that its stub asks.
const RESOLVED: &str = "/run/systemd/resolve/resolv.conf";

/// The files' texts.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PodFiles {
    /// `/etc/hosts`.
    pub hosts: String,
    /// `/etc/resolv.conf`.
    pub resolver: String,
    /// The host name.
    pub hostname: String,
}

/// Where the files lie, to be mounted into containers.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PodFilePaths {
    /// `etc-hosts`, named as the kubelet names it.
    pub hosts: PathBuf,
    /// `resolv.conf`.
    pub resolver: PathBuf,
    /// `hostname`.
    pub hostname: PathBuf,
}

impl PodFilePaths {
    /// The paths below a pod's folder.
    #[must_use]
    pub fn below(pod_dir: &Path) -> Self {
        Self {
            hosts: pod_dir.join("etc-hosts"),
            resolver: pod_dir.join("resolv.conf"),
            hostname: pod_dir.join("hostname"),
        }
    }
}

/// Writes the files of a pod with mode 0644. A file that is right stays untouched. One that is not is overwritten, not
/// replaced: running containers have it mounted and are to see the change, as they do upstream.
///
/// # Errors
/// [`NetworkError::File`] with the file's path.
pub fn write_pod_files(pod_dir: &Path, files: &PodFiles) -> Result<PodFilePaths> {
    let paths = PodFilePaths::below(pod_dir);
    let hostname = format!("{}\n", files.hostname);
    let texts = [(&paths.hosts, &files.hosts), (&paths.resolver, &files.resolver), (&paths.hostname, &hostname)];
    for (path, text) in texts {
        write_in_place(path, text.as_bytes(), 0o644).map_err(|source| NetworkError::File {
            operation: "write",
            path: path.clone(),
            source,
        })?;
    }
    Ok(paths)
}

/// The node's `/etc/hosts`; empty when there is none.
///
/// # Errors
/// [`NetworkError::File`].
pub fn node_hosts() -> Result<String> {
    read(Path::new("/etc/hosts"))
}

/// The node's resolver from `resolvConf`; empty when there is no such file. A stub on the loopback network is replaced
/// by the servers that it asks, where systemd-resolved tells them: a pod cannot reach the stub.
///
/// # Errors
/// [`NetworkError::File`].
pub fn node_resolver(resolv_conf: &Path) -> Result<Resolver> {
    let configured = Resolver::parse(&read(resolv_conf)?);
    if !configured.is_loopback_stub() {
        return Ok(configured);
    }
    let behind = Resolver::parse(&read(Path::new(RESOLVED))?);
    Ok(if behind.nameservers.is_empty() || behind.is_loopback_stub() { configured } else { behind })
}

fn read(path: &Path) -> Result<String> {
    match read_small(path, MAX_BYTES) {
        Ok(bytes) => Ok(String::from_utf8_lossy(&bytes).into_owned()),
        Err(e) if e.kind() == std::io::ErrorKind::NotFound => Ok(String::new()),
        Err(source) => Err(NetworkError::File { operation: "read", path: path.to_owned(), source }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;
    use std::os::unix::fs::{MetadataExt, PermissionsExt};

    fn files(hosts: &str) -> PodFiles {
        PodFiles { hosts: hosts.to_owned(), resolver: "nameserver 1.1.1.1\n".to_owned(), hostname: "web".to_owned() }
    }

    #[test]
    fn a_mounted_file_changes_in_place_and_only_when_it_must() {
        let dir = tempfile::tempdir().unwrap();
        let paths = write_pod_files(dir.path(), &files("a long first text\n")).unwrap();
        let before = fs::metadata(&paths.hosts).unwrap();
        assert_eq!(before.permissions().mode() & 0o7777, 0o644);
        assert_eq!(fs::read_to_string(&paths.hostname).unwrap(), "web\n");
        write_pod_files(dir.path(), &files("a long first text\n")).unwrap();
        assert_eq!(fs::metadata(&paths.hosts).unwrap().modified().unwrap(), before.modified().unwrap());
        write_pod_files(dir.path(), &files("short\n")).unwrap();
        assert_eq!(fs::read_to_string(&paths.hosts).unwrap(), "short\n");
        assert_eq!(fs::metadata(&paths.hosts).unwrap().ino(), before.ino());
    }

    #[test]
    fn an_error_names_the_file() {
        let dir = tempfile::tempdir().unwrap();
        let missing = dir.path().join("nothere");
        let error = write_pod_files(&missing, &files("")).unwrap_err();
        assert!(error.to_string().ends_with("nothere/etc-hosts"), "{error}");
        assert_eq!(node_resolver(&missing).unwrap(), Resolver::default());
    }
}
