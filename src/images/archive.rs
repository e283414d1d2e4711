//! Where an image comes from: a folder in the OCI image layout, or a tar archive, plain or compressed as a whole.
//!
//! A plain archive is listed once, then read where its members lie. A compressed one cannot be sought in: it is read
//! twice, first for its small JSON members, then for the layers in the order in which they come. So no copy of it is
//! ever made, and memory stays flat.

use super::compress;
use super::tar_reader::{Entry, Input, Kind, TarError, TarReader};
use super::{ImportError, digest};
use std::collections::{BTreeMap, BTreeSet};
use std::fs::File;
use std::io::{self, BufReader, Read, Seek, SeekFrom};
use std::path::{Path, PathBuf};

/// The greatest JSON member: registries and containerd use the same limit for manifests.
pub(super) const MAX_JSON: u64 = 4 << 20;
/// All JSON members of one archive together.
const MAX_ALL_JSON: u64 = 32 << 20;
const MAX_MEMBERS: usize = 100_000;
/// The longest name and link target, as Linux has it.
const MAX_PATH: usize = 4095;
/// The names and link targets of all members of one archive together: clients give each blob about 80 bytes.
const MAX_ALL_NAMES: usize = 8 << 20;

/// An opened image source.
#[derive(Debug)]
pub(super) struct Source {
    path: PathBuf,
    form: Form,
}

#[derive(Debug)]
enum Form {
    Folder,
    Archive { members: BTreeMap<String, Member>, compressed: bool },
}

#[derive(Debug)]
enum Member {
    /// Small, and looks like JSON.
    Kept(Vec<u8>),
    /// Content of this length at this place of the unpacked archive.
    At { offset: u64, size: u64 },
    /// Another name of a member: older `docker save` shares layers so.
    Link(String),
}

/// Gets each wanted member's name, length and content.
pub(super) type Visit<'a> = dyn FnMut(&str, &mut dyn Read) -> Result<(), ImportError> + 'a;

impl Source {
    /// Opens a source and, of an archive, reads the list of members.
    pub(super) fn open(path: &Path) -> Result<Self, ImportError> {
        let meta = path.metadata().map_err(|source| read_error(path, source))?;
        if meta.is_dir() {
            return Ok(Self { path: path.to_owned(), form: Form::Folder });
        }
        if !meta.is_file() {
            return Err(ImportError::Form { path: path.to_owned(), why: "it is neither a file nor a folder" });
        }
        let mut start = Vec::new();
        let mut file = File::open(path).map_err(|source| read_error(path, source))?;
        file.by_ref().take(8).read_to_end(&mut start).map_err(|source| read_error(path, source))?;
        let compressed = compress::is_compressed(&start);
        let members = list(path, compressed)?;
        Ok(Self { path: path.to_owned(), form: Form::Archive { members, compressed } })
    }

    /// The file or folder.
    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    /// A JSON member; `None` when there is none of this name.
    pub(super) fn json(&self, name: &str) -> Result<Option<Vec<u8>>, ImportError> {
        match &self.form {
            Form::Folder => {
                let path = self.path.join(name);
                match open_plain(&path) {
                    Ok(file) => read_json(&path, file).map(Some),
                    Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
                    Err(error) => Err(read_error(&path, error)),
                }
            }
            Form::Archive { members, .. } => match members.get(resolve(members, name)) {
                Some(Member::Kept(bytes)) => Ok(Some(bytes.clone())),
                Some(_) => Err(self.member_error(name, "it is no JSON, or too large for it")),
                None => Ok(None),
            },
        }
    }

    /// Whether there is a member of this name.
    pub(super) fn has(&self, name: &str) -> bool {
        match &self.form {
            Form::Folder => self.path.join(name).is_file(),
            Form::Archive { members, .. } => members.contains_key(resolve(members, name)),
        }
    }

    /// Hands over the content of each wanted member once, in whatever order is cheapest.
    pub(super) fn read(&self, wanted: &BTreeSet<String>, visit: &mut Visit<'_>) -> Result<(), ImportError> {
        match &self.form {
            Form::Folder => {
                for name in wanted {
                    let path = self.path.join(name);
                    let mut file = open_plain(&path).map_err(|source| read_error(&path, source))?;
                    visit(name, &mut file)?;
                }
                Ok(())
            }
            Form::Archive { members, compressed } => {
                // Several wanted names may lead to one member; each visitor wants it under its own name.
                let mut targets: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
                for name in wanted {
                    targets.entry(resolve(members, name)).or_default().push(name);
                }
                if *compressed { self.stream(targets, visit) } else { self.seek(members, targets, visit) }
            }
        }
    }

    fn seek(
        &self,
        members: &BTreeMap<String, Member>,
        targets: BTreeMap<&str, Vec<&str>>,
        visit: &mut Visit<'_>,
    ) -> Result<(), ImportError> {
        for (target, names) in targets {
            for name in names {
                match members.get(target) {
                    Some(Member::At { offset, size }) => {
                        let mut file = File::open(&self.path).map_err(|source| read_error(&self.path, source))?;
                        file.seek(SeekFrom::Start(*offset)).map_err(|source| read_error(&self.path, source))?;
                        visit(name, &mut file.take(*size))?;
                    }
                    Some(Member::Kept(bytes)) => visit(name, &mut bytes.as_slice())?,
                    Some(Member::Link(_)) | None => return Err(self.member_error(name, "it is missing")),
                }
            }
        }
        Ok(())
    }

    fn stream(&self, mut targets: BTreeMap<&str, Vec<&str>>, visit: &mut Visit<'_>) -> Result<(), ImportError> {
        let mut reader = open_archive(&self.path, true)?;
        while let Some(entry) = reader.next().map_err(|source| self.tar_error(source))? {
            let name = member_name(&entry);
            // The first of a name counts, here as in the list.
            let Some(names) = targets.remove(name.as_str()) else {
                continue;
            };
            // One member under two names would have to be read twice: no writer makes that for a compressed archive.
            if let [name] = names.as_slice() {
                visit(name, &mut reader)?;
            } else {
                return Err(self.member_error(&name, "a compressed archive may not share it between layers"));
            }
        }
        match targets.into_values().flatten().next() {
            Some(missing) => Err(self.member_error(missing, "it is missing")),
            None => Ok(()),
        }
    }

    fn member_error(&self, member: &str, why: &'static str) -> ImportError {
        ImportError::Member { path: self.path.clone(), member: member.to_owned(), why }
    }

    fn tar_error(&self, source: TarError) -> ImportError {
        ImportError::Archive { path: self.path.clone(), source }
    }
}

fn read_error(path: &Path, source: io::Error) -> ImportError {
    ImportError::Read { path: path.to_owned(), source }
}

/// Opens a regular file; a fifo or device would make the reader wait.
fn open_plain(path: &Path) -> io::Result<File> {
    if path.metadata()?.is_file() {
        return File::open(path);
    }
    Err(io::Error::from(io::ErrorKind::InvalidInput))
}

fn read_json(path: &Path, file: File) -> Result<Vec<u8>, ImportError> {
    let mut bytes = Vec::new();
    file.take(MAX_JSON + 1).read_to_end(&mut bytes).map_err(|source| read_error(path, source))?;
    if bytes.len() as u64 > MAX_JSON {
        return Err(ImportError::Form { path: path.to_owned(), why: "it is too large for JSON" });
    }
    Ok(bytes)
}

/// A plain archive's bytes: sought over where they are not wanted.
struct Seekable(BufReader<File>);

impl Read for Seekable {
    fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        self.0.read(buf)
    }
}

impl Input for Seekable {
    fn skip(&mut self, n: u64) -> io::Result<()> {
        let distance = i64::try_from(n).map_err(|_| io::ErrorKind::UnexpectedEof)?;
        self.0.seek_relative(distance)?;
        // A seek goes beyond the end without complaint.
        let at = self.0.stream_position()?;
        if at > self.0.get_ref().metadata()?.len() { Err(io::ErrorKind::UnexpectedEof.into()) } else { Ok(()) }
    }
}

/// Either kind of archive.
enum Bytes {
    Plain(Seekable),
    Unpacked(Box<dyn Read>),
}

impl Read for Bytes {
    fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        match self {
            Self::Plain(input) => input.read(buf),
            Self::Unpacked(input) => input.read(buf),
        }
    }
}

impl Input for Bytes {
    fn skip(&mut self, n: u64) -> io::Result<()> {
        match self {
            Self::Plain(input) => input.skip(n),
            Self::Unpacked(input) => input.skip(n),
        }
    }
}

fn open_archive(path: &Path, compressed: bool) -> Result<TarReader<Bytes>, ImportError> {
    let file = File::open(path).map_err(|source| read_error(path, source))?;
    if !compressed {
        return Ok(TarReader::new(Bytes::Plain(Seekable(BufReader::new(file)))));
    }
    let counted = digest::Hashing::counting(file);
    let count = counted.count();
    let unpacked = compress::decoder(counted, count).map_err(|source| read_error(path, source))?;
    Ok(TarReader::new(Bytes::Unpacked(unpacked)))
}

/// Reads the whole list, and the members that look like JSON.
fn list(path: &Path, compressed: bool) -> Result<BTreeMap<String, Member>, ImportError> {
    let broken = |source| ImportError::Archive { path: path.to_owned(), source };
    let mut reader = open_archive(path, compressed)?;
    let mut members = BTreeMap::new();
    let refused = |why| ImportError::Form { path: path.to_owned(), why };
    let mut kept = 0_u64;
    let mut names = 0_usize;
    while let Some(entry) = reader.next().map_err(broken)? {
        if entry.path.len() > MAX_PATH || entry.link.len() > MAX_PATH {
            return Err(refused("the name or the link target of a member is longer than 4095 bytes"));
        }
        let name = member_name(&entry);
        if members.len() >= MAX_MEMBERS {
            return Err(refused("it has more than 100000 members"));
        }
        let member = match entry.kind {
            Kind::File => content(&mut reader, &entry).map_err(broken)?,
            Kind::Symlink | Kind::HardLink => Member::Link(link_target(&name, &entry)),
            Kind::Folder | Kind::Char | Kind::Block | Kind::Fifo => continue,
        };
        if let Member::Kept(bytes) = &member {
            kept = kept.saturating_add(bytes.len() as u64);
        }
        if kept > MAX_ALL_JSON {
            return Err(refused("its JSON members take more than 32 MiB"));
        }
        let target = if let Member::Link(target) = &member { target.len() } else { 0 };
        names = names.saturating_add(name.len()).saturating_add(target);
        if names > MAX_ALL_NAMES {
            return Err(refused("the names of its members take more than 8 MiB"));
        }
        members.entry(name).or_insert(member);
    }
    Ok(members)
}

fn content(reader: &mut TarReader<Bytes>, entry: &Entry) -> Result<Member, TarError> {
    let at = Member::At { offset: reader.position(), size: entry.size };
    if entry.size > MAX_JSON {
        return Ok(at);
    }
    let mut start = [0; 1];
    if reader.read(&mut start).map_err(TarError::Read)? == 0 || !matches!(start, [b'{' | b'[']) {
        return Ok(at);
    }
    let mut bytes = start.to_vec();
    reader.read_to_end(&mut bytes).map_err(TarError::Read)?;
    Ok(Member::Kept(bytes))
}

fn member_name(entry: &Entry) -> String {
    normal(&String::from_utf8_lossy(&entry.path))
}

/// A link's target as a member's name; only names inside the archive mean anything.
fn link_target(name: &str, entry: &Entry) -> String {
    let link = String::from_utf8_lossy(&entry.link).into_owned();
    match (entry.kind, name.rsplit_once('/')) {
        (Kind::Symlink, Some((folder, _))) => normal(&format!("{folder}/{link}")),
        _ => normal(&link),
    }
}

/// `./a//b/../c` -> `a/c`.
fn normal(path: &str) -> String {
    let mut parts: Vec<&str> = Vec::new();
    for part in path.split('/') {
        match part {
            "" | "." => {}
            ".." => drop(parts.pop()),
            other => parts.push(other),
        }
    }
    parts.join("/")
}

fn resolve<'a>(members: &'a BTreeMap<String, Member>, name: &'a str) -> &'a str {
    let mut name = name;
    // A few steps are enough for any writer, and end a loop.
    for _ in 0..4 {
        match members.get(name) {
            Some(Member::Link(target)) => name = target,
            _ => break,
        }
    }
    name
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_normal_and_stay_inside() {
        for (given, expect) in [("./a//b/../c", "a/c"), ("/a", "a"), ("../../a", "a"), ("", ""), ("a/..", "")] {
            assert_eq!(normal(given), expect);
        }
    }
}
