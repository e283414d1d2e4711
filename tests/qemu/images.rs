//! Images that come from archives: forms, contents, and what is refused.

use crate::archives::{Archive, Layer, Packing, layers};
use crate::node::{IMAGE, host, image, node};
use armlet_vm::Arch;
use std::path::Path;

/// Writes the archives that these tests import, to be seen by the guest in its payload.
pub(crate) fn archives(folder: &Path) {
    std::fs::create_dir_all(folder).unwrap();
    Archive::new("localhost/gzip:1", layers()).write(folder, "gzip.tar");
    Archive { packing: Packing::Zstd, ..Archive::new("localhost/zstd:1", layers()) }.write(folder, "zstd.tar");
    let other = vec![Layer::new().file("x", 0o644, b"x").tar()];
    Archive { architecture: "s390x", ..Archive::new("localhost/foreign:1", other.clone()) }
        .write(folder, "foreign.tar");
    Archive { digest_lie: true, ..Archive::new("localhost/lie:1", other.clone()) }.write(folder, "bad-digest.tar");
    Archive { diff_id_lie: true, ..Archive::new("localhost/lie:2", other) }.write(folder, "bad-diff-id.tar");
    let hostile = [
        ("bad-parent.tar", Layer::new().file("../../escaped", 0o644, b"x")),
        ("bad-link.tar", Layer::new().symlink("out", "/etc").file("out/escaped", 0o644, b"x")),
        ("bad-hard-link.tar", Layer::new().hard_link("passwd", "../../../../etc/passwd")),
        ("bad-bomb.tar", Layer::new().claims("zeros", 1 << 40)),
    ];
    for (file, layer) in hostile {
        Archive::new("localhost/hostile:1", vec![Layer::new().file("first", 0o644, b"x").tar(), layer.tar()])
            .write(folder, file);
    }
    Archive::new("localhost/layout:1", layers()).write(folder, "layout.tar");
    let layout = std::fs::File::open(folder.join("layout.tar")).unwrap();
    tar::Archive::new(layout).unpack(folder.join("layout")).unwrap();
    std::fs::remove_file(folder.join("layout.tar")).unwrap();
    let cut = std::fs::read(folder.join("gzip.tar")).unwrap();
    std::fs::write(folder.join("bad-cut.tar"), &cut[..cut.len() / 2]).unwrap();
    std::fs::write(folder.join("bad-text.tar"), "not an archive").unwrap();
    let script = format!(
        "rm -f saved.tar; skopeo --override-arch {} copy --quiet 'oci-archive:{}' docker-archive:saved.tar:localhost/saved:1",
        Arch::current().image(),
        image("busybox").display()
    );
    host("skopeo", &script, folder);
}

/// What the node finds in its preload folder beside the image that the tests run.
pub(crate) fn preloaded(folder: &Path) {
    // Of its own: a layer that is here already is not read again, however wrong its digest in another archive.
    let layer = vec![Layer::new().file("preloaded", 0o644, b"x").tar()];
    // The names order them: what is broken comes first.
    std::fs::write(folder.join("a-text.tar"), "not an archive").unwrap();
    Archive::new("localhost/preloaded:1", layer).write(folder, "b-good.tar");
}

/// "images from a preload folder at start": nobody imported these, and a broken one is named and keeps no other away.
#[test]
fn the_preload_folder_is_imported_at_start() {
    let (node, _agent) = node();
    for image in [IMAGE, "localhost/preloaded:1"] {
        node.wait_until(&format!("armlet images | grep -q '^{image} '"), crate::node::PATIENCE);
    }
    let console = node.console();
    let refused = "preload: /var/lib/armlet/preload/a-text.tar is broken: ";
    assert!(console.contains(refused), "{console}");
}

/// "an OCI layout folder", as a program that does not pack it leaves it.
#[test]
fn an_oci_layout_folder_is_imported_and_runs() {
    let (node, _agent) = node();
    let imported = node.ok("cd /run/payload && armlet import ./layout");
    assert!(imported.contains("localhost/layout:1"), "{imported}");
    node.run_pod(
        "layout",
        "  containers:\n  - {name: main, image: 'localhost/layout:1', imagePullPolicy: Never, command: [sleep, '1000000']}",
    );
    assert_eq!(node.ok("armlet exec layout -- cat /data/kept"), "kept");
    node.remove_pod("layout");
    let empty = node.try_run("mkdir -p /tmp/empty && armlet import /tmp/empty");
    assert!(empty.status == 1 && empty.stderr.contains("/tmp/empty"), "{empty:?}");
}

/// "OCI layout tar archives, gzip and zstd; whiteouts, opaque folders, hard links, device nodes, setuid bits,
/// ownership right", as a container sees them.
#[test]
fn archives_become_the_root_file_systems_they_hold() {
    let (node, _agent) = node();
    for form in ["gzip", "zstd"] {
        let image = format!("localhost/{form}:1");
        let imported = node.ok(&format!("armlet import /run/payload/{form}.tar"));
        assert!(imported.contains(&image), "{imported}");
        let name = format!("unpacked-{form}");
        let see = "cd /; ls data opaque; cat data/kept; test data/one -ef data/two && echo linked; \
                   stat -c '%a %u %g %F %t:%T' setuid owned null; exec sleep 1000000";
        node.run_pod(
            &name,
            &format!(
                "  containers:\n  - {{name: main, image: {image}, imagePullPolicy: Never, command: [sh, -c, {see:?}]}}"
            ),
        );
        node.wait_until(&format!("armlet logs {name} | grep character"), crate::node::PATIENCE);
        let seen = node.ok(&format!("armlet logs {name}"));
        let expected = "data:\nkept\none\ntwo\n\nopaque:\nabove\nkeptlinked\n4755 0 0 regular file 0:0\n\
                        640 1234 1234 regular file 0:0\n600 0 0 character special file 1:3\n";
        assert_eq!(seen, expected, "{form}");
        node.remove_pod(&name);
    }
}

/// "docker-save form": as a program of others writes it.
#[test]
fn what_skopeo_saves_for_docker_is_imported_and_runs() {
    let (node, _agent) = node();
    let imported = node.ok("armlet import /run/payload/saved.tar -o json");
    assert!(imported.contains("localhost/saved:1"), "{imported}");
    node.run_pod(
        "saved",
        "  containers:\n  - {name: main, image: 'localhost/saved:1', imagePullPolicy: Never, command: [sleep, '1000000']}",
    );
    assert_eq!(node.ok("armlet exec saved -- echo here"), "here\n");
    node.remove_pod("saved");
}

/// "hostile archives (`..`, absolute links, links out of the root, bombs) refused; digests and diff ids verified", and
/// an image for other machines is refused by name. Nothing of any is left.
#[test]
fn bad_archives_are_refused_and_leave_nothing() {
    let (node, _agent) = node();
    let mut others = Vec::new();
    let foreign = format!(
        "localhost/foreign:1 in /run/payload/foreign.tar is for linux/s390x, and this node runs {}",
        Arch::current().image()
    );
    for (file, why) in [
        ("bad-parent.tar", "cannot be unpacked: member \"../../escaped\" is refused: a path holds '..'"),
        ("bad-link.tar", "cannot be unpacked: member \"out/escaped\" is refused: its parent is a link that leads"),
        ("bad-hard-link.tar", "cannot be unpacked: member \"passwd\" is refused: a path holds '..'"),
        ("bad-bomb.tar", "cannot be unpacked: member \"zeros\" is refused: the layer is larger than the limit"),
        ("bad-cut.tar", "/run/payload/bad-cut.tar is broken: "),
        ("bad-text.tar", "bad-text.tar is broken: the archive is not valid: "),
        ("bad-digest.tar", "in /run/payload/bad-digest.tar has digest "),
        ("bad-diff-id.tar", "in /run/payload/bad-diff-id.tar has digest "),
        ("foreign.tar", &foreign),
    ] {
        let output = node.try_run(&format!("armlet import /run/payload/{file}"));
        assert_eq!(output.status, 1, "{file}: {output:?}");
        let said = output.stderr.split_once("armlet: nothing was imported: ").map(|(_, said)| said);
        if !said.is_some_and(|said| said.contains(why)) {
            others.push(format!("{file}: {why:?} in {output:?}"));
        }
    }
    assert!(others.is_empty(), "{others:#?}");
    let absent = node.try_run("armlet import /run/payload/absent.tar");
    assert!(absent.status == 1 && absent.stderr.contains("absent.tar"), "{absent:?}");
    let images = node.ok("armlet images");
    assert!(!["hostile", "lie", "foreign"].iter().any(|name| images.contains(name)), "{images}");
    let left = node.ok("find / -xdev -name escaped; find /var/lib/armlet/images -name zeros -o -name first || true");
    assert_eq!(left, "");
}
