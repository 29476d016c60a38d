//! Which slot an acquirer tries. The order is a preference; the store's compare-and-set decides.
//!
//! 1. the slot that this very owner already holds (the answer to its acquisition was lost);
//! 2. the preferred slot, if it is free;
//! 3. a free slot whose last owner had the same key;
//! 4. the lowest free slot, those first whose `next_floor` has passed, so that the first ID does not wait;
//! 5. none.
//!
//! An acquirer that has lost races tries any free slot instead of the lowest: everybody else tries the lowest too,
//! and a thousand first starts at once would lose a thousand races each.

use std::collections::BTreeSet;

use serde::{Deserialize, Serialize};

use crate::proof::bug;
use crate::{Entry, Fence, MAX_FENCE, Millis, Owner, Record, Slot, SlotState, View};

/// How far past the store's clock a `next_floor` may lie, milliseconds. One further ahead comes from a clock gone wild
/// or a hand edit: the slot is passed over until it is reached, or the slot is retired.
pub const FAR_AHEAD: Millis = 3_600_000;

/// Which slot an owner wants.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Preference {
    /// Any.
    #[default]
    Any,
    /// This one if it is free, else any.
    Prefer(Slot),
    /// This one and no other.
    Only(Slot),
}

/// What to do about a view.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Choice {
    /// The owner already holds `entries[index]`.
    Held(usize),
    /// Acquire `entries[index]`.
    Take(usize),
    /// Nothing can be acquired now.
    None(Unavailable),
}

/// Why nothing can be acquired.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Unavailable {
    /// Every slot is held, not open, or passed over.
    Exhausted {
        /// When the first of those held expires, Unix ms by the store's clock; `None` if none is held.
        earliest_expiry: Option<Millis>,
    },
    /// The only slot wanted can't be had now.
    Occupied {
        /// Which.
        slot: Slot,
        /// Its holder's key; `None` if it is not held, but not open, or passed over.
        holder: Option<String>,
        /// When it expires, Unix ms by the store's clock.
        until: Option<Millis>,
    },
    /// The only slot wanted does not belong to the pool: it is out of range, reserved, or retired.
    NotInPool {
        /// Which.
        slot: Slot,
    },
}

/// A live lease of the same key by another incarnation: two owners believe to be the same.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Duplicate {
    /// The other's slot.
    pub slot: Slot,
    /// The other's fence.
    pub fence: Fence,
}

/// Chooses among the slots of a view at `now` (Unix ms by the store's clock, its lower bound), leaving out those in
/// `raced`, which were just lost to others. `spread` is any number: it picks among the free slots after a lost race.
#[must_use]
pub fn choose<V>(
    view: &View<V>,
    owner: &Owner,
    preference: Preference,
    now: Millis,
    raced: &BTreeSet<Slot>,
    spread: u64,
) -> Choice {
    if let Some(index) = own(view, owner) {
        return Choice::Held(index);
    }
    if let Preference::Only(slot) = preference {
        return only(view, slot, now, raced);
    }
    let mut free: Vec<(usize, &Record)> = usable(view)
        .filter(|(index, record)| is_free(record, now) && !raced.contains(&view.entries[*index].slot))
        .collect();
    // Those whose floor has passed come first, then the lowest.
    free.sort_by_key(|(index, record)| (record.next_floor > now, view.entries[*index].slot));
    let preferred = match preference {
        Preference::Prefer(slot) => free.iter().find(|(index, _)| view.entries[*index].slot == slot),
        Preference::Any | Preference::Only(_) => None,
    };
    let sticky = || free.iter().find(|(_, record)| record.last_key() == Some(owner.key.as_str()));
    let any = || if raced.is_empty() { free.first() } else { pick(&free, now, spread) };
    match preferred.or_else(sticky).or_else(any) {
        Some((index, _)) => Choice::Take(*index),
        None => Choice::None(Unavailable::Exhausted { earliest_expiry: earliest_expiry(view, now) }),
    }
}

/// Live leases of this owner's key by other incarnations.
#[must_use]
pub fn duplicates<V>(view: &View<V>, owner: &Owner, now: Millis) -> Vec<Duplicate> {
    let records = view.entries.iter().filter_map(|entry| Some((entry.slot, entry.state.record()?)));
    records
        .filter(|(_, record)| {
            record.live(now).is_some_and(|holding| {
                holding.owner.key == owner.key && holding.owner.incarnation != owner.incarnation
            })
        })
        .map(|(slot, record)| Duplicate { slot, fence: record.fence })
        .collect()
}

/// Slots that can't be read, and why.
pub fn corrupt<V>(view: &View<V>) -> impl Iterator<Item = (Slot, &str)> {
    view.entries.iter().filter_map(|entry| match &entry.state {
        SlotState::Corrupt(why) => Some((entry.slot, why.as_str())),
        SlotState::Shut | SlotState::Open(_) | SlotState::Deleting => None,
    })
}

/// Whether a `next_floor` lies implausibly far past the store's clock, see [`FAR_AHEAD`].
#[must_use]
pub fn is_far_ahead(next_floor: Millis, now: Millis) -> bool {
    next_floor > now.saturating_add(FAR_AHEAD)
}

fn own<V>(view: &View<V>, owner: &Owner) -> Option<usize> {
    view.entries.iter().position(|entry| {
        let holding = entry.state.record().and_then(Record::holding);
        holding.is_some_and(|holding| {
            &holding.owner == owner || bug("held_by_key") && holding.owner.key == owner.key
        })
    })
}

fn only<V>(view: &View<V>, slot: Slot, now: Millis, raced: &BTreeSet<Slot>) -> Choice {
    if !view.pool.allows(slot) {
        return Choice::None(Unavailable::NotInPool { slot });
    }
    let found = usable(view).find(|(index, _)| view.entries[*index].slot == slot);
    match found {
        Some((index, record)) if is_free(record, now) && !raced.contains(&slot) => Choice::Take(index),
        found => {
            let live = found.and_then(|(_, record)| record.live(now));
            Choice::None(Unavailable::Occupied {
                slot,
                holder: live.map(|holding| holding.owner.key.clone()),
                until: live.map(|holding| holding.expires_at),
            })
        }
    }
}

/// Open slots that belong to the pool.
fn usable<V>(view: &View<V>) -> impl Iterator<Item = (usize, &Record)> {
    view.entries.iter().enumerate().filter_map(|(index, entry): (usize, &Entry<V>)| {
        Some((index, entry.state.record().filter(|_| view.pool.allows(entry.slot))?))
    })
}

fn is_free(record: &Record, now: Millis) -> bool {
    record.live(now).is_none() && record.fence < MAX_FENCE && !is_far_ahead(record.next_floor, now)
}

/// Any of the free slots whose floor has passed, else any of the free.
fn pick<'a, 'r>(
    free: &'a [(usize, &'r Record)],
    now: Millis,
    spread: u64,
) -> Option<&'a (usize, &'r Record)> {
    let passed = free.iter().take_while(|(_, record)| record.next_floor <= now).count();
    let among = if passed > 0 { passed } else { free.len() };
    let index = spread.checked_rem(among as u64)?;
    free.get(usize::try_from(index).ok()?)
}

fn earliest_expiry<V>(view: &View<V>, now: Millis) -> Option<Millis> {
    usable(view).filter_map(|(_, record)| record.live(now)).map(|holding| holding.expires_at).min()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Pool, PoolState, Terms, algebra};

    const TERMS: Terms = Terms { ttl: 30_000, tolerance: 1_000 };
    const NOW: Millis = 1_000_000;

    fn view(states: Vec<SlotState>) -> View<()> {
        let last = Slot::try_from(states.len() - 1).unwrap();
        let entries = (0..).zip(states).map(|(slot, state)| Entry { slot, version: (), state }).collect();
        let pool = Pool {
            name: "ns/p".into(),
            bits: 10,
            first: 0,
            last,
            withheld: BTreeSet::new(),
            terms: TERMS,
            state: PoolState::Ready,
            barrier: 0,
        };
        View { pool, entries }
    }

    fn free(next_floor: Millis) -> SlotState {
        SlotState::Open(Record::open(0, next_floor))
    }

    fn freed_by(key: &str) -> SlotState {
        let owner = Owner::new(key);
        let held = algebra::acquire(&Record::open(0, 0), &owner, 0, TERMS).unwrap();
        SlotState::Open(algebra::release(&held, owner.incarnation, held.fence, 10).unwrap())
    }

    fn held(owner: &Owner, at: Millis) -> SlotState {
        SlotState::Open(algebra::acquire(&Record::open(0, 0), owner, at, TERMS).unwrap())
    }

    fn take(view: &View<()>, owner: &Owner, preference: Preference) -> Choice {
        choose(view, owner, preference, NOW, &BTreeSet::new(), 0)
    }

    #[test]
    fn the_order_is_own_then_preferred_then_sticky_then_lowest() {
        let me = Owner::new("me");
        let other = Owner::new("other");
        let all = view(vec![free(0), free(0), freed_by("me"), free(0), held(&me, NOW), held(&other, NOW)]);
        assert_eq!(take(&all, &me, Preference::Prefer(3)), Choice::Held(4));
        let again = Owner::new("me");
        assert_eq!(take(&all, &again, Preference::Prefer(3)), Choice::Take(3));
        assert_eq!(take(&all, &again, Preference::Prefer(5)), Choice::Take(2), "the preferred is held");
        assert_eq!(take(&all, &again, Preference::Any), Choice::Take(2));
        assert_eq!(take(&all, &Owner::new("new"), Preference::Any), Choice::Take(0));
    }

    #[test]
    fn an_expired_slot_of_the_same_key_is_sticky_and_a_live_one_is_a_duplicate() {
        let me = Owner::new("me");
        let before = Owner::new("me");
        let expired = view(vec![free(0), held(&before, NOW - TERMS.ttl)]);
        assert_eq!(take(&expired, &me, Preference::Any), Choice::Take(1));
        assert_eq!(duplicates(&expired, &me, NOW), []);
        let live = view(vec![free(0), held(&before, NOW - TERMS.ttl + 1)]);
        assert_eq!(take(&live, &me, Preference::Any), Choice::Take(0));
        assert_eq!(duplicates(&live, &me, NOW), [Duplicate { slot: 1, fence: 1 }]);
    }

    #[test]
    fn slots_whose_floor_has_passed_come_before_lower_ones() {
        let slots = view(vec![free(NOW + 500), free(NOW), free(0)]);
        assert_eq!(take(&slots, &Owner::new("me"), Preference::Any), Choice::Take(1));
    }

    #[test]
    fn shut_deleting_corrupt_withheld_far_ahead_and_spent_slots_are_passed_over() {
        let spent = SlotState::Open(Record::open(MAX_FENCE, 0));
        let corrupt_one = SlotState::Corrupt("next-floor: not a number".into());
        let mut slots = view(vec![
            SlotState::Shut,
            SlotState::Deleting,
            corrupt_one,
            free(0),
            free(NOW + FAR_AHEAD + 1),
            spent,
        ]);
        slots.pool.withheld.insert(3);
        let none = Choice::None(Unavailable::Exhausted { earliest_expiry: None });
        assert_eq!(take(&slots, &Owner::new("me"), Preference::Any), none);
        assert_eq!(corrupt(&slots).collect::<Vec<_>>(), [(2, "next-floor: not a number")]);
        slots.entries[4].state = free(NOW + FAR_AHEAD);
        assert_eq!(take(&slots, &Owner::new("me"), Preference::Any), Choice::Take(4));
    }

    #[test]
    fn exhausted_names_the_earliest_expiry() {
        let (a, b) = (Owner::new("a"), Owner::new("b"));
        let slots = view(vec![held(&a, NOW - 5), held(&b, NOW - 9)]);
        let none = Choice::None(Unavailable::Exhausted { earliest_expiry: Some(NOW - 9 + TERMS.ttl) });
        assert_eq!(take(&slots, &Owner::new("me"), Preference::Any), none);
    }

    #[test]
    fn the_only_slot_wanted_is_taken_or_named() {
        let a = Owner::new("a");
        let slots = view(vec![held(&a, NOW), free(0), SlotState::Shut]);
        let me = Owner::new("me");
        assert_eq!(take(&slots, &me, Preference::Only(1)), Choice::Take(1));
        let occupied = |slot, holder: Option<&str>, until| {
            Choice::None(Unavailable::Occupied { slot, holder: holder.map(Into::into), until })
        };
        assert_eq!(take(&slots, &me, Preference::Only(0)), occupied(0, Some("a"), Some(NOW + TERMS.ttl)));
        assert_eq!(take(&slots, &me, Preference::Only(2)), occupied(2, None, None));
        assert_eq!(take(&slots, &me, Preference::Only(3)), Choice::None(Unavailable::NotInPool { slot: 3 }));
    }

    #[test]
    fn after_a_lost_race_any_free_slot_will_do() {
        let slots = view((0..8).map(|_| free(0)).collect());
        let me = Owner::new("me");
        let raced = BTreeSet::from([0]);
        let picks: BTreeSet<_> = (0..7)
            .map(|spread| match choose(&slots, &me, Preference::Any, NOW, &raced, spread) {
                Choice::Take(index) => index,
                other => panic!("{other:?}"),
            })
            .collect();
        assert_eq!(picks, (1..8).collect());
    }
}
