//! Controllers, and the Leases they make, open and bury: the product's reconciler ([`rerun`](super::rerun)) on a model of
//! an API server, cut off between any two of its calls, by one or two replicas that both believe to lead.
//!
//! Holders are the algebra, the choice and the codec: between what they have read and what they write there is always a
//! step of its own. Somebody deletes Leases and pools, and makes the pool again.

mod holders;

use cosid_controller::index::PoolKey;
use cosid_kube::codec;
use cosid_kube::pool::{SlotPool, SlotPoolSpec, SlotRange};
use cosid_lease::{Slot, Terms};
use http::Method;
use k8s_openapi::api::coordination::v1::Lease;
use serde_json::{Value, json};
use stateright::{Model, Property};

use holders::{Holder, Window};

use super::rerun::{Next, Pass, Rerun};
use crate::api_server::{ApiServer, Call, Change, Json, Place, Reply};
use crate::promises::Highest;

const TERMS: Terms = Terms { ttl: 3_000, tolerance: 1_000 };
const NAMESPACE: &str = "shop";
const POOL: &str = "orders";
/// When a history begins, seconds since 1970.
const BASE: u64 = 1_790_000_000;

/// One configuration.
#[derive(Clone, Debug)]
pub(crate) struct Bounds {
    pub(crate) name: &'static str,
    pub(crate) slots: i32,
    pub(crate) controllers: usize,
    /// The holder renews whatever it finds under its name, also a Lease that is being deleted: no agent does, but the API
    /// server lets it.
    pub(crate) stubborn: bool,
    pub(crate) budget: Budget,
    pub(crate) rerun: Rerun,
}

/// How often what may happen in one history.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub(crate) struct Budget {
    /// Reconciliations that are begun.
    pub(crate) reconciliations: u8,
    pub(crate) acquisitions: u8,
    pub(crate) renewals: u8,
    pub(crate) lease_deletions: u8,
    pub(crate) pool_deletions: u8,
    /// Reconciliations that are begun with a list of Leases from before there were any.
    pub(crate) blind: u8,
    /// How often a lease's length passes.
    pub(crate) passes: u8,
}

/// All there is.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct State {
    server: ApiServer,
    /// Seconds since 1970.
    now: u64,
    controllers: Vec<Option<Pass>>,
    holder: Option<Holder>,
    windows: Vec<Window>,
    highest: Vec<Highest>,
    acquired: u8,
    left: Budget,
    pub(crate) broken: Option<String>,
}

/// What happens next.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Step {
    /// A controller begins a reconciliation with what the watches told; the one that it was in, if it was, ends there.
    Begin(usize),
    /// The same, where the watch of Leases lags behind that of pools.
    BeginBlind(usize),
    /// Its next call is done, and answered.
    Call(usize),
    /// Somebody reads, and decides which slot to take.
    Choose,
    /// What was decided is written.
    Write,
    Renew,
    Release,
    /// The holder's process stands still for ever; its window stands.
    Vanish,
    DeleteLease(Slot),
    DeletePool,
    MakePool,
    /// A lease's length passes.
    Pass,
}

impl Model for Bounds {
    type State = State;
    type Action = Step;

    fn init_states(&self) -> Vec<State> {
        let mut state = State {
            server: ApiServer::default(),
            now: BASE,
            controllers: vec![None; self.controllers],
            holder: None,
            windows: Vec::new(),
            highest: vec![Highest::default(); usize::try_from(self.slots).unwrap_or(1)],
            acquired: 0,
            left: self.budget,
            broken: None,
        };
        state.make_pool(self.slots);
        vec![state]
    }

    fn actions(&self, state: &State, steps: &mut Vec<Step>) {
        if state.broken.is_some() {
            return;
        }
        let left = state.left;
        for (number, pass) in state.controllers.iter().enumerate() {
            if left.reconciliations > 0 {
                steps.push(Step::Begin(number));
            }
            if left.reconciliations > 0 && left.blind > 0 {
                steps.push(Step::BeginBlind(number));
            }
            if pass.is_some() {
                steps.push(Step::Call(number));
            }
        }
        match &state.holder {
            None if left.acquisitions > 0 => steps.push(Step::Choose),
            None => {}
            Some(Holder::Writes { .. }) => steps.push(Step::Write),
            Some(Holder::Holds { .. }) => {
                steps.extend([Step::Release, Step::Vanish]);
                if left.renewals > 0 {
                    steps.push(Step::Renew);
                }
            }
        }
        let pool = state.server.get(&pool_place());
        let going = |object: &Json| !object["metadata"]["deletionTimestamp"].is_null();
        if left.lease_deletions > 0 {
            let there = (0..).take(state.highest.len());
            let deletable = there.filter(|&slot| state.lease(slot).is_some_and(|lease| !going(lease)));
            steps.extend(deletable.map(Step::DeleteLease));
        }
        match pool {
            None => steps.push(Step::MakePool),
            Some(pool) if left.pool_deletions > 0 && !going(pool) => steps.push(Step::DeletePool),
            Some(_) => {}
        }
        if left.passes > 0 {
            steps.push(Step::Pass);
        }
    }

    fn next_state(&self, last: &State, step: Step) -> Option<State> {
        let mut state = last.clone();
        state.take(self, &step)?;
        Some(state)
    }

    fn properties(&self) -> Vec<Property<Self>> {
        vec![
            Property::always(
                "no timestamp in two fences; fences and floors grow; nobody live is evicted",
                |_, state: &State| state.broken.is_none(),
            ),
            Property::sometimes("every acquisition that may be is made", |bounds: &Bounds, state: &State| {
                state.windows.len() == usize::from(bounds.budget.acquisitions)
            }),
        ]
    }
}

impl State {
    /// `None` where nothing would change.
    fn take(&mut self, bounds: &Bounds, step: &Step) -> Option<()> {
        match *step {
            Step::Begin(number) | Step::BeginBlind(number) => {
                let blind = matches!(step, Step::BeginBlind(_));
                self.left.reconciliations -= 1;
                self.left.blind -= u8::from(blind);
                let known = self
                    .server
                    .all()
                    .filter(|(place, _)| place.namespace == NAMESPACE && !(blind && place.kind == "leases"));
                let known = known.map(|(_, object)| object.clone()).collect();
                let pass = Pass { known, begun: self.now, answers: Vec::new() };
                self.controllers[number] = Some(pass);
            }
            Step::Call(number) => {
                let pass = self.controllers[number].clone()?;
                match bounds.rerun.next(&key(), &pass) {
                    Next::Ends => self.controllers[number] = None,
                    Next::Asks(call) => {
                        let reply = self.execute(&call, true);
                        let mut pass = pass;
                        pass.answers.push((self.now, reply));
                        let ends = matches!(bounds.rerun.next(&key(), &pass), Next::Ends);
                        self.controllers[number] = (!ends).then_some(pass);
                    }
                }
            }
            Step::Choose => {
                self.left.acquisitions -= 1;
                self.holder = Some(self.choose()?);
            }
            Step::Write => self.write()?,
            Step::Renew => {
                self.left.renewals -= 1;
                self.renew(bounds.stubborn)?;
            }
            Step::Release => self.release()?,
            Step::Vanish => self.holder = None,
            Step::DeleteLease(slot) => {
                self.left.lease_deletions -= 1;
                self.execute(&call(Method::DELETE, lease_place(slot), json!({})), false);
            }
            Step::DeletePool => {
                self.left.pool_deletions -= 1;
                self.execute(&call(Method::DELETE, pool_place(), json!({})), false);
            }
            Step::MakePool => self.make_pool(bounds.slots),
            Step::Pass => {
                self.left.passes -= 1;
                self.now += (TERMS.ttl + TERMS.tolerance) / 1_000 + 1;
            }
        }
        Some(())
    }

    fn make_pool(&mut self, slots: i32) {
        let spec = SlotPoolSpec {
            slots: Some(SlotRange { first: 0, last: slots - 1 }),
            ttl_seconds: 3,
            tolerance_milliseconds: 1_000,
            ..SlotPoolSpec::default()
        };
        let mut pool = SlotPool::new(POOL, spec);
        pool.metadata.namespace = Some(NAMESPACE.into());
        let body = serde_json::to_value(&pool).unwrap_or(Value::Null);
        self.execute(&call(Method::POST, Place::named(NAMESPACE, "slotpools", ""), body), false);
    }

    fn lease(&self, slot: Slot) -> Option<&Json> {
        self.server.get(&lease_place(slot))
    }

    fn is_live(&self, slot: Slot) -> bool {
        let record = self.lease(slot).and_then(parse).and_then(|lease| codec::read(&lease).ok().flatten());
        record.is_some_and(|record| record.live(self.now * 1_000).is_some())
    }

    fn execute(&mut self, call: &Call, by_controller: bool) -> Reply {
        let (reply, change) = self.server.execute(call);
        let gone =
            change.as_ref().is_some_and(|change| change.place == pool_place() && change.after.is_none());
        if gone && let Some(slot) = (0..).take(self.highest.len()).find(|&slot| self.is_live(slot)) {
            self.broken.get_or_insert(format!("the pool goes while slot {slot} is held"));
        }
        let lease = change.filter(|change| change.place.kind == "leases");
        if let Some(Err(why)) = lease.map(|change| self.check(&change, by_controller)) {
            self.broken.get_or_insert(why);
        }
        reply
    }

    fn check(&mut self, change: &Change, by_controller: bool) -> Result<(), String> {
        let read = |object: &Option<Json>| object.as_ref().and_then(parse);
        let (before, after) = (read(&change.before), read(&change.after));
        let record =
            |lease: &Option<Lease>| lease.as_ref().and_then(|lease| codec::read(lease).ok().flatten());
        let (old, new) = (record(&before), record(&after));
        let goes = |lease: &Option<Lease>| {
            lease.as_ref().is_none_or(|lease| lease.metadata.deletion_timestamp.is_some())
        };
        let live = old.as_ref().and_then(|old| old.live(self.now * 1_000));
        if let (true, true, true, Some(holding)) =
            (by_controller, before.is_some() && !goes(&before), goes(&after), live)
        {
            return Err(format!("a controller deletes the Lease of {}, who holds it", holding.owner.key));
        }
        let name = after.as_ref().or(before.as_ref()).and_then(|lease| codec::slot_of(lease, POOL));
        match (name, new) {
            (Some(slot), Some(new)) => {
                let slot = usize::try_from(slot).unwrap_or(0);
                self.highest[slot].wrote(old.as_ref(), &new)
            }
            _ => Ok(()),
        }
    }
}

fn key() -> PoolKey {
    PoolKey { namespace: NAMESPACE.into(), name: POOL.into() }
}

fn pool_place() -> Place {
    Place::named(NAMESPACE, "slotpools", POOL)
}

fn lease_place(slot: Slot) -> Place {
    Place::named(NAMESPACE, "leases", &codec::lease_name(POOL, slot))
}

fn parse(lease: &Json) -> Option<Lease> {
    serde_json::from_value((**lease).clone()).ok()
}

fn call(method: Method, place: Place, body: Value) -> Call {
    Call { method, place, selector: None, body }
}
