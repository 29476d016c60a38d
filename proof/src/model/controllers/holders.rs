//! Holders: between what they have read and what they write there is always a step of its own.

use std::collections::BTreeSet;

use cosid_kube::codec;
use cosid_kube::pool::{SlotPool, to_pool};
use cosid_lease::choose::{Choice, Preference, choose};
use cosid_lease::{Entry, Fence, Millis, Owner, PoolState, Record, Slot, SlotState, View, algebra};
use http::Method;
use uuid::Uuid;

use super::{POOL, State, TERMS, call, lease_place, parse, pool_place};
use crate::api_server::Json;

/// Who holds a slot, or is about to.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Holder {
    /// It has read and decided; its write is on its way.
    Writes { slot: Slot, lease: Json, record: Record },
    /// It holds what it was told last.
    Holds { slot: Slot, lease: Json, window: usize },
}

/// What can be issued under one fence.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Window {
    slot: Slot,
    fence: Fence,
    floor: Millis,
    end: Millis,
}

impl State {
    /// What an agent would take of what it reads now.
    pub(super) fn choose(&mut self) -> Option<Holder> {
        let pool: SlotPool = serde_json::from_value((**self.server.get(&pool_place())?).clone()).ok()?;
        let pool = to_pool(&pool).ok().filter(|pool| pool.state == PoolState::Ready)?;
        let slots = (0..).take(self.highest.len());
        let leases = slots.filter_map(|slot| Some((slot, self.lease(slot)?.clone())));
        let entries = leases.filter_map(|(slot, json)| {
            let state: SlotState = codec::decode(&parse(&json)?, POOL);
            Some(Entry { slot, version: json, state })
        });
        let view = View { pool, entries: entries.collect() };
        self.acquired += 1;
        let number = u128::from(self.acquired).wrapping_mul(0x9e37_79b9_7f4a_7c15_f39c_c060_5ced_c835);
        let owner =
            Owner { key: format!("shop/web-{}", self.acquired), incarnation: Uuid::from_u128(number) };
        let now = self.now * 1_000;
        let Choice::Take(at) = choose(&view, &owner, Preference::Any, now, &BTreeSet::new(), 0) else {
            return None;
        };
        let entry = &view.entries[at];
        let record = algebra::acquire(entry.state.record()?, &owner, now, TERMS).ok()?;
        Some(Holder::Writes { slot: entry.slot, lease: entry.version.clone(), record })
    }

    fn put(&mut self, slot: Slot, lease: &Json, record: &Record) -> Option<Json> {
        let lease = codec::encode(&parse(lease)?, record, 3, None).ok()?;
        let body = serde_json::to_value(&lease).ok()?;
        let reply = self.execute(&call(Method::PUT, lease_place(slot), body), false);
        (reply.code == 200).then_some(reply.body)
    }

    pub(super) fn write(&mut self) -> Option<()> {
        let Some(Holder::Writes { slot, lease, record }) = self.holder.take() else { return None };
        let Some(lease) = self.put(slot, &lease, &record) else { return Some(()) };
        let holding = record.holding()?;
        let (fence, floor, end) = (record.fence, holding.floor, holding.ceiling);
        self.windows.push(Window { slot, fence, floor, end });
        self.holder = Some(Holder::Holds { slot, lease, window: self.windows.len() - 1 });
        self.check_windows();
        Some(())
    }

    /// A renewal that fails is a loss here: the keeper's reading back is in `agents.rs`.
    pub(super) fn renew(&mut self, stubborn: bool) -> Option<()> {
        let Some(Holder::Holds { slot, lease, window }) = self.holder.take() else { return None };
        let lease = if stubborn { self.lease(slot)?.clone() } else { lease };
        let record = codec::read(&parse(&lease)?).ok()??;
        let incarnation = record.holding()?.owner.incarnation;
        let renewed = algebra::renew(&record, incarnation, record.fence, self.now * 1_000, TERMS).ok()?;
        if let Some(lease) = self.put(slot, &lease, &renewed) {
            self.windows[window].end = renewed.holding()?.ceiling;
            self.holder = Some(Holder::Holds { slot, lease, window });
            self.check_windows();
        }
        Some(())
    }

    /// Nothing was issued: the floor goes on to the next.
    pub(super) fn release(&mut self) -> Option<()> {
        let Some(Holder::Holds { slot, lease, window }) = self.holder.take() else { return None };
        let record = codec::read(&parse(&lease)?).ok()??;
        let Window { floor, .. } = self.windows[window];
        let freed =
            algebra::release(&record, record.holding()?.owner.incarnation, record.fence, floor).ok()?;
        self.windows[window].end = floor;
        self.put(slot, &lease, &freed);
        Some(())
    }

    fn check_windows(&mut self) {
        let mut windows: Vec<&Window> = self.windows.iter().collect();
        windows.sort_by_key(|window| (window.slot, window.fence));
        let bad = windows.windows(2).find(|pair| {
            pair[0].slot == pair[1].slot && (pair[0].end > pair[1].floor || pair[0].fence == pair[1].fence)
        });
        if let Some(pair) = bad {
            self.broken
                .get_or_insert(format!("two fences can issue the same: {:?} and {:?}", pair[0], pair[1]));
        }
    }
}
