//! What goes wrong with images.

use super::reference::ReferenceError;
use super::tar_reader::TarError;
use super::unpack::UnpackError;
use std::io;
use std::path::PathBuf;

/// Why an import failed. Nothing of it is left behind then.
#[derive(Debug, thiserror::Error)]
pub enum ImportError {
    /// The source cannot be read.
    #[error("cannot read {}", path.display())]
    Read {
        /// The file or folder.
        path: PathBuf,
        /// The kernel's or the decoder's answer.
        #[source]
        source: io::Error,
    },
    /// The source is no image in a form that is known.
    #[error("{} is no image: {why}", path.display())]
    Form {
        /// The file or folder.
        path: PathBuf,
        /// What is missing or too much.
        why: &'static str,
    },
    /// The archive around the image is broken.
    #[error("{} is broken", path.display())]
    Archive {
        /// The file.
        path: PathBuf,
        /// Where it breaks the format.
        #[source]
        source: TarError,
    },
    /// A part of the image is missing or not usable.
    #[error("{member} in {} cannot be used: {why}", path.display())]
    Member {
        /// The file or folder.
        path: PathBuf,
        /// The part.
        member: String,
        /// What is wrong with it.
        why: &'static str,
    },
    /// A part of the image is no valid JSON of its kind.
    #[error("{member} in {} is malformed", path.display())]
    Json {
        /// The file or folder.
        path: PathBuf,
        /// The part.
        member: String,
        /// Where.
        #[source]
        source: serde_json::Error,
    },
    /// Content is not what its digest says: damaged, or tampered with.
    #[error("{member} in {} has digest {found} instead of {expected}", path.display())]
    Digest {
        /// The file or folder.
        path: PathBuf,
        /// The part.
        member: String,
        /// What refers to it says so.
        expected: String,
        /// What it is.
        found: String,
    },
    /// The image is for other machines.
    #[error("{image} in {} is for {}, and this node runs {host}", path.display(), offered.join(", "))]
    Platform {
        /// The file or folder.
        path: PathBuf,
        /// Its name.
        image: String,
        /// What it is built for.
        offered: Vec<String>,
        /// What this node runs.
        host: String,
    },
    /// A name in the source, or the one asked for, is not valid.
    #[error(transparent)]
    Name(#[from] ReferenceError),
    /// One name was given for a source of several images.
    #[error("{} holds {count} images, which cannot all be named {name}", path.display())]
    Ambiguous {
        /// The file or folder.
        path: PathBuf,
        /// How many.
        count: usize,
        /// The name asked for.
        name: String,
    },
    /// A layer was refused, or could not be written.
    #[error("layer {layer} in {} cannot be unpacked", path.display())]
    Layer {
        /// The file or folder.
        path: PathBuf,
        /// The layer's member.
        layer: String,
        /// What is wrong.
        #[source]
        source: UnpackError,
    },
    /// The store cannot be written.
    #[error("cannot {operation} {}", path.display())]
    Write {
        /// What was tried.
        operation: &'static str,
        /// On which path.
        path: PathBuf,
        /// The kernel's answer.
        #[source]
        source: io::Error,
    },
}

impl ImportError {
    /// The same source fails again: it is damaged, hostile or not for this node. Otherwise the machine is to blame.
    #[must_use]
    pub const fn is_permanent(&self) -> bool {
        match self {
            Self::Read { .. } | Self::Write { .. } => false,
            Self::Layer { source, .. } => {
                matches!(source, UnpackError::Archive(TarError::Format(_)) | UnpackError::Refused { .. })
            }
            Self::Form { .. }
            | Self::Archive { .. }
            | Self::Member { .. }
            | Self::Json { .. }
            | Self::Digest { .. }
            | Self::Platform { .. }
            | Self::Name(_)
            | Self::Ambiguous { .. } => true,
        }
    }
}

/// Why an image was not removed.
#[derive(Debug, thiserror::Error)]
pub enum RemoveError {
    /// There is no image of this id.
    #[error("there is no image {id}")]
    Unknown {
        /// As asked for.
        id: String,
    },
    /// Its record could not be written without the name: it has it still.
    #[error("cannot take a name away from image {id}")]
    Record {
        /// Which image.
        id: String,
        /// Why not.
        #[source]
        source: Box<ImportError>,
    },
    /// Its record could not be removed: it is still there as a whole.
    #[error("cannot remove {}", path.display())]
    Io {
        /// The record.
        path: PathBuf,
        /// The kernel's answer.
        #[source]
        source: io::Error,
    },
}
