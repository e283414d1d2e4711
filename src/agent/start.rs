//! From a configuration to a running loop.

use super::desired::Desired;
use super::input::Input;
use super::journal::Journal;
use super::looping::Looping;
use super::mirror::Mirror;
use super::node_log::NodeLog;
use super::pass::{LAST_ADDRESS, LastAddress};
use super::publish::Publisher;
use super::slot::{Saved, Slot};
use super::verbs::Verbs;
use crate::config::Config;
use crate::executor::{self, Rooms, RoomsError};
use crate::model::PodUid;
use crate::model::observed::Facts;
use crate::observe::{self, Ledgers};
use crate::plan;
use crate::server;
use crate::store::{Probe, Store};
use crate::sys::log::chain;
use crate::sys::{clock, files};
use crate::wire::NodeIdentity;
use std::collections::{BTreeMap, BTreeSet};
use std::fs::File;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::mpsc;

/// Key of the node's name in the store: it goes into every static pod's UID, so it must outlive a new host name.
const NODE_NAME: &str = "node-name";

/// Why the agent cannot run.
#[derive(Debug, thiserror::Error)]
pub enum AgentError {
    /// The event loop could not be made.
    #[error("start the agent's event loop")]
    Runtime(#[source] std::io::Error),
    /// The journal's thread could not be made.
    #[error("start the journal")]
    Thread(#[source] std::io::Error),
    /// Another agent runs on this node.
    #[error("another agent holds {}", path.display())]
    Locked {
        /// The lock file.
        path: PathBuf,
    },
    /// The lock could not be tried.
    #[error("take the lock {}", path.display())]
    Lock {
        /// The lock file.
        path: PathBuf,
        /// Why not.
        source: std::io::Error,
    },
    /// The node's own figures could not be read.
    #[error("look at the node")]
    Node(#[from] observe::NodeError),
    /// More is reserved than the node has.
    #[error("hold the pods to what is not reserved")]
    Reserved(#[from] plan::resources::OverReserved),
    /// A room could not be opened.
    #[error("open the agent's rooms")]
    Rooms(#[from] RoomsError),
    /// The API's socket could not be opened.
    #[error("open the API")]
    Server(#[from] server::ServerError),
    /// The node's addresses cannot be followed.
    #[error("follow the node's addresses")]
    Addresses(#[from] super::addresses::FollowError),
    /// The manifest folder cannot be watched.
    #[error("watch the manifests")]
    Manifests(#[from] super::manifests::WatchError),
}

/// Runs the agent until it is told to end. Containers go on without it.
///
/// # Errors
/// [`AgentError`] when it cannot begin; once it runs it does not fail.
pub fn run(config: Config, probe: &Probe<'_>) -> Result<(), AgentError> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .max_blocking_threads(6)
        .thread_stack_size(512 * 1024)
        .thread_keep_alive(std::time::Duration::from_secs(2))
        .build()
        .map_err(AgentError::Runtime)?;
    runtime.block_on(begin(config, probe))
}

async fn begin(config: Config, probe: &Probe<'_>) -> Result<(), AgentError> {
    let _lock = take_lock(Path::new(&config.run_dir))?;
    let (inputs, from) = mpsc::unbounded_channel();
    let log = NodeLog::start(Path::new(&config.data_dir), inputs.clone());
    let opened = Store::open(&Path::new(&config.data_dir).join("store"), probe);
    for problem in &opened.problems {
        tracing::warn!("{}", chain(problem));
    }
    let store = Arc::new(opened.store);
    let node_name = node_name(&config, &store);
    tracing::info!(node = %node_name, pods = store.pods().len(), "store opened");
    let rooms = Arc::new(Rooms::open(config, node_name.clone())?);
    let (mut publisher, view) =
        Publisher::new(node_name.clone(), rooms.config.static_pod_path.clone(), observe::resources(&rooms.config)?);
    let not_enforced = super::reserved::enforce(&rooms, &mut publisher)?;

    let (commands, asked) = mpsc::channel(64);
    let listener = server::bind(Path::new(&rooms.config.socket_path))?;
    tokio::spawn(server::serve(listener, server::Context { view, commands, clock: clock::now }));
    tokio::spawn(pass_on(asked, inputs.clone(), Input::Command));
    let (heard, hears) = mpsc::unbounded_channel();
    let at = Arc::clone(&rooms);
    tokio::spawn(async move { at.supervisor.run(heard).await });
    tokio::spawn(pass_all_on(hears, inputs.clone(), Input::Heard));
    tokio::spawn(end_on_signal(inputs.clone())?);
    super::log_file::follow(&rooms, &log);
    super::images::preload(Arc::clone(&rooms), inputs.clone());
    tokio::spawn(super::machine::look(Arc::clone(&rooms), inputs.clone()));

    let (slots, all_understood) = saved_slots(&rooms, &store);
    let last_address = last_address(&store, &slots);
    let running = slots.values().filter(|slot| slot.facts.volatile.stop.is_none()).filter_map(|slot| slot.pod.clone());
    let mut identity = NodeIdentity::new(node_name);
    identity.labels.extend(rooms.config.node_labels.clone());
    identity.allowed_unsafe_sysctls.clone_from(&rooms.config.allowed_unsafe_sysctls);
    let desired = Desired::new(identity, running);
    let kept = |name| store.meta(name).map(|fact| fact.bytes);
    let verbs = Verbs::new(kept(super::verbs::FACT).as_deref());
    let ledgers = Arc::new(Ledgers::new(observe::boot_id()?, kept(observe::WRITTEN_FACT).as_deref()));
    let (at, counted) = (Arc::clone(&rooms), Arc::clone(&ledgers));
    let beside = move || {
        counted.count(at.images.bytes_written());
        (observe::WRITTEN_FACT, counted.to_keep())
    };
    let mut looping = Looping {
        node: observe::node_facts(&rooms.config, super::addresses::follow(inputs.clone())?)?,
        capacity: observe::capacity(&rooms.config)?,
        slots,
        mirror: Mirror::default(),
        desired,
        last_address: last_address.map(|last| last.address),
        journal: Journal::start(store, inputs.clone(), beside).map_err(AgentError::Thread)?,
        publisher,
        rooms,
        log,
        inputs,
        grants: BTreeMap::new(),
        weights: None,
        arrivals: 0,
        committed: 0,
        conditions: BTreeMap::from([
            ("NodeAllocatableNotEnforced", not_enforced),
            super::looping::without_supervisor(),
        ]),
        lacks: Vec::new(),
        dirty: BTreeSet::new(),
        owed: BTreeSet::new(),
        node_dirty: true,
        facts_complete: opened.complete && all_understood,
        remains_seen: false,
        table_seen: false,
        forgotten: Vec::new(),
        shutdown: None,
        powering_off: false,
        verbs,
        ledgers,
    };
    let arrivals = looping.slots.values().map(|slot| slot.arrival).chain(last_address.map(|last| last.arrivals));
    looping.arrivals = arrivals.max().unwrap_or(0);
    let folder = Path::new(&looping.rooms.config.static_pod_path);
    let manifests = super::manifests::watch(folder, looping.desired.files())?;
    tokio::spawn(pass_on(manifests, looping.inputs.clone(), Input::Manifests));
    looping.run(from).await;
    Ok(())
}

/// Two agents would take the supervisor and the socket from each other without end. The lock goes with the process.
fn take_lock(run: &Path) -> Result<File, AgentError> {
    let path = run.join("agent.lock");
    match std::fs::create_dir_all(run).and_then(|()| files::lock(&path)) {
        Ok(Some(lock)) => Ok(lock),
        Ok(None) => Err(AgentError::Locked { path }),
        Err(source) => Err(AgentError::Lock { path, source }),
    }
}

/// The node's name: configured, else as before, else the host's. It is kept from the first start on.
fn node_name(config: &Config, store: &Store) -> String {
    let kept = store.meta(NODE_NAME).and_then(|fact| String::from_utf8(fact.bytes.to_vec()).ok());
    let host = || rustix::system::uname().nodename().to_string_lossy().to_lowercase();
    let name = config.node_name.clone().or_else(|| kept.clone()).unwrap_or_else(host);
    if kept.as_ref() != Some(&name) {
        if let Some(kept) = kept {
            tracing::warn!(before = %kept, now = %name, "the node has another name: its static pods are other pods now");
        }
        if let Err(error) = store.put_meta(NODE_NAME, name.clone().into_bytes()) {
            tracing::error!("{}", chain(&error));
        }
    }
    name
}

/// The pods that the store knows, with what the agent before knew of this boot, and whether all of it was understood. Of
/// a pod that another version saved the manifest tells again what it is to be, if what happened to it is known.
fn saved_slots(rooms: &Rooms, store: &Store) -> (BTreeMap<PodUid, Slot>, bool) {
    let mut slots = BTreeMap::new();
    let mut all_understood = true;
    for (uid, fact) in store.pods() {
        let Saved { arrival, pod, durable, faults } = Saved::read(&fact.bytes);
        for error in &faults {
            tracing::error!(pod = %uid, %error, "what the store knows of the pod cannot be understood");
        }
        all_understood &= faults.is_empty();
        if pod.is_some() || durable.is_some() {
            let facts = Facts { durable: durable.unwrap_or_default(), volatile: executor::read_volatile(rooms, &uid) };
            slots.insert(uid, Slot { pod: pod.map(Arc::new), arrival, facts, ..Slot::default() });
        }
    }
    (slots, all_understood)
}

/// The newest pod's address, or what was kept when a newer one went.
fn last_address(store: &Store, slots: &BTreeMap<PodUid, Slot>) -> Option<LastAddress> {
    let of = |slot: &Slot| Some(LastAddress { address: slot.facts.durable.address?, arrivals: slot.arrival });
    let kept = store.meta(LAST_ADDRESS).and_then(|fact| LastAddress::parse(&fact.bytes));
    slots.values().filter_map(of).chain(kept).max_by_key(|last| last.arrivals)
}

async fn pass_on<T>(mut from: mpsc::Receiver<T>, to: mpsc::UnboundedSender<Input>, wrap: fn(T) -> Input) {
    while let Some(item) = from.recv().await {
        if to.send(wrap(item)).is_err() {
            return;
        }
    }
}

async fn pass_all_on<T>(mut from: mpsc::UnboundedReceiver<T>, to: mpsc::UnboundedSender<Input>, wrap: fn(T) -> Input) {
    while let Some(item) = from.recv().await {
        if to.send(wrap(item)).is_err() {
            return;
        }
    }
}

/// Ends the loop on SIGTERM and SIGINT.
fn end_on_signal(to: mpsc::UnboundedSender<Input>) -> Result<impl Future<Output = ()>, AgentError> {
    let mut term = signal(SignalKind::terminate()).map_err(AgentError::Runtime)?;
    let mut int = signal(SignalKind::interrupt()).map_err(AgentError::Runtime)?;
    Ok(async move {
        tokio::select! {
            _ = term.recv() => {}
            _ = int.recv() => {}
        }
        // A loop that has ended already needs no telling.
        let _ = to.send(Input::Stop);
    })
}
