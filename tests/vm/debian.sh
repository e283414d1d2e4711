#!/usr/bin/env bash
# debian.sh: makes the root file system of a small Debian with systemd, as its installer would leave it before the first
# boot, and prints the path of the ext4 image. The packages are unpacked here and entered as installed into dpkg's list:
# their scripts would need the processor that they are for. What those scripts would have made is made below.
. "$(dirname "$0")/../../cross/lib.sh"
vm=$VM
out=$vm/debian
here=$ROOT/tests/vm

# The essential packages and what a server has beside them, with all that they depend on; and the neighbours with which a
# node is to get along.
packages() {
    local cache=$DEBIAN/packages-$DEBIAN_ARCH-system-with-neighbours
    if [ ! -s "$cache" ]; then
        debian_update "$DEBIAN_ARCH"
        debian_apt "$DEBIAN_ARCH" apt-get -s --no-install-recommends install '?essential' systemd-sysv udev iproute2 procps kmod nftables passwd login docker.io docker-cli podman ufw |
            awk '$1 == "Inst" { print $2 }' >"$cache"
    fi
    cat "$cache"
    awk -v a="$DEBIAN_ARCH" '$1 == a && $2 ~ "^linux-image-" { print $2 }' "$ROOT/cross/debian.pins"
}

# unpack DEB: into the tree, and into dpkg's list.
unpack() {
    local deb=$1 name info=$tree/var/lib/dpkg/info
    dpkg-deb -x "$deb" "$tree"
    name=$(dpkg-deb -f "$deb" Package)
    [ "$(dpkg-deb -f "$deb" Multi-Arch)" != same ] || name+=:$DEBIAN_ARCH
    dpkg-deb -c "$deb" | awk '{ sub(/^\.\/?/, "/", $6); sub(/\/$/, "", $6); print $6 == "" ? "/." : $6 }' >"$info/$name.list"
    { dpkg-deb -f "$deb" | sed '1a Status: install ok installed'; echo; } >>"$tree/var/lib/dpkg/status"
}

install_packages ca-certificates debian-archive-keyring e2fsprogs kmod
hold_lock
mkdir -p "$out"
names=$(packages)
# shellcheck disable=SC2086 # a list of names
debs=$(debian_fetch "$DEBIAN_ARCH" $names)
want=$(cat "$0" "$here/guest/shell.sh" - <<<"$debs" | sha256sum)
if [ -e "$out/root.img" ] && [ "$(cat "$out/made-from" 2>/dev/null)" = "$want" ]; then
    echo "$out/root.img"
    exit
fi
say "unpacking a Debian with systemd"
tree=$(mktemp -d "$out/tree.XXXXXX")
trap 'rm -rf "$tree"' EXIT
chmod 755 "$tree"
mkdir -p "$tree"/var/lib/dpkg/{info,updates,triggers} "$tree/usr/bin" "$tree/usr/sbin" "$tree/usr/lib"
for name in bin sbin lib; do ln -s "usr/$name" "$tree/$name"; done
: >"$tree/var/lib/dpkg/available"
for deb in $debs; do unpack "$deb"; done
rm -rf "$tree"/usr/share/{doc,man,locale,zoneinfo} "${tree:?}"/boot/*

# base-passwd, systemd, libc-bin, kmod: what their scripts make.
cp "$tree/usr/share/base-passwd/passwd.master" "$tree/etc/passwd"
cp "$tree/usr/share/base-passwd/group.master" "$tree/etc/group"
id=990
while read -r kind name wanted _; do
    # What has a fixed number is in those files already.
    if [ "$wanted" != - ] || grep -q "^$name:" "$tree/etc/group"; then continue; fi
    id=$((id - 1))
    echo "$name:x:$id:" >>"$tree/etc/group"
    case $kind in u*) echo "$name:x:$id:$id::/:/usr/sbin/nologin" >>"$tree/etc/passwd" ;; esac
done < <(cat "$tree"/usr/lib/sysusers.d/*.conf)
sed 's/:.*/:*:20000:0:99999:7:::/' "$tree/etc/passwd" >"$tree/etc/shadow"
chmod 640 "$tree/etc/shadow"
ln -s mawk "$tree/usr/bin/awk"
rm -rf "$tree/var/run" "$tree/var/lock"
ln -s /run "$tree/var/run"
ln -s /run/lock "$tree/var/lock"
# iptables, docker.io, ufw, and no packages that start by themselves: a test starts what it wants.
for name in iptables ip6tables; do
    for tool in "$name" "$name-save" "$name-restore"; do ln -s xtables-nft-multi "$tree/usr/sbin/$tool"; done
done
echo docker:x:900: >>"$tree/etc/group"
cp -r "$tree"/usr/share/ufw/iptables/*.rules "$tree"/usr/share/ufw/*.init "$tree/usr/share/ufw/ufw.conf" "$tree/etc/ufw/"
chmod 640 "$tree"/etc/ufw/*.rules "$tree"/etc/ufw/*.init
mkdir -p "$tree/var/log/journal"
echo 0123456789abcdef0123456789abcdef >"$tree/etc/machine-id"
echo debian >"$tree/etc/hostname"
printf '127.0.0.1\tlocalhost\n' >"$tree/etc/hosts"
echo 'nameserver 10.0.2.3' >"$tree/etc/resolv.conf"
echo '/dev/vda / ext4 noatime 0 1' >"$tree/etc/fstab"
PATH=$PATH:/usr/sbin:/sbin depmod -b "$tree" "$(basename "$tree"/usr/lib/modules/*)"

units=$tree/etc/systemd/system
mkdir -p "$units/multi-user.target.wants" "$tree/etc/systemd/network" "$tree/usr/lib/harness"
printf '[Match]\nName=e*\n[Network]\nDHCP=ipv4\nLinkLocalAddressing=no\n' >"$tree/etc/systemd/network/wired.network"
ln -s /usr/lib/systemd/system/systemd-networkd.service "$units/multi-user.target.wants/"
# Nobody sits there.
ln -s /dev/null "$units/getty.target"
# The harness's shell, from as early as there are ports until all is killed.
cp "$vm/busybox/usr/bin/busybox" "$here/guest/shell.sh" "$tree/usr/lib/harness/"
cat >"$units/harness.service" <<'END'
[Unit]
DefaultDependencies=no
[Service]
ExecStart=/bin/sh -c 'mkdir -p /run/debug && cp /usr/lib/harness/busybox /run/debug/ && cp /usr/lib/harness/shell.sh /run/debug/shell && exec /run/debug/busybox sh /run/debug/shell'
KillMode=process
TasksMax=infinity
END
mkdir -p "$units/sysinit.target.wants"
ln -s ../harness.service "$units/sysinit.target.wants/"

# As after the first boot: nothing has changed since that would have to be brought up to date.
touch "$tree/etc/.updated" "$tree/var/.updated"
rm -f "$out/root.img"
"$here/disk.sh" "$out/root.img" 2048M root "$tree"
echo "$want" >"$out/made-from"
echo "$out/root.img"
