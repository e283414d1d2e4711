//! Device rules and the eBPF program that enforces them. Pure.

use crate::sys::bpf::Insn;
use oci_spec::runtime::{LinuxDeviceCgroup, LinuxDeviceType};

/// Kinds of device node (`BPF_DEVCG_DEV_*`, linux/bpf.h).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// Block devices.
    Block,
    /// Character devices.
    Char,
}

/// What is done to a device node (`BPF_DEVCG_ACC_*`): a set of bits.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Access(pub u8);

impl Access {
    /// Make a node.
    pub const MKNOD: Self = Self(1);
    /// Open for reading.
    pub const READ: Self = Self(2);
    /// Open for writing.
    pub const WRITE: Self = Self(4);
    /// All three.
    pub const ALL: Self = Self(7);
}

/// One rule. The last one that matches decides; without any the access is refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Rule {
    /// Grant or refuse.
    pub allow: bool,
    /// Which kind; both when absent.
    pub kind: Option<Kind>,
    /// Major number; any when absent.
    pub major: Option<u32>,
    /// Minor number; any when absent.
    pub minor: Option<u32>,
    /// A grant matches what is within these bits; a refusal matches what has any of them.
    pub access: Access,
}

/// The rule of a container that was given nothing: the devices that every program expects, and making (but not
/// opening) of any other node, as unpacking an archive needs it.
#[must_use]
pub fn default_rules() -> Vec<Rule> {
    let node = |kind, major, minor| Rule { allow: true, kind: Some(kind), major, minor, access: Access::ALL };
    let make = |kind| Rule { access: Access::MKNOD, ..node(kind, None, None) };
    let mut rules = vec![
        Rule { allow: false, kind: None, major: None, minor: None, access: Access::ALL },
        make(Kind::Char),
        make(Kind::Block),
    ];
    // null, zero, full, random, urandom, tty, ptmx; the pseudo-terminals. Not console (5:1), which others give: a
    // container's `/dev/console` is a pseudo-terminal, and with that number it could stop the board's own.
    for (major, minor) in [(1, 3), (1, 5), (1, 7), (1, 8), (1, 9), (5, 0), (5, 2)] {
        rules.push(node(Kind::Char, Some(major), Some(minor)));
    }
    rules.push(node(Kind::Char, Some(136), None));
    rules
}

/// The rule of a privileged container.
#[must_use]
pub fn all_rules() -> Vec<Rule> {
    vec![Rule { allow: true, kind: None, major: None, minor: None, access: Access::ALL }]
}

/// Whether the rules refuse nothing, so that no program is needed.
#[must_use]
pub fn allow_everything(rules: &[Rule]) -> bool {
    rules.last().is_some_and(|rule| {
        rule.allow && rule.kind.is_none() && rule.major.is_none() && rule.minor.is_none() && rule.access == Access::ALL
    })
}

/// A device rule of an OCI spec that cannot be enforced.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("device rule {0} cannot be enforced")]
pub struct BadRule(String);

/// The rules of an OCI spec (`linux.resources.devices`).
///
/// # Errors
/// [`BadRule`] for a kind, number or access that means nothing.
pub fn from_oci(rules: &[LinuxDeviceCgroup]) -> Result<Vec<Rule>, BadRule> {
    rules.iter().map(one_from_oci).collect()
}

fn one_from_oci(rule: &LinuxDeviceCgroup) -> Result<Rule, BadRule> {
    let bad = || BadRule(rule.to_string());
    let kind = match rule.typ() {
        None | Some(LinuxDeviceType::A) => None,
        Some(LinuxDeviceType::B) => Some(Kind::Block),
        Some(LinuxDeviceType::C | LinuxDeviceType::U) => Some(Kind::Char),
        Some(LinuxDeviceType::P) => return Err(bad()),
    };
    let number = |number: Option<i64>| match number {
        None | Some(-1) => Ok(None),
        Some(number) => u32::try_from(number).map(Some).map_err(|_| bad()),
    };
    let mut access = 0;
    for letter in rule.access().as_deref().unwrap_or("rwm").chars() {
        access |= match letter {
            'r' => Access::READ.0,
            'w' => Access::WRITE.0,
            'm' => Access::MKNOD.0,
            _ => return Err(bad()),
        };
    }
    let (major, minor) = (number(rule.major())?, number(rule.minor())?);
    Ok(Rule { allow: rule.allow(), kind, major, minor, access: Access(access) })
}

// Registers: 0 the answer, 1 the context, 2 the kind, 3 the access, 4 major, 5 minor, 6 scratch.
const LOAD_WORD: u8 = 0x61;
const AND: u8 = 0x57;
const AND_REGISTER: u8 = 0x5f;
const SHIFT_RIGHT: u8 = 0x77;
const MOVE: u8 = 0xb7;
const MOVE_REGISTER: u8 = 0xbf;
// The jumps compare 32 bits, so that a constant is not sign-extended.
const JUMP_EQUAL: u8 = 0x16;
const JUMP_NOT_EQUAL: u8 = 0x56;
const EXIT: u8 = 0x95;

const fn insn(code: u8, to: u8, from: u8, offset: i16, constant: i32) -> Insn {
    Insn { code, registers: to | (from << 4), offset, constant }
}

/// The program for `struct bpf_cgroup_dev_ctx { u32 access_type; u32 major; u32 minor; }`: 1 lets the access pass, 0
/// makes it EPERM.
#[must_use]
pub fn compile(rules: &[Rule]) -> Vec<Insn> {
    let mut program = vec![
        insn(LOAD_WORD, 2, 1, 0, 0),
        insn(MOVE_REGISTER, 3, 2, 0, 0),
        insn(AND, 2, 0, 0, 0xffff),
        insn(SHIFT_RIGHT, 3, 0, 0, 16),
        insn(LOAD_WORD, 4, 1, 4, 0),
        insn(LOAD_WORD, 5, 1, 8, 0),
    ];
    // The last rule that matches decides: they are tried from the end.
    for rule in rules.iter().rev() {
        program.extend(block(rule));
    }
    program.extend(answer(false));
    program
}

fn answer(allow: bool) -> [Insn; 2] {
    [insn(MOVE, 0, 0, 0, i32::from(allow)), insn(EXIT, 0, 0, 0, 0)]
}

/// Comparisons that each leave the block when the rule does not match, then the answer.
fn block(rule: &Rule) -> Vec<Insn> {
    let mut tests: Vec<Vec<Insn>> = Vec::new();
    let kind = rule.kind.map(|kind| match kind {
        Kind::Block => 1,
        Kind::Char => 2,
    });
    for (register, want) in [(2, kind), (4, rule.major), (5, rule.minor)] {
        if let Some(want) = want {
            tests.push(vec![insn(JUMP_NOT_EQUAL, register, 0, 0, want.cast_signed())]);
        }
    }
    let bits = i32::from(rule.access.0);
    if rule.allow {
        // Any bit asked for beyond the rule's own: no match.
        tests.push(vec![insn(MOVE_REGISTER, 6, 3, 0, 0), insn(AND, 6, 0, 0, !bits), insn(JUMP_NOT_EQUAL, 6, 0, 0, 0)]);
    } else {
        tests.push(vec![insn(MOVE, 6, 0, 0, bits), insn(AND_REGISTER, 6, 3, 0, 0), insn(JUMP_EQUAL, 6, 0, 0, 0)]);
    }
    let mut block: Vec<Insn> = tests.concat();
    block.extend(answer(rule.allow));
    let end = block.len();
    for (place, step) in block.iter_mut().enumerate() {
        if matches!(step.code, JUMP_EQUAL | JUMP_NOT_EQUAL) {
            step.offset = i16::try_from(end - place - 1).unwrap_or(i16::MAX);
        }
    }
    block
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// Runs a program as the kernel would, for the instructions that are used here.
    fn run(program: &[Insn], kind: Kind, access: u8, major: u32, minor: u32) -> bool {
        let kind = if kind == Kind::Block { 1 } else { 2 };
        let context = [kind | u32::from(access) << 16, major, minor];
        let mut registers = [0_u64; 11];
        let mut at = 0;
        loop {
            let step = program[at];
            let (to, from) = (usize::from(step.registers & 15), usize::from(step.registers >> 4));
            let constant = i64::from(step.constant).cast_unsigned();
            at += 1;
            match step.code {
                LOAD_WORD => registers[to] = u64::from(context[usize::try_from(step.offset).unwrap() / 4]),
                AND => registers[to] &= constant,
                AND_REGISTER => registers[to] &= registers[from],
                SHIFT_RIGHT => registers[to] >>= constant,
                MOVE => registers[to] = constant,
                MOVE_REGISTER => registers[to] = registers[from],
                JUMP_EQUAL | JUMP_NOT_EQUAL => {
                    let equal = (registers[to] ^ constant) & u64::from(u32::MAX) == 0;
                    if equal == (step.code == JUMP_EQUAL) {
                        at += usize::try_from(step.offset).unwrap();
                    }
                }
                EXIT => return registers[0] == 1,
                other => panic!("instruction {other:#x}"),
            }
        }
    }

    /// What the rules mean.
    fn decide(rules: &[Rule], kind: Kind, access: u8, major: u32, minor: u32) -> bool {
        rules
            .iter()
            .rev()
            .find(|rule| {
                rule.kind.is_none_or(|k| k == kind)
                    && rule.major.is_none_or(|m| m == major)
                    && rule.minor.is_none_or(|m| m == minor)
                    && if rule.allow { access & !rule.access.0 == 0 } else { access & rule.access.0 != 0 }
            })
            .is_some_and(|rule| rule.allow)
    }

    #[test]
    fn the_default_rules() {
        let program = compile(&default_rules());
        let (make, read, write) = (Access::MKNOD.0, Access::READ.0, Access::WRITE.0);
        for (kind, major, minor, access, want) in [
            (Kind::Char, 1, 3, read | write, true),
            (Kind::Char, 1, 3, Access::ALL.0, true),
            (Kind::Char, 136, 7, read | write, true),
            (Kind::Char, 5, 2, read | write, true),
            (Kind::Char, 5, 1, make, true),
            (Kind::Char, 5, 1, read, false),
            (Kind::Char, 5, 1, write, false),
            (Kind::Char, 1, 1, make, true),
            (Kind::Char, 1, 1, read, false),
            (Kind::Char, 1, 11, read, false),
            (Kind::Block, 8, 0, make, true),
            (Kind::Block, 8, 0, read, false),
            (Kind::Block, 8, 0, write, false),
            (Kind::Block, 8, 0, read | make, false),
            (Kind::Block, 1, 3, read, false),
            (Kind::Block, 254, 0, read, false),
        ] {
            assert_eq!(run(&program, kind, access, major, minor), want, "{kind:?} {major}:{minor} {access}");
        }
        assert!(!allow_everything(&default_rules()));
        assert!(!run(&compile(&[]), Kind::Char, read, 1, 3), "no rule refuses");
    }

    #[test]
    fn rules_of_a_spec() {
        let rule = |text: &str| serde_json::from_str::<LinuxDeviceCgroup>(text).unwrap();
        let rules = from_oci(&[
            rule(r#"{"allow":false,"access":"rwm"}"#),
            rule(r#"{"allow":true,"type":"c","major":1,"minor":3,"access":"rw"}"#),
            rule(r#"{"allow":true,"type":"b","access":"m"}"#),
        ])
        .unwrap();
        assert_eq!(rules[0], Rule { allow: false, kind: None, major: None, minor: None, access: Access::ALL });
        assert_eq!(rules[1].major, Some(1));
        assert_eq!(rules[2], Rule { kind: Some(Kind::Block), access: Access::MKNOD, allow: true, ..rules[0] });
        assert!(from_oci(&[rule(r#"{"allow":true,"type":"c","access":"x"}"#)]).is_err());
        assert!(from_oci(&[rule(r#"{"allow":true,"type":"c","major":-5}"#)]).is_err());
        assert!(allow_everything(&from_oci(&[rule(r#"{"allow":true,"access":"rwm"}"#)]).unwrap()));
    }

    fn rules() -> impl Strategy<Value = Vec<Rule>> {
        let kind = prop_oneof![Just(None), Just(Some(Kind::Block)), Just(Some(Kind::Char))];
        let number = || prop_oneof![Just(None), (0_u32..4).prop_map(Some), Just(Some(u32::MAX))];
        let rule = (any::<bool>(), kind, number(), number(), 1_u8..8)
            .prop_map(|(allow, kind, major, minor, access)| Rule { allow, kind, major, minor, access: Access(access) });
        proptest::collection::vec(rule, 0..6)
    }

    proptest! {
        #[test]
        fn the_program_does_what_the_rules_mean(rules in rules(), major in 0_u32..4, minor in 0_u32..4) {
            let program = compile(&rules);
            for kind in [Kind::Block, Kind::Char] {
                for access in 1..8 {
                    prop_assert_eq!(
                        run(&program, kind, access, major, minor),
                        decide(&rules, kind, access, major, minor)
                    );
                }
            }
        }
    }
}
