//! What a process may do: capabilities, user, groups, no_new_privs.

#![expect(unsafe_code, reason = "prctl(2) with capabilities by number needs raw calls")]

use rustix::thread::{CapabilitySet, CapabilitySets};
use std::io;

/// A set of capabilities by number: bit n is capability n of linux/capability.h.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Hash)]
pub struct Capabilities(pub u64);

impl Capabilities {
    /// Whether capability number `cap` is in the set.
    #[must_use]
    pub const fn has(self, cap: u32) -> bool {
        cap < 64 && self.0 & (1 << cap) != 0
    }

    /// What is in either.
    #[must_use]
    pub const fn union(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }

    /// What is in this one and not in the other.
    #[must_use]
    pub const fn without(self, other: Self) -> Self {
        Self(self.0 & !other.0)
    }
}

/// The five sets of a process (capabilities(7)).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct FiveSets {
    /// What execve can ever give.
    pub bounding: Capabilities,
    /// What is checked.
    pub effective: Capabilities,
    /// What may become effective.
    pub permitted: Capabilities,
    /// What files with inheritable bits can give.
    pub inheritable: Capabilities,
    /// What a program without file capabilities keeps.
    pub ambient: Capabilities,
}

fn prctl(option: libc::c_int, argument: libc::c_ulong) -> io::Result<libc::c_int> {
    // SAFETY: the options used here take numbers only, and change nothing but the calling thread's credentials.
    let result = unsafe { libc::prctl(option, argument, 0, 0, 0) };
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(result) }
}

/// Sets all five sets of the calling thread. Needs CAP_SETPCAP in the effective set while the bounding set shrinks.
///
/// # Errors
/// EPERM when a set would gain what it must not.
pub fn set_capabilities(sets: FiveSets) -> io::Result<()> {
    for cap in 0..64 {
        // The kernel answers EINVAL for the first number that it does not know.
        let Ok(present) = prctl(libc::PR_CAPBSET_READ, libc::c_ulong::from(cap)) else { break };
        if present == 1 && !sets.bounding.has(cap) {
            prctl(libc::PR_CAPBSET_DROP, libc::c_ulong::from(cap))?;
        }
    }
    rustix::thread::clear_ambient_capability_set()?;
    let kernel = |set: Capabilities| CapabilitySet::from_bits_retain(set.0);
    rustix::thread::set_capabilities(
        None,
        CapabilitySets {
            effective: kernel(sets.effective),
            permitted: kernel(sets.permitted),
            inheritable: kernel(sets.inheritable),
        },
    )?;
    for cap in (0..64).filter(|cap| sets.ambient.has(*cap)) {
        // SAFETY: PR_CAP_AMBIENT takes numbers only.
        let raised = unsafe { libc::prctl(libc::PR_CAP_AMBIENT, libc::PR_CAP_AMBIENT_RAISE, cap, 0, 0) };
        if raised < 0 {
            return Err(io::Error::last_os_error());
        }
    }
    Ok(())
}

/// Takes out of the calling thread's effective set what is not in `kept`.
///
/// # Errors
/// None that the kernel documents for a thread's own sets.
pub fn limit_effective(kept: Capabilities) -> io::Result<()> {
    let mut sets = rustix::thread::capabilities(None)?;
    sets.effective &= CapabilitySet::from_bits_retain(kept.0);
    Ok(rustix::thread::set_capabilities(None, sets)?)
}

/// Becomes another user with exactly these groups, and keeps the permitted capabilities, which the kernel would else
/// take away from a user other than 0.
///
/// # Errors
/// EPERM without CAP_SETUID and CAP_SETGID.
pub fn become_user(uid: u32, gid: u32, groups: &[u32]) -> io::Result<()> {
    let groups: Vec<_> = groups.iter().map(|gid| rustix::process::Gid::from_raw(*gid)).collect();
    rustix::thread::set_thread_groups(&groups)?;
    rustix::thread::set_keep_capabilities(true)?;
    let gid = rustix::process::Gid::from_raw(gid);
    rustix::thread::set_thread_res_gid(gid, gid, gid)?;
    let uid = rustix::process::Uid::from_raw(uid);
    rustix::thread::set_thread_res_uid(uid, uid, uid)?;
    rustix::thread::set_keep_capabilities(false)?;
    // A change of user id empties the effective set even when the permitted one is kept.
    let mut sets = rustix::thread::capabilities(None)?;
    sets.effective = sets.permitted;
    rustix::thread::set_capabilities(None, sets)?;
    Ok(())
}

/// Drops all supplementary groups.
///
/// # Errors
/// EPERM without CAP_SETGID.
pub fn drop_groups() -> io::Result<()> {
    Ok(rustix::thread::set_thread_groups(&[])?)
}

/// From now on, execve gives no privileges that the process does not have.
///
/// # Errors
/// None on kernels since 3.5.
pub fn set_no_new_privs() -> io::Result<()> {
    Ok(rustix::thread::set_no_new_privs(true)?)
}
