//! Which fields of a v1.Pod armlet honours: the whole decision in one table.
//!
//! - `used`: honoured.
//! - `kept`: accepted and shown again; on a single node there is nothing to do for it.
//! - `only`: honoured with these values, refused with others.
//! - `refused`: known, not honoured, and therefore refused by name. Never ignored.
//! - `choice`: the same, even when empty: naming a volume source is already a choice.
//! - `reference`: names an API object, which a static pod must not (upstream's PreventStaticPodAPIReferences).
//! - `dropped`: the API server's to write; read past with a warning, so that `kubectl get -o yaml` output can be used.
//!
//! A field that is in none of these is unknown, and refused as such. The names are those of
//! `staging/src/k8s.io/api/core/v1/types.go` of v1.36, without what the volume plugins removed long ago took.

use super::schema::{Field, Kind, Verdict};
use Kind::{Bool, I32, I64, IntOrText, List, Map, Object, Opaque, Quantity, Text};

const fn field(name: &'static str, kind: Kind, verdict: Verdict) -> Field {
    Field { name, kind, verdict }
}
const fn used(name: &'static str, kind: Kind) -> Field {
    field(name, kind, Verdict::Used)
}
const fn kept(name: &'static str, kind: Kind) -> Field {
    field(name, kind, Verdict::Kept)
}
const fn only(name: &'static str, kind: Kind, values: &'static [&'static str]) -> Field {
    field(name, kind, Verdict::Only(values))
}
const fn refused(name: &'static str) -> Field {
    field(name, Opaque, Verdict::Refused)
}
const fn choice(name: &'static str) -> Field {
    field(name, Opaque, Verdict::RefusedChoice)
}
const fn reference(name: &'static str, resource: &'static str) -> Field {
    field(name, Opaque, Verdict::Reference(resource))
}
const fn dropped(name: &'static str) -> Field {
    field(name, Opaque, Verdict::Dropped)
}

/// v1.Pod
pub(crate) const POD: &[Field] = &[
    used("apiVersion", Text),
    used("kind", Text),
    used("metadata", Object(METADATA)),
    used("spec", Object(POD_SPEC)),
    dropped("status"),
];

/// v1.List and v1.PodList; the items are read one by one.
pub(crate) const LIST: &[Field] =
    &[only("apiVersion", Text, &["v1"]), used("items", List(&Opaque)), used("kind", Text), dropped("metadata")];

/// meta/v1.ObjectMeta
const METADATA: &[Field] = &[
    used("annotations", Map(&Text)),
    dropped("creationTimestamp"),
    dropped("deletionGracePeriodSeconds"),
    dropped("deletionTimestamp"),
    dropped("finalizers"),
    dropped("generateName"),
    dropped("generation"),
    used("labels", Map(&Text)),
    dropped("managedFields"),
    used("name", Text),
    used("namespace", Text),
    dropped("ownerReferences"),
    dropped("resourceVersion"),
    dropped("selfLink"),
    used("uid", Text),
];

/// v1.PodSpec
const POD_SPEC: &[Field] = &[
    refused("activeDeadlineSeconds"),
    kept("affinity", Object(AFFINITY)),
    only("automountServiceAccountToken", Bool, &["false"]),
    used("containers", List(&Object(CONTAINER))),
    used("dnsConfig", Object(DNS_CONFIG)),
    used("dnsPolicy", Text),
    kept("enableServiceLinks", Bool),
    refused("ephemeralContainers"),
    used("hostAliases", List(&Object(HOST_ALIAS))),
    only("hostIPC", Bool, &["false"]),
    used("hostNetwork", Bool),
    only("hostPID", Bool, &["false"]),
    only("hostUsers", Bool, &["true"]),
    used("hostname", Text),
    refused("hostnameOverride"),
    reference("imagePullSecrets", "secrets"),
    used("initContainers", List(&Object(CONTAINER))),
    used("nodeName", Text),
    used("nodeSelector", Map(&Text)),
    used("os", Object(OS)),
    used("overhead", Map(&Quantity)),
    kept("preemptionPolicy", Text),
    used("priority", I32),
    used("priorityClassName", Text),
    refused("readinessGates"),
    reference("resourceClaims", "resourceclaims"),
    refused("resources"),
    used("restartPolicy", Text),
    refused("runtimeClassName"),
    kept("schedulerName", Text),
    refused("schedulingGates"),
    refused("schedulingGroup"),
    used("securityContext", Object(POD_SECURITY)),
    reference("serviceAccount", "serviceaccounts"),
    reference("serviceAccountName", "serviceaccounts"),
    only("setHostnameAsFQDN", Bool, &["false"]),
    only("shareProcessNamespace", Bool, &["false"]),
    used("subdomain", Text),
    used("terminationGracePeriodSeconds", I64),
    kept("tolerations", List(&Object(TOLERATION))),
    kept("topologySpreadConstraints", List(&Object(SPREAD))),
    used("volumes", List(&Object(VOLUME))),
];

/// v1.Container
const CONTAINER: &[Field] = &[
    used("args", List(&Text)),
    used("command", List(&Text)),
    used("env", List(&Object(ENV))),
    refused("envFrom"),
    used("image", Text),
    used("imagePullPolicy", Text),
    refused("lifecycle"),
    used("livenessProbe", Object(PROBE)),
    used("name", Text),
    used("ports", List(&Object(PORT))),
    used("readinessProbe", Object(PROBE)),
    kept("resizePolicy", List(&Object(RESIZE_POLICY))),
    used("resources", Object(RESOURCES)),
    used("restartPolicy", Text),
    refused("restartPolicyRules"),
    used("securityContext", Object(SECURITY)),
    used("startupProbe", Object(PROBE)),
    used("stdin", Bool),
    used("stdinOnce", Bool),
    used("terminationMessagePath", Text),
    used("terminationMessagePolicy", Text),
    used("tty", Bool),
    refused("volumeDevices"),
    used("volumeMounts", List(&Object(VOLUME_MOUNT))),
    used("workingDir", Text),
];

/// v1.EnvVar
const ENV: &[Field] = &[used("name", Text), used("value", Text), refused("valueFrom")];

/// v1.ContainerPort
const PORT: &[Field] =
    &[used("containerPort", I32), refused("hostIP"), used("hostPort", I32), used("name", Text), used("protocol", Text)];

/// v1.ContainerResizePolicy
const RESIZE_POLICY: &[Field] = &[used("resourceName", Text), only("restartPolicy", Text, &["NotRequired"])];

/// v1.ResourceRequirements
const RESOURCES: &[Field] = &[refused("claims"), used("limits", Map(&Quantity)), used("requests", Map(&Quantity))];

/// v1.VolumeMount
const VOLUME_MOUNT: &[Field] = &[
    used("mountPath", Text),
    only("mountPropagation", Text, &["None"]),
    used("name", Text),
    used("readOnly", Bool),
    only("recursiveReadOnly", Text, &["Disabled"]),
    refused("subPath"),
    refused("subPathExpr"),
];

/// v1.Probe
const PROBE: &[Field] = &[
    used("exec", Object(&[used("command", List(&Text))])),
    used("failureThreshold", I32),
    choice("grpc"),
    used("httpGet", Object(HTTP_GET)),
    used("initialDelaySeconds", I32),
    used("periodSeconds", I32),
    used("successThreshold", I32),
    used("tcpSocket", Object(&[used("host", Text), used("port", IntOrText)])),
    used("terminationGracePeriodSeconds", I64),
    used("timeoutSeconds", I32),
];

/// v1.HTTPGetAction
const HTTP_GET: &[Field] = &[
    used("host", Text),
    used("httpHeaders", List(&Object(&[used("name", Text), used("value", Text)]))),
    used("path", Text),
    used("port", IntOrText),
    used("scheme", Text),
];

/// v1.SecurityContext. AppArmor and SELinux are not applied by this version, so asking for them is refused.
const SECURITY: &[Field] = &[
    used("allowPrivilegeEscalation", Bool),
    used("appArmorProfile", Object(APP_ARMOR)),
    used("capabilities", Object(&[used("add", List(&Text)), used("drop", List(&Text))])),
    used("privileged", Bool),
    only("procMount", Text, &["Default"]),
    used("readOnlyRootFilesystem", Bool),
    used("runAsGroup", I64),
    used("runAsNonRoot", Bool),
    used("runAsUser", I64),
    refused("seLinuxOptions"),
    used("seccompProfile", Object(SECCOMP)),
    refused("windowsOptions"),
];

/// v1.PodSecurityContext
const POD_SECURITY: &[Field] = &[
    used("appArmorProfile", Object(APP_ARMOR)),
    used("fsGroup", I64),
    kept("fsGroupChangePolicy", Text),
    used("runAsGroup", I64),
    used("runAsNonRoot", Bool),
    used("runAsUser", I64),
    refused("seLinuxChangePolicy"),
    refused("seLinuxOptions"),
    used("seccompProfile", Object(SECCOMP)),
    used("supplementalGroups", List(&I64)),
    used("supplementalGroupsPolicy", Text),
    used("sysctls", List(&Object(&[used("name", Text), used("value", Text)]))),
    refused("windowsOptions"),
];

/// v1.AppArmorProfile
const APP_ARMOR: &[Field] = &[refused("localhostProfile"), only("type", Text, &["Unconfined"])];

/// v1.SeccompProfile
const SECCOMP: &[Field] = &[refused("localhostProfile"), only("type", Text, &["RuntimeDefault", "Unconfined"])];

/// v1.Volume: its name and one source.
const VOLUME: &[Field] = &[
    choice("awsElasticBlockStore"),
    choice("azureDisk"),
    choice("azureFile"),
    choice("cephfs"),
    choice("cinder"),
    choice("configMap"),
    choice("csi"),
    choice("downwardAPI"),
    used("emptyDir", Object(&[only("medium", Text, &["Memory"]), used("sizeLimit", Quantity)])),
    choice("ephemeral"),
    choice("fc"),
    choice("flexVolume"),
    choice("flocker"),
    choice("gcePersistentDisk"),
    choice("gitRepo"),
    choice("glusterfs"),
    used("hostPath", Object(&[used("path", Text), used("type", Text)])),
    choice("image"),
    choice("iscsi"),
    used("name", Text),
    choice("nfs"),
    choice("persistentVolumeClaim"),
    choice("photonPersistentDisk"),
    choice("portworxVolume"),
    choice("projected"),
    choice("quobyte"),
    choice("rbd"),
    choice("scaleIO"),
    choice("secret"),
    choice("storageos"),
    choice("vsphereVolume"),
];

/// v1.PodDNSConfig
const DNS_CONFIG: &[Field] = &[
    used("nameservers", List(&Text)),
    used("options", List(&Object(&[used("name", Text), used("value", Text)]))),
    used("searches", List(&Text)),
];

/// v1.HostAlias
const HOST_ALIAS: &[Field] = &[used("hostnames", List(&Text)), used("ip", Text)];

/// v1.PodOS
const OS: &[Field] = &[only("name", Text, &["linux"])];

/// v1.Toleration
const TOLERATION: &[Field] = &[
    kept("effect", Text),
    kept("key", Text),
    kept("operator", Text),
    kept("tolerationSeconds", I64),
    kept("value", Text),
];

/// v1.TopologySpreadConstraint
const SPREAD: &[Field] = &[
    kept("labelSelector", Object(LABEL_SELECTOR)),
    kept("matchLabelKeys", List(&Text)),
    kept("maxSkew", I32),
    kept("minDomains", I32),
    kept("nodeAffinityPolicy", Text),
    kept("nodeTaintsPolicy", Text),
    kept("topologyKey", Text),
    kept("whenUnsatisfiable", Text),
];

/// v1.Affinity. What a node must be is looked at by the kubelet too, and refused until armlet evaluates it; where the
/// pod would rather run, and next to which other pods, only a scheduler decides.
const AFFINITY: &[Field] = &[
    kept(
        "nodeAffinity",
        Object(&[
            kept(
                "preferredDuringSchedulingIgnoredDuringExecution",
                List(&Object(&[kept("preference", Object(NODE_SELECTOR_TERM)), kept("weight", I32)])),
            ),
            refused("requiredDuringSchedulingIgnoredDuringExecution"),
        ]),
    ),
    kept("podAffinity", Object(POD_AFFINITY)),
    kept("podAntiAffinity", Object(POD_AFFINITY)),
];

/// v1.NodeSelectorTerm
const NODE_SELECTOR_TERM: &[Field] =
    &[kept("matchExpressions", List(&Object(REQUIREMENT))), kept("matchFields", List(&Object(REQUIREMENT)))];

/// v1.PodAffinity and v1.PodAntiAffinity
const POD_AFFINITY: &[Field] = &[
    kept(
        "preferredDuringSchedulingIgnoredDuringExecution",
        List(&Object(&[kept("podAffinityTerm", Object(POD_AFFINITY_TERM)), kept("weight", I32)])),
    ),
    kept("requiredDuringSchedulingIgnoredDuringExecution", List(&Object(POD_AFFINITY_TERM))),
];

/// v1.PodAffinityTerm
const POD_AFFINITY_TERM: &[Field] = &[
    kept("labelSelector", Object(LABEL_SELECTOR)),
    kept("matchLabelKeys", List(&Text)),
    kept("mismatchLabelKeys", List(&Text)),
    kept("namespaceSelector", Object(LABEL_SELECTOR)),
    kept("namespaces", List(&Text)),
    kept("topologyKey", Text),
];

/// meta/v1.LabelSelector
const LABEL_SELECTOR: &[Field] =
    &[kept("matchExpressions", List(&Object(REQUIREMENT))), kept("matchLabels", Map(&Text))];

/// meta/v1.LabelSelectorRequirement and v1.NodeSelectorRequirement
const REQUIREMENT: &[Field] = &[kept("key", Text), kept("operator", Text), kept("values", List(&Text))];

#[cfg(test)]
mod tests {
    use super::*;
    use k8s_openapi::api::core::v1 as api;

    /// The names that a v1 type writes, taken from a value of it with the named fields.
    fn written<T: serde::de::DeserializeOwned + serde::Serialize>(fields: &[Field]) {
        for field in fields {
            let sample = match field.kind {
                Opaque => continue,
                _ => sample(&field.kind),
            };
            let given = serde_json::json!({ field.name: sample });
            let typed: T = serde_json::from_value(given).expect(field.name);
            let back = serde_json::to_value(typed).expect("serializes");
            assert!(back.get(field.name).is_some(), "{} is not a field of the v1 type", field.name);
        }
    }

    fn sample(kind: &Kind) -> serde_json::Value {
        use serde_json::json;
        match kind {
            Text | Quantity => json!("1"),
            Bool => json!(true),
            I32 | I64 | IntOrText => json!(1),
            List(kind) => json!([sample(kind)]),
            Map(kind) => json!({"k": sample(kind)}),
            Object(fields) => {
                let known = fields.iter().filter(|f| !matches!(f.kind, Opaque));
                known.map(|f| (f.name.to_owned(), sample(&f.kind))).collect::<serde_json::Map<_, _>>().into()
            }
            Opaque => json!(null),
        }
    }

    #[test]
    fn the_tables_fit_the_v1_types() {
        written::<api::PodSpec>(POD_SPEC);
        written::<api::Container>(CONTAINER);
        written::<api::Probe>(PROBE);
        written::<api::HTTPGetAction>(HTTP_GET);
        written::<api::Volume>(VOLUME);
        written::<api::VolumeMount>(VOLUME_MOUNT);
        written::<api::SecurityContext>(SECURITY);
        written::<api::PodSecurityContext>(POD_SECURITY);
        written::<api::ContainerPort>(PORT);
        written::<api::EnvVar>(ENV);
        written::<api::PodDNSConfig>(DNS_CONFIG);
        written::<api::TopologySpreadConstraint>(SPREAD);
        written::<api::Toleration>(TOLERATION);
        written::<api::PodAffinityTerm>(POD_AFFINITY_TERM);
    }

    #[test]
    fn a_full_object_survives_the_typed_decoder() {
        let full = sample(&Object(POD_SPEC));
        let typed: api::PodSpec = serde_json::from_value(full.clone()).expect("decodes");
        assert_eq!(serde_json::to_value(typed).expect("serializes"), full);
    }
}
