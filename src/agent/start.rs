//! From a configuration to a running loop.

use super::desired::Desired;
use super::input::Input;
use super::journal::Journal;
use super::looping::Looping;
use super::mirror::Mirror;
use super::pass::LAST_ADDRESS;
use super::publish::Publisher;
use super::slot::{Saved, Slot};
use crate::config::Config;
use crate::executor::{self, Rooms, RoomsError};
use crate::model::PodUid;
use crate::model::observed::Facts;
use crate::observe;
use crate::server;
use crate::store::{Opened, Store};
use crate::sys::clock;
use crate::wire::NodeIdentity;
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::sync::Arc;
use tokio::sync::mpsc;

/// Key of the node's name in the store: it goes into every static pod's UID, so it must outlive a new host name.
const NODE_NAME: &str = "node-name";

/// Why the agent cannot run.
#[derive(Debug, thiserror::Error)]
pub enum AgentError {
    /// The event loop could not be made.
    #[error("start the agent's event loop")]
    Runtime(#[source] std::io::Error),
    /// A room could not be opened.
    #[error("open the agent's rooms")]
    Rooms(#[from] RoomsError),
    /// The API's socket could not be opened.
    #[error("open the API")]
    Server(#[from] server::ServerError),
    /// The manifest folder cannot be watched.
    #[error("watch the manifests")]
    Manifests(#[from] super::manifests::WatchError),
}

/// Runs the agent until it is told to end. Containers go on without it.
///
/// # Errors
/// [`AgentError`] when it cannot begin; once it runs it does not fail.
pub fn run(config: Config, probe: &dyn Fn(&Path) -> bool) -> Result<(), AgentError> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .max_blocking_threads(6)
        .thread_stack_size(512 * 1024)
        .thread_keep_alive(std::time::Duration::from_secs(2))
        .build()
        .map_err(AgentError::Runtime)?;
    runtime.block_on(begin(config, probe))
}

async fn begin(config: Config, probe: &dyn Fn(&Path) -> std::io::Result<bool>) -> Result<(), AgentError> {
    let (inputs, from) = mpsc::unbounded_channel();
    let opened = Store::open(&Path::new(&config.data_dir).join("store"), probe);
    for problem in &opened.problems {
        tracing::warn!("{}", crate::sys::log::chain(problem));
    }
    let node_name = node_name(&config, &opened.store);
    let rooms = Arc::new(Rooms::open(config, node_name.clone())?);
    let (publisher, view) = Publisher::new(node_name.clone());
    let (commands, asked) = mpsc::channel(64);

    let listener = server::bind(Path::new(&rooms.config.socket_path))?;
    tokio::spawn(server::serve(listener, server::Context { view, commands, clock: clock::now }));
    tokio::spawn(pass_on(asked, inputs.clone(), Input::Command));
    let manifests = super::manifests::watch(Path::new(&rooms.config.static_pod_path))?;
    tokio::spawn(pass_on(manifests, inputs.clone(), Input::Manifests));
    tokio::spawn(end_on_signal(inputs.clone()));
    super::supervision::connect(Arc::clone(&rooms), inputs.clone());
    super::images::preload(Arc::clone(&rooms), inputs.clone());

    let looping = looping(rooms, opened, publisher, inputs, &node_name);
    looping.run(from).await;
    Ok(())
}
