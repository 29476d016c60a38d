//! The socket's server: every connection is bounded, so that no client can starve the keeper.

use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::body::Body;
use axum::http::Request;
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::net::{UnixListener, UnixStream};
use tokio::sync::Semaphore;
use tower_service::Service;

/// Connections served at once. One more is closed at once: its client sees the end of the stream and tries again.
pub(crate) const MOST_CONNECTIONS: usize = 256;

/// How long a request's line and headers may take, and how long a connection may stand idle.
const HEADER_TIMEOUT: Duration = Duration::from_secs(5);

/// The longest request line and headers, bytes.
const MOST_HEADER_BYTES: usize = 16 * 1024;

/// Serves until the listener's task is dropped.
pub(crate) async fn serve(listener: UnixListener, app: Router) {
    let permits = Arc::new(Semaphore::new(MOST_CONNECTIONS));
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
        let app = app.clone();
        tokio::spawn(async move {
            if let Err(error) = connection(stream, app).await {
                tracing::debug!("a connection ended: {error}");
            }
            drop(permit);
        });
    }
}

async fn connection(stream: UnixStream, app: Router) -> Result<(), hyper::Error> {
    let service = hyper::service::service_fn(move |request: Request<Incoming>| {
        let mut app = app.clone();
        async move {
            let answer = app.call(request.map(Body::new)).await;
            Ok::<_, Infallible>(answer.unwrap_or_else(|never| match never {}))
        }
    });
    http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(HEADER_TIMEOUT)
        .max_buf_size(MOST_HEADER_BYTES)
        .serve_connection(TokioIo::new(stream), service)
        .await
}
