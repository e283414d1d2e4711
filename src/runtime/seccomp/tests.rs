//! The compiler against libseccomp's own, and the profile against what it promises. Programs run in an interpreter.

use super::numbers::{Arch, X32_BIT};
use super::{CompileError, compile, default_profile};
use crate::runtime::capability;
use crate::sys::privileges::Capabilities;
use crate::sys::seccomp::Filter;
use libseccomp::{ScmpAction, ScmpArch, ScmpArgCompare, ScmpCompareOp, ScmpFilterContext, ScmpSyscall};
use oci_spec::runtime::{LinuxSeccomp, LinuxSeccompAction, LinuxSeccompOperator};
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

#[test]
fn every_name_is_a_system_call() {
    /// Younger than the oldest libseccomp that armlet is built with on a developer's machine.
    const YOUNG: &[&str] = &[
        "cachestat",
        "fchmodat2",
        "futex_requeue",
        "futex_wait",
        "futex_wake",
        "getxattrat",
        "listmount",
        "listxattrat",
        "lsm_get_self_attr",
        "lsm_list_modules",
        "lsm_set_self_attr",
        "map_shadow_stack",
        "mseal",
        "removexattrat",
        "setxattrat",
        "statmount",
        "uretprobe",
        "set_mempolicy_home_node",
    ];
    let (profile, _) = for_everywhere(capability::ALL);
    let names = profile.syscalls().iter().flatten().flat_map(|rule| rule.names());
    for name in names.filter(|name| !YOUNG.contains(&name.as_str())) {
        assert!(ARCHITECTURES.iter().any(|arch| arch.number(name).is_some()), "{name}");
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
