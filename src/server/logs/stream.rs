//! A log as the body of an answer: read in steps on a thread for blocking work, at the client's pace.

use super::reader::{LogReader, Step};
use crate::model::ContainerId;
use crate::model::status::State;
use crate::model::view::NodeView;
use crate::sys::inotify::Watcher;
use crate::sys::ready::Ready;
use futures_util::{Stream, stream};
use hyper::body::Bytes;
use std::io;
use std::path::Path;
use std::sync::Arc;
use tokio::sync::watch;

/// What it takes to go on until a container ends.
#[derive(Debug)]
pub(in crate::server) struct Follow {
    watch: Ready<Watcher>,
    view: watch::Receiver<Arc<NodeView>>,
    id: ContainerId,
    /// Nothing more is to come.
    over: bool,
}

impl Follow {
    /// Follows the log at `path` while the container attempt `id` runs. Make it before the log is opened: then nothing
    /// is missed.
    ///
    /// # Errors
    /// When the log's folder cannot be watched.
    pub(in crate::server) fn new(
        path: &Path,
        view: watch::Receiver<Arc<NodeView>>,
        id: ContainerId,
    ) -> io::Result<Self> {
        let watch = Watcher::new()?;
        watch.growing(path.parent().unwrap_or(Path::new("/")))?;
        let watch = Ready::new(watch)?;
        Ok(Self { watch, view, id, over: false })
    }

    /// Whether the log was complete at the time of the call.
    fn has_ended(&mut self) -> bool {
        self.over = self.over || !is_running(&self.view.borrow_and_update(), &self.id);
        self.over
    }

    /// Waits until something was written or the container has ended. Other changes of the node wake nobody.
    async fn wait(&mut self) -> io::Result<()> {
        while !self.has_ended() {
            tokio::select! {
                // The agent stops, the container does not: a log that ended here would look complete.
                changed = self.view.changed() => changed.map_err(|_| io::Error::other("the agent is stopping"))?,
                changes = self.watch.read(Watcher::take) => {
                    self.over |= changes?.iter().any(|change| change.gone);
                    break;
                }
            }
        }
        Ok(())
    }
}

fn is_running(view: &NodeView, id: &ContainerId) -> bool {
    let statuses = view.pods.iter().flat_map(|pod| pod.status.init_containers.iter().chain(&pod.status.containers));
    statuses.into_iter().any(|c| c.container_id.as_ref() == Some(id) && matches!(c.state, State::Running { .. }))
}

/// The log's text. Ends at its end, or with `follow` when the container has ended.
pub(in crate::server) fn stream(
    reader: LogReader,
    follow: Option<Follow>,
) -> impl Stream<Item = io::Result<Bytes>> + Send {
    stream::try_unfold(Some((reader, follow)), |state| async {
        let Some((mut reader, mut follow)) = state else { return Ok(None) };
        loop {
            let ended = follow.as_mut().is_none_or(Follow::has_ended);
            let (step, out);
            (reader, step, out) = read_on(reader, ended).await?;
            let over = step == Step::Full || (step == Step::CaughtUp && ended);
            match (&mut follow, over) {
                (_, true) if out.is_empty() => return Ok(None),
                (_, true) => return Ok(Some((out, None))),
                (Some(follow), false) if out.is_empty() && step == Step::CaughtUp => follow.wait().await?,
                (_, false) if out.is_empty() => {}
                (_, false) => return Ok(Some((out, Some((reader, follow))))),
            }
        }
    })
}

async fn read_on(mut reader: LogReader, ended: bool) -> io::Result<(LogReader, Step, Bytes)> {
    let read = move || {
        let mut out = Vec::new();
        let step = reader.step(&mut out)?;
        if step == Step::CaughtUp {
            if ended {
                reader.finish(&mut out);
            } else {
                reader.pause(&mut out);
            }
        }
        Ok((reader, step, out.into()))
    };
    tokio::task::spawn_blocking(read).await.map_err(io::Error::other)?
}
