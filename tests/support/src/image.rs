//! What a guest boots from: the initramfs and its disks.

use crate::Error;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::OnceLock;

/// The root of the checkout.
pub fn root() -> &'static Path {
    static ROOT: OnceLock<PathBuf> = OnceLock::new();
    ROOT.get_or_init(|| Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").canonicalize().unwrap_or_default())
}

/// The folder below which everything that is built or downloaded lies: the one that `cross/lib.sh` says.
pub fn target() -> PathBuf {
    root().join(std::env::var_os("CARGO_TARGET_DIR").unwrap_or_else(|| "target".into()))
}

/// The processor of the guests, and of the binary that runs in them: `ARMLET_ARCH`, as `cross/lib.sh` reads it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Arch {
    /// 64-bit ARM, what armlet is made for and what is meant without the variable.
    Aarch64,
    /// What a person's own machine mostly is.
    X86_64,
}

impl Arch {
    /// The one of this run.
    pub fn current() -> Self {
        // The scripts refuse any other word before a guest is made.
        if std::env::var("ARMLET_ARCH").is_ok_and(|name| name == "x86_64") { Self::X86_64 } else { Self::Aarch64 }
    }

    /// As the kernel and compilers call it.
    pub fn name(self) -> &'static str {
        match self {
            Self::Aarch64 => "aarch64",
            Self::X86_64 => "x86_64",
        }
    }

    /// As Debian and OCI images call it.
    pub fn image(self) -> &'static str {
        match self {
            Self::Aarch64 => "arm64",
            Self::X86_64 => "amd64",
        }
    }

    /// The folder of that name below [`target`]; other architectures than the first have one of their own.
    fn folder(self, name: &str) -> PathBuf {
        match self {
            Self::Aarch64 => target().join(name),
            Self::X86_64 => target().join(format!("{name}-{}", self.name())),
        }
    }
}

/// Where guests are made and run.
pub fn vm() -> PathBuf {
    Arch::current().folder("vm")
}

/// Where `images/pack.sh` puts the images for the guests.
pub fn images() -> PathBuf {
    Arch::current().folder("images")
}

/// Where cargo puts programs for the guests that are built with the profile `qemu`.
pub fn programs() -> PathBuf {
    target().join(format!("{}-unknown-linux-musl/qemu", Arch::current().name()))
}

/// Which program is process 1 of the guest.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// busybox: for parts of armlet that are tried alone.
    Bare,
    /// armlet, with the harness's shell beside.
    Debug,
    /// What `/sbin/init` of the data disk is, with the harness's shell beside: see [`debian`].
    Disk,
    /// armlet and nothing else: scripts cannot be run in it.
    Node,
}

/// A packed initial file system.
#[derive(Debug, Clone)]
pub struct Initramfs {
    /// Where it lies on the host.
    pub path: PathBuf,
    /// What is in it.
    pub kind: Kind,
}

impl Initramfs {
    /// Packs an initramfs, downloading the kernel when it is not here yet.
    ///
    /// # Errors
    /// When the script fails: no network, no space, a digest that is not the pinned one.
    pub fn build(kind: Kind, binary: Option<&Path>) -> Result<Self, Error> {
        let name = match kind {
            Kind::Bare => "bare",
            Kind::Debug => "debug",
            Kind::Disk => "disk",
            Kind::Node => "node",
        };
        let mut command = Command::new(root().join("tests/vm/prepare.sh"));
        command.arg(name);
        if let Some(binary) = binary {
            command.env("ARMLET_BINARY", binary);
        }
        Ok(Self { path: stdout_path(command)?, kind })
    }
}

/// The static binary under test: `ARMLET_BINARY`, or built now with the profile `qemu`.
///
/// # Errors
/// When the build fails.
pub fn binary() -> Result<PathBuf, Error> {
    if let Some(path) = std::env::var_os("ARMLET_BINARY") {
        return Ok(path.into());
    }
    let mut command = Command::new(root().join("cross/build.sh"));
    command.arg("qemu");
    stdout_path(command)
}

/// Another version of the binary under test: `ARMLET_OTHER_BINARY`, or built now with the profile `qemu`.
///
/// # Errors
/// When the build fails.
pub fn other_binary() -> Result<PathBuf, Error> {
    if let Some(path) = std::env::var_os("ARMLET_OTHER_BINARY") {
        return Ok(path.into());
    }
    let mut command = Command::new(root().join("cross/other.sh"));
    command.arg("qemu");
    stdout_path(command)
}

/// An ext4 image.
#[derive(Debug, Clone)]
pub struct Disk {
    /// Where it lies on the host.
    pub path: PathBuf,
}

impl Disk {
    /// Makes a sparse file of `mebibytes`, labelled, with the files of `from` in it.
    ///
    /// # Errors
    /// When the files do not fit, or the file cannot be written.
    pub fn make(path: &Path, mebibytes: u64, label: &str, from: Option<&Path>) -> Result<Self, Error> {
        let script = root().join("tests/vm/disk.sh");
        let mut command = Command::new(&script);
        command.arg(path).arg(format!("{mebibytes}M")).arg(label).args(from);
        let status = command.status().map_err(|source| Error::Run { program: script.clone(), source })?;
        if status.success() {
            Ok(Self { path: path.to_owned() })
        } else {
            Err(Error::Failed { program: script, status })
        }
    }
}

/// A disk with a Debian whose process 1 is systemd, for a guest of [`Kind::Disk`]: a copy at `path`.
///
/// # Errors
/// When it cannot be made: no network, no space, a digest that is not the pinned one.
pub fn debian(path: &Path) -> Result<Disk, Error> {
    let made = stdout_path(Command::new(root().join("tests/vm/debian.sh")))?;
    // Sparse as it is.
    let mut copy = Command::new("cp");
    copy.args(["--sparse=always", "--reflink=auto"]).args([made.as_path(), path]);
    let status = copy.status().map_err(|source| Error::Run { program: "cp".into(), source })?;
    if status.success() {
        Ok(Disk { path: path.to_owned() })
    } else {
        Err(Error::Failed { program: "cp".into(), status })
    }
}

/// The Debian package of armlet with the binary under test, and the version that is said.
///
/// # Errors
/// When it cannot be built.
pub fn package(version: &str) -> Result<PathBuf, Error> {
    let mut command = Command::new(root().join("cross/deb.sh"));
    command.env("ARMLET_BINARY", binary()?).env("DEB_VERSION", version);
    stdout_path(command)
}

/// Runs a script of ours, whose messages go to the terminal and whose last line of output is a path.
fn stdout_path(mut command: Command) -> Result<PathBuf, Error> {
    let program = PathBuf::from(command.get_program());
    let output =
        command.stderr(Stdio::inherit()).output().map_err(|source| Error::Run { program: program.clone(), source })?;
    if !output.status.success() {
        return Err(Error::Failed { program, status: output.status });
    }
    let text = String::from_utf8_lossy(&output.stdout);
    let line = text.lines().last().ok_or_else(|| Error::Protocol(format!("{} printed no path", program.display())))?;
    Ok(line.into())
}
