#!/usr/bin/env bash
# verify.sh BINARY: refuses a binary that is not a static ELF of ARMLET_ARCH (aarch64), or one for aarch64 whose segments do
# not fit kernels with 64 KiB pages.
. "$(dirname "$0")/lib.sh"
binary=$1
case $ARMLET_ARCH in
    aarch64) machine="ARM aarch64" align=0x10000 pages=", 64 KiB segments" ;;
    # Its pages have one size.
    x86_64) machine="x86-64" align="" pages="" ;;
esac
file -b "$binary" | grep -q "ELF 64-bit LSB .*$machine.*\(statically linked\|static-pie linked\)" ||
    die "$binary is not a static $ARMLET_ARCH binary: $(file -b "$binary")"
[ -z "$align" ] || readelf -lW "$binary" | awk -v a="$align" '$1 == "LOAD" && $NF != a { bad = 1 } END { exit bad }' ||
    die "$binary has segments that are not aligned to 64 KiB"
say "$(file -b "$binary" | cut -d, -f1-4)$pages, $(($(stat -c %s "$binary") / 1024)) KiB"
