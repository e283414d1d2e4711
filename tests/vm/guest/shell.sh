# The guest's side of the test harness: runs the scripts that come in on the port armlet.shell, side by side, in the root
# of process 1. Started as `/run/debug/busybox sh /run/debug/shell`.
# In:  a line "ID SECONDS BASE64": a script and the time after which it is killed.
# Out: a line "ID STATUS STDOUT-BYTES STDERR-BYTES", then those bytes.
# shellcheck shell=dash
work=/run/debug
$work/busybox mkdir -p $work/bin /run/payload
[ "${1-}" = serve ] || $work/busybox --install -s $work/bin
tools=$work/bin system=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin
if [ -d /run/systemd/system ]; then
    # The system's own tools come first; busybox's shell would take its own.
    export PATH=$system:$tools HOME=/root
    shell=/bin/sh
else
    # Where armlet is process 1 its binary may have no name in the file system any more.
    [ -x /sbin/armlet ] || ln -sf /proc/1/exe $work/bin/armlet
    export PATH=$tools:$system HOME=/root
    shell=$tools/sh
fi

for disk in /sys/block/vd*; do
    [ "$(cat "$disk/serial" 2>/dev/null)" = payload ] || continue
    grep -q ' /run/payload ' /proc/mounts || mount -t ext4 -o ro "/dev/${disk##*/}" /run/payload
done

for name in /sys/class/virtio-ports/*/name; do
    [ "$(cat "$name")" = armlet.shell ] && name=${name%/name} && port=/dev/${name##*/}
done
# A person at the other end: a shell for as long as the guest runs. It is this process that starts it: what is started in
# the background ignores Ctrl-C, and so do its children.
if [ -e /dev/hvc0 ] && [ "${1-}" != serve ]; then
    sh "$0" serve &
    while :; do
        setsid -c sh -l </dev/hvc0 >/dev/hvc0 2>&1
    done
fi

# The port can be opened once only: what reads it and what writes it share this open file.
exec 3<>"$port"

# Finished scripts queue here; a line shorter than a page is written whole, whatever runs beside.
mkfifo $work/finished
exec 4<>$work/finished
while read -r id status; do
    printf '%s %s %s %s\n' "$id" "$status" "$(stat -c %s "$work/$id.out")" "$(stat -c %s "$work/$id.err")" >&3
    cat "$work/$id.out" "$work/$id.err" >&3
    rm -f "$work/$id".*
done <&4 &

run() {
    timeout -s KILL "$2" $shell "$work/$1.sh" >"$work/$1.out" 2>"$work/$1.err" </dev/null 3>&- 4>&-
    echo "$1 $?" >&4
}
while :; do
    # The read ends at once while nobody is connected at the other end.
    read -r id seconds script <&3 || { usleep 100000; continue; }
    echo "$script" | base64 -d >"$work/$id.sh"
    run "$id" "$seconds" &
done
