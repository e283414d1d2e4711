//! The compiler against libseccomp's own, and the profile against what it promises. Programs run in an interpreter.

use super::numbers::{Arch, X32_BIT};
use super::{CompileError, compile, default_profile};
use crate::runtime::capability;
use crate::sys::privileges::Capabilities;
use crate::sys::seccomp::Filter;
use libseccomp::{ScmpAction, ScmpArch, ScmpArgCompare, ScmpCompareOp, ScmpFilterContext, ScmpSyscall};
use oci_spec::runtime::{LinuxSeccomp, LinuxSeccompAction, LinuxSeccompOperator};
use std::collections::BTreeSet;
use std::io::{Read, Seek};

const ALLOW: u32 = 0x7fff_0000;
const EPERM: u32 = 0x0005_0001;
const ENOSYS: u32 = 0x0005_0026;
const KILL_PROCESS: u32 = 0x8000_0000;

const ARCHITECTURES: [Arch; 5] = [Arch::Aarch64, Arch::Arm, Arch::X8664, Arch::X86, Arch::X32];

/// Runs a program on `struct seccomp_data`, as the kernel does.
fn run(program: &[Filter], audit: u32, number: u32, args: [u64; 6]) -> u32 {
    let mut data = [number, audit, 0, 0].map(u32::to_le_bytes).concat();
    data.extend(args.iter().flat_map(|arg| arg.to_le_bytes()));
    let (mut accumulator, mut at) = (0_u32, 0_usize);
    loop {
        let step = program[at];
        at += 1;
        let mut jump = |holds: bool| at += usize::from(if holds { step.jump_true } else { step.jump_false });
        match step.code {
            0x20 => {
                let from = step.k as usize;
                accumulator = u32::from_le_bytes(data[from..from + 4].try_into().unwrap());
            }
            0x54 => accumulator &= step.k,
            0x05 => at += step.k as usize,
            0x15 => jump(accumulator == step.k),
            0x25 => jump(accumulator > step.k),
            0x35 => jump(accumulator >= step.k),
            0x06 => return step.k,
            other => panic!("instruction {other:#x}"),
        }
    }
}

fn call(program: &[Filter], arch: Arch, name: &str, args: [u64; 6]) -> u32 {
    run(program, arch.audit(), arch.number(name).unwrap(), args)
}

fn for_everywhere(capabilities: Capabilities) -> (LinuxSeccomp, Vec<Filter>) {
    let mut profile = default_profile(capabilities);
    profile.set_architectures(Some(ARCHITECTURES.map(Arch::to_oci).to_vec()));
    let program = compile(&profile).unwrap();
    (profile, program)
}

fn container() -> Capabilities {
    capability::container(&[], &[]).unwrap()
}

/// The program that libseccomp makes of a profile.
fn by_libseccomp(profile: &LinuxSeccomp) -> Vec<Filter> {
    let action = |action: LinuxSeccompAction, errno: Option<u32>| match action {
        LinuxSeccompAction::ScmpActAllow => ScmpAction::Allow,
        LinuxSeccompAction::ScmpActErrno => ScmpAction::Errno(errno.unwrap_or(1).try_into().unwrap()),
        other => panic!("{other:?}"),
    };
    let mut context = ScmpFilterContext::new(action(profile.default_action(), profile.default_errno_ret())).unwrap();
    context.set_act_badarch(ScmpAction::KillProcess).unwrap();
    context.remove_arch(ScmpArch::native()).unwrap();
    for arch in [ScmpArch::Aarch64, ScmpArch::Arm, ScmpArch::X8664, ScmpArch::X86, ScmpArch::X32] {
        context.add_arch(arch).unwrap();
    }
    for rule in profile.syscalls().iter().flatten() {
        let args: Vec<ScmpArgCompare> = rule
            .args()
            .iter()
            .flatten()
            .map(|arg| {
                let (op, value) = match arg.op() {
                    LinuxSeccompOperator::ScmpCmpEq => (ScmpCompareOp::Equal, arg.value()),
                    LinuxSeccompOperator::ScmpCmpNe => (ScmpCompareOp::NotEqual, arg.value()),
                    LinuxSeccompOperator::ScmpCmpMaskedEq => {
                        (ScmpCompareOp::MaskedEqual(arg.value()), arg.value_two().unwrap())
                    }
                    other => panic!("{other:?}"),
                };
                ScmpArgCompare::new(arg.index().try_into().unwrap(), op, value)
            })
            .collect();
        for name in rule.names() {
            let Ok(number) = ScmpSyscall::from_name(name) else { continue };
            context.add_rule_conditional(action(rule.action(), rule.errno_ret()), number, &args).unwrap();
        }
    }
    let mut file = tempfile::tempfile().unwrap();
    context.export_bpf(&file).unwrap();
    file.rewind().unwrap();
    let mut bytes = Vec::new();
    file.read_to_end(&mut bytes).unwrap();
    let step = |bytes: &[u8]| Filter {
        code: u16::from_le_bytes([bytes[0], bytes[1]]),
        jump_true: bytes[2],
        jump_false: bytes[3],
        k: u32::from_le_bytes(bytes[4..8].try_into().unwrap()),
    };
    bytes.chunks_exact(8).map(step).collect()
}

#[test]
fn libseccomp_decides_the_same_for_every_call_that_is_known() {
    for capabilities in [container(), Capabilities::default(), capability::ALL] {
        let (profile, ours) = for_everywhere(capabilities);
        let theirs = by_libseccomp(&profile);
        for arch in ARCHITECTURES {
            let bit = if arch == Arch::X32 { X32_BIT } else { 0 };
            let known = profile.syscalls().iter().flatten().flat_map(|rule| rule.names());
            let highest = known.filter_map(|name| arch.number(name)).filter(|n| n & !X32_BIT < 0xf_0000).max().unwrap();
            for number in (0..700).map(|number| number | bit).chain((0xf_0000..0xf_0010).filter(|_| arch == Arch::Arm))
            {
                // A 32-bit program's arguments have 32 bits.
                let widest =
                    if matches!(arch, Arch::Arm | Arch::X86 | Arch::X32) { u64::from(u32::MAX) } else { u64::MAX };
                for first in [0, 1, 8, 40, 0x1000_0000, 0x2_0000, 0x2_0008, 0xffff_ffff, 1 << 32, widest] {
                    let first = first.min(widest);
                    let args = [first, 0, 0, 0, 0, 0];
                    let (our, their) =
                        (run(&ours, arch.audit(), number, args), run(&theirs, arch.audit(), number, args));
                    let newer = number > highest && our == ENOSYS && their == EPERM;
                    assert!(our == their || newer, "{arch:?} {number} ({first:#x}): {our:#x}, libseccomp {their:#x}");
                }
            }
        }
    }
}

#[test]
fn what_a_container_may_not_ask_for() {
    let (_, program) = for_everywhere(container());
    let none = [0; 6];
    for arch in [Arch::Aarch64, Arch::Arm, Arch::X8664] {
        for refused in [
            "mount",
            "reboot",
            "init_module",
            "bpf",
            "unshare",
            "setns",
            "keyctl",
            "add_key",
            "kexec_load",
            "userfaultfd",
            "perf_event_open",
            "open_by_handle_at",
            "clock_settime",
            "swapon",
            "io_uring_setup",
        ] {
            assert_eq!(call(&program, arch, refused, none), EPERM, "{arch:?} {refused}");
        }
        for allowed in ["read", "openat", "execve", "ptrace", "chroot", "mknodat", "prctl", "capset", "futex"] {
            assert_eq!(call(&program, arch, allowed, none), ALLOW, "{arch:?} {allowed}");
        }
        let clone = |flags| call(&program, arch, "clone", [flags, 0, 0, 0, 0, 0]);
        assert_eq!((clone(0x11), clone(0x1000_0011), clone(0x0002_0000)), (ALLOW, EPERM, EPERM));
        assert_eq!(call(&program, arch, "clone3", none), ENOSYS);
        let socket = |family| call(&program, arch, "socket", [family, 0, 0, 0, 0, 0]);
        assert_eq!((socket(2), socket(40), socket(10)), (ALLOW, EPERM, ALLOW));
        assert_eq!(run(&program, arch.audit(), 5000, none), ENOSYS, "newer than the profile");
        assert_eq!(run(&program, arch.audit(), u32::MAX, none), ENOSYS);
    }
    assert_eq!(run(&program, 0x1234, 0, none), KILL_PROCESS, "another architecture");
    for private in ["cacheflush", "set_tls"] {
        assert_eq!(call(&program, Arch::Arm, private, none), ALLOW, "{private}");
    }
}

#[test]
fn capabilities_bring_their_calls() {
    let all = for_everywhere(capability::ALL).1;
    for name in ["mount", "reboot", "init_module", "bpf", "unshare", "setns", "clone3", "clock_settime"] {
        assert_eq!(call(&all, Arch::Aarch64, name, [0; 6]), ALLOW, "{name}");
    }
    assert_eq!(call(&all, Arch::Aarch64, "clone", [0x1000_0000, 0, 0, 0, 0, 0]), ALLOW);
    let none = for_everywhere(Capabilities::default()).1;
    assert_eq!(call(&none, Arch::Aarch64, "chroot", [0; 6]), EPERM);
}

/// Names with their numbers, the same on every architecture, that are younger than the oldest libseccomp armlet is built
/// with on a developer's machine (2.5).
const YOUNG: &[(&str, u32)] = &[
    ("set_mempolicy_home_node", 450),
    ("cachestat", 451),
    ("fchmodat2", 452),
    ("map_shadow_stack", 453),
    ("futex_wake", 454),
    ("futex_wait", 455),
    ("futex_requeue", 456),
    ("statmount", 457),
    ("listmount", 458),
    ("lsm_get_self_attr", 459),
    ("lsm_set_self_attr", 460),
    ("lsm_list_modules", 461),
    ("mseal", 462),
    ("setxattrat", 463),
    ("getxattrat", 464),
    ("listxattrat", 465),
    ("removexattrat", 466),
];

/// The same, on x86-64 only.
const YOUNG_X86: (&str, u32) = ("uretprobe", 335);

#[test]
fn every_name_is_a_system_call() {
    let (profile, _) = for_everywhere(capability::ALL);
    let names: BTreeSet<&str> =
        profile.syscalls().iter().flatten().flat_map(|rule| rule.names()).map(String::as_str).collect();
    let known = |name: &str| ARCHITECTURES.iter().any(|arch| arch.number(name).is_some());
    let young = |name: &str| name == YOUNG_X86.0 || YOUNG.iter().any(|(young, _)| *young == name);
    // Where libseccomp is as young as they are (the guest's is), it has to know them.
    let all_known = libseccomp::check_version((2, 6, 0).into()).unwrap();
    for name in &names {
        assert!(known(name) || (young(name) && !all_known), "{name} is no system call");
    }
    for (name, number) in YOUNG.iter().copied() {
        assert!(names.contains(name), "{name} is excused and not used");
        for arch in [Arch::Aarch64, Arch::Arm, Arch::X8664, Arch::X86] {
            // map_shadow_stack, for one, is not everywhere.
            assert!(arch.number(name).is_none_or(|found| found == number), "{arch:?} {name}");
            let there = ScmpSyscall::from(number.cast_signed()).get_name_by_arch(scmp(arch));
            assert!(there.as_deref().is_ok_and(|there| there == name) || there.is_err(), "{arch:?} {number} {there:?}");
        }
    }
    assert!(Arch::X8664.number(YOUNG_X86.0).is_none_or(|number| number == YOUNG_X86.1));
}

fn scmp(arch: Arch) -> ScmpArch {
    match arch {
        Arch::Aarch64 => ScmpArch::Aarch64,
        Arch::Arm => ScmpArch::Arm,
        Arch::X8664 => ScmpArch::X8664,
        Arch::X86 => ScmpArch::X86,
        Arch::X32 => ScmpArch::X32,
    }
}

/// What a container is refused on every architecture that has it.
const REFUSED: &str = "\
    acct add_key bpf clock_settime clone3 delete_module fanotify_init finit_module fsconfig fsmount fsopen fspick \
    get_mempolicy init_module io_uring_enter io_uring_register io_uring_setup kcmp kexec_file_load kexec_load keyctl \
    lookup_dcookie lsm_set_self_attr mbind migrate_pages mount mount_setattr move_mount move_pages name_to_handle_at \
    nfsservctl open_by_handle_at open_tree perf_event_open pidfd_getfd pivot_root quotactl quotactl_fd reboot \
    request_key set_mempolicy set_mempolicy_home_node setdomainname sethostname setns settimeofday swapoff swapon \
    syslog umount2 unshare userfaultfd vhangup";
/// What else is refused on some: calls that only old programs make, or none any more.
const REFUSED_ON: &[(Arch, &str)] = &[
    (Arch::Aarch64, ""),
    (
        Arch::Arm,
        "_sysctl bdflush clock_settime64 pciconfig_iobase pciconfig_read pciconfig_write sysfs uselib ustat vserver \
         usr26 usr32",
    ),
    (
        Arch::X8664,
        "_sysctl afs_syscall create_module get_kernel_syms getpmsg ioperm iopl putpmsg query_module security sysfs \
         tuxcall uselib ustat vserver",
    ),
];

/// A name that is missing in the profile is found here: all that is refused is listed.
#[test]
fn nothing_else_is_refused() {
    let (_, program) = for_everywhere(container());
    for (arch, more) in REFUSED_ON {
        let listed: BTreeSet<&str> = REFUSED.split_whitespace().chain(more.split_whitespace()).collect();
        let numbers = (0..500).chain((0xf_0000..0xf_0010).filter(|_| *arch == Arch::Arm));
        let mut refused = BTreeSet::new();
        for number in numbers {
            let Ok(name) = ScmpSyscall::from(i32::try_from(number).unwrap()).get_name_by_arch(scmp(*arch)) else {
                continue;
            };
            if run(&program, arch.audit(), number, [0; 6]) != ALLOW {
                refused.insert(name);
            }
        }
        let refused: BTreeSet<&str> = refused.iter().map(String::as_str).collect();
        let missing: Vec<_> = refused.difference(&listed).collect();
        assert!(missing.is_empty(), "{arch:?} refuses {missing:?}");
        // A libseccomp that does not know a call yet cannot show that it is refused.
        let allowed: Vec<_> = listed.difference(&refused).filter(|name| arch.number(name).is_some()).collect();
        assert!(allowed.is_empty(), "{arch:?} allows {allowed:?}");
    }
}

fn profile(json: &str) -> Result<Vec<Filter>, CompileError> {
    let mut profile: LinuxSeccomp = serde_json::from_str(json).unwrap();
    profile.set_architectures(Some(vec![Arch::Aarch64.to_oci()]));
    compile(&profile)
}

/// Whether an argument satisfies a comparison with a value.
type Holds = fn(u64, u64) -> bool;

#[test]
fn every_comparison() {
    let edges = [0, 1, 7, 8, 9, 0xffff_ffff, 1 << 32, (1 << 32) + 7, (1 << 32) + 8, (1 << 32) + 9, 1 << 33, u64::MAX];
    for value in [8_u64, (1 << 32) + 8, 0, u64::MAX] {
        let tests: [(&str, Holds); 7] = [
            ("EQ", |arg, value| arg == value),
            ("NE", |arg, value| arg != value),
            ("LT", |arg, value| arg < value),
            ("LE", |arg, value| arg <= value),
            ("GT", |arg, value| arg > value),
            ("GE", |arg, value| arg >= value),
            ("MASKED_EQ", |arg, value| arg & value == 8),
        ];
        for (name, holds) in tests {
            let program = profile(&format!(
                r#"{{"defaultAction":"SCMP_ACT_ERRNO","syscalls":[{{"names":["read"],"action":"SCMP_ACT_ALLOW",
                "args":[{{"index":3,"value":{value},"valueTwo":8,"op":"SCMP_CMP_{name}"}}]}}]}}"#
            ))
            .unwrap();
            for arg in edges {
                let want = if holds(arg, value) { ALLOW } else { EPERM };
                let got = call(&program, Arch::Aarch64, "read", [0, 0, 0, arg, 0, 0]);
                assert_eq!(got, want, "{arg:#x} {name} {value:#x}");
            }
        }
    }
}

#[test]
fn conditions_on_several_arguments_and_on_one() {
    let rule = |first: usize, second: usize| {
        profile(&format!(
            r#"{{"defaultAction":"SCMP_ACT_ALLOW","syscalls":[{{"names":["read"],"action":"SCMP_ACT_KILL_PROCESS",
            "args":[{{"index":{first},"value":1,"op":"SCMP_CMP_EQ"}},{{"index":{second},"value":2,"op":"SCMP_CMP_EQ"}}]}}]}}"#
        ))
        .unwrap()
    };
    let read = |program: &[Filter], first, second| call(program, Arch::Aarch64, "read", [first, second, 0, 0, 0, 0]);
    let both = rule(0, 1);
    assert_eq!([read(&both, 1, 2), read(&both, 1, 1), read(&both, 2, 2)], [KILL_PROCESS, ALLOW, ALLOW]);
    let either = rule(0, 0);
    assert_eq!([read(&either, 1, 0), read(&either, 2, 0), read(&either, 3, 0)], [KILL_PROCESS, KILL_PROCESS, ALLOW]);
    assert_eq!(run(&both, Arch::Aarch64.audit(), 9000, [0; 6]), ALLOW, "a profile that allows goes on allowing");
}

#[test]
fn what_cannot_be_enforced_is_refused() {
    for (json, want) in [
        (r#"{"defaultAction":"SCMP_ACT_NOTIFY"}"#, CompileError::Action(LinuxSeccompAction::ScmpActNotify)),
        (r#"{"defaultAction":"SCMP_ACT_ERRNO","defaultErrnoRet":5000}"#, CompileError::Errno(5000)),
        (
            r#"{"defaultAction":"SCMP_ACT_ERRNO","syscalls":[{"names":["read"],"action":"SCMP_ACT_ALLOW",
            "args":[{"index":6,"value":1,"op":"SCMP_CMP_EQ"}]}]}"#,
            CompileError::Argument(6),
        ),
    ] {
        assert_eq!(profile(json), Err(want));
    }
    let mut foreign = default_profile(container());
    foreign.set_architectures(Some(vec![oci_spec::runtime::Arch::ScmpArchS390x]));
    assert!(matches!(compile(&foreign), Err(CompileError::Architecture(_))));
}

#[test]
fn the_program_is_short() {
    let program = for_everywhere(container()).1;
    assert!(program.len() < 1500, "{} instructions for five architectures", program.len());
}
