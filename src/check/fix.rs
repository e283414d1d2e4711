//! Writing the firmware's command line file.

use super::board::BootFile;
use super::cmdline::{Edit, EditError, edit};
use crate::sys::durable;
use std::io;
use std::path::PathBuf;

/// What was done.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Fixed {
    /// Nothing was missing.
    AsItWas,
    /// The file was written; the one before is kept beside it.
    Written {
        /// What is in it now.
        text: String,
        /// Where the old content is.
        backup: PathBuf,
    },
}

/// Why the file was not changed.
#[derive(Debug, thiserror::Error)]
pub enum FixError {
    /// It cannot be edited without guessing.
    #[error("{} was left alone", path.display())]
    Edit {
        /// The file.
        path: PathBuf,
        /// Why.
        source: EditError,
    },
    /// It could not be written.
    #[error("failed to {operation} {}", path.display())]
    File {
        /// What was tried.
        operation: &'static str,
        /// The file.
        path: PathBuf,
        /// Why not.
        source: io::Error,
    },
}

/// Puts `add` into the file and takes `remove` out. The new file replaces the old one as a whole, synced before; what
/// was in it before the first edit stays beside it with `.armlet-before` at the end of its name.
///
/// # Errors
/// [`FixError`]; the file is as it was.
pub fn fix(file: &BootFile, add: &[&str], remove: &[&str]) -> Result<Fixed, FixError> {
    let path = &file.path;
    let text = match edit(&file.text, add, remove) {
        Ok(Edit::AsItIs) => return Ok(Fixed::AsItWas),
        Ok(Edit::To(text)) => text,
        Err(source) => return Err(FixError::Edit { path: path.clone(), source }),
    };
    let failed = |operation, path: &PathBuf| {
        let path = path.clone();
        move |source| FixError::File { operation, path, source }
    };
    let (Some(folder), Some(name)) = (path.parent(), path.file_name().and_then(|name| name.to_str())) else {
        return Err(failed("name", path)(io::ErrorKind::InvalidInput.into()));
    };
    let old = format!("{name}.armlet-before");
    let backup = folder.join(&old);
    if !backup.exists() {
        durable::replace_file(folder, &old, file.text.as_bytes()).map_err(failed("write", &backup))?;
    }
    durable::replace_file(folder, name, text.as_bytes()).map_err(failed("write", path))?;
    Ok(Fixed::Written { text, backup })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_file_is_replaced_and_the_first_one_kept() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("cmdline.txt");
        let file = |text: &str| BootFile { path: path.clone(), text: text.to_owned() };
        std::fs::write(&path, "a\n").unwrap();
        let fixed = fix(&file("a\n"), &["b"], &[]).unwrap();
        let backup = folder.path().join("cmdline.txt.armlet-before");
        assert_eq!(fixed, Fixed::Written { text: "a b\n".to_owned(), backup: backup.clone() });
        assert_eq!(std::fs::read_to_string(&path).unwrap(), "a b\n");
        assert_eq!(fix(&file("a b\n"), &["b"], &[]).unwrap(), Fixed::AsItWas);
        fix(&file("a b\n"), &["c"], &["b"]).unwrap();
        assert_eq!(std::fs::read_to_string(&path).unwrap(), "a c\n");
        assert_eq!(std::fs::read_to_string(&backup).unwrap(), "a\n", "what was there before the first edit");
        assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 2, "nothing else is left");
    }

    #[test]
    fn a_file_that_is_not_understood_stays() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("cmdline.txt");
        std::fs::write(&path, "a\nb\n").unwrap();
        let error = fix(&BootFile { path: path.clone(), text: "a\nb\n".to_owned() }, &["c"], &[]).unwrap_err();
        assert!(matches!(error, FixError::Edit { source: EditError::SeveralLines(2), .. }), "{error:?}");
        assert_eq!(std::fs::read_to_string(&path).unwrap(), "a\nb\n");
    }
}
