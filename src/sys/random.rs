//! Random numbers from the kernel.

use rustix::rand::{GetRandomFlags, getrandom};

/// A number that nobody can guess. While the kernel is still gathering entropy, early in a boot, what it has must do:
/// these numbers keep names apart, they guard no secret.
#[must_use]
pub fn u64() -> u64 {
    let mut bytes = [0u8; 8];
    for flags in [GetRandomFlags::NONBLOCK, GetRandomFlags::INSECURE] {
        if getrandom(&mut bytes, flags) == Ok(bytes.len()) {
            break;
        }
    }
    u64::from_ne_bytes(bytes)
}
