//! Which slot a new pod may try first, so that a herd of pods does not fight for the lowest ones. A preference and no more:
//! the agent's compare-and-set decides.

use std::collections::{HashMap, VecDeque};

use cosid_kube::find::DEFAULT_POOL;
use cosid_kube::to_pool;
use cosid_lease::{Millis, Slot};

use crate::index::{Index, PoolKey};
use crate::reconcile::observe::{Slots, State};

/// How long a slot is not hinted at again, ms: by then its pod has acquired it or another.
const AGAIN: Millis = 60_000;
/// How old a list of free slots may be, ms.
const FRESH: Millis = 2_000;
/// And how old it is at least before it is made anew where it has run out, ms: making it reads every Lease of the pool.
const PAUSE: Millis = 250;

/// What each pool has to hint at.
#[derive(Debug)]
pub struct Hints {
    pools: HashMap<PoolKey, Free>,
    spread: usize,
}

#[derive(Debug, Default)]
struct Free {
    made: Millis,
    slots: VecDeque<Slot>,
    hinted: HashMap<Slot, Millis>,
}

impl Hints {
    /// `spread` is any number, another one for each replica: they begin at different slots.
    #[must_use]
    pub fn new(spread: usize) -> Self {
        Self { pools: HashMap::new(), spread }
    }

    /// A slot of the pool that `reference` means in `namespace`, free as far as is known at `now` (ms of any clock that
    /// does not go back; `time`: Unix ms, store clock), and not named in the last minute. `None` where no pool or no such
    /// slot is known.
    pub fn take(
        &mut self,
        index: &Index,
        namespace: &str,
        reference: Option<&str>,
        now: Millis,
        time: Millis,
    ) -> Option<Slot> {
        let key = pool(index, namespace, reference)?;
        // What was deleted long ago is forgotten some time.
        self.pools.retain(|_, free| now.saturating_sub(free.made) < 2 * AGAIN);
        let free = self.pools.entry(key.clone()).or_default();
        let age = now.saturating_sub(free.made);
        if free.made == 0 || age >= FRESH || (free.slots.is_empty() && age >= PAUSE) {
            free.hinted.retain(|_, at| now.saturating_sub(*at) < AGAIN);
            free.slots = slots(index, &key, time).filter(|slot| !free.hinted.contains_key(slot)).collect();
            if !free.slots.is_empty() {
                let start = self.spread % free.slots.len();
                free.slots.rotate_left(start);
            }
            free.made = now.max(1);
        }
        let slot = free.slots.pop_front()?;
        free.hinted.insert(slot, now);
        Some(slot)
    }
}

/// The pool that the pod's agent will find.
fn pool(index: &Index, namespace: &str, reference: Option<&str>) -> Option<PoolKey> {
    if let Some(reference) = reference {
        let (namespace, name) = reference.split_once('/').unwrap_or((namespace, reference));
        return Some(PoolKey { namespace: namespace.to_owned(), name: name.to_owned() });
    }
    let all = index.pools().map(|pool| PoolKey::of(pool)).filter(|key| key.namespace == namespace);
    let mut all: Vec<PoolKey> = all.collect();
    if all.len() > 1 {
        all.retain(|key| key.name == DEFAULT_POOL);
    }
    all.pop()
}

/// Free slots, lowest first; those whose floor has not passed yet are left to whoever finds no other.
fn slots(index: &Index, key: &PoolKey, time: Millis) -> impl Iterator<Item = Slot> {
    let view = index.view(key);
    let pool = view.pool.as_ref().and_then(|pool| to_pool(pool).ok());
    let uid = view.pool.as_ref().and_then(|pool| pool.metadata.uid.clone());
    let seen = Slots::of(&key.name, uid.as_deref(), &view.leases, time);
    let free: Vec<Slot> = seen.that(|state| matches!(state, State::Free)).map(|(slot, _)| slot).collect();
    free.into_iter().filter(move |&slot| pool.as_ref().is_some_and(|pool| pool.allows(slot)))
}

#[cfg(test)]
mod tests {
    use cosid_kube::pool::{SlotRange, Watermark};
    use cosid_kube::{SlotPool, SlotPoolSpec, SlotPoolStatus, codec};
    use cosid_lease::{Owner, Record, Terms, algebra};

    use super::*;

    fn index(names: &[&str], held: &[Slot]) -> Index {
        let mut index = Index::default();
        for name in names {
            let range = SlotRange { first: 0, last: 7 };
            let spec = SlotPoolSpec { slots: Some(range), reserved: vec![2], ..SlotPoolSpec::default() };
            let mut pool = SlotPool::new(name, spec);
            pool.metadata.namespace = Some("shop".into());
            pool.status =
                Some(SlotPoolStatus { watermark: Some(Watermark::default()), ..SlotPoolStatus::default() });
            for slot in 0..8 {
                let open = Record::open(0, 5);
                let terms = Terms { ttl: 30_000, tolerance: 1_000 };
                let taken = algebra::acquire(&open, &Owner::new("a"), 1_000, terms).unwrap();
                let record = if held.contains(&slot) { taken } else { open };
                index.put_lease(codec::encode(&codec::new_lease(&pool, slot), &record, 30, None).unwrap());
            }
            index.put_pool(pool);
        }
        index
    }

    #[test]
    fn each_free_slot_is_named_once_a_minute_and_held_or_reserved_ones_never() {
        let (index, mut hints) = (index(&["orders"], &[0, 5]), Hints::new(0));
        let mut take = |now| hints.take(&index, "shop", Some("orders"), now, 2_000);
        let first: Vec<_> = (0..6).map(|more| take(1_000 + more)).collect();
        assert_eq!(first, [Some(1), Some(3), Some(4), Some(6), Some(7), None]);
        assert_eq!(take(50_000), None);
        assert_eq!(take(61_500), Some(1));
    }

    #[test]
    fn replicas_begin_at_different_slots() {
        let index = index(&["orders"], &[]);
        let first = |spread| Hints::new(spread).take(&index, "shop", Some("shop/orders"), 1, 2_000);
        assert_eq!((first(0), first(3), first(10)), (Some(0), Some(4), Some(4)));
    }

    #[test]
    fn the_pool_is_the_one_that_the_agent_will_find() {
        let mut hints = Hints::new(0);
        let mut take = |index: &Index, namespace: &str, reference: Option<&str>| {
            hints.take(index, namespace, reference, 1, 2_000).is_some()
        };
        assert!(take(&index(&["orders"], &[]), "shop", None));
        assert!(take(&index(&["orders", "default"], &[]), "shop", None));
        assert!(!take(&index(&["orders", "users"], &[]), "shop", None));
        assert!(!take(&index(&["orders"], &[]), "other", None));
        assert!(!take(&index(&["orders"], &[]), "shop", Some("users")));
        assert!(take(&index(&["orders"], &[]), "other", Some("shop/orders")));
    }
}
