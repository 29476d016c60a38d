//! What is between the product's calls and the API server: time, and everything that can go wrong on the way.

use std::sync::Arc;
use std::time::Duration;

use cosid_kube::ApiClock;
use http::{HeaderMap, HeaderValue, Request, Response, header};
use kube::client::Body;
use tokio::sync::oneshot;
use tokio::time::{sleep, timeout};

use super::checker::Who;
use super::world::{World, mono};
use crate::api_server::{Call, Reply, refuse};

/// The transport's own deadline of every call, as in the product.
const DEADLINE: Duration = Duration::from_secs(10);

/// What becomes of a request; times in ms.
struct Fate {
    out: u64,
    lost: bool,
    refused: Option<u16>,
    again: Option<u64>,
    back: Option<u64>,
}

impl Fate {
    fn of(world: &World) -> Self {
        let mut inner = world.lock();
        let (calm, weights) = (inner.calm, inner.setting.weights);
        let random = &mut inner.random;
        let mut fate = Self {
            out: random.within(1, 20),
            lost: false,
            refused: None,
            again: None,
            back: Some(random.within(1, 20)),
        };
        if calm {
            return fate;
        }
        fate.lost = random.chance(weights.request_lost);
        if random.chance(weights.request_late) {
            fate.out = random.within(500, 30_000);
        }
        if random.chance(weights.refused) {
            fate.refused = random.pick(&[429, 500, 503]);
        }
        if random.chance(weights.request_repeated) {
            fate.again = Some(random.within(1, 20_000));
        }
        if random.chance(weights.answer_late) {
            fate.back = Some(random.within(500, 30_000));
        }
        if random.chance(weights.answer_lost) {
            fate.back = None;
        }
        fate
    }
}

/// A client of the API server whose calls go through this network. Answers tell the API server's time to `clock`.
pub(crate) fn client(world: &World, who: &Who, clock: ApiClock) -> kube::Client {
    let (world, who) = (world.clone(), who.clone());
    let service = tower::service_fn(move |request: Request<Body>| {
        call(world.clone(), who.clone(), clock.clone(), request)
    });
    kube::Client::new(service, "default")
}

/// A client that nobody answers: for what is said to people.
pub(crate) fn mute() -> kube::Client {
    let service = tower::service_fn(async |_: Request<Body>| Err::<Response<Body>, _>(Unanswered));
    kube::Client::new(service, "default")
}

/// No answer within the deadline.
#[derive(Debug)]
struct Unanswered;

impl std::fmt::Display for Unanswered {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("no answer")
    }
}

impl std::error::Error for Unanswered {}

async fn call(
    world: World,
    who: Who,
    clock: ApiClock,
    request: Request<Body>,
) -> Result<Response<Body>, Unanswered> {
    let sent = mono();
    let call = Call::read(request).await;
    let (tell, answer) = oneshot::channel();
    // A request that is on its way arrives, whatever becomes of its sender.
    tokio::spawn(travel(world, who, call, tell));
    let Ok(Ok((reply, date))) = timeout(DEADLINE, answer).await else { return Err(Unanswered) };
    clock.observe(sent, mono(), &date);
    let bytes = serde_json::to_vec(&*reply.body).map_err(|_| Unanswered)?;
    Response::builder().status(reply.code).body(Body::from(bytes)).map_err(|_| Unanswered)
}

async fn travel(world: World, who: Who, call: Call, tell: oneshot::Sender<(Reply, HeaderMap)>) {
    let fate = Fate::of(&world);
    sleep(Duration::from_millis(fate.out)).await;
    if fate.lost {
        world.say(None, || format!("{who}: {} gets lost", call.text()));
        return silence(tell).await;
    }
    let late = if fate.out > 20 { ", late" } else { "" };
    let reply = match fate.refused {
        Some(code) => {
            world.say(None, || format!("{who}: {} is refused: {code}", call.text()));
            refuse(code, &call.place)
        }
        None => world.arrive(&who, &call, late),
    };
    let date = date(&world);
    if let Some(after) = fate.again {
        let (world, who, call) = (world.clone(), who.clone(), call.clone());
        tokio::spawn(async move {
            sleep(Duration::from_millis(after)).await;
            world.arrive(&who, &call, ", a second time")
        });
    }
    let Some(back) = fate.back else {
        world.say(None, || format!("{who}: the answer to {} gets lost", call.text()));
        return silence(tell).await;
    };
    sleep(Duration::from_millis(back)).await;
    // Whoever asked may have gone.
    let _ = tell.send((reply, date));
}

/// Nothing comes, not even an end.
async fn silence(tell: oneshot::Sender<(Reply, HeaderMap)>) {
    let _held = Arc::new(tell);
    sleep(DEADLINE * 2).await;
}

/// The `Date` header.
fn date(world: &World) -> HeaderMap {
    let seconds = i64::try_from(world.store_now() / 1_000).unwrap_or(0);
    let time = jiff::Timestamp::from_second(seconds).unwrap_or_default();
    let text = time.strftime("%a, %d %b %Y %H:%M:%S GMT").to_string();
    HeaderMap::from_iter(HeaderValue::from_str(&text).ok().map(|value| (header::DATE, value)))
}
