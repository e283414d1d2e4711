#!/usr/bin/env bash
# pin.sh ARCH NAME...: prints the lines for cross/debian.pins that pin the newest versions Debian signs today.
. "$(dirname "$0")/lib.sh"
[ $# -ge 2 ] || die "usage: cross/pin.sh ARCH NAME..."
arch=$1; shift
hold_lock
rm -f "$DEBIAN/$DEBIAN_SUITE-$arch/updated"
debian_update "$arch"
debian_apt "$arch" apt-cache show --no-all-versions "$@" |
    awk -v arch="$arch" '/^Package:/ { name = $2 } /^Version:/ { version = $2 } /^SHA256:/ { print arch, name, version, $2 }'
