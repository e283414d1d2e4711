//! Questions with short answers.

use super::fake::{self, FakeNode, in_time};
use crate::model::view::{EventRecord, NodeResources, NodeView, RefusedManifest};
use crate::model::{WallTime, api};
use serde_json::Value;
use std::collections::VecDeque;
use std::sync::Arc;

const TEXT: &str = "text/plain; charset=utf-8";

fn event(n: i64) -> EventRecord {
    EventRecord {
        at: WallTime(n * 1_000_000_000),
        warning: n == 2,
        reason: format!("Reason{n}"),
        object: "shop/web-edge1".into(),
        field_path: Some("spec.containers{main}".into()),
        message: "m".into(),
    }
}

fn events(numbers: &[i64]) -> Arc<VecDeque<EventRecord>> {
    Arc::new(numbers.iter().map(|n| event(*n)).collect())
}

#[tokio::test]
async fn a_fake_node_answers_like_a_kubelet() {
    let node = FakeNode::start(fake::view(vec![fake::pod()]));
    assert_eq!(node.curl("/healthz").await, (200, TEXT.into(), "ok".into()));
    assert_eq!(node.curl("/").await, (404, TEXT.into(), "404 page not found\n".into()));
    assert_eq!(node.curl("/nope").await, (404, TEXT.into(), "404 page not found\n".into()));
    assert_eq!(node.curl_with(&["-X", "DELETE"], "/pods").await.0, 405);
    let (code, kind, body) = node.curl("/pods").await;
    assert_eq!((code, kind.as_str()), (200, "application/json"));
    let list: Value = serde_json::from_str(&body).unwrap();
    assert_eq!((list["kind"].as_str(), list["apiVersion"].as_str()), (Some("PodList"), Some("v1")));
    assert_eq!(list["items"][0]["metadata"]["name"], "web-edge1");
    assert_eq!(list["items"][0]["status"]["phase"], "Pending");
}

#[tokio::test]
async fn a_fake_pod_that_is_stopped_says_so() {
    let mut pod = fake::pod();
    pod.status.terminating = true;
    let node = FakeNode::start(fake::view(vec![pod]));
    let list: Value = serde_json::from_str(&node.curl("/pods").await.2).unwrap();
    assert_eq!(list["items"][0]["metadata"]["annotations"][api::TERMINATING], "true");
}

#[tokio::test]
async fn a_fake_node_tells_about_itself() {
    let mut node = FakeNode::start(NodeView {
        refused: vec![RefusedManifest { path: "/m/x.yaml".into(), problems: vec!["/m/x.yaml:3: spec: bad".into()] }],
        conditions: vec![("DiskPressure".into(), "the disk is full".into())],
        addresses: vec!["192.0.2.7".parse().unwrap()],
        resources: NodeResources { capacity: [("cpu".into(), "4".into())].into(), ..NodeResources::default() },
        ..fake::view(vec![fake::pod()])
    });
    let version: api::Version = serde_json::from_str(&node.curl("/armlet/v1/version").await.2).unwrap();
    assert_eq!((version.node_name.as_str(), version.version.as_str()), ("edge1", env!("CARGO_PKG_VERSION")));
    let report: api::NodeReport = serde_json::from_str(&node.curl("/armlet/v1/inspect").await.2).unwrap();
    assert_eq!(report.refused[0].problems, ["/m/x.yaml:3: spec: bad"]);
    assert_eq!((report.pods, report.conditions[0].kind.as_str()), (1, "DiskPressure"));
    assert_eq!((report.addresses, report.capacity["cpu"].as_str()), (vec!["192.0.2.7".to_owned()], "4"));
    let pod: api::PodReport = serde_json::from_str(&node.curl("/armlet/v1/inspect/shop/web-edge1").await.2).unwrap();
    assert_eq!(pod.pod["metadata"]["uid"], "600634036acad158");
    assert_eq!(node.curl("/armlet/v1/inspect/shop/no").await, (404, TEXT.into(), "pod \"no\" does not exist".into()));
    let socket = node.socket();
    let ask = tokio::spawn(async move {
        let curl = |path: &str| fake::curl(&socket).arg("-s").arg(path).output();
        let images = curl("http://node/armlet/v1/images").await.unwrap().stdout;
        (images, curl("http://node/armlet/v1/stats").await.unwrap().stdout)
    });
    node.answer_one().await;
    node.answer_one().await;
    let (images, stats) = in_time(ask).await.unwrap();
    assert_eq!(serde_json::from_slice::<Vec<api::Image>>(&images).unwrap(), [fake::image()]);
    let stats: api::Stats = serde_json::from_slice(&stats).unwrap();
    assert_eq!((stats.supervisor.pid, stats.agent_pid), (7, 9));
}

#[tokio::test]
async fn a_fake_agent_that_is_gone_is_told_of() {
    let mut node = FakeNode::start(fake::view(Vec::new()));
    node.commands.close();
    let (code, _, body) = node.curl("/armlet/v1/images").await;
    assert_eq!((code, body.as_str()), (500, "the agent is stopping and did not answer"));
}

#[tokio::test]
async fn a_fake_import_streams_its_progress() {
    let mut node = FakeNode::start(fake::view(Vec::new()));
    for (body, problem) in [
        ("{\"path\": \"a.tar\"}", "path \"a.tar\" must be absolute and without \"..\""),
        ("{\"path\": \"/a/../b.tar\"}", "path \"/a/../b.tar\" must be absolute and without \"..\""),
        ("{\"path\": \"/a\", \"x\": 1}", "unknown field `x`"),
        ("garbage", "expected value"),
    ] {
        let (code, _, text) = node.curl_with(&["-d", body], "/armlet/v1/images/import").await;
        assert_eq!(code, 400, "{text}");
        assert!(text.contains(problem), "{text}");
    }
    let large = format!("@{}", node.folder.path().join("large").display());
    std::fs::write(node.folder.path().join("large"), vec![b' '; 100_000]).unwrap();
    assert_eq!(node.curl_with(&["--data-binary", &large], "/armlet/v1/images/import").await.0, 400);

    let socket = node.socket();
    let import = tokio::spawn(async move {
        let mut curl = fake::curl(&socket);
        curl.args(["-s", "-d", "{\"path\": \"/x.tar\"}", "http://node/armlet/v1/images/import"]);
        curl.output().await.unwrap().stdout
    });
    node.answer_one().await;
    let lines = String::from_utf8(in_time(import).await.unwrap()).unwrap();
    let lines: Vec<api::ImportProgress> = lines.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let step = api::ImportProgress::Step { text: "unpacking /x.tar".into() };
    assert_eq!(lines, [step, api::ImportProgress::Done { images: vec![fake::image()] }]);
}

#[tokio::test]
async fn events_of_a_fake_node_can_be_followed() {
    let node = FakeNode::start(NodeView { events: events(&[1, 2]), ..fake::view(Vec::new()) });
    let (_, _, body) = node.curl("/armlet/v1/events").await;
    assert_eq!(
        body.lines().next(),
        Some(
            "{\"time\":\"1970-01-01T00:00:01Z\",\"type\":\"Normal\",\"reason\":\"Reason1\",\"object\":\"shop/web-edge1\",\
             \"fieldPath\":\"spec.containers{main}\",\"message\":\"m\"}"
        )
    );
    let reasons = |body: &str| -> Vec<String> {
        body.lines().map(|l| serde_json::from_str::<api::Event>(l).unwrap().reason).collect()
    };
    assert_eq!(reasons(&body), ["Reason1", "Reason2"]);

    let mut curl = fake::curl(&node.socket());
    curl.args(["-sN", "http://node/armlet/v1/events?follow=1"]);
    let mut curl = curl.stdout(std::process::Stdio::piped()).spawn().unwrap();
    let mut lines = tokio::io::AsyncBufReadExt::lines(tokio::io::BufReader::new(curl.stdout.take().unwrap()));
    let mut next = async || reasons(&in_time(lines.next_line()).await.unwrap().unwrap());
    assert_eq!((next().await, next().await), (vec!["Reason1".to_owned()], vec!["Reason2".to_owned()]));
    // One change without events, one with a new event, one in which all that was known is gone.
    let publish = |numbers: &[i64]| {
        node.view.send_replace(Arc::new(NodeView { events: events(numbers), ..fake::view(Vec::new()) }));
    };
    publish(&[1, 2]);
    publish(&[2, 3]);
    assert_eq!(next().await, ["Reason3"]);
    publish(&[8, 9]);
    assert_eq!((next().await, next().await), (vec!["Reason8".to_owned()], vec!["Reason9".to_owned()]));
}

#[tokio::test]
async fn a_fake_nodes_log_level_is_changed_by_words_and_numbers() {
    let mut node = FakeNode::start(fake::view(Vec::new()));
    for (body, problem) in [
        ("{\"level\": \"loud\"}", "level \"loud\" is none of error, warn, info, debug, trace, 0 to 10"),
        ("{\"level\": 4}", "the request is not {\"level\": ...}: "),
        ("{}", "the request is not {\"level\": ...}: "),
    ] {
        let (code, _, text) = node.curl_with(&["-X", "PUT", "-d", body], "/armlet/v1/log-level").await;
        assert!(code == 400 && text.starts_with(problem), "{code} {text}");
    }
    let socket = node.socket();
    let ask = tokio::spawn(async move {
        let mut curl = fake::curl(&socket);
        curl.args(["-s", "-X", "PUT", "-d", "{\"level\": \"4\"}", "http://node/armlet/v1/log-level"]);
        curl.output().await.unwrap().stdout
    });
    node.answer_one().await;
    let levels: api::LogLevels = serde_json::from_slice(&in_time(ask).await.unwrap()).unwrap();
    assert_eq!((levels.agent.word(), levels.supervisor), ("debug", None));
}

/// An agent that has just started does not know all pods: that is not told as if there were none.
#[tokio::test]
async fn a_fake_node_that_is_starting_is_waited_for() {
    let node = FakeNode::start(NodeView { settled: false, ..fake::view(Vec::new()) });
    assert_eq!(node.curl("/armlet/v1/version").await.0, 200);
    let socket = node.socket();
    let ask = tokio::spawn(async move { fake::curl(&socket).args(["-s", "http://node/pods"]).output().await.unwrap() });
    while node.view.receiver_count() < 2 {
        tokio::task::yield_now().await;
    }
    node.view.send_replace(Arc::new(fake::view(vec![fake::pod()])));
    let pods: Value = serde_json::from_slice(&in_time(ask).await.unwrap().stdout).unwrap();
    assert_eq!(pods["items"].as_array().unwrap().len(), 1);

    let conditions = vec![("SupervisorNotConnected".to_owned(), "start it".to_owned())];
    node.view.send_replace(Arc::new(NodeView { settled: false, conditions, ..fake::view(Vec::new()) }));
    let (status, _, text) = in_time(node.curl("/pods")).await;
    let expected = "the agent has not taken over the pods yet. SupervisorNotConnected: start it.";
    assert_eq!((status, text.as_str()), (503, expected));
}
