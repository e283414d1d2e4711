# Sourced by every script that the measurements run in the guest.
# shellcheck shell=dash
probe=/run/payload/probe
manifests=/etc/armlet/manifests
data=/var/lib/armlet/bench
podman="podman --root $data/podman --runroot /run/bench/podman --tmpdir /run/bench/libpod --cgroup-manager cgroupfs --events-backend none"

# prepare_node: links to the peers and what they expect of a system, the probe's image, folders.
prepare_node() {
    mkdir -p "$manifests" "$data" /run/bench/crun/rootfs /var/tmp
    ln -s /run/payload/peers/usr /usr
    ln -s usr/lib /lib
    ln -s usr/bin /bin
    cp -r /run/payload/peers/etc/containers /etc/
    until armlet import "$probe.tar"; do usleep 200000; done
    $podman load -q -i "$probe.tar"
}

# said NAME: the time at which the newest container of the pod NAME ran.
said() { cat /var/log/pods/default_"$1"-*/main/*.log 2>/dev/null | sed -n 's/.* \(first [0-9]*\)$/\1/p' | tail -n 1; }

# start_pod NAME: drops its manifest and prints when, and when its container ran. Looks seldom, not to be in the way.
start_pod() {
    sed "s/@name@/$1/" /run/bench/pod.yaml >"$manifests/.$1"
    $probe rename "$manifests/.$1" "$manifests/$1.yaml"
    sleep 1
    until [ -n "$(said "$1")" ]; do usleep 500000; done
    said "$1"
}

# remove_pods PREFIX: until nothing of those pods is left.
remove_pods() {
    rm -f "$manifests/$1"*.yaml
    while ls -d /var/log/pods/default_"$1"* >/dev/null 2>&1; do usleep 300000; done
}

# running COUNT: waits until that many pods run.
running() { until [ "$(armlet ps | grep -c ' Running ')" -ge "$1" ]; do sleep 1; done; }

# fill FROM TO: adds pods with these numbers and waits for them.
fill() {
    local number
    for number in $(seq "$1" "$2"); do sed "s/@name@/many-$number/" /run/bench/pod.yaml >"$manifests/many-$number.yaml"; done
    running "$2"
}

# written: bytes written to the data disk so far.
written() {
    local disk
    for disk in /sys/block/vd*; do
        [ "$(cat "$disk/serial")" = data ] && awk '{ print $7 * 512 }' "$disk/stat"
    done
}

# cpu: microseconds that all processes of armlet have used.
cpu() { awk '$1 == "usage_usec" { print $2 }' /sys/fs/cgroup/armlet/cpu.stat; }

# pss: role, pid, KiB and private KiB of each process of armlet.
pss() {
    local role process
    for role in /sys/fs/cgroup/armlet/*/; do
        for process in $(cat "$role/cgroup.procs"); do
            awk -v role="$(basename "$role")" -v process="$process" \
                '/^Pss:/ { all = $2 } /^Private_/ { own += $2 } END { print role, process, all, own }' "/proc/$process/smaps_rollup"
        done
    done
}

# once COMMAND...: its times, then a moment for what it leaves to do.
once() {
    "$@" || echo "failed $?: $*"
    usleep 300000
}
