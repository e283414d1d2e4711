//! The flags of `armlet agent`, and the environment variables that stand in for them.
//!
//! Values are taken as texts and checked with everything else, so that all mistakes are reported together. A flag
//! `--max-pods` may also be given as `ARMLET_MAX_PODS`; the flag wins.

use super::kubelet::cluster_domain;
use super::node::{node_name, socket_path};
use super::{Config, read};
use crate::wire::problem::{Problem, Severity};
use std::collections::BTreeMap;

/// Where the configuration is looked for when nobody says otherwise.
pub const DEFAULT_CONFIG: &str = "/etc/armlet/config.yaml";

/// The flags, as given.
#[derive(Debug, Clone, Default, PartialEq, Eq, clap::Args)]
pub struct Args {
    /// Configuration file [default: /etc/armlet/config.yaml, when it is there]
    #[arg(long, value_name = "FILE")]
    pub config: Option<String>,
    /// The node's name [default: the host's name]
    #[arg(long, alias = "hostname-override", value_name = "NAME")]
    pub node_name: Option<String>,
    /// Folder of durable data [default: /var/lib/armlet]
    #[arg(long, value_name = "DIR")]
    pub root_dir: Option<String>,
    /// Folder of sockets and of what a reboot makes void [default: /run/armlet]
    #[arg(long, value_name = "DIR")]
    pub run_dir: Option<String>,
    /// The API's unix socket [default: armlet.sock in the run folder]
    #[arg(long, value_name = "PATH")]
    pub socket: Option<String>,
    /// Static pods: a folder of manifests or one file [default: /etc/armlet/manifests]
    #[arg(long, alias = "pod-manifest-path", value_name = "PATH")]
    pub manifests: Option<String>,
    /// Network of the pods [default: 10.88.0.0/16]
    #[arg(long, value_name = "NETWORK")]
    pub pod_cidr: Option<String>,
    /// Name servers of the pods, separated by commas
    #[arg(long, value_name = "ADDRESSES")]
    pub cluster_dns: Option<String>,
    /// Domain of the cluster
    #[arg(long, value_name = "DOMAIN")]
    pub cluster_domain: Option<String>,
    /// Resolver file of the node [default: /etc/resolv.conf]
    #[arg(long, value_name = "FILE")]
    pub resolv_conf: Option<String>,
    /// How many pods may run [default: 110]
    #[arg(long, value_name = "COUNT")]
    pub max_pods: Option<String>,
    /// Filter system calls of pods that say nothing about it [default: false]
    #[arg(long, value_name = "BOOL", num_args = 0..=1, require_equals = true, default_missing_value = "true")]
    pub seccomp_default: Option<String>,
    /// Refuse to start while swap is on [default: true]
    #[arg(long, value_name = "BOOL", num_args = 0..=1, require_equals = true, default_missing_value = "true")]
    pub fail_swap_on: Option<String>,
    /// Log more: 0 to 10 [default: 0]
    #[arg(short = 'v', long = "v", value_name = "LEVEL")]
    pub verbosity: Option<String>,
}

impl Args {
    /// The configuration file, and whether somebody asked for it: the default one may be absent.
    #[must_use]
    pub fn config_file(&self, env: &BTreeMap<String, String>) -> (String, bool) {
        match self.config.clone().or_else(|| env.get("ARMLET_CONFIG").cloned()) {
            Some(path) => (path, true),
            None => (DEFAULT_CONFIG.to_owned(), false),
        }
    }
}

/// Which flags are given, by name, and by what: `--flag` or the variable.
pub(super) fn given(args: &Args, env: &BTreeMap<String, String>) -> BTreeMap<&'static str, String> {
    let flags = [
        ("node-name", &args.node_name),
        ("root-dir", &args.root_dir),
        ("run-dir", &args.run_dir),
        ("socket", &args.socket),
        ("manifests", &args.manifests),
        ("pod-cidr", &args.pod_cidr),
        ("cluster-dns", &args.cluster_dns),
        ("cluster-domain", &args.cluster_domain),
        ("resolv-conf", &args.resolv_conf),
        ("max-pods", &args.max_pods),
        ("seccomp-default", &args.seccomp_default),
        ("fail-swap-on", &args.fail_swap_on),
        ("v", &args.verbosity),
    ];
    let by = |name: &str, flag: &Option<String>| match flag {
        Some(_) => Some(format!("--{name}")),
        None => Some(variable(name)).filter(|variable| env.contains_key(variable)),
    };
    flags.into_iter().filter_map(|(name, flag)| Some((name, by(name, flag)?))).collect()
}

/// The variable that stands in for a flag.
fn variable(flag: &str) -> String {
    format!("ARMLET_{}", flag.to_uppercase().replace('-', "_"))
}

/// Where flags and variables are looked up, and their problems collected.
struct Given<'a> {
    env: &'a BTreeMap<String, String>,
    problems: &'a mut Vec<Problem>,
}

impl Given<'_> {
    /// Reads the flag `name`, or the variable that stands in for it.
    fn set<T>(&mut self, name: &str, flag: Option<&String>, read: impl Fn(&str) -> Result<T, String>) -> Option<T> {
        let variable = variable(name);
        let (text, field) = match flag {
            Some(text) => (text, format!("--{name}")),
            None => (self.env.get(&variable)?, variable),
        };
        match read(text) {
            Ok(value) => Some(value),
            Err(why) => {
                self.problems.push(Problem {
                    file: if flag.is_some() { "command line" } else { "environment" }.to_owned(),
                    line: None,
                    document: 0,
                    field,
                    message: format!("Invalid value: {text:?}: {why}"),
                    severity: Severity::Error,
                });
                None
            }
        }
    }
}

/// Puts flags and variables into the configuration, over what the file said.
pub(super) fn apply(args: &Args, env: &BTreeMap<String, String>, config: &mut Config, problems: &mut Vec<Problem>) {
    let mut given = Given { env, problems };
    let mut paths = |name: &str, flag: &Option<String>| given.set(name, flag.as_ref(), read::absolute);
    if let Some(dir) = paths("root-dir", &args.root_dir) {
        config.set_data_dir(dir);
    }
    if let Some(dir) = paths("run-dir", &args.run_dir) {
        config.set_run_dir(dir);
    }
    if let Some(path) = paths("manifests", &args.manifests) {
        config.static_pod_path = path;
    }
    if let Some(path) = paths("resolv-conf", &args.resolv_conf) {
        config.resolv_conf = path;
    }
    put(given.set("socket", args.socket.as_ref(), socket_path), &mut config.socket_path);
    put(given.set("node-name", args.node_name.as_ref(), |t| node_name(t).map(Some)), &mut config.node_name);
    put(given.set("pod-cidr", args.pod_cidr.as_ref(), read::cidr), &mut config.pod_cidr);
    put(given.set("cluster-dns", args.cluster_dns.as_ref(), addresses), &mut config.cluster_dns);
    put(given.set("cluster-domain", args.cluster_domain.as_ref(), cluster_domain), &mut config.cluster_domain);
    put(given.set("max-pods", args.max_pods.as_ref(), small), &mut config.max_pods);
    put(given.set("seccomp-default", args.seccomp_default.as_ref(), read::boolean), &mut config.seccomp_default);
    put(given.set("fail-swap-on", args.fail_swap_on.as_ref(), read::boolean), &mut config.fail_swap_on);
    put(given.set("v", args.verbosity.as_ref(), verbosity), &mut config.verbosity);
}

fn put<T>(value: Option<T>, into: &mut T) {
    if let Some(value) = value {
        *into = value;
    }
}

fn addresses(text: &str) -> Result<Vec<std::net::IpAddr>, String> {
    text.split(',').map(str::trim).filter(|t| !t.is_empty()).map(read::address).collect()
}

fn small(text: &str) -> Result<u32, String> {
    let value = read::integer(text, 0, i64::from(i32::MAX))?;
    u32::try_from(value).map_err(|_| "is out of range".to_owned())
}

fn verbosity(text: &str) -> Result<u32, String> {
    let value = read::integer(text, 0, 10)?;
    u32::try_from(value).map_err(|_| "is out of range".to_owned())
}
