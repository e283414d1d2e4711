//! The only place where clocks are read.
#![expect(unsafe_code, reason = "adjtimex(2) has no safe wrapper")]

use crate::model::time::{BootTime, Now, WallTime};
use rustix::time::{ClockId, clock_gettime};

/// Both clocks, read one after the other.
#[must_use]
pub fn now() -> Now {
    let boot = clock_gettime(ClockId::Boottime);
    let wall = clock_gettime(ClockId::Realtime);
    let boot_ms = boot.tv_sec.saturating_mul(1000).saturating_add(boot.tv_nsec / 1_000_000);
    Now {
        boot: BootTime(u64::try_from(boot_ms).unwrap_or(0)),
        wall: WallTime(wall.tv_sec.saturating_mul(1_000_000_000).saturating_add(wall.tv_nsec)),
    }
}

/// Whether something keeps the wall clock right (`STA_UNSYNC` of adjtimex(2)); none when the kernel does not say.
#[must_use]
pub fn synchronised() -> Option<bool> {
    let mut state = std::mem::MaybeUninit::<libc::timex>::zeroed();
    // SAFETY: all zero is a valid timex: with no modes set the kernel changes nothing and fills it in.
    let answer = unsafe { libc::adjtimex(state.as_mut_ptr()) };
    if answer < 0 {
        return None;
    }
    // SAFETY: as above.
    let state = unsafe { state.assume_init() };
    Some(state.status & libc::STA_UNSYNC == 0)
}
