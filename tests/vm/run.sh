#!/usr/bin/env bash
# run.sh DIR [QEMU-ARGUMENT...]: boots the bare guest, runs DIR/run.sh in it, prints its output, exits with its status.
# In the guest: DIR at /run/payload (read only), an ext4 disk of DATA_SIZE (256M) at /var/lib/armlet, cgroup2 with all
# controllers, the modules of the board, network 10.0.2.15 (the host is 10.0.2.2), busybox as the tools.
# T=seconds bounds the whole run (120), SHOW_CONSOLE=1 prints the kernel's messages after it, STDIN is not used.
. "$(dirname "$0")/../../cross/lib.sh"
payload=${1:?a folder with run.sh}; shift
[ -f "$payload/run.sh" ] || die "$payload/run.sh is missing"
vm=$(mktemp -d "${TMPDIR:-/tmp}/armlet-vm.XXXXXX")
trap 'rm -rf "$vm"' EXIT
initramfs=$("$ROOT/tests/vm/prepare.sh" bare)
# Space for the ext4 structures beside what is packed.
"$ROOT/tests/vm/disk.sh" "$vm/payload.img" $(($(du -sm "$payload" | cut -f1) * 5 / 4 + 16))M armlet-payload "$payload"
"$ROOT/tests/vm/disk.sh" "$vm/data.img" "${DATA_SIZE:-256M}" armlet-data
VM_DIR=$vm INITRAMFS=$initramfs DATA=$vm/data.img PAYLOAD=$vm/payload.img APPEND="quiet ${APPEND:-}" \
    timeout "${T:-120}" "$ROOT/tests/vm/boot.sh" "$@" </dev/null || say "QEMU ended with $?"
[ -e "$vm/report.log" ] && sed '/^EXIT [0-9]*$/d' "$vm/report.log"
[ -z "${SHOW_CONSOLE:-}" ] || cat "$vm/console.log" >&2
status=$(sed -n 's/^EXIT \([0-9]*\)$/\1/p' "$vm/report.log" | tail -n1)
[ -n "$status" ] || { [ -n "${SHOW_CONSOLE:-}" ] || tail -n 30 "$vm/console.log" >&2; die "the guest ended without a status"; }
exit "$status"
