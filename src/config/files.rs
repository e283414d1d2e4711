//! Which files the configuration is in. Reading them is all that this room asks of the system.

use super::Args;
use crate::wire::document::{self, Document};
use crate::wire::problem::{Problem, Severity};
use crate::wire::tree::{Data, Entry, Node};
use std::collections::BTreeMap;
use std::io;
use std::path::PathBuf;

/// A configuration file as it was read.
#[derive(Debug, Clone, PartialEq, Eq)]
struct File {
    path: String,
    bytes: Vec<u8>,
}

/// The configuration file and its drop-ins, in the order in which they count: each is put over the ones before.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Files {
    read: Vec<File>,
    /// What lies among the drop-ins, looks as if it were meant to be one, and is none by its name.
    passed_over: Vec<String>,
}

/// A configuration file or folder cannot be read.
#[derive(Debug, thiserror::Error)]
#[error("read {path}")]
pub struct FilesError {
    /// Which.
    pub path: String,
    /// Why.
    #[source]
    pub source: io::Error,
}

impl Files {
    /// One file more, over the ones before.
    #[must_use]
    pub fn with(mut self, path: &str, bytes: &[u8]) -> Self {
        self.read.push(File { path: path.to_owned(), bytes: bytes.to_owned() });
        self
    }

    /// Reads the files that flags and environment name: the configuration file, and the `*.conf` of the folder of
    /// drop-ins and the folders in it, in lexical order, as upstream (`cmd/kubelet/app/server.go`). Those that nobody asked
    /// for may be absent.
    ///
    /// # Errors
    /// One that was asked for is absent, or one that is there cannot be read.
    pub fn read(args: &Args, env: &BTreeMap<String, String>) -> Result<Self, FilesError> {
        let mut files = Self::default();
        let (path, asked_for) = args.config_file(env);
        match std::fs::read(&path) {
            Ok(bytes) => files.read.push(File { path, bytes }),
            Err(error) if error.kind() == io::ErrorKind::NotFound && !asked_for => {}
            Err(source) => return Err(FilesError { path, source }),
        }
        let (folder, asked_for) = args.config_dir(env);
        match std::fs::metadata(&folder) {
            Err(error) if error.kind() == io::ErrorKind::NotFound && !asked_for => {}
            Err(source) => return Err(FilesError { path: folder, source }),
            Ok(metadata) if metadata.is_dir() => files.drop_ins(PathBuf::from(folder))?,
            Ok(_) => return Err(FilesError { path: folder, source: io::ErrorKind::NotADirectory.into() }),
        }
        Ok(files)
    }

    fn drop_ins(&mut self, folder: PathBuf) -> Result<(), FilesError> {
        // Lexical by name within each folder, depth first: what is still to be looked at, the next one last.
        let mut ahead = vec![folder];
        while let Some(path) = ahead.pop() {
            let failed = |source| FilesError { path: path.display().to_string(), source };
            if std::fs::metadata(&path).map_err(failed)?.is_dir() {
                let entries = std::fs::read_dir(&path).map_err(failed)?;
                let entries: io::Result<Vec<_>> = entries.map(|entry| entry.map(|entry| entry.path())).collect();
                let mut entries = entries.map_err(failed)?;
                entries.sort_unstable_by(|a, b| b.cmp(a));
                // A link to a folder could lead in a circle.
                entries.retain(|entry| !(entry.is_symlink() && entry.is_dir()));
                ahead.extend(entries);
                continue;
            }
            let name = path.display().to_string();
            match path.extension().and_then(|ending| ending.to_str()) {
                Some("conf") => {
                    let bytes = std::fs::read(&path).map_err(failed)?;
                    self.read.push(File { path: name, bytes });
                }
                Some("yaml" | "yml" | "json") => self.passed_over.push(name),
                _ => {}
            }
        }
        Ok(())
    }

    /// The documents of each file, in order, without what a later one takes back.
    pub(super) fn documents(&self) -> Vec<(&str, Vec<Document>)> {
        let read = |file: &File| document::read(&file.bytes);
        let mut all: Vec<(&str, Vec<Document>)> = self.read.iter().map(|f| (f.path.as_str(), read(f))).collect();
        for later in 0..all.len() {
            let (before, rest) = all.split_at_mut(later);
            let Some((_, documents)) = rest.first_mut() else { break };
            for tree in trees(documents) {
                let kind = tree.text_of("kind").unwrap_or_default().to_owned();
                let mut nulls = Vec::new();
                take_nulls(tree, &mut Vec::new(), &mut nulls);
                let same = before.iter_mut().flat_map(|(_, documents)| trees(documents));
                for tree in same.filter(|tree| tree.text_of("kind") == Some(&kind)) {
                    nulls.iter().for_each(|path| strike(tree, path));
                }
            }
        }
        all
    }

    /// What is to be said of the files themselves.
    pub(super) fn problems(&self) -> Vec<Problem> {
        let problem = |path: &String| Problem {
            file: path.clone(),
            line: None,
            document: 0,
            field: String::new(),
            message: "is not read: the names of drop-ins end with .conf".to_owned(),
            severity: Severity::Warning,
        };
        self.passed_over.iter().map(problem).collect()
    }
}

fn trees(documents: &mut [Document]) -> impl Iterator<Item = &mut Node> {
    documents.iter_mut().filter_map(|document| document.tree.as_mut().ok())
}

/// Takes the nulls out of a document: they say nothing themselves, and take back what the files before say (RFC 7396).
/// `around` leads from the document to `node`, which is not nested deeper than a document may be.
fn take_nulls(node: &mut Node, around: &mut Vec<String>, found: &mut Vec<Vec<String>>) {
    let Data::Map(entries) = &mut node.data else { return };
    entries.retain_mut(|Entry { key, value, .. }| {
        around.push(key.clone());
        let is_null = value.data == Data::Null;
        if is_null {
            found.push(around.clone());
        } else {
            take_nulls(value, around, found);
        }
        around.pop();
        !is_null
    });
}

/// Takes the entry at `path` out of a tree, if it is there.
fn strike(tree: &mut Node, path: &[String]) {
    let mut node = tree;
    let Some((last, around)) = path.split_last() else { return };
    for step in around {
        let Data::Map(entries) = &mut node.data else { return };
        let Some(entry) = entries.iter_mut().find(|entry| entry.key == *step) else { return };
        node = &mut entry.value;
    }
    if let Data::Map(entries) = &mut node.data {
        entries.retain(|entry| entry.key != *last);
    }
}
