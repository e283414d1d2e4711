//! Kernel settings under `/proc/sys`. Those of `net.` belong to the calling thread's network namespace.

use std::fs;
use std::io;

/// Sets a kernel setting by its dotted name. Writes nothing when it has the value already, so that a `/proc/sys` that
/// is read-only but right is no error.
///
/// # Errors
/// That of reading or writing the file; `InvalidInput` for a name that would leave `/proc/sys`.
pub fn set(name: &str, value: &str) -> io::Result<()> {
    let plain = |part: &str| !part.is_empty() && !part.contains('/');
    if !name.split('.').all(plain) {
        return Err(io::Error::from(io::ErrorKind::InvalidInput));
    }
    let path = format!("/proc/sys/{}", name.replace('.', "/"));
    if fs::read_to_string(&path)?.trim() == value {
        return Ok(());
    }
    fs::write(&path, value)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sys::netns;
    use crate::sys::testing::is_root;

    #[test]
    fn linux_a_network_setting_changes_only_its_namespace() {
        if !is_root() {
            return;
        }
        let netns = netns::create().unwrap();
        let read = || fs::read_to_string("/proc/sys/net/ipv4/ip_forward").unwrap();
        let before = read();
        netns::run_in(&netns, || set("net.ipv4.ip_forward", "1")).unwrap().unwrap();
        assert_eq!(netns::run_in(&netns, read).unwrap().trim(), "1");
        assert_eq!(read(), before);
    }

    #[test]
    fn a_name_stays_below_proc_sys() {
        for bad in ["", ".", "..", "a/b", "net..x", "net.ipv4./../../x"] {
            assert_eq!(set(bad, "1").unwrap_err().kind(), io::ErrorKind::InvalidInput, "{bad}");
        }
        assert_eq!(set("net.nothere", "1").unwrap_err().kind(), io::ErrorKind::NotFound);
    }
}
