//! The archive: written beside its place, for its owner only, and then renamed.

use flate2::Compression;
use flate2::write::GzEncoder;
use std::fs::File;
use std::io::{self, Write as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::Path;
use tar::{Builder, EntryType, Header};

/// Writes files into a `.tar.gz`, all in one folder. Gives its size in bytes.
///
/// # Errors
/// Of the first step that failed; what was there before is left as it was.
pub(super) fn write(path: &Path, folder: &str, seconds: u64, files: &[(String, Vec<u8>)]) -> io::Result<u64> {
    let mut beside = path.as_os_str().to_owned();
    beside.push(".part");
    let beside = Path::new(&beside);
    let written = fill(beside, folder, seconds, files).and_then(|size| std::fs::rename(beside, path).map(|()| size));
    written.inspect_err(|_| drop(std::fs::remove_file(beside)))
}

fn fill(path: &Path, folder: &str, seconds: u64, files: &[(String, Vec<u8>)]) -> io::Result<u64> {
    let file = File::options().write(true).create(true).truncate(true).mode(0o600).open(path)?;
    let mut tar = Builder::new(GzEncoder::new(file, Compression::default()));
    for (name, bytes) in files {
        let mut header = Header::new_gnu();
        header.set_entry_type(EntryType::Regular);
        header.set_size(bytes.len() as u64);
        header.set_mode(0o600);
        header.set_mtime(seconds);
        tar.append_data(&mut header, format!("{folder}/{name}"), bytes.as_slice())?;
    }
    let mut file = tar.into_inner()?.finish()?;
    file.flush()?;
    file.sync_all()?;
    Ok(file.metadata()?.len())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Read as _;
    use std::os::unix::fs::PermissionsExt as _;

    #[test]
    fn what_is_written_can_be_read_by_its_owner() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("x.tar.gz");
        std::fs::write(&path, "before").unwrap();
        let files = [("README".to_owned(), b"text".to_vec()), ("pods/a.json".to_owned(), vec![b'x'; 100_000])];
        let size = write(&path, "bundle", 7, &files).unwrap();
        let metadata = std::fs::metadata(&path).unwrap();
        assert_eq!((metadata.len(), metadata.permissions().mode() & 0o777), (size, 0o600));
        assert!(size < 10_000);
        let mut tar = tar::Archive::new(flate2::read::GzDecoder::new(File::open(&path).unwrap()));
        let mut got = Vec::new();
        for entry in tar.entries().unwrap() {
            let mut entry = entry.unwrap();
            let mut bytes = Vec::new();
            entry.read_to_end(&mut bytes).unwrap();
            got.push((entry.path().unwrap().display().to_string(), bytes));
        }
        assert_eq!(got, files.clone().map(|(name, bytes)| (format!("bundle/{name}"), bytes)));
        assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 1);
        assert!(write(&folder.path().join("no/x.tar.gz"), "b", 0, &files).is_err());
    }
}
