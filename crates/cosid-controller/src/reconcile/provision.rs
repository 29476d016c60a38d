//! Which Leases a pool needs, which of them are not as they should be, and which may go.

use cosid_kube::codec::{self, FINALIZER, POOL_LABEL};
use cosid_kube::pool::SlotPool;
use cosid_lease::{Pool, Slot};
use k8s_openapi::api::coordination::v1::Lease;
use kube::ResourceExt;

use super::observe::{Seen, Slots, State};

/// Up to so many slots, all have a Lease from the start. A thousand Leases are made in seconds and take about 1 MB of
/// etcd; a pool with the widest slots would take 1 GB.
pub const ALL_UP_TO: usize = 1024;

/// The least number of free slots that a larger pool keeps ready.
const AHEAD: usize = 64;

/// How many free slots a larger pool keeps ready for this many held: a quarter, so that the number of rounds to any size
/// grows with its logarithm, and the Leases made for nothing stay a fixed share. A Deployment that doubles at once waits
/// for four rounds of creations, each under way as soon as the first acquisitions are seen.
fn ahead(held: usize) -> usize {
    AHEAD.max(held / 4)
}

/// The slots for which Leases are to be made, lowest first.
#[must_use]
pub fn missing(pool: &Pool, slots: &Slots) -> Vec<Slot> {
    let unmade = (pool.first..=pool.last).filter(|&slot| pool.allows(slot) && !slots.0.contains_key(&slot));
    if pool.size() <= ALL_UP_TO {
        return unmade.collect();
    }
    let held = slots.count(|state| matches!(state, State::Live { .. }));
    let free = slots.count(|state| matches!(state, State::Free | State::Cooling { .. } | State::Shut));
    unmade.take(ahead(held).saturating_sub(free)).collect()
}

/// The Lease with its label, finalizer and owner put back, where somebody took one off. What its slot's record says is
/// never touched.
#[must_use]
pub fn mended(lease: &Lease, pool: &SlotPool) -> Option<Lease> {
    let made = codec::new_lease(pool, codec::slot_of(lease, &pool.name_any())?);
    if lease.metadata.deletion_timestamp.is_some() {
        return None;
    }
    let mut mended = lease.clone();
    let labels = mended.metadata.labels.get_or_insert_default();
    labels.insert(POOL_LABEL.to_owned(), pool.name_any());
    let finalizers = mended.metadata.finalizers.get_or_insert_default();
    if !finalizers.iter().any(|finalizer| finalizer == FINALIZER) {
        finalizers.push(FINALIZER.to_owned());
    }
    if mended.metadata.owner_references.iter().flatten().next().is_none() {
        mended.metadata.owner_references = made.metadata.owner_references;
    }
    (mended != *lease).then_some(mended)
}

/// The Leases that go before a pool does: all but those that are live, and those on their way already.
pub fn evictable(slots: &Slots) -> impl Iterator<Item = &Seen> {
    slots.that(|state| !matches!(state, State::Live { .. } | State::Going)).map(|(_, seen)| seen)
}

/// The Leases of an earlier pool of this name that nobody holds: they are made anew under this one.
pub fn outdated(slots: &Slots) -> impl Iterator<Item = &Seen> {
    evictable(slots).filter(|seen| seen.foreign)
}
