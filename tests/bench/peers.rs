//! crun and podman beside armlet: container starts and execs, in turns.

use crate::guest::{Failure, Node};
use crate::rows::{Row, median, spread};
use serde_json::{Value, json};

/// Starts and execs, one of each peer after one of ours.
pub(crate) fn rows(node: &Node, rounds: usize, say: impl Fn(&str)) -> Result<(Vec<Row>, f64), Failure> {
    node.ask("start_pod bundle >/dev/null; running 1")?;
    give_bundle_to_crun(node)?;
    node.ask(
        "cd /run/bench/crun && cp config.stay.json config.json && crun run -d staying >/dev/null </dev/null 2>&1",
    )?;

    let (mut exec, mut crun_exec) = (Vec::new(), Vec::new());
    for _ in 0..rounds {
        exec.push(node.interval("once $probe run armlet exec bundle-armlet -- /probe first")?);
        crun_exec.push(node.interval("once $probe run crun exec staying /probe first")?);
    }
    say(&format!("exec, ms: armlet {}; crun {}", spread(&exec), spread(&crun_exec)));
    node.ask("crun delete -f staying")?;

    let (mut start, mut crun, mut podman) = (Vec::new(), Vec::new(), Vec::new());
    node.ask("cp /run/bench/crun/config.first.json /run/bench/crun/config.json")?;
    for _ in 0..rounds {
        start.push(node.interval("start_pod measured; remove_pods measured")?);
        crun.push(node.interval("once $probe run crun run --bundle /run/bench/crun measured </dev/null")?);
        podman.push(node.interval(
            "once $probe run $podman run --rm --pull=never --network=none --memory 32m --cpus 1 localhost/probe:1 first </dev/null",
        )?);
    }
    say(&format!("start, ms: armlet {}; crun {}; podman {}", spread(&start), spread(&crun), spread(&podman)));
    node.ask("remove_pods bundle; umount /run/bench/crun/rootfs")?;

    let first = median(&start);
    let rows = vec![
        Row::beside("start_vs_crun", first, median(&crun), "ms", "ratio <= 0.8"),
        Row::beside("start_vs_podman", first, median(&podman), "ms", "ratio <= 0.2"),
        Row::beside("exec_vs_crun", median(&exec), median(&crun_exec), "ms", "ratio <= 0.8"),
    ];
    Ok((rows, first))
}

/// The bundle that armlet made for a running pod, with namespaces and a cgroup of its own instead of the pod's, and its
/// root filesystem mounted.
fn give_bundle_to_crun(node: &Node) -> Result<(), Failure> {
    let mut config: Value = serde_json::from_str(&node.ask("cat /run/armlet/bundles/*/config.json")?)?;
    let request: Value = serde_json::from_str(&node.ask("cat /run/armlet/bundles/*/create.json")?)?;
    let layers: Vec<&str> =
        request["root"]["lower"].as_array().into_iter().flatten().filter_map(Value::as_str).collect();
    node.ask(&format!(
        "mkdir -p $data/upper $data/work && mount -t overlay -o lowerdir={},upperdir=$data/upper,workdir=$data/work overlay \
         /run/bench/crun/rootfs",
        layers.join(":")
    ))?;
    for namespace in config["linux"]["namespaces"].as_array_mut().into_iter().flatten() {
        if let Some(namespace) = namespace.as_object_mut() {
            namespace.remove("path");
        }
    }
    for mode in ["first", "stay"] {
        config["process"]["args"] = json!(["/probe", mode]);
        config["linux"]["cgroupsPath"] = json!(format!("/bench/{mode}"));
        node.write_file(&format!("/run/bench/crun/config.{mode}.json"), config.to_string().as_bytes());
    }
    Ok(())
}
