#!/usr/bin/env bash
# pack.sh NAME...: packs images/recipes/NAME from Debian packages into target/images/NAME.tar (target/images-x86_64/), an OCI layout whose image
# is named localhost/NAME:trixie, and prints the paths. The same packages give the same bytes.
. "$(dirname "$0")/../cross/lib.sh"
images=$IMAGES
epoch=1735689600

# The names under which busybox looks up what to do; the package leaves making them to its owner.
applets="[ awk base64 basename cat chgrp chmod chown cmp cp cut date dd df dirname dmesg du echo env expr false find fold
grep gunzip gzip head hexdump hostname httpd id ifconfig ip kill killall less ln ls md5sum mkdir mkfifo mknod mktemp mount mv
nc netstat nproc nslookup od pgrep pidof ping printenv printf ps pwd readlink realpath rm rmdir route sed seq setsid sh
sha256sum sleep sort stat stty su sync tail tar tee test timeout top touch tr true tty udhcpc umask umount uname uniq
usleep vi wc wget which whoami xargs yes"

base_files() {
    local root=$1 entry
    mkdir -p "$root"/{etc,proc,sys,dev,run,root,var/tmp,usr/bin,usr/sbin,usr/lib} "$root/tmp"
    chmod 1777 "$root/tmp" "$root/var/tmp"
    chmod 700 "$root/root"
    for entry in bin sbin lib; do ln -s "usr/$entry" "$root/$entry"; done
    printf 'root:x:0:0:root:/root:/bin/sh\nnobody:x:65534:65534:nobody:/nonexistent:/usr/sbin/nologin\n' >"$root/etc/passwd"
    printf 'root:x:0:\nnogroup:x:65534:\n' >"$root/etc/group"
    for entry in ${accounts:-}; do
        printf '%s:x:%s:%s::/nonexistent:/bin/false\n' "${entry%:*}" "${entry#*:}" "${entry#*:}" >>"$root/etc/passwd"
        printf '%s:x:%s:\n' "${entry%:*}" "${entry#*:}" >>"$root/etc/group"
    done
}

# layer DIR: tars it reproducibly into the layout; sets digest, diff and size.
layer() {
    local part=$work/layer.tar entry path options=(--sort=name --mtime="@$epoch" --numeric-owner --format=pax --pax-option=delete=atime,delete=ctime,exthdr.name=%d/PaxHeaders/%f)
    local excluded=()
    for entry in ${owned:-}; do excluded+=(--exclude="./${entry%:*}"); done
    tar -C "$1" "${options[@]}" --owner=0 --group=0 "${excluded[@]}" -cf "$part" .
    for entry in ${owned:-}; do
        path=${entry%:*}
        [ ! -e "$1/$path" ] || tar -C "$1" "${options[@]}" --owner="${entry#*:}" --group="${entry#*:}" -rf "$part" "./$path"
    done
    diff=$(sha256_of "$part")
    gzip -n -6 "$part"
    blob "$part.gz"
}

# blob FILE: moves it into the layout by its digest; sets digest and size.
blob() { digest=$(sha256_of "$1") size=$(stat -c %s "$1"); mv "$1" "$layout/blobs/sha256/$digest"; }

pack() {
    local name=$1 architecture packages config accounts="" owned="" package list digest diff size
    # shellcheck source=/dev/null
    . "$ROOT/images/recipes/$name"
    local work=$images/work-$name; layout=$work/layout
    list=$(with_libraries "$architecture" "$packages")
    local archives
    # shellcheck disable=SC2086 # a list of names
    archives=$(debian_fetch "$architecture" $list)
    local want; want=$(cat "$ROOT/images/pack.sh" "$ROOT/images/recipes/$name" - <<<"$archives" | sha256sum)
    if [ -e "$images/$name.tar" ] && [ "$(cat "$images/$name.made-from" 2>/dev/null)" = "$want" ]; then return; fi
    say "packing image $name"
    rm -rf "$work"; mkdir -p "$layout/blobs/sha256" "$work/base" "$work/app"

    # Libraries change seldom and are shared, so they are a layer of their own below the program's.
    base_files "$work/base"
    for package in $list; do
        local into=base
        case " $packages " in *" $package "*) into=app ;; esac
        dpkg -x "$(debian_fetch "$architecture" "$package")" "$work/$into"
    done
    if [ -e "$work/app/usr/bin/busybox" ]; then for package in $applets; do ln -s busybox "$work/app/usr/bin/$package"; done; fi
    for package in $owned; do mkdir -p "$work/app/${package%:*}"; done
    rm -rf "$work"/{base,app}/usr/share/{doc,man,lintian,locale,bug,initramfs-tools,gcc} "$work"/{base,app}/etc/{init.d,default,logrotate.d} "$work"/{base,app}/usr/lib/{systemd,*/gconv}

    local base_digest base_diff base_size app_digest app_diff app_size config_digest config_size oci=$architecture variant=""
    layer "$work/base"; base_digest=$digest base_diff=$diff base_size=$size
    layer "$work/app"; app_digest=$digest app_diff=$diff app_size=$size
    case $architecture in arm64) variant=',"variant":"v8"' ;; armhf) oci=arm variant=',"variant":"v7"' ;; esac
    printf '{"created":"2025-01-01T00:00:00Z","architecture":"%s"%s,"os":"linux","config":{"Env":["PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"],%s},"rootfs":{"type":"layers","diff_ids":["sha256:%s","sha256:%s"]}}' \
        "$oci" "$variant" "$config" "$base_diff" "$app_diff" >"$work/config"
    blob "$work/config"; config_digest=$digest config_size=$size
    printf '{"schemaVersion":2,"mediaType":"application/vnd.oci.image.manifest.v1+json","config":{"mediaType":"application/vnd.oci.image.config.v1+json","digest":"sha256:%s","size":%s},"layers":[{"mediaType":"application/vnd.oci.image.layer.v1.tar+gzip","digest":"sha256:%s","size":%s},{"mediaType":"application/vnd.oci.image.layer.v1.tar+gzip","digest":"sha256:%s","size":%s}]}' \
        "$config_digest" "$config_size" "$base_digest" "$base_size" "$app_digest" "$app_size" >"$work/manifest"
    blob "$work/manifest"
    printf '{"schemaVersion":2,"mediaType":"application/vnd.oci.image.index.v1+json","manifests":[{"mediaType":"application/vnd.oci.image.manifest.v1+json","digest":"sha256:%s","size":%s,"platform":{"architecture":"%s","os":"linux"%s},"annotations":{"io.containerd.image.name":"localhost/%s:trixie","org.opencontainers.image.ref.name":"trixie"}}]}' \
        "$digest" "$size" "$oci" "$variant" "$name" >"$layout/index.json"
    printf '{"imageLayoutVersion":"1.0.0"}' >"$layout/oci-layout"
    tar -C "$layout" --sort=name --mtime="@$epoch" --owner=0 --group=0 --numeric-owner --format=ustar -cf "$images/$name.tar" oci-layout index.json blobs
    rm -rf "$work"
    echo "$want" >"$images/$name.made-from"
}

[ $# -gt 0 ] || die "usage: images/pack.sh NAME..."
hold_lock
install_packages ca-certificates debian-archive-keyring
mkdir -p "$images"
for name; do
    [ -f "$ROOT/images/recipes/$name" ] || die "no recipe images/recipes/$name"
    pack "$name" >&2
    echo "$images/$name.tar"
done
