//! Durable facts on their way to the disk: commits run on a thread of their own, so that a card that stalls for seconds
//! stalls neither the loop nor a pod that has nothing to write.

use super::input::Input;
use crate::model::PodUid;
use crate::store::{PutError, Store};
use crate::sys::log::chain;
use std::sync::Arc;
use std::sync::mpsc::{self as blocking, RecvTimeoutError};
use std::thread::JoinHandle;
use std::time::Duration;
use tokio::sync::mpsc;

/// The way to the store.
#[derive(Debug)]
pub(super) struct Journal {
    store: Arc<Store>,
    kick: blocking::Sender<u64>,
    number: u64,
    thread: JoinHandle<()>,
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
        let thread = thread.spawn(move || commit_all(&at, &kicks, &tell))?;
        Ok(Self { store, kick, number: 0, thread })
    }

    /// Ends the thread after its last commit, and waits for that. Whoever cannot wait for a card that stalls kills the
    /// agent.
    pub(super) fn finish(self) {
        drop(self.kick);
        if self.thread.join().is_err() {
            tracing::error!("the journal's thread panicked: its last commit may be missing");
        }
    }

    /// The number of the newest commit that was asked for.
    pub(super) const fn newest(&self) -> u64 {
        self.number
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

/// How long a store that is not whole is left alone before it is tried again without a change.
const MEND_PAUSE: Duration = Duration::from_secs(30);

/// Commits whatever has changed since the last time, however much it is: a frontier costs one flush. The first commit is
/// for what opening the store found to mend; a store that stays broken is tried again from time to time.
fn commit_all(store: &Store, kicks: &blocking::Receiver<u64>, tell: &mpsc::UnboundedSender<Input>) {
    let mut number = 0;
    loop {
        if let Err(error) = store.commit() {
            tracing::error!("{}", chain(&error));
        }
        let degraded = store.degraded();
        let pause = degraded.is_some().then_some(MEND_PAUSE);
        // A disk that cannot be written does not hold a status back for ever: facts degrade to memory.
        if tell.send(Input::Committed { number, degraded }).is_err() {
            tracing::debug!("the loop has ended before its last commit was told");
        }
        let kick = match pause {
            Some(pause) => kicks.recv_timeout(pause),
            None => kicks.recv().map_err(|_| RecvTimeoutError::Disconnected),
        };
        match kick {
            Ok(first) => number = kicks.try_iter().last().unwrap_or(first),
            Err(RecvTimeoutError::Timeout) => {}
            Err(RecvTimeoutError::Disconnected) => return,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::path::Path;

    #[tokio::test]
    async fn a_lost_database_is_filled_again_without_a_change() {
        let dir = tempfile::tempdir().unwrap();
        let open = || Store::open(dir.path(), &|_: &Path| Ok(true));
        let uid = PodUid::new("p").unwrap();
        let first = open().store;
        first.put_pod(&uid, b"kept".to_vec()).unwrap();
        first.commit().unwrap();
        drop(first);
        std::fs::remove_dir_all(dir.path().join("sled")).unwrap();

        let (tell, mut told) = mpsc::unbounded_channel();
        let journal = Journal::start(Arc::new(open().store), tell).unwrap();
        assert!(matches!(told.recv().await, Some(Input::Committed { number: 0, degraded: None })));
        journal.finish();
        // The thread lets go of the store, and so of the database's lock.
        assert!(told.recv().await.is_none());

        // The file is damaged now: only a database that was filled again still knows the pod.
        std::fs::write(dir.path().join("pods/p.fact"), b"noise").unwrap();
        let again = open();
        assert!(again.complete, "{:?}", again.problems);
        assert_eq!(again.store.pod(&uid).map(|fact| fact.bytes.to_vec()), Some(b"kept".to_vec()));
    }

    #[tokio::test]
    async fn what_was_kept_last_is_on_the_disk_when_it_has_finished() {
        let dir = tempfile::tempdir().unwrap();
        let open = || Store::open(dir.path(), &|_: &Path| Ok(true));
        let uid = PodUid::new("p").unwrap();
        let (tell, mut told) = mpsc::unbounded_channel();
        let mut journal = Journal::start(Arc::new(open().store), tell).unwrap();
        let mut number = 0;
        for round in 0..20_u8 {
            number = journal.pod(&uid, vec![round]);
        }
        assert_eq!(journal.newest(), number);
        journal.finish();
        let mut committed = 0;
        while let Some(input) = told.recv().await {
            let Input::Committed { number, .. } = input else { panic!("{input:?}") };
            committed = number;
        }
        assert_eq!(committed, number);
        assert_eq!(open().store.pod(&uid).map(|fact| fact.bytes.to_vec()), Some(vec![19]));
    }
}
