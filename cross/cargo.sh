#!/usr/bin/env bash
# cargo.sh COMMAND [ARGUMENT...]: a cargo command for the static target of ARMLET_ARCH (aarch64), without a container engine: build, check,
# clippy, or test with --no-run.
. "$(dirname "$0")/lib.sh"
command=${1:?a cargo command}; shift

"$ROOT/cross/tools.sh"
export PATH=$TOOLS/python/bin:$PATH
# Both are read by the libseccomp crate: link the archive built beside, never a library of the host.
export LIBSECCOMP_LINK_TYPE=static LIBSECCOMP_LIB_PATH=${LIBSECCOMP_LIB_PATH:-$TOOLS/libseccomp-$TRIPLE/lib}

cd "$ROOT"
source=()
if [ ! -d "$(rustc --print sysroot)/lib/rustlib/$TRIPLE/lib" ]; then
    # cross/tools.sh could not install the compiled standard library and brought its source.
    library=$(echo "$TOOLS"/rust-source/usr/src/rustc-*/library)
    export RUSTC_BOOTSTRAP=1 __CARGO_TESTS_ONLY_SRC_ROOT=$library
    source=(-Zbuild-std=std,panic_unwind)
fi
case $command in build) command=zigbuild ;; esac
exec cargo-zigbuild "$command" --locked --target "$TRIPLE" "${source[@]}" "$@"
