#!/usr/bin/env bash
# disk.sh OUT SIZE LABEL [DIR]: a sparse ext4 image with that label, filled from DIR.
. "$(dirname "$0")/../../cross/lib.sh"
out=$1 size=$2 label=$3 from=${4:-}
PATH=$PATH:/usr/sbin:/sbin
rm -f "$out"
truncate -s "$size" "$out"
# All tables are written now: a lazily initialised file system writes by itself for minutes, which spoils idle measurements.
mke2fs -q -F -t ext4 -L "$label" -m 0 -E lazy_itable_init=0,lazy_journal_init=0,nodiscard,root_owner=0:0 ${from:+-d "$from"} "$out"
