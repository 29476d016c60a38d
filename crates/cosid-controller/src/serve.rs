//! Health and metrics over HTTP.

use std::sync::Arc;

use axum::Router;
use axum::http::{StatusCode, header};
use axum::response::IntoResponse;
use axum::routing::get;
use tokio::net::TcpListener;

use crate::metrics::Metrics;
use crate::watching::Synced;
use crate::webhook::listen::Shown;

/// Serves until it is dropped.
///
/// `/livez`: the program runs; an API server that is away is no reason to restart it. `/readyz`: it has listed pools and
/// Leases once, so that it can lead; a replica that does not lead is ready, too. With a webhook it also needs a certificate
/// to show. `/metrics`: Prometheus.
pub(crate) async fn serve(
    listener: TcpListener,
    metrics: Arc<Metrics>,
    synced: Arc<Synced>,
    webhook: Option<Arc<Shown>>,
) {
    if let Err(error) = axum::serve(listener, app(metrics, synced, webhook)).await {
        tracing::error!(%error, "health and metrics are no longer served");
    }
}

fn app(metrics: Arc<Metrics>, synced: Arc<Synced>, webhook: Option<Arc<Shown>>) -> Router {
    let ready = move || {
        let listed = synced.all();
        let shown = webhook.as_ref().is_none_or(|shown| shown.any());
        async move {
            match (listed, shown) {
                (true, true) => (StatusCode::OK, "ok\n"),
                (false, _) => {
                    (StatusCode::SERVICE_UNAVAILABLE, "pools and Leases have not been listed yet\n")
                }
                (true, false) => (StatusCode::SERVICE_UNAVAILABLE, "the webhook has no certificate yet\n"),
            }
        }
    };
    let text = move || {
        let text = metrics.text();
        async move {
            let kind = "application/openmetrics-text; version=1.0.0; charset=utf-8";
            ([(header::CONTENT_TYPE, kind)], text).into_response()
        }
    };
    Router::new()
        .route("/livez", get(async || "ok\n"))
        .route("/readyz", get(ready))
        .route("/metrics", get(text))
}

#[cfg(test)]
mod tests {
    use axum::body::{Body, to_bytes};
    use axum::http::Request;
    use tower::ServiceExt as _;

    use super::*;

    async fn ask(app: &Router, path: &str) -> (u16, String) {
        let answer = app.clone().oneshot(Request::get(path).body(Body::empty()).unwrap()).await.unwrap();
        let code = answer.status().as_u16();
        let body = to_bytes(answer.into_body(), 1 << 20).await.unwrap();
        (code, String::from_utf8(body.to_vec()).unwrap())
    }

    #[tokio::test]
    async fn a_replica_is_alive_at_once_and_ready_once_it_has_listed_everything() {
        let synced = Arc::<Synced>::default();
        let app = app(Arc::default(), Arc::clone(&synced), None);
        assert_eq!(ask(&app, "/livez").await, (200, "ok\n".into()));
        assert_eq!(ask(&app, "/readyz").await.0, 503);
        synced.listed_pools();
        assert_eq!(ask(&app, "/readyz").await.0, 503);
        synced.listed_leases();
        assert_eq!(ask(&app, "/readyz").await, (200, "ok\n".into()));
        let app = super::app(Arc::default(), synced, Some(Arc::default()));
        assert_eq!(ask(&app, "/readyz").await, (503, "the webhook has no certificate yet\n".into()));
    }

    #[tokio::test]
    async fn metrics_are_prometheus_text() {
        let metrics = Arc::<Metrics>::default();
        metrics.leads(true);
        metrics.pools(2, (3, 4, 5));
        metrics.wrote("lease-created");
        let (code, text) = ask(&app(metrics, Arc::default(), None), "/metrics").await;
        assert_eq!(code, 200);
        for line in [
            "cosid_controller_leading 1",
            "cosid_controller_pools 2",
            "cosid_controller_slots{state=\"held\"} 3",
            "cosid_controller_writes_total{what=\"lease-created\"} 1",
        ] {
            assert!(text.lines().any(|found| found == line), "{line} is not in\n{text}");
        }
    }
}
