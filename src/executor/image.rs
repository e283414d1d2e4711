//! Images: there or not. This version has no registry client, so what is not there cannot be fetched.

use super::Rooms;
use super::failure::{because, failed};
use crate::model::ImageId;
use crate::model::action::Outcome;
use crate::model::observed::Image;
use crate::model::pod::{Pod, PullPolicy};
use std::collections::BTreeMap;
use std::sync::Arc;

/// Sees to it that an image is there. The reasons are those of the kubelet (`pkg/kubelet/images/types.go`).
pub(super) async fn ensure(rooms: &Arc<Rooms>, reference: String, policy: PullPolicy) -> Outcome {
    let at = Arc::clone(rooms);
    let wanted = reference.clone();
    let found = tokio::task::spawn_blocking(move || at.images.resolve(&wanted)).await;
    let found = match found {
        Ok(Ok(found)) => found,
        Ok(Err(error)) => return because("InvalidImageName", &error),
        Err(error) => return because("ImageInspectError", &error),
    };
    match (found, policy) {
        (Some(image), PullPolicy::IfNotPresent | PullPolicy::Never) => {
            Outcome::Image { id: image.id.clone(), fetched: None }
        }
        (None, PullPolicy::Never) => failed(
            "ErrImageNeverPull",
            format!("Container image \"{reference}\" is not present with pull policy of Never"),
        ),
        (Some(_), PullPolicy::Always) => failed(
            "ErrImagePull",
            format!(
                "\"{reference}\" is on this node, but imagePullPolicy Always asks a registry each time and this version \
                 of armlet has no registry client; set imagePullPolicy: IfNotPresent"
            ),
        ),
        (None, PullPolicy::Always | PullPolicy::IfNotPresent) => failed(
            "ErrImagePull",
            format!(
                "\"{reference}\" is not on this node and this version of armlet has no registry client; bring it with \
                 `armlet import FILE`"
            ),
        ),
    }
}

/// The images of a pod that are there, by the reference that its spec writes.
pub fn images_of(rooms: &Rooms, pod: &Pod) -> BTreeMap<String, Image> {
    let containers = pod.spec.init_containers.iter().chain(&pod.spec.containers);
    containers.filter_map(|c| Some((c.image.clone(), seen(rooms, &c.image)?))).collect()
}

fn seen(rooms: &Rooms, reference: &str) -> Option<Image> {
    let image = rooms.images.resolve(reference).ok()??;
    Some(Image {
        id: image.id.clone(),
        digest: image.digest.clone(),
        stop_signal: image.config.stop_signal.clone(),
    })
}

/// An image by its id.
pub(super) fn by_id(rooms: &Rooms, id: &ImageId) -> Option<crate::images::Image> {
    rooms.images.resolve(id.as_str()).ok().flatten()
}
