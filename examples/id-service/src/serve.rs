//! HTTP: who is let in, what is answered, and how it ends.

use std::convert::Infallible;
use std::future::Future;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use cosid_client::Error;
use http_body_util::Full;
use hyper::body::{Bytes, Incoming};
use hyper::header::{CONTENT_TYPE, RETRY_AFTER};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper::{Method, Request, Response, StatusCode};
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::server::graceful::GracefulShutdown;
use serde_json::{Value, json};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use crate::ids::Ids;

/// A client that says nothing for so long gives its place to others.
const SILENCE: Duration = Duration::from_secs(10);
/// How long after a failed accept the next is tried: there may be no file descriptors left.
const NO_ACCEPT: Duration = Duration::from_millis(100);

/// Answers until `stop`; then takes no more requests, and returns when those under way are answered, after `drain` at
/// the latest. At most `places` clients are served at once; others wait.
pub(crate) async fn serve(
    listener: TcpListener,
    ids: Arc<Ids>,
    places: usize,
    drain: Duration,
    stop: impl Future<Output = ()>,
) {
    let places = Arc::new(Semaphore::new(places));
    let graceful = GracefulShutdown::new();
    let mut stop = pin!(stop);
    loop {
        let (stream, place) = tokio::select! {
            () = &mut stop => break,
            client = next_client(&listener, &places) => client,
        };
        let ids = Arc::clone(&ids);
        let service = service_fn(move |request| {
            let ids = Arc::clone(&ids);
            async move { Ok::<_, Infallible>(answer(&ids, &request)) }
        });
        let mut http = http1::Builder::new();
        http.timer(TokioTimer::new()).header_read_timeout(SILENCE);
        let connection = graceful.watch(http.serve_connection(TokioIo::new(stream), service));
        tokio::spawn(async move {
            // A client that goes away is its own affair.
            let _ = connection.await;
            drop(place);
        });
    }
    drop(listener);
    if tokio::time::timeout(drain, graceful.shutdown()).await.is_err() {
        eprintln!("requests were still under way after {drain:?}");
    }
}

async fn next_client(listener: &TcpListener, places: &Arc<Semaphore>) -> (TcpStream, OwnedSemaphorePermit) {
    loop {
        // The semaphore is never closed.
        let Ok(place) = Arc::clone(places).acquire_owned().await else { continue };
        match listener.accept().await {
            Ok((stream, _)) => return (stream, place),
            Err(error) => {
                eprintln!("no client can be taken in: {error}");
                tokio::time::sleep(NO_ACCEPT).await;
            }
        }
    }
}

fn answer(ids: &Ids, request: &Request<Incoming>) -> Response<Full<Bytes>> {
    if request.method() != Method::GET {
        return response(StatusCode::METHOD_NOT_ALLOWED, &json!({ "error": "only GET" }));
    }
    match request.uri().path() {
        "/" | "/id" => match ids.next() {
            Ok(made) => response(StatusCode::OK, &json!(made)),
            Err(error) => unavailable(&error),
        },
        // The process works. Without a slot a restart would not help.
        "/healthz" => response(StatusCode::OK, &json!({ "ok": true })),
        // It can make an ID: it makes one, of which there are enough.
        "/readyz" => match ids.next() {
            Ok(_) => response(StatusCode::OK, &json!({ "ok": true })),
            Err(error) => unavailable(&error),
        },
        path => response(StatusCode::NOT_FOUND, &json!({ "error": format!("no {path}; there is /id") })),
    }
}

/// No ID is made up: the error says what is missing, and the header whether it comes by itself.
fn unavailable(error: &Error) -> Response<Full<Bytes>> {
    let mut response = response(StatusCode::SERVICE_UNAVAILABLE, &json!({ "error": error.to_string() }));
    if error.is_transient() {
        response.headers_mut().insert(RETRY_AFTER, 1.into());
    }
    response
}

fn response(status: StatusCode, body: &Value) -> Response<Full<Bytes>> {
    let mut response = Response::new(Full::new(Bytes::from(format!("{body}\n"))));
    *response.status_mut() = status;
    response.headers_mut().insert(CONTENT_TYPE, hyper::header::HeaderValue::from_static("application/json"));
    response
}
