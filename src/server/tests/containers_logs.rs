//! `/containerLogs` over the real socket with real files.

use super::fake::{self, FakeNode, in_time};
use crate::model::status::State;
use crate::model::view::{NodeView, PodView};
use std::fs::File;
use std::io::Write;
use std::path::Path;
use std::sync::Arc;
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader, Lines};
use tokio::process::{Child, ChildStdout};

fn write(path: &Path, text: &str) {
    File::options().append(true).create(true).open(path).unwrap().write_all(text.as_bytes()).unwrap();
}

fn ticks(range: std::ops::Range<u32>) -> String {
    range.map(|n| format!("2026-01-01T00:{n:02}:00.5Z stdout F tick {n}\n")).collect()
}

/// The fake pod with `main` running as attempt `0a`, whose log lies in `folder`.
fn running_pod(folder: &Path) -> PodView {
    let mut pod = fake::pod();
    pod.status.containers = vec![fake::running("main", "0a")];
    pod.attempts = vec![fake::attempt("main", "0a", &folder.join("0.log"))];
    pod
}

#[tokio::test]
async fn logs_of_a_fake_pod_are_filtered() {
    let logs = tempfile::tempdir().unwrap();
    let node = FakeNode::start(fake::view(vec![running_pod(logs.path())]));
    write(&logs.path().join("0.log.20260101-000200"), &ticks(0..2));
    write(&logs.path().join("0.log"), &ticks(2..4));
    write(&logs.path().join("0.log"), "2026-01-01T00:59:30Z stderr F oops\n");
    for (query, want) in [
        ("", "tick 0\ntick 1\ntick 2\ntick 3\noops\n"),
        ("?tailLines=2", "tick 3\noops\n"),
        ("?tailLines=0", ""),
        ("?limitBytes=10", "tick 0\ntic"),
        ("?stream=Stdout&tailLines=3", "tick 1\ntick 2\ntick 3\n"),
        ("?stream=Stderr", "oops\n"),
        ("?sinceSeconds=60", "oops\n"),
        (
            "?sinceTime=2026-01-01T00:03:00Z&timestamps=true",
            "2026-01-01T00:03:00.500000000Z tick 3\n2026-01-01T00:59:30.000000000Z oops\n",
        ),
    ] {
        let answer = node.curl(&format!("/containerLogs/shop/web-edge1/main{query}")).await;
        assert_eq!(answer, (200, String::new(), want.to_owned()), "{query}");
    }
}

#[tokio::test]
async fn refusals_of_a_fake_node_are_the_kubelets() {
    let logs = tempfile::tempdir().unwrap();
    let mut pod = running_pod(logs.path());
    let waiting = |reason: &str| State::Waiting { reason: reason.into(), message: None };
    pod.status.init_containers = vec![fake::status("setup", waiting("ErrImagePull"))];
    pod.status.containers.push(fake::status("helper", waiting("ImagePullBackOff")));
    let node = FakeNode::start(fake::view(vec![pod]));
    write(&logs.path().join("0.log"), "");
    for (path, code, text) in [
        ("shop/nope/c", 404, "pod \"nope\" does not exist"),
        ("default/web-edge1/main", 404, "pod \"web-edge1\" does not exist"),
        ("shop/web-edge1/nope", 404, "container \"nope\" not found in pod \"web-edge1\""),
        (
            "shop/web-edge1/main?previous=true",
            400,
            "previous terminated container \"main\" in pod \"web-edge1\" not found",
        ),
        (
            "shop/web-edge1/setup",
            400,
            "container \"setup\" in pod \"web-edge1\" is waiting to start: image can't be pulled",
        ),
        (
            "shop/web-edge1/helper",
            400,
            "container \"helper\" in pod \"web-edge1\" is waiting to start: trying and failing to pull image",
        ),
        ("shop/web-edge1/main?tailLines=x", 400, "{\"message\": \"Unable to decode query.\"}"),
        ("shop/web-edge1/main?tailLines=%ff", 400, "{\"message\": \"Unable to decode query.\"}"),
        ("shop/web-edge1/main?tailLines=-1", 422, "{\"message\": \"Invalid request.\"}"),
        ("shop/web-edge1/main?limitBytes=0", 422, "{\"message\": \"Invalid request.\"}"),
        (
            "shop/web-edge1/main?sinceSeconds=1&sinceTime=2026-01-01T00:00:00Z",
            422,
            "{\"message\": \"Invalid request.\"}",
        ),
    ] {
        let want = (code, "text/plain; charset=utf-8".to_owned(), text.to_owned());
        assert_eq!(node.curl(&format!("/containerLogs/{path}")).await, want, "{path}");
    }
}

#[tokio::test]
async fn the_right_attempt_of_a_fake_container_is_shown() {
    let logs = tempfile::tempdir().unwrap();
    let (old, new) = (logs.path().join("0.log"), logs.path().join("1.log"));
    let node = FakeNode::start(NodeView::default());
    write(&old, "2026-01-01T00:00:00Z stdout F old\n");
    let show = async |state: State, last: Option<&str>, query: &str| {
        let mut pod = fake::pod();
        let mut main = fake::status("main", state);
        main.container_id = Some(fake::id("0b"));
        main.last_state = last.map(|id| fake::terminated(Some(id)));
        pod.status.containers = vec![main];
        pod.attempts = vec![fake::attempt("main", "0a", &old), fake::attempt("main", "0b", &new)];
        node.view.send_replace(Arc::new(fake::view(vec![pod])));
        let (code, _, text) = node.curl(&format!("/containerLogs/shop/web-edge1/main{query}")).await;
        (code, text)
    };
    let waiting = |reason: &str| State::Waiting { reason: reason.into(), message: None };
    let running = || State::Running { started_at: crate::model::WallTime(0) };
    let name = "container \"main\" in pod \"web-edge1\"";
    assert_eq!(show(running(), None, "").await, (200, "unable to retrieve container logs for armlet://0b".into()));
    write(&new, "2026-01-01T00:00:00Z stdout F new\n");
    assert_eq!(show(running(), Some("0a"), "").await, (200, "new\n".into()));
    assert_eq!(show(running(), Some("0a"), "?previous=true").await, (200, "old\n".into()));
    assert_eq!(show(waiting("CrashLoopBackOff"), Some("0a"), "").await, (200, "old\n".into()));
    assert_eq!(show(State::Terminated(fake::terminated(Some("0b"))), None, "").await, (200, "new\n".into()));
    assert_eq!(show(State::Terminated(fake::terminated(None)), Some("0a"), "").await, (200, "old\n".into()));
    assert_eq!(show(State::Terminated(fake::terminated(None)), None, "").await, (400, format!("{name} is terminated")));
    assert_eq!(
        show(waiting("ContainerCreating"), None, "").await,
        (400, format!("{name} is waiting to start: ContainerCreating"))
    );
    assert_eq!(
        show(running(), Some("0c"), "?previous=1").await,
        (200, "unable to retrieve container logs for armlet://0c".into()),
        "its record is kept, its log is not"
    );
    let never = node.curl("/containerLogs/shop/web-edge1/helper").await;
    assert_eq!((never.0, never.2), (400, "container \"helper\" in pod \"web-edge1\" is not available".into()));
}

/// A follower of the fake pod's log.
fn follow(node: &FakeNode, query: &str) -> (Child, Lines<BufReader<ChildStdout>>) {
    let mut curl = fake::curl(&node.socket());
    curl.arg("-sN").arg(format!("http://node/containerLogs/shop/web-edge1/main?follow=true&{query}"));
    let mut curl = curl.stdout(std::process::Stdio::piped()).spawn().unwrap();
    let lines = BufReader::new(curl.stdout.take().unwrap()).lines();
    (curl, lines)
}

#[tokio::test]
async fn a_fake_containers_log_is_followed_across_rotation_to_its_end() {
    let logs = tempfile::tempdir().unwrap();
    let (current, rotated) = (logs.path().join("0.log"), logs.path().join("0.log.20260101-000000"));
    let node = FakeNode::start(fake::view(vec![running_pod(logs.path())]));
    write(&current, &ticks(0..3));
    let (mut curl, mut lines) = follow(&node, "tailLines=1");
    let mut next = async || in_time(lines.next_line()).await.unwrap();
    assert_eq!(next().await.unwrap(), "tick 2");
    write(&current, &ticks(3..4));
    assert_eq!(next().await.unwrap(), "tick 3");
    write(&current, &ticks(4..5));
    std::fs::rename(&current, &rotated).unwrap();
    write(&current, &ticks(5..6));
    assert_eq!(next().await.unwrap(), "tick 4");
    assert_eq!(next().await.unwrap(), "tick 5");
    // Another pod changes; nothing ends.
    node.view.send_replace(Arc::new(fake::view(vec![fake::pod(), running_pod(logs.path())])));
    write(&current, &ticks(6..7));
    assert_eq!(next().await.unwrap(), "tick 6");
    // The last words are on disk before the end is known.
    write(&current, "2026-01-01T00:00:00Z stdout P last ");
    write(&current, "words\n2026-01-01T00:00:00Z stdout P without end");
    let mut pod = running_pod(logs.path());
    pod.status.containers = vec![fake::status("main", State::Terminated(fake::terminated(Some("0a"))))];
    node.view.send_replace(Arc::new(fake::view(vec![pod])));
    assert_eq!(next().await.unwrap(), "last wordswithout end");
    assert_eq!(next().await, None);
    assert!(in_time(curl.wait()).await.unwrap().success());
}

#[tokio::test]
async fn following_a_fake_container_that_has_ended_ends() {
    let logs = tempfile::tempdir().unwrap();
    let mut pod = running_pod(logs.path());
    pod.status.containers = vec![fake::status("main", State::Terminated(fake::terminated(Some("0a"))))];
    let node = FakeNode::start(fake::view(vec![pod]));
    write(&logs.path().join("0.log"), &ticks(0..2));
    let path = "/containerLogs/shop/web-edge1/main?follow=true";
    assert_eq!(node.curl(path).await.2, "tick 0\ntick 1\n");
    assert_eq!(node.curl(&format!("{path}&limitBytes=4")).await.2, "tick");
}

#[tokio::test]
async fn following_a_fake_container_ends_with_the_limit() {
    let logs = tempfile::tempdir().unwrap();
    let node = FakeNode::start(fake::view(vec![running_pod(logs.path())]));
    write(&logs.path().join("0.log"), &ticks(0..1));
    let (mut curl, mut lines) = follow(&node, "limitBytes=10");
    assert_eq!(in_time(lines.next_line()).await.unwrap().unwrap(), "tick 0");
    write(&logs.path().join("0.log"), &ticks(1..3));
    assert_eq!(in_time(lines.next_line()).await.unwrap().unwrap(), "tic");
    assert_eq!(in_time(lines.next_line()).await.unwrap(), None);
    assert!(in_time(curl.wait()).await.unwrap().success());
}

#[tokio::test]
async fn a_follower_that_leaves_a_fake_node_frees_its_place() {
    let logs = tempfile::tempdir().unwrap();
    let node = FakeNode::start(fake::view(vec![running_pod(logs.path())]));
    write(&logs.path().join("0.log"), &ticks(0..1));
    // More than the server serves at once.
    for _ in 0..300 {
        let mut client = node.connect().await;
        let request = b"GET /containerLogs/shop/web-edge1/main?follow=1 HTTP/1.1\r\nHost: x\r\n\r\n";
        client.write_all(request).await.unwrap();
        let mut lines = BufReader::new(client).lines();
        while in_time(lines.next_line()).await.unwrap().unwrap() != "tick 0" {}
    }
    assert_eq!(node.curl("/healthz").await.0, 200);
}

#[tokio::test]
async fn a_log_that_a_stopping_fake_agent_cuts_off_does_not_look_complete() {
    let logs = tempfile::tempdir().unwrap();
    let node = FakeNode::start(fake::view(vec![running_pod(logs.path())]));
    write(&logs.path().join("0.log"), &ticks(0..1));
    let (mut curl, mut lines) = follow(&node, "");
    assert_eq!(in_time(lines.next_line()).await.unwrap().unwrap(), "tick 0");
    let FakeNode { folder: _folder, view, commands: _commands } = node;
    drop(view);
    assert_eq!(in_time(lines.next_line()).await.unwrap(), None);
    assert_eq!(in_time(curl.wait()).await.unwrap().code(), Some(18), "curl's code for a part of a file");
}
