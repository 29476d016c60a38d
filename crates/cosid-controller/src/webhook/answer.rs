//! What the webhook answers.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use axum::body::{Body, to_bytes};
use axum::extract::State;
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use axum::routing::post;
use axum::{Json, Router};
use cosid_kube::{ApiClock, monotonic};
use k8s_openapi::api::core::v1::Pod;
use kube::core::admission::{AdmissionRequest, AdmissionResponse, AdmissionReview, Operation};

use crate::index::Index;
use crate::inject::hints::Hints;
use crate::inject::registration::PATH;
use crate::inject::{Agent, patch};
use crate::metrics::Metrics;

/// The longest question, bytes: the API server takes objects of up to 3 MiB.
const LONGEST: usize = 4 << 20;

/// How long a question may take to come in.
const PATIENCE: Duration = Duration::from_secs(5);

/// What came of a question, as metrics have it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Outcome {
    Injected,
    Unchanged,
    Refused,
    Unreadable,
}

/// Injects what API servers ask about.
pub(crate) struct Injector {
    pub(crate) agent: Agent,
    pub(crate) index: Arc<Mutex<Index>>,
    pub(crate) clock: ApiClock,
    pub(crate) hints: Mutex<Hints>,
    pub(crate) metrics: Arc<Metrics>,
}

/// The webhook as a service.
pub(crate) fn app(injector: Arc<Injector>) -> Router {
    Router::new().route(PATH, post(review)).with_state(injector)
}

async fn review(State(injector): State<Arc<Injector>>, body: Body) -> Response {
    let begun = Instant::now();
    let read = tokio::time::timeout(PATIENCE, to_bytes(body, LONGEST)).await;
    let (outcome, answer) = match read {
        Ok(Ok(body)) => injector.answer(&body),
        Ok(Err(error)) => unreadable(&error),
        Err(_) => unreadable(&"it did not come in within 5 s"),
    };
    injector.metrics.asked(outcome.word(), begun.elapsed());
    answer
}

fn unreadable(why: &dyn ToString) -> (Outcome, Response) {
    let why = format!("this is no AdmissionReview of a Pod: {}\n", why.to_string());
    (Outcome::Unreadable, (StatusCode::BAD_REQUEST, why).into_response())
}

impl Injector {
    fn answer(&self, body: &[u8]) -> (Outcome, Response) {
        let review = match serde_json::from_slice::<AdmissionReview<Pod>>(body) {
            Ok(review) => review,
            Err(error) => return unreadable(&error),
        };
        let request: AdmissionRequest<Pod> = match review.try_into() {
            Ok(request) => request,
            Err(error) => return unreadable(&error),
        };
        match self.decide(&request) {
            Ok((outcome, answer)) => (outcome, Json(answer.into_review()).into_response()),
            Err(error) => unreadable(&error),
        }
    }

    fn decide(
        &self,
        request: &AdmissionRequest<Pod>,
    ) -> Result<(Outcome, AdmissionResponse), serde_json::Error> {
        let answer = AdmissionResponse::from(request);
        let Some(pod) = request.object.as_ref().filter(|_| request.operation == Operation::Create) else {
            return Ok((Outcome::Unchanged, answer));
        };
        let namespace = request.namespace.as_deref().unwrap_or_default();
        // What is only tried takes no slot's turn.
        let hint = |pool: Option<&str>| if request.dry_run { None } else { self.hint(namespace, pool) };
        let operations = match patch::patch(pod, &self.agent, |wishes| hint(wishes.pool)) {
            Ok(operations) => operations,
            Err(refusal) => {
                let name = pod.metadata.name.as_ref().or(pod.metadata.generate_name.as_ref());
                tracing::info!(namespace, name, "a pod was refused: {refusal}");
                return Ok((Outcome::Refused, answer.deny(refusal)));
            }
        };
        if operations.is_empty() {
            return Ok((Outcome::Unchanged, answer));
        }
        let patch = serde_json::from_value(operations.into())?;
        let answer = answer.with_patch(patch).map_err(serde::de::Error::custom)?;
        Ok((Outcome::Injected, answer))
    }

    fn hint(&self, namespace: &str, pool: Option<&str>) -> Option<cosid_lease::Slot> {
        let time = self.clock.now()?.earliest;
        let index = self.index.lock().unwrap_or_else(PoisonError::into_inner);
        let mut hints = self.hints.lock().unwrap_or_else(PoisonError::into_inner);
        hints.take(&index, namespace, pool, monotonic(), time)
    }
}

impl Outcome {
    fn word(self) -> &'static str {
        match self {
            Self::Injected => "injected",
            Self::Unchanged => "unchanged",
            Self::Refused => "refused",
            Self::Unreadable => "unreadable",
        }
    }
}

#[cfg(test)]
mod tests {
    use axum::http::Request;
    use serde_json::{Value, json};
    use tower::ServiceExt as _;

    use super::*;

    async fn ask(injector: &Arc<Injector>, body: String) -> (u16, Value) {
        let request =
            Request::post("/inject").header("content-type", "application/json").body(Body::from(body));
        let answer = app(Arc::clone(injector)).oneshot(request.unwrap()).await.unwrap();
        let code = answer.status().as_u16();
        let body = to_bytes(answer.into_body(), LONGEST).await.unwrap();
        (code, serde_json::from_slice(&body).unwrap_or(Value::Null))
    }

    fn injector() -> Arc<Injector> {
        Arc::new(Injector {
            agent: Agent::default(),
            index: Arc::default(),
            clock: ApiClock::default(),
            hints: Mutex::new(Hints::new(0)),
            metrics: Arc::default(),
        })
    }

    fn question(slot: &str) -> String {
        let kind = |kind: &str| json!({ "group": "", "version": "v1", kind: if kind == "kind" { "Pod" } else { "pods" } });
        json!({
            "apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview",
            "request": {
                "uid": "u-1", "kind": kind("kind"), "resource": kind("resource"), "namespace": "shop",
                "operation": "CREATE", "userInfo": {},
                "object": {
                    "apiVersion": "v1", "kind": "Pod",
                    "metadata": { "generateName": "a-", "annotations": { "cosid/slot": slot } },
                    "spec": { "containers": [{ "name": "app", "image": "a" }] },
                },
            },
        })
        .to_string()
    }

    #[tokio::test]
    async fn an_annotated_pod_is_patched_and_a_bad_one_is_refused() {
        let injector = injector();
        let (code, answer) = ask(&injector, question("auto")).await;
        let response = &answer["response"];
        assert_eq!(
            (code, &response["allowed"], &response["patchType"]),
            (200, &json!(true), &json!("JSONPatch"))
        );
        assert_eq!(response["uid"], "u-1");
        let (_, answer) = ask(&injector, question("some")).await;
        assert_eq!(answer["response"]["allowed"], false);
        let why = answer["response"]["status"]["message"].as_str().unwrap();
        assert!(why.starts_with("annotation cosid/slot: \"some\" is not one of"), "{why}");
        let text = injector.metrics.text();
        for outcome in ["injected", "refused"] {
            let line = format!("cosid_controller_webhook_requests_total{{outcome=\"{outcome}\"}} 1");
            assert!(text.contains(&line), "{text}");
        }
    }

    #[tokio::test]
    async fn what_is_no_question_or_too_long_is_an_error_and_no_answer() {
        let injector = injector();
        for body in
            [String::new(), "{}".into(), question("auto").replace("CREATE", "BUY"), " ".repeat(LONGEST + 1)]
        {
            assert_eq!(ask(&injector, body).await.0, 400);
        }
    }
}
