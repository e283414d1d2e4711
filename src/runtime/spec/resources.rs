//! Cgroup values and devices.

use super::{DeviceNode, Inputs};
use crate::model::action::ContainerLimits;
use crate::runtime::devices::{self, Kind, Rule};
use oci_spec::OciSpecError;
use oci_spec::runtime::{
    LinuxCpuBuilder, LinuxDevice, LinuxDeviceBuilder, LinuxDeviceCgroup, LinuxDeviceCgroupBuilder, LinuxDeviceType,
    LinuxHugepageLimit, LinuxHugepageLimitBuilder, LinuxMemoryBuilder, LinuxResources, LinuxResourcesBuilder,
};
use std::collections::HashMap;

/// `linux.resources`. Weights and swap go by the names of their cgroup files, as other runtimes convert them each in
/// their own way.
pub(super) fn resources(inputs: &Inputs<'_>) -> Result<LinuxResources, OciSpecError> {
    let limits = inputs.limits;
    let mut resources = LinuxResourcesBuilder::default()
        .devices(rules(inputs)?)
        .unified(unified(limits))
        .hugepage_limits(hugepages(limits)?)
        .build()?;
    if let Some(bytes) = limits.memory_max {
        let memory = LinuxMemoryBuilder::default().limit(i64::try_from(bytes).unwrap_or(i64::MAX)).build()?;
        resources.set_memory(Some(memory));
    }
    if let Some(max) = limits.cpu_max {
        let quota = i64::try_from(max.quota).unwrap_or(i64::MAX);
        resources.set_cpu(Some(LinuxCpuBuilder::default().quota(quota).period(max.period).build()?));
    }
    Ok(resources)
}

fn unified(limits: &ContainerLimits) -> HashMap<String, String> {
    let mut files = HashMap::new();
    if limits.cpu_weight > 0 {
        files.insert("cpu.weight".to_owned(), limits.cpu_weight.to_string());
    }
    if let Some(bytes) = limits.swap_max {
        files.insert("memory.swap.max".to_owned(), bytes.to_string());
    }
    if limits.oom_group {
        files.insert("memory.oom.group".to_owned(), "1".to_owned());
    }
    files
}

/// Kubernetes writes page sizes as `2Mi`, the kernel as `2MB`.
pub(crate) fn kernel_page_size(size: &str) -> String {
    match size.strip_suffix('i') {
        Some(size) => format!("{size}B"),
        None => size.to_owned(),
    }
}

fn hugepages(limits: &ContainerLimits) -> Result<Vec<LinuxHugepageLimit>, OciSpecError> {
    let one = |(size, bytes): (&String, &u64)| {
        let limit = i64::try_from(*bytes).unwrap_or(i64::MAX);
        LinuxHugepageLimitBuilder::default().page_size(kernel_page_size(size)).limit(limit).build()
    };
    limits.hugetlb.iter().map(one).collect()
}

fn rules(inputs: &Inputs<'_>) -> Result<Vec<LinuxDeviceCgroup>, OciSpecError> {
    let rules = if inputs.container.security.privileged { devices::all_rules() } else { devices::default_rules() };
    rules.iter().map(rule).collect()
}

fn rule(rule: &Rule) -> Result<LinuxDeviceCgroup, OciSpecError> {
    let letters = [(devices::Access::READ, 'r'), (devices::Access::WRITE, 'w'), (devices::Access::MKNOD, 'm')];
    let access: String =
        letters.iter().filter(|(bit, _)| rule.access.0 & bit.0 != 0).map(|(_, letter)| *letter).collect();
    let mut built = LinuxDeviceCgroupBuilder::default()
        .allow(rule.allow)
        .typ(rule.kind.map_or(LinuxDeviceType::A, kind))
        .access(access)
        .build()?;
    built.set_major(rule.major.map(i64::from));
    built.set_minor(rule.minor.map(i64::from));
    Ok(built)
}

const fn kind(kind: Kind) -> LinuxDeviceType {
    match kind {
        Kind::Block => LinuxDeviceType::B,
        Kind::Char => LinuxDeviceType::C,
    }
}

/// Nodes beside the ones that every container has.
pub(super) fn devices(inputs: &Inputs<'_>) -> Result<Vec<LinuxDevice>, OciSpecError> {
    if !inputs.container.security.privileged {
        return Ok(Vec::new());
    }
    inputs.host_devices.iter().map(node).collect()
}

fn node(node: &DeviceNode) -> Result<LinuxDevice, OciSpecError> {
    LinuxDeviceBuilder::default()
        .path(&node.path)
        .typ(kind(node.kind))
        .major(node.major)
        .minor(node.minor)
        .file_mode(node.mode)
        .uid(node.uid)
        .gid(node.gid)
        .build()
}
