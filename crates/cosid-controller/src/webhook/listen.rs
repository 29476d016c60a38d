//! TLS, and no more connections than this program can bear.

use std::pin::pin;
use std::sync::{Arc, PoisonError, RwLock};
use std::time::Duration;

use axum::Router;
use hyper::server::conn::http1;
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use rustls::ServerConfig;
use rustls::crypto::ring::default_provider;
use rustls::server::{ClientHello, ResolvesServerCert};
use rustls::sign::CertifiedKey;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{Semaphore, watch};
use tokio::task::JoinSet;
use tokio_rustls::TlsAcceptor;

use crate::Error;

/// How many connections there are at once; more wait. An API server has some dozen.
const MOST_CONNECTIONS: usize = 512;

/// How long a handshake may take.
const HANDSHAKE: Duration = Duration::from_secs(5);

/// How long a connection may stay without a whole request head. API servers let go of idle connections after 90 s: were
/// this end first, a request could cross the end of its connection, and be lost.
const IDLE: Duration = Duration::from_secs(150);

/// How long requests that are under way at the end may take.
const LAST: Duration = Duration::from_secs(5);

/// The certificate that is shown now: connections that are open already stay as they are.
#[derive(Debug, Default)]
pub(crate) struct Shown(RwLock<Option<Arc<CertifiedKey>>>);

impl Shown {
    /// Shows another one.
    pub(crate) fn show(&self, key: Arc<CertifiedKey>) {
        *self.0.write().unwrap_or_else(PoisonError::into_inner) = Some(key);
    }

    /// Whether there is one.
    pub(crate) fn any(&self) -> bool {
        self.0.read().unwrap_or_else(PoisonError::into_inner).is_some()
    }
}

impl ResolvesServerCert for Shown {
    fn resolve(&self, _: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        self.0.read().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

/// The TLS of a server that shows what is shown.
pub(crate) fn tls(shown: Arc<Shown>) -> Result<TlsAcceptor, Error> {
    let config = ServerConfig::builder_with_provider(Arc::new(default_provider()))
        .with_safe_default_protocol_versions()
        .map_err(|error| Error::Setup(format!("can't set up TLS: {error}")))?
        .with_no_client_auth()
        .with_cert_resolver(shown);
    Ok(TlsAcceptor::from(Arc::new(config)))
}

/// Serves until `stop` becomes true; then takes no new connections, ends idle ones, and gives others a last while.
pub(crate) async fn serve(listener: TcpListener, tls: TlsAcceptor, app: Router, stop: watch::Receiver<bool>) {
    let room = Arc::new(Semaphore::new(MOST_CONNECTIONS));
    let mut connections = JoinSet::new();
    loop {
        let accepted = async {
            let place = Arc::clone(&room).acquire_owned().await;
            (place, listener.accept().await)
        };
        tokio::select! {
            () = told(stop.clone()) => break,
            Some(_) = connections.join_next() => {}
            (place, accepted) = accepted => match accepted {
                Ok((stream, _)) => {
                    let (tls, app, stop) = (tls.clone(), app.clone(), stop.clone());
                    connections.spawn(async move {
                        let _place = place;
                        connection(stream, tls, app, stop).await;
                    });
                }
                Err(error) => {
                    // Out of file descriptors, say: others may give some back.
                    tracing::warn!(%error, "the webhook can't take a connection");
                    tokio::time::sleep(Duration::from_millis(100)).await;
                }
            },
        }
    }
    drop(listener);
    let _ = tokio::time::timeout(LAST, async { while connections.join_next().await.is_some() {} }).await;
}

/// Waits until it is time to stop.
async fn told(mut stop: watch::Receiver<bool>) {
    // The other end of the channel goes with the program.
    let _ = stop.wait_for(|&stop| stop).await;
}

async fn connection(stream: TcpStream, tls: TlsAcceptor, app: Router, stop: watch::Receiver<bool>) {
    let stream = match tokio::time::timeout(HANDSHAKE, tls.accept(stream)).await {
        Ok(Ok(stream)) => stream,
        Ok(Err(error)) => return tracing::debug!(%error, "a TLS handshake with the webhook failed"),
        Err(_) => return tracing::debug!("a TLS handshake with the webhook took too long"),
    };
    let mut http = http1::Builder::new();
    http.timer(TokioTimer::new()).header_read_timeout(IDLE);
    let mut connection = pin!(http.serve_connection(TokioIo::new(stream), TowerToHyperService::new(app)));
    let ended = tokio::select! {
        ended = &mut connection => ended,
        () = told(stop) => {
            connection.as_mut().graceful_shutdown();
            connection.await
        }
    };
    if let Err(error) = ended {
        tracing::debug!(%error, "a connection to the webhook broke off");
    }
}
