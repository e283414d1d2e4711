//! The Debian package as a file: what is in it, and what it says of itself.

use armlet_vm::{Arch, binary, package};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;

/// The versions that the tests install, one after the other.
pub(crate) const VERSIONS: [&str; 2] = ["0.1.0~test1", "0.1.0~test2"];

/// The packages of [`VERSIONS`].
pub(crate) fn packages() -> &'static [PathBuf; 2] {
    static BUILT: OnceLock<[PathBuf; 2]> = OnceLock::new();
    BUILT.get_or_init(|| VERSIONS.map(|version| package(version).unwrap()))
}

fn said(program: &str, arguments: &[&str], file: &Path) -> String {
    let output = Command::new(program).args(arguments).arg(file).output().unwrap();
    assert!(output.status.success(), "{program} {arguments:?}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}

#[test]
fn a_package_holds_what_a_system_needs() {
    let deb = &packages()[0];
    let field =
        |name: &str| said("dpkg-deb", &["-f"], deb).lines().find_map(|l| Some(l.strip_prefix(name)?.to_owned()));
    assert_eq!(field("Package: ").unwrap(), "armlet");
    assert_eq!(field("Version: ").unwrap(), VERSIONS[0]);
    assert_eq!(field("Architecture: ").unwrap(), Arch::current().image());
    assert_eq!(field("Depends: "), None, "the program is static");
    let kibibytes: u64 = field("Installed-Size: ").unwrap().parse().unwrap();
    let size = std::fs::metadata(binary().unwrap()).unwrap().len();
    assert!((size >> 10..(size >> 10) + 2048).contains(&kibibytes), "{kibibytes} KiB, the program has {size} bytes");

    let list = said("dpkg-deb", &["-c"], deb);
    // Mode, owner, size, date, time, path.
    let rows: Vec<Vec<&str>> = list.lines().map(|line| line.split_whitespace().collect()).collect();
    assert!(rows.iter().all(|row| row[1] == "root/root"), "{list}");
    let files: Vec<(&str, &str)> =
        rows.iter().filter(|row| !row[5].ends_with('/')).map(|row| (row[5], row[0])).collect();
    let data = "-rw-r--r--";
    let (pages, files): (Vec<_>, Vec<_>) =
        files.into_iter().partition(|(path, _)| path.starts_with("./usr/share/man/"));
    assert!(pages.iter().all(|(_, mode)| *mode == data) && pages.len() > 20, "{pages:?}");
    for page in ["armlet", "armlet-logs", "armlet-config-show"] {
        assert!(pages.contains(&(format!("./usr/share/man/man1/{page}.1.gz").as_str(), data)), "{page}");
    }
    assert_eq!(
        files,
        [
            ("./usr/bin/armlet", "-rwxr-xr-x"),
            ("./usr/lib/systemd/system/armlet-supervisor.service", data),
            ("./usr/lib/systemd/system/armlet.service", data),
            ("./usr/lib/systemd/system/armlet.slice", data),
            ("./usr/share/bash-completion/completions/armlet", data),
            ("./usr/share/doc/armlet/CHANGELOG.md.gz", data),
            ("./usr/share/doc/armlet/LICENCES.gz", data),
            ("./usr/share/doc/armlet/NOTICE.gz", data),
            ("./usr/share/doc/armlet/changelog.gz", data),
            ("./usr/share/doc/armlet/copyright", data),
            ("./usr/share/fish/vendor_completions.d/armlet.fish", data),
            ("./usr/share/lintian/overrides/armlet", data),
            ("./usr/share/zsh/vendor-completions/_armlet", data),
        ],
    );

    let folder = tempfile::tempdir().unwrap();
    let extract = |how: &str, to: &str| {
        let to = folder.path().join(to);
        assert!(Command::new("dpkg-deb").arg(how).arg(deb).arg(&to).status().unwrap().success());
        to
    };
    let (tree, control) = (extract("-x", "tree"), extract("-e", "control"));
    assert_eq!(std::fs::read(tree.join("usr/bin/armlet")).unwrap(), std::fs::read(binary().unwrap()).unwrap());
    for (unit, role) in [("armlet", "agent"), ("armlet-supervisor", "supervisor")] {
        let text = std::fs::read_to_string(tree.join(format!("usr/lib/systemd/system/{unit}.service"))).unwrap();
        assert!(text.contains(&format!("\nExecStart=/usr/bin/armlet {role}\n")) && !text.contains("/local/"), "{text}");
    }
    for script in ["preinst", "postinst", "prerm", "postrm"] {
        said("sh", &["-n"], &control.join(script));
    }
    let sums = std::fs::read_to_string(control.join("md5sums")).unwrap();
    assert_eq!(sums.lines().count(), files.len() + pages.len(), "{sums}");
    let checked = Command::new("md5sum").arg("-c").arg(control.join("md5sums")).current_dir(&tree).output().unwrap();
    assert!(checked.status.success(), "{checked:?}");
}
