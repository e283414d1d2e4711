#!/usr/bin/env bash
# container.sh: builds armlet with `cross` in the image of cross/Dockerfile, as people with a container engine do, and checks
# the binary. Where there is no cross, or no engine that answers, it says so and that nothing was tried.
. "$(dirname "$0")/lib.sh"
[ "$ARMLET_ARCH" = aarch64 ] || die "cross/Dockerfile is for aarch64"
skip() { say "cross build in a container: skipped, $*"; exit 0; }

command -v cross >/dev/null || skip "there is no cross (cargo install cross)"
for engine in ${CROSS_CONTAINER_ENGINE:-podman docker}; do
    # A client alone is no engine.
    if timeout 30 "$engine" info >/dev/null 2>&1; then export CROSS_CONTAINER_ENGINE=$engine; break; fi
done
[ -n "${CROSS_CONTAINER_ENGINE:-}" ] || skip "neither podman nor docker answers"
say "cross build in a container of $CROSS_CONTAINER_ENGINE"
cd "$ROOT"
CROSS_CONFIG=cross/Cross.toml CARGO_TARGET_DIR=$TARGET/cross cross build --locked --release --target "$TRIPLE" --bin armlet >&2
"$ROOT/cross/verify.sh" "$TARGET/cross/$TRIPLE/release/armlet"
