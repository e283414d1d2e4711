//! Arguments, variables and the working directory.

use super::{ImageDefaults, Inputs};
use crate::model::pod::Container;
use std::path::{Path, PathBuf};

/// What a program gets that was given no PATH.
const PATH: &str = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";

/// `command` replaces the image's entry point and drops its command; `args` replaces the image's command.
pub(super) fn args(container: &Container, image: ImageDefaults<'_>) -> Vec<String> {
    let (program, arguments) = match (container.command.as_slice(), container.args.as_slice()) {
        ([], []) => (image.entrypoint, image.command),
        ([], args) => (image.entrypoint, args),
        (command, args) => (command, args),
    };
    [program, arguments].concat()
}

/// The image's variables, then the container's; a later one replaces an earlier one in its place.
pub(super) fn env(inputs: &Inputs<'_>, home: &str) -> Vec<String> {
    let mut env = Variables::default();
    for variable in inputs.image.env {
        let (name, value) = variable.split_once('=').unwrap_or((variable, ""));
        env.set(name, value);
    }
    env.set("HOSTNAME", inputs.hostname);
    for (name, value) in &inputs.container.env {
        env.set(name, value);
    }
    env.fill("PATH", PATH);
    env.fill("HOME", home);
    if inputs.container.tty {
        env.fill("TERM", "xterm");
    }
    env.0.into_iter().map(|(name, value)| format!("{name}={value}")).collect()
}

#[derive(Debug, Default)]
struct Variables(Vec<(String, String)>);

impl Variables {
    fn set(&mut self, name: &str, value: &str) {
        match self.0.iter_mut().find(|(known, _)| known == name) {
            Some((_, old)) => value.clone_into(old),
            None if name.is_empty() => {}
            None => self.0.push((name.to_owned(), value.to_owned())),
        }
    }

    /// Sets what is absent or empty.
    fn fill(&mut self, name: &str, value: &str) {
        if !self.0.iter().any(|(known, old)| known == name && !old.is_empty()) {
            self.set(name, value);
        }
    }
}

/// The container's, else the image's, else `/`. Always absolute.
pub(super) fn working_dir(inputs: &Inputs<'_>) -> PathBuf {
    let own = inputs.container.working_dir.as_deref().unwrap_or_default();
    let path = if own.is_empty() { inputs.image.working_dir } else { own };
    Path::new("/").join(path)
}
