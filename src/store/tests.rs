//! The store against real damage: every file that sled and the store keep, cut, emptied and removed.

use super::*;
use std::os::unix::fs::MetadataExt;

fn uid(name: &str) -> PodUid {
    PodUid::new(name).unwrap()
}

fn no_probe(_: &Path) -> io::Result<bool> {
    panic!("no child is needed after an open that ended")
}

fn open(dir: &Path) -> Opened {
    Store::open(dir, &no_probe)
}

/// Makes all changes durable, in both copies.
fn kept(store: &Store) {
    store.commit().unwrap();
    store.settle();
    assert!(!store.lags() || store.degraded().is_some());
}

/// The file in which a pod's fact lies.
fn file_of(dir: &Path, pod: &str) -> PathBuf {
    holding(dir, &format!("pods/{pod}"))
}

/// The file whose newest record has a key.
fn holding(dir: &Path, key: &str) -> PathBuf {
    let found = |path: &PathBuf| match fact_file::read(path) {
        Ok(fact_file::Found::Fact { record, .. }) => record.key == key,
        _ => false,
    };
    std::fs::read_dir(dir.join("pods")).unwrap().flatten().map(|e| e.path()).find(found).unwrap()
}

/// Makes sled's log go round several segments: only then its snapshot holds what the log no longer has.
fn age(dir: &Path, rounds: u32) {
    let db = tree::open_locked(&dir.join("sled")).unwrap();
    for round in 0..rounds {
        db.insert(format!("other/{}", round % 7), vec![round.to_le_bytes()[0]; 8000]).unwrap();
        db.flush().unwrap();
    }
    drop(db);
    drop(tree::open_locked(&dir.join("sled")).unwrap());
}

/// Three pods, of which one was updated and a fourth deleted, over two runs: sled writes its snapshot when it opens.
fn filled(dir: &Path) {
    for run in 1..=2 {
        let store = open(dir).store;
        for pod in ["a", "b", "c", "gone"] {
            store.put_pod(&uid(pod), format!("{pod}{run}").into_bytes()).unwrap();
        }
        store.put_meta("node-name", b"node".to_vec()).unwrap();
        kept(&store);
        store.delete_pod(&uid("gone"));
        store.put_pod(&uid("a"), b"newest".to_vec()).unwrap();
        kept(&store);
        assert_eq!(store.degraded(), None);
    }
}

/// Takes the snapshot away in such a way that sled opens without an error and without a key. Whether it does depends
/// on how its segments happen to lie, so that several ages are tried.
fn filled_then_emptied(dir: &Path) {
    for rounds in (50..1000).step_by(50) {
        let path = dir.join("try");
        filled(&path);
        age(&path, rounds);
        std::fs::remove_file(find(&path.join("sled"), "snap.")).unwrap();
        let empty = tree::open_locked(&path.join("sled")).is_ok_and(|db| db.is_empty());
        if empty {
            for entry in std::fs::read_dir(&path).unwrap().flatten() {
                std::fs::rename(entry.path(), dir.join(entry.file_name())).unwrap();
            }
            return;
        }
        std::fs::remove_dir_all(&path).unwrap();
    }
    panic!("sled no longer loses its keys with its snapshot: this test and the epoch can go");
}

fn assert_filled(store: &Store) {
    let pods: Vec<_> =
        store.pods().into_iter().map(|(u, f)| format!("{u}={}", String::from_utf8_lossy(&f.bytes))).collect();
    assert_eq!(pods, ["a=newest", "b=b2", "c=c2"]);
    assert_eq!(store.meta("node-name").unwrap().bytes.as_ref(), b"node");
}

fn find(dir: &Path, start: &str) -> PathBuf {
    let entries = std::fs::read_dir(dir).unwrap().flatten();
    entries.map(|e| e.path()).find(|p| p.file_name().unwrap().to_string_lossy().starts_with(start)).unwrap()
}

fn cut(path: &Path, part: u64) {
    let len = std::fs::metadata(path).unwrap().len();
    std::fs::OpenOptions::new().write(true).open(path).unwrap().set_len(len * part / 4).unwrap();
}

/// Damages a filled store, then: opens with all facts, mends itself with the next commit, and is sound after that.
fn survives(damage: impl FnOnce(&Path), expect_problems: bool) {
    let dir = tempfile::tempdir().unwrap();
    filled(dir.path());
    damage(dir.path());
    mends(dir.path(), expect_problems);
}

fn mends(dir: &Path, expect_problems: bool) {
    let opened = open(dir);
    assert_filled(&opened.store);
    assert_eq!(!opened.problems.is_empty(), expect_problems, "{:?}", opened.problems);
    assert!(opened.complete, "{:?}", opened.problems);
    kept(&opened.store);
    assert_eq!(opened.store.degraded(), None);
    drop(opened);
    let again = open(dir);
    assert_filled(&again.store);
    assert!(again.problems.is_empty(), "{:?}", again.problems);
    // sled alone has everything again: without the files nothing is missing.
    drop(again);
    std::fs::remove_dir_all(dir.join("pods")).unwrap();
    let from_sled = open(dir);
    assert_filled(&from_sled.store);
    assert!(from_sled.complete);
}

#[test]
fn facts_survive_a_restart_and_a_quiet_store_writes_nothing() {
    let dir = tempfile::tempdir().unwrap();
    filled(dir.path());
    let opened = open(dir.path());
    assert_filled(&opened.store);
    assert!(opened.problems.is_empty() && opened.complete);
    assert!(!opened.store.is_dirty());
    let stamps = |dir: &Path| {
        let mut all = Vec::new();
        for folder in ["", "pods", "meta", "sled"] {
            for entry in std::fs::read_dir(dir.join(folder)).unwrap().flatten() {
                let meta = entry.metadata().unwrap();
                all.push((entry.path(), meta.ino(), meta.len(), meta.mtime_nsec()));
            }
        }
        all.sort();
        all
    };
    let before = stamps(dir.path());
    opened.store.put_pod(&uid("a"), b"newest".to_vec()).unwrap();
    assert!(!opened.store.delete_pod(&uid("never")));
    kept(&opened.store);
    kept(&opened.store);
    assert_eq!(stamps(dir.path()), before);
}

#[test]
fn generations_grow_over_restarts() {
    let dir = tempfile::tempdir().unwrap();
    let store = open(dir.path()).store;
    let first = store.put_pod(&uid("a"), b"1".to_vec()).unwrap();
    assert_eq!(store.put_pod(&uid("a"), b"1".to_vec()), Ok(first));
    kept(&store);
    drop(store);
    let store = open(dir.path()).store;
    assert!(store.put_pod(&uid("a"), b"2".to_vec()).unwrap() > first);
}

#[test]
fn a_new_store_is_complete_and_untouched_until_its_first_fact() {
    let dir = tempfile::tempdir().unwrap();
    let opened = open(&dir.path().join("deep/store"));
    assert!(opened.problems.is_empty() && opened.complete && opened.store.pods().is_empty());
    kept(&opened.store);
    assert!(!dir.path().join("deep/store/epoch").exists());
}

#[test]
fn bad_names_and_sizes_are_refused() {
    let dir = tempfile::tempdir().unwrap();
    let store = open(dir.path()).store;
    for bad in ["", "../x", "A", "a/b", &"a".repeat(65)] {
        assert!(matches!(store.put_meta(bad, Vec::new()), Err(PutError::Name { .. })), "{bad:?}");
        assert_eq!(store.meta(bad), None);
    }
    assert!(matches!(store.put_pod(&uid("a"), vec![0; MAX_FACT + 1]), Err(PutError::TooLarge { .. })));
}

#[test]
fn a_short_or_empty_snapshot_is_survived() {
    for part in [0, 1, 2, 3] {
        survives(|dir| cut(&find(&dir.join("sled"), "snap."), part), true);
    }
}

#[test]
fn a_left_over_unfinished_snapshot_is_no_damage() {
    survives(|dir| std::fs::write(dir.join("sled/snap.0000000000000100.generating"), b"").unwrap(), false);
}

#[test]
fn unfinished_snapshots_do_not_pile_up() {
    let dir = tempfile::tempdir().unwrap();
    filled(dir.path());
    for number in [100, 200, 300] {
        std::fs::write(dir.path().join(format!("sled/snap.0000000000000{number}.generating")), b"").unwrap();
        open(dir.path());
    }
    let entries = std::fs::read_dir(dir.path()).unwrap().map(|entry| entry.unwrap().file_name());
    let mut beside: Vec<_> = entries.filter(|name| name.as_encoded_bytes().starts_with(b"sled")).collect();
    beside.sort();
    assert_eq!(beside, ["sled", "sled-unfinished-snapshot"]);
}

#[test]
fn a_missing_snapshot_is_noticed_by_the_epoch() {
    let dir = tempfile::tempdir().unwrap();
    filled_then_emptied(dir.path());
    mends(dir.path(), true);
}

#[test]
fn a_truncated_database_is_survived() {
    for (part, rounds) in (0..4).flat_map(|part| [(part, 0), (part, 400)]) {
        let dir = tempfile::tempdir().unwrap();
        filled(dir.path());
        age(dir.path(), rounds);
        cut(&dir.path().join("sled/db"), part);
        let opened = open(dir.path());
        assert_filled(&opened.store);
        kept(&opened.store);
        assert_eq!(opened.store.degraded(), None, "{part}");
    }
}

#[test]
fn a_damaged_conf_is_survived() {
    survives(|dir| cut(&dir.join("sled/conf"), 2), true);
    survives(|dir| std::fs::write(dir.join("sled/conf"), [0xff; 64]).unwrap(), true);
}

#[test]
fn a_lost_database_is_filled_again() {
    survives(|dir| std::fs::remove_dir_all(dir.join("sled")).unwrap(), true);
}

#[test]
fn a_lost_or_damaged_epoch_file_is_no_loss() {
    survives(|dir| std::fs::remove_file(dir.join("epoch")).unwrap(), false);
    survives(|dir| cut(&dir.join("epoch"), 2), true);
}

#[test]
fn lost_and_damaged_fact_files_come_back_from_sled() {
    survives(|dir| std::fs::remove_file(file_of(dir, "b")).unwrap(), false);
    survives(|dir| std::fs::remove_dir_all(dir.join("pods")).unwrap(), false);
    survives(|dir| std::fs::write(file_of(dir, "b"), [0xff; 8192]).unwrap(), true);
    survives(|dir| std::fs::copy(file_of(dir, "a"), file_of(dir, "b")).map(|_| ()).unwrap(), true);
    survives(|dir| cut(&file_of(dir, "b"), 0), false);
}

fn names(opened: &Opened) -> Vec<String> {
    opened.store.pods().iter().map(|(uid, _)| uid.to_string()).collect()
}

/// "a pod that is gone stays gone", whatever the file that held it goes through.
#[test]
fn the_file_of_a_pod_that_is_gone_serves_the_next_one() {
    let dir = tempfile::tempdir().unwrap();
    filled(dir.path());
    let files = || std::fs::read_dir(dir.path().join("pods")).unwrap().count();
    assert_eq!(files(), 4);
    let store = open(dir.path()).store;
    store.put_pod(&uid("next"), b"1".to_vec()).unwrap();
    store.commit().unwrap();
    drop(store);
    let file = file_of(dir.path(), "next");
    assert_eq!(files(), 4);
    assert_eq!(names(&open(dir.path())), ["a", "b", "c", "next"]);
    // Torn as by a power cut in the middle: the record before it says that the pod before is gone.
    let mut bytes = std::fs::read(&file).unwrap();
    let at =
        (0..bytes.len()).step_by(4096).find(|at| record::decode(&bytes[*at..]).is_some_and(|r| r.gone().is_none()));
    bytes[at.unwrap() + 20] ^= 0xff;
    std::fs::write(&file, bytes).unwrap();
    let opened = open_copy(dir.path());
    assert_eq!(opened.pods().len(), 3);
    let opened = open(dir.path());
    assert!(opened.complete && opened.problems.is_empty());
}

#[test]
fn a_database_that_lags_does_not_bring_deleted_pods_back() {
    let dir = tempfile::tempdir().unwrap();
    filled(dir.path());
    let saved = dir.path().join("saved");
    copy_tree(&dir.path().join("sled"), &saved);
    let store = open(dir.path()).store;
    store.delete_pod(&uid("c"));
    store.commit().unwrap();
    drop(store);
    std::fs::remove_dir_all(dir.path().join("sled")).unwrap();
    std::fs::rename(&saved, dir.path().join("sled")).unwrap();
    let opened = open(dir.path());
    assert_eq!(names(&opened), ["a", "b"]);
    assert!(opened.problems.is_empty() && opened.store.is_dirty(), "sled is to hear of it");
    kept(&opened.store);
    drop(opened);
    std::fs::remove_dir_all(dir.path().join("pods")).unwrap();
    assert_eq!(names(&open(dir.path())), ["a", "b"]);
}

#[test]
fn what_was_committed_and_not_settled_is_kept_by_the_files() {
    let dir = tempfile::tempdir().unwrap();
    filled(dir.path());
    let store = open(dir.path()).store;
    store.put_pod(&uid("b"), b"b3".to_vec()).unwrap();
    store.commit().unwrap();
    assert!(store.lags());
    drop(store);
    let opened = open(dir.path());
    assert_eq!(opened.store.pod(&uid("b")).unwrap().bytes.as_ref(), b"b3");
    assert!(opened.complete && opened.problems.is_empty() && opened.store.is_dirty());
}

#[test]
fn damage_in_both_copies_is_told_and_nothing_is_deleted() {
    let dir = tempfile::tempdir().unwrap();
    filled_then_emptied(dir.path());
    let file = file_of(dir.path(), "b");
    std::fs::write(&file, [0xff; 8192]).unwrap();
    let opened = open(dir.path());
    assert!(!opened.complete);
    assert_eq!(opened.store.pods().len(), 2);
    assert!(file.with_extension("fact.damaged-1").exists());
    assert_eq!(opened.problems.len(), 2, "{:?}", opened.problems);
}

#[test]
fn an_outdated_database_does_not_bring_deleted_pods_back() {
    let dir = tempfile::tempdir().unwrap();
    filled(dir.path());
    let saved = dir.path().join("saved");
    copy_tree(&dir.path().join("sled"), &saved);
    // sled is lost, is filled under a new epoch, a pod goes, and then the old database is there again.
    std::fs::remove_dir_all(dir.path().join("sled")).unwrap();
    let store = open(dir.path()).store;
    store.delete_pod(&uid("c"));
    kept(&store);
    drop(store);
    std::fs::remove_dir_all(dir.path().join("sled")).unwrap();
    std::fs::rename(&saved, dir.path().join("sled")).unwrap();
    let opened = open(dir.path());
    assert_eq!(opened.store.pods().len(), 2);
    assert!(matches!(opened.problems.as_slice(), [Problem::LostTree { .. }]), "{:?}", opened.problems);
}

#[test]
fn an_open_that_did_not_come_back_is_tried_in_a_child_first() {
    let dir = tempfile::tempdir().unwrap();
    filled(dir.path());
    for (answer, problems) in [(Ok(true), 0), (Err(()), 0), (Ok(false), 2)] {
        std::fs::write(dir.path().join("sled-opening"), b"").unwrap();
        let asked = std::cell::Cell::new(false);
        let opened = Store::open(dir.path(), &|path| {
            asked.set(true);
            assert_eq!(path, dir.path().join("sled"));
            answer.map_err(|()| io::ErrorKind::OutOfMemory.into())
        });
        assert!(asked.get() && !dir.path().join("sled-opening").exists());
        assert_filled(&opened.store);
        assert_eq!(opened.problems.len(), problems, "{:?}", opened.problems);
    }
}

#[test]
fn the_check_role_tells_a_sound_database_from_a_broken_one() {
    let dir = tempfile::tempdir().unwrap();
    filled(dir.path());
    age(dir.path(), 400);
    let sled = dir.path().join("sled");
    let code = |path: &Path| format!("{:?}", check_role(&[path.as_os_str().to_owned()]));
    assert_eq!(code(&sled), format!("{:?}", ExitCode::SUCCESS));
    cut(&sled.join("db"), 2);
    assert_eq!(code(&sled), format!("{:?}", ExitCode::FAILURE));
    assert_eq!(format!("{:?}", check_role(&[])), format!("{:?}", ExitCode::from(2)));
}

#[test]
fn failing_files_keep_the_facts_in_memory_until_a_later_commit() {
    let dir = tempfile::tempdir().unwrap();
    filled(dir.path());
    let store = open(dir.path()).store;
    // A folder where the fact file belongs: every write to it fails, as on a failing disk.
    store.put_pod(&uid("stuck"), b"1".to_vec()).unwrap();
    store.put_pod(&uid("b"), b"b3".to_vec()).unwrap();
    let place = holding(dir.path(), "gone/pods/gone");
    std::fs::remove_file(&place).unwrap();
    std::fs::create_dir_all(place.join("x")).unwrap();
    assert_eq!(store.commit().unwrap_err().path, place);
    assert!(store.is_dirty() && store.degraded().is_some());
    assert_eq!(open_copy(dir.path()).pod(&uid("b")).unwrap().bytes.as_ref(), b"b3");
    std::fs::remove_dir_all(place).unwrap();
    kept(&store);
    assert!(!store.is_dirty() && store.degraded().is_none());
    drop(store);
    assert_eq!(open(dir.path()).store.pods().len(), 4);
}

#[test]
fn a_database_that_cannot_be_opened_is_a_condition_and_comes_back_by_itself() {
    let dir = tempfile::tempdir().unwrap();
    filled(dir.path());
    let sled = dir.path().join("sled");
    std::fs::rename(&sled, dir.path().join("away")).unwrap();
    std::fs::write(&sled, b"not a folder").unwrap();
    let opened = open(dir.path());
    assert_filled(&opened.store);
    assert!(opened.complete && opened.store.degraded().is_some());
    opened.store.put_pod(&uid("d"), b"d".to_vec()).unwrap();
    kept(&opened.store);
    assert!(opened.store.degraded().is_some() && !opened.store.is_dirty());
    std::fs::remove_file(&sled).unwrap();
    kept(&opened.store);
    assert_eq!(opened.store.degraded(), None);
    drop(opened);
    std::fs::remove_dir_all(dir.path().join("pods")).unwrap();
    assert_eq!(open(dir.path()).store.pods().len(), 4);
}

fn copy_tree(from: &Path, to: &Path) {
    std::fs::create_dir_all(to.join("blobs")).unwrap();
    for entry in std::fs::read_dir(from).unwrap().flatten().filter(|e| e.path().is_file()) {
        std::fs::copy(entry.path(), to.join(entry.file_name())).unwrap();
    }
}

/// Opens a copy of the fact files alone, as another machine would read the card.
fn open_copy(dir: &Path) -> Store {
    let copy = tempfile::tempdir().unwrap();
    for folder in ["pods", "meta"] {
        std::fs::create_dir(copy.path().join(folder)).unwrap();
        for entry in std::fs::read_dir(dir.join(folder)).unwrap().flatten().filter(|e| e.path().is_file()) {
            std::fs::copy(entry.path(), copy.path().join(folder).join(entry.file_name())).unwrap();
        }
    }
    open(copy.path()).store
}

#[test]
fn a_full_disk_keeps_facts_in_memory_and_the_store_mends_itself() {
    if !crate::sys::testing::is_root() {
        return;
    }
    crate::sys::testing::on_small_disk(16 << 20, |dir| {
        let path = dir.join("store");
        filled(&path);
        let opened = open(&path);
        let filler = dir.join("filler");
        let mut file = std::fs::File::create(&filler).unwrap();
        let _until_full = io::copy(&mut io::repeat(1), &mut file);
        drop(file);
        for round in 0..3_u8 {
            for pod in 0..60 {
                opened.store.put_pod(&uid(&format!("new{pod}")), vec![round; 20_000]).unwrap();
            }
            assert_eq!(opened.store.commit().unwrap_err().source.kind(), io::ErrorKind::StorageFull);
            assert!(opened.store.degraded().is_some() && opened.store.is_dirty());
            assert_eq!(opened.store.pods().len(), 63);
        }
        // A restart in this state: what was promised is there, whatever sled makes of it.
        drop(opened);
        let opened = open(&path);
        for pod in ["a", "b", "c"] {
            assert!(opened.store.pod(&uid(pod)).is_some());
        }
        for pod in 0..60 {
            opened.store.put_pod(&uid(&format!("new{pod}")), vec![9; 20_000]).unwrap();
        }
        assert!(opened.store.commit().is_err());
        std::fs::remove_file(&filler).unwrap();
        kept(&opened.store);
        assert_eq!(opened.store.degraded(), None);
        assert!(!opened.store.is_dirty());
        drop(opened);
        let again = open(&path);
        assert_eq!(again.store.pods().len(), 63);
        assert!(again.complete && again.problems.is_empty(), "{:?}", again.problems);
    });
}
