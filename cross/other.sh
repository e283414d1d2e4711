#!/usr/bin/env bash
# other.sh [PROFILE]: builds a second armlet for the tests of upgrades and prints its path. It is really another one: another
# version, other fields in what is handed over (the feature `other-build`), and other code of the same source. Only the
# crate armlet is compiled again.
. "$(dirname "$0")/lib.sh"
hold_lock
profile=${1:-qemu}
"$ROOT/cross/cargo.sh" build --profile "$profile" --bin armlet --features other-build \
    --config "profile.$profile.package.armlet.opt-level=1" >&2
case $profile in dev) folder=debug ;; *) folder=$profile ;; esac
binary=$TARGET/$TRIPLE/$folder/armlet
cp "$binary" "$binary-other.part"
mv "$binary-other.part" "$binary-other"
# Both are kept by cargo, but only one at a time has the name.
"$ROOT/cross/build.sh" "$profile" >/dev/null
echo "$binary-other"
