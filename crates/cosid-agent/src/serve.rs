//! The socket's server: every connection is bounded, so that no client can starve the keeper.

use std::convert::Infallible;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::body::Body;
use axum::http::Request;
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::net::{UnixListener, UnixStream};
use tokio::sync::{Semaphore, watch};
use tokio::task::JoinHandle;
use tower_service::Service;

/// Connections served at once. One more is closed at once: its client sees the end of the stream and tries again.
pub(crate) const MOST_CONNECTIONS: usize = 256;

/// How long a request's line and headers may take, and how long a connection may stand idle.
const HEADER_TIMEOUT: Duration = Duration::from_secs(5);

/// The longest request line and headers, bytes.
const MOST_HEADER_BYTES: usize = 16 * 1024;

/// How long answers that are under way have at the end.
const LAST_ANSWERS: Duration = Duration::from_millis(200);

/// The running server.
pub(crate) struct Server {
    accepting: JoinHandle<()>,
    permits: Arc<Semaphore>,
    ending: watch::Sender<bool>,
}

impl Server {
    /// Serves.
    pub(crate) fn start(listener: UnixListener, app: Router) -> Self {
        let permits = Arc::new(Semaphore::new(MOST_CONNECTIONS));
        let (ending, ended) = watch::channel(false);
        let accepting = tokio::spawn(accept(listener, app, Arc::clone(&permits), ended));
        Self { accepting, permits, ending }
    }

    /// Takes no more requests, and waits a moment until those under way have their answers: whoever watches the lease
    /// reads its last line.
    pub(crate) async fn end(self) {
        self.accepting.abort();
        self.ending.send_replace(true);
        let all = u32::try_from(MOST_CONNECTIONS).unwrap_or(u32::MAX);
        // Whoever does not read its answer does not get to hold up the end.
        let _ = tokio::time::timeout(LAST_ANSWERS, self.permits.acquire_many(all)).await;
    }
}

async fn accept(listener: UnixListener, app: Router, permits: Arc<Semaphore>, ended: watch::Receiver<bool>) {
    loop {
        let stream = match listener.accept().await {
            Ok((stream, _)) => stream,
            Err(error) => {
                // Out of file descriptors, most likely: connections that end give some back.
                tracing::warn!("can't accept a connection: {error}");
                tokio::time::sleep(Duration::from_millis(100)).await;
                continue;
            }
        };
        let Ok(permit) = Arc::clone(&permits).try_acquire_owned() else {
            tracing::debug!("refused a connection: {MOST_CONNECTIONS} are open");
            continue;
        };
        let (app, ended) = (app.clone(), ended.clone());
        tokio::spawn(async move {
            if let Err(error) = connection(stream, app, ended).await {
                tracing::debug!("a connection ended: {error}");
            }
            drop(permit);
        });
    }
}

async fn connection(
    stream: UnixStream,
    app: Router,
    mut ended: watch::Receiver<bool>,
) -> Result<(), hyper::Error> {
    let service = hyper::service::service_fn(move |request: Request<Incoming>| {
        let mut app = app.clone();
        async move {
            let answer = app.call(request.map(Body::new)).await;
            Ok::<_, Infallible>(answer.unwrap_or_else(|never| match never {}))
        }
    });
    let served = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(HEADER_TIMEOUT)
        .max_buf_size(MOST_HEADER_BYTES)
        .serve_connection(TokioIo::new(stream), service);
    let mut served = pin!(served);
    tokio::select! {
        outcome = &mut served => return outcome,
        // The sender is gone only with the whole server.
        _ = ended.wait_for(|&ended| ended) => served.as_mut().graceful_shutdown(),
    }
    served.await
}

#[cfg(test)]
mod fuzz;
