//! Which names in the folder are manifests.

/// Endings of copies and half-written files: editors, package managers, transfer tools.
const LEFT_OVERS: [&str; 14] = [
    "~",
    ".swp",
    ".swo",
    ".swx",
    ".tmp",
    ".temp",
    ".bak",
    ".orig",
    ".rej",
    ".part",
    ".partial",
    ".crdownload",
    ".new",
    ".old",
];

/// Endings that packagers give to configuration files which they did not dare to replace.
const PACKAGERS: [&str; 7] = [".dpkg-new", ".dpkg-old", ".dpkg-dist", ".dpkg-tmp", ".rpmnew", ".rpmsave", ".rpmorig"];

/// Whether a file of this name may hold a manifest. Like upstream any name will do that does not begin with a dot;
/// unlike upstream the files that editors and packagers leave are passed over.
pub(super) fn is_manifest(name: &str) -> bool {
    let emacs = name.starts_with('#') && name.ends_with('#');
    // Vim asks whether it may write to a folder by making this file.
    let vim = name == "4913";
    let left = LEFT_OVERS.iter().chain(&PACKAGERS).any(|ending| name.ends_with(ending));
    !name.is_empty() && !name.starts_with('.') && !emacs && !vim && !left
}

/// Whether a name says that it is a manifest's: what has it and is no file is somebody's mistake.
pub(super) fn says_manifest(name: &str) -> bool {
    is_manifest(name) && [".yaml", ".yml", ".json"].iter().any(|ending| name.ends_with(ending))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_can_say_that_it_is_a_manifests() {
        for (name, says) in [("a.yaml", true), ("a.yml", true), ("a.json", true), ("a", false), (".a.yaml", false)] {
            assert_eq!(says_manifest(name), says, "{name}");
        }
    }

    #[test]
    fn what_tools_leave_is_no_manifest() {
        for good in ["a", "a.yaml", "a.yml", "a.json", "a.manifest", "#a", "a#", "a.bak.yaml", "4913.yaml", "tmp"] {
            assert!(is_manifest(good), "{good}");
        }
        for bad in [
            "",
            ".a.yaml",
            ".a.yaml.swp",
            "..data",
            "a.yaml~",
            "a.yaml.swp",
            "a.yaml.tmp",
            "a.yaml.bak",
            "#a.yaml#",
            "4913",
            ".#a.yaml",
            "a.yaml.dpkg-new",
            "a.yaml.rpmsave",
            "a.yaml.orig",
            "a.yaml.part",
        ] {
            assert!(!is_manifest(bad), "{bad}");
        }
    }
}
