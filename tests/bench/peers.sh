#!/usr/bin/env bash
# peers.sh DIR: unpacks into DIR the programs that armlet is compared with, from Debian's arm64 packages: crun and podman.
. "$(dirname "$0")/../../cross/lib.sh"
into=${1:?a folder}
for name in $(debian_with_libraries arm64 "crun podman conmon netavark aardvark-dns nftables golang-github-containers-common golang-github-containers-image"); do
    dpkg -x "$(debian_fetch arm64 "$name")" "$into"
done
rm -rf "$into"/usr/share/{doc,man,locale,lintian,bash-completion,zsh,fish}
