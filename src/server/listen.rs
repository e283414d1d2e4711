//! The socket: who may connect, how many at once, how a connection is served.

use super::Context;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use rustix::fs::Mode;
use std::convert::Infallible;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;
use tokio::net::{UnixListener, UnixStream};
use tokio::sync::Semaphore;

/// Connections served at once. More wait in the kernel's queue, which is bounded too.
const MAX_CONNECTIONS: usize = 128;

/// How long a client may take to send a request's head.
const HEAD_TIMEOUT: Duration = Duration::from_secs(30);

/// The largest head of a request, and what a connection buffers.
const MAX_HEAD: usize = 64 * 1024;

/// The most header lines of a request.
const MAX_HEADERS: usize = 64;

/// Why the server cannot listen.
#[derive(Debug, thiserror::Error)]
pub enum ServerError {
    /// The socket cannot be made.
    #[error("making the socket {path}")]
    Bind {
        /// Where.
        path: PathBuf,
        /// Why.
        #[source]
        source: io::Error,
    },
}

/// A socket that takes connections.
#[derive(Debug)]
pub struct Listener {
    socket: UnixListener,
    /// Who may connect beside root: the user that the server runs as.
    own_uid: u32,
}

/// Makes the socket, for root only. A socket that an earlier agent left is replaced in one step, so that a client never
/// finds the path missing. Needs a tokio runtime.
///
/// # Errors
/// [`ServerError::Bind`] when the folder is missing or not writable, or the path is too long for a socket.
pub fn bind(path: &Path) -> Result<Listener, ServerError> {
    let bound = || -> io::Result<UnixListener> {
        let mut fresh = path.as_os_str().to_owned();
        fresh.push(".new");
        match std::fs::remove_file(&fresh) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
            _ => {}
        }
        let socket = UnixListener::bind(&fresh)?;
        // Nobody knows the path before the rename, and each peer is checked by its credentials too.
        rustix::fs::chmod(&fresh, Mode::RUSR | Mode::WUSR)?;
        std::fs::rename(&fresh, path)?;
        Ok(socket)
    };
    let socket = bound().map_err(|source| ServerError::Bind { path: path.to_owned(), source })?;
    Ok(Listener { socket, own_uid: rustix::process::geteuid().as_raw() })
}

/// Takes connections for ever.
pub(super) async fn accept(listener: Listener, context: Arc<Context>) {
    let slots = Arc::new(Semaphore::new(MAX_CONNECTIONS));
    loop {
        let Ok(slot) = Arc::clone(&slots).acquire_owned().await else { return };
        let stream = match listener.socket.accept().await {
            Ok((stream, _)) => stream,
            Err(error) => {
                // Out of descriptors or memory: wait until a connection ends rather than spin.
                tracing::warn!(%error, "taking a connection");
                drop(slot);
                tokio::time::sleep(Duration::from_millis(100)).await;
                continue;
            }
        };
        if !allowed(&stream, listener.own_uid) {
            continue;
        }
        let context = Arc::clone(&context);
        tokio::spawn(async move {
            serve_connection(stream, context, slot).await;
        });
    }
}

fn allowed(stream: &UnixStream, own_uid: u32) -> bool {
    match stream.peer_cred() {
        Ok(peer) if peer.uid() == 0 || peer.uid() == own_uid => true,
        Ok(peer) => {
            tracing::warn!(uid = peer.uid(), pid = peer.pid(), "refused a connection: only root may connect");
            false
        }
        Err(error) => {
            tracing::warn!(%error, "refused a connection: its credentials cannot be read");
            false
        }
    }
}

/// The slot goes with the connection, and with the exec session that a connection may turn into.
async fn serve_connection(stream: UnixStream, context: Arc<Context>, slot: tokio::sync::OwnedSemaphorePermit) {
    let slot = Arc::new(slot);
    let service = service_fn(|mut request: hyper::Request<hyper::body::Incoming>| {
        request.extensions_mut().insert(Slot(Arc::clone(&slot)));
        let context = Arc::clone(&context);
        async move { Ok::<_, Infallible>(super::answer(request, &context).await) }
    });
    let served = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(HEAD_TIMEOUT)
        .max_buf_size(MAX_HEAD)
        .max_headers(MAX_HEADERS)
        .half_close(false)
        .serve_connection(TokioIo::new(stream), service)
        .with_upgrades()
        .await;
    if let Err(error) = served {
        tracing::debug!(%error, "a connection ended early");
    }
}

/// Keeps a connection counted while something made from it lives.
#[derive(Debug, Clone)]
pub(super) struct Slot(#[expect(dead_code, reason = "held, not read")] Arc<tokio::sync::OwnedSemaphorePermit>);
