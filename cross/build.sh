#!/usr/bin/env bash
# build.sh [PROFILE]: builds the static binary for ARMLET_ARCH (aarch64) without a container engine and prints its path.
# PROFILE is release (default; fat LTO takes minutes), qemu (what the tests run) or dev.
. "$(dirname "$0")/lib.sh"
profile=${1:-release}
"$ROOT/cross/cargo.sh" build --profile "$profile" --bin armlet >&2
case $profile in dev) folder=debug ;; *) folder=$profile ;; esac
binary=$TARGET/$TRIPLE/$folder/armlet
"$ROOT/cross/verify.sh" "$binary" >&2
echo "$binary"
