//! What a create child finds in its bundle beside the OCI spec.

use crate::model::ContainerId;
use crate::sys::confined::NewFolder;
use crate::sys::seccomp::Filter;
use oci_spec::runtime::Spec;
use serde::{Deserialize, Serialize};
use std::path::PathBuf;

/// File name of the OCI spec in a bundle. It is complete: any OCI runtime can run it once the root filesystem is
/// mounted at `rootfs` in the bundle. armlet's own children read only the [`CreateRequest`].
pub const SPEC_FILE: &str = "config.json";

/// File name of the [`CreateRequest`] in a bundle.
pub const REQUEST_FILE: &str = "create.json";

/// Folder in a bundle where the root filesystem is mounted, in the create child's own mount namespace.
pub const ROOT_FOLDER: &str = "rootfs";

/// What create and exec children need, prepared so that they have little to do.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct CreateRequest {
    /// The attempt's id.
    pub id: ContainerId,
    /// What the root filesystem is made of.
    pub root: OverlayRoot,
    /// Folders that the container needs inside its root, made with all their parents when they are missing.
    #[serde(default)]
    pub folders: Vec<Folder>,
    /// The system call filter.
    #[serde(default)]
    pub filter: Option<FilterProgram>,
    /// A mount point of the node, with other pods' things mounted below it. Nothing of it is needed once the container's
    /// own mounts are made: all that reads the table of mounts after that is quicker without.
    #[serde(default)]
    pub others: Option<PathBuf>,
    /// The OCI spec without its seccomp profile, which is long and has become `filter`.
    pub spec: Box<Spec>,
}

/// A compiled system call filter, in a form that is quick to read.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct FilterProgram {
    /// Flags of seccomp(2).
    pub flags: u32,
    /// Instructions as hexadecimal digits, sixteen each: code, jumps, constant, the highest digit first.
    pub steps: String,
}

/// A filter text that was not written by [`FilterProgram::new`].
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("the system call filter is damaged")]
pub struct BadFilter;

impl FilterProgram {
    /// Writes a program down.
    #[must_use]
    pub fn new(program: &[Filter], flags: u32) -> Self {
        use std::fmt::Write;
        let mut steps = String::with_capacity(program.len() * 16);
        for step in program {
            let _ = write!(steps, "{:04x}{:02x}{:02x}{:08x}", step.code, step.jump_true, step.jump_false, step.k);
        }
        Self { flags, steps }
    }

    /// Reads it.
    ///
    /// # Errors
    /// [`BadFilter`]; an empty program is one.
    pub fn program(&self) -> Result<Vec<Filter>, BadFilter> {
        if self.steps.is_empty() || !self.steps.len().is_multiple_of(16) || !self.steps.is_ascii() {
            return Err(BadFilter);
        }
        (0..self.steps.len()).step_by(16).map(|at| self.step(at).ok_or(BadFilter)).collect()
    }

    fn step(&self, at: usize) -> Option<Filter> {
        let digits = |from: usize, to: usize| self.steps.get(at + from..at + to);
        Some(Filter {
            code: u16::from_str_radix(digits(0, 4)?, 16).ok()?,
            jump_true: u8::from_str_radix(digits(4, 6)?, 16).ok()?,
            jump_false: u8::from_str_radix(digits(6, 8)?, 16).ok()?,
            k: u32::from_str_radix(digits(8, 16)?, 16).ok()?,
        })
    }
}

/// The parts of the overlay that becomes a container's root. All paths are absolute.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct OverlayRoot {
    /// Folders of the image's unpacked layers, the topmost first; at least one.
    pub lower: Vec<PathBuf>,
    /// The container's writable layer. Made, as is `work`, when missing.
    pub upper: PathBuf,
    /// The overlay's scratch folder, on the filesystem of `upper`.
    pub work: PathBuf,
}

/// A folder that the container sees.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Folder {
    /// Absolute, as seen from the root filesystem, or from `base`.
    pub path: PathBuf,
    /// The volume that it is in.
    #[serde(default)]
    pub base: Option<PathBuf>,
    /// Permission bits.
    pub mode: u32,
    /// Owner.
    pub uid: u32,
    /// Group.
    pub gid: u32,
}

impl Folder {
    /// How it is made.
    #[must_use]
    pub const fn new_folder(&self) -> NewFolder {
        NewFolder { mode: self.mode, uid: self.uid, gid: self.gid }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_filter_reads_back_as_it_was() {
        let step = |code, k| Filter { code, jump_true: 1, jump_false: 255, k };
        let program = [step(0x20, 4), step(0x15, u32::MAX), step(6, 0x7fff_0000)];
        let written = FilterProgram::new(&program, 4);
        assert_eq!(written.program().as_deref(), Ok(program.as_slice()));
        for bad in ["", "00", "00060000000000zz", "+0060000000000000000", "00060000000000\u{e9}"] {
            let bad = FilterProgram { flags: 0, steps: bad.to_owned() };
            assert_eq!(bad.program(), Err(BadFilter), "{bad:?}");
        }
    }
}
