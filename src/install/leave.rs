//! What stopped pods leave on a machine, and whose it is. Other programs have cgroups, logs and links of the same kinds.

use std::collections::BTreeSet;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

/// A folder's entries; none where there is no folder.
fn entries(folder: &Path) -> io::Result<Vec<PathBuf>> {
    match fs::read_dir(folder) {
        Ok(entries) => entries.map(|entry| Ok(entry?.path())).collect(),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(Vec::new()),
        Err(error) => Err(error),
    }
}

/// The UIDs of the pods that have a folder here.
pub(super) fn pods(folder: &Path) -> io::Result<BTreeSet<String>> {
    let names = entries(folder)?.into_iter().filter_map(|path| Some(path.file_name()?.to_str()?.to_owned()));
    Ok(names.collect())
}

/// Those of these pods that still have a process, by the groups below `kubepods`.
pub(super) fn alive(groups: &Path, pods: &BTreeSet<String>) -> io::Result<Vec<String>> {
    let mut alive = Vec::new();
    for class in ["", "burstable", "besteffort"] {
        for pod in pods {
            let events = groups.join(class).join(format!("pod{pod}")).join("cgroup.events");
            match fs::read_to_string(&events) {
                Ok(text) if text.lines().any(|line| line == "populated 1") => alive.push(pod.clone()),
                Ok(_) => {}
                Err(error) if error.kind() == io::ErrorKind::NotFound => {}
                Err(error) => return Err(error),
            }
        }
    }
    Ok(alive)
}

/// The folders of these pods' logs: `<namespace>_<name>_<uid>`.
pub(super) fn logs(folder: &Path, pods: &BTreeSet<String>) -> io::Result<Vec<PathBuf>> {
    let own = |path: &PathBuf| {
        let name = path.file_name().and_then(|name| name.to_str());
        name.and_then(|name| name.rsplit_once('_')).is_some_and(|(_, uid)| pods.contains(uid))
    };
    Ok(entries(folder)?.into_iter().filter(own).collect())
}

/// The list of folders in this file, as far as they are folders in `parent`; nothing without the file.
pub(super) fn noted(list: &Path, parent: &Path) -> io::Result<BTreeSet<PathBuf>> {
    let text = match fs::read_to_string(list) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => String::new(),
        other => other?,
    };
    let folders = text.lines().map(PathBuf::from);
    Ok(folders.filter(|path| path.parent() == Some(parent) && path.file_name().is_some() && path.is_dir()).collect())
}

/// The links of a folder that lead into one of these folders.
pub(super) fn links_into(links: &Path, folders: &BTreeSet<PathBuf>) -> io::Result<Vec<PathBuf>> {
    let leads =
        |link: &PathBuf| fs::read_link(link).is_ok_and(|to| folders.iter().any(|folder| to.starts_with(folder)));
    Ok(entries(links)?.into_iter().filter(leads).collect())
}

/// Removes a cgroup with all below it. A group that is not empty stays, and so do those above it. Gives whether all went.
pub(super) fn remove_groups(group: &Path) -> io::Result<bool> {
    let mut all = true;
    for path in entries(group)?.into_iter().filter(|path| path.is_dir()) {
        all &= remove_groups(&path)?;
    }
    if !all {
        return Ok(false);
    }
    match fs::remove_dir(group) {
        Ok(()) => Ok(true),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(true),
        Err(error) if matches!(error.kind(), io::ErrorKind::ResourceBusy | io::ErrorKind::DirectoryNotEmpty) => {
            Ok(false)
        }
        Err(error) => Err(error),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_pods_of_ours_left_is_found() {
        let root = tempfile::tempdir().unwrap();
        let at = |path: &str| root.path().join(path);
        for folder in ["run/aa", "run/bb", "logs/default_web_aa", "logs/default_other_cc", "logs/odd", "groups/podbb"] {
            fs::create_dir_all(at(folder)).unwrap();
        }
        for (class, pod, populated) in [("burstable", "aa", 1), ("besteffort", "cc", 1)] {
            let group = at("groups").join(class).join(format!("pod{pod}"));
            fs::create_dir_all(&group).unwrap();
            fs::write(group.join("cgroup.events"), format!("populated {populated}\nfrozen 0\n")).unwrap();
        }
        let pods = pods(&at("run")).unwrap();
        assert_eq!(pods.iter().collect::<Vec<_>>(), ["aa", "bb"]);
        assert_eq!(alive(&at("groups"), &pods).unwrap(), ["aa"]);
        assert_eq!(logs(&at("logs"), &pods).unwrap(), [at("logs/default_web_aa")]);
        assert!(super::pods(&at("absent")).unwrap().is_empty());
    }

    #[test]
    fn a_list_leads_nowhere_else() {
        let root = tempfile::tempdir().unwrap();
        let logs = root.path().join("logs");
        for folder in ["logs/a_b_c", "logs/a_b_c/main", "precious"] {
            fs::create_dir_all(root.path().join(folder)).unwrap();
        }
        let list = root.path().join("list");
        assert!(noted(&list, &logs).unwrap().is_empty());
        let lines = ["logs/a_b_c", "logs/gone", "logs/a_b_c/main", "logs", "precious", "logs/../precious", "logs/.."];
        let text: String = lines.map(|line| format!("{}\n", root.path().join(line).display())).concat();
        fs::write(&list, text).unwrap();
        assert_eq!(noted(&list, &logs).unwrap().into_iter().collect::<Vec<_>>(), [logs.join("a_b_c")]);
    }

    #[test]
    fn links_are_known_by_where_they_lead() {
        let root = tempfile::tempdir().unwrap();
        let at = |path: &str| root.path().join(path);
        fs::create_dir(at("links")).unwrap();
        std::os::unix::fs::symlink(at("logs/own/main/0.log"), at("links/own")).unwrap();
        std::os::unix::fs::symlink(at("logs/own-not/main/0.log"), at("links/other")).unwrap();
        fs::write(at("links/file"), "").unwrap();
        let found = links_into(&at("links"), &BTreeSet::from([at("logs/own")])).unwrap();
        assert_eq!(found, [at("links/own")]);
    }

    #[test]
    fn groups_go_from_below_and_full_ones_stay() {
        let root = tempfile::tempdir().unwrap();
        let at = |path: &str| root.path().join(path);
        for folder in ["pods/empty/inner", "pods/full"] {
            fs::create_dir_all(at(folder)).unwrap();
        }
        // A file stands for the process that keeps a group.
        fs::write(at("pods/full/process"), "").unwrap();
        assert!(!remove_groups(&at("pods")).unwrap());
        assert!(!at("pods/empty").exists() && at("pods/full").exists());
        fs::remove_file(at("pods/full/process")).unwrap();
        for _ in 0..2 {
            assert!(remove_groups(&at("pods")).unwrap());
        }
        assert!(!at("pods").exists());
    }
}
