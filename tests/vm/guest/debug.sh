#!/bin/busybox sh
# First program of the debug guest: leaves the harness's shell waiting beside and becomes armlet, process 1 as ever.
# A shell opens it for what it runs in the background; armlet mounts the real /dev over it.
# shellcheck shell=dash
/bin/busybox mkdir -p /dev
/bin/busybox mknod -m 666 /dev/null c 1 3
(
    # On a file system of its own, which armlet neither empties nor moves when it leaves the initramfs. Its proc leads
    # into whatever root process 1 has by then.
    /bin/busybox mkdir /.debug
    /bin/busybox mount -t tmpfs none /.debug
    /bin/busybox mkdir /.debug/proc
    /bin/busybox mount -t proc proc /.debug/proc
    /bin/busybox cp /bin/busybox /shell /.debug/
    busybox=/.debug/busybox root=/.debug/proc/1/root
    # armlet has come far enough when /run is a file system of the root where it stays, and the ports are there.
    until $busybox grep -q '^[^ ]* /run ' /.debug/proc/1/mounts && set -- $root/dev/vport* && [ -e "$1" ]; do
        $busybox usleep 50000
    done
    $busybox mkdir -p $root/run/debug
    $busybox cp $busybox /.debug/shell $root/run/debug/
    exec $busybox chroot $root /run/debug/busybox sh /run/debug/shell
) </dev/null &
exec /init "$@"
