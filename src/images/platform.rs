//! Which of an image's builds this node runs.

use crate::sys::machine;

/// What this node runs, as far as images can ask for it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Host {
    /// `GOARCH` name, such as `arm64`.
    pub architecture: String,
    /// A 64-bit ARM kernel and its cores also run 32-bit programs.
    pub runs_arm32: bool,
}

impl Host {
    /// Asks the kernel.
    #[must_use]
    pub fn detect() -> Self {
        let architecture = match machine::name().as_str() {
            "aarch64" => "arm64".to_owned(),
            "x86_64" => "amd64".to_owned(),
            other => other.to_owned(),
        };
        let runs_arm32 = architecture == "arm64" && machine::runs_arm32();
        Self { architecture, runs_arm32 }
    }

    /// How well a build fits, 0 being best; `None` when it does not run here. The order is containerd's
    /// (`platforms.Only`): the own architecture, then 32-bit ARM from v7 down. Without a variant `arm` means v7.
    pub(super) fn rank(&self, os: &str, architecture: &str, variant: &str) -> Option<u8> {
        if os != "linux" {
            return None;
        }
        match (architecture, variant) {
            ("arm64", "" | "v8" | "8") if self.architecture == "arm64" => Some(0),
            ("arm64", _) => None,
            ("arm", "" | "v7" | "7") => self.runs_arm32.then_some(1),
            ("arm", "v6" | "6") => self.runs_arm32.then_some(2),
            ("arm", "v5" | "5") => self.runs_arm32.then_some(3),
            // Variants of amd64 ask for instructions that this machine may lack.
            (other, "") if other == self.architecture => Some(0),
            _ => None,
        }
    }

    /// For messages: `arm64, arm/v7`.
    pub(super) fn describe(&self) -> String {
        if self.runs_arm32 { format!("{}, arm/v7", self.architecture) } else { self.architecture.clone() }
    }
}

/// Architecture and variant as one word: `arm64`, `arm/v7`. The variant of `arm64` that is always meant is left out.
pub(super) fn join(architecture: &str, variant: &str) -> String {
    match (architecture, variant) {
        (_, "") | ("arm64", "v8") => architecture.to_owned(),
        _ => format!("{architecture}/{variant}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_best_build_comes_first_and_foreign_ones_never() {
        let arm = Host { architecture: "arm64".to_owned(), runs_arm32: true };
        let pure = Host { runs_arm32: false, ..arm.clone() };
        let amd = Host { architecture: "amd64".to_owned(), runs_arm32: false };
        for (os, architecture, variant, on_arm, on_pure, on_amd) in [
            ("linux", "arm64", "v8", Some(0), Some(0), None),
            ("linux", "arm64", "", Some(0), Some(0), None),
            ("linux", "arm64", "v9", None, None, None),
            ("linux", "arm", "v7", Some(1), None, None),
            ("linux", "arm", "", Some(1), None, None),
            ("linux", "arm", "v6", Some(2), None, None),
            ("linux", "arm", "v5", Some(3), None, None),
            ("linux", "amd64", "", None, None, Some(0)),
            ("linux", "amd64", "v3", None, None, None),
            ("windows", "amd64", "", None, None, None),
            ("unknown", "unknown", "", None, None, None),
            ("linux", "riscv64", "", None, None, None),
        ] {
            let ranks = [&arm, &pure, &amd].map(|host| host.rank(os, architecture, variant));
            assert_eq!(ranks, [on_arm, on_pure, on_amd], "{os}/{architecture}/{variant}");
        }
    }

    #[test]
    fn the_machine_of_this_test_is_known() {
        let host = Host::detect();
        assert!(host.rank("linux", &host.architecture, "").is_some(), "{host:?}");
    }
}
