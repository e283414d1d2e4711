//! What a pod is to be: the part of a Kubernetes PodSpec that armlet honours, defaulted and checked.
//!
//! `wire` makes these values from manifests. What a manifest says and this page has no place for was refused there.
//!
//! The store keeps them: a field that an older version did not write has a default here where leaving it out was the
//! same as saying nothing, and every field that is added has to have one.

use super::{PodUid, Quantity};
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use serde_json::Value;
use std::collections::BTreeMap;

/// A pod that should run on this node.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Pod {
    /// The pod's UID. Another UID is another pod, whatever the name.
    pub uid: PodUid,
    /// The pod's full name: for a static pod `<metadata.name>-<node name>`.
    pub name: String,
    /// The namespace, `default` when the manifest gives none.
    pub namespace: String,
    /// Labels.
    #[serde(default)]
    pub labels: BTreeMap<String, String>,
    /// Annotations, `kubernetes.io/config.*` included.
    #[serde(default)]
    pub annotations: BTreeMap<String, String>,
    /// Where the manifest came from: `file`.
    pub source: Source,
    /// The defaulted v1.Pod as JSON, without status: what `armlet inspect` and the API's `/pods` show.
    #[serde(default)]
    pub manifest: Manifest,
    /// What is to run.
    pub spec: PodSpec,
}

/// A pod's JSON, kept as its text: as a tree it takes ten times the memory, and it is seldom looked at.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Manifest(Box<str>);

impl Manifest {
    /// The JSON, read anew.
    #[must_use]
    pub fn value(&self) -> Value {
        // The text is a value's own.
        serde_json::from_str(&self.0).unwrap_or_default()
    }
}

impl Default for Manifest {
    /// Of a pod that a version saved which knew no manifests.
    fn default() -> Self {
        Self::from(&Value::Null)
    }
}

impl From<&Value> for Manifest {
    fn from(value: &Value) -> Self {
        Self(value.to_string().into())
    }
}

impl Serialize for Manifest {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        self.value().serialize(serializer)
    }
}

impl<'de> Deserialize<'de> for Manifest {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        Ok(Self::from(&Value::deserialize(deserializer)?))
    }
}

/// Where a desired pod came from.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Source {
    /// A static pod's manifest file.
    File {
        /// The file's path.
        path: String,
        /// Which document of the file, from 0.
        document: usize,
    },
}

/// What is to run in a pod.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct PodSpec {
    /// Init containers in spec order, restartable ones ("sidecars") among them.
    #[serde(default)]
    pub init_containers: Vec<Container>,
    /// Ordinary containers in spec order.
    pub containers: Vec<Container>,
    /// Volumes by name.
    #[serde(default)]
    pub volumes: Vec<Volume>,
    /// What happens after a container's exit.
    pub restart_policy: RestartPolicy,
    /// Seconds from the stop signal to SIGKILL.
    pub termination_grace_secs: u64,
    /// The pod uses the node's network namespace and UTS namespace.
    #[serde(default)]
    pub host_network: bool,
    /// `spec.hostname`, else absent.
    pub hostname: Option<String>,
    /// `spec.subdomain`, else absent.
    pub subdomain: Option<String>,
    /// Whether the node's resolver is copied or only `dns` is used.
    pub dns_policy: DnsPolicy,
    /// `spec.dnsConfig`.
    #[serde(default)]
    pub dns: DnsConfig,
    /// `spec.hostAliases`: an address and its names.
    #[serde(default)]
    pub host_aliases: Vec<(String, Vec<String>)>,
    /// `spec.securityContext.fsGroup`: group of the pod's volumes.
    pub fs_group: Option<u32>,
    /// Sysctls of the pod's own namespaces, by dotted name.
    #[serde(default)]
    pub sysctls: BTreeMap<String, String>,
    /// `spec.priorityClassName`; `system-node-critical` lowers the OOM score.
    pub priority_class_name: Option<String>,
    /// `spec.priority`.
    #[serde(default)]
    pub priority: i32,
    /// `spec.runtimeClassName`'s overhead or `spec.overhead`, added to the pod's own group.
    #[serde(default)]
    pub overhead: Resources,
}

/// `spec.restartPolicy`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum RestartPolicy {
    /// Whatever the exit code.
    Always,
    /// Only after a non-zero exit.
    OnFailure,
    /// Not at all.
    Never,
}

/// `spec.dnsPolicy`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum DnsPolicy {
    /// The cluster's DNS when one is configured, else as `Default`; with hostNetwork as `Default`.
    ClusterFirst,
    /// As `ClusterFirst`, with hostNetwork too.
    ClusterFirstWithHostNet,
    /// The node's resolver.
    Default,
    /// Only `spec.dnsConfig`.
    None,
}

/// `spec.dnsConfig`.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct DnsConfig {
    /// Name servers.
    pub nameservers: Vec<String>,
    /// Search domains.
    pub searches: Vec<String>,
    /// Options: a name and its value, if it has one.
    pub options: Vec<(String, Option<String>)>,
}

/// One container as it is to run.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Container {
    /// Unique among all the pod's containers.
    pub name: String,
    /// The image reference as written.
    pub image: String,
    /// When to fetch it.
    pub pull_policy: PullPolicy,
    /// Replaces the image's entry point (and drops its command); empty: the image's.
    #[serde(default)]
    pub command: Vec<String>,
    /// Replaces the image's command; empty: the image's.
    #[serde(default)]
    pub args: Vec<String>,
    /// Replaces the image's working directory.
    pub working_dir: Option<String>,
    /// Variables in spec order, `$(VAR)` already expanded.
    #[serde(default)]
    pub env: Vec<(String, String)>,
    /// Declared ports.
    #[serde(default)]
    pub ports: Vec<ContainerPort>,
    /// Requests and limits.
    #[serde(default)]
    pub resources: ResourceRequirements,
    /// Volumes that it sees.
    #[serde(default)]
    pub mounts: Vec<VolumeMount>,
    /// Restart or not, when the pod says so.
    pub liveness: Option<Probe>,
    /// Ready or not.
    pub readiness: Option<Probe>,
    /// Started or not.
    pub startup: Option<Probe>,
    /// Where the container writes its last words.
    pub termination_message_path: String,
    /// Whether the log's tail replaces an empty message.
    pub termination_message_policy: TerminationMessagePolicy,
    /// The container's own restart policy. On an init container `Always` makes it a sidecar.
    pub restart_policy: Option<RestartPolicy>,
    /// Privileges, merged from pod and container.
    #[serde(default)]
    pub security: Security,
    /// Keeps a pipe on standard input instead of /dev/null.
    #[serde(default)]
    pub stdin: bool,
    /// Closes standard input after the first attached client is gone.
    #[serde(default)]
    pub stdin_once: bool,
    /// Runs on a terminal.
    #[serde(default)]
    pub tty: bool,
}

impl Container {
    /// Whether an init container is a restartable one.
    #[must_use]
    pub fn is_sidecar(&self) -> bool {
        self.restart_policy == Some(RestartPolicy::Always)
    }
}

/// `imagePullPolicy`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum PullPolicy {
    /// Ask the registry at each start.
    Always,
    /// Ask it only when the image is absent.
    IfNotPresent,
    /// Never ask it.
    Never,
}

/// `terminationMessagePolicy`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum TerminationMessagePolicy {
    /// Only the file.
    File,
    /// The log's tail after a failure with an empty file.
    FallbackToLogsOnError,
}

/// One of `ports`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ContainerPort {
    /// For probes by name.
    pub name: Option<String>,
    /// The port in the pod.
    pub container_port: u16,
    /// The port on the node; only with hostNetwork for now.
    pub host_port: Option<u16>,
    /// TCP, UDP or SCTP.
    pub protocol: Protocol,
}

/// A transport protocol.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "UPPERCASE")]
pub enum Protocol {
    /// TCP.
    Tcp,
    /// UDP.
    Udp,
    /// SCTP.
    Sctp,
}

/// Requests and limits.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct ResourceRequirements {
    /// What is set aside. Defaulted from the limits, as upstream does.
    pub requests: Resources,
    /// What cannot be exceeded.
    pub limits: Resources,
}

/// Amounts of the resources that a node has.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct Resources {
    /// Cores.
    pub cpu: Option<Quantity>,
    /// Bytes.
    pub memory: Option<Quantity>,
    /// Bytes of disk: writable layer, logs, emptyDirs.
    pub ephemeral_storage: Option<Quantity>,
    /// Bytes of huge pages by page size as written in the resource's name (`2Mi`).
    pub hugepages: BTreeMap<String, Quantity>,
}

/// One of `volumeMounts`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct VolumeMount {
    /// Which volume.
    pub volume: String,
    /// Where in the container: absolute.
    pub path: String,
    /// Not writable.
    #[serde(default)]
    pub read_only: bool,
}

/// A volume of the pod.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Volume {
    /// Unique in the pod.
    pub name: String,
    /// What it is.
    pub kind: VolumeKind,
}

/// The volume kinds that armlet makes.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum VolumeKind {
    /// A folder that lives as long as the pod.
    EmptyDir {
        /// On tmpfs instead of disk.
        memory: bool,
        /// Bytes; for tmpfs a hard limit.
        size_limit: Option<u64>,
    },
    /// A path of the node.
    HostPath {
        /// The path: absolute, without `..`.
        path: String,
        /// What must be there, or is made.
        check: HostPathType,
    },
}

/// `hostPath.type`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum HostPathType {
    /// Not checked; made as a directory when absent.
    Unset,
    /// Made with mode 0755 when absent.
    DirectoryOrCreate,
    /// Must be a directory.
    Directory,
    /// Made with mode 0644 when absent; its folder must be there.
    FileOrCreate,
    /// Must be a file.
    File,
    /// Must be a unix socket.
    Socket,
    /// Must be a character device.
    CharDevice,
    /// Must be a block device.
    BlockDevice,
}

/// A liveness, readiness or startup probe.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Probe {
    /// What is tried.
    pub handler: ProbeHandler,
    /// Seconds after the container's start before the first try.
    #[serde(default)]
    pub initial_delay_secs: u32,
    /// Seconds between tries, at least 1.
    pub period_secs: u32,
    /// Seconds a try may take, at least 1.
    pub timeout_secs: u32,
    /// Successes in a row that make it succeed.
    pub success_threshold: u32,
    /// Failures in a row that make it fail.
    pub failure_threshold: u32,
    /// Grace of the restart that a failed liveness or startup probe causes, instead of the pod's.
    pub termination_grace_secs: Option<u64>,
}

/// What a probe tries.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum ProbeHandler {
    /// A command in the container; exit 0 is success.
    Exec {
        /// The program and its arguments.
        command: Vec<String>,
    },
    /// A GET request; 200 to 399 is success.
    HttpGet {
        /// Host name or address; absent: the pod's address.
        host: Option<String>,
        /// The port, a named one already looked up.
        port: u16,
        /// Path and query.
        path: String,
        /// TLS without verification.
        https: bool,
        /// Headers in spec order.
        headers: Vec<(String, String)>,
    },
    /// A connection; being accepted is success.
    TcpSocket {
        /// Host name or address; absent: the pod's address.
        host: Option<String>,
        /// The port, a named one already looked up.
        port: u16,
    },
}

/// A container's privileges, merged from the pod's and its own security context.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default)]
#[expect(clippy::struct_excessive_bools, reason = "each is a field of the Kubernetes API")]
pub struct Security {
    /// Numeric user; absent: the image's.
    pub run_as_user: Option<u32>,
    /// Numeric group; absent: the image's, or the user's in the image's passwd file.
    pub run_as_group: Option<u32>,
    /// Refuse to start as user 0.
    pub run_as_non_root: bool,
    /// Groups beside the primary one: fsGroup first, then supplementalGroups.
    pub groups: Vec<u32>,
    /// `supplementalGroupsPolicy: Strict`: leave out the image's own memberships.
    pub strict_groups: bool,
    /// Every capability and device, no masks, no filter.
    pub privileged: bool,
    /// `allowPrivilegeEscalation: false`.
    pub no_new_privs: bool,
    /// The root filesystem is not writable.
    pub read_only_root: bool,
    /// Capabilities to add, without `CAP_`, upper case; `ALL` for all.
    pub add_capabilities: Vec<String>,
    /// Capabilities to drop, likewise.
    pub drop_capabilities: Vec<String>,
    /// The system call filter; absent: `seccompDefault` decides.
    pub seccomp: Option<Seccomp>,
}

/// `seccompProfile.type`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum Seccomp {
    /// No filter.
    Unconfined,
    /// armlet's own filter.
    RuntimeDefault,
}
