//! What a group has used, read from its files. Pure, over whatever reads them.

use std::collections::BTreeMap;

/// Processor time.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct CpuStats {
    /// Microseconds of processor time.
    pub usage_usec: u64,
    /// In user mode.
    pub user_usec: u64,
    /// In the kernel.
    pub system_usec: u64,
    /// Periods with a quota.
    pub periods: u64,
    /// Those in which it was used up.
    pub throttled_periods: u64,
    /// Microseconds that processes waited for the next period.
    pub throttled_usec: u64,
}

/// Memory in bytes, and faults.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct MemoryStats {
    /// `memory.current`.
    pub usage: u64,
    /// Usage without file pages that nobody has used for a while: what eviction counts.
    pub working_set: u64,
    /// Anonymous memory.
    pub rss: u64,
    /// `memory.max`; absent: no limit.
    pub limit: Option<u64>,
    /// Page faults.
    pub page_faults: u64,
    /// Those that read from disk.
    pub major_page_faults: u64,
    /// Processes killed for want of memory.
    pub oom_kills: u64,
    /// Swap in use; absent: not accounted.
    pub swap_usage: Option<u64>,
    /// `memory.swap.max`; absent: no limit or not accounted.
    pub swap_limit: Option<u64>,
}

/// Pressure stall information of one resource: shares of time in hundredths of a percent, and microseconds.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Pressure {
    /// Over the last 10 s.
    pub avg10: u64,
    /// Over the last 60 s.
    pub avg60: u64,
    /// Over the last 300 s.
    pub avg300: u64,
    /// Microseconds in all.
    pub total_usec: u64,
}

/// Everything about one group. Absent: the kernel does not tell.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct GroupStats {
    /// `cpu.stat`.
    pub cpu: Option<CpuStats>,
    /// `memory.*`.
    pub memory: Option<MemoryStats>,
    /// `pids.current`.
    pub pids: Option<u64>,
    /// `hugetlb.<size>.current` in bytes by the kernel's name of the page size.
    pub hugetlb: BTreeMap<String, u64>,
    /// Some and full pressure by resource: `cpu`, `memory`, `io`.
    pub pressure: BTreeMap<&'static str, (Pressure, Pressure)>,
}

/// Page sizes that Linux has on the machines armlet runs on.
const PAGE_SIZES: [&str; 7] = ["64KB", "1MB", "2MB", "16MB", "32MB", "512MB", "1GB"];

/// Reads the figures through `read`, which gives a file's text, or nothing when there is no such file.
pub fn parse_stats(read: impl Fn(&str) -> Option<String>) -> GroupStats {
    let number = |file: &str| read(file).and_then(|text| text.trim().parse().ok());
    let hugetlb = |size: &&str| Some(((*size).to_owned(), number(&format!("hugetlb.{size}.current"))?));
    let pressure = |resource: &'static str| Some((resource, pressure(&read(&format!("{resource}.pressure"))?)));
    GroupStats {
        cpu: read("cpu.stat").map(|text| cpu(&text)),
        memory: number("memory.current").map(|usage| memory(usage, &read)),
        pids: number("pids.current"),
        hugetlb: PAGE_SIZES.iter().filter_map(hugetlb).collect(),
        pressure: ["cpu", "memory", "io"].into_iter().filter_map(pressure).collect(),
    }
}

/// The value of a key in a file of `key value` lines; 0 when it is not there.
fn value(text: &str, key: &str) -> u64 {
    let pair = |line: &str| {
        let (name, value) = line.split_once(' ')?;
        (name == key).then(|| value.trim().parse().ok())?
    };
    text.lines().find_map(pair).unwrap_or(0)
}

fn cpu(text: &str) -> CpuStats {
    CpuStats {
        usage_usec: value(text, "usage_usec"),
        user_usec: value(text, "user_usec"),
        system_usec: value(text, "system_usec"),
        periods: value(text, "nr_periods"),
        throttled_periods: value(text, "nr_throttled"),
        throttled_usec: value(text, "throttled_usec"),
    }
}

fn memory(usage: u64, read: &impl Fn(&str) -> Option<String>) -> MemoryStats {
    let number = |file: &str| read(file).and_then(|text| text.trim().parse().ok());
    let stat = read("memory.stat").unwrap_or_default();
    MemoryStats {
        usage,
        working_set: usage.saturating_sub(value(&stat, "inactive_file")),
        rss: value(&stat, "anon"),
        limit: number("memory.max"),
        page_faults: value(&stat, "pgfault"),
        major_page_faults: value(&stat, "pgmajfault"),
        oom_kills: value(&read("memory.events").unwrap_or_default(), "oom_kill"),
        swap_usage: number("memory.swap.current"),
        swap_limit: number("memory.swap.max"),
    }
}

/// The `some` and the `full` line of a pressure file.
fn pressure(text: &str) -> (Pressure, Pressure) {
    let line = |kind: &str| {
        let mut pressure = Pressure::default();
        let fields = text.lines().find_map(|line| line.strip_prefix(kind)).unwrap_or_default();
        for (name, value) in fields.split_whitespace().filter_map(|field| field.split_once('=')) {
            match name {
                "avg10" => pressure.avg10 = hundredths(value),
                "avg60" => pressure.avg60 = hundredths(value),
                "avg300" => pressure.avg300 = hundredths(value),
                "total" => pressure.total_usec = value.parse().unwrap_or(0),
                _ => {}
            }
        }
        pressure
    };
    (line("some "), line("full "))
}

/// `12.34` as 1234: the kernel always writes two decimals.
fn hundredths(text: &str) -> u64 {
    text.replace('.', "").parse().unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn stats(files: &[(&str, &str)]) -> GroupStats {
        parse_stats(|name| files.iter().find(|(file, _)| *file == name).map(|(_, text)| (*text).to_owned()))
    }

    #[test]
    fn a_full_kernel() {
        let stats = stats(&[
            (
                "cpu.stat",
                "usage_usec 100\nuser_usec 60\nsystem_usec 40\nnr_periods 3\nnr_throttled 2\nthrottled_usec 7\n",
            ),
            ("memory.current", "5000\n"),
            ("memory.stat", "anon 1000\nfile 3000\ninactive_file 2000\npgfault 9\npgmajfault 1\n"),
            ("memory.max", "8192\n"),
            ("memory.events", "low 0\noom 1\noom_kill 4\noom_group_kill 1\n"),
            ("memory.swap.current", "0\n"),
            ("memory.swap.max", "max\n"),
            ("pids.current", "3\n"),
            ("hugetlb.2MB.current", "4194304\n"),
            (
                "cpu.pressure",
                "some avg10=1.25 avg60=0.50 avg300=0.00 total=77\nfull avg10=0.00 avg60=0.00 avg300=0.00 total=5\n",
            ),
        ]);
        assert_eq!(stats.cpu.map(|cpu| (cpu.usage_usec, cpu.throttled_periods, cpu.throttled_usec)), Some((100, 2, 7)));
        let memory = stats.memory.unwrap();
        assert_eq!((memory.usage, memory.working_set, memory.rss, memory.limit), (5000, 3000, 1000, Some(8192)));
        assert_eq!((memory.oom_kills, memory.swap_usage, memory.swap_limit), (4, Some(0), None));
        assert_eq!(stats.pids, Some(3));
        assert_eq!(stats.hugetlb.get("2MB"), Some(&4_194_304));
        let (some, full) = stats.pressure["cpu"];
        assert_eq!((some.avg10, some.avg60, some.total_usec, full.total_usec), (125, 50, 77, 5));
        assert!(!stats.pressure.contains_key("memory"));
    }

    #[test]
    fn a_kernel_without_controllers() {
        let bare = stats(&[("cpu.stat", "usage_usec 5\nuser_usec 3\nsystem_usec 2\n")]);
        assert_eq!(bare.cpu.map(|cpu| (cpu.usage_usec, cpu.periods)), Some((5, 0)));
        assert_eq!((bare.memory, bare.pids), (None, None));
        assert_eq!(stats(&[]), GroupStats::default());
        assert_eq!(stats(&[("pids.current", "nonsense")]).pids, None);
    }
}
