//! Images that are missing, slow or wrong.

use super::testing::pod;
use super::*;
use crate::model::pod::PullPolicy;

fn without_images(names: &[&str], missing: &[&str]) -> Scene {
    let mut scene = Scene::new(pod("p", names));
    for name in missing {
        scene.seen.images.remove(&format!("{name}:1"));
    }
    scene
}

#[test]
fn a_later_containers_missing_image_holds_nobody_back() {
    let mut scene = without_images(&["a", "b"], &["b"]);
    scene.hang.insert("prefetch b:1".into());
    assert_eq!(scene.go(), ["prefetch b:1", "sandbox 0", "attach 0", "start a#0"]);
    scene.finish("prefetch b:1");
    assert_eq!(scene.go(), ["start b#0"]);
}

#[test]
fn an_earlier_containers_pull_holds_the_later_ones_back() {
    let mut scene = without_images(&["a", "b"], &["a"]);
    scene.hang.insert("prefetch a:1".into());
    assert_eq!(scene.go(), ["prefetch a:1", "sandbox 0", "attach 0"]);
    scene.finish("prefetch a:1");
    assert_eq!(scene.go(), ["start a#0", "start b#0"]);
}

#[test]
fn an_image_that_cannot_be_had_backs_off_and_lets_the_others_pass() {
    let mut scene = without_images(&["a", "b"], &["a"]);
    for label in ["prefetch a:1", "pull a:1"] {
        scene.fail.insert(label.into(), "ErrImagePull");
    }
    assert_eq!(scene.go(), ["prefetch a:1", "sandbox 0", "attach 0", "start b#0"]);
    assert_eq!((scene.tell("a").as_str(), scene.message("a").as_str()), ("Waiting ErrImagePull 0", "it broke"));
    assert_eq!(scene.phase(), Phase::Pending);
    scene.reasons();
    scene.pass(5000);
    assert!(scene.go().is_empty());
    assert_eq!(scene.tell("a"), "Waiting ImagePullBackOff 0");
    assert_eq!(scene.message("a"), "Back-off pulling image \"a:1\": ErrImagePull: it broke");
    assert_eq!(scene.reasons(), ["BackOff", "Failed"]);
    scene.pass(5000);
    assert_eq!(scene.go(), ["pull a:1"]);
    assert_eq!(scene.reasons(), ["Pulling", "Failed", "Failed"]);
    scene.pass(19_999);
    assert!(scene.go().is_empty(), "the delay has doubled");
    scene.fail.clear();
    scene.pass(1);
    assert_eq!(scene.go(), ["pull a:1", "start a#0"]);
}

#[test]
fn never_means_never() {
    let mut scene = without_images(&["a"], &["a"]);
    let mut pod = pod("p", &["a"]);
    pod.spec.containers[0].pull_policy = PullPolicy::Never;
    scene.seen.pod = Some(Arc::new(pod));
    assert_eq!(scene.go(), ["sandbox 0", "attach 0"]);
    assert_eq!(scene.tell("a"), "Waiting ErrImageNeverPull 0");
    assert_eq!(scene.message("a"), "Container image \"a:1\" is not present with pull policy of Never");
    scene.go();
    assert_eq!(scene.reasons(), ["ErrImageNeverPull", "Failed"], "told once");
}

#[test]
fn what_was_told_stays_told_while_others_start() {
    let mut pod = pod("p", &["a", "b", "c"]);
    pod.spec.containers[0].pull_policy = PullPolicy::Never;
    let mut scene = Scene::new(pod);
    scene.seen.images.remove("a:1");
    scene.hang.insert("start b#0".into());
    scene.go();
    assert_eq!(scene.tell("a"), "Waiting ErrImageNeverPull 0");
    scene.go();
    assert_eq!(scene.tell("a"), "Waiting ErrImageNeverPull 0", "b is being started");
    scene.finish("start b#0");
    assert_eq!(scene.go(), ["start c#0"]);
    assert_eq!(scene.reasons().iter().filter(|reason| *reason == "ErrImageNeverPull").count(), 1);
}

#[test]
fn always_asks_before_each_start() {
    let mut pod = pod("p", &["a"]);
    pod.spec.containers[0].pull_policy = PullPolicy::Always;
    let mut scene = Scene::new(pod);
    assert_eq!(scene.go(), ["sandbox 0", "attach 0", "pull a:1", "start a#0"]);
    scene.pass(1000);
    scene.exit("a", 1);
    scene.pass(1);
    assert_eq!(scene.go(), ["remove a", "pull a:1", "start a#1"]);
}

#[test]
fn a_start_that_fails_is_told_before_its_back_off() {
    let mut scene = Scene::new(pod("p", &["a", "b"]));
    scene.fail.insert("start a#0".into(), "CreateContainerConfigError");
    assert_eq!(scene.go(), ["sandbox 0", "attach 0", "start a#0", "start b#0"]);
    assert_eq!(
        (scene.tell("a").as_str(), scene.message("a").as_str()),
        ("Waiting CreateContainerConfigError 0", "it broke")
    );
    scene.fail.clear();
    scene.hang.insert("start a#0".into());
    scene.pass(10_000);
    assert_eq!(scene.go(), ["start a#0"], "nothing was created, so it is still the first attempt");
    assert_eq!(scene.tell("a"), "Waiting CreateContainerConfigError 0", "until it has started");
    scene.finish("start a#0");
    for seen in scene.seen.containers.iter_mut().filter(|c| c.entry.name == "a") {
        seen.entry.state = ContainerState::StartFailed {
            code: 127,
            reason: "StartError".into(),
            message: "exec: no such file".into(),
            at: scene.now.boot,
            at_wall: scene.now.wall,
        };
    }
    scene.hang.insert("start a#1".into());
    assert_eq!(scene.go(), ["remove a", "start a#1"]);
}
