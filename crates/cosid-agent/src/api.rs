//! The socket's requests.

mod asked_layout;
mod ids;

use std::time::Duration;

use axum::Router;
use axum::body::Body;
use axum::extract::rejection::{PathRejection, QueryRejection};
use axum::extract::{Path, Query, Request, State};
use axum::http::{StatusCode, header};
use axum::middleware::{self, Next};
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post, put};
use cosid_id::{Id, IdParts};
use http_body_util::{BodyExt, Limited};
use serde::{Deserialize, Serialize};
use tokio::sync::watch;

use crate::clock::host_now;
use crate::metrics::Metrics;
use crate::status::{State as LeaseState, Status, StatusBoard};
use crate::window::Window;
use asked_layout::{Pairs, Parameters, excerpt};
pub(crate) use ids::IdsRoom;

/// The largest request body, bytes. No request needs one.
const MOST_BODY_BYTES: usize = 64 * 1024;

/// How long a request's body may take.
const BODY_TIMEOUT: Duration = Duration::from_secs(5);

/// What the requests need.
#[derive(Clone)]
pub(crate) struct Api {
    /// Where the lease stands.
    pub board: StatusBoard,
    /// Its page.
    pub window: Window,
    /// What is counted.
    pub metrics: Metrics,
    /// Room for answers with many IDs.
    pub room: IdsRoom,
}

/// All routes.
pub(crate) fn router(api: Api) -> Router {
    Router::new()
        .route("/v1/lease", get(lease))
        .route("/v1/ids", post(ids::make))
        .route("/v1/ids/{id}", get(take_apart))
        .route("/v1/generators/{name}", put(assign))
        .route("/livez", get(|| async { "ok\n" }))
        .route("/readyz", get(ready))
        .route("/metrics", get(metrics))
        .fallback(|| async { Failure::new(StatusCode::NOT_FOUND, "NotFound", "there is no such path") })
        .method_not_allowed_fallback(|| async {
            Failure::new(StatusCode::METHOD_NOT_ALLOWED, "MethodNotAllowed", "the path has another method")
        })
        .layer(middleware::from_fn(bound_body))
        .with_state(api)
}

/// Why a request was not served, as JSON: `{"error":{"reason":...,"message":...}}`.
#[derive(Debug)]
struct Failure {
    status: StatusCode,
    reason: &'static str,
    message: String,
    earliest_expiry: Option<u64>,
}

impl Failure {
    fn new(status: StatusCode, reason: &'static str, message: impl Into<String>) -> Self {
        Self { status, reason, message: message.into(), earliest_expiry: None }
    }

    /// There is no page now; the status says why.
    fn no_page(status: &Status) -> Self {
        let reason = match status.state {
            LeaseState::Exhausted => "Exhausted",
            LeaseState::Refused => "Refused",
            LeaseState::Blocked => "Blocked",
            LeaseState::Closing | LeaseState::Stopped => "Closing",
            LeaseState::Starting | LeaseState::Seeking | LeaseState::Held => "NoSlot",
        };
        let failure = Self::new(StatusCode::SERVICE_UNAVAILABLE, reason, status.message.clone());
        Self { earliest_expiry: status.earliest_expiry, ..failure }
    }
}

impl From<cosid_id::Error> for Failure {
    fn from(error: cosid_id::Error) -> Self {
        let message = error.to_string();
        match error {
            cosid_id::Error::BadGeneratorName { .. } => {
                Self::new(StatusCode::BAD_REQUEST, "BadName", message)
            }
            cosid_id::Error::CellsUsedUp { .. } => {
                Self::new(StatusCode::CONFLICT, "TooManyGenerators", message)
            }
            cosid_id::Error::OtherLayout { .. } => Self::new(StatusCode::CONFLICT, "OtherLayout", message),
            cosid_id::Error::UnfitLayout { .. } => {
                Self::new(StatusCode::UNPROCESSABLE_ENTITY, "UnfitLayout", message)
            }
            cosid_id::Error::PageClosed { .. } => {
                Self::new(StatusCode::SERVICE_UNAVAILABLE, "Closing", message)
            }
            _ => Self::new(StatusCode::INTERNAL_SERVER_ERROR, "Page", message),
        }
    }
}

impl IntoResponse for Failure {
    fn into_response(self) -> Response {
        #[derive(Serialize)]
        struct Body {
            error: Reason,
        }
        #[derive(Serialize)]
        #[serde(rename_all = "camelCase")]
        struct Reason {
            reason: &'static str,
            message: String,
            #[serde(skip_serializing_if = "Option::is_none")]
            earliest_expiry: Option<u64>,
        }
        let Self { status, reason, message, earliest_expiry } = self;
        json(status, &Body { error: Reason { reason, message, earliest_expiry } })
    }
}

/// An answer of one JSON line: with its end, so that a shell's prompt begins on a line of its own.
fn json(status: StatusCode, value: &impl Serialize) -> Response {
    match serde_json::to_vec(value) {
        Ok(mut line) => {
            line.push(b'\n');
            (status, [(header::CONTENT_TYPE, "application/json")], line).into_response()
        }
        Err(error) => (StatusCode::INTERNAL_SERVER_ERROR, error.to_string()).into_response(),
    }
}

/// Reads and drops a request's body, none of which is used, within bounds of size and time.
async fn bound_body(request: Request, next: Next) -> Response {
    let (parts, body) = request.into_parts();
    let body = Limited::new(body, MOST_BODY_BYTES).collect();
    match tokio::time::timeout(BODY_TIMEOUT, body).await {
        Ok(Ok(_)) => next.run(Request::from_parts(parts, Body::empty())).await,
        Ok(Err(_)) => {
            let message = format!("a request's body has at most {MOST_BODY_BYTES} bytes");
            let failure = Failure::new(StatusCode::PAYLOAD_TOO_LARGE, "BodyTooLarge", message);
            // What is left of the body is not read: the connection can't be used again.
            ([(header::CONNECTION, "close")], failure).into_response()
        }
        Err(_) => {
            let failure = Failure::new(StatusCode::REQUEST_TIMEOUT, "BodyTooSlow", "the body took too long");
            ([(header::CONNECTION, "close")], failure).into_response()
        }
    }
}

#[derive(Debug, Deserialize)]
struct LeaseQuery {
    #[serde(default)]
    watch: bool,
    pool: Option<String>,
}

async fn lease(
    State(api): State<Api>,
    query: Result<Query<LeaseQuery>, QueryRejection>,
) -> Result<Response, Failure> {
    let Query(query) = query.map_err(bad_query)?;
    let status = api.board.now();
    if query.pool.is_some() && status.pool.is_empty() {
        return Err(Failure::no_page(&status));
    }
    if let Some(pool) = query.pool.filter(|pool| !names(&status.pool, pool)) {
        let message = format!("this agent keeps a slot of pool {}, not of {pool}", status.pool);
        return Err(Failure::new(StatusCode::NOT_FOUND, "OtherPool", message));
    }
    if query.watch {
        return Ok(
            ([(header::CONTENT_TYPE, "application/x-ndjson")], changes(api.board.watch())).into_response()
        );
    }
    Ok(json(StatusCode::OK, &status))
}

/// Whether a pool's full name is meant by `asked`, with or without its namespace.
fn names(full: &str, asked: &str) -> bool {
    full == asked || full.split_once('/').is_some_and(|(_, name)| name == asked)
}

/// A JSON line now, and one for each change until the agent has stopped. A slow reader gets the newest state, not all.
fn changes(receiver: watch::Receiver<Status>) -> Body {
    let lines = futures::stream::unfold(Some((receiver, true)), |state| async move {
        let (mut receiver, first) = state?;
        if !first {
            receiver.changed().await.ok()?;
        }
        let status = receiver.borrow_and_update().clone();
        let mut line = serde_json::to_vec(&status).ok()?;
        line.push(b'\n');
        let more = status.state != LeaseState::Stopped;
        Some((Ok::<_, std::convert::Infallible>(line), more.then_some((receiver, false))))
    });
    Body::from_stream(lines)
}

#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct Apart {
    id: u64,
    string: String,
    timestamp: u64,
    slot: u32,
    sequence: u32,
}

#[derive(Debug, Deserialize)]
struct ApartQuery {
    generator: Option<String>,
}

async fn take_apart(
    State(api): State<Api>,
    path: Result<Path<String>, PathRejection>,
    query: Result<Query<ApartQuery>, QueryRejection>,
) -> Result<Response, Failure> {
    let Query(query) = query.map_err(bad_query)?;
    let Path(text) = path.map_err(|rejection| bad_path("BadId", &rejection))?;
    let bad = |error: cosid_id::Error| Failure::new(StatusCode::BAD_REQUEST, "BadId", error.to_string());
    let id: Id = text.parse().map_err(bad)?;
    let layout = match query.generator {
        None => api.window.layout(),
        Some(name) => match api.window.layout_of(&name)? {
            Some(None) => {
                let name = excerpt(&name);
                let message =
                    format!("no generator `{name}` is known here; ask for it, with its layout, first");
                return Err(Failure::new(StatusCode::NOT_FOUND, "NoGenerator", message));
            }
            known => known.flatten(),
        },
    };
    let Some(layout) = layout else { return Err(Failure::no_page(&api.board.now())) };
    let parts: IdParts = layout.decompose(id).map_err(bad)?;
    Ok(json(
        StatusCode::OK,
        &Apart {
            id: id.get(),
            string: id.to_string(),
            timestamp: parts.timestamp(),
            slot: parts.slot(),
            sequence: parts.sequence(),
        },
    ))
}

async fn assign(
    State(api): State<Api>,
    path: Result<Path<String>, PathRejection>,
    query: Pairs,
) -> Result<Response, Failure> {
    let Path(name) = path.map_err(|rejection| bad_path("BadName", &rejection))?;
    let layout = Parameters::read(query, &[])?.layout()?;
    match api.window.assign(&name, layout)? {
        Some(assigned) => Ok(json(StatusCode::OK, &assigned)),
        None => Err(Failure::no_page(&api.board.now())),
    }
}

async fn ready(State(api): State<Api>) -> Result<String, Failure> {
    let status = api.board.now();
    match &status.lease {
        // Its IDs have stopped: the store has been away for too long.
        Some(lease) if lease.ceiling < host_now() => {
            Err(Failure::new(StatusCode::SERVICE_UNAVAILABLE, "Window", status.message))
        }
        Some(_) => Ok(format!("{}\n", status.message)),
        None => Err(Failure::no_page(&status)),
    }
}

async fn metrics(State(api): State<Api>) -> Result<Response, Failure> {
    let status = api.board.now();
    let text = api
        .metrics
        .text(&status)
        .map_err(|error| Failure::new(StatusCode::INTERNAL_SERVER_ERROR, "Metrics", error.to_string()))?;
    Ok(([(header::CONTENT_TYPE, crate::metrics::CONTENT_TYPE)], text).into_response())
}

fn bad_path(reason: &'static str, rejection: &PathRejection) -> Failure {
    Failure::new(StatusCode::BAD_REQUEST, reason, rejection.body_text())
}

fn bad_query(rejection: QueryRejection) -> Failure {
    Failure::new(StatusCode::BAD_REQUEST, "BadQuery", rejection.body_text())
}
