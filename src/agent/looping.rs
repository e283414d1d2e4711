//! The loop: event, observe, plan, start or cancel, store, publish, arm the timer.
//!
//! One task owns everything here. Whatever takes time (an action, a disk, the supervisor) runs elsewhere and comes back
//! as an [`Input`].

use super::commands::At;
use super::desired::Desired;
use super::input::{Ended, Input};
use super::journal::Journal;
use super::manifests::ManifestEvent;
use super::mirror::Mirror;
use super::node_log::NodeLog;
use super::publish::Publisher;
use super::slot::Slot;
use super::verbs::Verbs;
use crate::executor::Rooms;
use crate::model::action::{Action, Outcome};
use crate::model::observed::{Capacity, NodeFacts};
use crate::model::supervise::{ContainerEntry, Notice, SandboxEntry};
use crate::model::view::EventRecord;
use crate::model::{BootTime, ContainerId, PodUid};
use crate::observe::{self, Ledgers};
use crate::plan::{self, Grants};
use crate::runtime::client::Heard;
use crate::server::Command;
use crate::sys::clock;
use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, Ipv4Addr};
use std::sync::Arc;
use tokio::sync::mpsc;

/// The node's condition as long as no supervisor answers.
const NO_SUPERVISOR: &str = "SupervisorNotConnected";

/// What holds of the node before a supervisor has answered.
pub(super) fn without_supervisor() -> (&'static str, Option<String>) {
    let text = "no supervisor answers: containers are neither started nor stopped, and their output is not read; start it \
                with `systemctl start armlet-supervisor`, or run `armlet supervisor`";
    (NO_SUPERVISOR, Some(text.to_owned()))
}

/// The loop's state.
pub(super) struct Looping {
    pub(super) rooms: Arc<Rooms>,
    pub(super) node: NodeFacts,
    pub(super) capacity: Capacity,
    pub(super) slots: BTreeMap<PodUid, Slot>,
    pub(super) mirror: Mirror,
    pub(super) desired: Desired,
    pub(super) journal: Journal,
    pub(super) publisher: Publisher,
    pub(super) last_address: Option<Ipv4Addr>,
    pub(super) grants: BTreeMap<PodUid, Grants>,
    pub(super) weights: Option<(u64, u64)>,
    pub(super) arrivals: u64,
    pub(super) committed: u64,
    /// Conditions of the node by their word; only those with a text are shown.
    pub(super) conditions: BTreeMap<&'static str, Option<String>>,
    /// Conditions of what the machine lacks.
    pub(super) lacks: Vec<(String, String)>,
    pub(super) dirty: BTreeSet<PodUid>,
    /// Pods whose facts of this boot have changed and are not kept yet.
    pub(super) owed: BTreeSet<PodUid>,
    pub(super) node_dirty: bool,
    /// Pods that are gone, each with the journal's commit by which the disk has forgotten it.
    pub(super) forgotten: Vec<(u64, PodUid)>,
    /// The supervisor's table was taken over at least once: before that nothing is known to be absent.
    pub(super) table_seen: bool,
    /// No pod's facts were lost: what nobody knows is no pod's.
    pub(super) facts_complete: bool,
    /// Remains of pods that nobody knows were looked for.
    pub(super) remains_seen: bool,
    /// The node goes down; true: to start again.
    pub(super) shutdown: Option<bool>,
    /// Process 1 was asked to end the node.
    pub(super) powering_off: bool,
    /// What people do with pods beside their manifests.
    pub(super) verbs: Verbs,
    /// What has been written to disks.
    pub(super) ledgers: Arc<Ledgers>,
    pub(super) inputs: mpsc::UnboundedSender<Input>,
    pub(super) log: Arc<NodeLog>,
}

impl Looping {
    /// Runs until told to stop. What the store was given by then is on the disk.
    pub(super) async fn run(mut self, from: mpsc::UnboundedReceiver<Input>) {
        self.turn(from).await;
        self.journal.finish();
    }

    async fn turn(&mut self, mut from: mpsc::UnboundedReceiver<Input>) {
        loop {
            self.settle();
            let input = match self.next_wake() {
                None => from.recv().await,
                Some(at) => {
                    let left = at.since(clock::now().boot).to_std();
                    tokio::time::timeout(left, from.recv()).await.unwrap_or(Some(Input::LookAtDue))
                }
            };
            let Some(input) = input else { return };
            // What has queued up meanwhile is one pass, not many.
            let mut queued = std::iter::once(input).chain(std::iter::from_fn(|| from.try_recv().ok()));
            if !queued.all(|input| self.take(input)) {
                return self.keep_all_volatile();
            }
        }
    }

    fn next_wake(&self) -> Option<BootTime> {
        self.slots.values().filter_map(|slot| slot.wake_at).min()
    }

    /// Takes one input over. False: the agent is to end.
    fn take(&mut self, input: Input) -> bool {
        match input {
            Input::Manifests(event) => self.take_manifests(event),
            Input::Heard(heard) => self.take_heard(heard),
            Input::Message { pod, id, message } => self.take_message(&pod, id, message),
            Input::Ended(ended) => self.take_ended(ended),
            Input::Committed { number, degraded } => {
                let before = std::mem::replace(&mut self.committed, number);
                self.conditions.insert("StoreDegraded", degraded);
                let waited = self.slots.iter().filter(|(_, slot)| slot.written > before && slot.written <= number);
                self.dirty.extend(waited.map(|(uid, _)| uid.clone()));
                self.drop_forgotten();
            }
            Input::LookAtDue => {}
            Input::Machine(lacks) => self.lacks = lacks,
            Input::LookAtAll => self.dirty.extend(self.slots.keys().cloned()),
            Input::Addresses(addresses) => self.take_addresses(addresses),
            Input::Command(command) => self.take_command(command),
            Input::Panicked(text) => self.take_panic(text),
            Input::Stop => return false,
        }
        true
    }

    fn at(&self) -> At {
        At { rooms: Arc::clone(&self.rooms), ledgers: Arc::clone(&self.ledgers), log: Arc::clone(&self.log) }
    }

    fn take_command(&mut self, command: Command) {
        match command {
            Command::Pod { namespace, name, verb, reply } => self.take_verb(&namespace, &name, verb, reply),
            Command::RemoveImages { name, reply } => {
                let needed = self.needed_images();
                super::images::remove(&self.rooms, name, needed, reply);
            }
            command => super::commands::answer(&self.at(), command, self.inputs.clone()),
        }
    }

    fn take_manifests(&mut self, event: ManifestEvent) {
        let missing = matches!(event, ManifestEvent::FolderMissing);
        let path = &self.rooms.config.static_pod_path;
        let text = missing.then(|| format!("{path} does not exist: no pod is started from it; make the folder"));
        self.conditions.insert("ManifestFolderMissing", text);
        self.desired.take(event);
        self.publisher.refused(self.desired.refused());
        self.node_dirty = true;
    }

    fn take_addresses(&mut self, addresses: Vec<IpAddr>) {
        if self.node.host_ips != addresses {
            tracing::info!(?addresses, "the node's addresses changed");
            self.node.host_ips = addresses;
            self.dirty.extend(self.slots.keys().cloned());
        }
    }

    fn take_heard(&mut self, heard: Heard) {
        match heard {
            Heard::Table { sandboxes, containers, stopping } => {
                self.conditions.remove(NO_SUPERVISOR);
                if !stopping {
                    self.go_on();
                }
                self.take_table(sandboxes, containers);
                super::commands::look_for_logger(&self.rooms, &self.ledgers);
            }
            Heard::Lost => {
                let (word, text) = without_supervisor();
                self.conditions.insert(word, text);
                self.tell_of_node(true, "SupervisorLost", "The supervisor is gone; waiting for another".to_owned());
            }
            Heard::Notice(notice) => self.take_notice(notice),
        }
    }

    fn take_notice(&mut self, notice: Notice) {
        match notice {
            Notice::Container(entry) => self.see_container(entry),
            Notice::LoggerRestarted { count } => {
                tracing::warn!(count, "the logger died and another took over");
                super::commands::look_for_logger(&self.rooms, &self.ledgers);
            }
            Notice::LogsDropped { id, bytes } => tracing::warn!(container = %id, bytes, "log lines were dropped"),
            Notice::Shutdown { reboot } => {
                tracing::info!(reboot, "the node goes down: stopping all pods");
                self.shutdown = Some(reboot);
                self.node_dirty = true;
            }
            Notice::HandOver { build, refused } => self.take_hand_over(&build, refused),
            Notice::Logged => self.log.grown(),
            // The client hands these to whoever began the session.
            Notice::ExecExited { .. } => {}
        }
    }

    /// The supervisor became another program, or did not.
    fn take_hand_over(&mut self, build: &str, refused: Option<String>) {
        let warning = refused.is_some();
        let (reason, message) = match refused {
            None => ("SupervisorReplaced", format!("The supervisor is {build} now")),
            Some(why) => ("FailedSupervisorReplace", format!("The supervisor was not replaced by {build}: {why}")),
        };
        self.tell_of_node(warning, reason, message);
    }

    /// Logs and shows what has happened to the node.
    fn tell_of_node(&mut self, warning: bool, reason: &str, message: String) {
        if warning {
            tracing::warn!("{message}");
        } else {
            tracing::info!("{message}");
        }
        let (at, object) = (clock::now().wall, self.rooms.node_name.clone());
        let reason = reason.to_owned();
        self.publisher.record(EventRecord { at, warning, reason, object, field_path: None, message });
    }

    /// Shows that a process of armlet panicked: this one now, or one before it.
    fn take_panic(&mut self, text: String) {
        let (at, object) = (clock::now().wall, self.rooms.node_name.clone());
        let message = format!("{text}; `armlet logs --node` shows what is known of it");
        self.conditions.insert("Panicked", Some(message.clone()));
        self.publisher.record(EventRecord {
            at,
            warning: true,
            reason: "Panicked".to_owned(),
            object,
            field_path: None,
            message,
        });
    }

    /// Takes a container's state over. The plan sees an attempt's end once the termination message was read, which
    /// happens elsewhere: a card may stall.
    fn see_container(&mut self, entry: ContainerEntry) {
        let slot = self.slots.entry(entry.pod.clone()).or_default();
        // Without a pod there is no policy by which to read.
        if let Some(pod) = slot.pod.clone()
            && slot.words.are_wanted(&entry, slot.facts.durable.containers.get(&entry.name).map(Box::as_ref))
        {
            let (rooms, tell) = (Arc::clone(&self.rooms), self.inputs.clone());
            let entry = entry.clone();
            tokio::spawn(async move {
                let message = observe::termination_message(&rooms.config, &pod, &entry).await;
                // When the loop has ended the next agent reads it again.
                let _ = tell.send(Input::Message { pod: entry.pod, id: entry.id, message });
            });
        }
        self.dirty.insert(entry.pod.clone());
        self.mirror.container(entry);
    }

    fn take_table(&mut self, sandboxes: Vec<SandboxEntry>, containers: Vec<ContainerEntry>) {
        for uid in self.mirror.replace(sandboxes) {
            self.slots.entry(uid).or_default();
        }
        for entry in containers {
            self.see_container(entry);
        }
        for slot in self.slots.values_mut() {
            slot.words.keep(|id| self.mirror.get(id).is_some());
        }
        self.dirty.extend(self.slots.keys().cloned());
        self.table_seen = true;
        self.node_dirty = true;
    }

    /// The node stays up, as far as this supervisor knows: what another one stopped runs again.
    fn go_on(&mut self) {
        self.shutdown = None;
        self.powering_off = false;
        let uids: Vec<PodUid> = self.slots.keys().cloned().collect();
        for uid in uids {
            self.fold(&uid, |slot, _| plan::fold::go_on(&mut slot.facts));
        }
    }

    fn take_message(&mut self, pod: &PodUid, id: ContainerId, message: Option<String>) {
        if let Some(slot) = self.slots.get_mut(pod) {
            slot.words.arrive(id, message);
            self.dirty.insert(pod.clone());
        }
    }

    fn take_ended(&mut self, ended: Ended) {
        let Some(slot) = self.slots.get_mut(&ended.uid) else { return };
        let Some(action) = slot.land(&ended.key) else { return };
        match &ended.outcome {
            Outcome::Sandbox { sandbox, .. } => self.mirror.sandbox(sandbox.clone()),
            Outcome::Container { entry } => self.see_container(entry.clone()),
            Outcome::Done => match &action {
                Action::DestroySandbox { .. } => self.mirror.drop_sandbox(&ended.uid),
                Action::RemoveContainer { id, .. } => {
                    self.mirror.drop_container(id);
                    slot.words.keep(|kept| kept != id);
                }
                _ => {}
            },
            Outcome::Failed(failure) => {
                tracing::warn!(pod = %ended.uid, action = ?ended.key, reason = %failure.reason, "{}", failure.message);
            }
            Outcome::Cancelled | Outcome::Attached { .. } | Outcome::Image { .. } | Outcome::Probed { .. } => {}
        }
        self.fold(&ended.uid, |slot, now| {
            plan::fold::outcome(&mut slot.facts, slot.pod.as_deref(), &action, &ended.outcome, now)
        });
        self.dirty.insert(ended.uid);
    }
}
