//! What the agent shows of the node: one picture, replaced as a whole when something changed.

use crate::model::PodUid;
use crate::model::WallTime;
use crate::model::event::PodEvent;
use crate::model::pod::Pod;
use crate::model::view::{EventRecord, NodeResources, NodeView, PodView, RefusedManifest};
use std::collections::{BTreeMap, VecDeque};
use std::net::IpAddr;
use std::sync::Arc;
use tokio::sync::watch;

/// Events are kept in memory only; this many.
const EVENTS: usize = 256;

/// The picture being put together.
#[derive(Debug)]
pub(super) struct Publisher {
    pods: BTreeMap<PodUid, Arc<PodView>>,
    view: NodeView,
    events: VecDeque<EventRecord>,
    new_events: bool,
    changed: bool,
    to: watch::Sender<Arc<NodeView>>,
}

impl Publisher {
    /// An empty picture of the node, and where it can be seen.
    pub(super) fn new(
        node_name: String,
        static_pod_path: String,
        resources: NodeResources,
    ) -> (Self, watch::Receiver<Arc<NodeView>>) {
        let view = NodeView { node_name, static_pod_path, resources, ..NodeView::default() };
        let (to, seen) = watch::channel(Arc::new(view.clone()));
        let publisher =
            Self { pods: BTreeMap::new(), view, events: VecDeque::new(), new_events: false, changed: true, to };
        (publisher, seen)
    }

    /// Shows a pod as it is now.
    pub(super) fn pod(&mut self, uid: &PodUid, view: PodView) {
        let same = self.pods.get(uid).is_some_and(|shown| **shown == view);
        if !same {
            self.pods.insert(uid.clone(), Arc::new(view));
            self.changed = true;
        }
    }

    /// Shows a pod no longer.
    pub(super) fn gone(&mut self, uid: &PodUid) {
        self.changed |= self.pods.remove(uid).is_some();
    }

    /// From now on the picture is whole.
    pub(super) fn settled(&mut self) {
        self.changed |= !std::mem::replace(&mut self.view.settled, true);
    }

    /// Shows which manifests were refused.
    pub(super) fn refused(&mut self, refused: Vec<RefusedManifest>) {
        self.changed |= self.view.refused != refused;
        self.view.refused = refused;
    }

    /// Shows which pods were stopped by hand.
    pub(super) fn stopped(&mut self, stopped: Vec<String>) {
        self.changed |= self.view.stopped != stopped;
        self.view.stopped = stopped;
    }

    /// Shows which of the node's conditions are not as they should be.
    pub(super) fn conditions(&mut self, conditions: Vec<(String, String)>) {
        self.changed |= self.view.conditions != conditions;
        self.view.conditions = conditions;
    }

    /// Shows the node's own addresses.
    pub(super) fn addresses(&mut self, addresses: &[IpAddr]) {
        if self.view.addresses != addresses {
            self.view.addresses = addresses.to_vec();
            self.changed = true;
        }
    }

    /// Adds one event about a pod.
    pub(super) fn event(&mut self, pod: &Pod, event: PodEvent, at: WallTime) {
        let object = format!("{}/{}", pod.namespace, pod.name);
        tracing::info!(pod = %object, reason = %event.reason, "{}", event.message);
        let PodEvent { warning, reason, field_path, message } = event;
        self.record(EventRecord { at, warning, reason, object, field_path, message });
    }

    /// Adds one event.
    pub(super) fn record(&mut self, event: EventRecord) {
        if self.events.len() == EVENTS {
            self.events.pop_front();
        }
        self.events.push_back(event);
        self.new_events = true;
        self.changed = true;
    }

    /// Lets everybody see the picture, if it changed.
    pub(super) fn flush(&mut self) {
        if !std::mem::take(&mut self.changed) {
            return;
        }
        let mut pods: Vec<_> = self.pods.values().cloned().collect();
        pods.sort_by(|a, b| (&a.pod.namespace, &a.pod.name).cmp(&(&b.pod.namespace, &b.pod.name)));
        self.view.pods = pods;
        if std::mem::take(&mut self.new_events) {
            self.view.events = Arc::new(self.events.clone());
        }
        // Nobody looking is no reason to stop.
        let _ = self.to.send_replace(Arc::new(self.view.clone()));
    }
}
