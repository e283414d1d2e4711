//! What a machine shows of itself.

use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::path::PathBuf;

/// Everything that is looked at. What could not be read is absent.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Board {
    /// Whether it was looked at by root: trials need that.
    pub root: bool,
    /// The device tree's name of the board.
    pub model: Option<String>,
    /// The kernel's name for the machine, such as `aarch64`.
    pub machine: String,
    /// The kernel's release.
    pub kernel: String,
    /// Bytes of a page.
    pub page_size: u64,
    /// Bytes of memory.
    pub memory: u64,
    /// Whether swap is on.
    pub swap: bool,
    /// The command line that the kernel was started with.
    pub cmdline: String,
    /// The file from which the board's firmware takes it.
    pub boot_file: Option<BootFile>,
    /// Whether cgroup v2 is mounted at `/sys/fs/cgroup`.
    pub cgroup2: bool,
    /// The controllers of cgroup v2.
    pub controllers: Vec<String>,
    /// Namespaces of the kernel, as `/proc/self/ns` names them.
    pub namespaces: Vec<String>,
    /// How many user namespaces may be made.
    pub user_namespaces: Option<u64>,
    /// Actions that seccomp filters may take.
    pub seccomp: Vec<String>,
    /// An overlay was mounted where containers would be.
    pub overlay: Trial,
    /// A program that restricts devices was loaded.
    pub device_program: Trial,
    /// A bridge and a pair of links were made, in network namespaces of their own.
    pub links: Trial,
    /// Whether 32-bit ARM programs run.
    pub arm32: bool,
    /// Whether the kernel tells pressure stall information. Switched off looks the same as not built in.
    pub pressure: bool,
    /// Kernel modules that the node uses, by name.
    pub modules: BTreeMap<String, Module>,
    /// The clock.
    pub clock: Clock,
    /// The file systems that the node writes to.
    pub spaces: Vec<Space>,
    /// Ports that are listened on, of those that a node wants.
    pub ports: Vec<Port>,
    /// Programs that run pods or containers on this machine too, by the name of their process.
    pub runtimes: Vec<String>,
    /// What other runtimes have left behind.
    pub leftovers: Vec<PathBuf>,
}

/// The file that a Raspberry Pi's firmware reads the kernel's command line from.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct BootFile {
    /// Where.
    pub path: PathBuf,
    /// What is in it.
    pub text: String,
}

/// How it went to do a thing for real.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Trial {
    /// Not done: only root can.
    #[default]
    NotTried,
    /// It works.
    Works,
    /// It does not, and why.
    Fails(String),
}

/// A kernel module.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Module {
    /// In the kernel, loaded or built in.
    Present,
    /// A file that can be loaded.
    Loadable,
    /// Nowhere.
    Missing,
}

/// The wall clock.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Clock {
    /// Seconds since 1970.
    pub seconds: i64,
    /// Whether something keeps it right; absent when the kernel does not say.
    pub synchronised: Option<bool>,
}

/// A file system.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Space {
    /// What the node keeps there.
    pub purpose: String,
    /// The folder.
    pub path: PathBuf,
    /// Bytes in all.
    pub size: u64,
    /// Bytes that are free.
    pub free: u64,
    /// Files that can still be made; absent where there is no such limit.
    pub inodes: Option<u64>,
    /// It cannot be written.
    pub read_only: bool,
}

/// A port that is listened on.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Port {
    /// The TCP port.
    pub number: u16,
    /// What the node wants it for.
    pub purpose: String,
}
