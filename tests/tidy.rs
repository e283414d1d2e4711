//! The layout of the source tree: which room may import which, and where clocks, `unsafe` and single libraries may be used.
//!
//! The rules are those of ARCHITECTURE.md. The reader below knows no grammar: it blanks comments and literals, then looks
//! at paths, which is enough for code that rustfmt has been over.
#![expect(clippy::unwrap_used, reason = "a source tree that cannot be read fails the test")]

use std::fmt::Write;
use std::path::{Path, PathBuf};

/// What each room may import besides itself. `a::b` allows only that part of a room.
const ROOMS: &[(&str, &[&str])] = &[
    ("model", &[]),
    ("plan", &["model"]),
    ("wire", &["model"]),
    // The kubelet's configuration file is a Kubernetes document: wire reads those, and knows how to name what is wrong.
    ("config", &["model", "wire"]),
    ("sys", &["model"]),
    ("store", &["model", "sys"]),
    ("images", &["model", "sys"]),
    ("network", &["model", "sys"]),
    ("volumes", &["model", "sys"]),
    ("runtime", &["model", "sys"]),
    ("supervisor", &["model", "sys"]),
    ("observe", &["model", "wire", "config", "sys", "store", "images", "network", "volumes", "runtime"]),
    ("executor", &["model", "wire", "config", "sys", "store", "images", "network", "volumes", "runtime", "observe"]),
    (
        "agent",
        &[
            "model", "plan", "wire", "config", "sys", "store", "images", "network", "volumes", "runtime", "observe",
            "executor", "server", "check",
        ],
    ),
    // From sys only the watching of log files and of sockets' readiness, like the agent's of manifests.
    (
        "server",
        &["model", "wire", "store", "config", "observe", "runtime::client", "images", "sys::inotify", "sys::ready"],
    ),
    // The device program is tried as containers get it.
    ("check", &["model", "sys", "runtime::devices"]),
    ("install", &["model", "sys"]),
    // From sys the clock, and the supervisor's socket where a bundle is gathered without an agent.
    ("cli", &["model", "wire", "config", "check", "install", "sys::clock", "sys::seqpacket"]),
];

/// What nobody but the named places may mention, as words of a path.
const ONLY_IN: &[(&str, &[&str])] = &[
    ("sled", &["store"]),
    ("libcontainer", &["runtime/create"]),
    ("cgroups_rs", &["runtime"]),
    ("k8s_openapi", &["wire", "server", "cli"]),
    ("unsafe", &["sys", "runtime/create"]),
    ("Instant::now", &["sys/clock.rs"]),
    ("SystemTime::now", &["sys/clock.rs"]),
    ("clock_gettime", &["sys/clock.rs"]),
    ("runtime::create", &["main.rs", "runtime"]),
];

/// What a room must not mention.
const NEVER_IN: &[(&str, &[&str])] = &[
    ("model", PURE),
    ("plan", PURE),
    ("wire", &["std::fs", "env::var", "env::args", "std::process", "tokio", "async", "rustix", "libc"]),
    ("config", &["std::process", "tokio", "async", "rustix", "libc"]),
    ("supervisor", &["tokio", "async", "thread::spawn"]),
    ("sys", &["k8s_openapi"]),
];

/// No disk, no network, no clock, no thread, no logging: a value in, a value out.
const PURE: &[&str] = &[
    "std::fs",
    "std::env",
    "std::process",
    "std::thread",
    "std::io",
    "TcpStream",
    "TcpListener",
    "UdpSocket",
    "ToSocketAddrs",
    "Instant",
    "SystemTime",
    "tokio",
    "async",
    "await",
    "tracing",
    "rustix",
    "libc",
    "println",
    "eprintln",
];

#[test]
fn every_room_imports_only_what_it_may() {
    let mut wrong = String::new();
    for (file, text) in sources() {
        let Some(room) = room_of(&file) else { continue };
        let Some((_, allowed)) = ROOMS.iter().find(|(name, _)| *name == room) else {
            writeln!(wrong, "{file}: room `{room}` is not in the table").unwrap();
            continue;
        };
        for path in crate_paths(&file, &text) {
            let target = path.split("::").next().unwrap_or_default();
            let known = ROOMS.iter().any(|(name, _)| *name == target);
            let fits = |entry: &&str| path == **entry || path.starts_with(&format!("{entry}::"));
            if known && target != room && !allowed.iter().any(fits) {
                writeln!(wrong, "{file}: `{room}` must not import `{path}`").unwrap();
            }
        }
    }
    assert!(wrong.is_empty(), "\n{wrong}");
}

#[test]
fn every_room_of_the_tables_exists() {
    let files: Vec<String> = sources().into_iter().map(|(file, _)| file).collect();
    let is_there = |place: &str| {
        let folder = format!("{place}/");
        files.iter().any(|file| file == place || file.starts_with(&folder))
    };
    let rooms = ROOMS.iter().flat_map(|(room, allowed)| std::iter::once(room).chain(*allowed));
    let places = ONLY_IN.iter().flat_map(|(_, places)| *places).chain(NEVER_IN.iter().map(|(room, _)| room));
    let missing = |name: &&&str| {
        let place = name.replace("::", "/");
        !is_there(&place) && !is_there(&format!("{place}.rs"))
    };
    assert_eq!(rooms.chain(places).filter(missing).collect::<Vec<_>>(), [&""; 0]);
}

#[test]
fn single_places_stay_single() {
    let mut wrong = String::new();
    for (file, text) in sources() {
        for (word, places) in ONLY_IN {
            let here = places.iter().any(|place| file == *place || file.starts_with(&format!("{place}/")));
            if !here && mentions(&text, word) {
                writeln!(wrong, "{file}: `{word}` belongs in {}", places.join(", ")).unwrap();
            }
        }
    }
    assert!(wrong.is_empty(), "\n{wrong}");
}

#[test]
fn rooms_stay_clear_of_what_they_must_not_touch() {
    let mut wrong = String::new();
    for (file, text) in sources() {
        for (room, words) in NEVER_IN {
            if room_of(&file) == Some(*room) {
                for word in words.iter().filter(|word| mentions(&text, word)) {
                    writeln!(wrong, "{file}: `{room}` must not use `{word}`").unwrap();
                }
            }
        }
    }
    assert!(wrong.is_empty(), "\n{wrong}");
}

/// All files below `src/`, by their path there, without comments, literals and tests.
/// `make test-x86-64` picks tests by name: one that was renamed would be left out without a word.
#[test]
fn the_tests_for_x86_64_are_there() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/qemu");
    let list = std::fs::read_to_string(folder.join("x86_64.list")).unwrap();
    let names: Vec<_> = list.lines().filter(|line| !line.starts_with('#')).collect();
    assert!(names.len() > 5, "{list}");
    for name in names {
        let (module, test) = name.rsplit_once("::").unwrap();
        let file = std::fs::read_to_string(folder.join(format!("{}.rs", module.replace("::", "/")))).unwrap();
        assert!(file.contains(&format!("#[test]\nfn {test}()")), "{name}");
    }
}

fn sources() -> Vec<(String, String)> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("src");
    let mut folders = vec![root.clone()];
    let mut files: Vec<PathBuf> = Vec::new();
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                folders.push(path);
            } else if path.extension().is_some_and(|extension| extension == "rs") {
                files.push(path);
            }
        }
    }
    files.sort();
    assert!(files.len() > ROOMS.len(), "the source tree was not found");
    let texts: Vec<_> = files
        .iter()
        .map(|path| {
            let name = path.strip_prefix(&root).unwrap().to_string_lossy().into_owned();
            (name, without_literals(&std::fs::read_to_string(path).unwrap()))
        })
        .collect();
    let tests: Vec<String> = texts.iter().flat_map(|(file, text)| test_modules(file, text)).collect();
    let is_test = |file: &str| {
        tests.iter().any(|module| file == format!("{module}.rs") || file.starts_with(&format!("{module}/")))
    };
    texts.iter().filter(|(file, _)| !is_test(file)).map(|(file, text)| (file.clone(), without_tests(text))).collect()
}

/// The modules in files of their own that this file declares for tests only: `#[cfg(test)] mod NAME;`.
fn test_modules(file: &str, text: &str) -> Vec<String> {
    let folder = match file.strip_suffix("/mod.rs") {
        Some(folder) => folder.to_owned(),
        None if file == "lib.rs" || file == "main.rs" => String::new(),
        None => file.trim_end_matches(".rs").to_owned(),
    };
    text.split("#[cfg(test)]")
        .skip(1)
        .filter_map(|rest| {
            let declaration = rest.split([';', '{', '=']).next().unwrap_or_default();
            let (_, name) = declaration.rsplit_once("mod ")?;
            rest[declaration.len()..].starts_with(';').then(|| format!("{folder}/{}", name.trim()))
        })
        .map(|module| module.trim_start_matches('/').to_owned())
        .collect()
}

fn room_of(file: &str) -> Option<&str> {
    file.split_once('/').map(|(room, _)| room).or_else(|| match file {
        "main.rs" | "lib.rs" => None,
        _ => file.strip_suffix(".rs"),
    })
}

fn is_word(c: char) -> bool {
    c.is_alphanumeric() || c == '_'
}

/// Whether the code has these words of a path, as whole words.
fn mentions(text: &str, words: &str) -> bool {
    text.match_indices(words).any(|(at, _)| {
        let before = text[..at].chars().next_back();
        let after = text[at + words.len()..].chars().next();
        !before.is_some_and(is_word) && !after.is_some_and(is_word)
    })
}

/// The paths below the crate's root that the code names: `crate::a::b`, `crate::{a::b, c}` and enough `super::`.
fn crate_paths(file: &str, text: &str) -> Vec<String> {
    // `plan/mod.rs` is one module deep, `plan/pod.rs` two.
    let parts = file.split('/').count();
    let depth = if file.ends_with("/mod.rs") { parts - 1 } else { parts };
    let mut paths = Vec::new();
    for root in ["crate::".to_owned(), "super::".repeat(depth)] {
        for (at, _) in text.match_indices(&root) {
            if !text[..at].ends_with(is_word) && !text[..at].ends_with(':') {
                expand("", &text[at + root.len()..], &mut paths);
            }
        }
    }
    paths
}

/// Follows a path, and the groups in it, to full paths.
fn expand(prefix: &str, text: &str, paths: &mut Vec<String>) {
    let end = text.find(|c| !is_word(c) && c != ':').unwrap_or(text.len());
    let path = format!("{prefix}{}", &text[..end]);
    if !text[end..].starts_with('{') {
        paths.push(path.trim_end_matches(':').to_owned());
        return;
    }
    let mut depth = 0;
    let mut start = end + 1;
    for (at, c) in text[end..].char_indices().map(|(at, c)| (at + end, c)) {
        match c {
            '{' => depth += 1,
            '}' => depth -= 1,
            _ => {}
        }
        if (c == ',' && depth == 1) || depth == 0 {
            let part = text[start..at].trim();
            if !part.is_empty() {
                expand(&path, part, paths);
            }
            start = at + 1;
        }
        if depth == 0 {
            break;
        }
    }
}

/// The code without the `mod` blocks that are compiled for tests only: they may look into other rooms.
fn without_tests(text: &str) -> String {
    let mut kept = String::new();
    let mut rest = text;
    while let Some(at) = rest.find("#[cfg(test)]") {
        kept.push_str(&rest[..at]);
        rest = &rest[at..];
        // A block ends with its brace, a declaration or an import with its semicolon.
        let open = rest.find('{').unwrap_or(rest.len());
        let semicolon = rest.find(';').unwrap_or(rest.len());
        let end = if semicolon < open { semicolon + 1 } else { open + block_length(&rest[open..]) };
        rest = &rest[end..];
    }
    kept.push_str(rest);
    kept
}

fn block_length(text: &str) -> usize {
    let mut depth = 0;
    for (at, c) in text.char_indices() {
        match c {
            '{' => depth += 1,
            '}' => depth -= 1,
            _ => {}
        }
        if depth == 0 {
            return at + 1;
        }
    }
    text.len()
}

/// The code with comments and the insides of literals removed.
fn without_literals(text: &str) -> String {
    let bytes = text.as_bytes();
    let starts = |at: usize, what: &str| bytes[at..].starts_with(what.as_bytes());
    let mut kept = Vec::new();
    let mut at = 0;
    while at < bytes.len() {
        let skipped = if starts(at, "//") {
            text[at..].find('\n').unwrap_or(text.len() - at)
        } else if starts(at, "/*") {
            text[at..].find("*/").map_or(text.len() - at, |end| end + 2)
        } else if bytes[at] == b'r' && !at.checked_sub(1).is_some_and(|before| is_word(char::from(bytes[before]))) {
            raw_string_length(&text[at..])
        } else if bytes[at] == b'"' {
            string_length(&bytes[at..])
        } else if bytes[at] == b'\'' {
            character_length(&bytes[at..])
        } else {
            0
        };
        if skipped == 0 {
            kept.push(bytes[at]);
            at += 1;
        } else {
            kept.push(b' ');
            at += skipped;
        }
    }
    String::from_utf8_lossy(&kept).into_owned()
}

/// The length of a raw string that begins here, else 0.
fn raw_string_length(text: &str) -> usize {
    let hashes = text[1..].bytes().take_while(|byte| *byte == b'#').count();
    if !text[1 + hashes..].starts_with('"') {
        return 0;
    }
    let end = format!("\"{}", "#".repeat(hashes));
    let body = hashes + 2;
    text[body..].find(&end).map_or(text.len(), |at| body + at + end.len())
}

fn string_length(bytes: &[u8]) -> usize {
    let mut at = 1;
    while at < bytes.len() && bytes[at] != b'"' {
        at += if bytes[at] == b'\\' { 2 } else { 1 };
    }
    (at + 1).min(bytes.len())
}

/// The length of a character literal, 0 for the quote of a lifetime.
fn character_length(bytes: &[u8]) -> usize {
    if bytes.get(1) == Some(&b'\\') {
        return bytes.iter().skip(3).position(|byte| *byte == b'\'').map_or(0, |end| end + 4);
    }
    // One character is up to four bytes long.
    (2..=5)
        .find(|end| {
            bytes.get(*end) == Some(&b'\'')
                && std::str::from_utf8(&bytes[1..*end]).is_ok_and(|c| c.chars().count() == 1)
        })
        .map_or(0, |end| end + 1)
}

#[test]
fn paths_are_found_in_groups_and_through_super() {
    let found = |file, text| crate_paths(file, text);
    assert_eq!(found("plan/pod.rs", "use crate::model::pod::Pod;"), ["model::pod::Pod"]);
    assert_eq!(
        found("plan/pod.rs", "use crate::{model::{ids, time::Now}, sys};"),
        ["model::ids", "model::time::Now", "sys"]
    );
    assert_eq!(found("plan/pod.rs", "super::super::sys::mount();"), ["sys::mount"]);
    assert_eq!(found("plan/mod.rs", "use super::sys;"), ["sys"]);
    assert_eq!(found("plan/pod.rs", "use super::sys;"), [""; 0]);
    assert_eq!(found("plan/pod.rs", "use other_crate::sys;"), [""; 0]);
}

#[test]
fn modules_for_tests_are_known_by_their_declaration() {
    let text = "#[cfg(test)]\nmod world;\n#[cfg(test)]\npub(crate) mod testing;\n#[cfg(test)]\nmod tests { mod inner; }\nmod real;";
    assert_eq!(test_modules("plan/mod.rs", text), ["plan/world", "plan/testing"]);
    assert_eq!(test_modules("images/unpack.rs", "#[cfg(test)]\nmod tests;"), ["images/unpack/tests"]);
    assert_eq!(test_modules("lib.rs", "#[cfg(test)] mod a;"), ["a"]);
}

#[test]
fn comments_literals_and_tests_do_not_count() {
    let text = "a // unsafe\n/* unsafe */ b \"unsafe \\\" unsafe\" r#\"unsafe\"# 'u' '\\'' fn f<'a>() {}\n#[cfg(test)]\nmod tests { fn g() { unsafe {} } }\nc";
    let code = without_tests(&without_literals(text));
    assert!(!mentions(&code, "unsafe"), "{code}");
    for word in ["a", "b", "c", "f"] {
        assert!(mentions(&code, word), "{word} in {code}");
    }
    assert!(!mentions("unsafely", "unsafe") && mentions("x(unsafe)", "unsafe"));
}
