//! The examples of the documentation are what armlet takes: manifests and configurations are read and checked as the agent
//! does it.
#![expect(clippy::unwrap_used, reason = "documentation that cannot be read fails the test")]

use armlet::config::{self, Args, Files};
use armlet::wire::{self, NodeIdentity};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

#[test]
fn every_yaml_example_is_taken() {
    let examples = examples();
    let mut pods = 0;
    let mut configurations = 0;
    for (place, text) in &examples {
        let problems = if text.contains("kind: KubeletConfiguration") || text.contains("kind: NodeConfiguration") {
            configurations += 1;
            config::load(&Args::default(), &Files::default().with(place, text.as_bytes()), &BTreeMap::new()).1
        } else {
            let parsed = wire::parse(text.as_bytes(), place, &NodeIdentity::new("edge1"));
            assert!(!parsed.pods.is_empty(), "{place} holds no pod: {:#?}\n{text}", parsed.problems);
            pods += parsed.pods.len();
            parsed.problems
        };
        // Not even a remark: an example sets nothing that has no effect.
        assert!(problems.is_empty(), "{place}: {problems:#?}\n{text}");
    }
    assert!(pods >= 2 && configurations >= 1, "the examples were not found: {examples:#?}");
}

/// All YAML in README.md, CONTRIBUTING.md, docs/*.md and docs/examples/, by its place.
fn examples() -> Vec<(String, String)> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let in_folder = |folder: &str| -> Vec<PathBuf> {
        std::fs::read_dir(root.join(folder)).unwrap().map(|entry| entry.unwrap().path()).collect()
    };
    let files: Vec<PathBuf> = ["README.md", "CONTRIBUTING.md"]
        .map(|name| root.join(name))
        .into_iter()
        .chain(in_folder("docs"))
        .chain(in_folder("docs/examples"))
        .collect();
    let mut found = Vec::new();
    for file in files.iter().filter(|file| file.is_file()) {
        let place = file.strip_prefix(root).unwrap().display().to_string();
        let text = std::fs::read_to_string(file).unwrap();
        match file.extension().and_then(|extension| extension.to_str()) {
            Some("md") => {
                found.extend(blocks(&text).into_iter().map(|(line, yaml)| (format!("{place}:{line}"), yaml)));
            }
            Some("yaml" | "json") => found.push((place, text)),
            _ => {}
        }
    }
    found
}

/// The fenced blocks of a page that say they are YAML, with the line they begin at.
fn blocks(page: &str) -> Vec<(usize, String)> {
    let mut found: Vec<(usize, String)> = Vec::new();
    let mut inside: Option<bool> = None;
    for (number, line) in page.lines().enumerate() {
        match (line.trim_start().strip_prefix("```"), inside) {
            (Some(kind), None) => {
                let yaml = matches!(kind.trim(), "yaml" | "yml");
                inside = Some(yaml);
                if yaml {
                    found.push((number + 2, String::new()));
                }
            }
            (Some(_), Some(_)) => inside = None,
            (None, Some(true)) => {
                if let Some((_, block)) = found.last_mut() {
                    block.push_str(line);
                    block.push('\n');
                }
            }
            (None, _) => {}
        }
    }
    found
}

#[test]
fn blocks_are_found_by_their_fences() {
    let page = "a\n```yaml\nb: 1\n```\n```\nc\n```\n```yaml\nd: 2\n```\n";
    assert_eq!(blocks(page), [(3, "b: 1\n".to_owned()), (9, "d: 2\n".to_owned())]);
}
