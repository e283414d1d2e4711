use super::*;
use crate::model::WallTime;
use crate::model::supervise::{ChildReport, ExecSpec, SandboxEntry, StartSpec};
use crate::model::time::Now;
use crate::supervisor::table::EndedFirst;
use crate::sys::children::Ended;
use proptest::prelude::*;
use serde_json::{Value, json};

fn at(ms: u64) -> Now {
    Now { boot: BootTime(ms), wall: WallTime(7) }
}

fn pod(n: u8) -> PodUid {
    PodUid::new(format!("p{n}")).unwrap()
}

fn id(n: u8) -> ContainerId {
    ContainerId::new(format!("{n:02x}")).unwrap()
}

/// A document of nothing.
fn empty() -> Document {
    serde_json::from_value(json!({
        "format": FORMAT, "build": "b", "from": 3, "to": 4, "lock": 5, "listener": 6, "numbers": [],
        "run": "/r", "cgroup": "/c",
    }))
    .unwrap()
}

fn text(document: Document) -> Vec<u8> {
    document.write().unwrap().0
}

/// What can happen to a table, by numbers, so that any list of them is a history.
fn happen(table: &mut Table, step: u8, n: u8, now: u64) {
    let (n, child, first) = (n % 7, 100 + u32::from(n % 7), 200 + u32::from(n % 7));
    let asker = Asker { link: 1, seq: now };
    let how = if n.is_multiple_of(2) { Ended::Code(3) } else { Ended::Signal(9) };
    match step % 14 {
        0 => {
            let spec = SandboxSpec { pod: pod(n), attempt: 0, host_network: true, hostname: None, sysctls: Vec::new() };
            table.create_sandbox(spec, asker, at(now));
            table.helper_spawned(&pod(n), 300 + u32::from(n));
        }
        1 => table.sandbox_made(
            &pod(n),
            Ok(SandboxEntry {
                pod: pod(n),
                attempt: 0,
                host_network: true,
                netns: None,
                ipcns: None,
                utsns: None,
                created_at: BootTime(now),
                created_wall: WallTime(1),
            }),
        ),
        2 => table.start(
            StartSpec {
                id: id(n),
                pod: pod(n),
                name: "c".to_owned(),
                attempt: 0,
                bundle: "/b".to_owned(),
                log_path: "/l".to_owned(),
                cgroup: format!("g/{n}"),
                tty: false,
                stdin: false,
                timeout_ms: 1000,
            },
            asker,
        ),
        3 => table.create_spawned(&id(n), child, 1000, at(now)),
        4 => table.create_report(&id(n), ChildReport::Created { pid: first }, true, at(now)),
        5 => table.create_report(&id(n), ChildReport::Started, true, at(now)),
        6 => table.create_ended(&id(n), child, how, at(now)),
        7 => table.first_ended(&id(n), first, EndedFirst { how, oom: n == 1, at: at(now) }),
        8 => table.group_empty(&id(n), at(now)),
        9 => table.drained(&id(n)),
        10 => {
            let spec = ExecSpec {
                id: id(n),
                command: vec!["x".to_owned()],
                tty: n == 2,
                stdin: false,
                size: None,
                timeout_ms: Some(now),
            };
            if let Ok(plan) = table.admit_exec(&spec) {
                table.exec_spawned(plan.session, &spec, 400 + u32::from(n), asker, at(now));
                table.exec_report(plan.session, ChildReport::Created { pid: 500 + u32::from(n) }, true);
            }
        }
        11 => table.stray_ended(600 + u32::from(n), how),
        12 => table.tick(at(now)),
        _ => drop(table.kill_now(&id(n), at(now))),
    }
}

fn a_table(history: &[(u8, u8)]) -> Table {
    let mut table = Table::new(2);
    for (now, (step, n)) in (1..).zip(history) {
        happen(&mut table, *step, *n, now * 200);
        // All is done before anything is handed over.
        while !table.take_effects().is_empty() {}
    }
    table
}

/// Every object in a value gets a field that nobody knows, but those whose keys are data.
fn with_more(value: &mut Value) {
    match value {
        Value::Object(fields) => {
            fields.values_mut().for_each(with_more);
            let is_data = |key: &String| key.trim_start_matches('p').parse::<u64>().is_ok();
            // With one field it may be the name of a variant.
            if fields.len() > 1 && !fields.keys().any(is_data) {
                fields.insert("unheardOf".to_owned(), json!({"of": [1, {"a": null}]}));
            }
        }
        Value::Array(all) => all.iter_mut().for_each(with_more),
        _ => {}
    }
}

/// A history that leaves something in every part of the table.
fn busy() -> Table {
    let steps = [0, 1, 2, 3, 4, 5];
    let mut history: Vec<(u8, u8)> = (0..3).flat_map(|n| steps.map(|step| (step, n))).collect();
    history.extend([(10, 0), (10, 2), (7, 1), (0, 3), (1, 3), (2, 3), (3, 3), (4, 3), (7, 3), (11, 1)]);
    history.extend([(0, 4), (1, 4), (2, 4), (0, 5), (1, 5), (2, 5), (0, 6)]);
    a_table(&history)
}

/// A document with something in each of its parts.
fn full() -> Document {
    let mut document: Value = serde_json::to_value(empty()).unwrap();
    document["table"] = serde_json::to_value(busy()).unwrap();
    let more = json!({
        "offered": "next", "asker": {"link": 2, "seq": 5}, "handOvers": 4,
        "links": {"last": 9, "agent": 1, "links": {
            "1": {"socket": 10, "unsent": [{"text": "{}", "fds": [11, 12]}]}, "2": {"socket": 13}}},
        "logs": {"pid": 77, "socket": 14, "limits": {"maxSize": 1, "maxFiles": 2, "nodeBudget": 3}, "limitsSent": true,
            "kept": {"00": {"pod": "p0", "path": "/l", "fds": [15, 16], "opened": true, "finish": true,
                "finishSent": false, "halves": [17, null]}},
            "starts": 2, "startAt": 5, "pause": 100, "started": 1, "dropped": {"00": 5}, "untold": ["00"],
            "droppedTotal": 5},
        "namespaces": {"p0": {"ipc": 18, "own": [19, 20]}, "p1": {"ipc": 21}},
        "helpers": {"p6": {"socket": 22, "spec": {"pod": "p6", "attempt": 0, "hostNetwork": true, "hostname": null}}},
        "starting": {"03": {"report": {"pipe": 23, "half": [1, 2]}, "console": 24}},
        "stdins": {"00": 25}, "emptying": {"01": 26},
        "sessions": {"1": {"cgroup": "g", "report": {"pipe": 27}, "console": 28, "stdin": 29, "outputs": [30, 31],
            "terminal": true, "size": [80, 24]}},
        "leftGroups": {"9": {"cgroup": "g", "events": 32}}, "staleGroups": ["s"], "staleAt": 6, "changed": ["00"],
        "creates": 3, "orphans": 2, "lookers": {"88": "g"},
        "node": {"stopping": {"reboot": true, "told": false, "deadline": 9, "emptySince": 8}, "powerOff": true,
            "own": {"agent": {"args": ["agent"], "group": "agent", "file": "/f", "without": true, "greeted": true,
                "pid": 5, "startAt": null, "pause": 100, "started": 3}, "network": null}},
    });
    for (key, value) in more.as_object().unwrap() {
        document[key] = value.clone();
    }
    serde_json::from_value(document).unwrap()
}

#[test]
fn a_full_document_comes_through_as_it_was() {
    let first = text(full());
    let again = text(Document::read(&first).unwrap());
    let (first, again): (Value, Value) =
        (serde_json::from_slice(&first).unwrap(), serde_json::from_slice(&again).unwrap());
    assert_eq!(first, again);
    let numbers: Vec<i32> = (3..7).chain(10..33).collect();
    assert_eq!(first["numbers"], json!(numbers), "all descriptors are named");
    for part in ["containers", "sandboxes", "sessions", "children", "strays", "queue"] {
        let part = &first["table"][part];
        let len = part.as_object().map(serde_json::Map::len).or(part.as_array().map(Vec::len));
        assert!(len > Some(0), "{part}: the history leaves something in it");
    }
}

#[test]
fn the_document_of_the_first_version_is_read() {
    let document = Document::read(include_bytes!("v1.json")).unwrap();
    let again: Value = serde_json::from_slice(&text(document)).unwrap();
    let first: Value = serde_json::from_slice(include_bytes!("v1.json")).unwrap();
    // What was in it then is in it still, under the same names.
    fn holds(whole: &Value, part: &Value, path: &str) {
        match (whole, part) {
            (Value::Object(whole), Value::Object(part)) => {
                for (key, value) in part {
                    holds(whole.get(key).unwrap_or(&Value::Null), value, &format!("{path}/{key}"));
                }
            }
            (whole, part) => assert_eq!(whole, part, "{path}"),
        }
    }
    let mut first = first;
    first["format"] = json!(FORMAT);
    holds(&again, &first, "");
}

#[test]
fn what_an_older_build_does_not_write_has_a_meaning() {
    let little = json!({
        "format": FORMAT - 1, "build": "b", "from": 3, "to": 4, "lock": 5, "listener": 6, "numbers": [3, 4, 5, 6],
        "run": "/r", "cgroup": "/c",
    });
    let document = Document::read(little.to_string().as_bytes()).unwrap();
    assert_eq!((document.hand_overs, document.asker), (0, None));
    assert_eq!(document.table.deadline(), None);
}

#[test]
fn documents_that_are_wrong_are_refused_by_name() {
    let told = |change: &dyn Fn(&mut Value)| {
        let mut value: Value = serde_json::from_slice(&text(full())).unwrap();
        change(&mut value);
        let error = Document::read(value.to_string().as_bytes()).expect_err("it is wrong");
        crate::sys::log::chain(&error)
    };
    let told_format = told(&|v| v["format"] = json!(FORMAT + 2));
    assert!(told_format.contains(&format!("format {}", FORMAT + 2)), "{told_format}");
    assert!(told(&|v| v["lock"] = json!(2)).contains("descriptor 2 "), "a standard stream");
    assert!(told(&|v| v["lock"] = json!(-1)).contains("descriptor -1 "));
    assert!(told(&|v| v["lock"] = json!(3)).contains("descriptor 3 "), "somebody else's");
    assert!(told(&|v| v["numbers"] = json!([3, 4])).contains("descriptor 5 "), "not handed");
    assert!(told(&|v| v["table"]["queue"] = json!(vec![v["table"]["queue"][0].clone(); 20])).contains("more starts"));
    assert!(told(&|v| v["namespaces"] = json!({"../x": {"ipc": 18}})).contains("pod UID"));
    assert!(told(&|v| v["run"] = Value::Null).contains("understand"));
}

#[test]
fn a_document_that_is_cut_short_is_refused_wherever_it_is() {
    let whole = text(full());
    for end in 0..whole.len() {
        assert!(Document::read(&whole[..end]).is_err(), "{end}");
    }
}

#[test]
fn a_file_is_read_whole_from_its_start_and_only_if_it_is_not_too_large() {
    use std::io::{Seek as _, Write as _};
    let mut file = tempfile::tempfile().unwrap();
    file.write_all(b"text").unwrap();
    for _ in 0..2 {
        assert_eq!(text_of(&file).unwrap(), b"text");
    }
    file.set_len(MAX_DOCUMENT + 1).unwrap();
    file.rewind().unwrap();
    assert!(matches!(text_of(&file), Err(Why::TooLarge)));
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    /// Any table comes through, goes on as if nothing had been, and is understood with what a later version adds.
    #[test]
    fn any_table_goes_on(
        history in prop::collection::vec((any::<u8>(), any::<u8>()), 0..60),
        after in prop::collection::vec((any::<u8>(), any::<u8>()), 0..20),
    ) {
        let mut here = a_table(&history);
        let mut document = empty();
        document.table = here.clone();
        let mut value: Value = serde_json::from_slice(&text(document)).unwrap();
        let mut there = Document::read(value.to_string().as_bytes()).unwrap().table;
        with_more(&mut value);
        let more = Document::read(value.to_string().as_bytes()).unwrap().table;
        prop_assert_eq!(serde_json::to_value(&more).unwrap(), serde_json::to_value(&there).unwrap());
        for (now, (step, n)) in (100..).zip(&after) {
            happen(&mut here, *step, *n, now * 200);
            happen(&mut there, *step, *n, now * 200);
            prop_assert_eq!(here.take_effects(), there.take_effects());
            prop_assert_eq!(here.deadline(), there.deadline());
        }
        prop_assert_eq!(serde_json::to_value(&here).unwrap(), serde_json::to_value(&there).unwrap());
    }

    #[test]
    fn rubbish_is_refused(bytes in prop::collection::vec(any::<u8>(), 0..200), at in any::<prop::sample::Index>()) {
        prop_assert!(Document::read(&bytes).is_err());
        let mut whole = text(full());
        let at = at.index(whole.len());
        whole[at] = whole[at].wrapping_add(1);
        // It may still be a document; it must not be more than that.
        let _ = Document::read(&whole);
    }
}
