//! The guests that the tests of this program share.

use armlet_vm::{Arch, Boot, Disk, Guest, Initramfs, Kind, vm};
use std::path::PathBuf;
use std::process::Command;
use std::sync::OnceLock;

/// A folder for one guest's sockets, logs and disks. Its contents stay after a run: there is the console of a failed one.
pub(crate) fn directory(name: &str) -> PathBuf {
    let directory = vm().join("run").join(name);
    std::fs::create_dir_all(&directory).unwrap();
    directory
}

/// Whether the guests run 32-bit ARM programs: not where they run on a processor of this machine that has no AArch32, as
/// many servers' and newer boards', and not on x86-64. Says so then; an emulated guest always does.
#[expect(clippy::print_stdout, reason = "what is passed over is said")]
pub(crate) fn runs_arm32() -> bool {
    let kvm = std::env::consts::ARCH == "aarch64" && std::fs::File::options().write(true).open("/dev/kvm").is_ok();
    let capable = || Command::new("setarch").args(["linux32", "true"]).status().is_ok_and(|status| status.success());
    let able = Arch::current() == Arch::Aarch64 && (!kvm || capable());
    if !able {
        println!("passed over: this processor runs no 32-bit ARM programs");
    }
    able
}

/// The guest without armlet: for parts that are tried alone.
pub(crate) fn bare() -> &'static Guest {
    static GUEST: OnceLock<Guest> = OnceLock::new();
    GUEST.get_or_init(|| {
        let directory = directory("bare");
        let data = Disk::make(&directory.join("data.img"), 256, "armlet-data", None).unwrap();
        let initramfs = Initramfs::build(Kind::Bare, None).unwrap();
        Boot::new(&initramfs, &directory).data(&data).forward(8080).start().unwrap()
    })
}
