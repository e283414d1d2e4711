//! Images for the API, and the preload folder.

use super::commands::system;
use super::input::Input;
use crate::executor::Rooms;
use crate::model::api::{Image, ImportProgress};
use crate::server::Refusal;
use crate::sys::log::chain;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use tokio::sync::mpsc;

/// All images, as the API shows them.
pub(super) fn list(rooms: &Rooms) -> Result<Vec<Image>, Refusal> {
    let images = rooms.images.list().map_err(|error| system(&error))?;
    Ok(images.iter().map(shown).collect())
}

fn shown(image: &crate::images::Image) -> Image {
    Image {
        id: image.id.clone(),
        names: image.references.clone(),
        bytes: image.size_bytes,
        architecture: image.architecture.clone(),
    }
}

/// Imports an archive and tells how it goes.
pub(super) async fn import(rooms: &Arc<Rooms>, path: PathBuf, progress: mpsc::Sender<ImportProgress>) {
    let at = Arc::clone(rooms);
    let steps = progress.clone();
    let done = tokio::task::spawn_blocking(move || {
        let mut tell = |text: String| {
            // A client that went away does not stop the import.
            let _ = steps.blocking_send(ImportProgress::Step { text });
        };
        at.images.import(&path, &mut |step| tell(step.to_string()))
    })
    .await;
    let last = match done {
        Ok(Ok(images)) => ImportProgress::Done { images: images.iter().map(shown).collect() },
        Ok(Err(error)) => ImportProgress::Failed { message: chain(&error) },
        Err(error) => ImportProgress::Failed { message: chain(&error) },
    };
    let _ = progress.send(last).await;
}

/// Imports what is new in the preload folder, beside everything else: pods that need none of it do not wait.
pub(super) fn preload(rooms: Arc<Rooms>, tell: mpsc::UnboundedSender<Input>) {
    tokio::task::spawn_blocking(move || {
        let folder = Path::new(&rooms.config.preload_dir);
        for (archive, imported) in rooms.images.preload(folder) {
            match imported {
                Ok(images) => tracing::info!(archive = %archive.display(), images = images.len(), "preloaded"),
                Err(error) => tracing::error!(archive = %archive.display(), "preload: {}", chain(&error)),
            }
        }
        // Pods may have waited for them; a loop that has ended needs no telling.
        let _ = tell.send(Input::LookAtAll);
    });
}
