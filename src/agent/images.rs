//! Images for the API, and the preload folder.

use super::input::Input;
use crate::executor::Rooms;
use crate::images::Progress;
use crate::model::api::{Image, ImportProgress};
use crate::sys::clock;
use crate::sys::log::chain;
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use tokio::sync::mpsc;

/// All images, as the API shows them.
pub(super) fn list(rooms: &Rooms) -> Vec<Image> {
    rooms.images.list().iter().map(shown).collect()
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
        let mut last = String::new();
        let mut tell = |step: Progress| {
            let text = text(step);
            if text == last {
                return ControlFlow::Continue(());
            }
            last.clone_from(&text);
            // A client that reads slowly misses steps, one that went away all of them: neither stops the import.
            let _ = steps.try_send(ImportProgress::Step { text });
            ControlFlow::Continue(())
        };
        at.images.import(&path, None, clock::now().wall, &mut tell)
    })
    .await;
    let last = match done {
        Ok(Ok(images)) => ImportProgress::Done { images: images.iter().map(shown).collect() },
        Ok(Err(error)) => ImportProgress::Failed { message: chain(&error) },
        Err(error) => ImportProgress::Failed { message: chain(&error) },
    };
    let _ = progress.send(last).await;
}

fn text(step: Progress) -> String {
    let Progress { layers_done, layers, bytes } = step;
    format!("{layers_done} of {layers} layers unpacked, {} MiB written", bytes >> 20)
}

/// Imports what is new in the preload folder, beside everything else: pods that need none of it do not wait.
pub(super) fn preload(rooms: Arc<Rooms>, tell: mpsc::UnboundedSender<Input>) {
    tokio::task::spawn_blocking(move || {
        let folder = Path::new(&rooms.config.preload_dir);
        let preloaded = rooms.images.preload(folder, clock::now().wall, &mut |_| ControlFlow::Continue(()));
        for image in &preloaded.imported {
            tracing::info!(image = %image.id, names = ?image.references, "preloaded");
        }
        for (archive, error) in &preloaded.failed {
            tracing::error!(archive = %archive.display(), "preload: {}", chain(error));
        }
        // Pods may have waited for them; a loop that has ended needs no telling.
        let _ = tell.send(Input::LookAtAll);
    });
}
