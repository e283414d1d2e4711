//! Folders of this machine, watched while they change.

use super::*;
use std::fs;
use std::os::unix::fs::symlink;
use tokio::time::timeout;

/// Far beyond any wait of the code: reached only when an event is lost.
const LOST: Duration = Duration::from_secs(20);

async fn next(events: &mut mpsc::Receiver<ManifestEvent>) -> ManifestEvent {
    timeout(LOST, events.recv()).await.unwrap().unwrap()
}

/// Waits until the folder holds exactly these files, given as `name=content`.
async fn until(events: &mut mpsc::Receiver<ManifestEvent>, expected: &[&str]) {
    let mut last = vec!["nothing told".to_owned()];
    let holds = async {
        while last != expected {
            let files = match next(events).await {
                ManifestEvent::Files(files) => files,
                ManifestEvent::FolderMissing => BTreeMap::new(),
            };
            last = files
                .iter()
                .map(|(path, content)| {
                    let name = path.rsplit('/').next().unwrap();
                    match content {
                        FileContent::Bytes(bytes) => format!("{name}={}", String::from_utf8_lossy(bytes)),
                        FileContent::Unreadable(why) => format!("{name}!{why}"),
                        FileContent::Unread => format!("{name}?"),
                    }
                })
                .collect();
        }
    };
    let lost = timeout(LOST, holds).await.is_err();
    assert!(!lost, "expected {expected:?}, have {last:?}");
}

#[tokio::test]
async fn files_are_followed_as_they_come_change_and_go() {
    let dir = tempfile::tempdir().unwrap();
    let at = |name: &str| dir.path().join(name);
    fs::write(at("a.yaml"), "1").unwrap();
    let mut events = watch(dir.path(), []).unwrap();
    until(&mut events, &["a.yaml=1"]).await;
    fs::write(at("b.json"), "2").unwrap();
    until(&mut events, &["a.yaml=1", "b.json=2"]).await;
    fs::write(at(".tmp"), "3").unwrap();
    fs::rename(at(".tmp"), at("a.yaml")).unwrap();
    until(&mut events, &["a.yaml=3", "b.json=2"]).await;
    fs::remove_file(at("b.json")).unwrap();
    until(&mut events, &["a.yaml=3"]).await;
    fs::hard_link(at("a.yaml"), at("c.yaml")).unwrap();
    until(&mut events, &["a.yaml=3", "c.yaml=3"]).await;
    fs::rename(at("a.yaml"), at("d.yaml")).unwrap();
    until(&mut events, &["c.yaml=3", "d.yaml=3"]).await;
}

#[tokio::test]
async fn a_file_being_written_is_left_alone() {
    use std::io::Write;
    let dir = tempfile::tempdir().unwrap();
    let mut events = watch(dir.path(), []).unwrap();
    until(&mut events, &[]).await;
    let mut writer = fs::File::create(dir.path().join("a.yaml")).unwrap();
    writer.write_all(b"half").unwrap();
    fs::write(dir.path().join("b.yaml"), "b").unwrap();
    until(&mut events, &["b.yaml=b"]).await;
    writer.write_all(b" whole").unwrap();
    drop(writer);
    until(&mut events, &["a.yaml=half whole", "b.yaml=b"]).await;

    // Rewritten in place: the content before stays until the file is closed.
    let mut writer = fs::File::create(dir.path().join("a.yaml")).unwrap();
    fs::remove_file(dir.path().join("b.yaml")).unwrap();
    until(&mut events, &["a.yaml=half whole"]).await;
    writer.write_all(b"new").unwrap();
    drop(writer);
    until(&mut events, &["a.yaml=new"]).await;
}

#[tokio::test]
async fn a_replacement_by_way_of_removal_is_no_removal() {
    let dir = tempfile::tempdir().unwrap();
    let at = |name: &str| dir.path().join(name);
    fs::write(at("a.yaml"), "1").unwrap();
    let mut events = watch(dir.path(), []).unwrap();
    until(&mut events, &["a.yaml=1"]).await;
    fs::rename(at("a.yaml"), at("a.yaml~")).unwrap();
    fs::write(at("z.yaml"), "wake").unwrap();
    let ManifestEvent::Files(files) = next(&mut events).await else { panic!() };
    assert_eq!(files.len(), 2, "{files:?}");
    fs::write(at("a.yaml"), "2").unwrap();
    until(&mut events, &["a.yaml=2", "z.yaml=wake"]).await;
}

#[tokio::test]
async fn a_folder_of_links_is_followed_when_it_is_switched() {
    let dir = tempfile::tempdir().unwrap();
    let at = |name: &str| dir.path().join(name);
    for (version, content) in [("..1", "one"), ("..2", "two")] {
        fs::create_dir(at(version)).unwrap();
        fs::write(at(version).join("a.yaml"), content).unwrap();
    }
    symlink("..1", at("..data")).unwrap();
    symlink("..data/a.yaml", at("a.yaml")).unwrap();
    let mut events = watch(dir.path(), []).unwrap();
    until(&mut events, &["a.yaml=one"]).await;
    symlink("..2", at("..data_tmp")).unwrap();
    fs::rename(at("..data_tmp"), at("..data")).unwrap();
    until(&mut events, &["a.yaml=two"]).await;
}

#[tokio::test]
async fn a_links_target_elsewhere_is_followed() {
    let (dir, elsewhere) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let target = elsewhere.path().join("target");
    fs::write(&target, "1").unwrap();
    let mut events = watch(dir.path(), []).unwrap();
    until(&mut events, &[]).await;
    symlink(&target, dir.path().join("a.yaml")).unwrap();
    until(&mut events, &["a.yaml=1"]).await;
    fs::write(&target, "2").unwrap();
    until(&mut events, &["a.yaml=2"]).await;
    fs::write(elsewhere.path().join("new"), "3").unwrap();
    fs::rename(elsewhere.path().join("new"), &target).unwrap();
    until(&mut events, &["a.yaml=3"]).await;
}

#[tokio::test]
async fn a_link_to_nothing_is_told_and_its_target_waited_for() {
    let (dir, elsewhere) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let there = |name: &str| elsewhere.path().join(name);
    let mut events = watch(dir.path(), []).unwrap();
    until(&mut events, &[]).await;
    // Through another link, into a folder that is not there either.
    symlink(there("current/a"), dir.path().join("a.yaml")).unwrap();
    symlink("v1/deep", there("current")).unwrap();
    let told = format!("a.yaml!is a link to nothing: {}", there("current/a").display());
    until(&mut events, &[&told]).await;
    fs::create_dir_all(there("v1/deep")).unwrap();
    fs::write(there("v1/deep/a"), "1").unwrap();
    until(&mut events, &["a.yaml=1"]).await;
    fs::remove_file(there("v1/deep/a")).unwrap();
    until(&mut events, &[&told]).await;
    // The link on the way is made to lead to another folder.
    fs::create_dir(there("v2")).unwrap();
    fs::write(there("v2/a"), "2").unwrap();
    symlink("v2", there("next")).unwrap();
    fs::rename(there("next"), there("current")).unwrap();
    until(&mut events, &["a.yaml=2"]).await;
}

/// A link to the folder itself shares its watch, and must not narrow it.
#[tokio::test]
async fn a_link_to_the_folder_itself_hides_no_change() {
    let dir = tempfile::tempdir().unwrap();
    symlink(".", dir.path().join("here")).unwrap();
    let mut events = watch(dir.path(), []).unwrap();
    until(&mut events, &[]).await;
    fs::write(dir.path().join(".new"), "1").unwrap();
    fs::rename(dir.path().join(".new"), dir.path().join("a.yaml")).unwrap();
    until(&mut events, &["a.yaml=1"]).await;
}

#[tokio::test]
async fn a_missing_folder_is_waited_for_and_a_removed_one_wants_nothing() {
    let dir = tempfile::tempdir().unwrap();
    let folder = dir.path().join("etc/armlet/manifests");
    let mut events = watch(&folder, []).unwrap();
    assert_eq!(next(&mut events).await, ManifestEvent::FolderMissing);
    fs::create_dir_all(&folder).unwrap();
    fs::write(folder.join("a.yaml"), "1").unwrap();
    until(&mut events, &["a.yaml=1"]).await;
    fs::rename(&folder, dir.path().join("etc/armlet/off")).unwrap();
    until(&mut events, &[]).await;
    fs::rename(dir.path().join("etc/armlet/off"), &folder).unwrap();
    until(&mut events, &["a.yaml=1"]).await;
    fs::remove_dir_all(dir.path().join("etc")).unwrap();
    until(&mut events, &[]).await;
    fs::create_dir_all(&folder).unwrap();
    fs::write(folder.join("b.yaml"), "2").unwrap();
    until(&mut events, &["b.yaml=2"]).await;
}

#[tokio::test]
async fn a_folder_that_is_a_link_is_followed_when_it_is_switched() {
    let dir = tempfile::tempdir().unwrap();
    for version in ["one", "two"] {
        fs::create_dir(dir.path().join(version)).unwrap();
        fs::write(dir.path().join(version).join("a.yaml"), version).unwrap();
    }
    let folder = dir.path().join("manifests");
    symlink("one", &folder).unwrap();
    let mut events = watch(&folder, []).unwrap();
    until(&mut events, &["a.yaml=one"]).await;
    symlink("two", dir.path().join("next")).unwrap();
    fs::rename(dir.path().join("next"), &folder).unwrap();
    until(&mut events, &["a.yaml=two"]).await;
}

#[tokio::test]
async fn one_file_is_followed_through_renames_over_it() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("pod.yaml");
    fs::write(&file, "1").unwrap();
    let mut events = watch(&file, []).unwrap();
    until(&mut events, &["pod.yaml=1"]).await;
    for content in ["2", "3"] {
        fs::write(dir.path().join("next"), content).unwrap();
        fs::rename(dir.path().join("next"), &file).unwrap();
        until(&mut events, &[&format!("pod.yaml={content}")]).await;
    }
    fs::write(&file, "4").unwrap();
    until(&mut events, &["pod.yaml=4"]).await;
    fs::remove_file(&file).unwrap();
    until(&mut events, &[]).await;
    fs::write(&file, "5").unwrap();
    until(&mut events, &["pod.yaml=5"]).await;
}
