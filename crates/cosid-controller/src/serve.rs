//! Health and metrics over HTTP.

use std::sync::Arc;

use axum::Router;
use axum::http::{StatusCode, header};
use axum::response::IntoResponse;
use axum::routing::get;
use tokio::net::TcpListener;

use crate::metrics::Metrics;
use crate::watching::Synced;

/// Serves until it is dropped.
///
/// `/livez`: the program runs; an API server that is away is no reason to restart it. `/readyz`: it has listed pools and
/// Leases once, so that it can lead; a replica that does not lead is ready, too. `/metrics`: Prometheus.
pub(crate) async fn serve(listener: TcpListener, metrics: Arc<Metrics>, synced: Arc<Synced>) {
    let ready = move || {
        let ready = synced.all();
        async move {
            if ready {
                (StatusCode::OK, "ok\n")
            } else {
                (StatusCode::SERVICE_UNAVAILABLE, "pools and Leases have not been listed yet\n")
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
    let app = Router::new()
        .route("/livez", get(async || "ok\n"))
        .route("/readyz", get(ready))
        .route("/metrics", get(text));
    if let Err(error) = axum::serve(listener, app).await {
        tracing::error!(%error, "health and metrics are no longer served");
    }
}
