# Runs in the guest. Prints for the two running containers of the demo's pod what the manifest says and what the kernel has.
# shellcheck shell=dash
row() { printf '    %-10s %-22s %-14s %-14s %s\n' "$@"; }
value() { cat "$group/$1" | tr '\n' ' ' | sed 's/ $//'; }
pod=$(echo /sys/fs/cgroup/kubepods/burstable/pod*)
row container manifest value file kernel
for group in "$pod"/*/; do
    group=${group%/}
    process=$(head -n 1 "$group/cgroup.procs")
    case $(cat "/proc/$process/comm") in
        redis-server)
            row redis requests.cpu 250m cpu.weight "$(value cpu.weight)"
            row redis limits.cpu 500m cpu.max "$(value cpu.max)"
            row redis limits.memory 64Mi memory.max "$(value memory.max)"
            row redis limits.memory 64Mi memory.swap.max "$(value memory.swap.max)"
            row redis "" "" memory.current "$(value memory.current)"
            row redis "requests.memory" 32Mi oom_score_adj "$(cat "/proc/$process/oom_score_adj")"
            ;;
        sh)
            row heartbeat requests.cpu 10m cpu.weight "$(value cpu.weight)"
            row heartbeat limits.memory 16Mi memory.max "$(value memory.max)"
            ;;
    esac
done
group=$pod
row "the pod" "sum of requests.cpu" 260m cpu.weight "$(value cpu.weight)"
