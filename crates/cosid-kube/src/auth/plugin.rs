//! Credentials that a program gives, as a kubeconfig names it.

use http::header::AUTHORIZATION;
use http::{HeaderValue, Request, Response};
use kube::Config;
use kube::client::{Body, ConfigExt as _};
use tower::util::BoxService;
use tower::{BoxError, Layer as _, Service as _};

use crate::Error;

/// kube runs the plugin, for which it has the code anyway. It blocks while the plugin runs.
pub(super) async fn run(config: Box<Config>) -> Result<HeaderValue, Error> {
    let layer = tokio::task::spawn_blocking(move || config.auth_layer()).await;
    let layer = layer
        .map_err(|error| Error::Credentials(error.to_string()))?
        .map_err(|error| Error::Credentials(format!("the kubeconfig's credential plugin: {error}")))?;
    let none = "the kubeconfig's credential plugin gave no token; client certificates from plugins are not \
                supported: use a kubeconfig with a token or a certificate";
    let layer = layer.ok_or_else(|| Error::Credentials(none.into()))?;
    // kube gives the header only by way of a request that it adds it to.
    let mut service = BoxService::new(layer.layer(tower::service_fn(show)));
    let echoed = service.call(Request::new(Body::empty())).await;
    let header = echoed.map_err(|error| Error::Credentials(error.to_string()))?.into_body();
    header.ok_or_else(|| Error::Credentials(none.into()))
}

async fn show(request: Request<Body>) -> Result<Response<Option<HeaderValue>>, BoxError> {
    Ok(Response::new(request.headers().get(AUTHORIZATION).cloned()))
}
