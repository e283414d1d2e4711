#!/usr/bin/env bash
# boot.sh: becomes QEMU with one guest. Environment:
#   VM_DIR     folder for this guest's sockets and logs (required)
#   INITRAMFS  from prepare.sh (required)
#   DATA, PAYLOAD  disk images from disk.sh (optional)
#   APPEND     more kernel arguments        HOSTFWD  hostfwd rules: "tcp:127.0.0.1:8080-:80 ..."
#   MEMORY     MiB, default 1024            CPU, SMP default cortex-a72 (max on x86-64) and 2
#   SHELL_ON=stdio puts a shell of the guest (bare and debug kinds) on this terminal
# Further arguments go to QEMU. Ports: armlet.report -> VM_DIR/report.log, armlet.shell -> VM_DIR/shell.sock, QMP -> VM_DIR/qmp.sock.
. "$(dirname "$0")/../../cross/lib.sh"
: "${VM_DIR:?}" "${INITRAMFS:?}"
mkdir -p "$VM_DIR"
rm -f "$VM_DIR"/{report.log,console.log,shell.sock,qmp.sock}

forward=""
for rule in ${HOSTFWD:-}; do forward+=",hostfwd=$rule"; done
case $ARMLET_ARCH in
    aarch64) machine=virt cpu=cortex-a72 console=ttyAMA0 ;;
    x86_64) machine=q35 cpu=max console=ttyS0 ;;
esac
arguments=(
    -M "$machine" -cpu "${CPU:-$cpu}" -smp "${SMP:-2}" -m "${MEMORY:-1024}"
    -nodefaults -no-reboot -display none
    -kernel "$VM/kernel/Image" -initrd "$INITRAMFS"
    -append "console=$console panic=-1 ${APPEND:-quiet}"
    -netdev "user,id=net0$forward" -device virtio-net-pci,netdev=net0,romfile=
    -device virtio-rng-pci
    -device virtio-serial-pci
    -chardev "file,id=report,path=$VM_DIR/report.log" -device virtserialport,chardev=report,name=armlet.report
    -chardev "socket,id=shell,path=$VM_DIR/shell.sock,server=on,wait=off" -device virtserialport,chardev=shell,name=armlet.shell
    -qmp "unix:$VM_DIR/qmp.sock,server=on,wait=off"
)
# Not for x86-64: virtual machines of others often offer a KVM that QEMU then fails on.
if [ "$ARMLET_ARCH $(uname -m)" = "aarch64 aarch64" ] && [ -w /dev/kvm ]; then
    arguments+=(-accel kvm -cpu host)
else
    arguments+=(-accel "tcg,thread=multi,tb-size=${TB_SIZE:-256}")
fi
arguments+=(-serial "file:$VM_DIR/console.log")
if [ "${SHELL_ON:-}" = stdio ]; then
    arguments+=(-chardev stdio,id=terminal,signal=off,mux=on -device virtconsole,chardev=terminal,name=armlet.terminal)
fi
disk() { [ -z "$2" ] || arguments+=(-drive "if=none,id=$1,file=$2,format=raw,cache=writeback$3" -device "virtio-blk-pci,drive=$1,serial=$1"); }
disk data "${DATA:-}" ""
disk payload "${PAYLOAD:-}" ",readonly=on"
# Whoever asked for the guest may die without a word; the guest then goes too.
exec setpriv --pdeathsig KILL "qemu-system-$ARMLET_ARCH" "${arguments[@]}" "$@"
