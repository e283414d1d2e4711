#!/usr/bin/env bash
# verify.sh BINARY: refuses a binary that is not a static aarch64 ELF or whose segments do not fit kernels with 64 KiB pages.
. "$(dirname "$0")/lib.sh"
binary=$1
file -b "$binary" | grep -q 'ELF 64-bit LSB .*ARM aarch64.*\(statically linked\|static-pie linked\)' || die "$binary is not a static aarch64 binary: $(file -b "$binary")"
readelf -lW "$binary" | awk '$1 == "LOAD" && $NF != "0x10000" { bad = 1 } END { exit bad }' || die "$binary has segments that are not aligned to 64 KiB"
say "$(file -b "$binary" | cut -d, -f1-4), 64 KiB segments, $(($(stat -c %s "$binary") / 1024)) KiB"
