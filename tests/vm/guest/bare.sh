#!/bin/busybox sh
# Process 1 of the bare guest: what armlet does as process 1, in shell, so that parts of armlet can be tried without it.
# shellcheck shell=dash
export PATH=/bin:/sbin:/usr/bin:/usr/sbin
if [ -d /lib/armlet/modules ]; then
    # Stage 1, still on the initramfs: pivot_root(2) refuses to leave it, so a tmpfs becomes the root by switch_root.
    /bin/busybox mkdir -p /proc /dev /new
    /bin/busybox mount -t proc proc /proc
    /bin/busybox mount -t devtmpfs dev /dev
    while read -r module; do
        /bin/busybox insmod "/lib/armlet/modules/$module" || echo "insmod $module failed"
    done </lib/armlet/modules/order
    /bin/busybox mount -t tmpfs -o mode=755 root /new
    /bin/busybox mkdir /new/bin
    /bin/busybox cp /bin/busybox /new/bin/
    /bin/busybox cp /init /shell /new/
    /bin/busybox umount /proc /dev
    exec /bin/busybox switch_root /new /init
fi
/bin/busybox mkdir -p /proc /sys /dev /run /tmp /sbin /usr/bin /usr/sbin /etc /root /var/lib/armlet
/bin/busybox --install -s /bin
mount -t proc proc /proc
mount -t sysfs sys /sys
mount -t devtmpfs dev /dev
mkdir -p /dev/pts /dev/shm /dev/mqueue
mount -t devpts -o gid=5,mode=620,ptmxmode=666 devpts /dev/pts
mount -t tmpfs shm /dev/shm
mount -t mqueue mqueue /dev/mqueue
mount -t tmpfs -o mode=755 run /run
mount -t tmpfs tmp /tmp
mount -t cgroup2 -o nsdelegate,memory_recursiveprot cgroup2 /sys/fs/cgroup
for controller in $(cat /sys/fs/cgroup/cgroup.controllers); do echo "+$controller" >/sys/fs/cgroup/cgroup.subtree_control; done
mount -t bpf bpf /sys/fs/bpf 2>/dev/null
printf 'root:x:0:0:root:/root:/bin/sh\n' >/etc/passwd
printf 'root:x:0:\n' >/etc/group
printf 'nameserver 10.0.2.3\n' >/etc/resolv.conf
hostname armlet-bare
ip link set lo up
ip link set eth0 up
ip addr add 10.0.2.15/24 dev eth0
ip route add default via 10.0.2.2
mkdir -p /run/payload
for disk in /sys/block/vd*; do
    case $(cat "$disk/serial" 2>/dev/null) in
        data) mount -t ext4 -o noatime "/dev/${disk##*/}" /var/lib/armlet ;;
        payload) mount -t ext4 -o ro "/dev/${disk##*/}" /run/payload ;;
    esac
done
echo 1 >/proc/sys/kernel/panic_on_oops

if [ -f /run/payload/run.sh ]; then
    report=/dev/console
    for port in /sys/class/virtio-ports/*; do
        [ "$(cat "$port/name")" = armlet.report ] && report=/dev/${port##*/}
    done
    # The port can be opened once only.
    exec 3>"$report"
    cd /root || cd /
    sh /run/payload/run.sh >&3 2>&1 3>&-
    printf '\nEXIT %s\n' $? >&3
    sync
    umount /var/lib/armlet 2>/dev/null
    poweroff -f
fi
mkdir -p /run/debug
cp /bin/busybox /shell /run/debug/
exec /run/debug/busybox sh /run/debug/shell
