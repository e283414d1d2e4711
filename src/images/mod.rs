//! The image store: import, verify, unpack, delete. Decides no policy: what to keep, when to collect and when to pull
//! is told by the caller.
//!
//! Every call blocks on the disk: an async caller runs it on a thread for blocking work. All calls take `&self` and may
//! run side by side; imports wait for each other, so that memory stays flat.
//!
//! On disk, below the store's root:
//! - `<image id>.json`: one record per image, written last and atomically. An image without a record does not exist.
//! - `layers/<diff id>/`: one unpacked layer, usable as an overlay lower folder as it is. Shared between images.
//! - `layers/.new-<n>/`: a layer that is being unpacked. Removed when the store is opened.
//! - `preload.json`: what was already imported from the preload folder.

mod compress;
mod digest;
mod image;
mod reference;
mod tar;
mod unpack;

pub use image::{Image, ImageConfig};
pub use reference::{Reference, ReferenceError};
