# Runs in the guest. Prints the proportional share of memory of each of armlet's processes.
# shellcheck shell=dash
for role in supervisor agent logger; do
    for process in $(cat "/sys/fs/cgroup/armlet/$role/cgroup.procs"); do
        printf '    %-12s %6s of it private %6s\n' "$role" \
            "$(awk '/^Pss:/ { print $2 }' "/proc/$process/smaps_rollup")" \
            "$(awk '/^Private_/ { sum += $2 } END { print sum }' "/proc/$process/smaps_rollup")"
    done
done
