//! What armlet is compared with, in the same guest: crun with armlet's own bundle, and podman.

use armlet_vm::Guest;
use serde_json::{Value, json};

/// Makes the programs of the payload disk usable: a tree of a distribution where a dynamic linker looks for it.
pub(crate) const INSTALL: &str = "
ln -sfn /run/payload/peers/usr /usr
ln -sfn usr/lib /lib
ln -sfn usr/bin /bin
mkdir -p /etc/containers /var/tmp
echo '{\"default\":[{\"type\":\"insecureAcceptAnything\"}]}' >/etc/containers/policy.json
printf '[storage]\\ndriver = \"overlay\"\\ngraphroot = \"/var/lib/armlet/bench/podman\"\\nrunroot = \"/run/podman\"\\n' >/etc/containers/storage.conf
printf '[engine]\\ncgroup_manager = \"cgroupfs\"\\nevents_logger = \"none\"\\nruntime = \"crun\"\\n[network]\\nfirewall_driver = \"none\"\\n[containers]\\nlog_driver = \"k8s-file\"\\n' >/etc/containers/containers.conf
crun --version | head -n 1
";

/// Where crun's bundle is made.
pub(crate) const BUNDLE: &str = "/var/lib/armlet/bench/crun";

/// Turns the bundle that armlet wrote for a container into one for crun: other process, own namespaces, own group, and
/// the root filesystem mounted beforehand.
pub(crate) fn bundle_for_crun(guest: &Guest, bundle: &str) -> Result<(), Box<dyn std::error::Error>> {
    let mut spec: Value = serde_json::from_str(&guest.ok(&format!("cat {bundle}/config.json")))?;
    let request: Value = serde_json::from_str(&guest.ok(&format!("cat {bundle}/create.json")))?;
    spec["process"]["args"] = json!(["/bench/stopwatch", "mark", "/bench/out"]);
    spec["root"]["path"] = json!(format!("{BUNDLE}/rootfs"));
    spec["linux"]["cgroupsPath"] = json!("/bench-crun");
    if let Some(namespaces) = spec["linux"]["namespaces"].as_array_mut() {
        for namespace in namespaces {
            if let Some(fields) = namespace.as_object_mut() {
                fields.remove("path");
            }
        }
    }
    let lower: Vec<&str> =
        request["root"]["lower"].as_array().into_iter().flatten().filter_map(Value::as_str).collect();
    guest.ok(&format!(
        "mkdir -p {BUNDLE}/rootfs {BUNDLE}/upper {BUNDLE}/work && \
         mount -t overlay -o lowerdir={},upperdir={BUNDLE}/upper,workdir={BUNDLE}/work overlay {BUNDLE}/rootfs",
        lower.join(":")
    ));
    guest.write_file(&format!("{BUNDLE}/config.json"), spec.to_string().as_bytes());
    // The same container again, but one that stays, for exec.
    spec["process"]["args"] = json!(["sleep", "100000"]);
    spec["linux"]["cgroupsPath"] = json!("/bench-crun-exec");
    guest.ok(&format!("mkdir -p {BUNDLE}-exec"));
    guest.write_file(&format!("{BUNDLE}-exec/config.json"), spec.to_string().as_bytes());
    Ok(())
}
