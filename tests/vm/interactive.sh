#!/usr/bin/env bash
# interactive.sh: a node in QEMU with a root shell on this terminal. Its data disk stays in target/vm/node.img between
# runs. Ctrl-A x ends it. FORWARD="8080 6379" names the ports of the node that are made reachable on 127.0.0.1, by
# default the one of docs/examples/redis.yaml; each gets the same number here, or a free one where that is taken.
. "$(dirname "$0")/../../cross/lib.sh"
vm=$VM
initramfs=$("$ROOT/tests/vm/prepare.sh" debug)
[ -e "$vm/node.img" ] || "$ROOT/tests/vm/disk.sh" "$vm/node.img" 2048M armlet-data
"$ROOT/images/pack.sh" busybox redis >/dev/null
payload=$vm/node-payload
rm -rf "$payload"; mkdir -p "$payload"
cp -r "$IMAGES" "$ROOT/docs/examples" "$payload/"
"$ROOT/tests/vm/disk.sh" "$vm/node-payload.img" 64M armlet-payload "$payload"
# port_here PORT: that port of this machine, or a free one.
port_here() {
    python3 -c 'import socket, sys
for port in int(sys.argv[1]), 0:
    try:
        with socket.socket() as s:
            s.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            s.bind(("127.0.0.1", port))
            print(s.getsockname()[1])
            break
    except OSError:
        pass' "$1"
}
forward="" shown=""
for port in ${FORWARD:-6379}; do
    here=$(port_here "$port")
    forward+=" tcp:127.0.0.1:$here-:$port" shown+="${shown:+, }$port at 127.0.0.1:$here"
done
say "root shell in the node: Ctrl-A x ends it; port $shown"
say "try: mkdir -p /etc/armlet/manifests; armlet import /run/payload/images/redis.tar"
say "     cp /run/payload/examples/redis.yaml /etc/armlet/manifests; armlet ps"
VM_DIR=$vm/interactive INITRAMFS=$initramfs DATA=$vm/node.img PAYLOAD=$vm/node-payload.img HOSTFWD=$forward SHELL_ON=stdio \
    APPEND="quiet rdinit=/debug ${APPEND:-armlet.ip=dhcp}" exec "$ROOT/tests/vm/boot.sh"
