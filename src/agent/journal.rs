//! Durable facts on their way to the disk: commits run on a thread of their own, so that a card that stalls for seconds
//! stalls neither the loop nor a pod that has nothing to write.

use super::input::Input;
use crate::model::PodUid;
use crate::store::{PutError, Store};
use crate::sys::log::chain;
use std::sync::Arc;
use std::sync::mpsc as blocking;
use tokio::sync::mpsc;

/// The way to the store. Dropping it ends the thread after its last commit.
#[derive(Debug)]
pub(super) struct Journal {
    store: Arc<Store>,
    kick: blocking::Sender<u64>,
    number: u64,
}

impl Journal {
    /// Starts the thread.
    ///
    /// # Errors
    /// The thread could not be made.
    pub(super) fn start(store: Arc<Store>, tell: mpsc::UnboundedSender<Input>) -> std::io::Result<Self> {
        let (kick, kicks) = blocking::channel();
        let at = Arc::clone(&store);
        let thread = std::thread::Builder::new().name("journal".into()).stack_size(512 * 1024);
        thread.spawn(move || commit_all(&at, &kicks, &tell))?;
        Ok(Self { store, kick, number: 0 })
    }

    /// Keeps a pod's facts. Returns the number of the commit to wait for.
    pub(super) fn pod(&mut self, uid: &PodUid, bytes: Vec<u8>) -> u64 {
        let put = self.store.put_pod(uid, bytes);
        self.changed(put)
    }

    /// Forgets a pod's facts.
    pub(super) fn forget(&mut self, uid: &PodUid) -> u64 {
        self.store.delete_pod(uid);
        self.changed(Ok(0))
    }

    /// Keeps a fact about the node.
    pub(super) fn meta(&mut self, name: &'static str, bytes: Vec<u8>) -> u64 {
        let put = self.store.put_meta(name, bytes);
        self.changed(put)
    }

    fn changed(&mut self, put: Result<u64, PutError>) -> u64 {
        if let Err(error) = put {
            tracing::error!("{}", chain(&error));
        }
        self.number += 1;
        // The thread ends only after this sender is gone.
        let _ = self.kick.send(self.number);
        self.number
    }
}

/// Commits whatever has changed since the last time, however much it is: a frontier costs one flush.
fn commit_all(store: &Store, kicks: &blocking::Receiver<u64>, tell: &mpsc::UnboundedSender<Input>) {
    while let Ok(first) = kicks.recv() {
        let number = kicks.try_iter().last().unwrap_or(first);
        if let Err(error) = store.commit() {
            tracing::error!("{}", chain(&error));
        }
        // A disk that cannot be written does not hold a status back for ever: facts degrade to memory.
        if tell.send(Input::Committed { number, degraded: store.degraded() }).is_err() {
            tracing::debug!("the loop has ended before its last commit was told");
        }
    }
}
