#!/usr/bin/env bash
# build.sh [PROFILE] [CARGO-ARGUMENT...]: builds the static aarch64 binary without a container engine and prints its path.
# PROFILE is release (default; fat LTO takes minutes), qemu (what the tests run) or dev. With arguments for cargo it only passes
# them on: `cross/build.sh qemu --tests --message-format=json`.
. "$(dirname "$0")/lib.sh"
profile=${1:-release}; shift || true

"$ROOT/cross/tools.sh"
export PATH=$TOOLS/python/bin:$PATH
# Both are read by the libseccomp crate: link the archive built beside, never a library of the host.
export LIBSECCOMP_LINK_TYPE=static LIBSECCOMP_LIB_PATH=${LIBSECCOMP_LIB_PATH:-$TOOLS/libseccomp-$TRIPLE/lib}
# The zig wrapper caches below target/, not in the home directory.
export CARGO_ZIGBUILD_CACHE_DIR=$TOOLS/zigbuild ZIG_GLOBAL_CACHE_DIR=$TOOLS/zig-cache

cd "$ROOT"
build=(cargo zigbuild --locked --profile "$profile" --target "$TRIPLE")
if [ ! -d "$(rustc --print sysroot)/lib/rustlib/$TRIPLE/lib" ]; then
    # cross/tools.sh could not install the compiled standard library and brought its source.
    library=$(echo "$TOOLS"/rust-source/usr/src/rustc-*/library)
    export RUSTC_BOOTSTRAP=1 __CARGO_TESTS_ONLY_SRC_ROOT=$library
    build+=(-Zbuild-std=std,panic_unwind)
fi
if [ $# != 0 ]; then exec "${build[@]}" "$@"; fi
"${build[@]}" --bin armlet >&2

case $profile in dev) folder=debug ;; *) folder=$profile ;; esac
binary=$TARGET/$TRIPLE/$folder/armlet
"$ROOT/cross/verify.sh" "$binary" >&2
echo "$binary"
