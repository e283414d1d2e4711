//! The node's own figures.

use crate::config::{Config, Reserved, SwapBehavior, Threshold};
use crate::model::observed::{Capacity, NodeAmounts, NodeFacts};
use crate::model::view::NodeResources;
use std::collections::BTreeMap;
use std::io;
use std::net::IpAddr;
use std::path::Path;

/// Why a figure could not be read.
#[derive(Debug, thiserror::Error)]
#[error("read {path}")]
pub struct NodeError {
    /// Which file.
    pub path: &'static str,
    /// Why.
    #[source]
    pub source: io::Error,
}

fn read(path: &'static str) -> Result<String, NodeError> {
    std::fs::read_to_string(path).map_err(|source| NodeError { path, source })
}

/// The kernel's id of this boot.
///
/// # Errors
/// `/proc` is not mounted.
pub fn boot_id() -> Result<String, NodeError> {
    Ok(read("/proc/sys/kernel/random/boot_id")?.trim().to_owned())
}

/// Bytes of memory and of swap (`/proc/meminfo`).
fn memory() -> Result<(u64, u64), NodeError> {
    let text = read("/proc/meminfo")?;
    Ok((meminfo(&text, "MemTotal:"), meminfo(&text, "SwapTotal:")))
}

fn meminfo(text: &str, field: &str) -> u64 {
    let line = text.lines().find_map(|line| line.strip_prefix(field));
    let kib = line.and_then(|rest| rest.split_whitespace().next()?.parse::<u64>().ok());
    kib.unwrap_or(0).saturating_mul(1024)
}

/// Bytes of the node's memory.
///
/// # Errors
/// `/proc` is not mounted.
pub fn memory_total() -> Result<u64, NodeError> {
    memory().map(|(total, _)| total)
}

/// What every pod's plan needs to know of the node.
///
/// # Errors
/// `/proc` is not mounted.
pub fn node_facts(config: &Config, host_ips: Vec<IpAddr>) -> Result<NodeFacts, NodeError> {
    let (memory_capacity, swap_capacity) = memory()?;
    Ok(NodeFacts {
        boot_id: boot_id()?,
        host_ips,
        network_not_ready: None,
        pod_logs_dir: config.pod_logs_dir.clone(),
        memory_capacity,
        swap_capacity,
        limited_swap: config.swap == SwapBehavior::LimitedSwap,
        cpu_quota: config.cpu_cfs_quota,
        cpu_period: config.cpu_cfs_quota_period_us,
        pod_pids_limit: config.pod_pids_limit,
        max_restart_delay: config.max_restart_back_off,
        single_process_oom_kill: config.single_process_oom_kill,
        hugepage_sizes: hugepages().into_keys().collect(),
    })
}

/// What the node has. The kernel gives out process ids up to the lower of two limits (`pkg/kubelet/stats/pidlimit`).
///
/// # Errors
/// `/proc` is not mounted.
pub fn amounts() -> Result<NodeAmounts, NodeError> {
    let cores = std::thread::available_parallelism().map_or(1, |n| u64::try_from(n.get()).unwrap_or(1));
    let number = |path| read(path).map(|text| text.trim().parse().unwrap_or(u64::MAX));
    let pids: u64 = number("/proc/sys/kernel/pid_max")?.min(number("/proc/sys/kernel/threads-max")?);
    Ok(NodeAmounts { cpu_milli: cores.saturating_mul(1000), memory: memory_total()?, pids })
}

/// What of it is set aside for the system and for armlet.
#[must_use]
pub fn reserved(config: &Config) -> NodeAmounts {
    let (system, kube) = (amounts_of(&config.system_reserved), amounts_of(&config.kube_reserved));
    NodeAmounts {
        cpu_milli: system.cpu_milli.saturating_add(kube.cpu_milli),
        memory: system.memory.saturating_add(kube.memory),
        pids: system.pids.saturating_add(kube.pids),
    }
}

/// What is set aside, as amounts of the node.
#[must_use]
pub fn amounts_of(reserved: &Reserved) -> NodeAmounts {
    NodeAmounts { cpu_milli: reserved.cpu.milli(), memory: reserved.memory.units(), pids: reserved.pid }
}

/// What pods may have: the node's figures less what is reserved and the eviction threshold
/// (`pkg/kubelet/cm/node_container_manager_linux.go`).
///
/// # Errors
/// `/proc` is not mounted.
pub fn capacity(config: &Config) -> Result<Capacity, NodeError> {
    Ok(allocatable(config, amounts()?, hugepages()))
}

/// The same for a node with these figures. Memory that is set aside for huge pages cannot be had as plain memory.
fn allocatable(config: &Config, node: NodeAmounts, hugepages: BTreeMap<String, u64>) -> Capacity {
    let reserved = reserved(config);
    let threshold = match config.eviction_hard_memory {
        Threshold::Bytes(bytes) => bytes,
        Threshold::BasisPoints(points) => node.memory / 10_000 * u64::from(points),
    };
    let set_aside = hugepages.values().chain([&reserved.memory, &threshold]);
    let pod_cidr = match config.pod_cidr {
        (IpAddr::V4(network), length) => Some((network, length)),
        (IpAddr::V6(_), _) => None,
    };
    Capacity {
        cpu_milli: node.cpu_milli.saturating_sub(reserved.cpu_milli),
        memory: set_aside.fold(node.memory, |left, bytes| left.saturating_sub(*bytes)),
        ephemeral_storage: None,
        hugepages,
        pods: config.max_pods,
        pod_cidr,
    }
}

/// What the node has and what of it pods may have, as Kubernetes writes it (`pkg/kubelet/nodestatus/setters.go`).
///
/// # Errors
/// `/proc` is not mounted.
pub fn resources(config: &Config) -> Result<NodeResources, NodeError> {
    let node = amounts()?;
    let pages = hugepages();
    let whole = Capacity {
        cpu_milli: node.cpu_milli,
        memory: node.memory,
        ephemeral_storage: None,
        hugepages: pages.clone(),
        pods: config.max_pods,
        pod_cidr: None,
    };
    Ok(NodeResources { capacity: in_words(&whole), allocatable: in_words(&allocatable(config, node, pages)) })
}

fn in_words(capacity: &Capacity) -> BTreeMap<String, String> {
    let cpu = match capacity.cpu_milli {
        milli if milli % 1000 == 0 => (milli / 1000).to_string(),
        milli => format!("{milli}m"),
    };
    let memory = format!("{}Ki", capacity.memory / 1024);
    let pages =
        capacity.hugepages.iter().map(|(size, bytes)| (format!("hugepages-{size}"), format!("{}Ki", bytes / 1024)));
    let plain = [("cpu", cpu), ("memory", memory), ("pods", capacity.pods.to_string())];
    plain.map(|(name, amount)| (name.to_owned(), amount)).into_iter().chain(pages).collect()
}

/// Bytes that all logs together may take: as configured, else by the file system they lie on.
#[must_use]
pub fn log_budget(config: &Config) -> u64 {
    // The folder may be made only with the first pod.
    let sizes = Path::new(&config.pod_logs_dir).ancestors().filter_map(|folder| rustix::fs::statvfs(folder).ok());
    let size = sizes.map(|fs| fs.f_blocks.saturating_mul(fs.f_frsize)).next();
    config.log_budget_bytes.unwrap_or_else(|| default_log_budget(size))
}

/// Whether what is written to this folder lies in memory, and is accounted to who writes it. The folder may be made only
/// later.
#[must_use]
pub fn lies_in_memory(folder: &str) -> bool {
    // linux/magic.h
    const IN_MEMORY: [u64; 2] = [0x0102_1994, 0x8584_58f6];
    let kind = Path::new(folder).ancestors().find_map(|folder| rustix::fs::statfs(folder).ok());
    kind.and_then(|fs| u64::try_from(fs.f_type).ok()).is_some_and(|kind| IN_MEMORY.contains(&kind))
}

/// A tenth of the file system of `size` bytes, at most 1 GiB; that also where nothing is known of it.
fn default_log_budget(size: Option<u64>) -> u64 {
    const MOST: u64 = 1 << 30;
    size.map_or(MOST, |size| (size / 10).min(MOST))
}

/// Huge pages set aside at boot, in bytes by the size as a resource's name has it.
fn hugepages() -> BTreeMap<String, u64> {
    let Ok(sizes) = std::fs::read_dir("/sys/kernel/mm/hugepages") else { return Default::default() };
    sizes.flatten().filter_map(|size| hugepage(&size.path())).collect()
}

fn hugepage(folder: &Path) -> Option<(String, u64)> {
    let kib: u64 = folder.file_name()?.to_str()?.strip_prefix("hugepages-")?.strip_suffix("kB")?.parse().ok()?;
    let pages: u64 = std::fs::read_to_string(folder.join("nr_hugepages")).ok()?.trim().parse().ok()?;
    let name = match kib {
        kib if kib % (1 << 20) == 0 => format!("{}Gi", kib >> 20),
        kib if kib % (1 << 10) == 0 => format!("{}Mi", kib >> 10),
        kib => format!("{kib}Ki"),
    };
    Some((name, pages.saturating_mul(kib).saturating_mul(1024)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pods_may_have_what_nothing_else_is_set_aside_for() {
        use crate::model::Quantity;
        let aside = |memory: u64| Reserved { memory: Quantity::from_units(memory), ..Reserved::default() };
        let config = Config {
            system_reserved: Reserved { cpu: Quantity::from_milli(300), ..aside(10 << 20) },
            kube_reserved: Reserved { cpu: Quantity::from_milli(200), ..aside(20 << 20) },
            eviction_hard_memory: Threshold::Bytes(100 << 20),
            ..Config::default()
        };
        let node = NodeAmounts { cpu_milli: 4000, memory: 1000 << 20, pids: 1 };
        let pages = BTreeMap::from([("2Mi".to_owned(), 64 << 20), ("1Gi".to_owned(), 0)]);
        let capacity = allocatable(&config, node, pages.clone());
        assert_eq!((capacity.cpu_milli, capacity.memory), (3500, (1000 - 30 - 100 - 64) << 20));
        assert_eq!(capacity.hugepages, pages);
        let all = allocatable(&config, NodeAmounts { memory: 50 << 20, ..node }, pages);
        assert_eq!(all.memory, 0);
    }

    #[test]
    fn amounts_are_written_as_kubernetes_writes_them() {
        let words = |cpu_milli| {
            in_words(&Capacity {
                cpu_milli,
                memory: 996_000 * 1024 + 1,
                ephemeral_storage: None,
                hugepages: BTreeMap::from([("2Mi".to_owned(), 64 << 20)]),
                pods: 110,
                pod_cidr: None,
            })
        };
        let pairs = [("cpu", "4"), ("hugepages-2Mi", "65536Ki"), ("memory", "996000Ki"), ("pods", "110")];
        assert_eq!(words(4000), BTreeMap::from(pairs.map(|(name, amount)| (name.to_owned(), amount.to_owned()))));
        assert_eq!(words(3500)["cpu"], "3500m");
    }

    #[test]
    fn logs_may_take_a_tenth_of_their_file_system() {
        for (size, budget) in [(Some(500 << 20), 50 << 20), (Some(1 << 40), 1 << 30), (Some(0), 0), (None, 1 << 30)] {
            assert_eq!(default_log_budget(size), budget);
        }
        let config = Config { pod_logs_dir: "/nonexistent/pods".to_owned(), ..Config::default() };
        assert!(log_budget(&config) > 0);
        assert_eq!(log_budget(&Config { log_budget_bytes: Some(5), ..config }), 5);
    }

    #[test]
    fn meminfo_is_read_by_field() {
        let text = "MemTotal:         996000 kB\nMemFree: 1 kB\nSwapTotal:             0 kB\n";
        assert_eq!(meminfo(text, "MemTotal:"), 996_000 * 1024);
        assert_eq!(meminfo(text, "SwapTotal:"), 0);
        assert_eq!(meminfo("", "MemTotal:"), 0);
        assert_eq!(meminfo("MemTotal: x kB", "MemTotal:"), 0);
    }
}
