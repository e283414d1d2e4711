//! What is set aside for the system and for armlet, and who is held to it: `systemReserved`, `kubeReserved`, their
//! groups, and `enforceNodeAllocatable`.
//!
//! The words and what excludes what are those of `pkg/kubelet/apis/config/validation/validation.go`; what is said of a
//! group's name and of armlet's own group is armlet's.

use super::setting::Section;
use super::{Config, Enforced, Reserved, read};
use crate::model::Quantity;
use crate::model::action::OWN_GROUP;
use crate::wire::schema::ignored as is_ignored;

const ENFORCE: &str = "enforceNodeAllocatable";

/// Less than this in bytes, as the limit of armlet's own group, would have the kernel end armlet's roles one after the
/// other.
pub const LEAST_OWN_MEMORY: u64 = 64 << 20;

/// The words of `enforceNodeAllocatable` and what each asks for.
const WORDS: [(&str, Word); 6] = [
    ("pods", Word::Pods),
    ("system-reserved", Word::System(Enforced::All)),
    ("system-reserved-compressible", Word::System(Enforced::Compressible)),
    ("kube-reserved", Word::Kube(Enforced::All)),
    ("kube-reserved-compressible", Word::Kube(Enforced::Compressible)),
    ("none", Word::None),
];

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Word {
    Pods,
    System(Enforced),
    Kube(Enforced),
    None,
}

/// Puts what the document says into the configuration.
pub(super) fn apply(s: &mut Section<'_, '_, '_>, config: &mut Config) {
    amounts("systemReserved", s, &mut config.system_reserved);
    amounts("kubeReserved", s, &mut config.kube_reserved);
    s.text("systemReservedCgroup", group, &mut config.system_reserved_cgroup);
    s.text("kubeReservedCgroup", group, &mut config.kube_reserved_cgroup);
    if s.values.contains_key(ENFORCE) {
        enforcement(s, config);
    }
}

fn amounts(name: &str, section: &mut Section<'_, '_, '_>, into: &mut Reserved) {
    let Some(mut amounts) = section.map(name) else { return };
    let names: Vec<String> = amounts.values.keys().cloned().collect();
    for name in names {
        let quantity = |text: &str| Quantity::parse(text).map_err(|e| e.to_string());
        match name.as_str() {
            "cpu" => amounts.text(&name, quantity, &mut into.cpu),
            "memory" => amounts.text(&name, quantity, &mut into.memory),
            "ephemeral-storage" => {
                let text = is_ignored("what pods write to the disk is not limited");
                amounts.report.warning(&amounts.at(&name), text);
            }
            "pid" => amounts.text(&name, |t| quantity(t).map(Quantity::units), &mut into.pid),
            _ => amounts.report.error(&amounts.at(&name), "must be cpu, memory, pid or ephemeral-storage"),
        }
    }
}

/// A group's name without its leading slash, which people may leave out.
fn group(text: &str) -> Result<String, String> {
    let name = read::absolute(&format!("/{}", text.trim_start_matches('/')))?;
    match name.trim_start_matches('/') {
        "" if text.is_empty() => Ok(String::new()),
        "" => Err("must not be the root: it has no limits".to_owned()),
        name if name.split('/').next() == Some("kubepods") => Err("must not be the pods' group".to_owned()),
        name => Ok(name.to_owned()),
    }
}

fn enforcement(s: &mut Section<'_, '_, '_>, config: &mut Config) {
    let mut asked = Vec::new();
    s.texts(ENFORCE, word, &mut asked);
    let at = s.at(ENFORCE);
    let mut seen: Vec<Word> = Vec::new();
    for (index, (text, word)) in asked.iter().enumerate() {
        if seen.contains(word) {
            s.report.duplicate(&at.index(index), text);
        }
        seen.push(*word);
    }
    if seen.contains(&Word::None) && seen.len() > 1 {
        s.report.forbidden(&at, "may not contain additional enforcements when \"none\" is specified");
    }
    let system = strongest(&seen, |word| if let Word::System(enforced) = word { Some(enforced) } else { None });
    let kube = strongest(&seen, |word| if let Word::Kube(enforced) = word { Some(enforced) } else { None });
    for (name, asked, cgroup) in
        [("system", &system, &config.system_reserved_cgroup), ("kube", &kube, &config.kube_reserved_cgroup)]
    {
        if asked.len() > 1 {
            let why = format!("\"{name}-reserved\" and \"{name}-reserved-compressible\" exclude each other");
            s.report.forbidden(&at, &why);
        }
        let field = s.at(&format!("{name}ReservedCgroup"));
        // A name that was given and is wrong was told of already.
        if !asked.is_empty() && cgroup.is_empty() && !s.report.failed_within(&field) {
            let why = format!("when \"{name}-reserved\" or \"{name}-reserved-compressible\" is in {ENFORCE}");
            s.report.required(&field, &why);
        }
    }
    let first = |asked: &[Enforced]| asked.first().copied().unwrap_or(Enforced::No);
    config.enforce_reserved = seen.contains(&Word::Pods);
    (config.enforce_system, config.enforce_kube) = (first(&system), first(&kube));
    own_memory(s, config);
}

fn strongest(seen: &[Word], of: impl Fn(Word) -> Option<Enforced>) -> Vec<Enforced> {
    let mut asked: Vec<Enforced> = seen.iter().filter_map(|word| of(*word)).collect();
    asked.dedup();
    asked
}

/// armlet that is held to less than it needs is no node.
fn own_memory(s: &mut Section<'_, '_, '_>, config: &Config) {
    let of = [
        ("systemReserved", config.enforce_system, &config.system_reserved_cgroup, &config.system_reserved),
        ("kubeReserved", config.enforce_kube, &config.kube_reserved_cgroup, &config.kube_reserved),
    ];
    for (name, enforced, cgroup, amounts) in of {
        let own = cgroup.split('/').next() == Some(OWN_GROUP);
        let memory = amounts.memory.units();
        if own && enforced == Enforced::All && (1..LEAST_OWN_MEMORY).contains(&memory) {
            let at = s.at(name).key("memory");
            s.report.invalid(&at, memory, "must be at least 64Mi: armlet itself would be held to it");
        }
    }
}

fn word(text: &str) -> Result<(String, Word), String> {
    let known = WORDS.iter().find(|(name, _)| *name == text);
    known.map(|(_, word)| (text.to_owned(), *word)).ok_or_else(|| {
        let names: Vec<&str> = WORDS.iter().map(|(name, _)| *name).collect();
        format!("must be one of {}", names.join(", "))
    })
}

/// `enforceNodeAllocatable` as it is in force.
pub(super) fn words(config: &Config) -> Vec<&'static str> {
    let in_force = |word: Word| match word {
        Word::Pods => config.enforce_reserved,
        Word::System(enforced) => config.enforce_system == enforced,
        Word::Kube(enforced) => config.enforce_kube == enforced,
        Word::None => false,
    };
    let words: Vec<&str> = WORDS.iter().filter(|(_, word)| in_force(*word)).map(|(name, _)| *name).collect();
    if words.is_empty() { vec!["none"] } else { words }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::{Args, Files, load};
    use std::collections::BTreeMap;

    fn read(text: &str) -> (Config, Vec<String>) {
        let text = format!("apiVersion: kubelet.config.k8s.io/v1beta1\nkind: KubeletConfiguration\n{text}\n");
        let (config, problems) = load(&Args::default(), &Files::default().with("c", text.as_bytes()), &BTreeMap::new());
        (config, problems.iter().map(ToString::to_string).collect())
    }

    const BOTH: &str = "kubeReservedCgroup: /armlet\nsystemReservedCgroup: system.slice\n\
                        kubeReserved: {cpu: 200m, memory: 64Mi}\n";

    #[test]
    fn what_is_enforced_is_what_was_asked_for() {
        use Enforced::{All, Compressible, No};
        for (asked, pods, kube, system) in [
            ("", true, No, No),
            ("[]", false, No, No),
            ("[none]", false, No, No),
            ("[pods]", true, No, No),
            ("[pods, kube-reserved, system-reserved]", true, All, All),
            ("[system-reserved-compressible, kube-reserved-compressible]", false, Compressible, Compressible),
        ] {
            let line = if asked.is_empty() { String::new() } else { format!("{ENFORCE}: {asked}") };
            let (config, problems) = read(&format!("{BOTH}{line}"));
            assert_eq!(problems, [""; 0], "{asked}");
            assert_eq!((config.enforce_reserved, config.enforce_kube, config.enforce_system), (pods, kube, system));
            assert_eq!(
                (config.kube_reserved_cgroup.as_str(), config.system_reserved_cgroup.as_str()),
                ("armlet", "system.slice")
            );
            let shown = words(&config);
            assert_eq!(read(&format!("{BOTH}{ENFORCE}: {shown:?}")).0, config, "what is shown says the same");
        }
    }

    #[test]
    fn what_excludes_each_other_and_what_is_missing_is_refused() {
        for (text, wanted) in [
            (
                "enforceNodeAllocatable: [kube-reserved]",
                &[
                    "c:1: kubeReservedCgroup: Required value: when \"kube-reserved\" or \"kube-reserved-compressible\" is in enforceNodeAllocatable",
                ][..],
            ),
            (
                "enforceNodeAllocatable: [system-reserved-compressible]",
                &[
                    "c:1: systemReservedCgroup: Required value: when \"system-reserved\" or \"system-reserved-compressible\" is in enforceNodeAllocatable",
                ],
            ),
            (
                "enforceNodeAllocatable: [pods, none]",
                &[
                    "c:3: enforceNodeAllocatable: Forbidden: may not contain additional enforcements when \"none\" is specified",
                ],
            ),
            ("enforceNodeAllocatable: [pods, pods]", &["c:3: enforceNodeAllocatable[1]: Duplicate value: \"pods\""]),
            (
                "enforceNodeAllocatable: [kube]",
                &[
                    "c:3: enforceNodeAllocatable[0]: Invalid value: \"kube\": must be one of pods, system-reserved, system-reserved-compressible, kube-reserved, kube-reserved-compressible, none",
                ],
            ),
            (
                "enforceNodeAllocatable: [kube-reserved, kube-reserved-compressible]\nkubeReservedCgroup: /a",
                &[
                    "c:3: enforceNodeAllocatable: Forbidden: \"kube-reserved\" and \"kube-reserved-compressible\" exclude each other",
                ],
            ),
            (
                "enforceNodeAllocatable: [kube-reserved]\nkubeReservedCgroup: /armlet\nkubeReserved: {memory: 63Mi}",
                &[
                    "c:5: kubeReserved[memory]: Invalid value: 66060288: must be at least 64Mi: armlet itself would be held to it",
                ],
            ),
            (
                "enforceNodeAllocatable: [kube-reserved]\nkubeReservedCgroup: /../x",
                &["c:4: kubeReservedCgroup: Invalid value: \"/../x\": must not contain '..'"],
            ),
            (
                "kubeReservedCgroup: /kubepods/x",
                &["c:3: kubeReservedCgroup: Invalid value: \"/kubepods/x\": must not be the pods' group"],
            ),
            (
                "systemReservedCgroup: /",
                &["c:3: systemReservedCgroup: Invalid value: \"/\": must not be the root: it has no limits"],
            ),
        ] {
            assert_eq!(read(text).1, wanted, "{text}");
        }
        // Enough, nothing at all, or another's group.
        for fine in [
            "enforceNodeAllocatable: [kube-reserved]\nkubeReservedCgroup: /armlet\nkubeReserved: {memory: 64Mi}",
            "enforceNodeAllocatable: [kube-reserved]\nkubeReservedCgroup: /armlet\nkubeReserved: {cpu: 100m}",
            "enforceNodeAllocatable: [kube-reserved]\nkubeReservedCgroup: /other\nkubeReserved: {memory: 1Mi}",
            "enforceNodeAllocatable: [kube-reserved-compressible]\nkubeReservedCgroup: /armlet\nkubeReserved: {memory: 1Mi}",
        ] {
            assert_eq!(read(fine).1, [""; 0], "{fine}");
        }
    }
}
