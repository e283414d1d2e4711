//! What a process keeps of its own binary, and how the kernel gives it memory.
#![expect(unsafe_code, reason = "madvise is unsafe in general")]

use std::io;

/// Asks for memory in plain pages only, for this process and what it executes.
///
/// Where huge pages are on for all, touching one byte of a large and mostly untouched allocation costs 2 MiB. sled makes
/// 42 of half a MiB each at its opening, which it then does not use: 22 MiB of nothing.
///
/// # Errors
/// Of prctl(2): a kernel without huge pages has none to forbid.
pub fn plain_pages_only() -> io::Result<()> {
    rustix::thread::disable_transparent_huge_pages(true).map_err(io::Error::from)
}

/// Sets how readily the kernel ends this process when memory is short: from -1000, never, to 1000, first.
///
/// # Errors
/// Of the write: less readily than now takes `CAP_SYS_RESOURCE`.
pub fn set_oom_score_adj(score: i32) -> io::Result<()> {
    std::fs::write("/proc/self/oom_score_adj", score.to_string())
}

/// The same for a child: what it does is worth less than this process.
///
/// # Errors
/// Of the write: there is no such process any more.
pub fn set_oom_score_adj_of(pid: u32, score: i32) -> io::Result<()> {
    std::fs::write(format!("/proc/{pid}/oom_score_adj"), score.to_string())
}

/// Lets go of the pages of the program's code that are mapped now. Code that is used again is mapped again from the
/// page cache, without reading a disk unless memory was short; code that only starting needed stays out.
pub fn forget_code() {
    let maps = std::fs::read_to_string("/proc/self/maps").unwrap_or_default();
    for (start, length) in maps.lines().filter_map(code_mapping) {
        // SAFETY: the mapping is private, of a file, executable and not writable: its pages hold what the file holds,
        // and the next access brings them back. Failure changes nothing.
        unsafe { libc::madvise(std::ptr::with_exposed_provenance_mut(start), length, libc::MADV_DONTNEED) };
    }
}

/// Start and length of a mapping of code from a file, by its line in `/proc/self/maps`.
fn code_mapping(line: &str) -> Option<(usize, usize)> {
    let mut words = line.split_ascii_whitespace();
    let (start, end) = words.next()?.split_once('-')?;
    let of_file = words.next()? == "r-xp" && words.nth(2)? != "0";
    let start = usize::from_str_radix(start, 16).ok()?;
    let length = usize::from_str_radix(end, 16).ok()?.checked_sub(start)?;
    of_file.then_some((start, length))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_code_of_a_file_is_let_go() {
        assert_eq!(code_mapping("00010000-00013000 r-xp 00000000 08:01 42    /sbin/armlet"), Some((0x10000, 0x3000)));
        for other in [
            "00010000-00013000 r--p 00000000 08:01 42    /sbin/armlet",
            "00010000-00013000 rwxp 00000000 08:01 42    /sbin/armlet",
            "ffff0000-ffff1000 r-xp 00000000 00:00 0     [vdso]",
            "",
            "x-y r-xp 0 0 1",
        ] {
            assert_eq!(code_mapping(other), None, "{other:?}");
        }
    }

    #[test]
    fn the_program_goes_on() {
        forget_code();
        assert_eq!("still".len(), 5);
    }
}
