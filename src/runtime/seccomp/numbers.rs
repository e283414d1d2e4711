//! System call numbers by architecture.

use libseccomp::{ScmpArch, ScmpSyscall};
use oci_spec::runtime::Arch as OciArch;

/// An architecture whose programs an armlet node can run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Arch {
    /// 64-bit ARM.
    Aarch64,
    /// 32-bit ARM (EABI).
    Arm,
    /// 64-bit x86.
    X8664,
    /// 32-bit x86.
    X86,
    /// x86-64 with 32-bit pointers: shares the kernel's name for x86-64, with numbers from [`X32_BIT`] on.
    X32,
}

/// Set in every x32 system call number.
pub(super) const X32_BIT: u32 = 0x4000_0000;

/// First of the numbers that 32-bit ARM keeps for itself (`cacheflush`, `set_tls`).
pub(super) const ARM_PRIVATE: u32 = 0x000f_0000;

impl Arch {
    /// The architectures of programs that this build's kernel runs.
    pub const NATIVE: &'static [Self] =
        if cfg!(target_arch = "aarch64") { &[Self::Aarch64, Self::Arm] } else { &[Self::X8664, Self::X86, Self::X32] };

    /// The OCI name's meaning here; `None` for one that no armlet node runs.
    pub(super) const fn from_oci(arch: OciArch) -> Option<Self> {
        Some(match arch {
            OciArch::ScmpArchAarch64 => Self::Aarch64,
            OciArch::ScmpArchArm => Self::Arm,
            OciArch::ScmpArchX86_64 => Self::X8664,
            OciArch::ScmpArchX86 => Self::X86,
            OciArch::ScmpArchX32 => Self::X32,
            OciArch::ScmpArchNative => Self::NATIVE[0],
            _ => return None,
        })
    }

    /// The OCI name.
    #[must_use]
    pub const fn to_oci(self) -> OciArch {
        match self {
            Self::Aarch64 => OciArch::ScmpArchAarch64,
            Self::Arm => OciArch::ScmpArchArm,
            Self::X8664 => OciArch::ScmpArchX86_64,
            Self::X86 => OciArch::ScmpArchX86,
            Self::X32 => OciArch::ScmpArchX32,
        }
    }

    /// `AUDIT_ARCH_*` (linux/audit.h): what the kernel calls it in a filter's input.
    pub(super) const fn audit(self) -> u32 {
        match self {
            Self::Aarch64 => 0xc000_00b7,
            Self::Arm => 0x4000_0028,
            Self::X8664 | Self::X32 => 0xc000_003e,
            Self::X86 => 0x4000_0003,
        }
    }

    const fn libseccomp(self) -> ScmpArch {
        match self {
            Self::Aarch64 => ScmpArch::Aarch64,
            Self::Arm => ScmpArch::Arm,
            Self::X8664 => ScmpArch::X8664,
            Self::X86 => ScmpArch::X86,
            Self::X32 => ScmpArch::X32,
        }
    }

    /// A system call's number; `None` when the architecture has none of that name, or libseccomp does not know it.
    #[must_use]
    pub fn number(self, name: &str) -> Option<u32> {
        let number = ScmpSyscall::from_name_by_arch(name, self.libseccomp()).ok()?;
        // libseccomp gives negative numbers to calls that exist on other architectures only, and on 32-bit x86 to those
        // that once were `socketcall` and `ipc`.
        let direct = || X86_DIRECT.iter().find(|(known, _)| self == Self::X86 && *known == name);
        u32::try_from(number.as_raw_syscall()).ok().or_else(|| direct().map(|(_, number)| *number))
    }
}

/// Numbers of 32-bit x86 (arch/x86/entry/syscalls/syscall_32.tbl) that libseccomp keeps to itself.
const X86_DIRECT: &[(&str, u32)] = &[
    ("recvmmsg", 337),
    ("sendmmsg", 345),
    ("socket", 359),
    ("socketpair", 360),
    ("bind", 361),
    ("connect", 362),
    ("listen", 363),
    ("accept4", 364),
    ("getsockopt", 365),
    ("setsockopt", 366),
    ("getsockname", 367),
    ("getpeername", 368),
    ("sendto", 369),
    ("sendmsg", 370),
    ("recvfrom", 371),
    ("recvmsg", 372),
    ("shutdown", 373),
    ("semget", 393),
    ("semctl", 394),
    ("shmget", 395),
    ("shmctl", 396),
    ("shmat", 397),
    ("shmdt", 398),
    ("msgget", 399),
    ("msgsnd", 400),
    ("msgrcv", 401),
    ("msgctl", 402),
];
