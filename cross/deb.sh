#!/usr/bin/env bash
# deb.sh [PROFILE]: builds the Debian package for ARMLET_ARCH (aarch64) and prints its path below target/deb. PROFILE as for
# build.sh, release by default. ARMLET_BINARY names a binary that is built already, DEB_VERSION another version than Cargo.toml's.
. "$(dirname "$0")/lib.sh"
parts=$ROOT/cross/deb
binary=${ARMLET_BINARY:-$("$ROOT/cross/build.sh" "${1:-release}")}
licences=$("$ROOT/cross/licences.sh")
# A version of cargo's before a release is one before it for dpkg too.
version=${DEB_VERSION:-$(sed -n '/^\[package\]/,/^\[/s/^version *= *"\(.*\)"/\1/p' "$ROOT/Cargo.toml" | sed 's/-/~/')}
epoch=$(git -C "$ROOT" log -1 --format=%ct 2>/dev/null || echo 1735689600)
mkdir -p "$TARGET/deb"
stage=$(mktemp -d "$TARGET/deb/stage.XXXXXX")
trap 'rm -rf "$stage"' EXIT
chmod 755 "$stage"

# put MODE FILE PLACE: a copy in the package.
put() { install -D -m "$1" "$2" "$stage/$3"; }
# squeeze PLACE: gzip without a time in it.
squeeze() { gzip -n -9 "$stage/$1"; }

put 755 "$binary" usr/bin/armlet
for unit in armlet.slice armlet.service armlet-supervisor.service; do
    # The same units as `armlet install` writes, by the same replacement.
    mkdir -p "$stage/usr/lib/systemd/system"
    sed 's,/usr/local/bin/armlet,/usr/bin/armlet,' "$ROOT/src/install/$unit" >"$stage/usr/lib/systemd/system/$unit"
done
# Manual pages and completions are the same on every machine, and this one can run its own program only.
(cd "$ROOT" && cargo build --quiet --locked --bin armlet) >&2
own=$TARGET/debug/armlet
mkdir -p "$stage/usr/share/man/man1"
"$own" man --dir "$stage/usr/share/man/man1" >/dev/null
find "$stage/usr/share/man" -type f -exec gzip -n -9 {} +
# complete SHELL PLACE: its completions in the package.
complete() { mkdir -p "$stage/${2%/*}"; "$own" completions "$1" >"$stage/$2"; }
complete bash usr/share/bash-completion/completions/armlet
complete zsh usr/share/zsh/vendor-completions/_armlet
complete fish usr/share/fish/vendor_completions.d/armlet.fish
doc=usr/share/doc/armlet
put 644 "$parts/copyright" "$doc/copyright"
put 644 "$ROOT/NOTICE" "$doc/NOTICE"; squeeze "$doc/NOTICE"
put 644 "$licences" "$doc/LICENCES"; squeeze "$doc/LICENCES"
put 644 "$ROOT/CHANGELOG.md" "$doc/CHANGELOG.md"; squeeze "$doc/CHANGELOG.md"
maintainer=$(sed -n 's/^Maintainer: //p' "$parts/control")
printf 'armlet (%s) unstable; urgency=medium\n\n  * What is new is in CHANGELOG.md.gz beside this file.\n\n -- %s  %s\n' \
    "$version" "$maintainer" "$(LC_ALL=C date -u -R -d "@$epoch")" >"$stage/$doc/changelog"; squeeze "$doc/changelog"
put 644 "$parts/lintian-overrides" usr/share/lintian/overrides/armlet
find "$stage" -type f -exec chmod u+w,go-w,a+r {} +

mkdir "$stage/DEBIAN"
sed -e "s/@VERSION@/$version/" -e "s/@ARCH@/$DEBIAN_ARCH/" -e "s/@SIZE@/$(du -k -s --apparent-size "$stage" | cut -f1)/" \
    "$parts/control" >"$stage/DEBIAN/control"
for script in preinst postinst prerm postrm; do install -m 755 "$parts/$script" "$stage/DEBIAN/$script"; done
(cd "$stage" && find usr -type f -print0 | LC_ALL=C sort -z | xargs -0 md5sum) >"$stage/DEBIAN/md5sums"
out=$TARGET/deb/armlet_${version}_$DEBIAN_ARCH.deb
# Every dpkg that knows the architectures reads xz.
SOURCE_DATE_EPOCH=$epoch dpkg-deb --root-owner-group -Zxz --build "$stage" "$out" >/dev/null
say "$(basename "$out"), $(($(stat -c %s "$out") / 1024)) KiB"
echo "$out"
