#!/bin/busybox sh
# First program of a guest whose system is on the data disk: loads what the disk needs, and hands over to its /sbin/init.
# shellcheck shell=dash
/bin/busybox mkdir -p /proc /dev /root
/bin/busybox mount -t proc proc /proc
/bin/busybox mount -t devtmpfs dev /dev
while read -r module; do
    case $module in
        virtio* | failover.ko | net_failover.ko | rng*) /bin/busybox insmod "/lib/armlet/modules/$module" ;;
    esac
done </lib/armlet/modules/order
/bin/busybox mount -t ext4 -o noatime /dev/vda /root
/bin/busybox mount -o move /dev /root/dev
/bin/busybox umount /proc
exec /bin/busybox switch_root /root /sbin/init
