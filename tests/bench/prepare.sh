#!/usr/bin/env bash
# prepare.sh: makes what the measured guests get beside armlet below target/bench/ and prints that folder:
#   payload/probe      the program of the measured containers (probe.c)
#   payload/probe.tar  its image, localhost/probe:1
#   payload/peers/     crun and podman of Debian with their libraries
#   boot.cpio          the manifest of the pod that starts with the node, to be appended to the node's initramfs
#   bare.cpio          an initramfs with nothing but the probe
. "$(dirname "$0")/../../cross/lib.sh"
here=$ROOT/tests/bench
bench=$TARGET/bench
payload=$bench/payload
# The last two are what only installing other packages needs, but podman links to.
peers="crun podman conmon netavark golang-github-containers-common golang-github-containers-image libsemanage2 libpam0g"

# pack DIR OUT: an uncompressed newc archive, as tests/vm/prepare.sh makes them.
pack() { (cd "$1" && find . -mindepth 1 | LC_ALL=C sort | cpio --quiet -o -H newc -R 0:0 --reproducible) >"$2.part" && mv "$2.part" "$2"; }

prepare_probe() {
    local work=$bench/work layer
    "$TOOLS/python/bin/python" -m ziglang cc -target aarch64-linux-musl -Os -static -s -Wall -Wextra -Werror \
        "$here/probe.c" -o "$payload/probe"
    rm -rf "$work"; mkdir -p "$work"/{layer,image,bare,boot/etc/armlet/manifests}
    # An image in the form of `docker save`: one layer with one program.
    cp "$payload/probe" "$work/layer/"
    tar -C "$work/layer" --sort=name --mtime=@1735689600 --owner=0 --group=0 --numeric-owner -cf "$work/image/layer.tar" .
    layer=$(sha256_of "$work/image/layer.tar")
    printf '{"architecture":"arm64","os":"linux","config":{"Entrypoint":["/probe"]},"rootfs":{"type":"layers","diff_ids":["sha256:%s"]}}' \
        "$layer" >"$work/image/config.json"
    printf '[{"Config":"config.json","RepoTags":["localhost/probe:1"],"Layers":["layer.tar"]}]' >"$work/image/manifest.json"
    tar -C "$work/image" --sort=name --mtime=@1735689600 --owner=0 --group=0 --numeric-owner -cf "$payload/probe.tar" .
    cp "$payload/probe" "$work/bare/init"
    pack "$work/bare" "$bench/bare.cpio"
    cp "$here/boot.yaml" "$work/boot/etc/armlet/manifests/"
    pack "$work/boot" "$bench/boot.cpio"
    rm -rf "$work"
}

prepare_peers() {
    local list archives archive
    list=$(with_libraries arm64 "$peers")
    # shellcheck disable=SC2086 # a list of names
    archives=$(debian_fetch arm64 $list)
    [ "$(cat "$bench/peers.made-from" 2>/dev/null)" = "$archives" ] && return
    say "unpacking crun, podman and their libraries"
    rm -rf "$payload/peers"; mkdir -p "$payload/peers"
    for archive in $archives; do dpkg -x "$archive" "$payload/peers"; done
    rm -rf "$payload"/peers/usr/share/{doc,man,lintian,locale,bug,bash-completion,zsh,fish} "$payload"/peers/usr/lib/*/gconv
    echo "$archives" >"$bench/peers.made-from"
}

hold_lock
install_packages cpio
"$ROOT/cross/tools.sh"
mkdir -p "$payload"
prepare_probe >&2
prepare_peers >&2
echo "$bench"
