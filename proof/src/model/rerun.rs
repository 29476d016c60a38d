//! The product's reconciler as a state machine that can be copied.
//!
//! A reconciliation is a function of what it knows when it begins and of the answers it has got so far: run again from
//! its beginning with the same answers, it asks the same next question. So a controller in the middle of its work is a
//! list of answers; what it would do next is found by running the shipped code up to the first call without an answer.

use std::cell::Cell;
use std::collections::HashMap;
use std::hash::{BuildHasher as _, BuildHasherDefault, DefaultHasher};
use std::sync::{Arc, Mutex, PoisonError};

use cosid_controller::events::{Announcer, Post};
use cosid_controller::index::{Index, PoolKey};
use cosid_controller::leader::Leadership;
use cosid_controller::metrics::Metrics;
use cosid_controller::reconcile::Reconciler;
use cosid_controller::writes::Writes;
use cosid_kube::ApiClock;
use cosid_kube::codec::SlotLease;
use http::{HeaderMap, HeaderValue, Method, Request, Response, header};
use kube::client::Body;
use serde_json::Value;
use tokio::sync::Notify;

use crate::api_server::{Call, Json, Reply, refuse};

thread_local! {
    static NOW: Cell<u64> = const { Cell::new(0) };
}

/// A reconciliation under way.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Pass {
    /// The pool and its Leases as the watches had told of them when it began.
    pub(crate) known: Vec<Json>,
    /// When it began; and each answer, with the time at which it came. Seconds.
    pub(crate) begun: u64,
    pub(crate) answers: Vec<(u64, Reply)>,
}

/// What a reconciliation does next.
#[derive(Clone, Debug)]
pub(crate) enum Next {
    Asks(Box<Call>),
    Ends,
}

/// Runs reconciliations, each only once as far as it is the same.
#[derive(Clone, Debug, Default)]
pub(crate) struct Rerun {
    known: Arc<Mutex<HashMap<u64, Next>>>,
}

impl Rerun {
    /// What this reconciliation does next.
    pub(crate) fn next(&self, key: &PoolKey, pass: &Pass) -> Next {
        let hash = BuildHasherDefault::<DefaultHasher>::default().hash_one(pass);
        let known = || self.known.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(next) = known().get(&hash) {
            return next.clone();
        }
        let next = run(key, pass);
        known().insert(hash, next.clone());
        next
    }
}

fn run(key: &PoolKey, pass: &Pass) -> Next {
    cosid_proof_switch::set_clock(|| NOW.get());
    let Ok(runtime) = tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build()
    else {
        return Next::Ends;
    };
    runtime.block_on(async {
        NOW.set(pass.begun * 1_000);
        let script = Arc::new(Script { answers: pass.answers.clone(), ..Script::default() });
        let reconciler = reconciler(pass, &script);
        tokio::select! {
            biased;
            _ = reconciler.reconcile(key) => Next::Ends,
            () = script.stuck.notified() => {
                let asked = script.asked.lock().unwrap_or_else(PoisonError::into_inner).take();
                asked.map_or(Next::Ends, |call| Next::Asks(Box::new(call)))
            }
        }
    })
}

/// The answers there are, and the first question without one.
#[derive(Debug, Default)]
struct Script {
    answers: Vec<(u64, Reply)>,
    answered: Mutex<usize>,
    asked: Mutex<Option<Call>>,
    stuck: Notify,
}

impl Script {
    async fn answer(&self, call: Call) -> Reply {
        // Rights and words for people touch nothing that is checked here: they are as they should be.
        if matches!(call.place.kind.as_str(), "roles" | "rolebindings" | "events") {
            return if call.method == Method::GET {
                refuse(404, &call.place)
            } else {
                Reply { code: 201, body: Json::new(call.body) }
            };
        }
        let next = {
            let mut answered = self.answered.lock().unwrap_or_else(PoisonError::into_inner);
            *answered += 1;
            self.answers.get(*answered - 1).cloned()
        };
        if let Some((at, reply)) = next {
            NOW.set(at * 1_000);
            return reply;
        }
        // Of several at once the first is asked first.
        self.asked.lock().unwrap_or_else(PoisonError::into_inner).get_or_insert(call);
        self.stuck.notify_one();
        std::future::pending().await
    }
}

fn reconciler(pass: &Pass, script: &Arc<Script>) -> Reconciler {
    let clock = ApiClock::default();
    clock.observe(pass.begun * 1_000, pass.begun * 1_000, &date(pass.begun));
    let mut index = Index::default();
    for object in &pass.known {
        let json = object.to_string();
        if object["kind"] == "Lease" {
            SlotLease::from_json(json.as_bytes())
                .into_iter()
                .for_each(|lease| drop(index.list_lease(lease.into_lease())));
        } else {
            serde_json::from_str(&json).into_iter().for_each(|pool| drop(index.put_pool(pool)));
        }
    }
    let leadership = Leadership::default();
    leadership.set(u64::MAX);
    let (index, metrics) = (Arc::new(Mutex::new(index)), Arc::<Metrics>::default());
    let script = Arc::clone(script);
    let service = tower::service_fn(move |request: Request<Body>| {
        let script = Arc::clone(&script);
        async move {
            let reply = script.answer(Call::read(request).await).await;
            let bytes = serde_json::to_vec::<Value>(&reply.body).unwrap_or_default();
            Response::builder().status(reply.code).body(Body::from(bytes))
        }
    });
    let client = kube::Client::new(service, "default");
    let writes = Writes::new(client.clone(), "cosid-system".into(), leadership, index, Arc::clone(&metrics));
    Reconciler::new(writes, clock, Announcer::new(Post::start(client, "model".into())), metrics)
}

/// The API server's `Date`, of this many seconds since 1970.
fn date(seconds: u64) -> HeaderMap {
    let time = jiff::Timestamp::from_second(i64::try_from(seconds).unwrap_or(0)).unwrap_or_default();
    let text = time.strftime("%a, %d %b %Y %H:%M:%S GMT").to_string();
    HeaderMap::from_iter(HeaderValue::from_str(&text).ok().map(|value| (header::DATE, value)))
}
