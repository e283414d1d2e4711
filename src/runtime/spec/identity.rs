//! Who the program runs as.

use super::{Inputs, SpecError};
use crate::runtime::accounts::{self, ImageUser};

/// User and groups of a container.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Runs {
    pub(super) uid: u32,
    pub(super) gid: u32,
    /// Supplementary groups. The primary one is among them: else a file that refuses it something would not refuse
    /// it to a program that changes its primary group (CVE-2022-36109).
    pub(super) groups: Vec<u32>,
    pub(super) home: String,
}

/// By the security context, else by the image (`pkg/kubelet/kuberuntime/security_context*.go`).
pub(super) fn of(inputs: &Inputs<'_>) -> Result<Runs, SpecError> {
    let security = &inputs.container.security;
    let image = ImageUser::parse(inputs.image.user);
    if security.run_as_non_root {
        not_root(inputs, image)?;
    }
    let number = security.run_as_user.map(|uid| uid.to_string());
    let user = match &number {
        Some(uid) => ImageUser { user: uid, group: None },
        None => image,
    };
    let (passwd, group) = (accounts::parse_passwd(inputs.passwd), accounts::parse_group(inputs.group));
    let found = accounts::look_up(user, &passwd, &group)?;
    let gid = security.run_as_group.unwrap_or(found.gid);
    let mut groups = vec![gid];
    let memberships = if security.strict_groups { &[] } else { found.groups.as_slice() };
    for group in memberships.iter().chain(&security.groups) {
        if !groups.contains(group) {
            groups.push(*group);
        }
    }
    Ok(Runs { uid: found.uid, gid, groups, home: found.home })
}

fn not_root(inputs: &Inputs<'_>, image: ImageUser<'_>) -> Result<(), SpecError> {
    let pod = format!("{}_{}({})", inputs.pod.name, inputs.pod.namespace, inputs.pod.uid);
    let container = inputs.container.name.clone();
    match (inputs.container.security.run_as_user, image.uid()) {
        (Some(0), _) => Err(SpecError::RunAsRoot { pod, container }),
        (Some(_), _) => Ok(()),
        (None, Some(0)) => Err(SpecError::ImageOfRoot { pod, container }),
        (None, Some(_)) => Ok(()),
        (None, None) => Err(SpecError::NameOfUser { user: image.user.to_owned(), pod, container }),
    }
}
