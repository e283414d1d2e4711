//! From an OCI profile to classic BPF.

use super::numbers::{ARM_PRIVATE, Arch, X32_BIT};
use crate::sys::seccomp::Filter;
use oci_spec::runtime::{LinuxSeccomp, LinuxSeccompAction, LinuxSeccompArg, LinuxSeccompOperator};
use std::collections::{BTreeMap, BTreeSet};

/// A profile that cannot be enforced. A container that asks for it does not start.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum CompileError {
    /// An action that needs somebody to answer for the program.
    #[error("seccomp action {0:?} is not supported")]
    Action(LinuxSeccompAction),
    /// An architecture that no armlet node runs.
    #[error("seccomp architecture {0:?} is not supported")]
    Architecture(oci_spec::runtime::Arch),
    /// An argument beyond the sixth.
    #[error("seccomp profile compares argument {0} of a system call, which has six")]
    Argument(usize),
    /// An errno that does not fit.
    #[error("seccomp errno {0} is not below 4096")]
    Errno(u32),
    /// The kernel takes 4096 instructions.
    #[error("seccomp profile needs {0} instructions, the kernel takes 4096")]
    TooLong(usize),
}

const LOAD: u16 = 0x20;
const AND: u16 = 0x54;
const JUMP: u16 = 0x05;
const JUMP_EQUAL: u16 = 0x15;
const JUMP_GREATER: u16 = 0x25;
const JUMP_NOT_BELOW: u16 = 0x35;
const RETURN: u16 = 0x06;

const NUMBER: u32 = 0;
const ARCHITECTURE: u32 = 4;
const ARGUMENTS: u32 = 16;

const ERRNO: u32 = 0x0005_0000;
const KILL_PROCESS: u32 = 0x8000_0000;
const NO_SUCH_CALL: u32 = ERRNO | libc::ENOSYS.cast_unsigned();
const MAX_INSTRUCTIONS: usize = 4096;

const fn step(code: u16, k: u32) -> Filter {
    Filter { code, jump_true: 0, jump_false: 0, k }
}

/// What happens to one system call: the first rule whose conditions all hold, else `otherwise`.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Verdict {
    rules: Vec<(Vec<LinuxSeccompArg>, u32)>,
    otherwise: u32,
}

/// Makes the kernel's program. Calls with numbers above all that the profile names are newer than the profile: they
/// answer ENOSYS, so that programs fall back, unless the profile allows what it does not name. Calls of an
/// architecture that the profile does not list kill the process.
///
/// # Errors
/// [`CompileError`]; nothing is left out of a profile silently, except names that the architecture does not have.
pub fn compile(profile: &LinuxSeccomp) -> Result<Vec<Filter>, CompileError> {
    let default = action(profile.default_action(), profile.default_errno_ret())?;
    let mut trees: BTreeMap<u32, Vec<(u32, Verdict)>> = BTreeMap::new();
    let mut tables: BTreeMap<u32, BTreeMap<u32, Verdict>> = BTreeMap::new();
    let mut newest: BTreeMap<u32, BTreeSet<u32>> = BTreeMap::new();
    for arch in architectures(profile)? {
        let (table, highest) = table(profile, arch, default)?;
        tables.entry(arch.audit()).or_default().extend(table);
        newest.entry(arch.audit()).or_default().extend(highest);
    }
    for (audit, table) in tables {
        let newest = newest.remove(&audit).unwrap_or_default();
        trees.insert(audit, ranges(&table, &newest, default));
    }
    let mut program = vec![step(LOAD, ARCHITECTURE)];
    for (audit, ranges) in &trees {
        let body = [vec![step(LOAD, NUMBER)], search(ranges)].concat();
        program.push(Filter { jump_true: 1, ..step(JUMP_EQUAL, *audit) });
        program.push(step(JUMP, length(&body)));
        program.extend(body);
    }
    program.push(step(RETURN, KILL_PROCESS));
    if program.len() > MAX_INSTRUCTIONS {
        return Err(CompileError::TooLong(program.len()));
    }
    Ok(program)
}

fn length(steps: &[Filter]) -> u32 {
    u32::try_from(steps.len()).unwrap_or(u32::MAX)
}

fn architectures(profile: &LinuxSeccomp) -> Result<Vec<Arch>, CompileError> {
    let Some(named) = profile.architectures() else { return Ok(Arch::NATIVE.to_vec()) };
    named.iter().map(|arch| Arch::from_oci(*arch).ok_or(CompileError::Architecture(*arch))).collect()
}

fn action(action: LinuxSeccompAction, errno: Option<u32>) -> Result<u32, CompileError> {
    let errno = errno.unwrap_or(libc::EPERM.cast_unsigned());
    if errno >= 4096 {
        return Err(CompileError::Errno(errno));
    }
    Ok(match action {
        LinuxSeccompAction::ScmpActKill | LinuxSeccompAction::ScmpActKillThread => 0,
        LinuxSeccompAction::ScmpActKillProcess => KILL_PROCESS,
        LinuxSeccompAction::ScmpActTrap => 0x0003_0000,
        LinuxSeccompAction::ScmpActErrno => ERRNO | errno,
        LinuxSeccompAction::ScmpActTrace => 0x7ff0_0000 | errno,
        LinuxSeccompAction::ScmpActLog => 0x7ffc_0000,
        LinuxSeccompAction::ScmpActAllow => 0x7fff_0000,
        LinuxSeccompAction::ScmpActNotify => return Err(CompileError::Action(action)),
    })
}

type Table = BTreeMap<u32, Verdict>;

/// The profile for one architecture: verdicts by number, and where the numbers that it knows end.
fn table(profile: &LinuxSeccomp, arch: Arch, default: u32) -> Result<(Table, Option<u32>), CompileError> {
    let mut table = Table::new();
    let mut highest = None;
    for rule in profile.syscalls().iter().flatten() {
        let result = action(rule.action(), rule.errno_ret())?;
        let conditions = alternatives(rule.args().as_deref().unwrap_or_default())?;
        for number in rule.names().iter().filter_map(|name| arch.number(name)) {
            if number & !X32_BIT < ARM_PRIVATE {
                highest = highest.max(Some(number));
            }
            let verdict = table.entry(number).or_insert(Verdict { rules: Vec::new(), otherwise: default });
            for condition in &conditions {
                if condition.is_empty() {
                    verdict.otherwise = result;
                } else {
                    verdict.rules.push((condition.clone(), result));
                }
            }
        }
    }
    Ok((table, highest))
}

/// Conditions on different arguments must all hold; several on the same argument are alternatives (as in runc).
fn alternatives(args: &[LinuxSeccompArg]) -> Result<Vec<Vec<LinuxSeccompArg>>, CompileError> {
    if let Some(arg) = args.iter().find(|arg| arg.index() > 5) {
        return Err(CompileError::Argument(arg.index()));
    }
    let places: BTreeSet<usize> = args.iter().map(LinuxSeccompArg::index).collect();
    Ok(if places.len() == args.len() { vec![args.to_vec()] } else { args.iter().map(|arg| vec![*arg]).collect() })
}

/// Ranges of numbers with one verdict each, from 0 to the end, by their first number.
fn ranges(table: &Table, newest: &BTreeSet<u32>, default: u32) -> Vec<(u32, Verdict)> {
    let plain = |otherwise| Verdict { rules: Vec::new(), otherwise };
    let beyond = if default & 0xffff_0000 == ERRNO { NO_SUCH_CALL } else { default };
    // Where the verdict may change: at a known number, behind it, and at the ends of what is known.
    let mut edges = BTreeSet::from([0]);
    edges.extend(table.keys().flat_map(|number| [*number, number.saturating_add(1)]));
    edges.extend(newest.iter().map(|number| number.saturating_add(1)));
    edges.insert(X32_BIT);
    let known_end = |number: u32| newest.iter().find(|end| (number ^ **end) & X32_BIT == 0).copied();
    let mut ranges: Vec<(u32, Verdict)> = Vec::new();
    for number in edges {
        let verdict = match table.get(&number) {
            Some(verdict) => verdict.clone(),
            None if known_end(number).is_some_and(|end| number <= end) => plain(default),
            None => plain(beyond),
        };
        if ranges.last().is_none_or(|(_, last)| *last != verdict) {
            ranges.push((number, verdict));
        }
    }
    ranges
}

/// A binary search for the range that the loaded number lies in.
fn search(ranges: &[(u32, Verdict)]) -> Vec<Filter> {
    if let [(_, verdict)] = ranges {
        return decide(verdict);
    }
    let (below, above) = ranges.split_at(ranges.len() / 2);
    let Some((first, _)) = above.first() else { return Vec::new() };
    let (first, below, above) = (*first, search(below), search(above));
    let mut steps = match u8::try_from(below.len()) {
        Ok(skip) => vec![Filter { jump_true: skip, ..step(JUMP_NOT_BELOW, first) }],
        Err(_) => vec![Filter { jump_false: 1, ..step(JUMP_NOT_BELOW, first) }, step(JUMP, length(&below))],
    };
    steps.extend(below);
    steps.extend(above);
    steps
}

fn decide(verdict: &Verdict) -> Vec<Filter> {
    let mut steps = Vec::new();
    for (conditions, result) in &verdict.rules {
        let mut block = vec![step(RETURN, *result)];
        for condition in conditions.iter().rev() {
            block = [compare(condition, length(&block)), block].concat();
        }
        steps.extend(block);
    }
    steps.push(step(RETURN, verdict.otherwise));
    steps
}

const fn halves(value: u64) -> (u32, u32) {
    let [a, b, c, d, e, f, g, h] = value.to_le_bytes();
    (u32::from_le_bytes([e, f, g, h]), u32::from_le_bytes([a, b, c, d]))
}

/// Goes on when the condition holds, else skips `rest` more instructions. Arguments are 64 bits, compared by halves.
fn compare(condition: &LinuxSeccompArg, rest: u32) -> Vec<Filter> {
    let low_half = ARGUMENTS + 8 * u32::try_from(condition.index()).unwrap_or_default();
    let (mask, want) = match condition.op() {
        LinuxSeccompOperator::ScmpCmpMaskedEq => (condition.value(), condition.value_two().unwrap_or_default()),
        _ => (u64::MAX, condition.value()),
    };
    let ((mask_high, mask_low), (high, low)) = (halves(mask), halves(want));
    let load = |offset: u32, mask: u32| -> Vec<Filter> {
        let masked = (mask != u32::MAX).then(|| step(AND, mask));
        [step(LOAD, offset)].into_iter().chain(masked).collect()
    };
    let (load_high, load_low) = (load(low_half + 4, mask_high), load(low_half, mask_low));
    // The end of the block: fall through into the answer, or jump over it.
    let holds_if = |jump: Filter, on_true: bool| {
        let (jump_true, jump_false) = if on_true { (1, 0) } else { (0, 1) };
        vec![Filter { jump_true, jump_false, ..jump }, step(JUMP, rest)]
    };
    let low_test = match condition.op() {
        LinuxSeccompOperator::ScmpCmpEq | LinuxSeccompOperator::ScmpCmpMaskedEq => {
            holds_if(step(JUMP_EQUAL, low), true)
        }
        LinuxSeccompOperator::ScmpCmpNe => holds_if(step(JUMP_EQUAL, low), false),
        LinuxSeccompOperator::ScmpCmpGt => holds_if(step(JUMP_GREATER, low), true),
        LinuxSeccompOperator::ScmpCmpLe => holds_if(step(JUMP_GREATER, low), false),
        LinuxSeccompOperator::ScmpCmpGe => holds_if(step(JUMP_NOT_BELOW, low), true),
        LinuxSeccompOperator::ScmpCmpLt => holds_if(step(JUMP_NOT_BELOW, low), false),
    };
    let low_part = [load_low, low_test].concat();
    let to_end = length(&low_part);
    // The high half decides unless it is equal; then the low half does.
    let high_test = match condition.op() {
        LinuxSeccompOperator::ScmpCmpEq | LinuxSeccompOperator::ScmpCmpMaskedEq => {
            vec![Filter { jump_true: 1, ..step(JUMP_EQUAL, high) }, step(JUMP, to_end + rest)]
        }
        LinuxSeccompOperator::ScmpCmpNe => {
            vec![Filter { jump_true: 1, ..step(JUMP_EQUAL, high) }, step(JUMP, to_end)]
        }
        LinuxSeccompOperator::ScmpCmpGt | LinuxSeccompOperator::ScmpCmpGe => vec![
            Filter { jump_false: 1, ..step(JUMP_GREATER, high) },
            step(JUMP, to_end + 2),
            Filter { jump_true: 1, ..step(JUMP_EQUAL, high) },
            step(JUMP, to_end + rest),
        ],
        LinuxSeccompOperator::ScmpCmpLt | LinuxSeccompOperator::ScmpCmpLe => vec![
            Filter { jump_true: 1, ..step(JUMP_NOT_BELOW, high) },
            step(JUMP, to_end + 2),
            Filter { jump_true: 1, ..step(JUMP_EQUAL, high) },
            step(JUMP, to_end + rest),
        ],
    };
    [load_high, high_test, low_part].concat()
}
