//! What people do with pods beside their manifests: stop them, and start them anew. Pure, but for the ways back.
//!
//! A pod that was stopped is as if its manifest were away: it ends in order, is forgotten, and stays away over restarts
//! and reboots until it is started again. Its hold is by UID: a manifest that changes is another pod, and runs.

use crate::model::PodUid;
use crate::model::api::PodVerb;
use crate::model::supervise::RefusalCode;
use crate::server::Refusal;
use serde::{Deserialize, Serialize};
use std::collections::BTreeSet;
use tokio::sync::oneshot;

/// The fact's name in the store.
pub(super) const FACT: &str = "stopped-pods";

/// The way back to whoever asked.
pub(super) type Answer = oneshot::Sender<Result<(), Refusal>>;

/// What is kept.
#[derive(Debug, Default, Serialize, Deserialize)]
#[serde(default)]
struct Kept {
    stopped: BTreeSet<PodUid>,
}

/// Which pods are held back.
#[derive(Debug, Default)]
pub(super) struct Verbs {
    stopped: BTreeSet<PodUid>,
    /// They end, and start anew once they have.
    restarting: BTreeSet<PodUid>,
    waiting: Vec<(PodUid, Answer)>,
}

impl Verbs {
    /// Goes on with what was kept.
    pub(super) fn new(kept: Option<&[u8]>) -> Self {
        let kept = kept.map(serde_json::from_slice::<Kept>).transpose().unwrap_or_else(|error| {
            tracing::error!("which pods were stopped by hand is not known: {error}");
            None
        });
        Self { stopped: kept.unwrap_or_default().stopped, ..Self::default() }
    }

    /// What is to be kept.
    pub(super) fn to_keep(&self) -> Vec<u8> {
        // Texts: there is nothing that serde_json could refuse.
        serde_json::to_vec(&Kept { stopped: self.stopped.clone() }).unwrap_or_default()
    }

    /// Whether a pod must not run, whatever its manifest says.
    pub(super) fn hold(&self, uid: &PodUid) -> bool {
        self.stopped.contains(uid) || self.restarting.contains(uid)
    }

    /// The pods that were stopped.
    pub(super) const fn stopped(&self) -> &BTreeSet<PodUid> {
        &self.stopped
    }

    /// Does something with a pod. `is_here`: something of it is on the node still. True: what is kept has changed.
    pub(super) fn act(&mut self, uid: &PodUid, verb: PodVerb, is_here: bool, answer: Answer) -> bool {
        let changed = match verb {
            PodVerb::Stop => {
                self.restarting.remove(uid);
                self.stopped.insert(uid.clone())
            }
            PodVerb::Restart => {
                if is_here {
                    self.restarting.insert(uid.clone());
                }
                self.stopped.remove(uid)
            }
        };
        if is_here {
            self.waiting.push((uid.clone(), answer));
        } else {
            // Whoever went away does not want to know.
            let _ = answer.send(Ok(()));
        }
        changed
    }

    /// Nothing of a pod is here any more.
    pub(super) fn gone(&mut self, uid: &PodUid) {
        self.restarting.remove(uid);
        let (answers, waiting) = std::mem::take(&mut self.waiting).into_iter().partition(|(of, _)| of == uid);
        self.waiting = waiting;
        let answers: Vec<(PodUid, Answer)> = answers;
        for (_, answer) in answers {
            let _ = answer.send(Ok(()));
        }
    }

    /// Forgets pods that no manifest wants any more. True: what is kept has changed.
    pub(super) fn keep_only(&mut self, wanted: &BTreeSet<&PodUid>) -> bool {
        let before = self.stopped.len();
        self.stopped.retain(|uid| wanted.contains(uid));
        self.stopped.len() != before
    }
}

/// There is no such pod.
pub(super) fn unknown(namespace: &str, name: &str) -> Refusal {
    Refusal { code: RefusalCode::NotFound, message: format!("there is no pod {namespace}/{name}") }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn uid(text: &str) -> PodUid {
        PodUid::new(text).unwrap()
    }

    fn answer() -> (Answer, impl FnMut() -> bool) {
        let (answer, mut answered) = oneshot::channel();
        (answer, move || answered.try_recv() == Ok(Ok(())))
    }

    #[test]
    fn a_stopped_pod_is_held_until_it_is_started_again() {
        let (pod, mut verbs) = (uid("a"), Verbs::default());
        let (to, mut answered) = answer();
        assert!(verbs.act(&pod, PodVerb::Stop, true, to));
        assert!(verbs.hold(&pod) && !answered());
        verbs.gone(&pod);
        assert!(verbs.hold(&pod) && answered());
        // Again: that is so already.
        let (to, mut answered) = answer();
        assert!(!verbs.act(&pod, PodVerb::Stop, false, to) && answered());
        let mut verbs = Verbs::new(Some(&verbs.to_keep()));
        assert!(verbs.hold(&pod) && !verbs.hold(&uid("b")));
        let (to, mut answered) = answer();
        assert!(verbs.act(&pod, PodVerb::Restart, false, to) && answered() && !verbs.hold(&pod));
    }

    #[test]
    fn a_pod_that_is_started_anew_is_held_until_it_is_gone() {
        let (pod, mut verbs) = (uid("a"), Verbs::default());
        let (to, mut answered) = answer();
        assert!(!verbs.act(&pod, PodVerb::Restart, true, to), "nothing of it outlives the agent");
        verbs.gone(&uid("b"));
        assert!(verbs.hold(&pod) && !answered());
        verbs.gone(&pod);
        assert!(!verbs.hold(&pod) && answered());
    }

    #[test]
    fn the_last_word_counts() {
        let (pod, mut verbs) = (uid("a"), Verbs::default());
        let act = |verbs: &mut Verbs, verb| verbs.act(&pod, verb, true, answer().0);
        act(&mut verbs, PodVerb::Restart);
        act(&mut verbs, PodVerb::Stop);
        verbs.gone(&pod);
        assert!(verbs.hold(&pod));
        act(&mut verbs, PodVerb::Restart);
        verbs.gone(&pod);
        assert!(!verbs.hold(&pod));
    }

    #[test]
    fn what_no_manifest_wants_is_forgotten() {
        let mut verbs = Verbs::default();
        for name in ["a", "b"] {
            verbs.act(&uid(name), PodVerb::Stop, false, answer().0);
        }
        let a = uid("a");
        assert!(verbs.keep_only(&[&a].into()) && !verbs.keep_only(&[&a].into()));
        assert_eq!(verbs.stopped(), &[a].into());
        assert!(Verbs::new(Some(b"noise")).stopped().is_empty());
    }
}
