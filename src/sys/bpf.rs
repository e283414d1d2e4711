//! Device programs for cgroup v2: loading and attaching eBPF with the raw system call.
//!
//! cgroup v2 has no `devices.allow` file: a program of type `BPF_PROG_TYPE_CGROUP_DEVICE` that is attached to the
//! group answers each `mknod` and `open` of a device node (Linux: Documentation/admin-guide/cgroup-v2.rst, "Device
//! controller"). No C library is needed for that.

#![expect(unsafe_code, reason = "bpf(2) has no safe wrapper")]

use std::io;
use std::os::fd::{AsFd, AsRawFd, FromRawFd, OwnedFd, RawFd};

/// One eBPF instruction (`struct bpf_insn`, linux/bpf.h).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(C)]
pub struct Insn {
    /// Operation.
    pub code: u8,
    /// Destination register in the low half, source register in the high half.
    pub registers: u8,
    /// Jump or memory offset.
    pub offset: i16,
    /// Constant.
    pub constant: i32,
}

const BPF_PROG_LOAD: libc::c_int = 5;
const BPF_PROG_ATTACH: libc::c_int = 8;
const BPF_PROG_TYPE_CGROUP_DEVICE: u32 = 15;
const BPF_CGROUP_DEVICE: u32 = 6;
const BPF_F_ALLOW_MULTI: u32 = 2;

/// The part of `union bpf_attr` that `BPF_PROG_LOAD` reads here; the kernel takes missing fields as zero.
#[repr(C)]
struct LoadAttr {
    program_type: u32,
    instruction_count: u32,
    instructions: u64,
    license: u64,
    log_level: u32,
    log_size: u32,
    log_buffer: u64,
    kernel_version: u32,
    program_flags: u32,
    program_name: [u8; 16],
}

/// The part of `union bpf_attr` that `BPF_PROG_ATTACH` reads here.
#[repr(C)]
struct AttachAttr {
    target_fd: u32,
    program_fd: u32,
    attach_type: u32,
    attach_flags: u32,
}

fn fd_number(fd: RawFd) -> io::Result<u32> {
    u32::try_from(fd).map_err(|_| io::Error::from_raw_os_error(libc::EBADF))
}

/// Loads a device program. The kernel checks it.
///
/// # Errors
/// What the kernel says: EPERM without CAP_BPF and CAP_NET_ADMIN or CAP_SYS_ADMIN, EINVAL or EACCES for a program that
/// does not verify, ENOSYS on a kernel without CONFIG_BPF_SYSCALL.
pub fn load_device_program(program: &[Insn]) -> io::Result<OwnedFd> {
    const LICENSE: &[u8; 11] = b"Apache-2.0\0";
    let count = u32::try_from(program.len()).map_err(|_| io::Error::from_raw_os_error(libc::E2BIG))?;
    let mut program_name = [0; 16];
    program_name[..14].copy_from_slice(b"armlet_devices");
    let attr = LoadAttr {
        program_type: BPF_PROG_TYPE_CGROUP_DEVICE,
        instruction_count: count,
        instructions: program.as_ptr() as u64,
        license: LICENSE.as_ptr() as u64,
        log_level: 0,
        log_size: 0,
        log_buffer: 0,
        kernel_version: 0,
        program_flags: 0,
        program_name,
    };
    // SAFETY: `attr` is a prefix of union bpf_attr of the size given, and the two buffers that it points to outlive
    // the call; the kernel only reads them.
    let fd = unsafe { libc::syscall(libc::SYS_bpf, BPF_PROG_LOAD, &raw const attr, size_of::<LoadAttr>()) };
    if fd < 0 {
        return Err(io::Error::last_os_error());
    }
    let fd = RawFd::try_from(fd).map_err(|_| io::Error::from_raw_os_error(libc::EBADF))?;
    // SAFETY: the kernel has just made this descriptor (close-on-exec) and nobody else knows it.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

/// Attaches a device program to a cgroup v2 directory, beside those that are there. The group holds it from now on.
///
/// # Errors
/// What the kernel says: EBADF for another kind of file, EINVAL on a kernel without CONFIG_CGROUP_BPF.
pub fn attach_device_program(cgroup: impl AsFd, program: impl AsFd) -> io::Result<()> {
    let attr = AttachAttr {
        target_fd: fd_number(cgroup.as_fd().as_raw_fd())?,
        program_fd: fd_number(program.as_fd().as_raw_fd())?,
        attach_type: BPF_CGROUP_DEVICE,
        attach_flags: BPF_F_ALLOW_MULTI,
    };
    // SAFETY: `attr` is a prefix of union bpf_attr of the size given; the kernel only reads it.
    let result = unsafe { libc::syscall(libc::SYS_bpf, BPF_PROG_ATTACH, &raw const attr, size_of::<AttachAttr>()) };
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}
