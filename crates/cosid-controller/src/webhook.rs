//! The webhook that injects: served by every replica, over TLS, with certificates that the leader makes and rotates.
//!
//! [`certificates`] and [`trust`] are pure: what a certificate is made of and when it is due, and which one may be shown to
//! API servers by what they trust. `keeping` does it, `answer` answers, `listen` listens.

pub(crate) mod answer;
pub mod certificates;
pub(crate) mod keeping;
pub(crate) mod listen;
pub mod trust;

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use tokio::net::TcpListener;
use tokio::sync::watch;
use tokio::task::JoinHandle;

use self::keeping::Keeping;
use self::listen::Shown;
use crate::Error;
use crate::inject::Agent;

/// How the webhook runs.
#[derive(Clone, Debug)]
pub struct WebhookSettings {
    /// Where it is served.
    pub listen: SocketAddr,
    /// What agents are, where their pod does not say otherwise.
    pub agent: Agent,
    /// The Service, of the controller's own namespace, by which API servers reach it.
    pub service: String,
    /// Further names and addresses that its certificates are for.
    pub names: Vec<String>,
    /// The `MutatingWebhookConfiguration` whose `caBundle` is kept.
    pub configuration: String,
    /// The Secret, of the controller's own namespace, that keeps its certificates.
    pub secret: String,
    /// How long a certificate is valid. At two thirds of it the next one is made.
    pub lifetime: Duration,
    /// How long it is served after this program was asked to end: so long it takes until nobody is sent here any more.
    pub drain: Duration,
}

/// The webhook as it runs.
pub(crate) struct Webhook {
    /// What it shows.
    pub(crate) shown: Arc<Shown>,
    drain: Duration,
    stop: watch::Sender<bool>,
    serving: JoinHandle<()>,
    keeping: JoinHandle<()>,
}

impl Webhook {
    /// Starts it.
    ///
    /// # Errors
    /// [`Error::Setup`] where its port is in use.
    pub(crate) async fn start(keeping: Keeping, app: Router) -> Result<Self, Error> {
        let (shown, drain, address) =
            (Arc::clone(&keeping.shown), keeping.settings.drain, keeping.settings.listen);
        let in_use = |error| {
            Error::Setup(format!("can't listen on {address}: {error}; pass another --webhook-listen"))
        };
        let listener = TcpListener::bind(address).await.map_err(in_use)?;
        tracing::info!(address = %listener.local_addr().map_err(in_use)?, "the webhook is served");
        let (stop, stopped) = watch::channel(false);
        let serving = tokio::spawn(listen::serve(listener, listen::tls(Arc::clone(&shown))?, app, stopped));
        Ok(Self { shown, drain, stop, serving, keeping: tokio::spawn(keeping.keep()) })
    }

    /// Serves on for a while, as API servers still come; then ends what is idle, answers the rest, and returns.
    pub(crate) async fn end(self) {
        tokio::time::sleep(self.drain).await;
        self.keeping.abort();
        self.stop.send_replace(true);
        let _ = self.serving.await;
    }
}
