//! One layer, from its tar stream into an overlay lower folder.
//!
//! The archive is not trusted. Names are split and checked here, parents are opened so that the kernel refuses to
//! leave the layer ([`crate::sys::beneath`]), the last component is never followed, and sizes are bounded. What
//! Docker and containerd accept is accepted: a leading `/`, a missing parent folder (made 0755, root), an entry that
//! replaces an earlier one, a link of any text, a parent that is a relative link inside the layer.
//!
//! Whiteouts become overlayfs's own: `.wh.name` a character device 0/0, `.wh..wh..opq` the attribute
//! `trusted.overlay.opaque` of its folder (OCI image spec, layer.md).

use super::tar_reader::{Entry, Input, Kind, TarError, TarReader};
use crate::sys::beneath::{self, Attributes, Beneath, Place};
use rustix::fd::OwnedFd;
use rustix::fs::{FileType, Stat};
use std::collections::BTreeMap;
use std::ffi::{OsStr, OsString};
use std::io::{self, Read, Write};
use std::ops::ControlFlow;

/// Linux's limits for one name and one path.
const MAX_NAME: usize = 255;
const MAX_PATH: usize = 4095;
/// Deeper trees do not occur; walking them would cost a descriptor a level.
const MAX_DEPTH: usize = 255;
const COPY: usize = 64 << 10;
/// What an object takes on a disk at the least, and the unit in which its content is counted.
const BLOCK: u64 = 4096;
/// Memory for the names of folders whose times are still to be set.
const FOLDER_NAMES: usize = 4 << 20;
const OPAQUE: &str = "trusted.overlay.opaque";

/// What one layer may take.
#[derive(Debug, Clone, Copy)]
pub(super) struct Limits {
    /// Bytes on the disk: of each object its content in whole blocks, and one block for itself.
    pub(super) bytes: u64,
    /// Objects of any kind, folders that are made because something lies in them included.
    pub(super) entries: u64,
}

/// Why a layer was not unpacked.
#[derive(Debug, thiserror::Error)]
pub enum UnpackError {
    /// The stream is no valid archive.
    #[error("cannot unpack the layer")]
    Archive(#[from] TarError),
    /// A member asks for something that no layer may do.
    #[error("member {member:?} is refused: {why}")]
    Refused {
        /// The member's name as in the archive.
        member: String,
        /// The rule it breaks.
        why: &'static str,
    },
    /// A member could not be written, for reasons of this machine (disk full, not root).
    #[error("cannot {operation} for member {member:?}")]
    Io {
        /// What was tried.
        operation: &'static str,
        /// The member's name as in the archive.
        member: String,
        /// The kernel's answer.
        #[source]
        source: io::Error,
    },
    /// The caller said so.
    #[error("cancelled")]
    Cancelled,
}

/// Bytes of content in the files of a layer.
pub(super) type ContentBytes = u64;

/// Unpacks a whole layer below `root`. `tick` hears of every piece of content and may end it.
pub(super) fn unpack<R: Input>(
    root: &Beneath,
    layer: R,
    limits: Limits,
    tick: &mut dyn FnMut(u64) -> ControlFlow<()>,
) -> Result<ContentBytes, UnpackError> {
    let mut reader = TarReader::new(layer);
    let mut unpacker = Unpacker {
        root,
        limits,
        bytes: 0,
        room: 0,
        entries: 0,
        parent: None,
        folder_times: FolderTimes::new(FOLDER_NAMES),
        buffer: vec![0; COPY],
    };
    while let Some(entry) = reader.next()? {
        let member = Member { entry: &entry };
        unpacker.charge(&member, 1, member.content())?;
        if tick(0).is_break() {
            return Err(UnpackError::Cancelled);
        }
        unpacker.member(&member, &mut reader, tick)?;
    }
    let times = std::mem::take(&mut unpacker.folder_times.times);
    unpacker.set_folder_times(times)?;
    Ok(unpacker.bytes)
}

/// An entry, and errors that name it.
struct Member<'a> {
    entry: &'a Entry,
}

impl Member<'_> {
    fn name(&self) -> String {
        String::from_utf8_lossy(&self.entry.path).chars().take(200).collect()
    }

    fn refused(&self, why: &'static str) -> UnpackError {
        UnpackError::Refused { member: self.name(), why }
    }

    fn failed(&self, operation: &'static str) -> impl FnOnce(io::Error) -> UnpackError {
        let member = self.name();
        move |source| UnpackError::Io { operation, member, source }
    }

    const fn attributes(&self) -> Attributes {
        Attributes { uid: self.entry.uid, gid: self.entry.gid, mode: self.entry.mode, mtime: self.entry.mtime }
    }

    /// Bytes that it wants to keep beside its name and attributes: the header's size is what will be read.
    fn content(&self) -> u64 {
        let link = if self.entry.kind == Kind::Symlink { self.entry.link.len() } else { 0 };
        let attributes = self.entry.xattrs.iter().map(|(name, value)| name.len() + value.len());
        self.entry.size.saturating_add((attributes.sum::<usize>() + link) as u64)
    }

    /// Components of a path inside the layer; none for the layer's root.
    fn components<'p>(&self, path: &'p [u8]) -> Result<Vec<&'p OsStr>, UnpackError> {
        if path.len() > MAX_PATH || path.contains(&0) {
            return Err(self.refused("a path is longer than 4095 bytes or holds a zero byte"));
        }
        let components: Vec<&[u8]> = path.split(|b| *b == b'/').filter(|c| !matches!(*c, b"" | b".")).collect();
        if components.contains(&b"..".as_slice()) {
            return Err(self.refused("a path holds '..'"));
        }
        if components.len() > MAX_DEPTH || components.iter().any(|c| c.len() > MAX_NAME) {
            return Err(self.refused("a path is deeper than 255 folders or a name in it longer than 255 bytes"));
        }
        Ok(components.into_iter().map(beneath::name).collect())
    }
}

struct Unpacker<'a> {
    root: &'a Beneath,
    limits: Limits,
    bytes: u64,
    /// Counted against the limit of bytes, as is `entries` against its own.
    room: u64,
    entries: u64,
    /// The folder of the last member: most members follow a sibling.
    parent: Option<(OsString, OwnedFd)>,
    folder_times: FolderTimes,
    buffer: Vec<u8>,
}

/// The times that folders are to have, set once nothing more is put into them: every member changes its parent's time.
struct FolderTimes {
    times: BTreeMap<OsString, (i64, u32)>,
    bytes: usize,
    most: usize,
}

impl FolderTimes {
    const fn new(most: usize) -> Self {
        Self { times: BTreeMap::new(), bytes: 0, most }
    }

    /// Keeps a folder's time for the end. When they are too many, gives those that are to be set now: all but this
    /// folder's and those that it lies in. An archive that goes through a tree folder by folder, as writers make it, puts
    /// nothing into the others any more; in another their time may be that of unpacking.
    fn keep(&mut self, path: OsString, mtime: (i64, u32)) -> BTreeMap<OsString, (i64, u32)> {
        if self.times.insert(path.clone(), mtime).is_none() {
            self.bytes += Self::cost(&path);
        }
        if self.bytes <= self.most {
            return BTreeMap::new();
        }
        let (kept, due) = std::mem::take(&mut self.times).into_iter().partition(|(folder, _)| is_in(&path, folder));
        self.times = kept;
        self.bytes = self.times.keys().map(|path| Self::cost(path)).sum();
        due
    }

    /// The name, and about what a map needs to hold it.
    fn cost(path: &OsStr) -> usize {
        path.len() + 64
    }
}

/// Whether a path is that of the folder or of something in it; the empty one is the root's.
fn is_in(path: &OsStr, folder: &OsStr) -> bool {
    let rest = path.as_encoded_bytes().strip_prefix(folder.as_encoded_bytes());
    rest.is_some_and(|rest| folder.is_empty() || matches!(rest.first(), None | Some(b'/')))
}

impl Unpacker<'_> {
    /// Counts objects, and what one of them holds, before they are made.
    fn charge(&mut self, member: &Member<'_>, objects: u64, content: u64) -> Result<(), UnpackError> {
        self.entries = self.entries.saturating_add(objects);
        if self.entries > self.limits.entries {
            return Err(member.refused("the layer has more entries than the limit, or than there are free inodes"));
        }
        let blocks = content.div_ceil(BLOCK).saturating_add(objects);
        self.room = self.room.saturating_add(blocks.saturating_mul(BLOCK));
        if self.room > self.limits.bytes {
            return Err(member.refused("the layer is larger than the limit, or than the free space"));
        }
        Ok(())
    }

    fn member<R: Input>(
        &mut self,
        member: &Member<'_>,
        content: &mut TarReader<R>,
        tick: &mut dyn FnMut(u64) -> ControlFlow<()>,
    ) -> Result<(), UnpackError> {
        let components = member.components(&member.entry.path)?;
        let Some((name, parents)) = components.split_last() else {
            return self.layer_root(member);
        };
        let key = parents.join(OsStr::new("/"));
        let parent = match self.parent.take() {
            Some((path, fd)) if path == key => fd,
            _ => {
                let (fd, made) = self.open_parent(member, parents)?;
                // Counted when they are there already: they are at most as many as a path is deep.
                self.charge(member, made, 0)?;
                fd
            }
        };
        let place = Place { dir: &parent, name };
        match name.as_encoded_bytes().strip_prefix(b".wh.") {
            Some(hidden) => whiteout(member, &parent, hidden)?,
            None => {
                let created = self.create(member, &place, content, tick)?;
                if created == Created::Folder {
                    let due = self.folder_times.keep(components.join(OsStr::new("/")), member.entry.mtime);
                    self.set_folder_times(due)?;
                }
            }
        }
        // Not kept after a failure, nor when it may have been replaced itself: that takes an entry in another folder.
        self.parent = Some((key, parent));
        Ok(())
    }

    /// The entry for the layer itself sets the attributes of the container's `/`.
    fn layer_root(&mut self, member: &Member<'_>) -> Result<(), UnpackError> {
        if member.entry.kind != Kind::Folder {
            return Err(member.refused("only a folder may have the path of the root"));
        }
        let root = self.root.folder(&[]).map_err(member.failed("open the layer's root"))?;
        beneath::set_owner_and_mode(&root, &member.attributes()).map_err(member.failed("set the owner"))?;
        set_xattrs(member, &root)?;
        let due = self.folder_times.keep(OsString::new(), member.entry.mtime);
        self.set_folder_times(due)
    }

    /// The folder, and how many had to be made for it.
    fn open_parent(&self, member: &Member<'_>, parents: &[&OsStr]) -> Result<(OwnedFd, u64), UnpackError> {
        self.root.make_folder(parents).map_err(|source| match rustix::io::Errno::from_io_error(&source) {
            Some(rustix::io::Errno::XDEV) => member.refused("its parent is a link that leads out of the layer"),
            Some(rustix::io::Errno::LOOP) => member.refused("its parent is a link that leads nowhere"),
            Some(rustix::io::Errno::NOTDIR) => member.refused("its parent is not a folder"),
            // A dangling link: the folder is missing, and its name is taken.
            Some(rustix::io::Errno::EXIST) => member.refused("its parent is a link that leads nowhere"),
            _ => member.failed("open its parent folder")(source),
        })
    }

    fn create<R: Input>(
        &mut self,
        member: &Member<'_>,
        place: &Place<'_>,
        content: &mut TarReader<R>,
        tick: &mut dyn FnMut(u64) -> ControlFlow<()>,
    ) -> Result<Created, UnpackError> {
        let there = place.look().map_err(member.failed("look"))?;
        if member.entry.kind == Kind::HardLink {
            return self.hard_link(member, place, there.as_ref()).map(|()| Created::Other);
        }
        let opaque = self.make_room(member, place, there.as_ref())?;
        match member.entry.kind {
            Kind::File => self.file(member, place, content, tick)?,
            Kind::Folder => {
                folder(member, place, opaque)?;
                return Ok(Created::Folder);
            }
            Kind::Symlink => {
                let target = &member.entry.link;
                if target.is_empty() || target.len() > MAX_PATH || target.contains(&0) {
                    return Err(member.refused("a link's target is empty, too long or holds a zero byte"));
                }
                place.create_link(beneath::name(target)).map_err(member.failed("create the link"))?;
                place.set_attributes(&member.attributes(), true).map_err(member.failed("set the owner"))?;
            }
            Kind::Char => node(member, place, FileType::CharacterDevice)?,
            Kind::Block => node(member, place, FileType::BlockDevice)?,
            Kind::Fifo => node(member, place, FileType::Fifo)?,
            Kind::HardLink => {}
        }
        Ok(Created::Other)
    }

    /// Removes what a member replaces: everything but a folder by a folder. Tells whether a whiteout was there, so
    /// that a folder in its place must hide what lies below it.
    fn make_room(&mut self, member: &Member<'_>, place: &Place<'_>, there: Option<&Stat>) -> Result<bool, UnpackError> {
        let Some(there) = there else {
            return Ok(false);
        };
        let is_folder = kind_of(there) == FileType::Directory;
        if is_folder && member.entry.kind == Kind::Folder {
            return Ok(false);
        }
        place.remove(is_folder).map_err(member.failed("replace an earlier member"))?;
        Ok(kind_of(there) == FileType::CharacterDevice && there.st_rdev == 0)
    }

    fn file<R: Input>(
        &mut self,
        member: &Member<'_>,
        place: &Place<'_>,
        content: &mut TarReader<R>,
        tick: &mut dyn FnMut(u64) -> ControlFlow<()>,
    ) -> Result<(), UnpackError> {
        let mut file = place.create_file().map_err(member.failed("create the file"))?;
        loop {
            let n = content.read(&mut self.buffer).map_err(TarError::Read)?;
            if n == 0 {
                break;
            }
            file.write_all(self.buffer.get(..n).unwrap_or_default()).map_err(member.failed("write"))?;
            self.bytes += n as u64;
            if tick(n as u64).is_break() {
                return Err(UnpackError::Cancelled);
            }
        }
        beneath::set_owner_and_mode(&file, &member.attributes()).map_err(member.failed("set the owner"))?;
        set_xattrs(member, &file)?;
        beneath::set_time(&file, member.entry.mtime).map_err(member.failed("set the time"))
    }

    /// The target is a path from the layer's root, as in every tar archive; a leading `/` means the same.
    fn hard_link(&self, member: &Member<'_>, place: &Place<'_>, there: Option<&Stat>) -> Result<(), UnpackError> {
        const MISSING: &str = "it is a hard link to nothing in this layer";
        let components = member.components(&member.entry.link)?;
        let (name, parents) = components.split_last().ok_or_else(|| member.refused(MISSING))?;
        let parent = match self.root.folder(parents) {
            Ok(parent) => parent,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Err(member.refused(MISSING)),
            Err(_) => return Err(member.refused("it is a hard link to something out of the layer")),
        };
        let target = Place { dir: &parent, name };
        let found = target.look().map_err(member.failed("look"))?.ok_or_else(|| member.refused(MISSING))?;
        if kind_of(&found) == FileType::Directory {
            return Err(member.refused("it is a hard link to a folder"));
        }
        if let Some(there) = there {
            if (there.st_dev, there.st_ino) == (found.st_dev, found.st_ino) {
                return Ok(());
            }
            let is_folder = kind_of(there) == FileType::Directory;
            place.remove(is_folder).map_err(member.failed("replace an earlier member"))?;
        }
        place.create_hard_link(&target).map_err(member.failed("create the hard link"))
    }

    fn set_folder_times(&self, times: BTreeMap<OsString, (i64, u32)>) -> Result<(), UnpackError> {
        for (path, mtime) in &times {
            let components: Vec<&OsStr> =
                path.as_encoded_bytes().split(|b| *b == b'/').filter(|c| !c.is_empty()).map(beneath::name).collect();
            // A later member may have replaced the folder; then there is nothing to set.
            if let Ok(folder) = self.root.folder(&components) {
                beneath::set_time(&folder, *mtime).map_err(|source| UnpackError::Io {
                    operation: "set the time",
                    member: path.to_string_lossy().into_owned(),
                    source,
                })?;
            }
        }
        Ok(())
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Created {
    Folder,
    Other,
}

const fn kind_of(stat: &Stat) -> FileType {
    FileType::from_raw_mode(stat.st_mode)
}

fn folder(member: &Member<'_>, place: &Place<'_>, opaque: bool) -> Result<(), UnpackError> {
    match place.create_folder() {
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
        other => other.map_err(member.failed("create the folder"))?,
    }
    let folder = place.open_folder().map_err(member.failed("open the folder"))?;
    beneath::set_owner_and_mode(&folder, &member.attributes()).map_err(member.failed("set the owner"))?;
    set_xattrs(member, &folder)?;
    if opaque { hide_below(member, &folder) } else { Ok(()) }
}

fn node(member: &Member<'_>, place: &Place<'_>, kind: FileType) -> Result<(), UnpackError> {
    place.create_node(kind, member.entry.device).map_err(member.failed("create the device or fifo"))?;
    place.set_attributes(&member.attributes(), false).map_err(member.failed("set the owner"))
}

fn hide_below(member: &Member<'_>, folder: &OwnedFd) -> Result<(), UnpackError> {
    beneath::set_xattr(folder, OsStr::new(OPAQUE), b"y").map_err(member.failed("make the folder opaque"))
}

/// `hidden` is what follows `.wh.` in the member's name.
fn whiteout(member: &Member<'_>, parent: &OwnedFd, hidden: &[u8]) -> Result<(), UnpackError> {
    if hidden == b".wh..opq" {
        return hide_below(member, parent);
    }
    if hidden.starts_with(b".wh.") {
        // AUFS kept its own books in the archive; they mean nothing here.
        return Ok(());
    }
    if matches!(hidden, b"" | b"." | b"..") {
        return Err(member.refused("it is a whiteout of no name"));
    }
    let place = Place { dir: parent, name: beneath::name(hidden) };
    match place.look().map_err(member.failed("look"))? {
        None => place.create_node(FileType::CharacterDevice, (0, 0)).map_err(member.failed("create the whiteout")),
        // The layer itself has the name: it hides what is below, a folder all of it.
        Some(there) if kind_of(&there) == FileType::Directory => {
            hide_below(member, &place.open_folder().map_err(member.failed("open the folder"))?)
        }
        Some(_) => Ok(()),
    }
}

/// Attributes that change what a program sees or may do are kept. `trusted.*` is dropped: overlayfs would act on it.
fn set_xattrs(member: &Member<'_>, fd: &impl std::os::fd::AsFd) -> Result<(), UnpackError> {
    for (name, value) in &member.entry.xattrs {
        let is_user = name.starts_with(b"user.") && !name.starts_with(b"user.overlay.");
        let is_kept = is_user || name == b"security.capability" || name.starts_with(b"system.posix_acl_");
        if !is_kept || name.contains(&0) {
            continue;
        }
        match beneath::set_xattr(fd, beneath::name(name), value) {
            // Free text that the file system cannot hold is no reason to refuse an image; a capability is.
            Err(error) if is_user && error.kind() == io::ErrorKind::Unsupported => {}
            other => other.map_err(member.failed("set an extended attribute"))?,
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests;
