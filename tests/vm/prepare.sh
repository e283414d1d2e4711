#!/usr/bin/env bash
# prepare.sh KIND: makes the guest's kernel, modules and initramfs below target/vm/ (target/vm-x86_64/) and prints the path of the initramfs.
#   bare  busybox as process 1: a place to run any static program
#   node  armlet as process 1 and nothing else inside; ARMLET_BINARY names the binary
#   disk  what hands over to the system on the data disk, such as debian.sh makes
#   debug the node, with the busybox shell of the test harness beside armlet (boot it with rdinit=/debug)
. "$(dirname "$0")/../../cross/lib.sh"
kind=${1:?bare, disk, node or debug}
here=$ROOT/tests/vm
vm=$VM
case $ARMLET_ARCH in
    aarch64) board=qemu-virt qemu=qemu-system-arm ;;
    x86_64) board=qemu-q35 qemu=qemu-system-x86 ;;
esac

# board_list KEY: the strings of a TOML array in the board file that is written one a line.
board_list() { awk -v key="$1" '$1 == key && /\[$/ { on = 1; next } /^\]/ { on = 0 } on { gsub(/[",[:space:]]/, ""); print }' "$ROOT/board/$board.toml"; }

# The kernel of Debian's cloud images; without the pinned one, what the newest linux-image-cloud-* depends on.
kernel_package() {
    local name
    name=$(awk -v a="$DEBIAN_ARCH" '$1 == a && $2 ~ "^linux-image-.*-cloud-" a "$" { print $2 }' "$ROOT/cross/debian.pins")
    [ -e "$DEBIAN/pool/$DEBIAN_ARCH/$name.newest" ] || compgen -G "$DEBIAN/pool/$DEBIAN_ARCH/${name}_*.deb" >/dev/null || {
        debian_update "$DEBIAN_ARCH"
        if ! debian_apt "$DEBIAN_ARCH" apt-cache show "$name" >/dev/null 2>&1; then
            name=$(debian_apt "$DEBIAN_ARCH" apt-cache depends "linux-image-cloud-$DEBIAN_ARCH" | awk '$1 == "Depends:" { print $2 }')
            [ -n "$name" ] || die "no kernel package is to be had"
        fi
    }
    debian_fetch "$DEBIAN_ARCH" "$name"
}

prepare_kernel() {
    local out=$vm/kernel modules deb version unpacked
    deb=$(kernel_package)
    modules=$(board_list modules)
    local want="$deb $modules"
    [ "$(cat "$out/made-from" 2>/dev/null)" = "$want" ] && return
    say "unpacking $(basename "$deb" .deb)"
    unpacked=$vm/unpacked
    rm -rf "$out" "$unpacked"; mkdir -p "$out/modules" "$unpacked"
    dpkg -x "$deb" "$unpacked"
    cp "$unpacked"/boot/vmlinuz-* "$out/Image"
    # depmod looks below lib/, where a merged system has a link.
    [ -e "$unpacked/lib" ] || ln -s usr/lib "$unpacked/lib"
    version=$(basename "$unpacked"/lib/modules/*)
    PATH=$PATH:/usr/sbin:/sbin depmod -b "$unpacked" "$version" 2>/dev/null
    # modules.dep lists what a module needs from right to left; the order file wants the needed one first, each once.
    tr ' ' '\n' <<<"$modules" | awk -v dir="$unpacked/lib/modules/$version" '
        function key(path) { sub(/.*\//, "", path); sub(/\.ko.*/, "", path); gsub(/-/, "_", path); return path }
        BEGIN {
            while ((getline line < (dir "/modules.dep")) > 0) { split(line, part, ": *"); needs[key(part[1])] = part[1] " " part[2] }
            while ((getline line < (dir "/modules.builtin")) > 0) builtin[key(line)] = 1
        }
        $0 == "" { next }
        builtin[key($0)] { next }
        !(key($0) in needs) { print "no module " $0 > "/dev/stderr"; failed = 1; next }
        { n = split(needs[key($0)], path, " "); for (i = n; i >= 1; i--) if (!seen[path[i]]++) print path[i] }
        END { exit failed }' >"$out/order-paths" || die "the kernel lacks a module that board/$board.toml names"
    local path name
    while read -r path; do
        name=$(basename "${path%.xz}")
        case $path in
            *.xz) xz -dc "$unpacked/lib/modules/$version/$path" >"$out/modules/$name" ;;
            *) cp "$unpacked/lib/modules/$version/$path" "$out/modules/$name" ;;
        esac
        echo "$name" >>"$out/modules/order"
    done <"$out/order-paths"
    cp "$unpacked/boot/config-$version" "$out/config"
    rm -rf "$unpacked"
    echo "$want" >"$out/made-from"
}

# pack DIR OUT: an uncompressed newc archive: under emulation unpacking gzip costs more than reading the bytes.
# A guest that boots meanwhile has the file of before: the new one takes its name when it is whole.
pack() { (cd "$1" && find . -mindepth 1 | LC_ALL=C sort | cpio --quiet -o -H newc -R 0:0 --reproducible) >"$2.part" && mv "$2.part" "$2"; }

busybox() {
    local dir=$vm/busybox
    [ -x "$dir/usr/bin/busybox" ] || { mkdir -p "$dir"; dpkg -x "$(debian_fetch "$DEBIAN_ARCH" busybox-static)" "$dir"; }
    echo "$dir/usr/bin/busybox"
}

install_packages ca-certificates debian-archive-keyring "$qemu" e2fsprogs cpio kmod xz-utils file socat
hold_lock
mkdir -p "$vm"
prepare_kernel
tree=$(mktemp -d "$vm/tree.XXXXXX")
trap 'rm -rf "$tree"' EXIT
chmod 755 "$tree"; mkdir -p "$tree/lib/armlet"
cp -r "$vm/kernel/modules" "$tree/lib/armlet/modules"
case $kind in
    bare)
        mkdir -p "$tree/bin"
        cp "$(busybox)" "$tree/bin/busybox"
        cp "$here/guest/bare.sh" "$tree/init"
        cp "$here/guest/shell.sh" "$tree/shell"
        ;;
    disk)
        mkdir -p "$tree/bin"
        cp "$(busybox)" "$tree/bin/busybox"
        cp "$here/guest/disk.sh" "$tree/init"
        ;;
    node | debug)
        cp "${ARMLET_BINARY:?the path of the binary}" "$tree/init"
        if [ "$kind" = debug ]; then
            mkdir -p "$tree/bin"
            cp "$(busybox)" "$tree/bin/busybox"
            cp "$here/guest/debug.sh" "$tree/debug"
            cp "$here/guest/shell.sh" "$tree/shell"
        fi
        ;;
    *) die "no such kind of guest: $kind" ;;
esac
find "$tree" -type f ! -path '*/modules/*' -exec chmod 755 {} +
pack "$tree" "$vm/$kind.cpio"
echo "$vm/$kind.cpio"
