//! Loading a system call filter.

#![expect(unsafe_code, reason = "seccomp(2) has no safe wrapper")]

use std::io;

/// One classic BPF instruction (`struct sock_filter`, linux/filter.h).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(C)]
pub struct Filter {
    /// Operation.
    pub code: u16,
    /// Instructions to skip when a comparison holds.
    pub jump_true: u8,
    /// Instructions to skip when it does not.
    pub jump_false: u8,
    /// Constant.
    pub k: u32,
}

#[repr(C)]
struct Program {
    length: u16,
    instructions: *const Filter,
}

const SECCOMP_SET_MODE_FILTER: libc::c_uint = 1;

/// Puts the calling thread, and all that it will execute, under a filter. It cannot be taken away again.
///
/// # Errors
/// What the kernel says: EACCES without no_new_privs or CAP_SYS_ADMIN, EINVAL for a program that does not verify.
pub fn load(program: &[Filter], flags: u32) -> io::Result<()> {
    let length = u16::try_from(program.len()).map_err(|_| io::Error::from_raw_os_error(libc::E2BIG))?;
    let program = Program { length, instructions: program.as_ptr() };
    // SAFETY: `program` is a struct sock_fprog that points to `length` instructions; both outlive the call, and the
    // kernel only reads them.
    let result = unsafe { libc::syscall(libc::SYS_seccomp, SECCOMP_SET_MODE_FILTER, flags, &raw const program) };
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}
