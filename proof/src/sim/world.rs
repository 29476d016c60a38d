//! What all tasks of a run share: time, the API server, the checker, the random numbers, and the trace.

use std::cell::Cell;
use std::collections::{BTreeMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use cosid_id::Layout;
use cosid_kube::codec::{self, SlotLease};
use cosid_kube::pool::SlotPool;
use cosid_lease::{Millis, Slot};
use k8s_openapi::api::coordination::v1::Lease;
use serde_json::Value;
use tokio::time::Instant;

use super::checker::{Checker, Violation, Who};
use super::faults::{USUAL, Weights};
use super::random::Random;
use crate::api_server::{ApiServer, Call, Change, Place, Reply};

/// The API server's time when a run begins, Unix ms.
pub(crate) const BASE: Millis = 1_790_000_000_000;
/// The pool and its namespace.
pub(crate) const NAMESPACE: &str = "shop";
/// See [`NAMESPACE`].
pub(crate) const POOL: &str = "orders";
/// The last lines of a trace that are kept.
const LONGEST_TRACE: usize = 20_000;
/// The API server's clock is never further off than this, ms.
const FURTHEST_OFF: i64 = 600_000;

thread_local! {
    static START: Cell<Option<Instant>> = const { Cell::new(None) };
}

/// Virtual ms since this thread's run began: the product's monotonic clock in it.
pub(crate) fn mono() -> u64 {
    let passed = START.get().map_or(0, |start| start.elapsed().as_millis());
    u64::try_from(passed).unwrap_or(u64::MAX)
}

/// What a seed decides of a run, besides all the rest.
#[derive(Clone, Debug)]
pub(crate) struct Setting {
    pub(crate) slots: u32,
    pub(crate) agents: usize,
    pub(crate) controllers: usize,
    pub(crate) ttl_seconds: i32,
    pub(crate) tolerance: i32,
    pub(crate) layout: Layout,
    pub(crate) weights: Weights,
}

/// An object that was written, as a watch tells it.
#[derive(Clone)]
pub(crate) struct Told {
    pub(crate) at: u64,
    pub(crate) place: Place,
    pub(crate) object: Object,
    pub(crate) gone: bool,
}

/// What is watched.
#[derive(Clone)]
pub(crate) enum Object {
    Pool(Arc<SlotPool>),
    Lease(Arc<Lease>),
}

/// See the [module's text](self). Clones share it.
#[derive(Clone)]
pub(crate) struct World(Arc<Mutex<Inner>>);

pub(crate) struct Inner {
    pub(crate) random: Random,
    pub(crate) setting: Setting,
    pub(crate) server: ApiServer,
    pub(crate) checker: Checker,
    pub(crate) told: Vec<Told>,
    /// How far the API server's clock is off, ms.
    store_off: i64,
    /// The furthest ahead that it ever was, ms: who has not heard of a step back goes on by it.
    furthest_ahead: i64,
    /// No faults any more: whoever can get a slot gets one.
    pub(crate) calm: bool,
    /// All agents are to end: the pool goes.
    pub(crate) drained: bool,
    /// How many calls were done.
    pub(crate) calls: u64,
    leases: BTreeMap<Place, Arc<Lease>>,
    failure: Option<Violation>,
    trace: Option<VecDeque<(Option<Slot>, String)>>,
}

impl World {
    pub(crate) fn new(seed: u64, traced: bool) -> Self {
        START.set(Some(Instant::now()));
        cosid_proof_switch::set_clock(mono);
        let mut random = Random::seeded(seed);
        let coarse = random.chance(300);
        let seconds = Layout::builder().timestamp_bits(31).sequence_bits(22).unit_ms(1_000).build();
        let layout = seconds.ok().filter(|_| coarse).unwrap_or(Layout::MILLISECOND);
        let slots = u32::try_from(random.within(1, 4)).unwrap_or(1);
        let agents = usize::try_from(u64::from(slots) + random.within(0, 3)).unwrap_or(1);
        let setting = Setting {
            slots,
            agents,
            controllers: if random.chance(700) { 2 } else { 1 },
            ttl_seconds: random.pick(&[3, 6, 9]).unwrap_or(6),
            tolerance: random.pick(&[0, 500, 2_000]).unwrap_or(500),
            layout,
            weights: Weights::around(&USUAL, &mut random),
        };
        let inner = Inner {
            random,
            server: ApiServer::default(),
            checker: Checker::new(layout),
            told: Vec::new(),
            store_off: 0,
            furthest_ahead: 0,
            calm: false,
            drained: false,
            calls: 0,
            leases: BTreeMap::new(),
            failure: None,
            trace: traced.then(VecDeque::new),
            setting,
        };
        let world = Self(Arc::new(Mutex::new(inner)));
        let setting = world.setting();
        world.say(None, || format!("the run: {setting:?}"));
        world
    }

    /// For a moment; never over an await.
    pub(crate) fn lock(&self) -> MutexGuard<'_, Inner> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn setting(&self) -> Setting {
        self.lock().setting.clone()
    }

    pub(crate) fn chance(&self, per_mille: u64) -> bool {
        self.lock().random.chance(per_mille)
    }

    pub(crate) fn within(&self, low: u64, high: u64) -> u64 {
        self.lock().random.within(low, high)
    }

    pub(crate) fn is_calm(&self) -> bool {
        self.lock().calm
    }

    /// The API server's time, Unix ms.
    pub(crate) fn store_now(&self) -> Millis {
        (BASE + mono()).saturating_add_signed(self.lock().store_off)
    }

    /// The API server's clock jumps, either way.
    pub(crate) fn jump(&self) {
        let mut inner = self.lock();
        let by = inner.random.either_way(60_000);
        inner.store_off = (inner.store_off + by).clamp(-FURTHEST_OFF, FURTHEST_OFF);
        inner.furthest_ahead = inner.furthest_ahead.max(inner.store_off);
        drop(inner);
        self.say(None, || format!("the API server's clock jumps by {by} ms"));
    }

    /// A call arrives at the API server.
    pub(crate) fn arrive(&self, who: &Who, call: &Call, how: &str) -> Reply {
        let mut inner = self.lock();
        inner.calls += 1;
        let (reply, change) = inner.server.execute(call);
        let latest = (BASE + mono()).saturating_add_signed(inner.furthest_ahead);
        let slot = slot(&call.place);
        let written = change.as_ref().and_then(|change| change.after.as_deref()).map(describe);
        let outcome = change.map_or(Ok(()), |change| inner.changed(who, &change, latest));
        drop(inner);
        if call.is_write() {
            self.say(slot, || {
                let written = written.unwrap_or_default();
                format!("{who}: {}{how} -> {} {written}", call.text(), reply.code)
            });
        }
        self.check(outcome);
        reply
    }

    /// Takes in what the checker says. The first violation is the run's.
    pub(crate) fn check(&self, outcome: Result<(), Violation>) {
        if let Err(violation) = outcome {
            self.say(violation.slot, || format!("VIOLATION: {}", violation.text));
            self.lock().failure.get_or_insert(violation);
        }
    }

    pub(crate) fn failure(&self) -> Option<Violation> {
        self.lock().failure.clone()
    }

    /// A line of the trace, about a slot or about all.
    pub(crate) fn say(&self, slot: Option<Slot>, text: impl FnOnce() -> String) {
        let mut inner = self.lock();
        if let Some(trace) = &mut inner.trace {
            if trace.len() == LONGEST_TRACE {
                trace.pop_front();
            }
            let seconds = mono() / 1_000;
            trace.push_back((slot, format!("{seconds:5}.{:03}  {}", mono() % 1_000, text())));
        }
    }

    /// The lines that tell how it came to this: those of a slot and those of all, the last `most` before the violation.
    pub(crate) fn trace(&self, of: Option<Slot>, most: usize) -> Vec<String> {
        let inner = self.lock();
        let lines = inner.trace.iter().flatten();
        let about = lines.filter(|(slot, _)| slot.is_none() || of.is_none() || *slot == of);
        let mut lines: Vec<String> = about.map(|(_, line)| line.clone()).collect();
        if let Some(end) = lines.iter().position(|line| line.contains("VIOLATION")) {
            lines.truncate(end + 1);
        }
        lines.split_off(lines.len().saturating_sub(most))
    }
}

impl Inner {
    /// Checks a change, and has the watches told of it.
    fn changed(&mut self, who: &Who, change: &Change, latest: Millis) -> Result<(), Violation> {
        let Change { place, before, after } = change;
        let gone = after.is_none();
        let object = after.as_ref().or(before.as_ref());
        let Some(object) = object else { return Ok(()) };
        match place.kind.as_str() {
            "slotpools" => {
                if let Ok(pool) = serde_json::from_value::<SlotPool>((**object).clone()) {
                    self.tell(place, Object::Pool(Arc::new(pool)), gone);
                }
                Ok(())
            }
            "leases" => {
                let old = self.leases.get(place).cloned();
                let new = after.as_deref().and_then(lease);
                if let Some(lease) = new.clone().or_else(|| old.clone()) {
                    self.tell(place, Object::Lease(lease), gone);
                }
                match &new {
                    Some(lease) => self.leases.insert(place.clone(), Arc::clone(lease)),
                    None => self.leases.remove(place),
                };
                match slot(place) {
                    Some(slot) => self.checker.wrote(who, slot, old.as_deref(), new.as_deref(), latest),
                    None => Ok(()),
                }
            }
            _ => Ok(()),
        }
    }

    fn tell(&mut self, place: &Place, object: Object, gone: bool) {
        self.told.push(Told { at: mono(), place: place.clone(), object, gone });
    }

    /// The pool's Leases, read.
    pub(crate) fn leases(&self) -> impl Iterator<Item = &Arc<Lease>> {
        self.leases.values()
    }
}

/// The pool's place.
pub(crate) fn pool_place() -> Place {
    Place::named(NAMESPACE, "slotpools", POOL)
}

fn lease(object: &Value) -> Option<Arc<Lease>> {
    let json = serde_json::to_vec(object).ok()?;
    Some(Arc::new(SlotLease::from_json(&json).ok()?.into_lease()))
}

fn slot(place: &Place) -> Option<Slot> {
    let name = place.name.strip_prefix(POOL)?.strip_prefix('-')?;
    name.parse().ok().filter(|_| place.kind == "leases")
}

/// What a trace says of an object.
fn describe(object: &Value) -> String {
    let metadata = &object["metadata"];
    let going = if metadata["deletionTimestamp"].is_null() { "" } else { ", being deleted" };
    let notes = &metadata["annotations"];
    if let Some(next_floor) = notes[codec::NEXT_FLOOR].as_str() {
        let holder = object["spec"]["holderIdentity"].as_str().unwrap_or("nobody");
        let window = match (notes[codec::FLOOR].as_str(), notes[codec::CEILING].as_str()) {
            (Some(floor), Some(ceiling)) => format!(", window ({}, {}]", short(floor), short(ceiling)),
            _ => String::new(),
        };
        let fence = &object["spec"]["leaseTransitions"];
        return format!("[{holder}, fence {fence}, next floor {}{window}{going}]", short(next_floor));
    }
    match &object["status"]["watermark"] {
        Value::Null => going.trim_start_matches(", ").to_owned(),
        watermark => {
            let floor = watermark["nextFloor"].to_string();
            format!("[watermark {}, fence {}{going}]", short(&floor), watermark["fence"])
        }
    }
}

/// Times are told from the run's beginning on, seconds; those before it as they are.
fn short(millis: &str) -> String {
    match millis.parse::<Millis>().ok().and_then(|at| at.checked_sub(BASE)) {
        Some(at) => format!("{}.{:03}", at / 1_000, at % 1_000),
        None => millis.to_owned(),
    }
}
