//! What programs this machine runs.
#![expect(unsafe_code, reason = "personality(2) has no safe wrapper")]

/// The kernel's name for the machine, such as `aarch64` or `x86_64`.
#[must_use]
pub fn name() -> String {
    rustix::system::uname().machine().to_string_lossy().into_owned()
}

/// Whether a 64-bit ARM kernel also runs 32-bit ARM programs. Some cores cannot, and some kernels are built without.
///
/// The kernel is asked by the very call that a 32-bit program's loader depends on: without support it refuses
/// PER_LINUX32. The personality of the calling thread is put back.
#[must_use]
pub fn runs_arm32() -> bool {
    const ASK: libc::c_ulong = 0xffff_ffff;
    const LINUX32: libc::c_ulong = 8;
    // SAFETY: personality takes a number, touches no memory of ours, and changes this thread only.
    let before = unsafe { libc::personality(ASK) };
    let Ok(before) = libc::c_ulong::try_from(before) else {
        return false;
    };
    // SAFETY: as above.
    let supported = unsafe { libc::personality(LINUX32) } >= 0;
    // SAFETY: as above; `before` is what the kernel gave.
    unsafe { libc::personality(before) };
    supported
}
