//! Images for the API, and the preload folder.

use super::input::Input;
use crate::executor::Rooms;
use crate::images::{ImageStore, Progress, Reference, RemoveError};
use crate::model::ImageId;
use crate::model::api::{Image, ImportProgress, Removed};
use crate::model::supervise::RefusalCode;
use crate::server::Refusal;
use crate::sys::clock;
use crate::sys::log::chain;
use std::collections::BTreeMap;
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use tokio::sync::{mpsc, oneshot};

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

/// What is to be done to remove images. `needed` tells which pod needs an image.
fn removal(
    images: &[crate::images::Image],
    needed: &BTreeMap<ImageId, String>,
    name: Option<&str>,
    found: Option<&crate::images::Image>,
) -> Result<Vec<Removal>, Refusal> {
    let whole = |image: &crate::images::Image| Removal::Image(image.id.clone());
    let Some(name) = name else {
        return Ok(images.iter().filter(|image| !needed.contains_key(&image.id)).map(whole).collect());
    };
    let refuse = |code, message| Err(Refusal { code, message });
    let Some(image) = found else {
        return refuse(RefusalCode::NotFound, format!("there is no image {name:?} on this node"));
    };
    if let Some(pod) = needed.get(&image.id) {
        return refuse(RefusalCode::Conflict, format!("image {name:?} is needed by pod {pod}"));
    }
    let tag = match Reference::parse(name) {
        Ok(tag @ Reference::Tag { .. }) if image.references.len() > 1 => Some(tag.to_string()),
        _ => None,
    };
    Ok(vec![tag.map_or_else(|| whole(image), Removal::Name)])
}

/// One thing to take away.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Removal {
    /// A name of an image that has others.
    Name(String),
    /// An image with all its names.
    Image(ImageId),
}

/// Removes an image, one of its names, or all images that no pod needs, and answers. It goes on when nobody waits any
/// more.
pub(super) fn remove(
    rooms: &Arc<Rooms>,
    name: Option<String>,
    needed: BTreeMap<ImageId, String>,
    answer: oneshot::Sender<Result<Removed, Refusal>>,
) {
    let rooms = Arc::clone(rooms);
    tokio::task::spawn_blocking(move || {
        let images = rooms.images.list();
        let found = name.as_deref().and_then(|name| rooms.images.resolve(name));
        let done = removal(&images, &needed, name.as_deref(), found.as_ref());
        let done = done.and_then(|steps| take_away(&rooms.images, &images, &steps));
        // Whoever went away does not want to know.
        let _ = answer.send(done);
    });
}

fn take_away(store: &ImageStore, images: &[crate::images::Image], steps: &[Removal]) -> Result<Removed, Refusal> {
    let failed = |error: RemoveError| {
        let code =
            if matches!(error, RemoveError::Unknown { .. }) { RefusalCode::NotFound } else { RefusalCode::System };
        Refusal { code, message: chain(&error) }
    };
    let bytes = || store.layer_bytes();
    let before = bytes();
    let mut removed = Removed::default();
    for step in steps {
        match step {
            Removal::Name(name) => {
                store.untag(name).map_err(failed)?;
                removed.names.push(name.clone());
            }
            Removal::Image(id) => {
                store.remove(id).map_err(failed)?;
                removed.names.extend(images.iter().filter(|i| i.id == *id).flat_map(|i| i.references.clone()));
                removed.images.push(id.clone());
            }
        }
    }
    removed.bytes = before.saturating_sub(bytes());
    Ok(removed)
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

#[cfg(test)]
mod tests {
    use super::*;

    fn image(id: &str, names: &[&str]) -> crate::images::Image {
        crate::images::Image {
            id: ImageId::new(id).unwrap(),
            references: names.iter().map(|n| (*n).to_owned()).collect(),
            digests: Vec::new(),
            layers: Vec::new(),
            config: Default::default(),
            architecture: "arm64".to_owned(),
            size_bytes: 1,
            imported_at: Default::default(),
        }
    }

    #[test]
    fn only_what_no_pod_needs_is_removed() {
        let images = [image("0a", &["docker.io/library/a:1"]), image("0b", &["localhost/b:1", "localhost/b:2"])];
        let id = |text: &str| ImageId::new(text).unwrap();
        let needed = BTreeMap::from([(id("0a"), "shop/web".to_owned())]);
        let none = BTreeMap::new();
        let plan = |needed, name: Option<&str>, found: Option<usize>| {
            removal(&images, needed, name, found.map(|at| &images[at])).map_err(|refusal| refusal.message)
        };
        assert_eq!(plan(&none, Some("a:1"), Some(0)), Ok(vec![Removal::Image(id("0a"))]));
        assert_eq!(plan(&needed, Some("a:1"), Some(0)), Err("image \"a:1\" is needed by pod shop/web".to_owned()));
        assert_eq!(plan(&none, Some("localhost/b:1"), Some(1)), Ok(vec![Removal::Name("localhost/b:1".to_owned())]));
        let whole = format!("sha256:{}", "0".repeat(64));
        assert_eq!(plan(&none, Some(&whole), Some(1)), Ok(vec![Removal::Image(id("0b"))]));
        assert_eq!(plan(&none, Some("x"), None), Err("there is no image \"x\" on this node".to_owned()));
        assert_eq!(plan(&needed, None, None), Ok(vec![Removal::Image(id("0b"))]));
        assert_eq!(plan(&none, None, None).map(|steps| steps.len()), Ok(2));
    }
}
