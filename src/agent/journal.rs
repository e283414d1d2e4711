//! Durable facts on their way to the disk: commits run on a thread of their own, so that a card that stalls for seconds
//! stalls neither the loop nor a pod that has nothing to write.

use super::input::Input;
use crate::model::PodUid;
use crate::model::time::{BootTime, Millis};
use crate::store::{PutError, Store};
use crate::sys::clock;
use crate::sys::log::chain;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::mpsc::{self as blocking, RecvTimeoutError};
use std::thread::JoinHandle;
use std::time::Duration;
use tokio::sync::mpsc;

/// The way to the store.
#[derive(Debug)]
pub(super) struct Journal {
    store: Arc<Store>,
    kick: blocking::Sender<Kick>,
    number: u64,
    /// Why the store did not take the newest value of a fact, by the fact's name: it is in the loop's memory only.
    refused: BTreeMap<String, String>,
    thread: JoinHandle<()>,
}

/// What the thread is told.
#[derive(Debug, Clone, Copy)]
enum Kick {
    /// Commit; the changes up to this number are in the store.
    Now(u64),
    /// Something changed that can wait for the next commit, which comes soon or when all is quiet.
    Later,
}

impl Journal {
    /// Starts the thread.
    ///
    /// # Errors
    /// The thread could not be made.
    ///
    /// `beside` gives a fact of the node that is kept whenever something else has been: alone it is not worth a write.
    pub(super) fn start(
        store: Arc<Store>,
        tell: mpsc::UnboundedSender<Input>,
        beside: impl Fn() -> (&'static str, Vec<u8>) + Send + 'static,
    ) -> std::io::Result<Self> {
        let (kick, kicks) = blocking::channel();
        let at = Arc::clone(&store);
        let thread = std::thread::Builder::new().name("journal".into()).stack_size(512 * 1024);
        let thread = thread.spawn(move || commit_all(&at, &kicks, &tell, &beside))?;
        Ok(Self { store, kick, number: 0, refused: BTreeMap::new(), thread })
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
        self.changed(uid.as_str(), put)
    }

    /// Keeps a pod's facts with the next commit that something else asks for, or when nothing does for a while.
    pub(super) fn pod_later(&mut self, uid: &PodUid, bytes: Vec<u8>) {
        let put = self.store.put_pod(uid, bytes);
        self.note(uid.as_str(), put);
        // The thread ends only after this sender is gone.
        let _ = self.kick.send(Kick::Later);
    }

    /// Forgets a pod's facts.
    pub(super) fn forget(&mut self, uid: &PodUid) -> u64 {
        self.store.delete_pod(uid);
        self.changed(uid.as_str(), Ok(0))
    }

    /// Keeps a fact about the node.
    pub(super) fn meta(&mut self, name: &'static str, bytes: Vec<u8>) -> u64 {
        let put = self.store.put_meta(name, bytes);
        self.changed(name, put)
    }

    /// What the store did not take, for a condition of the node.
    pub(super) fn refused(&self) -> Option<String> {
        let all: Vec<&str> = self.refused.values().map(String::as_str).collect();
        (!all.is_empty()).then(|| all.join("; "))
    }

    fn changed(&mut self, name: &str, put: Result<u64, PutError>) -> u64 {
        self.note(name, put);
        self.number += 1;
        // The thread ends only after this sender is gone.
        let _ = self.kick.send(Kick::Now(self.number));
        self.number
    }

    /// A fact that the store does not take holds no status back for ever, like one that the disk does not: what it says
    /// is lost with the agent, and the node says so.
    fn note(&mut self, name: &str, put: Result<u64, PutError>) {
        match put {
            Ok(_) => {
                self.refused.remove(name);
            }
            Err(error) => {
                let text = chain(&error);
                tracing::error!("{text}");
                self.refused.insert(name.to_owned(), text);
            }
        }
    }
}

/// How long a store that is not whole is left alone before it is tried again without a change.
const MEND_PAUSE: Duration = Duration::from_secs(30);

/// How long nothing must have changed before the database is given what the fact files have. A pod's start is over by
/// then, and its commits reach the database as one.
const QUIET: Duration = Duration::from_secs(5);

/// How long it is without it on a node that is never quiet, where a container is always just being started again.
const MOST: Duration = Duration::from_secs(60);

/// How long to wait for a change when the database has lacked something since `since`; zero: no longer.
fn quiet(since: BootTime, now: BootTime) -> Duration {
    let Millis(lacked) = now.since(since);
    MOST.saturating_sub(Duration::from_millis(lacked)).min(QUIET)
}

/// Commits whatever has changed since the last time, however much it is: a frontier costs one flush. The first commit is
/// for what opening the store found to mend; a store that stays broken is tried again from time to time.
fn commit_all(
    store: &Store,
    kicks: &blocking::Receiver<Kick>,
    tell: &mpsc::UnboundedSender<Input>,
    beside: &dyn Fn() -> (&'static str, Vec<u8>),
) {
    let mut number = 0;
    let mut lags_since = None;
    loop {
        commit(store);
        let degraded = store.degraded();
        let broken = degraded.is_some();
        // A disk that cannot be written does not hold a status back for ever: facts degrade to memory.
        if tell.send(Input::Committed { number, degraded }).is_err() {
            tracing::debug!("the loop has ended before its last commit was told");
        }
        match wait(store, kicks, broken, &mut lags_since, beside) {
            Some(newest) => number = newest.unwrap_or(number),
            None => return,
        }
    }
}

/// Waits for the next commit's reason, and gives the number that came with it, if one did. None: the agent ends, and all
/// is kept.
fn wait(
    store: &Store,
    kicks: &blocking::Receiver<Kick>,
    broken: bool,
    lags_since: &mut Option<BootTime>,
    beside: &dyn Fn() -> (&'static str, Vec<u8>),
) -> Option<Option<u64>> {
    let mut later = false;
    loop {
        let now = clock::now().boot;
        let pause = match (broken, later || store.lags()) {
            (true, _) => Some(MEND_PAUSE),
            (false, true) => Some(quiet(*lags_since.get_or_insert(now), now)),
            (false, false) => {
                *lags_since = None;
                None
            }
        };
        let kick = match pause {
            Some(Duration::ZERO) => Err(RecvTimeoutError::Timeout),
            Some(pause) => kicks.recv_timeout(pause),
            None => kicks.recv().map_err(|_| RecvTimeoutError::Disconnected),
        };
        match kick {
            Ok(Kick::Later) => later = true,
            Ok(Kick::Now(first)) => {
                let numbers = kicks.try_iter().filter_map(|kick| match kick {
                    Kick::Now(number) => Some(number),
                    Kick::Later => None,
                });
                return Some(Some(numbers.last().unwrap_or(first)));
            }
            Err(RecvTimeoutError::Timeout) if broken || store.is_dirty() => return Some(None),
            Err(RecvTimeoutError::Timeout) => {
                settle(store, beside);
                later = false;
                *lags_since = None;
            }
            Err(RecvTimeoutError::Disconnected) => {
                if later || store.lags() || store.is_dirty() {
                    settle(store, beside);
                }
                return None;
            }
        }
    }
}

/// Commits what is left, with what is kept beside, and lets the database follow.
fn settle(store: &Store, beside: &dyn Fn() -> (&'static str, Vec<u8>)) {
    let (name, bytes) = beside();
    if let Err(error) = store.put_meta(name, bytes) {
        tracing::error!("{}", chain(&error));
    }
    commit(store);
    store.settle();
}

/// Commits. What cannot be written now is told, and tried again by the next commit.
fn commit(store: &Store) {
    if let Err(error) = store.commit() {
        tracing::error!("{}", chain(&error));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::path::Path;

    fn beside() -> (&'static str, Vec<u8>) {
        ("beside", b"kept".to_vec())
    }

    #[test]
    fn a_node_that_is_never_quiet_is_not_waited_for() {
        let after = |secs| quiet(BootTime(1_000), BootTime(1_000) + Millis::from_secs(secs));
        assert_eq!(after(0), QUIET);
        assert_eq!(after(55), QUIET);
        assert_eq!(after(58), Duration::from_secs(2));
        assert_eq!(after(60), Duration::ZERO);
        assert_eq!(after(600), Duration::ZERO);
    }

    #[tokio::test]
    async fn what_is_kept_beside_is_kept_only_with_something_else() {
        let dir = tempfile::tempdir().unwrap();
        let open = || Store::open(dir.path(), &|_: &Path| Ok(true));
        // The first commit of all makes the database, which then lacks nothing.
        let first = open().store;
        first.put_meta("first", Vec::new()).unwrap();
        first.commit().unwrap();
        drop(first);
        for (changes, kept) in [(false, false), (true, true)] {
            let (tell, mut told) = mpsc::unbounded_channel();
            let mut journal = Journal::start(Arc::new(open().store), tell, beside).unwrap();
            if changes {
                journal.pod(&PodUid::new("p").unwrap(), b"fact".to_vec());
            }
            journal.finish();
            while told.recv().await.is_some() {}
            assert_eq!(open().store.meta("beside").is_some(), kept);
        }
    }

    #[tokio::test]
    async fn what_the_store_does_not_take_is_told() {
        let dir = tempfile::tempdir().unwrap();
        let store = Arc::new(Store::open(dir.path(), &|_: &Path| Ok(true)).store);
        let (tell, _told) = mpsc::unbounded_channel();
        let mut journal = Journal::start(store, tell, beside).unwrap();
        let (one, two) = (PodUid::new("one").unwrap(), PodUid::new("two").unwrap());
        let large = || vec![0; crate::store::MAX_FACT + 1];
        journal.pod(&one, large());
        journal.pod(&two, large());
        let told = journal.refused().unwrap();
        assert!(told.contains("pods/one") && told.contains("pods/two"), "{told}");
        journal.pod(&one, b"small".to_vec());
        journal.forget(&two);
        assert_eq!(journal.refused(), None);
    }

    #[tokio::test]
    async fn a_lost_database_is_filled_again_without_a_change() {
        let dir = tempfile::tempdir().unwrap();
        let open = || Store::open(dir.path(), &|_: &Path| Ok(true));
        let uid = PodUid::new("p").unwrap();
        let first = open().store;
        first.put_pod(&uid, b"kept".to_vec()).unwrap();
        first.commit().unwrap();
        first.settle();
        drop(first);
        std::fs::remove_dir_all(dir.path().join("sled")).unwrap();

        let (tell, mut told) = mpsc::unbounded_channel();
        let journal = Journal::start(Arc::new(open().store), tell, beside).unwrap();
        assert!(matches!(told.recv().await, Some(Input::Committed { number: 0, degraded: None })));
        journal.finish();
        // The thread lets go of the store, and so of the database's lock.
        assert!(told.recv().await.is_none());

        // The file is damaged now: only a database that was filled again still knows the pod.
        std::fs::write(dir.path().join("pods/0.fact"), b"noise").unwrap();
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
        let mut journal = Journal::start(Arc::new(open().store), tell, beside).unwrap();
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
