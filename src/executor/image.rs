//! Images: there or not. This version has no registry client, so what is not there cannot be fetched.

use super::Rooms;
use super::failure::{because, failed};
use crate::images::Reference;
use crate::model::action::Outcome;
use crate::model::observed::Image;
use crate::model::pod::{Pod, PullPolicy};
use std::collections::BTreeMap;

/// Sees to it that an image is there. The reasons are those of the kubelet (`pkg/kubelet/images/types.go`).
pub(super) fn ensure(rooms: &Rooms, reference: &str, policy: PullPolicy) -> Outcome {
    if let Err(error) = Reference::parse(reference) {
        return because("InvalidImageName", &error);
    }
    let found = rooms.images.resolve(reference);
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
    let image = rooms.images.resolve(reference)?;
    let stop = Some(image.config.stop_signal.clone()).filter(|signal| !signal.is_empty());
    Some(Image { digest: shown_id(&image), id: image.id, stop_signal: stop })
}

/// What a container's `imageID` shows: the repository with the manifest's digest, or the image's own id where an
/// archive gave none.
fn shown_id(image: &crate::images::Image) -> String {
    let repository = image.references.first().map(|name| repository(name));
    match (repository, image.digests.first()) {
        (Some(repository), Some(digest)) => format!("{repository}@{digest}"),
        _ => format!("sha256:{}", image.id),
    }
}

/// A full name without its tag or digest.
fn repository(name: &str) -> &str {
    let name = name.split_once('@').map_or(name, |(name, _)| name);
    match name.rsplit_once(':') {
        Some((repository, tag)) if !tag.contains('/') => repository,
        _ => name,
    }
}

#[cfg(test)]
mod tests {
    use super::repository;

    #[test]
    fn a_repository_is_a_name_without_its_tag() {
        assert_eq!(repository("docker.io/library/redis:8"), "docker.io/library/redis");
        assert_eq!(repository("localhost:5000/redis"), "localhost:5000/redis");
        assert_eq!(repository("a.b/c:d@sha256:00"), "a.b/c");
    }
}
