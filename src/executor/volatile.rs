//! Facts that a reboot makes void: one small file per pod on tmpfs, so that the next agent goes on where this one was.

use super::Rooms;
use crate::model::PodUid;
use crate::model::observed::Volatile;
use std::path::PathBuf;

fn file(rooms: &Rooms, uid: &PodUid) -> PathBuf {
    rooms.dirs(uid).run().join("facts.json")
}

/// Keeps the facts. They are a memory aid: when that fails, it is logged and the pod goes on.
pub fn keep_volatile(rooms: &Rooms, uid: &PodUid, facts: &Volatile) {
    let path = file(rooms, uid);
    let kept = std::fs::create_dir_all(rooms.dirs(uid).run())
        .and_then(|()| serde_json::to_vec(facts).map_err(std::io::Error::other))
        .and_then(|bytes| {
            let beside = path.with_extension("new");
            std::fs::write(&beside, bytes)?;
            std::fs::rename(&beside, &path)
        });
    if let Err(error) = kept {
        tracing::warn!(path = %path.display(), %error, "the pod's facts of this boot could not be kept");
    }
}

/// Forgets the facts, and the pod's folder of this boot with them.
pub fn drop_volatile(rooms: &Rooms, uid: &PodUid) {
    let folder = rooms.dirs(uid).run().to_owned();
    if let Err(error) = crate::sys::tree::remove_tree(&folder) {
        tracing::warn!("{}", crate::sys::log::chain(&error));
    }
}

/// What the agent before kept; nothing if there is no file or it cannot be read.
pub fn read_volatile(rooms: &Rooms, uid: &PodUid) -> Volatile {
    let Ok(bytes) = std::fs::read(file(rooms, uid)) else { return Volatile::default() };
    serde_json::from_slice(&bytes).unwrap_or_else(|error| {
        tracing::warn!(pod = %uid, %error, "the pod's facts of this boot cannot be understood");
        Volatile::default()
    })
}
