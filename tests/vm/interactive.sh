#!/usr/bin/env bash
# interactive.sh: a node in QEMU with a root shell on this terminal. Its data disk stays in target/vm/node.img between
# runs. Ctrl-A x ends it. FORWARD="8080 6379" makes more ports of the node reachable on 127.0.0.1.
. "$(dirname "$0")/../../cross/lib.sh"
vm=$TARGET/vm
initramfs=$("$ROOT/tests/vm/prepare.sh" debug)
[ -e "$vm/node.img" ] || "$ROOT/tests/vm/disk.sh" "$vm/node.img" 2048M armlet-data
"$ROOT/images/pack.sh" busybox redis >/dev/null
payload=$vm/node-payload
rm -rf "$payload"; mkdir -p "$payload"
cp -r "$TARGET/images" "$ROOT/docs/examples" "$payload/"
"$ROOT/tests/vm/disk.sh" "$vm/node-payload.img" 64M armlet-payload "$payload"
forward=""
for port in 10250 ${FORWARD:-6379}; do forward+=" tcp:127.0.0.1:$port-:$port"; done
say "root shell in the node: Ctrl-A x ends it, images and examples are in /run/payload, ports:$forward"
VM_DIR=$vm/interactive INITRAMFS=$initramfs DATA=$vm/node.img PAYLOAD=$vm/node-payload.img HOSTFWD=$forward SHELL_ON=stdio \
    APPEND="quiet rdinit=/debug ${APPEND:-armlet.ip=dhcp}" exec "$ROOT/tests/vm/boot.sh"
