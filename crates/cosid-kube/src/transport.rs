//! The HTTP client under kube's [`Client`]: kube's own stack retries writes by itself, has no deadlines, and logs
//! bodies.
//!
//! Every call has a deadline, over the answer's body too (a watch's: up to its headers). A call that did not come to
//! its end, because of the deadline or because whoever made it dropped it, may have hung on a connection whose other
//! end is gone; an idle one to the same address is as likely to be dead. So all connections are let go then, and the
//! next call makes a fresh one. A connection refused or a certificate turned down reads the CA file again, too.
//!
//! No call is made twice, but for one: an answer of 401 did nothing, and where the credentials have changed since, they
//! are shown once more within the same deadline.

use std::future::Future;
use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use cosid_lease::Millis;
use http::header::{AUTHORIZATION, USER_AGENT};
use http::{HeaderValue, Request, Response, StatusCode, Uri, request};
use http_body_util::{BodyExt as _, Either, Full};
use hyper::body::Incoming;
use hyper_rustls::{FixedServerNameResolver, HttpsConnector, HttpsConnectorBuilder};
use hyper_util::client::legacy::Client as HyperClient;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::TokioExecutor;
use kube::client::{Body, ConfigExt as _};
use kube::{Client, Config};
use rustls::pki_types::ServerName;
use tower::{Layer as _, Service};

use crate::Error;
use crate::auth::Credentials;
use crate::clock::{ApiClock, monotonic};
use crate::tls;

/// The longest answer that is taken in, bytes: a list of 32,768 Leases of 2 KB each.
const LONGEST: usize = 64 << 20;

/// Probes on an idle connection start after this; hyper counts in whole seconds.
const KEEPALIVE: Duration = Duration::from_secs(15);

const OUR_NAME: &str = concat!("cosid/", env!("CARGO_PKG_VERSION"));

type Connections = HyperClient<HttpsConnector<HttpConnector>, Full<Bytes>>;
type Answer = Response<Either<Full<Bytes>, Incoming>>;

/// A kube client for this configuration. Each call ends after `deadline`, and shows `clock` the API server's time.
/// Must be called within a tokio runtime; connects to nothing yet.
///
/// # Errors
/// [`Error`] where the configuration can't be used, naming the field or file.
pub fn client(config: &Config, deadline: Duration, clock: ApiClock) -> Result<Client, Error> {
    let transport = Transport::new(config, deadline, clock)?;
    // Whom to act as, where the kubeconfig says so.
    let extra = config.extra_headers_layer().map_err(|error| Error::Kubeconfig(error.to_string()))?;
    Ok(Client::new(extra.layer(transport), config.default_namespace.clone()))
}

/// The service under the client. Clones share connections, credentials and clock.
#[derive(Clone)]
struct Transport(Arc<Shared>);

struct Shared {
    config: Config,
    credentials: Credentials,
    connections: Mutex<Connections>,
    deadline: Duration,
    clock: ApiClock,
}

impl Transport {
    fn new(config: &Config, deadline: Duration, clock: ApiClock) -> Result<Self, Error> {
        if config.proxy_url.is_some() {
            return Err(Error::Kubeconfig("proxy-url is not supported: connect without a proxy".into()));
        }
        let connections = Mutex::new(connections(config, deadline)?);
        let (config, credentials) = (config.clone(), Credentials::new(config)?);
        Ok(Self(Arc::new(Shared { config, credentials, connections, deadline, clock })))
    }
}

impl Service<Request<Body>> for Transport {
    type Response = Answer;
    type Error = Error;
    type Future = Pin<Box<dyn Future<Output = Result<Answer, Error>> + Send>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Error>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<Body>) -> Self::Future {
        let shared = Arc::clone(&self.0);
        Box::pin(async move {
            let mut guard = FreshUnlessDone { shared: &shared, done: false };
            let answer = tokio::time::timeout(shared.deadline, shared.call(request)).await;
            // A refused connection or certificate starts afresh, too; any answer shows that the connection is good.
            guard.done = !matches!(answer, Err(_) | Ok(Err(Error::Unreachable(_))));
            answer.map_err(|_| Error::Deadline(shared.deadline))?
        })
    }
}

/// Lets go of all connections when a call is dropped, or fails, before it has come to its end.
struct FreshUnlessDone<'a> {
    shared: &'a Shared,
    done: bool,
}

impl Drop for FreshUnlessDone<'_> {
    fn drop(&mut self) {
        if !self.done {
            self.shared.start_afresh();
        }
    }
}

impl Shared {
    async fn call(&self, request: Request<Body>) -> Result<Answer, Error> {
        let (parts, body) = request.into_parts();
        let body = body.collect_bytes().await.map_err(|error| Error::Unreachable(error.to_string()))?;
        let shown = self.credentials.header().await?;
        let answer = self.send(&parts, &body, shown.as_ref()).await?;
        let answer = if answer.status() == StatusCode::UNAUTHORIZED {
            match self.credentials.after_refusal(shown.as_ref()).await? {
                Some(newer) => self.send(&parts, &body, Some(&newer)).await?,
                None => answer,
            }
        } else {
            answer
        };
        if is_watch(&parts.uri) && answer.status().is_success() {
            return Ok(answer.map(Either::Right));
        }
        let (head, body) = answer.into_parts();
        Ok(Response::from_parts(head, Either::Left(Full::new(collect(body).await?))))
    }

    async fn send(
        &self,
        parts: &request::Parts,
        body: &Bytes,
        shown: Option<&HeaderValue>,
    ) -> Result<Response<Incoming>, Error> {
        let mut request = Request::new(Full::new(body.clone()));
        *request.method_mut() = parts.method.clone();
        *request.uri_mut() = absolute(&self.config.cluster_url, &parts.uri)?;
        *request.headers_mut() = parts.headers.clone();
        request.headers_mut().insert(USER_AGENT, HeaderValue::from_static(OUR_NAME));
        if let Some(shown) = shown {
            request.headers_mut().insert(AUTHORIZATION, shown.clone());
        }
        let connections = self.connections.lock().unwrap_or_else(PoisonError::into_inner).clone();
        let sent: Millis = monotonic();
        let answer = connections.request(request).await.map_err(|error| Error::Unreachable(chain(&error)))?;
        self.clock.observe(sent, monotonic(), answer.headers());
        Ok(answer)
    }

    fn start_afresh(&self) {
        // Certificates that can't be read just now leave the old ones in use.
        if let Ok(fresh) = connections(&self.config, self.deadline) {
            *self.connections.lock().unwrap_or_else(PoisonError::into_inner) = fresh;
        }
    }
}

fn connections(config: &Config, deadline: Duration) -> Result<Connections, Error> {
    let mut tcp = HttpConnector::new();
    tcp.enforce_http(false);
    tcp.set_nodelay(true);
    tcp.set_keepalive(Some(KEEPALIVE));
    tcp.set_connect_timeout(Some(deadline));
    #[cfg(target_os = "linux")]
    tcp.set_tcp_user_timeout(Some(deadline.max(KEEPALIVE)));
    let tls = HttpsConnectorBuilder::new().with_tls_config(tls::client_config(config)?).https_or_http();
    let tls = match &config.tls_server_name {
        Some(name) => {
            let name = ServerName::try_from(name.clone())
                .map_err(|error| Error::Tls { what: "tls-server-name", why: error.to_string() })?;
            tls.with_server_name_resolver(FixedServerNameResolver::new(name))
        }
        None => tls,
    };
    let connector = tls.enable_http1().wrap_connector(tcp);
    Ok(HyperClient::builder(TokioExecutor::new()).pool_max_idle_per_host(2).build(connector))
}

/// The server's address with the path that kube asks for; some servers have a path of their own before it.
fn absolute(server: &Uri, asked: &Uri) -> Result<Uri, Error> {
    let mut parts = server.clone().into_parts();
    let path = asked.path_and_query().map_or("/", |path| path.as_str());
    let path = format!("{}{path}", server.path().trim_end_matches('/'));
    let invalid = |error: String| Error::Kubeconfig(format!("server {server}: {error}"));
    parts.path_and_query =
        Some(path.parse().map_err(|error: http::uri::InvalidUri| invalid(error.to_string()))?);
    Uri::from_parts(parts).map_err(|error| invalid(error.to_string()))
}

/// The whole body, as long as it is not [`LONGEST`].
async fn collect(mut body: Incoming) -> Result<Bytes, Error> {
    let mut whole = Vec::new();
    while let Some(frame) = body.frame().await {
        let frame = frame.map_err(|error| Error::Unreachable(chain(&error)))?;
        // Trailers say nothing here.
        let Ok(data) = frame.into_data() else { continue };
        if whole.len() + data.len() > LONGEST {
            return Err(Error::TooLong { limit: LONGEST });
        }
        whole.extend_from_slice(&data);
    }
    Ok(whole.into())
}

fn is_watch(uri: &Uri) -> bool {
    uri.query().is_some_and(|query| query.split('&').any(|pair| pair == "watch=true" || pair == "watch=1"))
}

/// An error with what it is due to: hyper's own texts say little.
fn chain(error: &(dyn std::error::Error + 'static)) -> String {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(cause) = source {
        text = format!("{text}: {cause}");
        source = cause.source();
    }
    text
}

#[cfg(test)]
mod tests;
