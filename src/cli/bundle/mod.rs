//! `armlet debug bundle`: one archive with what is needed to find out what is wrong with a node, and no secrets.
//!
//! - [`redact`]: what must not leave the node (pure). [`system`]: what can be read without an agent. [`archive`].
//!
//! It must work on a node on which nothing else does: every part has a time limit, runs beside the others' failures,
//! and what could not be had is told in the archive and on standard output.

mod archive;
mod redact;
mod system;

use super::args::Bundle;
use super::client::{self, Client};
use super::error::CliError;
use super::output::Out;
use super::table::{Cell, Table, Tone};
use crate::config::{self, Config};
use crate::sys::clock;
use crate::wire::document;
use http_body_util::BodyExt;
use redact::Secrets;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// What one part may take.
const LIMIT: Duration = Duration::from_secs(10);
/// What looking at the machine may take: it tries things.
const CHECK_LIMIT: Duration = Duration::from_secs(30);
/// Bytes of one part.
const LONGEST: usize = 4 << 20;
/// Manifests that are looked through for secrets.
const MANIFESTS: usize = 1000;

/// A part of the archive, or why it is not there.
struct Part {
    name: String,
    content: Result<Content, String>,
}

enum Content {
    Text(String),
    Json(Value),
}

/// Gathers, redacts, writes and tells.
pub(super) async fn run(args: &Bundle, socket: &Path, out: &mut Out) -> Result<(), CliError> {
    let (config, config_part) = configuration(args);
    let mut secrets = Secrets::default();
    let manifests = config.static_pod_path.clone();
    let _ = limited(LIMIT, move || Ok(read_manifests(Path::new(&manifests)))).await.map(|documents| {
        for mut document in documents {
            secrets.empty(&mut document);
        }
    });
    let mut parts = vec![config_part];
    let (from_agent, node_name) = agent_parts(socket).await;
    parts.extend(from_agent);
    parts.extend(machine_parts(&config).await);

    // First all is looked through for secrets, then each of them is taken out of everything.
    for part in &mut parts {
        match &mut part.content {
            Ok(Content::Json(value)) => secrets.empty(value),
            Ok(Content::Text(text)) => *text = redact::free_text(text),
            Err(_) => {}
        }
    }
    let now = clock::now().wall;
    let mut files: Vec<(String, Vec<u8>)> = Vec::new();
    let mut rows = Vec::new();
    for Part { name, content } in parts {
        let why = match content {
            Ok(content) => {
                let (bytes, cut) = bytes(content, &secrets);
                files.push((name.clone(), bytes));
                if cut { "cut to 4 MiB".to_owned() } else { String::new() }
            }
            Err(why) => secrets.scrub(&why),
        };
        rows.push((name, why));
    }
    let gathered = |name: &str| files.iter().any(|(file, _)| file == name);
    let rows: Vec<(String, bool, String)> =
        rows.into_iter().map(|(name, why)| (name.clone(), gathered(&name), why)).collect();
    files.insert(0, ("README".to_owned(), readme(&now.rfc3339(), &rows).into_bytes()));

    let stamp: String = now.rfc3339().chars().filter(|c| !matches!(c, ':' | '-')).collect();
    let folder = format!("armlet-bundle-{}-{stamp}", node_name.as_deref().unwrap_or("node"));
    let path = args.output.clone().unwrap_or_else(|| PathBuf::from(format!("{folder}.tar.gz")));
    let seconds = u64::try_from(now.0 / 1_000_000_000).unwrap_or(0);
    let size = archive::write(&path, &folder, seconds, &files)
        .map_err(|source| CliError::Bundle { path: path.clone(), source })?;
    out.table(&table(&rows))?;
    out.line(&format!("\n{} ({} KiB)", path.display(), size.div_ceil(1024)))
}

/// Runs something that may hang on a disk, but not for longer than `limit`.
async fn limited<T: Send + 'static>(
    limit: Duration,
    work: impl FnOnce() -> io::Result<T> + Send + 'static,
) -> Result<T, String> {
    match tokio::time::timeout(limit, tokio::task::spawn_blocking(work)).await {
        Ok(Ok(done)) => done.map_err(|error| error.to_string()),
        Ok(Err(error)) => Err(error.to_string()),
        Err(_) => Err(format!("not done within {} s", limit.as_secs())),
    }
}

/// The configuration in force, where each value is from, and what is wrong with it: never the file itself.
fn configuration(args: &Bundle) -> (Config, Part) {
    let asked = args.config.iter().fold(config::Args::default(), |asked, path| asked.with("config", path));
    let env: BTreeMap<String, String> = std::env::vars().filter(|(name, _)| name.starts_with("ARMLET_")).collect();
    let (files, unreadable) = match config::Files::read(&asked, &env) {
        Ok(files) => (files, None),
        Err(error) => (config::Files::default(), Some(format!("read {}: {}", error.path, error.source))),
    };
    let (settings, problems) = config::settings(&asked, &files, &env);
    let problems = problems.iter().map(|problem| redact::problem(&problem.to_string()));
    let content = json!({"settings": settings, "problems": unreadable.into_iter().chain(problems).collect::<Vec<_>>()});
    let (config, _) = config::load(&asked, &files, &env);
    (config, Part { name: "config.json".to_owned(), content: Ok(Content::Json(content)) })
}

/// The documents of the manifests, to know what is secret in them: they themselves are not gathered.
fn read_manifests(path: &Path) -> Vec<Value> {
    let files: Vec<PathBuf> = match std::fs::read_dir(path) {
        Ok(entries) => entries.flatten().map(|entry| entry.path()).filter(|path| path.is_file()).collect(),
        Err(_) => vec![path.to_owned()],
    };
    let bytes = files.iter().take(MANIFESTS).filter_map(|file| std::fs::read(file).ok());
    let documents = bytes.flat_map(|bytes| document::read(&bytes));
    documents.filter_map(|document| Some(document.tree.ok()?.to_value())).collect()
}

/// What the agent tells, and the node's name.
async fn agent_parts(socket: &Path) -> (Vec<Part>, Option<String>) {
    const QUESTIONS: [(&str, &str); 7] = [
        ("version.json", "/armlet/v1/version"),
        ("node.json", "/armlet/v1/inspect"),
        ("pods.json", "/pods"),
        ("images.json", "/armlet/v1/images"),
        ("stats.json", "/armlet/v1/stats"),
        ("events.txt", "/armlet/v1/events"),
        ("log.txt", "/armlet/v1/log"),
    ];
    let mut parts = Vec::new();
    let mut silent = None;
    for (name, path) in QUESTIONS {
        let content = match &silent {
            // One that does not answer is not waited for again and again.
            Some(why) => Err(String::clone(why)),
            None => match ask(socket, path).await {
                Ok(text) => Ok(text),
                Err(Unanswered::Refused(why)) => Err(why),
                Err(Unanswered::Silent(why)) => Err(silent.insert(why).clone()),
            },
        };
        let content = content.map(|text| match name.strip_suffix(".json") {
            Some(_) => serde_json::from_str(&text).map_or(Content::Text(text), Content::Json),
            None => Content::Text(text),
        });
        parts.push(Part { name: name.to_owned(), content });
    }
    let find = |name: &str| match parts.iter().find(|part| part.name == name).map(|part| &part.content) {
        Some(Ok(Content::Json(value))) => Some(value.clone()),
        _ => None,
    };
    let node_name = find("version.json").and_then(|version| Some(version.get("nodeName")?.as_str()?.to_owned()));
    let pods = find("pods.json").and_then(|list| list.get("items")?.as_array().cloned()).unwrap_or_default();
    let mut attempts = BTreeMap::new();
    for pod in pods.iter().filter(|_| silent.is_none()) {
        let of = |field: &str| pod.pointer(field).and_then(Value::as_str).unwrap_or_default();
        let place = [of("/metadata/namespace"), of("/metadata/name")];
        let path = format!("/armlet/v1/inspect/{}/{}", client::escape(place[0]), client::escape(place[1]));
        let report = ask(socket, &path).await.ok().and_then(|text| serde_json::from_str::<Value>(&text).ok());
        attempts.insert(place.join("/"), report.and_then(|report| report.get("attempts").cloned()));
    }
    if silent.is_none() {
        parts.push(Part { name: "attempts.json".to_owned(), content: Ok(Content::Json(json!(attempts))) });
    }
    for part in &mut parts {
        if let Ok(Content::Json(value)) = &mut part.content {
            hide_problems(value);
        }
    }
    (parts, node_name)
}

/// Refused manifests are told of with what is wrong with them, which quotes them.
fn hide_problems(node: &mut Value) {
    let refused = node.get_mut("refused").and_then(Value::as_array_mut).into_iter().flatten();
    for problems in refused.filter_map(|manifest| manifest.get_mut("problems")?.as_array_mut()) {
        for problem in problems {
            *problem = redact::problem(problem.as_str().unwrap_or_default()).into();
        }
    }
}

/// Why a question has no answer.
enum Unanswered {
    /// The agent says so.
    Refused(String),
    /// There is no agent that would.
    Silent(String),
}

/// One question to the agent: its answer as text.
async fn ask(socket: &Path, path: &str) -> Result<String, Unanswered> {
    let answer = async {
        let mut body = Client::connect(socket).await?.stream(path).await?;
        let mut bytes = Vec::new();
        while let Some(frame) = body.frame().await {
            let data = frame.map_err(|source| CliError::Talk { source })?.into_data().unwrap_or_default();
            bytes.extend_from_slice(&data);
            if bytes.len() > LONGEST {
                break;
            }
        }
        Ok::<_, CliError>(String::from_utf8_lossy(&bytes).into_owned())
    };
    match tokio::time::timeout(LIMIT, answer).await {
        Ok(Err(error @ CliError::Refused { .. })) => Err(Unanswered::Refused(error.to_string())),
        Ok(answer) => answer.map_err(|error| {
            let report = error.report();
            let first = report.lines().next().unwrap_or_default();
            Unanswered::Silent(first.strip_prefix("armlet: ").unwrap_or(first).to_owned())
        }),
        Err(_) => Err(Unanswered::Silent(format!("the agent did not answer within {} s", LIMIT.as_secs()))),
    }
}

/// What can be read of the machine.
async fn machine_parts(config: &Config) -> Vec<Part> {
    type Reader = fn(&Config) -> io::Result<String>;
    const READERS: [(&str, Reader); 9] = [
        ("supervisor-log.txt", system::supervisor_log),
        ("panics.txt", system::panics),
        ("roles.txt", |_| system::roles()),
        ("kernel.txt", |_| system::kernel()),
        ("kernel-messages.txt", |_| system::kernel_messages()),
        ("cgroups.txt", |_| system::cgroups()),
        ("mounts.txt", |_| system::mounts()),
        ("network.txt", |_| system::network()),
        ("disks.txt", system::disks),
    ];
    let mut parts = vec![Part { name: "check.json".to_owned(), content: check(config).await }];
    for (name, read) in READERS {
        let config = config.clone();
        let content = limited(LIMIT, move || read(&config)).await.map(Content::Text);
        parts.push(Part { name: name.to_owned(), content });
    }
    parts
}

/// The findings of `armlet check`, in a child that can be killed: its trials may hang.
async fn check(config: &Config) -> Result<Content, String> {
    let exe = std::env::current_exe().map_err(|error| error.to_string())?;
    let mut command = tokio::process::Command::new(exe);
    command.args(["check", "-o", "json", "--root-dir", &config.data_dir, "--run-dir", &config.run_dir]);
    command.args(["--logs-dir", &config.pod_logs_dir]).stdin(std::process::Stdio::null()).kill_on_drop(true);
    match tokio::time::timeout(CHECK_LIMIT, command.output()).await {
        Ok(Ok(output)) => serde_json::from_slice(&output.stdout).map(Content::Json).map_err(|error| error.to_string()),
        Ok(Err(error)) => Err(error.to_string()),
        Err(_) => Err(format!("not done within {} s", CHECK_LIMIT.as_secs())),
    }
}

/// A part as it is written, without any secret that is known; `true`: it was too long.
fn bytes(content: Content, secrets: &Secrets) -> (Vec<u8>, bool) {
    let mut text = match content {
        Content::Text(text) => secrets.scrub(&text),
        Content::Json(mut value) => {
            secrets.scrub_json(&mut value);
            serde_json::to_string_pretty(&value).unwrap_or_default() + "\n"
        }
    };
    let cut = text.len() > LONGEST;
    text.truncate(text.floor_char_boundary(LONGEST));
    (text.into_bytes(), cut)
}

fn readme(time: &str, rows: &[(String, bool, String)]) -> String {
    let mut text = format!(
        "Gathered by armlet {} at {time}.\n\n\
         Left out on purpose, and replaced by {}: values of environment variables, headers of probes, pull secrets,\n\
         annotations, arguments and other texts that look like passwords, what containers said at their end, and each of\n\
         these values wherever else it was found. Logs and files of containers were not gathered.\n\n",
        env!("CARGO_PKG_VERSION"),
        redact::GONE
    );
    for (name, gathered, why) in rows {
        let state = if *gathered { "gathered" } else { "missing" };
        text += format!("{state:<9} {name:<22} {why}").trim_end();
        text.push('\n');
    }
    text
}

fn table(rows: &[(String, bool, String)]) -> Table {
    let mut table = Table::new(["PART", "STATE", "WHY"]);
    for (name, gathered, why) in rows {
        let (state, tone) = if *gathered { ("gathered", Tone::Good) } else { ("missing", Tone::Warn) };
        table.row([name.as_str().into(), Cell::toned(state, tone), why.as_str().into()]);
    }
    table
}
