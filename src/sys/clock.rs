//! The only place where clocks are read.

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
